#!/usr/bin/env python3
"""Answers to audio or text from a folder that `undertone export --format dynamo` wrote, with PyTorch.

    python predict.py FOLDER --audio FILE.wav
    python predict.py FOLDER --text TEXT [--context TEXT] [--task NAME[,NAME]]

prints one JSON object per line, as `undertone predict --format json` does. In Python:

    model = Dynamo("FOLDER")
    model.audio(read_wav("FILE.wav"))
    model.text("Who wrote it?", context="Ada wrote it.")

One frozen backbone, a Whisper or a BERT, serves several tasks. Each task has a LoRA adapter in the backbone's linear
maps, and a head that makes the answer. The router reads the states after the first blocks of the encoder (the tap) and
gives each adapter a gate; the adapters are in the blocks above the tap.

Needs `torch` and `safetensors`, for text also `tokenizers`.
"""

import argparse
import json
import math
import sys
import wave
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

SAMPLE_RATE = 16_000
HOP = 160  # samples from one frame to the next
FRAME = 400  # samples in a frame
POSITION = 2 * HOP  # samples for each position of Whisper's encoder
INFINITY = float("inf")


class DynamoError(Exception):
    """Reason why a folder or an input cannot be used."""


def read_json(path):
    """Content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_weights(path):
    """Tensors of a safetensors file by name, as 32-bit floats."""
    return {name: tensor.float() for name, tensor in load_file(path).items()}


def read_model(folder):
    """Tensors of a folder in the Hugging Face layout: of one file, or of shards that an index lists."""
    index = folder / "model.safetensors.index.json"
    files = set(read_json(index)["weight_map"].values()) if index.exists() else ["model.safetensors"]
    return {name: tensor for file in files for name, tensor in read_weights(folder / file).items()}


def without(prefix, weights):
    """Tensors whose names begin with a prefix, by the rest of the name."""
    return {name.removeprefix(prefix): x for name, x in weights.items() if name.startswith(prefix)}


def read_wav(path):
    """Samples of a 16-bit WAV file at 16 kHz. Channels are averaged."""
    try:
        with wave.open(str(path), "rb") as file:
            rate, width, channels = file.getframerate(), file.getsampwidth(), file.getnchannels()
            data = bytearray(file.readframes(file.getnframes()))
    except (OSError, EOFError, wave.Error) as error:
        raise DynamoError(f"`{path}` cannot be read as WAV ({error}): give a WAV file of 16-bit integers") from None
    if (rate, width) != (SAMPLE_RATE, 2):
        raise DynamoError(f"`{path}` has {8 * width} bits at {rate} Hz: convert it to 16 bits at {SAMPLE_RATE} Hz")
    if not data:
        raise DynamoError(f"`{path}` holds no audio: record it again")
    return torch.frombuffer(data, dtype=torch.int16).view(-1, channels).float().div(32768).mean(1)


class Network:
    """Weights by name, with adapters in some of the linear maps."""

    def __init__(self, weights):
        self.weights = weights
        self.adapters = {}  # name of a map → [(index of the adapter, A, B, scale)]
        self.gates = []  # one for each adapter

    def linear(self, name, x):
        """Linear map: W·x + b, and gate · scale · B·(A·x) for each adapter."""
        y = F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))
        for index, a, b, scale in self.adapters.get(name, []):
            if self.gates[index] != 0:
                y = y + F.linear(F.linear(x, a) * (self.gates[index] * scale), b)
        return y

    def norm(self, name, x, epsilon=1e-5):
        """Layer norm."""
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], epsilon)


def attention(query, key, value, heads, causal=False):
    """Attention, `[batch, time, width]` each. Causal queries are the last of the keys."""
    query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    if causal:
        queries, keys = scores.shape[2:]
        later = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        scores = scores.masked_fill(later, -INFINITY)
    return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


class Decoder:
    """Whisper's decoder with a key-value cache: that of a Whisper, or the head of a text task that writes."""

    def __init__(self, network, embedding, layers, heads, states, start=None, scale=1.0):
        """Decoder of one text, over an encoder's states. `start` is added to the embedding of the first token."""
        self.network, self.embedding, self.heads, self.start, self.scale = network, embedding, heads, start, scale
        self.positions, self.length, self.past = network.weights["decoder.embed_positions.weight"], 0, [None] * layers
        maps = [f"decoder.layers.{i}.encoder_attn" for i in range(layers)]
        self.cross = [[network.linear(f"{at}.{kind}_proj", states) for kind in "kv"] for at in maps]

    def logits(self, tokens):
        """Logits of the next token, `[rows, vocabulary]`, for rows of tokens that continue those before."""
        net, x = self.network, self.embedding[torch.tensor(tokens)] * self.scale
        if self.start is not None and self.length == 0:
            x[:, 0] += self.start
        x = x + self.positions[self.length : self.length + x.shape[1]]
        self.length += x.shape[1]
        for i in range(len(self.past)):
            at = f"decoder.layers.{i}"
            h = net.norm(f"{at}.self_attn_layer_norm", x)
            query, *memory = (net.linear(f"{at}.self_attn.{kind}_proj", h) for kind in "qkv")
            if self.past[i] is not None:
                memory = [torch.cat(pair, 1) for pair in zip(self.past[i], memory)]
            self.past[i] = memory
            x = x + net.linear(f"{at}.self_attn.out_proj", attention(query, *memory, self.heads, causal=True))
            query = net.linear(f"{at}.encoder_attn.q_proj", net.norm(f"{at}.encoder_attn_layer_norm", x))
            x = x + net.linear(f"{at}.encoder_attn.out_proj", attention(query, *self.cross[i], self.heads))
            h = F.gelu(net.linear(f"{at}.fc1", net.norm(f"{at}.final_layer_norm", x)))
            x = x + net.linear(f"{at}.fc2", h)
        return F.linear(net.norm("decoder.layer_norm", x[:, -1]), self.embedding)

    def select(self, rows):
        """Choice of the rows to continue, by index: beams branch and end."""
        self.past = [[x[rows] for x in memory] for memory in self.past]


