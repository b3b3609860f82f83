//! A CUDA driver without a GPU: a library that replaces `libcuda.so.1` and `libnvrtc.so` in programs that load both at
//! run time, as CubeCL does. It also replaces `libnccl.so.2`, with which processes on one machine sum data of their
//! devices.
//!
//! Kernels are generated as usual and compiled by NVIDIA's NVRTC for the architecture of the emulated card. Device
//! memory is host memory, and a copy is a copy. A launch is checked and counted. So you see what the compiler rejects,
//! launches that a card would reject, pointers to freed memory, and copies that are not synchronised with their users.
//! You also see the number of launches, waits and copied bytes of a step, the reserved memory, and the host's time. You
//! do not see device times: events are stamped by a clock that advances by the same time with each launch.
//!
//! By default kernels compute nothing, and reads return zeros. With `FAKECUDA_COMPUTE` the CUDA C++ of each kernel is
//! also compiled for the CPU (by `c++`, or the compiler in `CXX`) and run thread by thread. Barriers, shared memory,
//! warps and matrix products run in loops. Reads then return the kernels' results, so that you can compare code
//! generated for CUDA with other backends, and sanitizers find its races and accesses beyond an array. Use it for small
//! sizes: a launch of a million threads takes a second. It does not show effects of NVIDIA's compiler or hardware
//! alone: rounding of its fast functions, the order of atomic sums, Hopper's bulk copies.
//!
//! The library has only those functions of a driver that CubeCL calls; others are missing, which a program notices when
//! it looks them up.
//!
//! Settings are environment variables, read when the program initialises CUDA:
//!
//! | variable | what it sets | default |
//! |---|---|---|
//! | `FAKECUDA_CARD` | emulated card: [`Card::ALL`] | `h200` |
//! | `FAKECUDA_DEVICES` | number of devices | 1 |
//! | `FAKECUDA_DRIVER` | CUDA version of the driver: 12000 is 12.0 | 12080 |
//! | `FAKECUDA_MEMORY` | bytes of a device's memory | the card's |
//! | `FAKECUDA_NVRTC` | path of the real `libnvrtc.so.12` | found by the loader |
//! | `FAKECUDA_OUT` | folder for `report.json` and every module's PTX, `NNNN-KERNEL.ptx` | nothing is written |
//! | `FAKECUDA_FAULT` | injected fault: [`Fault`] | none |
//! | `FAKECUDA_COMPUTE` | folder for computed kernels, which later runs reuse | nothing is computed |
//! | `FAKECUDA_SANITIZE` | `thread` or `address`: sanitizer of computed kernels; preload its library | none |
//! | `FAKECUDA_LAUNCH_US` | microseconds of a launch on the emulated clock | 5 |
//! | `FAKECUDA_READS` | what reads return: `zeros`, `ones` (zeros, except that a training step counts as taken), or `real`, the bytes that were copied there | `zeros` |
//!
//! The program's operations are summarised in a [`Report`], written when it exits.
//!
//! Linux only.
//!
//! ```
//! use fakecuda::Card;
//!
//! let card = Card::named("t4").expect("a card of that name");
//! assert_eq!((card.architecture(), card.shared_memory_optin), (75, 65536));
//! ```

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called with pointers")]

mod abi;
mod card;
mod compute;
mod device;
mod driver;
mod fault;
mod launch;
mod memory;
mod module;
mod nccl;
mod nvrtc;
mod order;
mod ptx;
mod report;
mod stream;
mod tensor_map;

pub use card::Card;
pub use driver::report;
pub use fault::Fault;
pub use ptx::{Entry, Parameter, Ptx};
pub use report::{Copies, Kernel, Memory, Nvrtc, Report, Waits};
