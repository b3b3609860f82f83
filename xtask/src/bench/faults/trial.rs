//! One run and what happens to it.

use super::end::End;
use super::fault::{Fault, fill, flip, in_newest_checkpoint, kill, set_writable, terminate, truncate};
use super::subject::{Subject, Trace};
use crate::bench::random::Random;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where runs take place, and what the machine lets happen to them.
pub struct Ground {
    dir: TempDir,
    /// The program that is tested: a copy, which users without rights can start too.
    program: PathBuf,
    /// Whether file systems can be mounted, and processes started as a user whom permissions hold back.
    is_root: bool,
}

/// Whom permissions hold back.
const NOBODY: u32 = 65_534;
/// Room for a run several times over.
const DISK: &str = "size=48m";
/// The most faults that a run meets.
const FAULTS: usize = 4;
/// Longer than any of these runs.
const PATIENCE: Duration = Duration::from_secs(300);

impl Ground {
    pub fn new(program: Option<&Path>) -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let tested = program.map_or_else(std::env::current_exe, |program| Ok(program.to_owned()))?;
        let program = dir.path().join("xtask");
        std::fs::copy(tested, &program)?;
        let mut ground = Self { dir, program, is_root: false };
        ground.is_root = Disk::mount(&ground.dir.path().join("probe")).is_ok();
        if ground.is_root {
            set_mode(ground.dir.path(), 0o755);
            set_mode(&ground.program, 0o755);
        }
        Ok(ground)
    }

    /// Whether a fault can be made here.
    pub fn allows(&self, fault: Fault) -> bool {
        // Elsewhere permissions hold back the user of this process too.
        self.is_root || fault != Fault::FullDisk
    }
}

fn set_mode(path: &Path, mode: u32) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    }
}

/// A small file system in memory, gone with this value.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path) -> Result<Self, String> {
        std::fs::create_dir(path).map_err(|e| e.to_string())?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(path.to_owned())),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A run that things happen to.
pub struct Trial<'a> {
    ground: &'a Ground,
    subject: &'a Subject,
    place: PathBuf,
    random: Random,
    /// What has happened to it while it was alive, and whether it went on afterwards.
    pub faults: Vec<(Fault, bool)>,
    /// Files that were damaged, and what they were then. Nobody writes the checkpoints of a stage again that had ended.
    damaged: Vec<(PathBuf, Vec<u8>)>,
    _disk: Option<Disk>,
}

impl<'a> Trial<'a> {
    /// A place of its own for the run of a seed.
    pub fn new(ground: &'a Ground, subject: &'a Subject, seed: u64) -> Result<Self, String> {
        let place = ground.dir.path().join(format!("{}-{seed}", subject.name));
        let disk = if ground.is_root { Some(Disk::mount(&place)?) } else { None };
        let prepare = || {
            std::fs::create_dir_all(place.join("tmp"))?;
            std::fs::write(place.join("run.yaml"), subject.yaml)?;
            #[cfg(unix)]
            if ground.is_root {
                std::os::unix::fs::chown(&place, Some(NOBODY), None)?;
                std::os::unix::fs::chown(place.join("tmp"), Some(NOBODY), None)?;
            }
            Ok::<(), std::io::Error>(())
        };
        prepare().map_err(|e| format!("`{}`: {e}", place.display()))?;
        Ok(Self {
            ground,
            subject,
            place,
            random: Random::new(seed, subject.name, 0),
            faults: Vec::new(),
            damaged: Vec::new(),
            _disk: disk,
        })
    }

    /// What the run leaves when nothing happens to it.
    pub fn undisturbed(ground: &'a Ground, subject: &'a Subject) -> Result<Trace, String> {
        let trial = Self::new(ground, subject, 0)?;
        let status = wait(&mut trial.start()?)?;
        if !status.success() {
            return Err(format!("the undisturbed run ended with {status}: {}", trial.said()));
        }
        let trace = subject.trace(&trial.run_dir());
        match trace.iter().find(|(_, content)| content.is_empty()) {
            Some((file, _)) => Err(format!("the undisturbed run left no `{}`", file.display())),
            None => Ok(trace),
        }
    }

    /// Trains under faults until it is done. `length` is how long it takes undisturbed.
    pub fn run(&mut self, expected: &Trace, length: Duration) -> End {
        for turn in 0.. {
            let before = self.faults.len();
            let ended = self.session(length, turn < FAULTS);
            let Ok(is_done) = ended else { return End::Lost(ended.unwrap_err()) };
            // Going on after a fault is asked of the session behind it, unless the process ended well all the same.
            let survived = if is_done { self.faults.len() } else { before };
            self.faults[..survived].iter_mut().for_each(|(_, went_on)| *went_on = true);
            if is_done {
                break;
            }
        }
        let found = self.subject.trace(&self.run_dir());
        let is_ours = |path: &Path| {
            let (file, content) = (self.run_dir().join(path), found.get(path));
            self.subject.has_stages() && self.damaged.iter().any(|(at, left)| *at == file && Some(left) == content)
        };
        let differs =
            expected.iter().find(|(path, content)| found.get(*path) != Some(content) && !is_ours(path.as_path()));
        differs.map_or(End::Same, |(path, content)| {
            let found = found.get(path).map(Vec::as_slice).unwrap_or_default();
            End::Different(format!("`{}` differs: {}", path.display(), difference(content, found)))
        })
    }

