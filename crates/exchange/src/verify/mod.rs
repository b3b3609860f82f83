//! Transcripts of an exported model by the programs that read it, beside Undertone's own.

use serde::Deserialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use undertone_metrics::{ErrorRate, wer};
use undertone_model::whisper::{GenerationConfig, WhisperConfig};

/// Program that a model is exported for. Each is run by Python, as the package of that name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Hugging Face transformers.
    Transformers,
    /// PEFT, on the base that the adapter names.
    Peft,
    /// CTranslate2, on the features that transformers computes.
    CTranslate2,
    /// faster-whisper, with its own features.
    FasterWhisper,
    /// whisper.cpp, through pywhispercpp.
    WhisperCpp,
}

impl Program {
    /// Programs that read a folder in the Hugging Face layout. faster-whisper is the last: it reads windows of 30 s alone.
    const OF_FOLDERS: [Self; 3] = [Self::Transformers, Self::CTranslate2, Self::FasterWhisper];
    /// Programs that read the folder of an adapter by itself.
    pub const OF_ADAPTERS: [Self; 1] = [Self::Peft];
    /// Programs that read a file in ggml's layout.
    pub const OF_GGML: [Self; 1] = [Self::WhisperCpp];

    /// Returns the programs that read a model's folder in the Hugging Face layout.
    pub fn of_folder(config: &WhisperConfig) -> &'static [Self] {
        let [without @ .., _] = &Self::OF_FOLDERS;
        if config.max_source_positions == 1500 { &Self::OF_FOLDERS } else { without }
    }

    /// Name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transformers => "transformers",
            Self::Peft => "peft",
            Self::CTranslate2 => "ctranslate2",
            Self::FasterWhisper => "faster-whisper",
            Self::WhisperCpp => "whisper.cpp",
        }
    }
}

/// A recording and its transcript by the model here.
#[derive(Clone, Debug)]
pub struct Clip {
    /// Name in messages.
    pub name: String,
    /// Samples: mono, 16 kHz.
    pub samples: Vec<f32>,
    /// Transcript of the data.
    pub reference: String,
    /// Transcript of the model here.
    pub text: String,
}

/// Language and task of a multilingual model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Code of the language, such as `en`.
    pub language: String,
    /// `transcribe` or `translate`.
    pub task: String,
}

impl Prompt {
    /// Returns what a model is given here when nothing else is asked for; `None` for a model of one language.
    pub fn of(generation: &GenerationConfig) -> Option<Self> {
        let language = generation.language.clone().unwrap_or_else(|| "en".into());
        let task = generation.task.clone().unwrap_or_else(|| "transcribe".into());
        generation.is_multilingual.then_some(Self { language, task })
    }
}

/// Transcripts of one program.
#[derive(Clone, Debug)]
pub struct Transcripts {
    /// Version of the program, and of what it runs on.
    pub version: String,
    /// Texts in the order of the clips.
    pub texts: Vec<String>,
    /// Duration of loading and transcribing, in seconds.
    pub seconds: f64,
}

/// Reason why a program has no transcripts.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A package of it is not installed.
    #[error("not installed: `{python} -m pip install {package}` would bring it")]
    NotInstalled {
        /// The interpreter.
        python: String,
        /// The missing package.
        package: String,
    },
    /// It ended with an error.
    #[error("failed: {0}")]
    Failed(String),
    /// Python cannot be started.
    #[error("`{}` cannot be started ({source}): give the Python that has the programs with --python", python.display())]
    Python {
        /// The interpreter.
        python: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The clips cannot be written for it.
    #[error("the clips cannot be written for it: {0}")]
    Clips(#[from] std::io::Error),
}

/// Program in Python that runs the others.
const PROGRAMS: &str = include_str!("programs.py");

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Missing { missing: String },
    Transcripts { version: String, texts: Vec<String>, seconds: f64 },
}

