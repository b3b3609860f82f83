//! Modules of PTX and the kernels in them.

use crate::abi::{
    Handle, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_FOUND, SUCCESS, Status,
    UNSUPPORTED_PTX_VERSION, status,
};
use crate::driver::{Driver, Function, driver};
use crate::ptx::Ptx;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: c_int = 8;

impl Driver {
    fn load(&mut self, text: &str) -> Result<usize, Status> {
        self.check(false)?;
        let ptx = Ptx::parse(text).ok_or(INVALID_PTX)?;
        let own = self.card.architecture();
        if ptx.target > own || (ptx.is_specific && ptx.target != own) {
            self.problem(format!("PTX for sm_{} is given to sm_{own}", ptx.target));
            return Err(NO_BINARY_FOR_GPU);
        }
        if ptx.version > newest_ptx(self.report.driver) {
            let (major, minor) = ptx.version;
            self.problem(format!("PTX {major}.{minor} is given to a driver for CUDA {}", self.report.driver));
            return Err(UNSUPPORTED_PTX_VERSION);
        }
        let file = format!("{:04}-{:.100}.ptx", self.modules.len(), ptx.entries[0].name);
        if let Some(out) = &self.out
            && let Err(e) = std::fs::write(out.join(&file), text)
        {
            eprintln!("fakecuda: cannot write `{file}`: {e}");
        }
        let bytes = text.len() as u64;
        let source = self.computer.as_ref().and_then(|computer| computer.source_of(text));
        let functions =
            ptx.entries.into_iter().map(|entry| self.add_function(entry, &file, bytes, source.clone())).collect();
        self.modules.push(functions);
        Ok(self.modules.len())
    }

    /// Returns the kernel of a handle.
    pub fn function(&mut self, handle: Handle) -> Result<&mut Function, Status> {
        let place = (handle as usize).checked_sub(1).ok_or(INVALID_HANDLE)?;
        self.functions.get_mut(place).ok_or(INVALID_HANDLE)
    }
}

/// Newest PTX version that a driver loads, by the table of the PTX ISA's release notes.
fn newest_ptx(driver: c_int) -> (u32, u32) {
    let minor = u32::try_from(driver % 1000 / 10).unwrap_or(0);
    match (driver / 1000, minor) {
        (..12, _) => (7, 8),
        (12, 6) => (8, 5),
        (12, 7..) => (8, minor - 1),
        (12, _) => (8, minor),
        _ => (9, minor),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(out: *mut Handle, image: *const c_void) -> Status {
    // SAFETY: an image has at least four bytes.
    if unsafe { std::slice::from_raw_parts(image.cast::<u8>(), 4) } == b"\x7fELF" {
        driver().problem("a compiled module is loaded, and only PTX is understood here".into());
        return INVALID_IMAGE;
    }
    // SAFETY: PTX is zero-terminated.
    let Ok(text) = unsafe { CStr::from_ptr(image.cast()) }.to_str() else { return INVALID_PTX };
    let loaded = driver().load(text);
    // SAFETY: the caller provides memory for a handle.
    status(loaded.map(|module| unsafe { *out = module as Handle }))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    out: *mut Handle,
    image: *const c_void,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> Status {
    cuModuleLoadData(out, image)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(_module: Handle) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char) -> Status {
    let driver = driver();
    // SAFETY: a name is zero-terminated.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some(functions) = (module as usize).checked_sub(1).and_then(|place| driver.modules.get(place)) else {
        return INVALID_HANDLE;
    };
    let found = functions.iter().find(|function| driver.functions[**function].entry.name.as_bytes() == name);
    // SAFETY: the caller provides memory for a handle.
    found.map_or(NOT_FOUND, |function| unsafe {
        *out = (function + 1) as Handle;
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(out: *mut c_int, attribute: c_int, function: Handle) -> Status {
    let mut driver = driver();
    let architecture = driver.card.architecture();
    let value = driver.function(function).map(|function| match attribute {
        0 => function.entry.max_threads.unwrap_or(1024),
        1 => function.entry.shared_memory,
        // Registers: only the real compiler knows them.
        4 => 32,
        5 | 6 => u64::from(architecture),
        MAX_DYNAMIC_SHARED => function.opted_in,
        _ => 0,
    });
    // SAFETY: the caller provides memory for a number.
    status(value.map(|value| unsafe { *out = c_int::try_from(value).unwrap_or(c_int::MAX) }))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) -> Status {
    let mut driver = driver();
    let most = driver.card.shared_memory_optin;
    let found = driver.function(function).map(|function| {
        let own = i64::try_from(function.entry.shared_memory).unwrap_or(i64::MAX);
        let fits = value >= 0 && i64::from(value) + own <= i64::from(most);
        if attribute == MAX_DYNAMIC_SHARED && fits {
            function.opted_in = u64::from(value.unsigned_abs());
        }
        (fits || attribute != MAX_DYNAMIC_SHARED, function.entry.name.clone())
    });
    status(found.and_then(|(is_fine, name)| {
        if is_fine {
            return Ok(());
        }
        driver.problem(format!("`{name}` wants {value} bytes of shared memory, and a block may have {most}"));
        Err(INVALID_VALUE)
    }))
}

#[cfg(test)]
mod tests {
    use super::newest_ptx;

    #[test]
    fn drivers_load_the_versions_of_the_release_notes() {
        let of = |drivers: [i32; 7]| drivers.map(newest_ptx);
        let expected = [(7, 8), (8, 0), (8, 4), (8, 5), (8, 7), (8, 8), (9, 0)];
        assert_eq!(of([11_080, 12_000, 12_040, 12_060, 12_080, 12_090, 13_000]), expected);
    }
}
