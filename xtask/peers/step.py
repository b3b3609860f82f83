"""A training step of a random Whisper on random data in PyTorch, for `cargo xtask bench compare --peer`.

    python step.py --size nano --batch 8 --dtype bf16

Takes the options of `cargo xtask bench step`, and prints a JSON line like it. Needs torch, transformers, and for --lora peft.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

# d_model, layers of encoder and decoder, heads, mel bins, vocabulary, positions of encoder and decoder
SIZES = {
    "nano": (128, 4, 2, 4, 80, 56, 400, 128),
    "tiny": (384, 4, 4, 6, 80, 51865, 1500, 448),
    "base": (512, 6, 6, 8, 80, 51865, 1500, 448),
    "small": (768, 12, 12, 12, 80, 51865, 1500, 448),
    "medium": (1024, 24, 24, 16, 80, 51865, 1500, 448),
    "large-v3": (1280, 32, 32, 20, 128, 51866, 1500, 448),
}
WARM_UPS = 2
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def network(options):
    d_model, encoder, decoder, heads, mels, vocabulary, audio, text = SIZES[options.size]
    config = WhisperConfig(
        d_model=d_model, encoder_layers=encoder, decoder_layers=decoder, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * d_model, decoder_ffn_dim=4 * d_model, num_mel_bins=mels,
        vocab_size=vocabulary, max_source_positions=audio, max_target_positions=text,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).to(options.device).train()
    if options.freeze == "encoder":
        model.freeze_encoder()
    if options.lora:
        from peft import LoraConfig, get_peft_model

        targets = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]
        model = get_peft_model(model, LoraConfig(r=options.lora, lora_alpha=2 * options.lora, target_modules=targets))
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", choices=TYPES, default="f32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lora", type=int, default=0)
    parser.add_argument("--freeze", choices=["encoder"])
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    options = parser.parse_args()

    if options.device.startswith("cuda:"):
        torch.cuda.set_device(options.device)
    torch.manual_seed(0)
    model = network(options)
    run = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    _, _, _, _, mels, vocabulary, audio, _ = SIZES[options.size]
    features = torch.randn(options.batch, mels, 2 * audio, device=options.device)
    tokens = torch.randint(4, vocabulary, (options.batch, options.tokens), device=options.device)
    cuda = options.device.startswith("cuda")
    seconds = []
    for _ in range(WARM_UPS + options.steps):
        start = time.perf_counter()
        with torch.autocast("cuda" if cuda else "cpu", TYPES[options.dtype], enabled=options.dtype != "f32"):
            loss = run(input_features=features, decoder_input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[WARM_UPS:])
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({
        "peer": f"torch {torch.__version__}", "size": options.size, "batch": options.batch, "tokens": options.tokens,
        "dtype": options.dtype, "lora": options.lora, "compiled": options.compile, "device": options.device, "frozen": options.freeze,
        "seconds_per_step": round(median, 4), "samples_per_second": round(options.batch / median, 3),
        "peak_mib": round(peak / 2**20), "loss": round(loss.item(), 4),
    }))


if __name__ == "__main__":
    main()
