"""Writes silero_vad_16k.safetensors: the weights for 16 kHz of the model that silero-vad's own Python runs.

The wheel's file of this name has the weights of an older version.

pip install silero-vad torch safetensors
python convert.py
"""

from pathlib import Path

from safetensors.torch import save_file
from silero_vad import load_silero_vad

NAMES = {"stft_conv.weight": "stft.forward_basis_buffer"}
for index in range(4):
    for part in ("weight", "bias"):
        NAMES[f"conv{index + 1}.{part}"] = f"encoder.{index}.reparam_conv.{part}"
for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
    NAMES[f"lstm_cell.{part}"] = f"decoder.rnn.{part}"
for part in ("weight", "bias"):
    NAMES[f"final_conv.{part}"] = f"decoder.decoder.2.{part}"

weights = load_silero_vad().state_dict()
tensors = {ours: weights[f"_model.{theirs}"].contiguous() for ours, theirs in NAMES.items()}
save_file(tensors, Path(__file__).with_name("silero_vad_16k.safetensors"))
