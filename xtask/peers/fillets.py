"""List of the Czech lines of the game Fish Fillets NG, which actors speak, with their texts.

    apt-get install fillets-ng-data fillets-ng-data-cs
    python xtask/peers/fillets.py OUT.csv

Columns: audio (the file where the package puts it), text, scene (the level of the game), role (the typeface of the line, which is one for
each role in a scene). Lines without a text are left out; the rest are 1,713. Licence of the game and its data: GPL-2.
"""

import csv
import re
import sys
from pathlib import Path

GAME = Path("/usr/share/games/fillets-ng")
STRING = r'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(rf"dialogId\({STRING},\s*{STRING},\s*{STRING}\)\s*dialogStr\({STRING}\)")


def spoken(text):
    """The text without the escapes of its string and without stage directions in brackets."""
    text = re.sub(r"\\(.)", r"\1", text)
    return " ".join(re.sub(r"\([^)]*\)|\[[^\]]*\]", " ", text).split())


def main():
    with open(sys.argv[1], "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["audio", "text", "scene", "role"])
        count = 0
        for script in sorted(GAME.glob("script/*/*dialogs_cs.lua")):
            scene = script.parent.name
            for name, role, _, text in LINE.findall(script.read_text(encoding="utf-8")):
                audio = GAME / "sound" / scene / "cs" / f"{name}.ogg"
                if audio.is_file() and re.search(r"\w", spoken(text)):
                    rows.writerow([audio, spoken(text), scene, role.removeprefix("font_")])
                    count += 1
    print(f"{count} lines in {sys.argv[1]}")


main()
