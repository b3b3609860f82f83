"""How well and how fast programs transcribe with one Whisper, ours among them.

    python prompts.py OUT
    python transcribe.py OUT --model FOLDER [--programs openai,faster-float32,...] [--undertone ../../target/release/undertone]
                             [--rounds 3] [--options "--segmentation timestamps"] [--json FILE]

FOLDER is an English-only Whisper in Hugging Face's layout, at 16 kHz as the recordings are. Its generation_config.json should
suppress OpenAI's tokens, as theirs do. A round has every program transcribe OUT/long.wav and the clips of
OUT/clips, in a process of its own and by turns; the median of the rounds' seconds is reported, without loading the model where
a program says how long that took. Errors are those of words after openai-whisper's normaliser; times of words are compared
with the prompts' true boundaries: the first word's start and the last word's end of each prompt.

Needs openai-whisper, and for their rows faster-whisper with ctranslate2, transformers, stable-ts and whisper-timestamped
(the last two with a torchaudio of torch's own version).
"""

import argparse
import csv
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS = 2


def openai_model(folder):
    """openai-whisper's model with the weights of a Hugging Face folder."""
    import torch
    from safetensors.torch import load_file
    from whisper.model import ModelDimensions, Whisper

    config = json.loads((folder / "config.json").read_text())
    model = Whisper(
        ModelDimensions(
            n_mels=config["num_mel_bins"],
            n_audio_ctx=config["max_source_positions"],
            n_audio_state=config["d_model"],
            n_audio_head=config["encoder_attention_heads"],
            n_audio_layer=config["encoder_layers"],
            n_vocab=config["vocab_size"],
            n_text_ctx=config["max_target_positions"],
            n_text_state=config["d_model"],
            n_text_head=config["decoder_attention_heads"],
            n_text_layer=config["decoder_layers"],
        )
    )
    names = [
        ("layers.", "blocks."),
        ("self_attn.", "attn."),
        ("encoder_attn.", "cross_attn."),
        ("self_attn_layer_norm", "attn_ln"),
        ("encoder_attn_layer_norm", "cross_attn_ln"),
        ("final_layer_norm", "mlp_ln"),
        ("fc1", "mlp.0"),
        ("fc2", "mlp.2"),
        ("q_proj", "query"),
        ("k_proj", "key"),
        ("v_proj", "value"),
        ("out_proj", "out"),
        ("encoder.layer_norm", "encoder.ln_post"),
        ("decoder.layer_norm", "decoder.ln"),
        ("encoder.embed_positions.weight", "encoder.positional_embedding"),
        ("decoder.embed_positions.weight", "decoder.positional_embedding"),
        ("decoder.embed_tokens", "decoder.token_embedding"),
    ]
    state = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        name = name.removeprefix("model.")
        for theirs, ours in sorted(names, key=lambda pair: -len(pair[0])):
            name = re.sub(rf"(?<![a-z_]){re.escape(theirs)}", ours, name)
        state[name] = tensor.float()
    state.pop("proj_out.weight", None)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all("mask" in name or "alignment" in name for name in missing), (missing, unexpected)
    settings = folder / "generation_config.json"
    heads = json.loads(settings.read_text()).get("alignment_heads") if settings.is_file() else None
    if heads:
        mask = torch.zeros(config["decoder_layers"], config["decoder_attention_heads"], dtype=torch.bool)
        for layer, head in heads:
            mask[layer, head] = True
        model.register_buffer("alignment_heads", mask.to_sparse(), persistent=False)
    return model.eval()


def timed(files, transcribe):
    """Each file with the seconds that it took, and its segments. `transcribe` takes audio: programs would have ffmpeg decode files."""
    import soundfile

    for file in files:
        begun = time.monotonic()
        segments = transcribe(soundfile.read(file, dtype="float32")[0])
        yield file, time.monotonic() - begun, segments


def openai_options(beam):
    import torch

    torch.set_num_threads(THREADS)
    return {"language": "en", "fp16": False, "beam_size": beam, "temperature": TEMPERATURES}


def run_openai(folder, files, words, beam):
    import whisper

    model, options = openai_model(folder), openai_options(beam)
    return timed(files, lambda audio: whisper.transcribe(model, audio, word_timestamps=words, best_of=5, **options)["segments"])


