//! `undertone export --verify`: an exported model in the programs that read it.

use crate::failure::Failure;
use crate::say;
use std::path::{Path, PathBuf};
use undertone::data::clips::Clips;
use undertone::data::records::RecordsConfig;
use undertone::exchange::verify::{self, Clip, Program, Prompt, Transcripts, VerifyError, differences, error_rate};
use undertone::model::whisper::PretrainedWhisper;
use undertone::ops::DeviceSpec;
use undertone::phases::Transcriber;

#[derive(clap::Args)]
pub struct Args {
    /// Transcribe these clips with each installed program that reads the format, and compare the texts with the
    /// model's here; exit status 1 if one differs. Clips are a folder or a list, as for `data.train.path`
    #[arg(long, value_name = "CLIPS")]
    verify: Option<PathBuf>,
    /// Python that has the programs, for --verify
    #[arg(long, requires = "verify", default_value = "python3")]
    python: PathBuf,
}

impl Args {
    /// Whether the comparison is asked for.
    pub fn is_asked(&self) -> bool {
        self.verify.is_some()
    }

    /// Clips to compare transcripts of; `None` without `--verify`.
    ///
    /// # Errors
    /// When they cannot be read, or Python cannot be started.
    pub fn clips(&self) -> Result<Option<Clips>, Failure> {
        let Some(path) = &self.verify else { return Ok(None) };
        verify::check_python(&self.python).map_err(Failure::bad_input)?;
        let config = RecordsConfig { path: path.clone().into(), ..Default::default() };
        Clips::open(&config).map(Some).map_err(Failure::bad_input)
    }

    /// Transcribes clips with the model here and with each program, and prints a table.
    ///
    /// # Errors
    /// When a clip cannot be read, or a transcript differs.
    pub fn verify(
        &self,
        whisper: PretrainedWhisper,
        exported: &Path,
        programs: &[Program],
        clips: &Clips,
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

/// Loads clips and transcribes them with the model here.
fn transcribed(whisper: PretrainedWhisper, clips: &Clips) -> Result<Vec<Clip>, Failure> {
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let transcriber = Transcriber::new(whisper, &device, None, None).map_err(Failure::bad_input)?;
    let clip = |index| {
        let samples = clips.load(index).map_err(Failure::bad_input)?;
        let (name, reference) = (clips.clip(index).name.clone(), clips.clip(index).text.clone());
        Ok(Clip { text: transcriber.audio(&samples), name, reference, samples })
    };
    (0..clips.len()).map(clip).collect()
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