/// Transcribes clips with another program. `model` is the exported folder or file.
///
/// # Errors
/// When the program is not installed in that Python, or fails.
pub fn transcribe(
    program: Program,
    python: &Path,
    model: &Path,
    clips: &[Clip],
    prompt: Option<&Prompt>,
) -> Result<Transcripts, VerifyError> {
    let folder = write_clips(clips)?;
    let mut command = Command::new(python);
    command.args(["-c", PROGRAMS, program.name()]).arg(model).arg(folder.path());
    command.args(prompt.into_iter().flat_map(|prompt| [&prompt.language, &prompt.task]));
    let start = |source| VerifyError::Python { python: python.to_owned(), source };
    let output = command.stdin(Stdio::null()).output().map_err(start)?;
    if !output.status.success() {
        return Err(VerifyError::Failed(last_line(&output.stderr)));
    }
    match serde_json::from_slice(&output.stdout).map_err(|e| VerifyError::Failed(e.to_string()))? {
        Answer::Missing { missing } => {
            let python = python.display().to_string();
            Err(VerifyError::NotInstalled { python, package: package(&missing).to_owned() })
        }
        Answer::Transcripts { texts, .. } if texts.len() != clips.len() => {
            Err(VerifyError::Failed(format!("{} transcripts of {} clips", texts.len(), clips.len())))
        }
        Answer::Transcripts { version, texts, seconds } => {
            let texts = texts.iter().map(|text| plain(text)).collect();
            Ok(Transcripts { version, texts, seconds })
        }
    }
}

/// Speech that comes along, for models without clips of their own: eleven seconds of John F. Kennedy's inaugural address
/// (1961, in the public domain), mono, 16 kHz.
pub const SPEECH: Speech = Speech {
    name: "jfk.flac",
    flac: include_bytes!("clips/jfk.flac"),
    text: "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country.",
};

/// A bundled recording.
#[derive(Clone, Copy, Debug)]
pub struct Speech {
    /// Name of the file.
    pub name: &'static str,
    /// Content of the file, as FLAC.
    pub flac: &'static [u8],
    /// Transcript.
    pub text: &'static str,
}

impl Speech {
    /// Writes the file and a list of it into a folder. Returns the list, in the form of `data.train.path`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&self, folder: &Path) -> std::io::Result<PathBuf> {
        let (list, line) =
            (folder.join("clips.jsonl"), serde_json::json!({"audio_filepath": self.name, "text": self.text}));
        std::fs::write(folder.join(self.name), self.flac)?;
        std::fs::write(&list, format!("{line}\n"))?;
        Ok(list)
    }
}

/// Checks that Python can be started.
///
/// # Errors
/// When it cannot.
pub fn check_python(python: &Path) -> Result<(), VerifyError> {
    let start = Command::new(python).arg("--version").stdin(Stdio::null()).output();
    start.map(drop).map_err(|source| VerifyError::Python { python: python.to_owned(), source })
}

/// Writes each clip as raw samples. The names are in the order of the clips.
fn write_clips(clips: &[Clip]) -> Result<tempfile::TempDir, std::io::Error> {
    let folder = tempfile::tempdir()?;
    for (index, clip) in clips.iter().enumerate() {
        let mut file = std::io::BufWriter::new(std::fs::File::create(folder.path().join(format!("{index:06}")))?);
        clip.samples.iter().try_for_each(|sample| file.write_all(&sample.to_ne_bytes()))?;
        file.flush()?;
    }
    Ok(folder)
}

/// Returns the package that brings a module.
fn package(module: &str) -> &str {
    match module.split('.').next().unwrap_or(module) {
        "faster_whisper" => "faster-whisper",
        module => module,
    }
}

/// Returns the last line of a program's errors, which in Python names the error.
fn last_line(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing").to_owned()
}

