//! `undertone serve`: models and runs behind a local page.

use crate::failure::Failure;
use crate::note;
use crate::signals::on_end;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use undertone::ops::DeviceSpec;
use undertone_serve::{Library, Limits, ServeError, Server};

#[derive(clap::Args)]
pub struct Args {
    /// Model to transcribe with, as for `transcribe`; may be given several times
    #[arg(long = "model", value_name = "MODEL", default_value = "whisper-nano-cw-wide")]
    models: Vec<PathBuf>,
    /// Directory of the runs to choose from and to show
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Address to listen on; others than this machine's need the token that is printed
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8100)]
    port: u16,
    /// Token that requests need, instead of a random one
    #[arg(long, value_parser = token)]
    token: Option<String>,
    /// Device: cpu, cuda:0, wgpu:0, tch:cpu, tch:cuda:0 or auto
    #[arg(long, default_value = "auto")]
    device: String,
    /// Maximum size of a recording, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_upload: u32,
    /// Maximum length of a recording, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=6000))]
    max_minutes: u32,
    /// Number of requests that may wait while another is answered
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(0..=1000))]
    max_waiting: u16,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let device = args.device.parse::<DeviceSpec>().map_err(Failure::bad_input)?;
    let limits = Limits {
        bytes: (args.max_upload as usize) << 20,
        seconds: 60.0 * f64::from(args.max_minutes),
        waiting: args.max_waiting.into(),
        ..Limits::default()
    };
    let library = Library::new(&args.models, &args.runs, device).map_err(failure)?;
    let address = SocketAddr::new(args.host, args.port);
    let server = Server::bind(address, library, limits, args.token).map_err(failure)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    on_end(move || stopped.store(true, Ordering::Relaxed))?;
    note!("open {} in a browser; Ctrl-C ends the server", server.url());
    server.run(|| stop.load(Ordering::Relaxed)).map_err(failure)
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Model(error) => Failure::of_run(*error),
        ServeError::Bind { .. } | ServeError::SameName(_) | ServeError::Tasks { .. } | ServeError::Device(_) => {
            Failure::bad_input(error)
        }
        ServeError::System(_) => Failure::Machine(error.to_string()),
    }
}

/// Headers cannot hold other characters.
fn token(text: &str) -> Result<String, String> {
    let is_valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { Ok(text.to_owned()) } else { Err("give letters, digits and signs without spaces".into()) }
}
