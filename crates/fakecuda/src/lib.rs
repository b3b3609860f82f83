//! A CUDA driver without a GPU: a library that stands for `libcuda.so.1` and `libnvrtc.so` in programs that load both when they
//! run, as CubeCL does; and for `libnccl.so.2`, by which processes on one machine add up what is in their devices' memory.
//!
//! Kernels are really generated, and really compiled by NVIDIA's NVRTC for the architecture of the card that is pretended. A
//! device's memory is the host's, a copy is a copy, and a launch is checked, counted and done. So it shows what a compiler refuses,
//! launches that a card would refuse, pointers to memory that was freed, copies that do not wait for each other, how many launches,
//! waits and bytes a step takes, how much memory is reserved, and the host's time. It shows no time of a device: events are stamped
//! by a clock that each launch moves on by the same time.
//!
//! By itself it computes nothing, and what is read back is zeros. With `FAKECUDA_COMPUTE` the CUDA C++ of each kernel is compiled
//! for the CPU, too (by `c++`, or what `CXX` names), and run thread by thread, with barriers, shared memory, warps and products of
//! matrices in loops: what is read back is what the kernels make, so that what was generated for CUDA is compared with what other
//! backends make, and sanitizers find its races and what lies beyond an array. That is for small sizes: a launch of a million
//! threads takes a second. What only NVIDIA's compiler or hardware does (rounding of its fast functions, the order of atomic sums,
//! Hopper's bulk copies) it does not show.
//!
//! This is deliberately only as much of a driver as CubeCL calls: any other function is missing, which a program finds out when it
//! looks it up.
//!
//! Settings are environment variables, read when the program initialises CUDA:
//!
//! | variable | what it sets | default |
//! |---|---|---|
//! | `FAKECUDA_CARD` | the card: [`Card::ALL`] | `h200` |
//! | `FAKECUDA_DEVICES` | how many of them there are | 1 |
//! | `FAKECUDA_DRIVER` | the version of CUDA the driver is for: 12000 is 12.0 | 12080 |
//! | `FAKECUDA_MEMORY` | bytes of a device's memory | the card's |
//! | `FAKECUDA_NVRTC` | the real `libnvrtc.so.12` | the loader finds it |
//! | `FAKECUDA_OUT` | a folder for `report.json` and every module's PTX, `NNNN-KERNEL.ptx` | nothing is written |
//! | `FAKECUDA_FAULT` | what goes wrong: [`Fault`] | nothing |
//! | `FAKECUDA_COMPUTE` | a folder for kernels that are computed, which a later run takes from there | nothing is computed |
//! | `FAKECUDA_SANITIZE` | `thread` or `address`: what computed kernels are compiled with; that library is to be preloaded | neither |
//! | `FAKECUDA_LAUNCH_US` | microseconds of a launch on the pretended clock | 5 |
//! | `FAKECUDA_READS` | `real`: what is read back is what was copied there, not zeros | zeros |
//!
//! What a program did is a [`Report`], written when it exits.
//!
//! Linux alone.
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
