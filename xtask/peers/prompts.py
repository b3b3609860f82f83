"""Recordings whose text and boundaries are known, put together from Asterisk's spoken prompts.

apt-get install asterisk-core-sounds-en-g722 asterisk-core-sounds-en
pip install av numpy soundfile
python prompts.py OUT [--minutes 10] [--clips 200] [--noise 20] [--codec gsm] [--language es]

Writes OUT/clips/*.wav with OUT/clips/manifest.csv, OUT/long.wav, and OUT/long.json: for each prompt in long.wav its text, and
where it begins and ends, in seconds. Prompts are separated by pauses of 0.3 to 2 seconds, drawn with a seed. --noise adds pink
noise to long.wav, so many dB below the speech. --codec gsm takes the recordings of asterisk-core-sounds-en-gsm: 8 kHz, as a mobile
telephone sends them. --language es takes Spanish ones (asterisk-core-sounds-es-g722 or -gsm, and asterisk-core-sounds-es), whose texts have no
accents. The column `kind` of the list is what a prompt is about, by the first word of its name: vm, conf, queue, ...
"""

import argparse
import csv
import gzip
import json
import random
import re
from pathlib import Path

import av
import numpy as np
import soundfile

SOUNDS = Path("/usr/share/asterisk/sounds")
SPEAKERS = {"en": "en_US_f_Allison", "es": "es_MX_f_Allison"}
RATES = {"g722": 16000, "gsm": 8000}


def decoded(path):
    with av.open(str(path), format=path.suffix[1:]) as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    return np.concatenate(frames).astype(np.float32) / 32768


def trimmed(audio, rate):
    """Without the silence around it: frames of 10 ms more than 40 dB below the loudest."""
    size = rate // 100
    frames = audio[: len(audio) // size * size].reshape(-1, size)
    levels = np.sqrt((frames**2).mean(axis=1) + 1e-12)
    loud = np.flatnonzero(levels > levels.max() * 0.01)
    return audio[loud[0] * size : (loud[-1] + 1) * size]


def prompts(language, codec):
    texts = Path(f"/usr/share/doc/asterisk-core-sounds-{language}/core-sounds-{language}.txt.gz")
    for line in gzip.open(texts, "rt", encoding="utf-8", errors="replace"):
        name, _, text = line.strip().partition(":")
        text = text.strip()
        path = SOUNDS / SPEAKERS[language] / f"{name}.{codec}"
        # Notes in brackets are not spoken.
        if line.startswith(";") or not path.is_file() or re.search(r"[\[\]()<>]", text) or len(text.split()) < 3:
            continue
        yield name.replace("/", "_"), text, trimmed(decoded(path), RATES[codec])


def pink_noise(audio, decibels):
    """Noise whose power falls with the frequency, so many dB below the mean power of the samples that are not 0."""
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(len(audio)).astype(np.float32))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
    noise = np.fft.irfft(spectrum, len(audio)).astype(np.float32)
    level = np.sqrt((audio[np.abs(audio) > 0] ** 2).mean())
    return noise * (level / np.sqrt((noise**2).mean()) * 10 ** (-decibels / 20))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clips", type=int, default=200)
    parser.add_argument("--noise", type=float)
    parser.add_argument("--codec", choices=RATES, default="g722")
    parser.add_argument("--language", choices=SPEAKERS, default="en")
    arguments = parser.parse_args()
    rate, draw = RATES[arguments.codec], random.Random(0)
    every = list(prompts(arguments.language, arguments.codec))
    draw.shuffle(every)
    clips = arguments.out / "clips"
    clips.mkdir(parents=True, exist_ok=True)
    with open(clips / "manifest.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "text", "kind"])
        for name, text, audio in every[: arguments.clips]:
            soundfile.write(clips / f"{name}.wav", audio, rate, subtype="PCM_16")
            rows.writerow([f"{name}.wav", text, re.match(r"[a-z]+", name)[0].removesuffix("bridge")])
    parts, spans, at = [], [], 0
    while at < arguments.minutes * 60 * rate:
        name, text, audio = every[len(spans) % len(every)]
        pause = np.zeros(int(draw.uniform(0.3, 2.0) * rate), np.float32)
        start = at + len(pause)
        at = start + len(audio)
        spans.append({"text": text, "start": start / rate, "end": at / rate})
        parts += [pause, audio]
    long = np.concatenate(parts)
    if arguments.noise is not None:
        long += pink_noise(long, arguments.noise)
    soundfile.write(arguments.out / "long.wav", long, rate, subtype="PCM_16")
    (arguments.out / "long.json").write_text(json.dumps(spans, indent=1))
    print(f"{len(every)} prompts; long.wav: {at / rate:.0f} s, {len(spans)} prompts")


main()
