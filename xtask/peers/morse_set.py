"""How well Morse code is read that other people's programs have made, over all speeds, pitches and ratios of signal to noise.

    python3 morse_set.py --out DIR [--clips 420] --xtask ../../target/debug/xtask [--model DIR]

Texts are contacts of Debian's `QSO`, random groups and common words. They are keyed by ebook2cw, by pycw (PyPI) and by
morse-pro (npm), and go through GSM, Opus, MP3, or GNU Radio's fading of two paths, or through nothing. Speeds are 5 to 60
words per minute, pitches 200 to 1500 Hz, and the carrier is -6 to 30 dB above the noise in 500 Hz. Every clip is a function of
its number, so that a set that is made again is the same.

Prints character errors without spaces and word errors in percent, by each of these. Needs the Debian packages ebook2cw, morse,
faketime, sox, libsox-fmt-mp3, opus-tools, nodejs and python3-soundfile, gnuradio; pycw in Python's path, and morse-pro
in `node_modules` of the folder that it is called in. The first options of `morse.py` choose the readers.
"""

import argparse
import json
import random
import re
import string
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import soundfile

from morse import RATE, WORDS, errors, keyed, readers

SNRS_DB = [-6, -3, 0, 3, 6, 12, 30]
ALLOWED = re.compile(r"[^A-Z0-9.,?/= ]")
MORSE_PRO = """
const Wave = require("morse-pro/lib/morse-pro-cw-wave").default;
const [text, wpm, hz] = process.argv.slice(1);
const wave = new Wave(false, Number(wpm), Number(wpm), Number(hz), 16000);
wave.translate(text);
process.stdout.write(Buffer.from(Float32Array.from(wave.getSample(0)).buffer));
"""


def text_of(chance, seconds, wpm):
    """A text that takes about so long: 5 characters and a space are a word. `QSO` draws by the clock, so faketime sets it."""
    characters = max(8, int(seconds * wpm / 60 * 6))
    kind = chance.choice(["contact", "groups", "words"])
    if kind == "contact":
        command = ["faketime", "-f", f"@2020-01-01 00:{chance.randrange(60):02}:{chance.randrange(60):02}", "QSO"]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout
        words = ALLOWED.sub("", re.sub(r"\s", " ", said.upper())).split()
        start = chance.randrange(max(1, len(words) - 4))
        words = words[start:]
    elif kind == "groups":
        words = ["".join(chance.choices(string.ascii_uppercase + string.digits, k=chance.randint(3, 6))) for _ in range(40)]
    else:
        words = [chance.choice(WORDS).upper() for _ in range(40)]
    text = ""
    for word in words:
        if text and len(text) + len(word) >= characters:
            break
        text = f"{text} {word}".strip()
    return kind, text


def by_pycw(text, wpm, pitch, folder):
    import pycw

    return np.frombuffer(pycw.generate(text, wpm, pitch, 1.0, RATE), dtype=np.int16).astype(np.float32)


def by_morse_pro(text, wpm, pitch, folder):
    command = ["node", "-e", MORSE_PRO, text, str(wpm), str(pitch)]
    return np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, dtype=np.float32)


KEYERS = {"ebook2cw": keyed, "pycw": by_pycw, "morse-pro": by_morse_pro}