    /// One process, with a fault or without; whether the run is done.
    fn session(&mut self, length: Duration, disturbed: bool) -> Result<bool, String> {
        let mut child = self.start()?;
        if !disturbed {
            return self.judge(wait(&mut child)?);
        }
        let possible: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| self.ground.allows(*fault)).collect();
        let fault = *self.random.pick(&possible);
        let moment = Instant::now() + length.mul_f64(self.random.share());
        while Instant::now() < moment {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return self.judge(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inflict(fault, &mut child)
    }

    /// Makes a fault happen, and waits until the process has ended by it or by itself.
    fn inflict(&mut self, fault: Fault, child: &mut Child) -> Result<bool, String> {
        let run = self.run_dir();
        self.faults.push((fault, false));
        match fault {
            Fault::Kill => kill(child),
            Fault::Terminate => {
                terminate(child);
                return match wait(child)?.code() {
                    // Asked before it listens to signals, it ends at once.
                    Some(130) | None => Ok(false),
                    _ => self.judge(child.wait().map_err(|e| e.to_string())?),
                };
            }
            Fault::FullDisk => {
                let filler = fill(&self.place);
                let status = wait(child)?;
                std::fs::remove_file(filler).map_err(|e| e.to_string())?;
                return Ok(status.success());
            }
            Fault::ReadOnly => {
                set_writable(&run, false);
                let status = wait(child)?;
                set_writable(&run, true);
                return Ok(status.success());
            }
            Fault::Truncated | Fault::BitFlip => {
                kill(child);
                if let Some(file) = in_newest_checkpoint(&run, &mut self.random) {
                    self.damage(file, if fault == Fault::BitFlip { flip } else { truncate });
                }
            }
            Fault::TruncatedUnderIt => {
                if let Some(file) = in_newest_checkpoint(&run, &mut self.random) {
                    self.damage(file, truncate);
                }
                kill(child);
            }
            Fault::SecondStart => {
                if !self.is_owned_by(child) {
                    kill(child);
                    return Ok(false);
                }
                let mut second = self.start()?;
                let status = wait(&mut second)?;
                let first = child.try_wait().map_err(|e| e.to_string())?;
                // If the first has ended meanwhile, the second had nothing to be refused for.
                if first.is_none() && status.code() != Some(2) {
                    return Err(format!("the second of two processes ended with {status}"));
                }
                kill(child);
            }
        }
        Ok(false)
    }

    /// Waits until a process owns the run's directory; whether it does, and has not ended.
    fn is_owned_by(&self, child: &mut Child) -> bool {
        let owner = format!("\"pid\":{},", child.id());
        while matches!(child.try_wait(), Ok(None)) {
            if std::fs::read_to_string(self.run_dir().join(".lock")).is_ok_and(|text| text.contains(&owner)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn damage(&mut self, file: PathBuf, damage: impl Fn(&Path, &mut Random)) {
        damage(&file, &mut self.random);
        self.damaged.push((file.clone(), std::fs::read(file).unwrap_or_default()));
    }

    /// Whether a process that ended by itself is done.
    fn judge(&self, status: ExitStatus) -> Result<bool, String> {
        if status.success() { Ok(true) } else { Err(format!("{status}: {}", self.said())) }
    }

    /// Begins the run, or goes on with it.
    fn start(&self) -> Result<Child, String> {
        let log = std::fs::File::create(self.place.join("said")).map_err(|e| e.to_string())?;
        let mut command = Command::new(&self.ground.program);
        command.args(["train", "--config", "run.yaml"]).current_dir(&self.place).env("TMPDIR", self.place.join("tmp"));
        if self.run_dir().join("config.yaml").exists() {
            command.arg("--resume");
        }
        #[cfg(unix)]
        if self.ground.is_root {
            use std::os::unix::process::CommandExt;
            command.uid(NOBODY);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(|e| e.to_string())
    }

    /// What the last process said at last.
    fn said(&self) -> String {
        let said = std::fs::read_to_string(self.place.join("said")).unwrap_or_default();
        said.lines().last().unwrap_or_default().to_owned()
    }

    fn run_dir(&self) -> PathBuf {
        self.place.join("runs").join(self.subject.name)
    }
}

/// The first line that is another, of files of text.
fn difference(expected: &[u8], found: &[u8]) -> String {
    let (Ok(expected), Ok(found)) = (std::str::from_utf8(expected), std::str::from_utf8(found)) else {
        return format!("{} and {} bytes", expected.len(), found.len());
    };
    let lines = expected.lines().map(Some).chain(std::iter::repeat(None)).zip(found.lines().map(Some).chain([None]));
    let first = lines.into_iter().find(|(expected, found)| expected != found);
    first.map_or_else(String::new, |(expected, found)| format!("{expected:?} became {found:?}"))
}

/// Waits for a process, but not for ever.
fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status);
        }
        if started.elapsed() > PATIENCE {
            kill(child);
            return Err(format!("it did not end within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
