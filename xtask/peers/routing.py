"""Which task a run's router chooses for texts of the tasks and for texts of another style, beside Arrow and PHATGOOSE.

undertone export --run RUN --format dynamo --out FOLDER
pip install torch safetensors tokenizers
python routing.py FOLDER --own TASK=FILE ... --shifted TASK=FILE ... [--words 0 1 2 3] [--limit 500] [--gates TASK=FILE ...]

Each file has one text a line, or a text and its context with a tab between, of one task; none of them was trained on. Prints the share of
each file whose task is chosen, for some values of `router.words`, and for Arrow (Ostapenko et al., 2024, arXiv 2405.11157), which trains
nothing: an adapter is as likely as the size of its inputs along the direction that its update stretches most. Arrow decides for each token
and map; here its mean over both decides for a text, because the heads need one task. With --gates, a file of training samples in JSON lines
for each task, phatgoose.py trains gates and adds its column.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from phatgoose import Phatgoose


class Arrow:
    """Direction of each adapter in each linear map, and the inputs of the maps."""

    def __init__(self, model):
        self.model, self.backbone, self.directions = model, model.backbone, {}
        for name, parts in self.backbone.adapters.items():
            self.directions[name] = torch.stack([self.direction(a, b) for _, a, b, _ in sorted(parts, key=lambda part: part[0])])
        self.plain, self.found = self.backbone.linear, []

    @staticmethod
    def direction(a, b):
        """Right singular vector of the largest singular value of B A."""
        q, r = torch.linalg.qr(a.T)
        _, _, v = torch.linalg.svd(b @ r.T, full_matrices=False)
        return q @ v[0]

    def linear(self, name, x):
        if name in self.directions:
            self.found.append((x[0, : self.count] @ self.directions[name].T).abs().mean(0))
        return self.plain(name, x)

    def choose(self, tapped, count):
        """Index of the task for a stream at the tap with so many tokens."""
        self.found, self.count = [], count
        self.backbone.gates, self.backbone.linear = [0.0] * len(self.model.adapters), self.linear
        self.model.encode(tapped)
        self.backbone.linear = self.plain
        return int(torch.stack(self.found).mean(0).argmax())


@torch.inference_mode()
def choices(model, others, path, weights, limit):
    """For each text of a file the task of each weight and the confidence in it, and the task of each of the other methods."""
    for line in Path(path).read_text(encoding="utf-8").splitlines()[:limit]:
        text, _, context = line.partition("\t")
        tapped, count = model.tapped(model.backbone.encode(text, context or None, model.backbone.longest))
        pooled, evidence = tapped[0, :count].mean(0), model.words.evidence(text, context or None)
        chosen = []
        for weight in weights:
            model.router.config["words"] = weight
            # Without words the confidence is the learned one.
            task, _, confidence = model.router.route(pooled, evidence if weight else None)
            chosen.append((model.tasks[task], confidence))
        yield chosen + [(model.tasks[other.choose(tapped, count)], None) for other in others]


def calibration_error(answers):
    """Expected calibration error of pairs of a confidence and whether it was right, in 20 bins as `analyze` has it."""
    bins = [[] for _ in range(20)]
    for confidence, right in answers:
        bins[min(int(20 * confidence), 19)].append(confidence - right)
    return sum(abs(sum(differences)) for differences in bins) / len(answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--own", nargs="+", required=True)
    parser.add_argument("--shifted", nargs="*", default=[])
    parser.add_argument("--words", type=float, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--gates", nargs="*", default=[])
    parser.add_argument("--limit", type=int, default=500)
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("predict", args.folder / "predict.py")
    predict = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(predict)
    model = predict.Dynamo(args.folder)
    (stage,) = args.folder.glob("phase*/words.safetensors")
    model.words = predict.WordCounts(predict.read_weights(stage))
    others = {"Arrow": Arrow(model)}
    if args.gates:
        others["PHATGOOSE"] = Phatgoose(predict, model)
        for task, _, path in (file.partition("=") for file in args.gates):
            others["PHATGOOSE"].train(task, path)
    print("texts", *(f"words {weight:g}" for weight in args.words), *others, sep=" | ")
    for kind, files in (("own", args.own), ("shifted", args.shifted)):
        for task, _, path in (file.partition("=") for file in files):
            found = list(choices(model, others.values(), path, args.words, args.limit))
            columns = list(zip(*found))
            shares = [sum(chosen == task for chosen, _ in column) / len(found) for column in columns]
            print(f"{task}, {kind} ({len(found)})", *(f"{100 * share:.1f}" for share in shares), sep=" | ", flush=True)
            errors = [calibration_error([(sure, chosen == task) for chosen, sure in column]) for column in columns[: len(args.words)]]
            print("its calibration error", *(f"{error:.3f}" for error in errors), *["–" for _ in others], sep=" | ", flush=True)


if __name__ == "__main__":
    main()
