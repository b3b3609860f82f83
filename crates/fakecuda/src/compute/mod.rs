//! Execution of kernels: their CUDA C++ is compiled for the CPU and run, thread by thread.

mod translate;

use crate::driver::driver;
use libc::{RTLD_LOCAL, RTLD_NOW, dlerror, dlopen, dlsym};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Headers that a kernel's source is compiled with, by file name.
const HEADERS: [(&str, &str); 5] = [
    ("kernel.hpp", include_str!("../../cpp/kernel.hpp")),
    ("cuda.hpp", include_str!("../../cpp/cuda.hpp")),
    ("hopper.hpp", include_str!("../../cpp/hopper.hpp")),
    ("half.hpp", include_str!("../../cpp/half.hpp")),
    ("matrix.hpp", include_str!("../../cpp/matrix.hpp")),
];

/// Runs a grid. Arguments: its size, a block's size, bytes of shared memory, an address for each parameter. Returns a
/// message if the grid does not finish.
type Entry = extern "C" fn(*const c_uint, *const c_uint, c_uint, *mut *mut c_void) -> *const c_char;

/// Compiler and runner of a program's kernels, by their sources.
pub struct Computer {
    /// Sanitizer that kernels are compiled with: `thread` or `address`.
    pub sanitizer: Option<String>,
    /// Folder of the compiled kernels.
    pub folder: PathBuf,
    /// Source of each program that NVRTC is asked to compile, by its handle.
    pub programs: HashMap<usize, Arc<str>>,
    kernels: HashMap<usize, Result<Entry, String>>,
}

impl Computer {
    pub fn new(folder: PathBuf, sanitizer: Option<String>) -> std::io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        HEADERS.iter().try_for_each(|(name, text)| std::fs::write(folder.join(name), text))?;
        Ok(Self { sanitizer, folder, programs: HashMap::new(), kernels: HashMap::new() })
    }

    /// Returns the source from which PTX was compiled, by this run or by an earlier one with the same folder: programs
    /// cache PTX.
    pub fn source_of(&self, ptx: &str) -> Option<Arc<str>> {
        std::fs::read_to_string(self.source_file(ptx)).ok().map(Into::into)
    }

    fn keep_source(&self, ptx: &str, source: &str) -> std::io::Result<()> {
        let file = self.source_file(ptx);
        let own = self.of_this_process(&file, "cu");
        std::fs::write(&own, source).and_then(|()| std::fs::rename(own, file))
    }

    fn source_file(&self, ptx: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        ptx.hash(&mut hasher);
        self.folder.join(format!("ptx-{:016x}.cu", hasher.finish()))
    }

    /// Temporary file name, unique to this process: others may write the same file.
    fn of_this_process(&self, file: &Path, extension: &str) -> PathBuf {
        file.with_extension(format!("{}.{extension}", std::process::id()))
    }

    /// Runs a launch of the kernel `place`, called `name` in `source`.
    ///
    /// # Errors
    /// When it could not be computed, with the reason.
    ///
    /// # Safety
    /// `values` has an address for each parameter of the kernel, and memory behind pointers is as large as the kernel
    /// assumes.
    pub unsafe fn run(
        &mut self,
        place: usize,
        name: &str,
        source: Option<Arc<str>>,
        [grid, block]: [[c_uint; 3]; 2],
        shared: u64,
        values: *mut *mut c_void,
    ) -> Result<(), String> {
        if !self.kernels.contains_key(&place) {
            let compiled = source
                .ok_or_else(|| {
                    "its source is unknown: it comes from a cache, and was compiled without FAKECUDA_COMPUTE".into()
                })
                .and_then(|source| self.compile(name, &source));
            self.kernels.insert(place, compiled);
        }
        let entry = self.kernels[&place].clone()?;
        let shared = c_uint::try_from(shared).unwrap_or(c_uint::MAX);
        let failure = entry(grid.as_ptr(), block.as_ptr(), shared, values);
        if failure.is_null() {
            return Ok(());
        }
        // SAFETY: if it is not null, it is a C string that stays valid until the next launch.
        Err(unsafe { CStr::from_ptr(failure) }.to_string_lossy().into_owned())
    }

    /// Compiles a kernel, unless a run with the same folder has done it.
    fn compile(&self, name: &str, source: &str) -> Result<Entry, String> {
        let text = translate::to_cpp(source, name);
        let mut hasher = DefaultHasher::new();
        (HEADERS, &text, &self.sanitizer).hash(&mut hasher);
        let stem = self.folder.join(format!("{name:.80}-{:016x}", hasher.finish()));
        let library = stem.with_extension("so");
        if !library.is_file() {
            self.build(&text, &stem, &library)?;
        }
        open(&library)
    }

    fn build(&self, text: &str, stem: &Path, library: &Path) -> Result<(), String> {
        let (file, fresh) = (self.of_this_process(stem, "cpp"), self.of_this_process(stem, "new"));
        std::fs::write(&file, text).map_err(|e| e.to_string())?;
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut command = Command::new(&compiler);
        command
            .args(["-std=c++20", "-O1", "-g", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing"]);
        command.args(translate::is_alone(text).then_some("-DFAKECUDA_ALONE"));
        command.args(self.sanitizer.iter().map(|sanitizer| format!("-fsanitize={sanitizer}")));
        command.arg("-I").arg(&self.folder).arg(&file).arg("-o").arg(&fresh);
        // Libraries that a sanitizer preloads into this program must not affect the compiler.
        command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
        let output = command.output().map_err(|e| format!("{}: {e}", compiler.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().find(|line| line.contains("error")).unwrap_or("the compiler failed");
            return Err(first.replace(&*self.folder.to_string_lossy(), ""));
        }
        // The source is kept beside it, because a sanitizer reports its lines.
        let kept = std::fs::rename(&file, stem.with_extension("cpp"));
        kept.and_then(|()| std::fs::rename(&fresh, library)).map_err(|e| e.to_string())
    }
}

fn open(library: &Path) -> Result<Entry, String> {
    let path = CString::new(library.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the library was just compiled from CubeCL's source; nothing in it runs when it is loaded.
    let found = unsafe {
        let library = dlopen(path.as_ptr(), RTLD_NOW | RTLD_LOCAL);
        if library.is_null() { library } else { dlsym(library, c"fakecuda_launch".as_ptr()) }
    };
    if found.is_null() {
        // SAFETY: after a failure there is a message.
        return Err(unsafe { CStr::from_ptr(dlerror()) }.to_string_lossy().into_owned());
    }
    // SAFETY: the function of this name has this type.
    Ok(unsafe { std::mem::transmute::<*mut c_void, Entry>(found) })
}

/// Records the source of a program that NVRTC is given.
pub fn note_source(program: usize, source: &CStr) {
    if let Some(computer) = &mut driver().computer {
        computer.programs.insert(program, source.to_string_lossy().into());
    }
}

/// Records the PTX of a program.
pub fn note_ptx(program: usize, ptx: &CStr) {
    if let Some(computer) = &driver().computer
        && let Some(source) = computer.programs.get(&program)
        && let Err(e) = computer.keep_source(&ptx.to_string_lossy(), source)
    {
        eprintln!("fakecuda: cannot keep a kernel's source: {e}");
    }
}

#[cfg(test)]
mod tests;
