"""Milliseconds per 30 s clip of Hugging Face's WhisperFeatureExtractor on one thread: python mel_peer.py

Needs numpy, torch, transformers. `mel_bench.rs` beside this measures ours on audio of the same kind.
"""

import statistics
import time

import numpy as np
import torch
from transformers import WhisperFeatureExtractor

torch.set_num_threads(1)
RUNS = 31
audio = (np.random.default_rng(0).random(480_000, dtype=np.float32) - 0.5) * 0.2

for bins in (80, 128):
    extractor = WhisperFeatureExtractor(feature_size=bins)
    paths = {"numpy": extractor._np_extract_fbank_features, "torch": extractor._torch_extract_fbank_features}
    for name, extract in paths.items():
        times = []
        for _ in range(RUNS):
            start = time.perf_counter()
            extract(audio[None], "cpu")
            times.append((time.perf_counter() - start) * 1e3)
        print(f"{bins} bins, {name}: median {statistics.median(times):.2f} ms, fastest {min(times):.2f} ms")
