//! Binding of NCCL's library. cudarc has one, but it does not look for `libnccl.so.2`, the name that packages install.

use super::error::NcclError;
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// File names of the library.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

type Stream = *mut c_void;
type GetUniqueId = unsafe extern "C" fn(*mut ncclUniqueId) -> ncclResult_t;
type CommInitRank = unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> ncclResult_t;
type EndComm = unsafe extern "C" fn(ncclComm_t) -> ncclResult_t;
type GetErrorString = unsafe extern "C" fn(ncclResult_t) -> *const c_char;
type Reduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    ncclDataType_t,
    ncclRedOp_t,
    ncclComm_t,
    Stream,
) -> ncclResult_t;

/// Functions used of NCCL.
pub struct Nccl {
    pub get_unique_id: GetUniqueId,
    pub comm_init_rank: CommInitRank,
    pub comm_destroy: EndComm,
    pub comm_abort: EndComm,
    pub all_reduce: Reduce,
    pub reduce_scatter: Reduce,
    get_error_string: GetErrorString,
    /// Keeps the functions loaded.
    _library: Library,
}

impl Nccl {
    /// Returns the library, which is loaded on first use.
    pub fn get() -> Result<&'static Self, NcclError> {
        static NCCL: OnceLock<Option<Nccl>> = OnceLock::new();
        NCCL.get_or_init(Self::load).as_ref().ok_or(NcclError::NotInstalled)
    }

    fn load() -> Option<Self> {
        // SAFETY: NVIDIA's library does nothing when it is loaded but to set itself up.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
        // SAFETY: these are the types of NCCL's header for functions of these names, the same in all of NCCL 2.
        unsafe {
            Some(Self {
                get_unique_id: *library.get(b"ncclGetUniqueId\0").ok()?,
                comm_init_rank: *library.get(b"ncclCommInitRank\0").ok()?,
                comm_destroy: *library.get(b"ncclCommDestroy\0").ok()?,
                comm_abort: *library.get(b"ncclCommAbort\0").ok()?,
                all_reduce: *library.get(b"ncclAllReduce\0").ok()?,
                reduce_scatter: *library.get(b"ncclReduceScatter\0").ok()?,
                get_error_string: *library.get(b"ncclGetErrorString\0").ok()?,
                _library: library,
            })
        }
    }

    /// Turns a call's result into an error with NCCL's message.
    pub fn checked(&self, call: &str, result: ncclResult_t) -> Result<(), String> {
        if result == ncclResult_t::ncclSuccess {
            return Ok(());
        }
        // SAFETY: NCCL has a text for every result, which lives as long as the library.
        let text = unsafe { CStr::from_ptr((self.get_error_string)(result)) };
        Err(format!("{call}: {} (NCCL_DEBUG=WARN has it say more)", text.to_string_lossy()))
    }
}