class Rules:
    """Tokens that a text must not contain, and its other limits."""

    def __init__(self, settings, decoder, prompt, end, suppress, begin_suppress=()):
        new, positions = settings.get("max_new_tokens"), len(decoder.positions)
        self.longest = positions if new is None else min(len(prompt) + new, positions)
        self.beams, self.penalty = settings.get("num_beams", 1), settings.get("length_penalty", 1.0)
        self.ngram = settings.get("no_repeat_ngram_size", 0)
        self.prompt, self.end, self.suppress, self.begin_suppress = prompt, end, suppress, begin_suppress

    def apply(self, scores, rows):
        """Scores of the tokens after some rows, minus infinity for those that must not follow."""
        for row, tokens in enumerate(rows):
            first = self.begin_suppress if len(tokens) == len(self.prompt) else []
            scores[row, [*self.suppress, *first, *self.repeated(tokens)]] = -INFINITY
        return scores

    def repeated(self, tokens):
        """Tokens that would repeat an n-gram."""
        n = self.ngram
        if n == 0 or len(tokens) < n - 1:
            return []
        latest = tokens[len(tokens) - n + 1 :]
        grams = (tokens[i : i + n] for i in range(len(tokens) - n + 1))
        return [gram[-1] for gram in grams if gram[:-1] == latest]


def generate(decoder, rules):
    """Tokens of a text without prompt and end token: the most probable at every step, or those of a beam search."""
    if rules.beams > 1:
        return beam_search(decoder, rules)[len(rules.prompt) :]
    tokens = fed = list(rules.prompt)
    while len(tokens) < rules.longest:
        fed = [int(rules.apply(decoder.logits([fed]), [tokens]).argmax())]
        if fed[0] == rules.end:
            break
        tokens = tokens + fed
    return tokens[len(rules.prompt) :]


def beam_search(decoder, rules):
    """Tokens of the best finished hypothesis. The search ends when no running one can become better."""
    # A hypothesis is a score, the sum of log probabilities, and tokens. The best come first.
    running, finished = [(0.0, list(rules.prompt))], []
    fed = [rules.prompt]
    while running and len(running[0][1]) < rules.longest:
        scores, rows = zip(*running)
        logits = rules.apply(decoder.logits(fed).log_softmax(-1), rows)
        totals = logits.double() + torch.tensor(scores, dtype=torch.double)[:, None]
        # At most one candidate of each hypothesis ends it, so twice as many leave enough to continue with.
        best = totals.flatten().topk(min(2 * rules.beams, totals.numel()))
        length = len(rows[0]) + 1
        penalty = (length - len(rules.prompt)) ** rules.penalty
        continued, parents = [], []
        for rank, (score, index) in enumerate(zip(best.values.tolist(), best.indices.tolist())):
            parent, token = divmod(index, totals.shape[1])
            tokens = rows[parent] + [token] * (token != rules.end)
            if score == -INFINITY:
                break
            if token == rules.end or length == rules.longest:
                if rank < rules.beams:
                    finished.append((score / penalty, tokens))
            elif len(continued) < rules.beams:
                continued.append((score, tokens))
                parents.append(parent)
        running = continued or ([] if finished else running)
        finished = sorted(finished, key=lambda hypothesis: -hypothesis[0])[: rules.beams]
        if not continued or len(finished) == rules.beams and running[0][0] / penalty <= finished[-1][0]:
            break
        decoder.select(parents)
        fed = [tokens[-1:] for _, tokens in running]
    return (finished + running)[0][1]


