//! Trained models behind a local page and an HTTP endpoint.
//!
//! A [`Server`] answers with the models of its [`Library`]: named ones, and the runs below a directory. Its page takes audio
//! from files and the microphone, and shows text with the times and confidences of words, Morse keying, the router's gates
//! and the curves of runs. `/v1/audio/transcriptions` takes the requests of clients that are written for OpenAI's.
//!
//! It is for the people at one machine. Requests are answered one after the other, their [`Limits`] are fixed at the start,
//! and no part of a request names a file: uploads stay in memory, and models are chosen from the list. It has no accounts,
//! no encryption and no store of what it has transcribed.
//!
//! ```no_run
//! use undertone_serve::{Library, Limits, Server};
//!
//! let device = undertone::ops::DeviceSpec::Cpu;
//! let library = Library::new(&["whisper-nano-cw".into()], "runs".as_ref(), device)?;
//! let server = Server::bind("127.0.0.1:8100".parse()?, library, Limits::default(), None)?;
//! println!("{}", server.url());
//! server.run(|| false)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod api;
mod error;
mod guard;
mod job;
mod library;
mod limits;
mod openai;
mod page;
mod rest;
mod runs;
mod server;
mod state;
mod upload;
mod wave;

pub use error::ServeError;
pub use library::Library;
pub use limits::Limits;
pub use server::Server;
