//! NVIDIA's run-time compiler: every call is forwarded to the real library, and programs are counted and timed.

use crate::compute::{note_ptx, note_source};
use crate::driver::driver;
use libc::{RTLD_LOCAL, RTLD_NOW, dlerror, dlopen, dlsym};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::Instant;

type Program = *mut c_void;
/// `nvrtcResult`; 0 is success.
type Answer = c_int;

/// Returns the address of a function in the real library. Without the library there is nothing to test, so the program
/// ends.
fn real(name: &CStr) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let path = driver().nvrtc.clone();
        let file = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: the user who runs the test names the file.
        let library = unsafe { dlopen(file.as_ptr(), RTLD_NOW | RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: after `dlopen` failed there is a message.
            let reason = unsafe { CStr::from_ptr(dlerror()) }.to_string_lossy().into_owned();
            eprintln!("fakecuda: FAKECUDA_NVRTC names no NVRTC: {reason}");
            std::process::exit(2);
        }
        library as usize
    });
    // SAFETY: the library is open, and stays open.
    let function = unsafe { dlsym(library as *mut c_void, name.as_ptr()) };
    if function.is_null() {
        eprintln!("fakecuda: the NVRTC that FAKECUDA_NVRTC names has no {}", name.to_string_lossy());
        std::process::exit(2);
    }
    function
}

/// Defines functions that are forwarded unchanged.
macro_rules! passed_on {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $answer {
            let function = real(const { as_c(concat!(stringify!($name), "\0")) });
            // SAFETY: the real function of this name has the same signature.
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($kind),*) -> $answer>(function)($($argument),*) }
        }
    )*};
}

const fn as_c(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a name ends by a zero"),
    }
}

passed_on! {
    nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Answer;
    nvrtcGetErrorString(answer: Answer) -> *const c_char;
    nvrtcGetPTXSize(program: Program, size: *mut usize) -> Answer;
    nvrtcGetProgramLogSize(program: Program, size: *mut usize) -> Answer;
    nvrtcGetProgramLog(program: Program, text: *mut c_char) -> Answer;
    nvrtcDestroyProgram(program: *mut Program) -> Answer;
    nvrtcGetNumSupportedArchs(count: *mut c_int) -> Answer;
    nvrtcGetSupportedArchs(architectures: *mut c_int) -> Answer;
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcCreateProgram(
    program: *mut Program,
    source: *const c_char,
    name: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> Answer {
    type Create = extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Answer;
    // SAFETY: the real function of this name has the same signature.
    let create = unsafe { std::mem::transmute::<*mut c_void, Create>(real(c"nvrtcCreateProgram")) };
    let answer = create(program, source, name, count, headers, names);
    if answer == 0 {
        // SAFETY: a source is zero-terminated, and the handle was just written.
        unsafe { note_source(*program as usize, CStr::from_ptr(source)) };
    }
    answer
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetPTX(program: Program, text: *mut c_char) -> Answer {
    // SAFETY: the real function of this name has the same signature.
    let get = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(Program, *mut c_char) -> Answer>(real(c"nvrtcGetPTX"))
    };
    let answer = get(program, text);
    if answer == 0 {
        // SAFETY: PTX is zero-terminated, and was just written.
        note_ptx(program as usize, unsafe { CStr::from_ptr(text) });
    }
    answer
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcCompileProgram(program: Program, count: c_int, options: *const *const c_char) -> Answer {
    type Compile = extern "C" fn(Program, c_int, *const *const c_char) -> Answer;
    // SAFETY: the real function of this name has the same signature.
    let compile = unsafe { std::mem::transmute::<*mut c_void, Compile>(real(c"nvrtcCompileProgram")) };
    // Outside the lock: a compilation takes seconds, and other threads continue.
    let started = Instant::now();
    let answer = compile(program, count, options);
    let seconds = started.elapsed().as_secs_f64();
    let mut driver = driver();
    let nvrtc = &mut driver.report.nvrtc;
    nvrtc.programs += 1;
    nvrtc.refused += u64::from(answer != 0);
    nvrtc.seconds += seconds;
    nvrtc.longest = nvrtc.longest.max(seconds);
    if answer != 0 {
        driver.problem("NVRTC refused a program".into());
    }
    answer
}
