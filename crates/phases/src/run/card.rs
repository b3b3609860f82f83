//! Model cards: the `README.md` of an exported model, as the Hugging Face hub shows it.

use super::blend::Blend;
use super::choice::Choice;
use super::spec::StageSpec;
use crate::{Experiment, ModelConfig};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use undertone_metrics::Interval;
use undertone_model::text::{TextHead, TextModelType};
use undertone_train::{Direction, Exported, Summary};

/// Evaluations of a stage, one for each line.
pub(super) const METRICS: &str = "metrics.jsonl";

/// Returns the card of a whole model. One that `is_own` is of use in this program alone: others cannot load it, or do not prepare
/// audio as it needs. `license` is an identifier of the hub, such as `apache-2.0`. With `blend` the weights are mixed with another
/// model's, so that the run's scores are not this model's.
pub fn card(choice: &Choice, is_own: bool, license: Option<&str>, blend: Option<&Blend>) -> String {
    let Choice { experiment, stage, .. } = choice;
    let library = if is_own { "" } else { "transformers" };
    let pipeline = experiment.tasks.is_empty().then_some((library, "automatic-speech-recognition"));
    let mut card = front_matter(experiment, license, pipeline);
    let task = choice.tasks().swap_remove(0);
    let purpose = match task.name.as_str() {
        "" => String::new(),
        name => format!(", for the task `{name}`"),
    };
    let _ = write!(
        card,
        "# {}\n\nA Whisper model, fine-tuned from `{}`{purpose}, with Undertone {}.\n",
        experiment.run.name,
        experiment.model,
        env!("CARGO_PKG_VERSION")
    );
    if stage.replaced_by.is_some() {
        card.push_str(AVERAGED);
    }
    if let Some(Blend { share, with }) = blend {
        let other = with.as_ref().map_or_else(|| experiment.model.to_string(), |with| with.display().to_string());
        let _ = writeln!(
            card,
            "\nIts weights are a mixture: {share} of those of `{other}`, and the rest of the trained ones."
        );
    }
    card.push_str(&data(experiment));
    if blend.is_none() {
        card.push_str(&scores(std::slice::from_ref(stage)));
    }
    card.push_str(if is_own { OWN_USE } else { USE });
    card.push_str(&configuration(experiment));
    card
}

/// Returns the card of an encoder of a family of text encoders with a head, the model of `choice`. `license` is as for [`card`].
pub fn card_of_text(choice: &Choice, model_type: TextModelType, head: &TextHead, license: Option<&str>) -> String {
    let Choice { experiment, stage, .. } = choice;
    let task = choice.tasks().swap_remove(0);
    let library = head.library(model_type);
    let mut card = front_matter(experiment, license, Some((library, head.pipeline())));
    let _ = write!(
        card,
        "# {}, {}\n\nAn encoder of text with a head, fine-tuned from `{}` for the task `{}`, with Undertone {}.\n",
        experiment.run.name,
        task.name,
        experiment.model,
        task.name,
        env!("CARGO_PKG_VERSION")
    );
    if stage.replaced_by.is_some() {
        card.push_str(AVERAGED);
    }
    card.push_str(&data(experiment));
    card.push_str(&scores(std::slice::from_ref(stage)));
    card.push_str(&use_of_text(head, library, choice.max_tokens()));
    card.push_str(&configuration(experiment));
    card
}

const TAG: &str = r#"import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForTokenClassification.from_pretrained("FOLDER")
# Punctuation is a word of its own, as in the data of the training.
words = ["A", "text", "."]
inputs = tokenizer(words, is_split_into_words=True, truncation=True, max_length=TOKENS, return_tensors="pt")
with torch.no_grad():
    tags = model(**inputs).logits[0].argmax(-1).tolist()
# A word has the tag of its first token.
first = {word: at for at, word in reversed(list(enumerate(inputs.word_ids()))) if word is not None}
print([(words[word], model.config.id2label[tags[at]]) for word, at in sorted(first.items())])
"#;

