"""How well programs read Morse code, ours among them.

    python morse.py recordings --metadata metadata.csv --xtask ../../target/debug/xtask [--envelope cw_envelope.py]
    python morse.py curves --xtask ../../target/debug/xtask [--envelope cw_envelope.py] --picture morse.svg
    python morse.py conditions --xtask ../../target/debug/xtask [--envelope cw_envelope.py]
    python morse.py spacing --xtask ../../target/debug/xtask [--snr 20]
    python morse.py contacts --xtask ../../target/debug/xtask [--snr 20]
    python morse.py repeats --xtask ../../target/debug/xtask [--snr 20]

`recordings` reads audio files with known texts: lines of `name|text|...`, the files beside them. `curves` has ebook2cw key
texts, which are none of ours, adds white noise, and shows errors against the ratio of signal to noise (carrier to noise in
500 Hz) and against speed. `conditions` sends the same through what sox does to audio: codecs, filters, gain control, fading,
echoes, other stations. `spacing` sends characters fast and far apart (Farnsworth). `contacts` are two stations that answer each
other. `repeats` has words with characters that come several times in a row.

The error rate is that of characters, without spaces, for programs differ in where they put those; `spacing`, `contacts` and
`repeats` also give that of words. Needs numpy and soundfile, for a picture matplotlib; the readers that are installed of
multimon-ng and morse2ascii; sox; and for what is keyed ebook2cw.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile

RATE = 16000
WORDS = """about after again air answer antenna band beam before better bridge called change city clear close coffee cold come
copy country day dinner distance doctor door early east evening every family farm field first friend garden good ground hand
head heard high home hour house idea island kitchen large late letter light line listen little long machine message middle
money morning mountain music name near never night noise north number ocean office open paper people picture place power
question quick quiet radio rain reach river road room school second short signal silver simple small snow south speed spring
station storm street summer table teacher thing today tomorrow tower town train travel under valley voice water wave weather
week west wheel white wind window winter wire wood word work world write year yellow young zero""".split()


def errors(reference, text):
    """Edits from one text to the other, and the length of the first: letters, figures and marks, no spaces."""
    a, b = (re.sub(r"\s+", "", t.upper()) for t in (reference, text))
    return distance(a, b), len(a)


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **options).stdout


def readers(options):
    """Name → a function from WAV files (16 kHz, mono) to their texts."""
    found = {}

    def ours(files):
        command = [options.xtask, "transcribe", *(["--model", options.model] if options.model else []), *files]
        lines = run(command).splitlines()
        texts = dict(line.split("\t", 1) for line in lines if "\t" in line) if len(files) > 1 else {files[0]: "".join(lines)}
        return [texts.get(file, "") for file in files]

    def envelope(files):
        lines = run([sys.executable, options.envelope, *files]).splitlines()
        texts = {line.split("\t")[0]: line.split("\t")[-1] for line in lines}
        return [texts.get(Path(file).name, "").replace("#", "*") for file in files]

    def multimon(file):
        raw = run_bytes(["sox", file, "-r", "22050", "-b", "16", "-e", "signed", "-t", "raw", "-"])
        Path(file + ".raw").write_bytes(raw)
        return run(["multimon-ng", "-q", "-t", "raw", "-a", "MORSE_CW", file + ".raw"])

    def morse2ascii(file):
        subprocess.run(["sox", file, "-r", "8000", "-b", "16", file + ".8k.wav"], check=True)
        return run(["morse2ascii", file + ".8k.wav"])

    if options.xtask:
        found["undertone"] = ours
    if options.envelope:
        found["envelope"] = envelope
    for name, reader in (("multimon-ng", multimon), ("morse2ascii", morse2ascii)):
        if shutil.which(name):
            found[name] = lambda files, reader=reader: [reader(file) for file in files]
    return found


def run_bytes(command):
    return subprocess.run(command, capture_output=True, check=True).stdout


def score(clips, options):
    """Reader → what it made of each clip: [name, errors, characters, text]."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, audio, _ in clips:
            files.append(f"{folder}/{name}.wav")
            soundfile.write(files[-1], audio, RATE, subtype="PCM_16")
        found = {}
        for reader, read in readers(options).items():
            texts = read(files)
            found[reader] = [[name, *errors(text, got), got] for (name, _, text), got in zip(clips, texts)]
    return found


def rate(rows):
    return sum(row[1] for row in rows) / sum(row[2] for row in rows)


