"""Which of two tasks an input of another style belongs to: what a router could tell from MiniLM.

    python router.py --data DIR --model DIR [--seeds 2]

Trains small classifiers on SST-2's reviews and WNUT17's tweets: on what MiniLM has at each tap, by how it is pooled; on its words'
embeddings with some of the tokens left out; and on how often words stand in either. Prints the share of the right task, in
percent, of SST-2's development set and of WNUT17's, whose comments are not tweets. Needs torch and transformers.
"""

import argparse
import collections
import math
from pathlib import Path

import torch
from quality import reviews, tagged
from torch.nn.functional import cross_entropy, normalize
from transformers import AutoModel, AutoTokenizer

POOLINGS = {"mean": [0], "maximum": [1], "mean and deviation": [0, 2], "first token": [3]}


def pooled(model, tokenizer, texts):
    """`[texts, taps, poolings, width]`"""
    parts = []
    for i in range(0, len(texts), 64):
        batch = tokenizer(texts[i : i + 64], padding=True, truncation=True, max_length=96, return_tensors="pt")
        keep = batch["attention_mask"][..., None].float()
        with torch.no_grad():
            taps = model(**batch, output_hidden_states=True).hidden_states
        rows = []
        for x in taps:
            mean = (x * keep).sum(1) / keep.sum(1)
            deviation = (((x - mean[:, None]) ** 2 * keep).sum(1) / keep.sum(1)).sqrt()
            rows.append(torch.stack([mean, (x * keep - 1e4 * (1 - keep)).amax(1), deviation, x[:, 0]], 1))
        parts.append(torch.stack(rows, 1))
    return torch.cat(parts)


def trained(draw, width, hidden, steps):
    """A perceptron, or without `hidden` a linear map; `draw(task)` gives 16 rows of a task."""
    layers = [torch.nn.Linear(width, 2)]
    if hidden:
        norm = torch.nn.LayerNorm(hidden)
        layers = [torch.nn.Linear(width, hidden), norm, torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(hidden, 2)]
    net = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    labels = torch.arange(2).repeat_interleave(16)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(net(torch.cat([draw(0), draw(1)])), labels).backward()
        optimizer.step()
    net.eval()
    return lambda x: net(x).detach().diff(dim=1)[:, 0]


def discriminant(train):
    centred = [rows - rows.mean(0) for rows in train]
    covariance = sum(rows.T @ rows / len(rows) for rows in centred) / 2
    diagonal = covariance.diag()
    covariance = (covariance + diagonal.diag()) / 2 + 1e-4 * diagonal.mean() * torch.eye(len(diagonal))
    means = [rows.mean(0) for rows in train]
    weight = torch.linalg.solve(covariance, means[1] - means[0])
    return lambda x: x @ weight - (means[0] + means[1]) @ weight / 2


def nearest(train, count=10):
    middle = torch.cat(train).mean(0)
    known = [normalize(rows - middle, dim=1) for rows in train]

    def decide(x):
        x = normalize(x - middle, dim=1)
        near = [(x @ rows.T).topk(count, 1)[0].mean(1) for rows in known]
        return near[1] - near[0]

    return decide


def naive_bayes(train, least=0.1):
    """By how often each word piece stands in texts of either task."""
    counts = [collections.Counter(token for tokens in part for token in tokens) for part in train]
    known = set(counts[0]) | set(counts[1])
    totals = [sum(count.values()) + least * len(known) for count in counts]
    odds = {token: math.log((counts[1][token] + least) / totals[1] * totals[0] / (counts[0][token] + least)) for token in known}
    return lambda texts: torch.tensor([sum(odds.get(token, 0.0) for token in tokens) for tokens in texts])


def shares(decide, test):
    """Above 0 is the second task."""
    return " / ".join(f"{100 * ((decide(rows) > 0) == bool(task)).float().mean():.1f}" for task, rows in enumerate(test))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModel.from_pretrained(options.model, dtype=torch.float32).eval()
    words = lambda file: [" ".join(record["words"]) for record in tagged(options.data / "tweets" / file)]
    texts = [
        *[[record["text"] for record in reviews(options.data / "sst2" / file)] for file in ("train.tsv", "dev.tsv")],
        *[words(file) for file in ("wnut17train.conll", "emerging.dev.conll")],
    ]
    features = [pooled(model, tokenizer, part) for part in texts]
    for tap in range(features[0].shape[1]):
        for name, which in POOLINGS.items():
            rows = [part[:, tap, which].flatten(1) for part in features]
            train, test = [rows[0], rows[2]], [rows[1], rows[3]]
            draw = lambda task: train[task][torch.randint(len(train[task]), (16,))]
            found = []
            for hidden in (128, 0):
                for seed in range(options.seeds):
                    torch.manual_seed(seed)
                    found.append(shares(trained(draw, rows[0].shape[1], hidden, 400), test))
            found += [shares(discriminant(train), test), shares(nearest(train), test)]
            print(f"tap {tap}, {name}: perceptron, linear, discriminant, nearest:", ", ".join(found), flush=True)

    embeddings = model.embeddings.word_embeddings.weight.detach()
    ids = [tokenizer(part, truncation=True, max_length=96, add_special_tokens=False)["input_ids"] for part in texts]

    print("words, naive Bayes:", shares(naive_bayes([ids[0], ids[2]]), [ids[1], ids[3]]), flush=True)

    def mean(tokens, kept):
        tokens = torch.tensor(tokens)
        chosen = tokens[torch.rand(len(tokens)) < kept]
        return embeddings[chosen if len(chosen) else tokens[:1]].mean(0)

    whole = [torch.stack([mean(tokens, 1.1) for tokens in part]) for part in (ids[1], ids[3])]
    for kept in (1.1, 0.7, 0.4, 0.2):
        found = []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            train = [ids[0], ids[2]]
            draw = lambda task: torch.stack([mean(train[task][k], kept) for k in torch.randint(len(train[task]), (16,))])
            found.append(shares(trained(draw, whole[0].shape[1], 128, 600), whole))
        print(f"words' embeddings, {min(kept, 1):.0%} of the tokens kept in training:", ", ".join(found), flush=True)


if __name__ == "__main__":
    main()