def run_stable(folder, files, words, beam):
    """openai-whisper with stable-ts's times."""
    import stable_whisper

    model, options = openai_model(folder), openai_options(beam)
    stable_whisper.modify_model(model)
    transcribe = lambda audio: model.transcribe(audio, word_timestamps=words, verbose=None, **options)
    return timed(files, lambda audio: transcribe(audio).to_dict()["segments"])


def run_timestamped(folder, files, words, beam):
    """openai-whisper with whisper-timestamped's times."""
    import whisper_timestamped

    model, options = openai_model(folder), openai_options(beam)

    def transcribe(audio):
        segments = whisper_timestamped.transcribe(model, audio, verbose=None, **options)["segments"]
        for segment in segments:
            segment["words"] = [{"word": w["text"], "start": w["start"], "end": w["end"]} for w in segment["words"]]
        return segments

    return timed(files, transcribe)


def run_transformers(folder, files, words, beam):
    """transformers' `generate` on long audio: window by window, by timestamps, with fallback."""
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    torch.set_num_threads(THREADS)
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    processor = WhisperProcessor.from_pretrained(folder)

    def transcribe(audio):
        inputs = processor(
            audio, sampling_rate=16000, return_tensors="pt", truncation=False, padding="longest", return_attention_mask=True
        )
        if inputs.input_features.shape[-1] < 3000:
            inputs = processor(audio, sampling_rate=16000, return_tensors="pt", return_attention_mask=True)
        found = model.generate(
            **inputs,
            return_timestamps=True,
            return_segments=True,
            return_token_timestamps=words,
            condition_on_prev_tokens=True,
            temperature=TEMPERATURES,
            compression_ratio_threshold=2.4,
            logprob_threshold=-1.0,
            no_speech_threshold=0.6,
            num_beams=beam or 1,
        )
        decode = lambda segment: processor.decode(segment["tokens"], skip_special_tokens=True)
        return [{"start": float(s["start"]), "end": float(s["end"]), "text": decode(s)} for s in found["segments"][0]]

    return timed(files, transcribe)


TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def run_faster(folder, files, words, beam, compute, batched):
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    converted = folder.parent / f"{folder.name}-ct2"
    if not converted.is_dir():
        copy = ["tokenizer.json", "preprocessor_config.json"]
        subprocess.run(
            ["ct2-transformers-converter", "--model", folder, "--output_dir", converted, "--copy_files", *copy], check=True
        )
    model = WhisperModel(str(converted), compute_type=compute, cpu_threads=THREADS)
    program = BatchedInferencePipeline(model) if batched else model
    options = {"batch_size": 8} if batched else {}
    for file in files:
        begun = time.monotonic()
        segments, _ = program.transcribe(str(file), language="en", beam_size=beam or 1, word_timestamps=words, **options)
        found = [
            {
                "start": segment.start,
                "end": segment.end,
                "text": segment.text,
                "words": [{"word": w.word, "start": w.start, "end": w.end} for w in segment.words or []],
            }
            for segment in segments
        ]
        yield file, time.monotonic() - begun, found


def child(arguments):
    files = [Path(file) for file in arguments.files]
    kind, _, compute = arguments.child.partition("-")
    others = {"openai": run_openai, "stable": run_stable, "timestamped": run_timestamped, "transformers": run_transformers}
    if kind in others:
        results = others[kind](arguments.model, files, arguments.words, arguments.beams)
    else:
        batched = compute.endswith("-batched")
        compute = compute.removesuffix("-batched")
        results = run_faster(arguments.model, files, arguments.words, arguments.beams, compute, batched)
    found = [{"file": str(file), "seconds": seconds, "segments": segments} for file, seconds, segments in results]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump({"files": found, "peak_mb": peak}, sys.stdout)


def run_program(program, arguments, files):
    """Seconds, peak memory in MB, and the segments of each file."""
    if program.startswith("undertone"):
        return run_undertone(arguments, files, program.removeprefix("undertone").removeprefix("-"))
    command = [sys.executable, __file__, arguments.out, "--model", arguments.model, "--child", program, "--files", *files]
    command += ["--words"] if arguments.words else []
    command += ["--beams", str(arguments.beams)] if arguments.beams else []
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return sum(f["seconds"] for f in found["files"]), found["peak_mb"], {f["file"]: f["segments"] for f in found["files"]}