class Whisper(Network):
    """Whisper: log-mel features, encoder, and a decoder that writes text."""

    reads = "audio"

    def __init__(self, folder, config, data):
        super().__init__(without("model.", read_model(folder)))
        self.config, self.data = config, data
        path = folder / "generation_config.json"
        self.generation = read_json(path) if path.exists() else {}
        tokenizer = read_json(folder / "tokenizer.json")
        self.special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        self.vocabulary = {id: token for token, id in tokenizer["model"]["vocab"].items()}
        self.bytes, self.filters = byte_alphabet(), mel_filters(config["num_mel_bins"])
        self.window = POSITION * config["max_source_positions"]
        self.block_count = config["encoder_layers"]

    def embed(self, samples):
        """Stream before the first block, `[1, positions, width]`, and the number of positions that are not padding."""
        positions = max(math.ceil(len(samples) / POSITION), 1)
        length = self.window if self.data.get("eval_pad") == "window" else positions * POSITION
        x, weights = log_mel(F.pad(samples, (0, length - len(samples))), self.filters)[None], self.weights
        for name, stride in (("encoder.conv1", 1), ("encoder.conv2", 2)):
            x = F.gelu(F.conv1d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], stride, padding=1))
        x = x.transpose(1, 2)
        return x + weights["encoder.embed_positions.weight"][: x.shape[1]], positions

    def block(self, i, x):
        """Stream after the encoder's block `i`."""
        at = f"encoder.layers.{i}"
        h = self.norm(f"{at}.self_attn_layer_norm", x)
        query, key, value = (self.linear(f"{at}.self_attn.{kind}_proj", h) for kind in "qkv")
        mixed = attention(query, key, value, self.config["encoder_attention_heads"])
        x = x + self.linear(f"{at}.self_attn.out_proj", mixed)
        h = F.gelu(self.linear(f"{at}.fc1", self.norm(f"{at}.final_layer_norm", x)))
        return x + self.linear(f"{at}.fc2", h)

    def finish(self, x):
        """States for the stream after the last block."""
        return self.norm("encoder.layer_norm", x)

    def write(self, states, start, settings):
        """Text for the encoder's states. `start` is the vector that tells the decoder its task."""
        config, end = self.config, self.special["<|endoftext|>"]
        scale = math.sqrt(config["d_model"]) if config.get("scale_embedding") else 1.0
        embedding, layers = self.weights["decoder.embed_tokens.weight"], config["decoder_layers"]
        decoder = Decoder(self, embedding, layers, config["decoder_attention_heads"], states, start, scale)
        # transformers writes [-1] for an empty list.
        keys = ("suppress_tokens", "begin_suppress_tokens")
        suppress, begin_suppress = ([id for id in self.generation.get(key) or [] if id >= 0] for key in keys)
        suppress += [id for id in self.special.values() if id != end]
        rules = Rules(settings, decoder, self.prompt(), end, suppress, begin_suppress)
        return self.decode(generate(decoder, rules)).strip()

    def prompt(self):
        """Tokens before a text."""
        names = ["startoftranscript", "notimestamps"]
        if self.generation.get("is_multilingual", "lang_to_id" in self.generation):
            names[1:1] = [self.data.get("language", "en"), self.data.get("task", "transcribe")]
        return [self.special[f"<|{name}|>"] for name in names]

    def decode(self, ids):
        """Text of tokens, whose characters stand for bytes."""
        characters = "".join(self.vocabulary.get(id, "") for id in ids)
        return bytes(self.bytes[character] for character in characters).decode("utf-8", errors="replace")

    def pieces(self, samples):
        """Ranges of samples that fit the window. Longer audio is cut at its pauses."""
        if len(samples) <= self.window:
            return [(0, len(samples))]
        # Vocabularies of languages have thousands of tokens, those of Morse code some fifty.
        if self.generation.get("reader") or len(self.vocabulary) < 128:
            raise DynamoError(
                f"the audio is longer than the {self.window / SAMPLE_RATE:g} s that the model reads, and only"
                " `undertone predict` cuts Morse code between characters: cut it into shorter files"
            )
        return cut_at_pauses(samples, self.window)


