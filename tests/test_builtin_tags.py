"""xgrammar's own structural tags for the same formats: they accept what our renderer writes, or it is known why not.

The reasons are explained in docs/grammar.md.
"""

from __future__ import annotations

from typing import Any

import pytest

xgrammar = pytest.importorskip("xgrammar")
from sampling import sampler  # noqa: E402
from test_closed_loop import TOOLS  # noqa: E402

import unbraid  # noqa: E402
from unbraid import Message, ToolCall  # noqa: E402

FORMATS = {
    "cohere": "cohere_command4", "deepseek_r1": "deepseek_r1", "deepseek_v3_1": "deepseek_v31", "deepseek_v3_2": "deepseek_v32",
    "deepseek_v4": "deepseek_v4", "deepseek_v4_1": "deepseek_v41", "gemma_4": "gemma4", "glm_4_7": "glm47", "harmony": "harmony",
    "kimi": "kimi_k2", "kimi_k3": "kimi_k3", "llama": "llama3_json", "mimo": "mimo", "minimax": "minimax_m2",
    "minimax_m3": "minimax_m3", "qwen_3": "qwen3", "qwen_3_5": "qwen3_5", "qwen_3_coder": "qwen3_coder",
}  # fmt: skip
DIFFERENT: dict[tuple[str, str], str] = {
    ("cohere", "one"): "another generation: tags instead of a JSON array",
    ("cohere", "two"): "another generation: tags instead of a JSON array",
    ("deepseek_r1", "two"): "it wants a newline between two calls",
    ("harmony", "one"): "it has no blank before <|constrain|>, and ends a call by <|call|>",
    ("harmony", "two"): "it has no blank before <|constrain|>, and ends a call by <|call|>",
    ("kimi_k3", "one"): "it wants the response's element before the calls, and the message's end",
    ("kimi_k3", "two"): "it wants the response's element before the calls, and the message's end",
    ("minimax", "one"): "it wants the newline that a thought leaves, and one more before the calls",
    ("minimax", "two"): "it wants the newline that a thought leaves, and one more before the calls",
    ("qwen_3_5", "two"): "it wants an empty line in a call without arguments",
    ("qwen_3_coder", "two"): "it wants an empty line in a call without arguments",
}
CALLS = {
    "one": [("get_weather", '{"city": "Oslo", "days": 3}')],
    "two": [("get_weather", '{"city": "Oslo", "days": 3}'), ("ping", "{}")],
}


@pytest.mark.parametrize("count", CALLS)
@pytest.mark.parametrize("key", FORMATS)
def test_it_accepts_what_we_write(key: str, count: str) -> None:
    it = sampler(FORMATS[key])
    calls = [ToolCall(f"functions.{name}:{at}", name, arguments) for at, (name, arguments) in enumerate(CALLS[count])]
    ids = unbraid.render_ids(it.bound, Message(tool_calls=calls), tools=TOOLS, thinking=False)
    answer = ids if it.format.frames else it.bound.content_ids(ids, thinking=False)
    size = it.vocabulary.size
    spelled = [it.vocabulary.bytes_of(id) or b"?" for id in range(size)]
    info = xgrammar.TokenizerInfo(spelled, xgrammar.VocabType.RAW, vocab_size=size, stop_token_ids=[it.end])
    tag = xgrammar.get_model_structural_tag(key, tools=TOOLS, tool_choice="required", reasoning="disabled")
    compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(tag)
    accepted = any(takes(compiled, [*answer[start:], it.end]) for start in blanks(it.vocabulary, answer))
    assert accepted != ((key, count) in DIFFERENT), "explain it in docs/grammar.md"


def blanks(vocabulary: unbraid.Vocabulary, ids: list[int]) -> list[int]:
    """Where the answer may begin: its newlines in front may have been written before."""
    return [at for at in range(3) if not vocabulary.decode(ids[:at]).strip()]


def takes(compiled: Any, ids: list[int]) -> bool:
    matcher = xgrammar.GrammarMatcher(compiled)
    return all(matcher.accept_token(id) for id in ids)
