//! State of the driver, behind one lock: settings, live objects, and counters.

use crate::abi::Status;
use crate::card::Card;
use crate::compute::Computer;
use crate::fault::Fault;
use crate::memory::{Blocks, Reads};
use crate::order::Order;
use crate::ptx::Entry;
use crate::report::{Kernel, Report};
use crate::stream::{Event, Stream};
use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Instant;

/// Device memory that a real driver's context takes.
const CONTEXT_BYTES: u64 = 512 << 20;

/// A kernel that can be launched.
pub struct Function {
    pub entry: Entry,
    /// Bytes of shared memory that it opted into.
    pub opted_in: u64,
    /// Index among the report's kernels.
    pub place: usize,
    /// CUDA C++ that it was compiled from, if kernels are computed and NVRTC was given it.
    pub source: Option<Arc<str>>,
}

/// State of the driver.
pub struct Driver {
    pub card: Card,
    pub devices: i32,
    pub memory_bytes: u64,
    pub fault: Option<Fault>,
    pub launch_milliseconds: f64,
    pub reads: Reads,
    /// Runner of kernels, if kernels are computed.
    pub computer: Option<Computer>,
    pub nvrtc: PathBuf,
    pub out: Option<PathBuf>,
    pub blocks: Blocks,
    pub order: Order,
    pub streams: HashMap<usize, Stream>,
    pub events: HashMap<usize, Event>,
    /// Functions of each module.
    pub modules: Vec<Vec<usize>>,
    pub functions: Vec<Function>,
    pub report: Report,
    started: Instant,
    handles: usize,
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::from_environment()));

/// Locks the driver for the duration of one call.
pub fn driver() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Driver {
    fn from_environment() -> Self {
        let key: String = setting("FAKECUDA_CARD").unwrap_or_else(|| "h200".into());
        let card = Card::named(&key).unwrap_or_else(|| refuse("FAKECUDA_CARD", &key));
        let fault = std::env::var("FAKECUDA_FAULT").ok();
        let report = Report {
            card: card.name.into(),
            architecture: card.architecture(),
            driver: setting("FAKECUDA_DRIVER").unwrap_or(12_080),
            ..Report::default()
        };
        let mut driver = Self {
            card,
            devices: setting("FAKECUDA_DEVICES").unwrap_or(1),
            memory_bytes: setting("FAKECUDA_MEMORY").unwrap_or(card.memory),
            fault: fault.map(|text| Fault::parse(&text).unwrap_or_else(|| refuse("FAKECUDA_FAULT", &text))),
            launch_milliseconds: setting("FAKECUDA_LAUNCH_US").unwrap_or(5.0) / 1000.0,
            reads: setting("FAKECUDA_READS").unwrap_or_default(),
            computer: computer(),
            nvrtc: setting("FAKECUDA_NVRTC").unwrap_or_else(|| "libnvrtc.so.12".into()),
            out: setting("FAKECUDA_OUT"),
            blocks: Blocks::default(),
            order: Order::default(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: Vec::new(),
            functions: Vec::new(),
            report,
            started: Instant::now(),
            handles: 0,
        };
        // The default stream, which a program does not create.
        let number = driver.order.add_stream();
        driver.streams.insert(0, Stream { number, milliseconds: 0.0 });
        if let Some(out) = &driver.out {
            let made = std::fs::create_dir_all(out);
            made.unwrap_or_else(|e| refuse("FAKECUDA_OUT", &format!("{}: {e}", out.display())));
        }
        // SAFETY: the function takes no argument and returns; libraries that are loaded at run time are not unloaded
        // before it runs.
        unsafe { libc::atexit(write_report) };
        driver
    }

    /// Returns a number that no handle has had so far.
    pub fn new_handle(&mut self) -> usize {
        self.handles += 16;
        self.handles
    }

    /// Counts an operation that hardware would have rejected or done wrong.
    pub fn problem(&mut self, sentence: String) {
        *self.report.problems.entry(sentence).or_default() += 1;
    }

    /// Returns the device's error, if this call already reports it.
    pub fn check(&self, waits: bool) -> Result<(), Status> {
        self.fault.and_then(|fault| fault.poison(self.report.launches, waits)).map_or(Ok(()), Err)
    }

    /// Number of bytes that can still be allocated.
    pub fn free_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(CONTEXT_BYTES).saturating_sub(self.report.memory.now)
    }

    /// Adds a kernel to the report and to the functions that can be launched; returns its index.
    pub fn add_function(&mut self, entry: Entry, file: &str, bytes: u64, source: Option<Arc<str>>) -> usize {
        self.report.kernels.push(Kernel {
            name: entry.name.clone(),
            file: file.into(),
            bytes,
            max_threads: entry.max_threads,
            shared_memory: entry.shared_memory,
            ..Kernel::default()
        });
        self.functions.push(Function { entry, opted_in: 0, place: self.report.kernels.len() - 1, source });
        self.functions.len() - 1
    }
}

/// Creates the runner of kernels, in the folder that `FAKECUDA_COMPUTE` names.
fn computer() -> Option<Computer> {
    let folder: PathBuf = setting("FAKECUDA_COMPUTE")?;
    let computer = Computer::new(folder.clone(), setting("FAKECUDA_SANITIZE"));
    Some(computer.unwrap_or_else(|e| refuse("FAKECUDA_COMPUTE", &format!("{}: {e}", folder.display()))))
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| refuse(name, &text)))
}

/// Ends a test with an invalid setting, because any fallback would test something else.
fn refuse(name: &str, value: &str) -> ! {
    eprintln!("fakecuda: {name}={value} cannot be");
    std::process::exit(2)
}

/// Returns the report of the program so far.
pub fn report() -> Report {
    let driver = driver();
    Report { seconds: driver.started.elapsed().as_secs_f64(), ..driver.report.clone() }
}

extern "C" fn write_report() {
    let text = serde_json::to_vec_pretty(&report()).unwrap_or_default();
    let Some(out) = &driver().out else { return };
    if let Err(e) = std::fs::write(out.join("report.json"), text) {
        eprintln!("fakecuda: cannot write the report to `{}`: {e}", out.display());
    }
}
