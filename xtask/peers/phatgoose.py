"""PHATGOOSE (Muqeeth et al., 2024, arXiv 2402.05859) on the adapters of an exported run, for routing.py.

Each adapter gets a gate in each of its linear maps, a vector of the map's width that is trained on the task's own samples with everything else
frozen: the adapter's part of the output is multiplied by the sigmoid of the gate's product with each token's input. Gates of different
adapters never meet in training. Afterwards the products of standardised gates and inputs decide for each token and map which two adapters
are mixed; here the mean of their shares over both decides for a text, because the heads need one task.
"""

import json
import math
import random
from pathlib import Path

import torch
from torch.nn import functional as F

STEPS, RATE, MIXED = 100, 5e-3, 2  # as in the paper
BATCH, BATCH_OF_TEXTS = 16, 4  # texts are written token by token here, which takes long


class Phatgoose:
    """Gates of all adapters of a model, which is a `Dynamo` of predict.py."""

    def __init__(self, predict, model):
        self.predict, self.model, self.plain = predict, model, model.backbone.linear
        widths = {name: parts[0][1].shape[1] for name, parts in model.backbone.adapters.items()}
        self.gates = {name: torch.zeros(len(model.adapters), width) for name, width in widths.items()}
        self.own, self.shares = None, []

    def adapted(self, name, x, weights):
        """Output of a linear map with some adapters, each at its weight for each token, `[1, tokens, 1]`."""
        network = self.model.backbone
        y = F.linear(x, network.weights[f"{name}.weight"], network.weights.get(f"{name}.bias"))
        for index, a, b, scale in network.adapters[name]:
            if index in weights:
                y = y + weights[index] * scale * F.linear(F.linear(x, a), b)
        return y

    def in_training(self, name, x):
        if name not in self.gates:
            return self.plain(name, x)
        return self.adapted(name, x, {self.own: torch.sigmoid(x @ self.gates[name][self.own, :, None])})

    def in_use(self, name, x):
        if name not in self.gates:
            return self.plain(name, x)
        gates, inputs = (F.layer_norm(side, side.shape[-1:]) for side in (self.gates[name], x))
        shares = (inputs @ gates.T / math.sqrt(x.shape[-1])).softmax(-1)
        self.shares.append(shares[0, : self.count].mean(0))
        kept = shares >= shares.topk(min(MIXED, shares.shape[-1]), -1).values[..., -1:]
        shares = shares * kept / (shares * kept).sum(-1, keepdim=True)
        return self.adapted(name, x, dict(enumerate(shares.unsqueeze(-1).unbind(2))))

    def train(self, task, path):
        """Trains the gates of a task's adapter. Each line of the file is a sample in JSON: text, answer, and context where there is one."""
        samples = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        draw, network = random.Random(0), self.model.backbone
        head = self.predict.TextTask(network, task, *self.model.heads[task])
        self.own, network.linear = self.model.adapters.index(task), self.in_training
        # Gates of other adapters have no gradient, and stay as they are.
        optimizer = torch.optim.AdamW([gate.requires_grad_() for gate in self.gates.values()], RATE, weight_decay=0)
        first = last = None
        for _ in range(STEPS):
            batch = draw.sample(samples, BATCH_OF_TEXTS if head.config["type"] == "seq2seq" else BATCH)
            total = sum(loss(self.predict, self.model, head, sample) for sample in batch) / len(batch)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            last = total.item()
            first = first or last
        self.gates = {name: gate.detach() for name, gate in self.gates.items()}
        network.linear = self.plain
        print(f"gates of {task}: loss {first:.3f} with gates of a half, {last:.3f} at the end", flush=True)

    def choose(self, tapped, count):
        """Index of the task for a stream at the tap with so many tokens."""
        self.shares, self.count = [], count
        self.model.backbone.linear = self.in_use
        self.model.encode(tapped)
        self.model.backbone.linear = self.plain
        return int(torch.stack(self.shares).mean(0).argmax())


def loss(predict, model, head, sample):
    """Cross-entropy of a sample's answer, by the task's head."""
    text, context, answer = sample["text"], sample.get("context"), sample["answer"]
    if head.config["type"] == "seq2seq":
        return seq2seq(predict.Decoder, model, head, text, context, answer)
    return LOSSES[head.config["type"]](model, head, text, context, answer)


def states(model, encoding):
    return model.encode(model.tapped(encoding)[0])


def classify(model, head, text, context, answer):
    found = states(model, head.encoder.encode(text, context, head.config.get("max_length", 128)))
    pooled = found.mean(1) if head.config.get("pooling") == "mean" else found[:, 0]
    logits = head.head.linear("out_proj", head.head.linear("dense", pooled).tanh())
    return F.cross_entropy(logits, torch.tensor([head.config["labels"].index(answer)]))


def tag(model, head, text, _, answer):
    words, tags = text.split(), answer.split()
    encoding = head.encoder.encode([f" {word}" for word in words], None, head.config.get("max_length", 128))
    ids = encoding.word_ids
    firsts = [word is not None and word != last for last, word in zip([None, *ids], ids)]
    labels = [head.config["labels"].index(tags[word]) if first else -100 for first, word in zip(firsts, ids)]
    return F.cross_entropy(head.head.linear("classifier", states(model, encoding))[0], torch.tensor(labels))


def span(model, head, question, context, answer):
    length, stride = head.config.get("max_length", 384), head.config.get("doc_stride", 128)
    first = head.encoder.encode(question, context, length, stride=stride, strategy="only_second")
    begin = context.index(answer)
    for window in [first, *first.overflowing]:
        parts = zip(window.offsets, window.sequence_ids)
        inside = [i for i, ((a, b), part) in enumerate(parts) if part == 1 and a < begin + len(answer) and b > begin]
        if inside and window.offsets[inside[-1]][1] >= begin + len(answer) and window.offsets[inside[0]][0] <= begin:
            start, end = head.head.linear("qa_outputs", states(model, window))[0].T[:, None]
            return (F.cross_entropy(start, torch.tensor([inside[0]])) + F.cross_entropy(end, torch.tensor([inside[-1]]))) / 2
    return torch.zeros(())


def seq2seq(new_decoder, model, head, text, context, answer):
    encoder, words = head.encoder, head.encoder.words
    encoding = encoder.encode(text, context, head.config.get("max_source", 256))
    scale = math.sqrt(words.shape[1] / float(words.square().sum(1).mean()))
    memory = states(model, encoding) + words[encoding.ids] * scale
    config = head.config
    decoder = new_decoder(head.head, words, config["layers"], config["heads"], memory)
    tokens = [encoder.cls, *encoder.encode(answer, None, config.get("max_target", 64)).ids[1:]]
    logits = torch.cat([decoder.logits([[token]]) for token in tokens[:-1]])
    return F.cross_entropy(logits, torch.tensor(tokens[1:]))


LOSSES = {"classify": classify, "tag": tag, "span": span}
