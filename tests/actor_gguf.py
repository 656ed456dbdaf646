"""A GGUF that writes one text and nothing else, so that a real llama.cpp, its chat template and its own parsers can be made to meet
any output: a bigram model. Every token has one successor; attention and feed-forward are zero, the embedding of a token goes
straight through, and the output layer knows which token comes next.

That takes a text in which every token occurs once, so it is cut into pieces that never repeat. A special token can occur once, too.
The first piece follows a newline: the end of a ChatML prompt.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>")
"""As in Qwen's tokenizers: those with bars are control tokens, the others user-defined."""
FEED, LONGEST = 64, 3


def write_actor(path: Path, text: str, template: str) -> None:
    """A model file that answers every prompt with this text."""
    pieces: list[str | bytes] = [*_pieces(text), "<|im_end|>"]
    tokens = [_spelled(bytes([byte])) for byte in range(256)]
    ids: dict[str | bytes, int] = {bytes([byte]): byte for byte in range(256)}
    for piece in (*SPECIAL, *pieces):
        if piece not in ids:
            ids[piece] = len(tokens)
            tokens.append(piece if isinstance(piece, str) else _spelled(piece))
    kinds = [3 if token.startswith("<|") else 4 if token in SPECIAL else 1 for token in tokens]
    chain = [ids[b"\n"], *(ids[piece] for piece in pieces)]
    width = max(64, -(-len(chain) // 32) * 32)
    meta: dict[str, Any] = {
        "general.architecture": "llama", "general.name": "actor", "general.file_type": 0,
        "llama.context_length": 4096, "llama.embedding_length": width, "llama.block_count": 1, "llama.feed_forward_length": FEED,
        "llama.attention.head_count": 2, "llama.attention.head_count_kv": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": width // 2, "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": [f"{_spelled(b' ')} a"],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"], "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": template,
    }  # fmt: skip
    _write(path, meta, _tensors(chain, len(tokens), width))


def _pieces(text: str) -> list[str | bytes]:
    """The text in pieces of which none comes twice; special tokens whole."""
    seen = {b"\n"}
    found: list[str | bytes] = []
    for part in re.split(f"({'|'.join(map(re.escape, SPECIAL))})", text):
        if part in SPECIAL:
            assert part not in found, f"{part} occurs twice"
            found.append(part)
            continue
        data, at = part.encode(), 0
        while at < len(data):
            size = LONGEST
            while data[at : at + size] in seen and at + size < len(data):
                size += 1
            piece = data[at : at + size]
            at += size
            if piece in seen:  # the end of a part that has been before: it joins the piece before it
                last = found.pop()
                assert isinstance(last, bytes)
                piece = last + piece
            seen.add(piece)
            found.append(piece)
    return found


def _letters() -> dict[int, str]:
    """GPT-2's alphabet of bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + n) for n, byte in enumerate(rest)}


_LETTERS = _letters()


def _spelled(data: bytes) -> str:
    return "".join(_LETTERS[byte] for byte in data)


def _tensors(chain: list[int], count: int, width: int) -> dict[str, Any]:
    """The weights: position `n` of the embedding says "the n-th token of the text"."""
    embedding, output = (np.zeros((count, width), np.float32) for _ in range(2))
    for at, (token, after) in enumerate(pairwise(chain)):
        embedding[token, at] = 1.0
        output[after, at] = 30.0
    ones, square = np.ones(width, np.float32), np.zeros((width, width), np.float32)
    block: dict[str, Any] = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), square)
    block |= {"ffn_gate": np.zeros((FEED, width), np.float32), "ffn_up": np.zeros((FEED, width), np.float32)}
    block |= {"ffn_down": np.zeros((width, FEED), np.float32), "attn_norm": ones, "ffn_norm": ones}
    named = {f"blk.0.{name}.weight": value for name, value in block.items()}
    return {"token_embd.weight": embedding, "output.weight": output, "output_norm.weight": ones, **named}


# -- the file ----------------------------------------------------------------------------------------------------------


def _write(path: Path, meta: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    for key, value in meta.items():
        head += _text(key) + _value(value)
    offset = 0
    for name, array in tensors.items():
        head += _text(name) + struct.pack(f"<I{array.ndim}QIQ", array.ndim, *reversed(array.shape), 0, offset)
        offset += _padded(array.nbytes)
    body = b"".join(array.tobytes().ljust(_padded(array.nbytes), b"\0") for array in tensors.values())
    path.write_bytes(head.ljust(_padded(len(head)), b"\0") + body)


def _padded(size: int) -> int:
    return -(-size // 32) * 32


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """A value with its type: 4 a number, 6 a float, 7 a switch, 8 a text, 9 a list (of texts, or of 5, signed numbers)."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    kind = 8 if isinstance(value[0], str) else 5
    items = b"".join(_text(item) if kind == 8 else struct.pack("<i", item) for item in value)
    return struct.pack("<IIQ", 9, kind, len(value)) + items
