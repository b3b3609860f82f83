"""A training step of a random RoBERTa with LoRA and a head for two labels, in transformers and PEFT: the peer of the runs on texts of
`cargo xtask bench gpu`.

    python text.py --width 768 --blocks 12 --batch 32 --device cuda:0

Prints a JSON line. Needs torch, transformers and peft.
"""

import argparse
import json
import statistics
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import RobertaConfig, RobertaForSequenceClassification

WARM_UPS = 5
VOCABULARY = 60


def network(options):
    config = RobertaConfig(
        vocab_size=VOCABULARY, hidden_size=options.width, num_hidden_layers=options.blocks, num_attention_heads=12,
        intermediate_size=4 * options.width, max_position_embeddings=514, type_vocab_size=1, num_labels=2,
    )
    targets = ["query", "key", "value", "dense"]
    lora = LoraConfig(task_type="SEQ_CLS", r=options.lora, lora_alpha=2 * options.lora, target_modules=targets)
    return get_peft_model(RobertaForSequenceClassification(config).to(options.device).train(), lora)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--lora", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = network(options)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    cuda = options.device.startswith("cuda")
    seconds = []
    for _ in range(WARM_UPS + options.steps):
        tokens = torch.randint(4, VOCABULARY, (options.batch, options.tokens))
        batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens[:, 0] % 2}
        start = time.perf_counter()
        batch = {name: values.to(options.device, non_blocking=True) for name, values in batch.items()}
        with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[WARM_UPS:])
    print(json.dumps({
        "peer": f"torch {torch.__version__}", "width": options.width, "blocks": options.blocks, "batch": options.batch,
        "tokens": options.tokens, "lora": options.lora, "device": options.device, "seconds_per_step": round(median, 4),
        "samples_per_second": round(options.batch / median, 1),
    }))


if __name__ == "__main__":
    main()