const SPAN: &str = r#"import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForQuestionAnswering.from_pretrained("FOLDER")
question, context = "A question?", "Its context."
inputs = tokenizer(
    question, context, truncation="only_second", max_length=TOKENS, return_offsets_mapping=True, return_tensors="pt"
)
offsets = inputs.pop("offset_mapping")[0].tolist()
outside = torch.tensor([part != 1 for part in inputs.sequence_ids(0)])
with torch.no_grad():
    output = model(**inputs)
begin, end = (logits[0].float().masked_fill(outside, -1e4) for logits in (output.start_logits, output.end_logits))
pairs = (begin[:, None] + end).masked_fill(torch.ones(len(begin), len(end)).tril(-1).bool(), -1e9)
first, last = divmod(int(pairs.argmax()), len(end))
print(context[offsets[first][0] : offsets[last][1]])
"#;

/// How to answer with an encoder of text and its head, which read at most `tokens` tokens.
fn use_of_text(head: &TextHead, library: &str, tokens: usize) -> String {
    let name = head.pipeline();
    let code = match head {
        TextHead::Classify { labels, .. } if library != "transformers" => format!(
            "from sentence_transformers import SentenceTransformer\n\n\
             labels = {}\n\
             logits = SentenceTransformer(\"FOLDER\").encode([\"A text.\"])\n\
             print([labels[best] for best in logits.argmax(1)])\n",
            serde_json::to_string(labels).unwrap_or_default()
        ),
        TextHead::Classify { .. } => format!(
            "from transformers import pipeline\n\n\
             classify = pipeline(\"{name}\", model=\"FOLDER\", truncation=True, max_length={tokens})\n\
             print(classify(\"A text.\"))\n\
             # A pair of texts: classify({{\"text\": \"One.\", \"text_pair\": \"Another.\"}})\n"
        ),
        TextHead::Tag { .. } => TAG.replace("TOKENS", &tokens.to_string()),
        TextHead::Span(_) => SPAN.replace("TOKENS", &tokens.to_string()),
    };
    format!("\n## Use\n\nWith {library}:\n\n```python\n{code}```\n")
}

/// Returns the card of the folder of a run with tasks.
pub(super) fn card_of_tasks(experiment: &Experiment, stages: &[StageSpec], license: Option<&str>) -> String {
    let names: Vec<String> = experiment.tasks.iter().map(|task| format!("`{}`", task.name)).collect();
    let mut card = front_matter(experiment, license, None);
    let _ = write!(
        card,
        "# {}\n\nAdapters and heads for {} on the frozen `{}`, trained with Undertone {}.\n",
        experiment.run.name,
        names.join(", "),
        experiment.model,
        env!("CARGO_PKG_VERSION")
    );
    card.push_str(&data(experiment));
    card.push_str(&scores(stages));
    card.push_str(USE_OF_TASKS);
    card.push_str(&configuration(experiment));
    card
}

const AVERAGED: &str = "\nIts weights are the mean of several checkpoints of the training.\n";

const USE: &str = r#"
## Use

With transformers:

```python
from transformers import pipeline

print(pipeline("automatic-speech-recognition", model="FOLDER")("clip.wav")["text"])
```

With faster-whisper, after `ct2-transformers-converter --model FOLDER --output_dir CT2 --copy_files tokenizer.json preprocessor_config.json`:

```python
from faster_whisper import WhisperModel

segments, _ = WhisperModel("CT2").transcribe("clip.wav")
print(" ".join(segment.text for segment in segments))
```

With Undertone, which also writes a file for whisper.cpp (`undertone export --model FOLDER --format ggml --out model.bin`):

```
undertone transcribe --model FOLDER clip.wav
```
"#;

const OWN_USE: &str = r"
## Use

With Undertone:

```
undertone transcribe --model FOLDER clip.wav
```
";

const USE_OF_TASKS: &str = r"
## Use

With Undertone (`--text` instead of `--audio` if the tasks read text; `--task NAME` to choose the task yourself):

