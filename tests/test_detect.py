"""Detection: what a model's files say is read, and the tables alone name the format."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from test_lint import THINKING_TEMPLATE
from tokens import tokens

import unbraid
from unbraid.checkpoint import Checkpoint, read_checkpoint
from unbraid.cli import main
from unbraid.detect import detect
from unbraid.formats import FORMATS
from unbraid.gguf import read_header


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(values: dict[str, Any]) -> bytes:
    """The header of a GGUF with strings, numbers and lists of both."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    for key, value in values.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, int):
            out += struct.pack("<II", 4, value)
        elif isinstance(value[0], str):
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        else:
            out += struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return out


HEADER: dict[str, Any] = {
    "general.name": "A Model",
    "tokenizer.ggml.tokens": ["a", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"],
    "tokenizer.ggml.token_type": [1, 3, 3, 4, 4, 4, 4],
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": THINKING_TEMPLATE,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A GGUF's header, with a byte of what would be the weights."""
    path = tmp_path / "thing.gguf"
    path.write_bytes(gguf(HEADER) + b"\0")
    return path


def test_a_gguf_is_read(model: Path) -> None:
    assert read_header(model) == HEADER
    found = read_checkpoint(model)
    assert found.names == ("A Model", "thing")
    assert found.tokens == frozenset(HEADER["tokenizer.ggml.tokens"][1:])
    assert found.special_tokens == {"eos_token": "<|im_end|>"}


@pytest.mark.parametrize("cut", [0, 3, 10, 30, 60, 200])
def test_a_cut_gguf_says_so(tmp_path: Path, cut: int) -> None:
    (tmp_path / "cut.gguf").write_bytes(gguf(HEADER)[:cut])
    with pytest.raises(unbraid.VocabularyError, match=r"cut\.gguf"):
        read_header(tmp_path / "cut.gguf")


def test_a_damaged_gguf_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    for data, said in (
        (b"GGUF" + struct.pack("<I", 9) + bytes(16), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 77), "type 77"),
        (b"nope" * 10, "not a GGUF"),
    ):
        path.write_bytes(data)
        with pytest.raises(unbraid.VocabularyError, match=said):
            read_header(path)


def test_a_big_endian_gguf(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQQ", 3, 0, 1, 1) + b"k" + struct.pack(">IQ", 8, 1) + b"v")
    assert read_header(path) == {"k": "v"}


def test_a_folder_is_read(tmp_path: Path) -> None:
    config = {
        "added_tokens_decoder": {"1": {"content": "<think>"}},
        "eos_token": {"content": "<|im_end|>"},
        "chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"content": "<|im_start|>"}]}))
    (tmp_path / "config.json").write_text(json.dumps({"_name_or_path": "Qwen/Qwen3-8B"}))
    found = read_checkpoint(tmp_path)
    assert found.names[0] == "Qwen/Qwen3-8B"
    assert found.tokens == {"<think>", "<|im_start|>"}
    assert found.template == "t"
    assert found.special_tokens == {"eos_token": "<|im_end|>"}
    (tmp_path / "chat_template.jinja").write_text("j")
    assert read_checkpoint(tmp_path).template == "j"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(unbraid.VocabularyError, match="no such file"):
        read_checkpoint(tmp_path / "none")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(unbraid.VocabularyError, match="not JSON"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_tokens_alone_name_a_format_of_the_same_markers(name: str) -> None:
    special = frozenset(tokens(name).special) - {"<|reserved|>"}
    found = detect(Checkpoint(Path("x"), tokens=special)).format
    if not special & set(FORMATS[name].specials):
        pytest.skip("this format has no token to be known by")
    assert found is not None
    assert set(found.specials) & special == set(FORMATS[name].specials) & special or set(found.specials) <= special


@pytest.mark.parametrize("id", ["Qwen/Qwen3-8B", "zai-org/GLM-4.6", "moonshotai/Kimi-K2-Thinking"])
def test_a_name_decides_between_formats_of_the_same_markers(id: str) -> None:
    fmt = unbraid.get_format(id)
    found = detect(Checkpoint(Path("x"), (id,), frozenset(fmt.specials)))
    assert (found.format, found.confidence) == (fmt, "sure")


def test_a_template_names_its_format(model: Path) -> None:
    found = detect(read_checkpoint(model))
    assert found.format is not None
    assert found.format.name == "qwen3"
    messages = [each.message for each in found.candidates[0].evidence]
    assert any("`enable_thinking`" in message for message in messages)
    assert any("reads 14 right" in message for message in messages)


def test_a_name_alone_is_no_format() -> None:
    """A model may be called anything: without a single marker nothing is said."""
    assert detect(Checkpoint(Path("x"), ("Qwen/Qwen3-8B",), frozenset({"<other>"}))).confidence == "guess"


def test_nothing_to_go_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert detect(Checkpoint(Path("x"))).format is None
    assert main(["detect", str(tmp_path)]) == 1
    assert "no format" in capsys.readouterr().out


def test_on_the_command_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", str(model)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("qwen3  ")
    assert "markers are there" in out
    assert main(["detect", str(model), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["format"] == "qwen3"
    assert said["candidates"][0]["evidence"]