def recordings(options):
    metadata = Path(options.metadata)
    clips = []
    for line in filter(None, metadata.read_text().splitlines()):
        name, text = line.split("|")[:2]
        file = next(f for f in metadata.parent.glob(name + ".*") if f.suffix in (".wav", ".flac", ".ogg", ".mp3"))
        audio, file_rate = soundfile.read(file, dtype="float32", always_2d=True)
        assert file_rate == RATE, f"{file} has {file_rate} samples a second: bring it to {RATE}"
        clips.append((name, audio.mean(axis=1), text))
    found = score(clips, options)
    print("| recording |", " | ".join(found), "|\n|---|" + "---:|" * len(found))
    for place, (name, _, _) in enumerate(clips):
        print(f"| {name} |", " | ".join(f"{100 * rate([rows[place]]):.1f}" for rows in found.values()), "|")
    print("| all |", " | ".join(f"{100 * rate(rows):.1f}" for rows in found.values()), "|")


def keyed(text, wpm, pitch, folder, overall=None):
    """The audio of a text as ebook2cw keys it, 16 kHz, the carrier at amplitude 1. With `overall`, wpm is that of characters."""
    source, target = Path(folder, "text.txt"), Path(folder, "keyed")
    source.write_text(text + "\n")
    command = ["ebook2cw", "-w", str(wpm), "-f", str(pitch), "-s", str(RATE), "-c", "XXXX", "-o", str(target), "-O"]
    command += ["-e", str(overall)] if overall else []
    subprocess.run([*command, str(source)], capture_output=True, check=True)
    audio, _ = soundfile.read(next(Path(folder).glob("keyed*")), dtype="float32")
    return audio / np.percentile(np.abs(audio), 99.5)