/// Returns a text with single spaces between words: programs differ in the space before the first one.
pub fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Transcripts {
    /// Clips whose text differs from the model's here, by index.
    pub fn different(&self, clips: &[Clip]) -> Vec<usize> {
        (0..clips.len()).filter(|index| self.texts[*index] != plain(&clips[*index].text)).collect()
    }

    /// Word error rate against the transcripts of the data; `None` if those have no words.
    pub fn error_rate(&self, clips: &[Clip]) -> Option<f64> {
        error_rate(self.texts.iter().map(String::as_str), clips)
    }
}

/// Word error rate of texts against the clips' transcripts; `None` if those have no words.
pub fn error_rate<'a>(texts: impl Iterator<Item = &'a str>, clips: &[Clip]) -> Option<f64> {
    texts.zip(clips).map(|(text, clip)| wer(&clip.reference, text)).sum::<ErrorRate>().rate()
}

/// Returns lines that show how a program's texts differ from the model's here: both texts of each such clip.
pub fn differences(transcripts: &Transcripts, clips: &[Clip]) -> String {
    transcripts.different(clips).into_iter().fold(String::new(), |mut lines, index| {
        let Clip { name, text, .. } = &clips[index];
        let _ = writeln!(lines, "{name}\n  here   {}\n  there  {}", plain(text), transcripts.texts[index]);
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clip(reference: &str, text: &str) -> Clip {
        Clip { name: "a.wav".into(), samples: vec![0.5, -0.25], reference: reference.into(), text: text.into() }
    }

    fn transcripts(texts: &[&str]) -> Transcripts {
        Transcripts { version: "1".into(), texts: texts.iter().map(|text| plain(text)).collect(), seconds: 1.0 }
    }

    #[test]
    fn a_window_that_is_not_30_s_is_for_two_of_the_programs() {
        let stock = WhisperConfig::default();
        let short = WhisperConfig { max_source_positions: 400, ..stock.clone() };
        assert_eq!(Program::of_folder(&stock).len(), 3);
        assert_eq!(Program::of_folder(&short), [Program::Transformers, Program::CTranslate2]);
    }

    #[test]
    fn texts_are_compared_without_the_space_around_words() {
        let clips = [clip("one two", " one two"), clip("three", "three")];
        let found = transcripts(&["one  two ", "tree"]);
        assert_eq!(found.different(&clips), [1]);
        assert_eq!(found.error_rate(&clips), Some(1.0 / 3.0));
        assert_eq!(differences(&found, &clips), "a.wav\n  here   three\n  there  tree\n");
        assert_eq!(transcripts(&[""]).error_rate(&[clip("", "")]), None);
    }

    #[test]
    fn other_programs_are_given_the_language_and_task_that_are_taken_here() {
        let mut generation = GenerationConfig::new(true);
        let prompt = |language: &str, task: &str| Some(Prompt { language: language.into(), task: task.into() });
        assert_eq!(Prompt::of(&generation), prompt("en", "transcribe"));
        generation.language = Some("de".into());
        generation.task = Some("translate".into());
        assert_eq!(Prompt::of(&generation), prompt("de", "translate"));
        assert_eq!(Prompt::of(&GenerationConfig::new(false)), None);
    }

    #[test]
    fn samples_are_written_as_they_are() {
        let folder = write_clips(&[clip("", ""), clip("", "")]).expect("written");
        let bytes = std::fs::read(folder.path().join("000001")).expect("the second");
        assert_eq!(bytes, [0.5f32, -0.25].map(f32::to_ne_bytes).concat());
    }

    #[test]
    fn a_python_that_is_not_there_is_named() {
        let python = Path::new("/no/python");
        let transcripts = transcribe(Program::Transformers, python, Path::new("m"), &[], None).map(drop);
        for error in [transcripts, check_python(python)] {
            let error = error.expect_err("no such interpreter").to_string();
            assert!(error.contains("/no/python") && error.contains("--python"), "{error}");
        }
    }

    #[test]
    fn the_error_of_a_program_is_its_last_line() {
        assert_eq!(last_line(b"Traceback\n  line\nValueError: no such model\n\n"), "ValueError: no such model");
        assert_eq!(package("faster_whisper.audio"), "faster-whisper");
    }
}
