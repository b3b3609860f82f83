//! NVIDIA's NCCL for processes of one machine. Each connects to the socket of the first, which sums the data of all, in
//! rank order, and returns the sums.

use crate::abi::{DevicePointer, Handle};
use crate::device::current_device;
use crate::driver::driver;
use std::collections::HashMap;
use std::ffi::{OsString, c_char, c_int, c_void};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// `ncclResult_t`.
type Answer = c_int;
const OK: Answer = 0;
const UNHANDLED_CUDA_ERROR: Answer = 1;
const INVALID_ARGUMENT: Answer = 4;
const INVALID_USAGE: Answer = 5;
const REMOTE_ERROR: Answer = 6;

/// `ncclFloat32` and `ncclSum`, the supported values.
const FLOAT32: c_int = 7;
const SUM: c_int = 0;

/// Timeout for members to join.
const PATIENCE: Duration = Duration::from_secs(20);

/// `ncclUniqueId`: the zero-terminated path of a socket.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

/// One member of a group.
struct Member {
    rank: usize,
    count: usize,
    /// Connection to the first member; for the first member, connections to all others in rank order.
    peers: Vec<UnixStream>,
}

static MEMBERS: LazyLock<Mutex<HashMap<usize, Arc<Mutex<Member>>>>> = LazyLock::new(Mutex::default);

impl UniqueId {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("fakecuda-nccl-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let mut id = Self([0; 128]);
        id.0.iter_mut().zip(path.as_os_str().as_bytes()).for_each(|(to, from)| *to = *from);
        id
    }

    fn path(&self) -> PathBuf {
        OsString::from_vec(self.0.iter().copied().take_while(|byte| *byte != 0).collect()).into()
    }
}

impl Member {
    /// Joins the group. The first member waits for all others and rejects two with the same device, as NCCL does.
    fn join(path: &Path, rank: usize, count: usize, device: u32) -> Result<Self, Answer> {
        let remote = |_: io::Error| REMOTE_ERROR;
        if rank > 0 {
            let mut first = connected(path).map_err(remote)?;
            first.write_all(&(rank as u32).to_le_bytes()).map_err(remote)?;
            first.write_all(&device.to_le_bytes()).map_err(remote)?;
            let answer = number(&mut first).map_err(remote)?;
            return if answer == 0 { Ok(Self { rank, count, peers: vec![first] }) } else { Err(INVALID_USAGE) };
        }
        let listener = UnixListener::bind(path).map_err(remote)?;
        let (mut peers, mut devices) = (HashMap::new(), vec![device]);
        for _ in 1..count {
            let (mut peer, _) = listener.accept().map_err(remote)?;
            let [rank, device] = [number(&mut peer), number(&mut peer)];
            devices.push(device.map_err(remote)?);
            peers.insert(rank.map_err(remote)? as usize, peer);
        }
        let _ = fs::remove_file(path);
        devices.sort_unstable();
        let is_refused = devices.windows(2).any(|pair| pair[0] == pair[1]);
        for peer in peers.values_mut() {
            peer.write_all(&u32::from(is_refused).to_le_bytes()).map_err(remote)?;
        }
        if is_refused {
            return Err(INVALID_USAGE);
        }
        let peers: Option<Vec<UnixStream>> = (1..count).map(|rank| peers.remove(&rank)).collect();
        Ok(Self { rank, count, peers: peers.ok_or(INVALID_ARGUMENT)? })
    }

    /// Returns the sum over all members, which must give equal lengths in the same `call`.
    fn sum(&mut self, call: u32, own: Vec<f32>) -> io::Result<Vec<f32>> {
        let head = [call, own.len() as u32];
        if self.rank > 0 {
            let first = &mut self.peers[0];
            head.iter().try_for_each(|number| first.write_all(&number.to_le_bytes()))?;
            first.write_all(&bytes(&own))?;
            return floats(first, own.len());
        }
        let mut sum = own;
        for peer in &mut self.peers {
            if [number(peer)?, number(peer)?] != head {
                return Err(io::Error::other("members ask for different things"));
            }
            let theirs = floats(peer, sum.len())?;
            sum.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
        }
        let bytes = bytes(&sum);
        self.peers.iter_mut().try_for_each(|peer| peer.write_all(&bytes))?;
        Ok(sum)
    }
}

fn connected(path: &Path) -> io::Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            found => return found,
        }
    }
}

fn number(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(from: &mut impl Read, count: usize) -> io::Result<Vec<f32>> {
    let mut bytes = vec![0; 4 * count];
    from.read_exact(&mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap_or_default())).collect())
}

fn member(comm: Handle) -> Option<Arc<Mutex<Member>>> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).get(&(comm as usize)).cloned()
}

/// Sums `length` numbers, or this member's part of them.
fn reduce(call: u32, from: DevicePointer, to: DevicePointer, length: usize, comm: Handle, stream: Handle) -> Answer {
    let Some(member) = member(comm) else { return INVALID_ARGUMENT };
    let mut member = member.lock().unwrap_or_else(PoisonError::into_inner);
    let (given, own) = match call {
        0 => (length, 0),
        _ => (length * member.count, length * member.rank),
    };
    let Ok(values) = driver().collective_input(from, given, stream) else { return UNHANDLED_CUDA_ERROR };
    let Ok(sum) = member.sum(call, values) else { return REMOTE_ERROR };
    let wrote = driver().collective_output(to, &sum[own..own + length], stream);
    if wrote.is_ok() { OK } else { UNHANDLED_CUDA_ERROR }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(out: *mut UniqueId) -> Answer {
    // SAFETY: the caller provides memory for an id.
    unsafe { out.write(UniqueId::new()) };
    OK
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(out: *mut Handle, count: c_int, id: UniqueId, rank: c_int) -> Answer {
    let (Ok(count), Ok(rank)) = (usize::try_from(count), usize::try_from(rank)) else { return INVALID_ARGUMENT };
    let Some(device) = current_device() else { return UNHANDLED_CUDA_ERROR };
    match Member::join(&id.path(), rank, count, device) {
        Ok(member) => {
            let handle = driver().new_handle();
            MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(Mutex::new(member)));
            // SAFETY: the caller provides memory for a handle.
            unsafe { out.write(handle as Handle) };
            OK
        }
        Err(answer) => answer,
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(comm: Handle) -> Answer {
    let removed = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&(comm as usize));
    if removed.is_some() { OK } else { INVALID_ARGUMENT }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(comm: Handle) -> Answer {
    ncclCommDestroy(comm)
}

/// Collectives that take a type and an operation, with the number by which their members know the call.
macro_rules! collectives {
    ($($name:ident = $call:literal),*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            from: *const c_void,
            to: *mut c_void,
            count: usize,
            kind: c_int,
            operation: c_int,
            comm: Handle,
            stream: Handle,
        ) -> Answer {
            if (kind, operation) != (FLOAT32, SUM) {
                return INVALID_ARGUMENT;
            }
            reduce($call, from as DevicePointer, to as DevicePointer, count, comm, stream)
        }
    )*};
}

collectives!(ncclAllReduce = 0, ncclReduceScatter = 1);

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(answer: Answer) -> *const c_char {
    let text = match answer {
        OK => c"no error",
        UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        _ => c"unknown result code",
    };
    text.as_ptr()
}
