//! A thread that runs collective operations with other processes, one after the other.
//!
//! CubeCL does not reveal the CUDA stream of its kernels. So the thread waits until a tensor is complete before it
//! gives it to NCCL on a separate stream, and the process waits for the thread before it uses the sum. Both wait on the
//! host, for some microseconds per bucket of gradients.

use super::error::NcclError;
use super::library::Nccl;
use super::sum::DeviceSum;
use crate::cube::{empty, launched};
use crate::device::DeviceSpec;
use crate::{Reading, read_behind};
use burn::tensor::{Device, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl_cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use cudarc::driver::result::{DriverError, ctx, device as card, primary_ctx, stream};
use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclComm, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

type Server = <CudaRuntime as Runtime>::Server;

#[derive(Debug)]
pub struct Communicator {
    count: usize,
    jobs: Sender<Job>,
    /// NCCL's communicator; null once it is destroyed.
    handle: Arc<AtomicPtr<ncclComm>>,
}

/// A pending sum.
struct Job {
    kind: Kind,
    /// Addends and output, sent once fusion has executed the operation.
    tensors: Receiver<[CubeTensor; 2]>,
    /// Read of one element of the addends: it completes once they are computed.
    ready: Reading,
    done: Sender<Result<Duration, String>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    AllReduce,
    ReduceScatter,
}

pub fn new_id(device: &Device) -> Result<Vec<u8>, NcclError> {
    index_of(device)?;
    let nccl = Nccl::get()?;
    let mut id = MaybeUninit::<ncclUniqueId>::zeroed();
    // SAFETY: the memory is of the id's type, and zeros are a valid id.
    let id = unsafe {
        nccl.checked("ncclGetUniqueId", (nccl.get_unique_id)(id.as_mut_ptr())).map_err(NcclError::Failed)?;
        id.assume_init()
    };
    Ok(id.internal.iter().map(|byte| byte.cast_unsigned()).collect())
}

impl Communicator {
    pub fn join(device: &Device, id: &[u8], rank: usize, count: usize, patience: Duration) -> Result<Self, NcclError> {
        let (index, nccl) = (index_of(device)?, Nccl::get()?);
        let handle: Arc<AtomicPtr<ncclComm>> = Arc::default();
        let (joined, jobs) = (channel(), channel::<Job>());
        let (own, id) = (handle.clone(), unique_id(id));
        let run = move || match Member::join(nccl, index, id, [rank, count], &own) {
            Ok(member) => {
                let _ = joined.0.send(Ok(()));
                jobs.1.into_iter().for_each(|job| member.answer(job));
            }
            Err(reason) => drop(joined.0.send(Err(reason))),
        };
        let started = thread::Builder::new().name("nccl".into()).spawn(run);
        started.map_err(|e| NcclError::Failed(format!("a thread cannot be started: {e}")))?;
        // If another process is missing, NCCL waits forever, and so does its thread.
        match joined.1.recv_timeout(patience) {
            Ok(joined) => joined.map_err(NcclError::Failed)?,
            Err(RecvTimeoutError::Timeout) => return Err(NcclError::Late(patience)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(NcclError::Failed("its thread has ended, as printed above".into()));
            }
        }
        Ok(Self { count, jobs: jobs.0, handle })
    }

    pub fn all_reduce(&self, values: Tensor<1>) -> DeviceSum {
        self.begin(Kind::AllReduce, values)
    }

    pub fn reduce_scatter(&self, values: Tensor<1>) -> DeviceSum {
        self.begin(Kind::ReduceScatter, values)
    }

    fn begin(&self, kind: Kind, values: Tensor<1>) -> DeviceSum {
        let [size] = values.dims();
        let length = match kind {
            Kind::AllReduce => size,
            Kind::ReduceScatter => size / self.count,
        };
        let first = values.clone().narrow(0, 0, 1);
        let (given, tensors) = channel();
        let give = move |[values]: [CubeTensor; 1]| {
            let values = into_contiguous(values);
            let sum = empty(&values, [length]);
            let _ = given.send([values, sum.clone()]);
            [sum]
        };
        let [sum] = launched("nccl", [values.into_dispatch()], [[length].into()], give);
        // The read is queued after memory for the sum was allocated, so that earlier users of that memory are done.
        let ready = read_behind(first);
        let (done, answer) = channel();
        // If the thread has ended, the wait reports it.
        let _ = self.jobs.send(Job { kind, tensors, ready, done });
        DeviceSum { values: Box::new(Tensor::from_dispatch(sum)), done: answer }
    }

    pub fn abort(&self) {
        let handle = self.handle.swap(null_mut(), Ordering::AcqRel);
        if let (false, Ok(nccl)) = (handle.is_null(), Nccl::get()) {
            // SAFETY: the communicator was joined, and nobody else has destroyed it: only one caller can take the
            // pointer.
            unsafe { (nccl.comm_abort)(handle) };
        }
    }
}

/// This process's member of the group, in the thread that calls NCCL.
struct Member {
    nccl: &'static Nccl,
    handle: Arc<AtomicPtr<ncclComm>>,
    stream: CUstream,
}

impl Member {
    fn join(
        nccl: &'static Nccl,
        index: usize,
        id: ncclUniqueId,
        [rank, count]: [usize; 2],
        handle: &Arc<AtomicPtr<ncclComm>>,
    ) -> Result<Self, String> {
        let failed = |error: DriverError| error.to_string();
        // SAFETY: CubeCL has opened the device and holds its context for the lifetime of the process.
        unsafe {
            let context = card::get(index as i32).and_then(|card| primary_ctx::retain(card));
            ctx::set_current(context.map_err(failed)?).map_err(failed)?;
        }
        let stream = stream::create(stream::StreamKind::NonBlocking).map_err(failed)?;
        let mut found: ncclComm_t = null_mut();
        // SAFETY: the memory is of the pointer's type, and the context is current in this thread.
        let joined = unsafe { (nccl.comm_init_rank)(&raw mut found, count as i32, id, rank as i32) };
        nccl.checked("ncclCommInitRank", joined)?;
        handle.store(found, Ordering::Release);
        Ok(Self { nccl, handle: handle.clone(), stream })
    }

    fn answer(&self, Job { kind, tensors, ready, done }: Job) {
        let sum = || {
            ready.finish();
            // The read was queued after it.
            let [values, sum] = tensors.recv().map_err(|e| e.to_string())?;
            self.sum(kind, &values, &sum)
        };
        // A failed device panics when it is read.
        let found = catch_unwind(AssertUnwindSafe(sum));
        let _ = done.send(found.unwrap_or_else(|_| Err("the device has failed".into())));
    }

    /// Returns the time from the call until the sum is there.
    fn sum(&self, kind: Kind, values: &CubeTensor, sum: &CubeTensor) -> Result<Duration, String> {
        let handle = self.handle.load(Ordering::Acquire);
        if handle.is_null() {
            return Err("it was given up".into());
        }
        let memory = |x: &CubeTensor| x.client.get_resource::<Server>(x.handle.clone()).map_err(|e| e.to_string());
        let [from, to] = [memory(values)?, memory(sum)?];
        let pointers = (from.resource().ptr as *const _, to.resource().ptr as *mut _);
        let (call, name) = match kind {
            Kind::AllReduce => (self.nccl.all_reduce, "ncclAllReduce"),
            Kind::ReduceScatter => (self.nccl.reduce_scatter, "ncclReduceScatter"),
        };
        // The sum's length is the right count for both calls: all elements, or this process's part.
        let length = sum.meta.num_elements();
        let (float, add) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        let began = Instant::now();
        // SAFETY: both tensors live until the stream is synchronised, and their lengths match the call.
        unsafe {
            let called = call(pointers.0, pointers.1, length, float, add, handle, self.stream.cast());
            self.nccl.checked(name, called)?;
            stream::synchronize(self.stream).map_err(|e| e.to_string())?;
        }
        Ok(began.elapsed())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let handle = self.handle.swap(null_mut(), Ordering::AcqRel);
        if !handle.is_null() {
            // SAFETY: as in `abort`; no sum is pending.
            unsafe { (self.nccl.comm_destroy)(handle) };
        }
    }
}

fn index_of(device: &Device) -> Result<usize, NcclError> {
    match DeviceSpec::of(device) {
        Some(DeviceSpec::Cuda(index)) => Ok(index),
        _ => Err(NcclError::NotCuda),
    }
}

fn unique_id(bytes: &[u8]) -> ncclUniqueId {
    let mut id = ncclUniqueId { internal: [0; 128] };
    for (to, from) in id.internal.iter_mut().zip(bytes) {
        *to = from.cast_signed() as c_char;
    }
    id
}
