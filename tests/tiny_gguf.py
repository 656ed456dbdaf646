"""A GGUF file with one random layer and any vocabulary, so that llama.cpp itself can be asked what a grammar allows.

A SentencePiece vocabulary: ordinary tokens as text, single bytes as byte tokens, special ones as control tokens.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 32
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ALIGNMENT = 32


def write(path: Path, tokens: Mapping[int, bytes], special: Mapping[str, int], end: int) -> None:
    """`end`: the special token that ends generation."""
    spellings = {id: text for text, id in special.items()}
    size = max([*tokens, *spellings]) + 1
    listed = [_token(tokens.get(id, b""), spellings.get(id), id) for id in range(size)]
    values: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.context_length": 512,
        "llama.embedding_length": WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": WIDTH,
        "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": size,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text for text, _ in listed],
        "tokenizer.ggml.scores": [0.0] * size,
        "tokenizer.ggml.token_type": [kind for _, kind in listed],
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end,
    }
    path.write_bytes(_file(values, _tensors(size)))


def _token(data: bytes, spelling: str | None, id: int) -> tuple[str, int]:
    if spelling is not None:
        return spelling, CONTROL
    if len(data) == 1:
        return f"<0x{data[0]:02X}>", BYTE
    try:
        return data.decode().replace(" ", "\u2581"), NORMAL
    except UnicodeDecodeError:
        return f"[unused {id}]", UNUSED


def _tensors(size: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def random(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32) * 0.1

    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return {
        "token_embd.weight": random(size, WIDTH),
        "output_norm.weight": np.ones(WIDTH, dtype=np.float32),
        "blk.0.attn_norm.weight": np.ones(WIDTH, dtype=np.float32),
        "blk.0.ffn_norm.weight": np.ones(WIDTH, dtype=np.float32),
        **{f"blk.0.{name}.weight": random(WIDTH, WIDTH) for name in square},
    }


def _file(values: Mapping[str, Any], tensors: Mapping[str, Any]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(_text(key) + _value(value) for key, value in values.items())
    at, data = 0, b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at)
        data += tensor.tobytes() + bytes(-tensor.nbytes % ALIGNMENT)
        at = len(data)
    return head + bytes(-len(head) % ALIGNMENT) + data


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """A value with its type in front."""
    if isinstance(value, list):
        if isinstance(value[0], int):
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
        kind, _ = _scalar(value[0])
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(_scalar(item)[1] for item in value)
    kind, data = _scalar(value)
    return struct.pack("<I", kind) + data


def _scalar(value: Any) -> tuple[int, bytes]:
    if isinstance(value, str):
        return 8, _text(value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 4, struct.pack("<I", value)