def clip(seed, wpm, snr_db, words):
    """A clip of a few words in white noise: a carrier of power 1/2, and noise of that over the ratio in 500 Hz."""
    chance, noise = random.Random(seed), np.random.default_rng(seed)
    text = " ".join(chance.choice(WORDS) for _ in range(words))
    with tempfile.TemporaryDirectory() as folder:
        audio = keyed(text, wpm, chance.randint(450, 1000), folder)
    silence = np.zeros(RATE // 2, dtype=np.float32)
    return f"s{seed}", noisy(np.concatenate([silence, audio, silence]), snr_db, noise), text.upper()


def noisy(audio, snr_db, noise):
    density = 0.5 / 10 ** (snr_db / 10) / 500
    audio = audio + noise.normal(size=len(audio)) * np.sqrt(density * RATE / 2)
    return (0.3 * audio / np.abs(audio).max()).astype(np.float32)


# Words with characters that come several times in a row, and their speeds.
REPEATED = "IC7300 FT1000 TS5000 IC7700 FT8800 TS2000 3000 1000 100W DL0OOO OH22X W11XX HH2HH SM5SSS 5NN 599 000 599001 " \
    "WILL ALL FEEL STILL HELLO COFFEE GOOD BOOK NEED FREE FULL SPEED BESSIE ISSUE MMM".split()
REPEATED_WPM = [16, 20, 24, 28, 36]
# Words per minute of the characters and of the text.
SPACED = [(18, 5), (18, 8), (18, 10), (18, 13), (13, 5), (20, 10), (25, 12), (25, 18), (20, 20)]
# Pitch of the second station, and its level in decibels, beside the first.
CONTACTS = [(0, 0), (40, 0), (100, 0), (150, 0), (150, -6), (250, 0), (400, -6)]


def spacing(options):
    for wpm, overall in SPACED:
        clips = []
        for seed in range(options.clips):
            chance = random.Random(seed)
            text = " ".join(chance.sample(WORDS, 8))
            if seed % 3 == 2:
                call = chance.choice(["W1AW", "DL1ABC", "G4XYZ", "OK2BVX"])
                text = f"CQ CQ DE {call} {call} K NAME IS {chance.choice(['ANNA', 'BOB', 'PAUL'])} RST 599 599"
            with tempfile.TemporaryDirectory() as folder:
                audio = keyed(text, wpm, chance.randint(450, 900), folder, None if wpm == overall else overall)
            clips.append((f"s{seed}", noisy(audio, options.snr, np.random.default_rng(seed)), text.upper()))
        print(json.dumps({"wpm": wpm, "overall": overall, "snr_db": options.snr, **both_rates(clips, options)}), flush=True)


def contacts(options):
    for offset, level in CONTACTS:
        clips = []
        for seed in range(options.clips):
            chance = random.Random(seed)
            pitch, speeds = chance.randint(450, 800), chance.choice([(20, 20), (25, 18), (18, 24), (28, 28)])
            parts, texts = [np.zeros(RATE // 4)], []
            for turn in range(6):
                text = " ".join(chance.sample(WORDS, chance.choice([2, 3, 4, 6])))
                if chance.random() < 0.3:
                    text = chance.choice(["R R TU 599 599", "CQ CQ DE DL1ABC K", "DL1ABC DE G4XYZ K", "RST 579 NAME BOB"])
                second = turn % 2
                with tempfile.TemporaryDirectory() as folder:
                    audio = keyed(text, speeds[second], pitch + offset * second, folder)
                down = np.nonzero(np.abs(audio) > 0.2)[0]
                parts += [audio[down[0] : down[-1]] * 10 ** (level * second / 20), np.zeros(int(RATE * chance.uniform(0.5, 1.6)))]
                texts.append(text.upper())
            clips.append((f"s{seed}", noisy(np.concatenate(parts), options.snr, np.random.default_rng(seed)), " ".join(texts)))
        print(json.dumps({"offset_hz": offset, "level_db": level, "snr_db": options.snr, **both_rates(clips, options)}), flush=True)


def repeats(options):
    for wpm in REPEATED_WPM:
        clips = []
        for seed in range(options.clips):
            chance = random.Random(seed)
            digits = ["".join(chance.choices("0123456789", k=2)) + chance.choice("0123456789") * chance.choice([2, 3]) for _ in range(3)]
            text = " ".join(chance.sample(REPEATED + digits, 8))
            with tempfile.TemporaryDirectory() as folder:
                audio = keyed(text, wpm, chance.randint(450, 900), folder)
            clips.append((f"s{seed}", noisy(audio, options.snr, np.random.default_rng(seed)), text))
        print(json.dumps({"wpm": wpm, "snr_db": options.snr, **both_rates(clips, options)}), flush=True)


def both_rates(clips, options):
    """Reader → its error rates: of characters without spaces, and of words."""
    found = {}
    for reader, rows in score(clips, options).items():
        words = [distance(text.upper().split(), got.upper().split()) for (_, _, text), (*_, got) in zip(clips, rows)]
        wer = sum(words) / sum(len(text.split()) for _, _, text in clips)
        found[reader] = {"cer": round(rate(rows), 4), "wer": round(wer, 4)}
    return found


def curves(options):
    snrs, speeds = [-9, -6, -3, 0, 3, 6, 10, 15, 20], [5, 8, 12, 16, 20, 25, 30, 35, 40, 45, 50]
    against = {"snr_db": {}, "wpm": {}}
    for snr in snrs:
        clips = [clip(1000 * i + 7 * (snr + 50), 20, snr, 6) for i in range(options.clips)]
        against["snr_db"][snr] = {reader: rate(rows) for reader, rows in score(clips, options).items()}
        print(json.dumps({"wpm": 20, "snr_db": snr, **against["snr_db"][snr]}), flush=True)
    for wpm in speeds:
        clips = [clip(1000 * i + wpm, wpm, 15, max(2, wpm // 4)) for i in range(options.clips)]
        against["wpm"][wpm] = {reader: rate(rows) for reader, rows in score(clips, options).items()}
        print(json.dumps({"wpm": wpm, "snr_db": 15, **against["wpm"][wpm]}), flush=True)
    if options.picture:
        draw(against, options.picture)


SOX = {
    "as it is": [],
    "G.711 (mu-law) at 8 kHz": [["-r", "8000", "-e", "mu-law", "{}.wav"]],
    "GSM full rate": [["-r", "8000", "-c", "1", "{}.gsm"]],
    "MP3, 16 kbit/s": [["-C", "16", "{}.mp3"]],
    "Ogg Vorbis, lowest quality": [["-C", "-1", "{}.ogg"]],
    "filter of 200 Hz": [["{}.wav", "sinc", "-a", "100", "{low}-{high}"]],
    "gain control (compand)": [["{}.wav", "compand", "0.005,0.5", "-60,-12,0,-6", "0"]],
    "clipped by 20 dB": [["{}.wav", "gain", "20"]],
    "fading of 20 dB, every 3 s": [["{}.wav", "tremolo", "0.33", "90"]],
    "fading of 20 dB, every s": [["{}.wav", "tremolo", "1", "90"]],
    "fading of 20 dB, every 0.5 s": [["{}.wav", "tremolo", "2", "90"]],
    "echoes of 40 and 70 ms": [["{}.wav", "echos", "0.8", "0.7", "40", "0.4", "70", "0.3"]],
    "flanger": [["{}.wav", "flanger", "0", "3", "0", "80", "0.7"]],
}
OTHERS = {
    "another station, 200 Hz off, -10 dB": (200, -10),
    "another station, 200 Hz off, -3 dB": (200, -3),
    "another station, 400 Hz off, -3 dB": (400, -3),
    "another station, 400 Hz off, as strong": (400, 0),
}


def conditions(options):
    """Clips at 12 dB and 22 words per minute, each through one thing that happens to audio."""
    for name in [*SOX, *OTHERS, "static"]:
        clips = [clip(5000 + i, 22, 12, 6) for i in range(options.clips)]
        clips = [(key, changed(audio, name, i), text) for i, (key, audio, text) in enumerate(clips)]
        print(json.dumps({"condition": name, **{reader: rate(rows) for reader, rows in score(clips, options).items()}}), flush=True)


def changed(audio, name, seed):
    noise = np.random.default_rng(seed)
    if name in OTHERS:
        offset, level = OTHERS[name]
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            text = " ".join(chance.choice(WORDS) for _ in range(8))
            other = keyed(text, chance.randint(15, 30), pitch_of(audio) + offset, folder)
        audio = audio.copy()
        other = other[: len(audio)] * tone_of(audio) * 10 ** (level / 20)
        audio[: len(other)] += other
        return (0.5 * audio / np.abs(audio).max()).astype(np.float32)
    if name == "static":
        audio = audio.copy()
        for place in noise.integers(0, len(audio), size=len(audio) // RATE):
            burst = noise.normal(size=800) * np.exp(-np.arange(800) / 100) * 3 * tone_of(audio)
            audio[place : place + 800] += burst[: len(audio) - place]
        return (0.5 * audio / np.abs(audio).max()).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/0.wav"
        soundfile.write(file, audio, RATE, subtype="PCM_16")
        for step, arguments in enumerate(SOX[name]):
            pitch = pitch_of(audio)
            values = {"low": pitch - 100, "high": pitch + 100}
            arguments = [argument.replace("{}", f"{folder}/{step + 1}").format(**values) for argument in arguments]
            subprocess.run(["sox", file, *arguments], check=True, capture_output=True)
            file = next(argument for argument in arguments if argument.startswith(folder))
        out = run_bytes(["sox", file, "-r", str(RATE), "-b", "16", "-e", "signed", "-t", "raw", "-"])
        return np.frombuffer(out, dtype=np.int16).astype(np.float32) / 32768


def pitch_of(audio):
    spectrum = np.abs(np.fft.rfft(audio)) ** 2
    return int(np.argmax(spectrum) * RATE / len(audio))


def tone_of(audio):
    """The amplitude of the loudest tone while it is keyed, without the noise beside it."""
    turned = audio * np.exp(-2j * np.pi * pitch_of(audio) * np.arange(len(audio)) / RATE)
    average = np.ones(RATE // 50) / (RATE // 50)
    return float(2 * np.percentile(np.abs(np.convolve(turned, average, "same")), 90))


def draw(against, picture):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "undertone"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    names = {"snr_db": "carrier to noise in 500 Hz, dB (20 words per minute)", "wpm": "words per minute (15 dB)"}
    for axis, (key, label) in zip(axes, names.items()):
        for reader in next(iter(against[key].values())):
            values = [100 * min(1.0, found[reader]) for found in against[key].values()]
            axis.plot(list(against[key]), values, marker="o", markersize=3, linewidth=2.5 if reader == "undertone" else 1.2, label=reader)
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("character errors, %")
    axes[1].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["recordings", "curves", "conditions", "spacing", "contacts", "repeats"])
    parser.add_argument("--metadata")
    parser.add_argument("--xtask", help="the command line's program")
    parser.add_argument("--model", help="a model other than the bundled reader")
    parser.add_argument("--envelope", help="a script that reads WAV files as an envelope decoder")
    parser.add_argument("--clips", type=int, default=24, help="of each point of a curve")
    parser.add_argument("--snr", type=float, default=20, help="of `spacing`, `contacts` and `repeats`, in dB")
    parser.add_argument("--picture")
    options = parser.parse_args()
    commands = [recordings, curves, conditions, spacing, contacts, repeats]
    {command.__name__: command for command in commands}[options.what](options)


if __name__ == "__main__":
    main()
