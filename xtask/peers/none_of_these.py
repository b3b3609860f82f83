"""How well a run with tasks on text tells inputs of its tasks from those of none.

undertone export --run RUN --format dynamo --out FOLDER
pip install torch safetensors tokenizers
python none_of_these.py FOLDER --own own.txt --others others.txt

Both files hold one text a line: texts of the run's tasks, of which none was trained on, and texts of anything else. Prints the area
under the ROC curve (the probability that a text of another kind is less like the tasks than one of their own), and for some values of
`router.reject` the shares of both that are taken for none of the tasks.
"""

import argparse
import importlib.util
from pathlib import Path


def shares(model, path, limit):
    lines = [line.strip() for line in Path(path).read_text().splitlines() if line.strip()][:limit]
    found = []
    for line in lines:
        tapped, count = model.tapped(model.backbone.encode(line, None, model.backbone.longest))
        found.append(model.known.own_share(tapped[0, :count].mean(0)))
    return found


def area(own, others):
    """Area under the ROC curve; equal shares count half."""
    wins = sum((other < mine) + 0.5 * (other == mine) for other in others for mine in own)
    return wins / (len(own) * len(others))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--own", required=True)
    parser.add_argument("--others", required=True)
    parser.add_argument("--limit", type=int, default=500)
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("predict", args.folder / "predict.py")
    predict = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(predict)
    model = predict.Dynamo(args.folder)
    own, others = shares(model, args.own, args.limit), shares(model, args.others, args.limit)
    print(f"{len(own)} own texts, {len(others)} others: area under the ROC curve {area(own, others):.3f}")
    for reject in [0.01, 0.05, 0.1]:
        taken = [sum(share < reject for share in of) / len(of) for of in (own, others)]
        print(f"router.reject {reject}: {taken[0]:.1%} of the own texts, {taken[1]:.1%} of the others")


if __name__ == "__main__":
    main()
