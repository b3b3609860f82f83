"""What `cargo xtask bench quality` compares, trained with transformers and PEFT.

    python quality.py prepare --data DIR --models DIR --out WORK
    python quality.py train --config quality/sst2.yaml --seed 1     # in WORK; prints a JSON line

`prepare` writes the records that both sides read, all in one layout, and links the models. `train` reads the same
configuration as `cargo xtask train`: data, batches, passes, learning rate, schedule and adapter are those that it names, and
transformers' Trainer does the rest, with the stock model of each kind of task.

Needs torch, transformers, peft, accelerate, numpy, soundfile, scipy, seqeval, jiwer.
"""

import argparse
import collections
import csv
import json
import re
import string
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

NUMBERS = "zero one two three four five six seven eight nine".split()


# --- what both sides read


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def reviews(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        text, label = line.rsplit("\t", 1)
        yield {"text": text, "label": ["negative", "positive"][int(label)]}


def tagged(path):
    """Sentences of a CoNLL file, which empty lines divide."""
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        rows = [line.split("\t") for line in block.splitlines() if line.strip()]
        if rows:
            yield {"words": [row[0] for row in rows], "tags": [row[-1].strip() for row in rows]}


def questions(path, train, test):
    """So many questions of the first four fifths of the articles, and of the others."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    titles = list(dict.fromkeys(record["title"] for record in records))
    known = set(titles[: len(titles) * 4 // 5])
    # Of every article some, and not all of the first few.
    shuffled = [records[i] for i in np.random.default_rng(0).permutation(len(records))]
    first = [record for record in shuffled if record["title"] in known][:train]
    second = [record for record in shuffled if record["title"] not in known][:test]
    return first, second


def write_clips(folder, name, clips):
    """A list of audio files and what they say: `(file, text)`, the files below `folder`."""
    with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("audio", "text"), *clips])


def digits(recordings, out, train, test):
    import soundfile

    clips = []
    for path in sorted(recordings.glob("*.wav")):
        audio, rate = soundfile.read(path, dtype="float32")
        (out / "audio").mkdir(parents=True, exist_ok=True)
        soundfile.write(out / "audio" / path.name, audio, rate, subtype="PCM_16")
        clips.append((f"audio/{path.name}", NUMBERS[int(path.name[0])]))
    clips = [clips[i] for i in np.random.default_rng(0).permutation(len(clips))]
    write_clips(out, "train", clips[:train])
    write_clips(out, "test", clips[train : train + test])


def telephone(audio, rate, random):
    """Speech at the other end of a line: 300 to 3400 Hz, 8 kHz, 8 bits by the mu-law, 15 dB above white noise."""
    import scipy.signal

    audio = scipy.signal.resample_poly(audio, 8000, rate)
    low, high = 300 / 4000, 3400 / 4000
    audio = scipy.signal.sosfilt(scipy.signal.butter(6, [low, high], "bandpass", output="sos"), audio)
    audio = audio / np.abs(audio).max() * 0.7
    noise = random.standard_normal(len(audio)) * np.sqrt(np.mean(audio**2) / 10**1.5)
    audio = np.clip(audio + noise, -1, 1)
    coded = np.round(np.sign(audio) * np.log1p(255 * np.abs(audio)) / np.log(256) * 127) / 127
    return np.sign(coded) * (256 ** np.abs(coded) - 1) / 255


def read_aloud(folder, out, train):
    import soundfile

    random = np.random.default_rng(0)
    clips = []
    for line in (folder / "metadata.csv").read_text(encoding="utf-8").splitlines():
        name, text = line.split("|")[:2]
        if name.startswith("LJ"):
            audio, rate = soundfile.read(folder / name, dtype="float64")
            (out / "audio").mkdir(parents=True, exist_ok=True)
            soundfile.write(out / "audio" / f"{Path(name).stem}.wav", telephone(audio, rate, random), 8000, subtype="PCM_16")
            clips.append((f"audio/{Path(name).stem}.wav", text))
    clips = [clips[i] for i in random.permutation(len(clips))]
    write_clips(out, "train", clips[:train])
    write_clips(out, "test", clips[train:])


def prepare(options):
    data, out = options.data, options.out
    write_lines(out / "sst2/train.jsonl", reviews(data / "sst2/train.tsv"))
    write_lines(out / "sst2/test.jsonl", reviews(data / "sst2/dev.tsv"))
    write_lines(out / "wnut17/train.jsonl", tagged(data / "tweets/wnut17train.conll"))
    write_lines(out / "wnut17/test.jsonl", tagged(data / "tweets/emerging.dev.conll"))
    train, test = questions(data / "squad/squad_36_articles.jsonl", 1000, 400)
    write_lines(out / "squad/train.jsonl", train)
    write_lines(out / "squad/test.jsonl", test)
    digits(data / "fsdd", out / "digits", 256, 200)
    read_aloud(data / "speech-en", out / "telephone", 14)
    (out / "models").unlink(missing_ok=True)
    (out / "models").symlink_to(options.models.resolve())


# --- how transformers and PEFT train on it


class Rows(list):
    """A dataset as torch wants it."""


def lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def text_parts(task, folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = task["head"]["type"]
    parts = {"classify": Classify, "tag": Tag, "span": Span}[kind]
    return parts(task, folder, tokenizer)


class Text:
    """A task on text: its model, its rows, and how it is scored."""

    def __init__(self, task, folder, tokenizer):
        self.tokenizer, self.head = tokenizer, task["head"]
        self.train, self.test = (lines(task["data"][split]["path"]) for split in ("train", "test"))
        self.model = self.load(folder)
        self.peft_type = self.TASK

    def collate(self, rows):
        width = max(len(row["input_ids"]) for row in rows)
        batch = {}
        for key in rows[0]:
            fill = -100 if key == "labels" else self.tokenizer.pad_token_id if key == "input_ids" else 0
            values = [row[key] for row in rows]
            if isinstance(values[0], list):
                values = [value + [fill] * (width - len(value)) for value in values]
            batch[key] = torch.tensor(values)
        return batch


class Classify(Text):
    TASK = "SEQ_CLS"

    def load(self, folder):
        from transformers import AutoModelForSequenceClassification

        return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(self.head["labels"]), dtype=torch.float32)

    def rows(self, records):
        return Rows(
            {**self.tokenizer(r["text"], truncation=True, max_length=self.head["max_length"]), "labels": self.head["labels"].index(r["label"])}
            for r in records
        )

    def score(self, predict):
        rows = self.rows(self.test)
        guesses = predict(rows).argmax(-1)
        return {"accuracy": float(np.mean(guesses == [row["labels"] for row in rows]))}


class Tag(Text):
    TASK = "TOKEN_CLS"

    def load(self, folder):
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(folder, num_labels=len(self.head["labels"]), dtype=torch.float32)

    def rows(self, records):
        """The label of a word is that of its first token."""
        rows = Rows()
        for r in records:
            row = dict(self.tokenizer(r["words"], is_split_into_words=True, truncation=True, max_length=self.head["max_length"]))
            words = self.tokenizer(r["words"], is_split_into_words=True, truncation=True, max_length=self.head["max_length"]).word_ids()
            first = [word is not None and word != before for word, before in zip(words, [None, *words])]
            row["labels"] = [self.head["labels"].index(r["tags"][word]) if new else -100 for word, new in zip(words, first)]
            rows.append(row)
        return rows

    def score(self, predict):
        from seqeval.metrics import f1_score

        rows = self.rows(self.test)
        guesses = predict(rows).argmax(-1)
        names, said = [], []
        for row, guess, record in zip(rows, guesses, self.test):
            found = [self.head["labels"][g] for g, label in zip(guess, row["labels"]) if label != -100]
            # What was cut off has no guess.
            found += ["O"] * (len(record["tags"]) - len(found))
            names.append(record["tags"])
            said.append(found)
        return {"entity_f1": float(f1_score(names, said))}


class Span(Text):
    TASK = "QUESTION_ANS"

    def load(self, folder):
        from transformers import AutoModelForQuestionAnswering

        return AutoModelForQuestionAnswering.from_pretrained(folder, dtype=torch.float32)

    def windows(self, record):
        coded = self.tokenizer(
            record["question"], record["context"], truncation="only_second", max_length=self.head["max_length"],
            stride=self.head["doc_stride"], return_overflowing_tokens=True, return_offsets_mapping=True,
        )
        for i in range(len(coded["input_ids"])):
            row = {key: coded[key][i] for key in ("input_ids", "token_type_ids", "attention_mask")}
            context = [place == 1 for place in coded.sequence_ids(i)]
            yield row, coded["offset_mapping"][i], context

    def rows(self, records):
        rows = Rows()
        for r in records:
            start = r["answers"]["answer_start"][0]
            end = start + len(r["answers"]["text"][0])
            for row, offsets, context in self.windows(r):
                inside = [k for k, (a, b) in enumerate(offsets) if context[k] and a < end and b > start]
                covered = [k for k in range(len(offsets)) if context[k]]
                whole = inside and offsets[covered[0]][0] <= start and offsets[covered[-1]][1] >= end
                row["start_positions"], row["end_positions"] = (inside[0], inside[-1]) if whole else (0, 0)
                rows.append(row)
        return rows

    def score(self, predict):
        exact, f1 = [], []
        parts = [(number, window) for number, r in enumerate(self.test) for window in self.windows(r)]
        starts, ends = predict(Rows(row for _, (row, _, _) in parts))
        best = {}
        for (number, (_, offsets, context)), start, end in zip(parts, starts, ends):
            for a in np.argsort(-start[: len(offsets)])[:20]:
                for b in np.argsort(-end[: len(offsets)])[:20]:
                    if context[a] and context[b] and a <= b < a + 30:
                        score = start[a] + end[b]
                        if score > best.get(number, (-np.inf,))[0]:
                            best[number] = (score, self.test[number]["context"][offsets[a][0] : offsets[b][1]])
        for number, record in enumerate(self.test):
            answer = best.get(number, (0, ""))[1]
            pairs = [agreement(gold, answer) for gold in record["answers"]["text"]]
            exact.append(max(pair[0] for pair in pairs))
            f1.append(max(pair[1] for pair in pairs))
        return {"f1": float(np.mean(f1)), "exact_match": float(np.mean(exact))}


def agreement(gold, answer):
    """Exact match and F1 by the rules of SQuAD v1.1."""

    def words(text):
        text = "".join(c for c in text.lower() if c not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    a, b = words(gold), words(answer)
    shared = sum((collections.Counter(a) & collections.Counter(b)).values())
    return float(a == b), 2 * shared / (len(a) + len(b)) if shared else 0.0


class Speech:
    """A Whisper and recordings with their texts."""

    def __init__(self, data, folder):
        from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizerFast

        self.tokenizer = WhisperTokenizerFast.from_pretrained(folder)
        self.extractor = WhisperFeatureExtractor.from_pretrained(folder)
        self.model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self.train, self.test = (self.clips(Path(data[split]["path"])) for split in ("train", "test"))
        self.peft_type = None

    def clips(self, path):
        with open(path, newline="", encoding="utf-8") as file:
            return [{"audio": path.parent / row["audio"], "text": row["text"]} for row in csv.DictReader(file)]

    def features(self, clip):
        import scipy.signal
        import soundfile

        audio, rate = soundfile.read(clip["audio"], dtype="float32")
        audio = scipy.signal.resample_poly(audio, 16000, rate) if rate != 16000 else audio
        return self.extractor(audio, sampling_rate=16000, return_tensors="np").input_features[0]

    def rows(self, clips):
        # The model puts the token that begins a text before the labels itself.
        return Rows({"input_features": self.features(c), "labels": self.tokenizer(c["text"]).input_ids[1:]} for c in clips)

    def collate(self, rows):
        width = max(len(row["labels"]) for row in rows)
        labels = [row["labels"] + [-100] * (width - len(row["labels"])) for row in rows]
        features = torch.from_numpy(np.stack([row["input_features"] for row in rows]))
        return {"input_features": features, "labels": torch.tensor(labels)}

    def score(self, _):
        import jiwer
        from transformers.models.whisper.english_normalizer import BasicTextNormalizer

        normal, texts = BasicTextNormalizer(), []
        self.model.eval()
        for i in range(0, len(self.test), 8):
            features = torch.from_numpy(np.stack([self.features(c) for c in self.test[i : i + 8]]))
            with torch.no_grad():
                tokens = self.model.generate(input_features=features, max_new_tokens=120, num_beams=1, do_sample=False)
            texts += self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        said, read = [normal(c["text"]).strip() for c in self.test], [normal(text).strip() for text in texts]
        return {"wer": jiwer.wer(said, read), "cer": jiwer.cer(said, read)}


def train(options):
    import yaml
    from transformers import Trainer, TrainingArguments, set_seed

    config = yaml.safe_load(options.config.read_text(encoding="utf-8"))
    set_seed(options.seed)
    folder = config["model"]["path"]
    task = config.get("tasks", [None])[0]
    speech = config["model"].get("backbone", "whisper") == "whisper"
    parts = Speech(task["data"] if task else config["data"], folder) if speech else text_parts(task, folder)
    if task:
        from peft import LoraConfig, get_peft_model

        adapter = {key: task["lora"][key] for key in ("r", "lora_alpha", "lora_dropout", "target_modules") if key in task["lora"]}
        parts.model = get_peft_model(parts.model, LoraConfig(task_type=parts.peft_type, **adapter))
    rule = config["train"]["optimizer"]
    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            output_dir=place, seed=options.seed, num_train_epochs=config["train"]["epochs"],
            per_device_train_batch_size=config["data"]["batch_size"], per_device_eval_batch_size=32,
            learning_rate=rule["lr"], warmup_steps=rule["warmup_steps"], lr_scheduler_type=rule["schedule"],
            weight_decay=rule["weight_decay"], adam_beta2=rule["beta2"], max_grad_norm=1.0, use_cpu=True,
            save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False, logging_steps=10**9,
        )
        trainer = Trainer(model=parts.model, args=arguments, train_dataset=parts.rows(parts.train), data_collator=parts.collate)
        before = parts.score(lambda rows: predicted(trainer, rows)) if options.before else None
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
        scores = parts.score(lambda rows: predicted(trainer, rows))
    trained = sum(p.numel() for p in parts.model.parameters() if p.requires_grad)
    print(json.dumps({"scores": scores, "before": before, "seconds": round(seconds, 1), "trained": trained}))


def predicted(trainer, rows):
    return trainer.predict(rows).predictions


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("prepare")
    command.add_argument("--data", type=Path, required=True)
    command.add_argument("--models", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=prepare)
    command = commands.add_parser("train")
    command.add_argument("--config", type=Path, required=True)
    command.add_argument("--seed", type=int, required=True)
    command.add_argument("--before", action="store_true", help="judge the model before training, too")
    command.set_defaults(run=train)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