def faded(audio, seed):
    """Two paths 1 ms apart, each with Rayleigh fading of 0.5 Hz: HF in moderate conditions."""
    from gnuradio import blocks, channels, gr

    spectrum = np.fft.fft(audio)
    spectrum[len(audio) // 2 :] = 0
    source = blocks.vector_source_c(list(2 * np.fft.ifft(spectrum)))
    model = channels.selective_fading_model(8, 0.5 / RATE, False, 4.0, seed, (0.0, 16.0), (0.7, 0.7), 24)
    sink = blocks.vector_sink_c()
    graph = gr.top_block()
    graph.connect(source, model, sink)
    graph.run()
    return np.real(np.array(sink.data())).astype(np.float32)


def coded(audio, kind, folder):
    """The audio after a codec."""
    plain, back = f"{folder}/plain.wav", f"{folder}/back.wav"
    soundfile.write(plain, 0.5 * audio / np.abs(audio).max(), RATE, subtype="PCM_16")
    if kind == "opus":
        run = lambda *command: subprocess.run(command, capture_output=True, check=True)
        run("opusenc", "--bitrate", "12", plain, f"{folder}/coded.opus")
        run("opusdec", "--rate", str(RATE), f"{folder}/coded.opus", back)
    else:
        coding = {"gsm": ["-r", "8000", f"{folder}/coded.gsm"], "mp3": ["-C", "16", f"{folder}/coded.mp3"]}[kind]
        subprocess.run(["sox", "-R", "-D", plain, *coding], capture_output=True, check=True)
        subprocess.run(["sox", "-R", "-D", coding[-1], "-r", str(RATE), back], capture_output=True, check=True)
    return soundfile.read(back, dtype="float32")[0]


CHANNELS = ["none", "gsm", "opus", "mp3", "fading"]


def make(number):
    """A clip, and what it is."""
    chance, noise = random.Random(number), np.random.default_rng(number)
    snr_db = SNRS_DB[number % len(SNRS_DB)]
    wpm, pitch = round(5 * 12 ** chance.random()), chance.randint(200, 1500)
    keyer, channel = chance.choice(sorted(KEYERS)), chance.choice(CHANNELS)
    kind, text = text_of(chance, chance.uniform(6, 20), wpm)
    with tempfile.TemporaryDirectory() as folder:
        audio = KEYERS[keyer](text, wpm, pitch, folder)
        audio = audio / np.percentile(np.abs(audio), 99.5)
        silence = [np.zeros(int(RATE * chance.uniform(0.0, 0.5)), dtype=np.float32) for _ in range(2)]
        audio = np.concatenate([silence[0], audio, silence[1]])
        if channel == "fading":
            audio = faded(audio, number)
        density = 0.5 / 10 ** (snr_db / 10) / 500
        audio = audio + noise.normal(size=len(audio)) * np.sqrt(density * RATE / 2)
        if channel in ("gsm", "opus", "mp3"):
            audio = coded(audio, channel, folder)
    audio = (0.5 * audio / np.abs(audio).max()).astype(np.float32)
    return audio, {"snr_db": snr_db, "wpm": wpm, "pitch_hz": pitch, "keyer": keyer, "channel": channel, "kind": kind, "text": text}


def word_errors(reference, text):
    """Edits of words, and the number of words."""
    marks = {}
    a, b = ("".join(marks.setdefault(word, chr(0xE000 + len(marks))) for word in t.upper().split()) for t in (reference, text))
    return errors(a, b)


GROUPS = {
    "dB": lambda clip: clip["snr_db"],
    "words per minute, from 0 dB": lambda clip: (clip["snr_db"] >= 0 or None) and next(f"to {top}" for top in (8, 12, 20, 30, 40, 50, 60) if clip["wpm"] <= top),
    "pitch, from 0 dB": lambda clip: (clip["snr_db"] >= 0 or None) and next(f"to {top}" for top in (350, 600, 1000, 1500) if clip["pitch_hz"] <= top),
    "channel, from 0 dB": lambda clip: (clip["snr_db"] >= 0 or None) and clip["channel"],
    "keyed by, from 0 dB": lambda clip: (clip["snr_db"] >= 0 or None) and clip["keyer"],
    "all, from 0 dB": lambda clip: "all" if clip["snr_db"] >= 0 else None,
}


def table(clips, found):
    print("|", " | ".join(["", *(f"{name}, characters | words" for name in found)]), "|")
    print("|---|" + "---:|---:|" * len(found))
    natural = lambda value: [int(part) if part.lstrip("-").isdigit() else 0 for part in str(value).split()] + [str(value)]
    for title, group in GROUPS.items():
        for value in sorted({group(clip) for clip in clips} - {None}, key=natural):
            rows = [index for index, clip in enumerate(clips) if group(clip) == value]
            cells = []
            for texts in found.values():
                for measure in (errors, word_errors):
                    counts = [measure(clips[row]["text"], texts[row]) for row in rows]
                    cells.append(f"{100 * sum(wrong for wrong, _ in counts) / sum(length for _, length in counts):.1f}")
            print(f"| {title}: {value} ({len(rows)}) |", " | ".join(cells), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the clips; those that are there are read again")
    parser.add_argument("--clips", type=int, default=420)
    parser.add_argument("--xtask", required=True, help="the command line's program")
    parser.add_argument("--model", help="a model other than the bundled reader")
    parser.add_argument("--envelope", help="a script that reads WAV files as an envelope decoder")
    parser.add_argument("--texts", help="a file for what each reader wrote")
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    clips, files = [], []
    for number in range(options.clips):
        file = out / f"{number:04}.wav"
        if not file.with_suffix(".json").exists():
            audio, clip = make(number)
            soundfile.write(file, audio, RATE, subtype="PCM_16")
            file.with_suffix(".json").write_text(json.dumps(clip))
        clips.append(json.loads(file.with_suffix(".json").read_text()))
        files.append(str(file))
    found = {name: read(files) for name, read in readers(options).items()}
    if options.texts:
        Path(options.texts).write_text(json.dumps({name: dict(zip(files, texts)) for name, texts in found.items()}, indent=1))
    table(clips, found)


if __name__ == "__main__":
    main()
