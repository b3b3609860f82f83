//! `undertone export --verify`: an exported model in the programs that read it.

use crate::failure::Failure;
use crate::say;
use std::path::{Path, PathBuf};
use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::exchange::verify::{self, Clip, Program, Prompt, Transcripts, VerifyError, differences, error_rate};
use undertone::model::whisper::PretrainedWhisper;
use undertone::ops::DeviceSpec;
use undertone::transcribe::{TranscribeOptions, Transcriber};

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Transcribe clips with each installed program that reads the format, and compare the texts with the model's
    /// here; exit status 1 if one differs. Clips are a folder or a list, as for `data.train.path`; without them, eleven
    /// seconds of English speech that come along are transcribed
    #[arg(long, value_name = "CLIPS", num_args = 0..=1)]
    verify: Option<Option<PathBuf>>,
    /// Python that has the programs, for --verify
    #[arg(long, requires = "verify", default_value = "python3")]
    python: PathBuf,
}

impl Args {
    /// Whether the comparison is asked for.
    pub fn is_asked(&self) -> bool {
        self.verify.is_some()
    }

    /// Refuses to compare what a model that reads no speech makes of the clip of speech that comes along.
    pub fn check(&self, whisper: &PretrainedWhisper) -> Result<(), Failure> {
        if matches!(self.verify, Some(None)) && whisper.generation.reader.is_some() {
            return Err(Failure::BadInput(
                "the clip that comes along is speech, and the model reads something else: give clips with --verify CLIPS".into(),
            ));
        }
        Ok(())
    }

    /// Clips to compare transcripts of, which have none yet; `None` without `--verify`.
    pub fn clips(&self) -> Result<Option<Vec<Clip>>, Failure> {
        let Some(path) = &self.verify else { return Ok(None) };
        verify::check_python(&self.python).map_err(Failure::bad_input)?;
        let clips = match path {
            Some(path) => loaded(path)?,
            None => {
                let io = |e| Failure::Machine(format!("the clip that comes along cannot be written: {e}"));
                let folder = tempfile::tempdir().map_err(io)?;
                loaded(&verify::SPEECH.write(folder.path()).map_err(io)?)?
            }
        };
        Ok(Some(clips))
    }

    /// Transcribes clips with the model here and with each program, and prints a table.
    pub fn verify(
        &self,
        whisper: PretrainedWhisper,
        exported: &Path,
        programs: &[Program],
        clips: Vec<Clip>,
    ) -> Result<(), Failure> {
        let prompt = Prompt::of(&whisper.generation);
        let clips = transcribed(whisper, clips)?;
        let here = error_rate(clips.iter().map(|clip| clip.text.as_str()), &clips);
        say!("{:<16}{:<44}{:>12}{:>9}{:>10}", "program", "version", "equal texts", "WER", "seconds")?;
        say!("{:<16}{:<44}{:>12}{:>9}{:>10}", "undertone", env!("CARGO_PKG_VERSION"), "", percent(here), "")?;
        let (mut different, mut compared) = (String::new(), false);
        for program in programs {
            match verify::transcribe(*program, &self.python, exported, &clips, prompt.as_ref()) {
                Ok(transcripts) => {
                    compared = true;
                    say!("{}", line(*program, &transcripts, &clips))?;
                    let differences = differences(&transcripts, &clips);
                    if !differences.is_empty() {
                        different.push_str(&format!("\n{}:\n{differences}", program.name()));
                    }
                }
                Err(error @ VerifyError::NotInstalled { .. }) => say!("{:<16}{error}", program.name())?,
                Err(error @ VerifyError::Python { .. }) => return Err(Failure::bad_input(error)),
                Err(error) => {
                    say!("{:<16}{error}", program.name())?;
                    different.push_str(&format!("\n{}:\n{error}\n", program.name()));
                }
            }
        }
        if different.is_empty() && !compared {
            let python = self.python.display();
            return Err(Failure::BadInput(format!(
                "nothing was compared, for `{python}` has none of the programs: install one, or give another Python with --python"
            )));
        }
        if different.is_empty() {
            return Ok(());
        }
        say!("{}", different.trim_end())?;
        Err(Failure::Machine(format!("not every program reads `{}` as it is read here: see above", exported.display())))
    }
}

/// Loads clips.
fn loaded(path: &Path) -> Result<Vec<Clip>, Failure> {
    let config = RecordsConfig { path: path.to_owned().into(), ..Default::default() };
    let clips = Clips::open(&config).map_err(Failure::bad_input)?;
    let clip = |index| {
        let samples = clips.load(index).map_err(Failure::bad_input)?;
        let (name, reference) = (clips.clip(index).name.clone(), clips.clip(index).text.clone());
        Ok(Clip { text: String::new(), name, reference, samples })
    };
    (0..clips.len()).map(clip).collect()
}

/// Transcribes clips with the model here.
fn transcribed(whisper: PretrainedWhisper, clips: Vec<Clip>) -> Result<Vec<Clip>, Failure> {
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    // The language that the other programs are given.
    let prompt = Prompt::of(&whisper.generation);
    let [language, task] = [prompt.as_ref().map(|p| p.language.as_str()), prompt.as_ref().map(|p| p.task.as_str())];
    let options = TranscribeOptions::plain(language, task);
    let transcriber = Transcriber::new(whisper, &device, options).map_err(Failure::bad_input)?;
    Ok(clips.into_iter().map(|clip| Clip { text: transcriber.audio(&clip.samples), ..clip }).collect())
}

fn line(program: Program, transcripts: &Transcripts, clips: &[Clip]) -> String {
    let equal = clips.len() - transcripts.different(clips).len();
    format!(
        "{:<16}{:<44}{:>12}{:>9}{:>10.1}",
        program.name(),
        transcripts.version,
        format!("{equal} of {}", clips.len()),
        percent(transcripts.error_rate(clips)),
        transcripts.seconds
    )
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or_else(String::new, |rate| format!("{:.1} %", 100.0 * rate))
}