```
undertone predict --run FOLDER --audio clip.wav
```

With Python, torch and safetensors (and tokenizers, for texts):

```
python FOLDER/predict.py FOLDER --audio clip.wav
```
";

/// Settings that the hub reads. `pipeline` is the library that loads a whole model, if there is one, and what the model does.
fn front_matter(experiment: &Experiment, license: Option<&str>, pipeline: Option<(&str, &str)>) -> String {
    let ModelConfig { source, backbone, .. } = &experiment.model;
    let is_text = backbone.is_text();
    let mut lines = vec![format!("license: {}", license.unwrap_or("unknown"))];
    lines.extend(
        source.hub.as_ref().filter(|_| experiment.model.path.is_none()).map(|hub| format!("base_model: {hub}")),
    );
    if let Some((library, pipeline)) = pipeline {
        if !library.is_empty() {
            lines.push(format!("library_name: {library}"));
        }
        lines.push(format!("pipeline_tag: {pipeline}"));
    }
    if !is_text {
        // Quoted, for YAML reads Norwegian's code as false.
        lines.push(format!("language: \"{}\"", experiment.data.language));
    }
    lines.push("tags: [undertone]".into());
    format!("---\n{}\n---\n\n", lines.join("\n"))
}

/// Training data of each task.
fn data(experiment: &Experiment) -> String {
    let mut text = "\n## Data\n\n".to_owned();
    for task in experiment.all_tasks() {
        let sources: Vec<String> = task.data.train.0.iter().map(|source| format!("`{source}`")).collect();
        let name = if task.name.is_empty() { String::new() } else { format!("`{}`: ", task.name) };
        let _ = writeln!(text, "- {name}{}", sources.join(", "));
    }
    text
}

/// Metrics of the exported models on the validation data, and of those that training began with.
fn scores(stages: &[StageSpec]) -> String {
    let mut rows = String::new();
    for stage in stages {
        let (Some(summary), Some((scores, intervals))) = (Summary::read(&stage.directory), of_best(stage)) else {
            continue;
        };
        for (metric, score) in scores {
            let interval = intervals
                .get(&metric)
                .map_or_else(String::new, |Interval { low, high }| format!("{low:.4} to {high:.4}"));
            let before = summary.before.get(&metric).map_or_else(String::new, |before| format!("{before:.4}"));
            let better = match summary.directions.get(&metric) {
                Some(Direction::Lower) => "lower is better",
                Some(Direction::Higher) => "higher is better",
                None => "",
            };
            let _ = writeln!(rows, "| {metric} | {before} | {score:.4} | {interval} | {better} |");
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "\n## Scores\n\nOn the validation data, which chose the checkpoint, before the training and of this model. The interval shows how \
         much a score depends on which samples these data have (bootstrap over samples, 95 %). On other data scores \
         differ.\n\n| metric | before | this model | 95 % interval | |\n|---|---|---|---|---|\n{rows}"
    )
}

/// Metrics of the evaluation that chose a stage's best model, and their confidence intervals.
fn of_best(stage: &StageSpec) -> Option<(BTreeMap<String, f64>, BTreeMap<String, Interval>)> {
    let Exported { step, intervals, .. } = Exported::read(&stage.best())?;
    let lines = std::fs::read_to_string(stage.directory.join(METRICS)).ok()?;
    let lines = lines.lines().rev().filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok());
    let line = lines.into_iter().find(|line| {
        line.get("split").is_some_and(|split| split == "valid")
            && line.get("step").and_then(Value::as_u64) == Some(step)
    })?;
    let scores = line.iter().filter(|(key, _)| *key != "step");
    Some((scores.filter_map(|(metric, value)| Some((metric.clone(), value.as_f64()?))).collect(), intervals))
}

fn configuration(experiment: &Experiment) -> String {
    format!(
        "\n<details><summary>Configuration of the training</summary>\n\n```yaml\n{}```\n\n</details>\n",
        experiment.to_yaml()
    )
}
