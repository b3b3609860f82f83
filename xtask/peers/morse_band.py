"""How well `transcribe --all` finds and reads the stations of a band.

    python3 morse_band.py --xtask ../../target/debug/xtask [--minutes 10] [--stations 10] [--noise 60] [--picture band.png]

Stations are keyed by ebook2cw with common words, at pitches of 300 to 2860 Hz that are 160 Hz apart or more, 12 to 35 words per
minute, and levels of 6 to 30 dB above the noise in 500 Hz; each sends for 20 to 60 s and pauses for 5 to 60 s. Two of them
answer each other 45 Hz apart. Prints for each station the character errors without spaces, and what was found that nobody sent;
then what is found in so many minutes of noise, half of it white, half as a receiver's filter and static leave it. Needs numpy,
soundfile, scipy, ebook2cw, and for a picture matplotlib.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from morse import RATE, WORDS, errors, keyed

NOISE = 0.02
# Amplitude of a carrier of 0 dB: half its square is the power of the noise in 500 Hz.
CARRIER = (2 * NOISE**2 * 500 / (RATE / 2)) ** 0.5


def send(audio, at, text, wpm, pitch, snr_db):
    """Adds a text to the audio from `at` seconds, and returns its seconds; none if it does not fit."""
    with tempfile.TemporaryDirectory() as folder:
        own = keyed(text, wpm, pitch, folder)
    start = int(at * RATE)
    if start + len(own) > len(audio):
        return None
    audio[start : start + len(own)] += CARRIER * 10 ** (snr_db / 20) * own
    return len(own) / RATE


def sends(chance, audio, wpm, pitch, snr_db, end):
    """Adds transmissions to the audio, and returns their text."""
    said, at = [], chance.uniform(0, 10)
    while at < end - 25:
        text = " ".join(chance.choice(WORDS) for _ in range(int(wpm * chance.uniform(20, 60) / 60)))
        seconds = send(audio, at, text, wpm, pitch, snr_db)
        if seconds is None:
            break
        said.append(text.upper())
        at += seconds + chance.uniform(5, 60)
    return " ".join(said)


def make(options):
    chance, noise = random.Random(options.seed), np.random.default_rng(options.seed)
    seconds = 60 * options.minutes
    audio = noise.normal(size=seconds * RATE).astype(np.float32) * NOISE
    slots = list(range(300, 3000, 160))
    stations = []
    for pitch in sorted(chance.sample(slots, options.stations)):
        wpm, snr_db = chance.randint(12, 35), chance.randint(6, 30)
        stations.append({"pitch": pitch, "wpm": wpm, "snr_db": snr_db, "text": sends(chance, audio, wpm, pitch, snr_db, seconds)})
    # A conversation on one frequency, but for 45 Hz.
    turns, at, talk = [[], []], 2.0, [(3100, 24, 20), (3145, 20, 16)]
    while at < min(seconds, 180) - 25:
        for place, station in enumerate(talk):
            text = " ".join(chance.choice(WORDS) for _ in range(5))
            pitch, wpm, snr_db = station
            took = send(audio, at, text, wpm, pitch, snr_db)
            if took is None:
                break
            turns[place].append(text.upper())
            at += took + 1.0
    for (pitch, wpm, snr_db), said in zip(talk, turns):
        stations.append({"pitch": pitch, "wpm": wpm, "snr_db": snr_db, "text": " ".join(said)})
    peak = np.abs(audio).max()
    assert peak < 1, f"the stations together reach {peak:.2f}: fewer of them fit"
    return audio, [station for station in stations if station["text"]]


def found_in(audio, options):
    with tempfile.TemporaryDirectory() as folder:
        soundfile.write(f"{folder}/band.wav", audio, RATE, subtype="PCM_16")
        start = time.time()
        command = [options.xtask, "transcribe", "--all", "--format", "json", *(["--model", options.model] if options.model else []), f"{folder}/band.wav"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return found["stations"], time.time() - start


def receiver(seconds, seed):
    """Noise: white, then filtered, at a changing level and with static."""
    from scipy import signal

    noise = np.random.default_rng(seed)
    audio = noise.normal(size=seconds * RATE).astype(np.float32) * 0.05
    half = len(audio) // 2
    band = signal.lfilter(*signal.butter(4, [300, 2700], "band", fs=RATE), audio[half:])
    band *= 1 + 0.5 * np.sin(2 * np.pi * np.arange(len(band)) / RATE / 20)
    for place in noise.integers(0, len(band) - 800, size=len(band) // RATE):
        band[place : place + 800] += noise.normal(size=800) * np.exp(-np.arange(800) / 100) * 0.3
    audio[half:] = band
    return audio


def draw(audio, stations, picture):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    seconds = min(30, len(audio) // RATE)
    figure, axes = pyplot.subplots(figsize=(11, 5.5))
    axes.specgram(audio[: seconds * RATE], NFFT=1024, Fs=RATE, noverlap=512, cmap="Greys", vmin=-85, vmax=-45)
    behind = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.5}
    for station in stations:
        for segment in station["segments"]:
            if segment["start"] < seconds:
                place = (max(0.1, segment["start"]), station["pitch_hz"] + 45)
                axes.text(*place, segment["text"], fontsize=7, color="#b00020", family="monospace", clip_on=True, bbox=behind)
    axes.set_ylim(200, 3300)
    axes.set_xlim(0, seconds)
    axes.set_xlabel("seconds")
    axes.set_ylabel("Hz")
    figure.tight_layout()
    figure.savefig(picture, dpi=90, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xtask", required=True, help="the command line's program")
    parser.add_argument("--model", help="a model other than the bundled reader")
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--stations", type=int, default=10, choices=range(1, 18))
    parser.add_argument("--noise", type=int, default=60, help="minutes of noise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture")
    options = parser.parse_args()
    audio, stations = make(options)
    found, seconds = found_in(audio, options)
    print("| sent at, Hz | words per minute | dB | found at, Hz | words per minute | dB | errors, % |\n|---:|---:|---:|---:|---:|---:|---:|")
    left, wrong, characters = list(found), 0, 0
    for station in stations:
        own = [one for one in left if abs(one["pitch_hz"] - station["pitch"]) < 15]
        left = [one for one in left if one not in own]
        own.sort(key=lambda one: one["start"])
        made, length = errors(station["text"], " ".join(one["text"] for one in own))
        wrong, characters = wrong + made, characters + length
        cells = [station["pitch"], station["wpm"], station["snr_db"]]
        best = max(own, key=lambda one: len(one["text"]), default=None)
        cells += [f"{best['pitch_hz']:.0f}", f"{best['wpm']:.0f}", f"{best['snr_db']:.0f}"] if best else ["–"] * 3
        print("|", " | ".join(map(str, [*cells, f"{100 * made / length:.1f}"])), "|")
    print(f"| all | | | | | | {100 * wrong / characters:.1f} |")
    print(f"{len(left)} stations that nobody sent: {[(one['pitch_hz'], one['text']) for one in left]}")
    print(f"{60 * options.minutes / seconds:.0f} times as fast as the recording")
    if options.picture:
        draw(audio, found, options.picture)
    if options.noise:
        found, seconds = found_in(receiver(60 * options.noise, options.seed), options)
        print(f"{options.noise} minutes of noise: {len(found)} stations {[one['text'] for one in found]}, in {seconds:.0f} s")


if __name__ == "__main__":
    main()