def run_undertone(arguments, files, extra):
    command = ["/usr/bin/env", "RAYON_NUM_THREADS=%d" % THREADS, arguments.undertone, "transcribe", "--model", arguments.model]
    command += ["--device", "cpu", "--format", "jsonl", *arguments.options.split(), *extra.split("+")[1:]]
    command += ["--words"] if arguments.words else []
    command += ["--beams", str(arguments.beams)] if arguments.beams else []
    begun = time.monotonic()
    process = subprocess.Popen([str(part) for part in [*command, *files]], stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, usage = __import__("os").wait4(process.pid, 0)
    seconds = time.monotonic() - begun
    assert status == 0, status
    found = [json.loads(line) for line in out.splitlines()]
    return seconds, usage.ru_maxrss / 1024, {f["audio"]: f["segments"] for f in found}


def error_rate(pairs):
    from whisper.normalizers import EnglishTextNormalizer

    normalize = EnglishTextNormalizer()
    edits = length = 0
    for expected, found in pairs:
        a, b = normalize(expected).split(), normalize(found).split()
        edits, length = edits + distance(a, b)[-1][-1], length + len(a)
    return edits / length


def distance(a, b):
    table = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(row[-1] + 1, table[-1][j] + 1, table[-1][j - 1] + (x != y)))
        table.append(row)
    return table


def boundary_errors(spans, segments):
    """Errors in ms of the starts of the first and the ends of the last words of prompts, of those that are written."""
    plain = lambda text: re.sub(r"[^a-z0-9]", "", text.lower())
    said = [(plain(w), number, index, len(span["text"].split())) for number, span in enumerate(spans) for index, w in enumerate(span["text"].split())]
    words = [(plain(w["word"]), w) for segment in segments for w in segment.get("words", [])]
    table = distance([word for word, *_ in said], [word for word, _ in words])
    i, j, starts, ends = len(said), len(words), [], []
    while i and j:
        word, number, index, count = said[i - 1]
        if table[i][j] == table[i - 1][j - 1] + (word != words[j - 1][0]):
            if word == words[j - 1][0]:
                if index == 0:
                    starts.append(abs(words[j - 1][1]["start"] - spans[number]["start"]) * 1000)
                if index == count - 1:
                    ends.append(abs(words[j - 1][1]["end"] - spans[number]["end"]) * 1000)
            i, j = i - 1, j - 1
        elif table[i][j] == table[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return starts, ends


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--programs", default="undertone,openai,faster-float32,faster-float32-batched,faster-int8,faster-int8-batched")
    parser.add_argument("--undertone", type=Path, default=Path("../../target/release/undertone"))
    parser.add_argument("--options", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--beams", type=int)
    parser.add_argument("--only", choices=["long", "clips"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child")
    parser.add_argument("--files", nargs="*")
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    long = [str(arguments.out / "long.wav")]
    rows = list(csv.DictReader(open(arguments.out / "clips" / "manifest.csv")))
    clips = [str(arguments.out / "clips" / row["path"]) for row in rows]
    spans = json.loads((arguments.out / "long.json").read_text())
    jobs = {name: files for name, files in {"long": long, "clips": clips}.items() if arguments.only in (None, name)}
    programs = arguments.programs.split(",")
    times = {(program, job): [] for program in programs for job in jobs}
    last = {}
    for _ in range(arguments.rounds):
        for program in programs:
            for job, files in jobs.items():
                seconds, peak, segments = run_program(program, arguments, files)
                times[program, job].append(seconds)
                last[program, job] = (peak, segments)
    report = []
    for (program, job), seconds in times.items():
        peak, segments = last[program, job]
        text = lambda file: " ".join(segment["text"].strip() for segment in segments[file])
        if job == "long":
            rate = error_rate([(" ".join(span["text"] for span in spans), text(long[0]))])
        else:
            rate = error_rate([(row["text"], text(file)) for row, file in zip(rows, clips)])
        line = {"program": program, "job": job, "seconds": round(statistics.median(seconds), 2), "peak_mb": round(peak), "wer": round(rate, 4)}
        if arguments.words and job == "long":
            starts, ends = boundary_errors(spans, segments[long[0]])
        if arguments.words and job == "long" and starts and ends:
            line |= {"starts_ms": round(statistics.mean(starts)), "starts_median_ms": round(statistics.median(starts))}
            line |= {"ends_ms": round(statistics.mean(ends)), "ends_median_ms": round(statistics.median(ends)), "prompts": len(starts)}
        print(json.dumps(line))
        report.append(line | {"segments": segments})
    if arguments.json:
        arguments.json.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