def byte_alphabet():
    """Byte that each character of a byte-level vocabulary stands for, as in GPT-2."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def mel_filters(bins):
    """Triangles of unit area on Slaney's mel scale, `[bins, frequencies]`."""
    # The scale is linear up to 1 kHz, which is 15 mel, then logarithmic with 27 mel to a factor of 6.4.
    step = math.log(6.4) / 27
    mel = torch.linspace(0, 15 + math.log(SAMPLE_RATE / 2 / 1000) / step, bins + 2, dtype=torch.double)
    hz = torch.where(mel < 15, mel * 1000 / 15, 1000 * ((mel - 15) * step).exp())
    low, centre, high = hz[:-2, None], hz[1:-1, None], hz[2:, None]
    at = torch.arange(FRAME // 2 + 1, dtype=torch.double) * SAMPLE_RATE / FRAME
    triangles = torch.minimum((at - low) / (centre - low), (high - at) / (high - centre)).clamp(min=0)
    return (triangles * 2 / (high - low)).float()


def log_mel(samples, filters):
    """Whisper's features, `[bins, frames]`: base-10 logarithms of powers, at most 8 below the highest, scaled."""
    window = torch.hann_window(FRAME)
    spectrum = torch.stft(samples, FRAME, HOP, window=window, center=True, pad_mode="reflect", return_complex=True)
    power = filters @ spectrum[:, :-1].abs().square()
    return (power.clamp(min=max(float(power.max()) * 1e-8, 1e-10)).log10() + 4) / 4


def cut_at_pauses(samples, window):
    """Ranges of at most `window` samples. Each but the last ends in the middle of the longest pause in the last third
    of the window, or else of the last pause before, or else at the quietest place in that third."""
    energy = F.pad(samples.double(), (0, -len(samples) % HOP)).view(1, -1, HOP).square().mean(2)
    levels = 10 * (F.avg_pool1d(energy, 5, 1, 2, count_include_pad=False)[0] + 1e-10).log10()
    found, ranges, start = pauses(levels), [], 0
    while len(samples) - start > window:
        first, last = math.ceil((start + window - window // 3) / HOP), (start + window) // HOP
        within = [(max(a, first), min(b, last)) for a, b in found]
        # At the very start of a pause the last sound still decays.
        within = [(a, b) for a, b in within if b - a > 7]
        before = [(a, b) for a, b in found if a * HOP > start and b <= last]
        if within or before:
            a, b = max(reversed(within), key=lambda pause: pause[1] - pause[0]) if within else before[-1]
            hop = (a + b) // 2
        else:
            hop = first + int(levels[first:last].argmin())
        ranges.append((start, min(hop * HOP, start + window)))
        start = ranges[-1][1]
    return ranges + [(start, len(samples))]


def pauses(levels):
    """Pauses of at least 150 ms, as ranges of hops. The levels of the audio itself, in decibels, decide what is one."""
    quiet, loud = (float(levels.sort().values[int((len(levels) - 1) * share)]) for share in (0.01, 0.95))
    quiet = max(quiet, loud - 50)
    if loud - quiet < 10:
        return []
    enter, leave = (quiet + share * (loud - quiet) for share in (0.25, 0.4))
    found, since = [], None
    for hop, level in enumerate([*levels.tolist(), INFINITY]):
        if since is None and level < enter:
            since = hop
        elif since is not None and level > leave:
            found.append((since, hop))
            since = None
    return [(a, b) for a, b in found if b - a >= 15]


# Parts of BERT's names, and of DistilBERT's.
OF_DISTILBERT = [
    ("encoder.layer.", "transformer.layer."), ("attention.self.query", "attention.q_lin"),
    ("attention.self.key", "attention.k_lin"), ("attention.self.value", "attention.v_lin"),
    ("attention.output.dense", "attention.out_lin"), ("attention.output.LayerNorm", "sa_layer_norm"),
    ("intermediate.dense", "ffn.lin1"), ("output.dense", "ffn.lin2"), ("output.LayerNorm", "output_layer_norm"),
]


def with_names_of_bert(weights):
    """Tensors under BERT's names, of whatever encoder they are."""
    def renamed(name):
        for berts, own in OF_DISTILBERT:
            name = name.replace(own, berts)
        return name

    return {renamed(name): tensor for name, tensor in weights.items()}


class TextEncoder(Network):
    """BERT, DistilBERT or RoBERTa encoder with its tokenizer."""

    reads = "text"

    def __init__(self, folder, config, _):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise DynamoError("a model of text needs the package `tokenizers`: pip install tokenizers") from None
        weights = read_model(folder)
        bare = next(filter(None, (without(f"{kind}.", weights) for kind in ("bert", "roberta", "distilbert"))), weights)
        super().__init__(with_names_of_bert(bare))
        self.epsilon = config.get("layer_norm_eps", 1e-12)
        self.head_count = config.get("num_attention_heads") or config["n_heads"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.cls, self.sep = self.tokenizer.encode("").ids
        names = ("[PAD]", "<pad>")
        self.pad = next((id for id in map(self.tokenizer.token_to_id, names) if id is not None), self.cls)
        # BERT counts positions from 0, RoBERTa from the number after the padding token.
        is_bert = config["model_type"] in ("bert", "distilbert")
        self.first_position = 0 if is_bert else config.get("pad_token_id", 1) + 1
        self.longest = len(self.weights["embeddings.position_embeddings.weight"]) - self.first_position
        self.block_count = config.get("num_hidden_layers") or config["n_layers"]
        # Heads that write text have these, even where the backbone is trained.
        self.words = self.weights["embeddings.word_embeddings.weight"]

    def encode(self, text, context, length, **options):
        """Tokens of a text, or of a text and its context, at most `length`."""
        self.tokenizer.enable_truncation(length, **options)
        return self.tokenizer.encode(text, context, is_pretokenized=isinstance(text, list))

    def embed(self, encoding):
        """Stream before the first block, `[1, tokens, width]`, and the number of tokens."""
        count = len(encoding.ids)
        positions = slice(self.first_position, self.first_position + count)
        # RoBERTa's texts are all of type 0, whatever the tokenizer says.
        types = [0] * len(encoding.ids) if self.first_position else encoding.type_ids
        rows = [("word", encoding.ids), ("position", positions), ("token_type", types)]
        # DistilBERT has no types.
        tables = ((self.weights.get(f"embeddings.{name}_embeddings.weight"), ids) for name, ids in rows)
        x = sum(table[ids] for table, ids in tables if table is not None)
        return self.norm("embeddings.LayerNorm", x, self.epsilon)[None], count

    def block(self, i, x):
        """Stream after the encoder's block `i`."""
        at = f"encoder.layer.{i}"
        query, key, value = (self.linear(f"{at}.attention.self.{name}", x) for name in ("query", "key", "value"))
        mixed = attention(query, key, value, self.head_count)
        h = self.linear(f"{at}.attention.output.dense", mixed)
        x = self.norm(f"{at}.attention.output.LayerNorm", x + h, self.epsilon)
        h = self.linear(f"{at}.output.dense", F.gelu(self.linear(f"{at}.intermediate.dense", x)))
        return self.norm(f"{at}.output.LayerNorm", x + h, self.epsilon)

    def finish(self, x):
        """States for the stream after the last block, which is normalised already."""
        return x


def words_of(text):
    """Words of a text. Punctuation before and after a word is a word of its own, and so is the `'s` of a genitive."""
    words = []
    for piece in text.split():
        if not any(mark.isalnum() for mark in piece):
            words.append(piece)
            continue
        start, end = 0, len(piece)
        while piece[start] in "\"'“”‘’„«‹([{<¿¡`":
            start += 1
        while piece[end - 1] in "\"'“”‘’»›)]}>.,;:!?…。，！？、`" and not is_abbreviated(piece[start:end]):
            end -= 1
        middle = end - 2 if piece[start:end].endswith(("'s", "’s")) else end
        parts = [*piece[:start], piece[start:middle], piece[middle:end], *piece[end:]]
        words += [part for part in parts if part]
    return words


def is_abbreviated(word):
    """Whether the point at the end of a word belongs to it: of an initial (`J.`), or of an abbreviation with other
    points (`U.S.`)."""
    return word.endswith(".") and all(len(part) == 1 and part.isalpha() for part in word[:-1].split("."))


class TextTask:
    """Head of a text task. Its methods are named as the kinds of head, and answer a text that may have a context, with what else
    there is of the answer. `encode` is a function from tokens to states."""

    def __init__(self, encoder, name, weights, config, generation):
        self.encoder, self.name, self.config, self.generation = encoder, name, config, generation
        self.head = Network(weights)

    def read(self, text, context, length):
        """Tokens of a text, cut to a length."""
        encoding = self.encoder.encode(text, context, length)
        if encoding.overflowing:
            print(f"warning: the text is too long for task `{self.name}`: its end is not read", file=sys.stderr)
        return encoding

    def classify(self, text, context, encode):
        """Label of a text, and the probability of each."""
        states = encode(self.read(text, context, self.config.get("max_length", 128)))
        pooled = states.mean(1) if self.config.get("pooling") == "mean" else states[:, 0]
        logits = self.head.linear("out_proj", self.head.linear("dense", pooled).tanh())
        labels = self.config["labels"]
        return labels[int(logits.argmax())], {"scores": dict(zip(labels, logits[0].softmax(-1).tolist()))}

    def tag(self, text, _, encode):
        """Words that have a tag, with their tags. The tag of a word is that of its first token."""
        words, labels = words_of(text), self.config["labels"]
        # Byte-level tokenizers mark words by the space before them.
        encoding = self.read([f" {word}" for word in words], None, self.config.get("max_length", 128))
        tags = self.head.linear("classifier", encode(encoding))[0].argmax(-1).tolist()
        ids = encoding.word_ids
        firsts = {word: labels[tag] for last, word, tag in zip([None, *ids], ids, tags) if word not in (None, last)}
        tags, end, starts = [], 0, []
        for word in words:
            starts.append(text.index(word, end))
            end = starts[-1] + len(word)
        for at, tag in firsts.items():
            if tag != "O":
                word, start = words[at], starts[at]
                tags.append({"word": word, "tag": tag, "start": start, "end": start + len(word)})
        return " ".join(f"{found['word']} ({found['tag']})" for found in tags), {"tags": tags}

    def span(self, question, context, encode):
        """Part of the context that answers a question. A long context is read in windows that overlap."""
        if context is None:
            raise DynamoError(f"task `{self.name}` finds answers in a context: give one with --context")
        length, stride = self.config.get("max_length", 384), self.config.get("doc_stride", 128)
        asked = self.encoder.encode(question, "", self.encoder.longest)
        if len(asked.ids) + stride >= length:
            raise DynamoError(f"the question leaves no room for its context in {length} tokens: shorten it")
        first = self.encoder.encode(question, context, length, stride=stride, strategy="only_second")
        best, no_answer = (-INFINITY, ""), INFINITY
        for window in [first, *first.overflowing]:
            start, end = self.head.linear("qa_outputs", encode(window))[0].T
            no_answer = min(no_answer, float(start[0] + end[0]))
            inside = [token for token, part in enumerate(window.sequence_ids) if part == 1]
            for i, token in enumerate(inside):
                ends = inside[i : i + self.config.get("max_answer_length", 30)]
                for last, score in zip(ends, (start[token] + end[ends]).tolist()):
                    text = context[window.offsets[token][0] : window.offsets[last][1]].strip()
                    best = (score, text) if score > best[0] and text else best
        threshold = self.config.get("null_score_diff_threshold")
        return "" if threshold is not None and no_answer - best[0] > threshold else best[1], {}

    def seq2seq(self, text, _, encode):
        """Text that the task's decoder writes. It reads the states and the words themselves."""
        encoding = self.read(text, None, self.config.get("max_source", 256))
        encoder, words = self.encoder, self.encoder.words
        scale = math.sqrt(words.shape[1] / float(words.square().sum(1).mean()))
        states = encode(encoding) + words[encoding.ids] * scale
        decoder = Decoder(self.head, words, self.config["layers"], self.config["heads"], states)
        rules = Rules(self.generation, decoder, [encoder.cls], encoder.sep, [encoder.pad, encoder.cls])
        return encoder.tokenizer.decode(generate(decoder, rules)).strip(), {}


class Router(Network):
    """Router: gates of the adapters for the mean of the states at the tap, and the confidence in its choice."""

    def __init__(self, weights, config):
        super().__init__(weights)
        self.config = config

    def route(self, pooled, evidence=None, among=None):
        """Index of the most probable task, gates, and confidence. `evidence` adds to the logits of the tasks, and `among` are the
        indices of those to choose from, if not all."""
        x = pooled
        activation = {"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh}[self.config["activation"]]
        for i in range(len(self.config["hidden"])):
            x = self.linear(f"layers.{i}.linear", x)
            x = activation(self.norm(f"layers.{i}.norm", x) if self.config["layer_norm"] else x)
        temperature = self.weights["log_temperature"].exp() + self.config["temperature_floor"]
        logits = self.linear("gate", x) / temperature
        if evidence is not None:
            logits = logits + self.config["words"] * evidence
        if among is not None:
            others = [task for task in range(len(logits)) if task not in among]
            logits[others] = -torch.inf
        probabilities = logits.softmax(-1)
        # The learned confidence is of a choice among all tasks without other evidence.
        is_learned = evidence is None and among is None
        confidence = float(self.linear("confidence", x).sigmoid() if is_learned else probabilities.max())
        return int(probabilities.argmax()), self.gates_of(probabilities, confidence).tolist(), confidence

    def gates_of(self, probabilities, confidence):
        """Gates for the probabilities of the adapters. In doubt they are equal."""
        kind, count = self.config["gates"], len(probabilities)
        kind = kind if isinstance(kind, dict) else {"type": kind}
        if confidence < self.config["confidence_threshold"]:
            possible = (probabilities > 0).float()
            return possible / possible.sum()
        if kind["type"] == "soft":
            return probabilities
        if kind["type"] == "top_k":
            least = probabilities.topk(min(kind.get("k", 2), count)).values[-1]
            kept = probabilities * (probabilities >= least)
            return kept / kept.sum()
        return F.one_hot(probabilities.argmax(), count).float()


class WordCounts:
    """How the texts of the tasks are written: naive Bayes over hashed words and pieces of words."""

    def __init__(self, weights):
        self.logarithms = weights["logarithms"].double()

    def evidence(self, text, context):
        """Logit of each task for a text, or a text with a context."""
        pieces = 3 * ["\1" if context is None else "\2"]
        for word in f"{text} {context or ''}".split():
            spaced = f" {word} "
            pieces += [spaced[i : i + n] for n in (1, 2, 3) for i in range(len(spaced) - n + 1)] + [word]
        rows = [fnv(piece.encode()) % len(self.logarithms) for piece in pieces[:4096]]
        sums = self.logarithms[rows].sum(0)
        return ((sums - sums.mean()) / math.sqrt(len(rows))).float()


def fnv(data):
    """FNV-1a hash of bytes, 32 bits."""
    hash = 0x811C9DC5
    for byte in data:
        hash = (hash ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hash


class KnownInputs:
    """Distribution of the inputs of the tasks, to tell those of none."""

    def __init__(self, weights):
        self.means, self.factor, self.own = (
            weights[name].double() for name in ["means", "covariance_factor", "own_distances"])

    def own_share(self, pooled):
        """Share of the tasks' own inputs that are at least as unlike them all."""
        centred = (pooled.double() - self.means).T
        squares = torch.linalg.solve_triangular(self.factor, centred, upper=False).square().sum(0)
        nearer = int((self.own < squares.min().sqrt()).sum())
        return (1 + len(self.own) - nearer) / (1 + len(self.own))


def trained(folder, task):
    """Folder of what the latest phase trained."""
    for phase in ["phase3", "phase2", "phase1"]:
        if (folder / phase / "best" / "dynamo.json").exists():
            return folder / phase / "best"
    mixed = folder / "phase1" / "all" / "best"  # all tasks together, `phases.1.mixed`
    if (mixed / "dynamo.json").exists():
        return mixed
    tasks = [path.parent.name for path in sorted(folder.glob("phase1/*/best"))]
    if not tasks:
        raise DynamoError(f"`{folder}` has no trained phase: write it with `undertone export --format dynamo`")
    task = tasks[0] if task is None and len(tasks) == 1 else task
    if task not in tasks:
        given = f"there is no task `{task}`" if task else "the folder has several tasks and no router"
        raise DynamoError(f"{given}: name one of {', '.join(tasks)} with --task")
    return folder / "phase1" / task / "best"


class Dynamo:
    """Backbone with its adapters, heads and router, from a folder."""

    def __init__(self, folder, task=None):
        """Loads the latest phase. Before there is a router, each task is by itself: `task` names it."""
        folder = Path(folder)
        model = trained(folder, task)
        experiment, description = read_json(folder / "experiment.json"), read_json(model / "dynamo.json")
        config = read_json(folder / "backbone" / "config.json")
        kinds = {"whisper": Whisper}
        kinds |= dict.fromkeys(("bert", "distilbert", "roberta", "xlm-roberta", "camembert"), TextEncoder)
        kind = config.get("model_type")
        if kind not in kinds:
            raise DynamoError(f"the backbone is `{kind}`: use `undertone predict`, this reads {', '.join(kinds)}")
        self.backbone = kinds[kind](folder / "backbone", config, experiment["data"])
        if description["trained_backbone"]:
            self.load_backbone(model / "backbone.safetensors")
        self.adapters = [adapter["name"] for adapter in description["adapters"]]
        for index, name in enumerate(self.adapters):
            self.load_adapter(index, model / "adapters" / name)
        weights = read_weights(model / "heads.safetensors")
        tasks = {task["name"]: task for task in experiment["tasks"]}
        self.heads = {}
        for head in description["heads"]:
            own = without(f"{head['name']}.", weights)
            # The only head of a baseline is for every task.
            for name in [head["name"]] if head["name"] in tasks else tasks:
                self.heads[name] = (own, {**head["head"], **tasks[name]["head"]}, tasks[name]["generation"])
        self.tasks = list(self.heads)
        self.tap, path = description["router"]["tap"], model / "router.safetensors"
        self.router = Router(read_weights(path), experiment["router"]) if path.exists() else None
        # Folders of earlier versions have none.
        path = model.parent / "inputs.safetensors"
        self.known = KnownInputs(read_weights(path)) if path.exists() else None
        self.words = None
        if self.router and experiment["router"].get("words", 0) > 0:
            self.words = WordCounts(read_weights(model.parent / "words.safetensors"))

    def load_backbone(self, path):
        """Trained weights in place of the backbone's."""
        for name, tensor in read_weights(path).items():
            # The first part of a name is the kind of backbone.
            name = name.partition(".")[2]
            if self.backbone.reads == "text":
                name = name.replace("self_attention", "self").replace("layer_norm", "LayerNorm")
            self.backbone.weights[name] = tensor

    def load_adapter(self, index, folder):
        """Adapter in linear maps of the backbone, from PEFT's layout."""
        config = read_json(folder / "adapter_config.json")
        if config["peft_type"] != "LORA":
            raise DynamoError(f"`{folder}` is of type {config['peft_type']}: use `undertone predict`, this reads LORA")
        scale = config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("use_rslora") else config["r"])
        weights = with_names_of_bert(without("base_model.model.", read_weights(folder / "adapter_model.safetensors")))
        for name, a in weights.items():
            path, _, part = name.rpartition(".lora_")
            if part == "A.weight":
                adapters = self.backbone.adapters.setdefault(path.removeprefix("model."), [])
                adapters.append((index, a, weights[f"{path}.lora_B.weight"], scale))

    def blocks(self, x, first, last):
        """Stream after the blocks from `first` to before `last`."""
        for i in range(first, last):
            x = self.backbone.block(i, x)
        return x

    def tapped(self, item):
        """Stream at the tap, and the number of positions that are not padding."""
        x, count = self.backbone.embed(item)
        return self.blocks(x, 0, self.tap), count

    def encode(self, tapped):
        """States for the stream at the tap, with the adapters at their gates."""
        return self.backbone.finish(self.blocks(tapped, self.tap, self.backbone.block_count))

    def decide(self, tapped, count, task, evidence=None, has_context=False):
        """Task that answers, and the router's gates and confidence where it is asked. Sets the backbone's gates. Without a context
        no task is chosen that finds its answers in one."""
        asked = task.split(",") if task else []
        if len(asked) != 1 and self.router and len(self.tasks) > 1:
            if unknown := [name for name in asked if name not in self.tasks]:
                raise DynamoError(f"there is no task `{unknown[0]}`: name some of {', '.join(self.tasks)} with --task")
            among = [at for at, name in enumerate(self.tasks) if name in asked] if asked else None
            pooled = tapped[0, :count].mean(0)
            chosen, gates, confidence = self.router.route(pooled, evidence, among)
            possible = range(len(self.tasks)) if among is None else among
            others = [at for at in possible if self.heads[self.tasks[at]][1]["type"] != "span"]
            if chosen not in others and others and not has_context:
                chosen, gates, confidence = self.router.route(pooled, evidence, others)
            self.backbone.gates = gates
            share = self.known.own_share(pooled) if self.known else None
            is_none = share is not None and share < self.router.config.get("reject", 0)
            return self.tasks[chosen], {"gates": dict(zip(self.tasks, gates)), "confidence": confidence,
                                        "own_share": share, "none": is_none}
        task = self.tasks[0] if task is None and len(self.tasks) == 1 else task
        if task not in self.tasks:
            given = f"there is no task `{task}`" if task else "the model has several tasks and no router"
            raise DynamoError(f"{given}: name one of {', '.join(self.tasks)} with --task")
        # An only adapter is for every task.
        self.backbone.gates = [float(len(self.adapters) == 1 or name == task) for name in self.adapters]
        return task, {}

    @torch.inference_mode()
    def audio(self, samples, task=None):
        """Answers to mono samples at 16 kHz: one for each piece that fits the model's window."""
        if self.backbone.reads != "audio":
            raise DynamoError("the model reads text: give it with --text")
        samples, answers = torch.as_tensor(samples, dtype=torch.float32), []
        for start, end in self.backbone.pieces(samples):
            tapped, count = self.tapped(samples[start:end])
            chosen, routed = self.decide(tapped, count, task)
            weights, _, generation = self.heads[chosen]
            text = self.backbone.write(self.encode(tapped), weights["start"], generation)
            answers.append({"start": start / SAMPLE_RATE, "task": chosen, "text": text, **routed})
        return answers

    @torch.inference_mode()
    def text(self, text, context=None, task=None):
        """Answer to a text, or to a question about a context. The router reads as much as the tasks do, and decides once."""
        if self.backbone.reads != "text":
            raise DynamoError("the model reads audio: give a file with --audio")
        configs = [config for _, config, _ in self.heads.values()]
        lengths = [config[key] for config in configs for key in ("max_length", "max_source") if key in config]
        longest = min(self.backbone.longest, max(lengths, default=self.backbone.longest))
        tapped, count = self.tapped(self.backbone.encode(text, context, longest))
        evidence = self.words.evidence(text, context) if self.words else None
        chosen, routed = self.decide(tapped, count, task, evidence, context is not None)
        kind = self.heads[chosen][1]["type"]
        if kind not in ("classify", "span", "tag", "seq2seq"):
            raise DynamoError(f"the head of task `{chosen}` is of type `{kind}`: use `undertone predict`")
        answer = getattr(TextTask(self.backbone, chosen, *self.heads[chosen]), kind)
        said, details = answer(text, context, lambda encoding: self.encode(self.tapped(encoding)[0]))
        return {"start": 0.0, "task": chosen, "text": said, **details, **routed}


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description="Answer audio or text with a folder of `undertone export`.")
    parser.add_argument("folder", help="what `undertone export --format dynamo` wrote")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--audio", help="a WAV file: 16 bits, 16 kHz")
    given.add_argument("--text", help="a text, or a question about --context")
    parser.add_argument("--context", help="text that contains the answer to the question")
    parser.add_argument("--task", help="task to answer with, or several, separated by commas, that the router chooses among; all if not given")
    args = parser.parse_args()
    if args.context is not None and args.text is None:
        parser.error("--context needs --text")
    try:
        model = Dynamo(args.folder, args.task)
        if args.audio is not None:
            answers = model.audio(read_wav(args.audio), args.task)
        else:
            answers = [model.text(args.text, args.context, args.task)]
    except (DynamoError, OSError) as error:
        sys.exit(f"error: {error}")
    for answer in answers:
        print(json.dumps(answer, ensure_ascii=False))


if __name__ == "__main__":
    main()
