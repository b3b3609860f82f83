"""What `cargo xtask bench data` measures, in Python: python data.py --audio DIR [--tokenizer DIR] [--workers 2]

Needs numpy, soundfile, soxr, torch, transformers. Prints one JSON object: a number for each part.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import soundfile
import soxr
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import WhisperFeatureExtractor

BATCH = 16
EXTENSIONS = (".wav", ".flac", ".mp3", ".ogg")


def median_seconds(run, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def load(path):
    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    audio = audio.mean(axis=1)
    return audio if rate == 16000 else soxr.resample(audio, rate, 16000, quality="HQ")


class Clips(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.extractor = WhisperFeatureExtractor(feature_size=80)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.extractor(load(self.paths[index]), sampling_rate=16000, return_tensors="np").input_features[0]


def collate(rows):
    return torch.from_numpy(np.stack(rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clips", type=int, default=320)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = {}

    extractor = WhisperFeatureExtractor(feature_size=80)
    noise = (np.random.default_rng(0).random(480_000, dtype=np.float32) - 0.5) * 0.2
    results["mel_ms"] = 1e3 * median_seconds(lambda: extractor._torch_extract_fbank_features(noise[None], "cpu"), 21)
    results["mel_numpy_ms"] = 1e3 * median_seconds(lambda: extractor._np_extract_fbank_features(noise[None], "cpu"), 7)

    files = sorted(p for p in args.audio.iterdir() if p.suffix in EXTENSIONS)
    for extension in EXTENSIONS:
        some = [p for p in files if p.suffix == extension]
        if some:
            seconds = sum(len(load(p)) for p in some) / 16000
            results[f"decode_{extension[1:]}"] = seconds / median_seconds(lambda: [load(p) for p in some], 5)

    paths = (files * (args.clips // len(files) + 1))[: args.clips]
    loader = DataLoader(
        Clips(paths), BATCH, shuffle=True, num_workers=args.workers, collate_fn=collate, persistent_workers=True
    )
    for _ in loader:  # starts the workers
        break
    results["loader"] = len(paths) / median_seconds(lambda: [None for _ in loader], 3)

    if args.tokenizer and args.texts:
        from transformers import WhisperTokenizerFast

        tokenizer = WhisperTokenizerFast(tokenizer_file=str(args.tokenizer))
        texts = args.texts.read_text().splitlines()
        os.environ["RAYON_NUM_THREADS"] = str(args.workers)
        results["tokenize"] = len(texts) / median_seconds(lambda: tokenizer(texts, add_special_tokens=False), 5)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
