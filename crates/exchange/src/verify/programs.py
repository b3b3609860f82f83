"""Transcribes clips with another program and prints one line of JSON.

Usage: programs.py PROGRAM MODEL CLIPS [LANGUAGE TASK]

PROGRAM is transformers, peft, ctranslate2, faster-whisper or whisper.cpp; MODEL is the exported folder or file. CLIPS is a folder
of raw samples (f32 in the machine's order, one channel, 16 kHz), one file a clip. LANGUAGE is a code and TASK transcribe or
translate, for a multilingual model. The line has `version`, `texts` in the order of the files' names and `seconds`; or
`missing`, the name of a package that is not installed.
"""

import json
import os
import sys
import tempfile
import time
import warnings


def transformers(model, clips, language, task):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    network = transformers.WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32).eval()
    processor = transformers.WhisperProcessor.from_pretrained(model)
    return transformers.__version__, generated(network, processor, clips, language, task)


def generated(network, processor, clips, language, task):
    """Transcribes clips with a network of transformers, decoding greedily."""
    options = {"language": language, "task": task} if language else {}

    def transcribe(samples):
        features = processor(samples, sampling_rate=16000, return_tensors="pt").input_features
        ids = network.generate(input_features=features, do_sample=False, **options)
        return processor.batch_decode(ids, skip_special_tokens=True)[0]

    return [transcribe(clip) for clip in clips()]


def peft(model, clips, language, task):
    import peft
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    base = peft.PeftConfig.from_pretrained(model).base_model_name_or_path
    network = transformers.WhisperForConditionalGeneration.from_pretrained(base, dtype=torch.float32)
    network = peft.PeftModel.from_pretrained(network, model).eval()
    processor = transformers.WhisperProcessor.from_pretrained(base)
    if not os.path.exists(os.path.join(base, "generation_config.json")) and os.path.isdir(base):
        # Without it transformers would write at most 20 tokens.
        network.generation_config.max_length = network.config.max_target_positions
    version = f"{peft.__version__} (transformers {transformers.__version__})"
    return version, generated(network, processor, clips, language, task)


def converted(model, folder):
    """Converts a folder for CTranslate2 and returns the new one, with weights in f32."""
    import ctranslate2

    output = os.path.join(folder, "model")
    names = ["tokenizer.json", "preprocessor_config.json"]
    ctranslate2.converters.TransformersConverter(model, copy_files=names).convert(output, quantization="float32")
    return output


def ctranslate2(model, clips, language, task):
    import ctranslate2
    import transformers

    processor = transformers.WhisperProcessor.from_pretrained(model)
    tokens = [f"<|{language}|>", f"<|{task}|>"] if language else []
    prompt = ["<|startoftranscript|>", *tokens, "<|notimestamps|>"]
    with tempfile.TemporaryDirectory() as folder:
        whisper = ctranslate2.models.Whisper(converted(model, folder), device="cpu", compute_type="float32")

        def transcribe(samples):
            features = processor(samples, sampling_rate=16000, return_tensors="np").input_features
            results = whisper.generate(ctranslate2.StorageView.from_array(features), [prompt], beam_size=1)
            return processor.decode(results[0].sequences_ids[0], skip_special_tokens=True)

        version = f"{ctranslate2.__version__} (transformers {transformers.__version__})"
        return version, [transcribe(clip) for clip in clips()]


def faster_whisper(model, clips, language, task):
    import ctranslate2
    import faster_whisper

    with tempfile.TemporaryDirectory() as folder:
        whisper = faster_whisper.WhisperModel(converted(model, folder), device="cpu", compute_type="float32")

        def transcribe(samples):
            segments, _ = whisper.transcribe(
                samples, language=language or "en", task=task or "transcribe", beam_size=1, best_of=1, temperature=0.0,
                condition_on_previous_text=False, without_timestamps=True,
            )
            return "".join(segment.text for segment in segments)

        version = f"{faster_whisper.__version__} (ctranslate2 {ctranslate2.__version__})"
        return version, [transcribe(clip) for clip in clips()]


def whisper_cpp(model, clips, language, task):
    import importlib.metadata

    from pywhispercpp.model import Model

    whisper = Model(
        model, redirect_whispercpp_logs_to=None, print_progress=False, print_realtime=False, language=language or "en",
        translate=task == "translate",
        no_timestamps=True, single_segment=True, no_context=True, temperature_inc=0.0,
    )
    texts = ["".join(segment.text for segment in whisper.transcribe(clip)) for clip in clips()]
    return f"pywhispercpp {importlib.metadata.version('pywhispercpp')}", texts


PROGRAMS = {
    "transformers": transformers,
    "peft": peft,
    "ctranslate2": ctranslate2,
    "faster-whisper": faster_whisper,
    "whisper.cpp": whisper_cpp,
}


def main(program, model, folder, language=None, task=None):
    try:
        import numpy
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    start = time.monotonic()
    try:
        version, texts = PROGRAMS[program](model, lambda: (numpy.fromfile(file, numpy.float32) for file in files), language, task)
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    return {"version": version, "texts": texts, "seconds": time.monotonic() - start}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # Other programs write to the standard output, too: it is theirs, and the answer goes to a copy of it.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer.write(json.dumps(main(*sys.argv[1:])) + "\n")
