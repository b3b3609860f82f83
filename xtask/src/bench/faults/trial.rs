//! One run and what happens to it.

use super::decoy::{TARGET, place_decoys};
use super::end::End;
use super::fault::{Fault, fill, flip, in_newest_checkpoint, kill, set_writable, terminate, truncate};
use super::subject::{Subject, Trace};
use crate::bench::random::Random;
use crate::bench::snapshot::Snapshot;
use crate::process::ended;
use clap::ValueEnum;
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

/// User id of `nobody`, who is subject to file permissions.
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

/// Makes everything below `path` the property of the user that runs are started as.
#[cfg(unix)]
fn give_away(path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::chown(path, Some(NOBODY), None)?;
    if path.is_dir() {
        std::fs::read_dir(path)?.try_for_each(|entry| give_away(&entry?.path()))?;
    }
    Ok(())
}

/// A symbolic link at `at`; whether there is one now.
fn link(target: &Path, at: &Path) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(target, at).is_ok();
    #[cfg(not(unix))]
    return false;
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
    decoys: Snapshot,
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
            let decoys = place_decoys(&place)?;
            #[cfg(unix)]
            if ground.is_root {
                // What nobody may write could not be harmed.
                give_away(&place)?;
            }
            Ok::<Snapshot, std::io::Error>(decoys)
        };
        let decoys = prepare().map_err(|e| format!("`{}`: {e}", place.display()))?;
        Ok(Self {
            ground,
            subject,
            place,
            random: Random::new(seed, subject.name, 0),
            faults: Vec::new(),
            damaged: Vec::new(),
            decoys,
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
        if let Some(path) = self.decoys.changed() {
            return End::Lost(format!("`{}` is not the run's, and has changed", path.display()));
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
        if !disturbed {
            return self.judge(wait(&mut self.start()?)?);
        }
        let possible: Vec<Fault> =
            Fault::value_variants().iter().copied().filter(|fault| self.ground.allows(*fault)).collect();
        let fault = *self.random.pick(&possible);
        let mut command = self.command()?;
        if fault == Fault::ClosedOutput {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        // What it says meanwhile waits in the pipe, which has room for more than that.
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
                if let Some(file) = self.in_newest_checkpoint() {
                    self.damage(file, if fault == Fault::BitFlip { flip } else { truncate });
                }
            }
            Fault::TruncatedUnderIt => {
                if let Some(file) = self.in_newest_checkpoint() {
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
            Fault::ClosedOutput => {
                drop((child.stdout.take(), child.stderr.take()));
                return self.judge(wait(child)?);
            }
            Fault::LinkedLock => {
                kill(child);
                let lock = run.join(".lock");
                let _ = std::fs::remove_file(&lock);
                if run.is_dir() && link(&self.place.join(TARGET), &lock) {
                    self.must_refuse(&[], &lock)?;
                    std::fs::remove_file(&lock).map_err(|e| e.to_string())?;
                }
            }
            Fault::Notes => {
                kill(child);
                let stage = if self.subject.has_stages() { run.join("phase1/low") } else { run };
                let notes = stage.join("notes.txt");
                if stage.join("metrics.jsonl").exists() && std::fs::write(&notes, "mine").is_ok() {
                    self.must_refuse(&["--set", "run.overwrite=true"], &notes)?;
                }
            }
        }
        Ok(false)
    }

    /// Starts once more, which must be refused because of a file that must be there afterwards.
    fn must_refuse(&self, more: &[&str], file: &Path) -> Result<(), String> {
        let before = std::fs::read(file).ok();
        let status = self.command_with(more)?.status().map_err(|e| e.to_string())?;
        let said = self.said();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if status.code() != Some(2) || !said.contains(&*name) {
            return Err(format!("with `{name}` in the way a start ended with {status}: {said}"));
        }
        if file.symlink_metadata().is_err() || std::fs::read(file).ok() != before {
            return Err(format!("`{name}` is not what it was"));
        }
        Ok(())
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

    fn in_newest_checkpoint(&mut self) -> Option<PathBuf> {
        let is_left = |(at, left): &(PathBuf, Vec<u8>)| std::fs::read(at).is_ok_and(|content| content == *left);
        let is_damaged = |step: &Path| self.damaged.iter().any(|file| file.0.starts_with(step) && is_left(file));
        let run = self.run_dir();
        in_newest_checkpoint(&run, &mut self.random, is_damaged)
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
        self.command()?.spawn().map_err(|e| e.to_string())
    }

    fn command(&self) -> Result<Command, String> {
        let goes_on = self.run_dir().join("config.yaml").exists();
        self.command_with(if goes_on { &["--resume"] } else { &[] })
    }

    fn command_with(&self, more: &[&str]) -> Result<Command, String> {
        let log = std::fs::File::create(self.place.join("said")).map_err(|e| e.to_string())?;
        let mut command = Command::new(&self.ground.program);
        command.args(["train", "--config", "run.yaml"]).args(more);
        command.current_dir(&self.place).env("TMPDIR", self.place.join("tmp"));
        #[cfg(unix)]
        if self.ground.is_root {
            use std::os::unix::process::CommandExt;
            command.uid(NOBODY);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(command)
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
    let status = ended(child, || started.elapsed() <= PATIENCE).map_err(|e| e.to_string())?;
    status.ok_or_else(|| format!("it did not end within {} s", PATIENCE.as_secs()))
}
