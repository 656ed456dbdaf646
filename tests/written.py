"""The zoo's answers in any format: what a model would write for a case of `check`, as ids of its own tokenizer, behind its own prompt.

For real engines that can be made to write chosen ids. How an answer begins depends on the prompt (the thought is open already, or
closed, or left to the model), so what is written is what the parser reads back from there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from broken import ANSWERS, TAGS, zoo_tokens
from tokens import plain

import unbraid
from unbraid.boundary import BoundFormat
from unbraid.integrity.align import thinking_of
from unbraid.integrity.cases import spellings
from unbraid.message import Message, Part, TextPart, ToolCall
from unbraid.table import Format


@functools.cache
def _read() -> Mapping[str, list[Message]]:
    """Words of a question -> the answers of one or several choices."""
    tokens = zoo_tokens()
    return {
        words: [
            unbraid.parse(tokens.bound, tokens.encode(each), thinking=each.startswith("<think>"))
            for each in answer.split("|")
        ]
        for words, answer in ANSWERS.items()
    }


def answers(request: Mapping[str, Any], fmt: Format) -> list[Message]:
    """What to say to this request."""
    said = json.dumps(request["messages"], ensure_ascii=False)
    words = max(ANSWERS, key=lambda words: (said.rfind(words), len(words)))
    assert words in said, said
    return [_tagged(message, fmt) for message in _read()[words]]


def _tagged(message: Message, fmt: Format) -> Message:
    """Its quoted markers are those of this format, as in the question; what the format doesn't know isn't said."""

    def tagged(text: str) -> str:
        return text.replace(plain(TAGS), " ".join(spellings(fmt)))

    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            parts += [replace(part, arguments=tagged(part.arguments))] if fmt.calls else []
        elif part.strand == "content" or fmt.reasons:
            parts.append(replace(part, text=tagged(part.text)))
    reasoning, content = (
        "".join(part.text for part in parts if isinstance(part, TextPart) and part.strand == strand) or None
        for strand in ("reasoning", "content")
    )
    return Message(reasoning, content, [part for part in parts if isinstance(part, ToolCall)], parts)


def written(
    bound: BoundFormat, request: Mapping[str, Any], message: Message, prompt: Sequence[int]
) -> list[int] | None:
    """The ids of this answer behind this prompt; `None` if there is no way to write it there."""
    tools, thinking = request.get("tools"), thinking_of(request, bound.format)
    ways: list[list[int]] = []
    for way in (None, True, False):
        try:
            ids = unbraid.render_ids(bound, message, tools=tools, thinking=way)
        except unbraid.RenderError:
            continue
        for start in _starts(ids, bound):
            found = unbraid.parse(bound, ids[start:], tools=tools, prompt=prompt, thinking=thinking)
            if _said(found) == _said(message) and not found.diagnostics:
                ways.append(ids[start:])
    if bound.state_at(prompt, thinking).undecided:
        return ways[0] if ways else None
    return min(ways, key=len, default=None)  # what the prompt has written already isn't written again


def _starts(ids: Sequence[int], bound: BoundFormat) -> Iterator[int]:
    """0, and behind the markup of a thought that the prompt may have written."""
    thought = {bound.vocabulary.special.get(text) for text in ("<think>", "</think>")}
    yield 0
    for start in range(1, min(9, len(ids))):
        if ids[start - 1] not in thought and bound.vocabulary.decode([ids[start - 1]]).strip():
            return
        yield start


def _said(message: Message) -> object:
    calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls if call.complete]
    return message.reasoning, message.content, calls
