"""Vietnamese sentences spoken by espeak-ng: sentences of LibreOffice's help, in three accents and twelve voices.

    apt-get install espeak-ng && apt-get install --no-install-recommends libreoffice-help-vi
    python xtask/peers/vietnamese.py OUT

Writes OUT/train.csv, valid.csv and test.csv with the columns audio, text, voice and accent, and their recordings. No sentence and no voice is in
two of the lists. Sentences of 3 to 12 words of letters alone are taken, in lower case without punctuation; each is spoken once, by a voice and
in an accent that are drawn with a seed. Three in four of the training texts are words drawn at random from all training sentences: a model
from nothing would otherwise learn these few sentences by heart instead of listening. Licence of the texts: MPL-2.0.
"""

import csv
import html
import random
import re
import subprocess
import sys
import wave
from pathlib import Path

HELP = Path("/usr/share/libreoffice/help/vi")
ACCENTS = ["vi", "vi-vn-x-central", "vi-vn-x-south"]
VOICES = {"train": ["m1", "m2", "m3", "m5", "m6", "m7", "f1", "f2", "f4", "f5"], "valid": ["m4"], "test": ["f3"]}
LONGEST = 4.0  # seconds, the window of configs/compact-whisper-vietnamese.yaml
WORD = r"[^\W\d_]+"
# Letters that English texts do not have: parts of the help are not translated.
OWN = re.compile("[ăâđêôơưàằầèềìòồờùừỳáắấéếíóốớúứýảẳẩẻểỉỏổởủửỷãẵẫẽễĩõỗỡũữỹạặậẹệịọộợụựỵ]")


def sentences():
    found = set()
    for page in HELP.rglob("*.html"):
        for paragraph in re.findall(r"<p[^>]*>(.*?)</p>", page.read_text(encoding="utf-8", errors="replace"), flags=re.S):
            plain = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", paragraph)).split())
            for sentence in re.split(r"(?<=[.!?:])\s+", plain):
                if not re.fullmatch(rf"{WORD}(?:,? {WORD})+[.!?:]?", sentence):
                    continue
                words = re.findall(WORD, sentence.lower())
                if 3 <= len(words) <= 12 and 2 * sum(bool(OWN.search(word)) for word in words) >= len(words):
                    found.add(" ".join(words))
    return sorted(found)


def speak(path, text, voice, accent, draw):
    """Writes a recording and returns its seconds."""
    rate, pitch = draw.randint(160, 210), draw.randint(35, 65)
    command = ["espeak-ng", "-v", f"{accent}+{voice}", "-s", str(rate), "-p", str(pitch), "-w", str(path), text]
    subprocess.run(command, check=True)
    with wave.open(str(path)) as recording:
        return recording.getnframes() / recording.getframerate()


def write(out, name, texts, draw):
    count, seconds = 0, 0.0
    with open(out / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["audio", "text", "voice", "accent"])
        for number, text in enumerate(texts):
            accent, voice, path = draw.choice(ACCENTS), draw.choice(VOICES[name]), out / f"{name}-{number:05}.wav"
            length = speak(path, text, voice, accent, draw)
            if length > LONGEST:
                path.unlink()
                continue
            rows.writerow([path.name, text, voice, accent])
            count, seconds = count + 1, seconds + length
    print(f"{out}/{name}.csv: {count} recordings, {seconds / 3600:.2f} h")


def main():
    out, draw, texts = Path(sys.argv[1]), random.Random(0), sentences()
    if not texts:
        sys.exit(f"{HELP} has no texts: apt-get install --no-install-recommends libreoffice-help-vi")
    out.mkdir(parents=True, exist_ok=True)
    draw.shuffle(texts)
    write(out, "valid", texts[:150], draw)
    write(out, "test", texts[150:400], draw)
    texts = texts[400:]
    words = [word for text in texts for word in text.split()]
    drawn = [" ".join(draw.sample(words, draw.randint(3, 9))) for _ in range(3 * len(texts))]
    write(out, "train", texts + drawn, draw)


main()
