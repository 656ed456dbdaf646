"""What comes to nothing is said: an opener with no call behind it is content, or a diagnostic tells of it. For every format."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from fixtures import FIXTURES
from tokens import small_memories as small_memories
from tokens import tokens

import unbraid
from unbraid.formats import FORMATS
from unbraid.machine import FinishReason
from unbraid.table import Format, spelled

FINISHES: tuple[FinishReason, ...] = ("stop", "length")


def calls(fmt: Format) -> list[tuple[str, list[str]]]:
    """The markers that open a call where text stands, each with those that close it."""
    found: dict[str, list[str]] = {}
    for state, row in fmt.states.items():
        for marker, target in row.items():
            if target.codec and not marker.trial and state.strand in ("content", "reasoning"):
                closers = [m for m, then in fmt.states[target].items() if then.strand != "tool_call" and not m.trial]
                found[spelled(marker.spellings[0])] = [spelled(m.spellings[0]) for m in closers]
    return list(found.items())


def check(message: unbraid.Message, opener: str, said: str) -> None:
    kept = opener.strip() in (message.content or "") or opener.strip() in (message.reasoning or "")
    assert kept or message.tool_calls or message.diagnostics, said


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if calls(fmt)])
def test_an_opener_without_a_call_is_content_or_noted(name: str) -> None:
    fmt, tok = FORMATS[name], tokens(name)
    for opener, closers in calls(fmt):
        for inside, closer, finish in itertools.product(("", "\n", " \n", "[]", "f"), [*closers[:3], ""], FINISHES):
            text = f"Hm. {opener}{inside}{closer}"
            check(unbraid.parse(fmt, text, finish_reason=finish), opener, text)
            check(unbraid.parse(tok.bound, tok.encode(text), finish_reason=finish), opener, text)


def sections(fmt: Format) -> list[tuple[str, str]]:
    """The markers around a section of calls."""
    return [
        (spelled(marker.spellings[0]), spelled(closer.spellings[0]))
        for state, row in fmt.states.items()
        for marker, target in row.items()
        if target.name == "section" and state.strand == "content"
        for closer, then in fmt.states[target].items()
        if then.strand == "content" and not closer.trial
    ]


WITH_SECTIONS = [name for name, fmt in FORMATS.items() if sections(fmt)]


@pytest.mark.parametrize("name", WITH_SECTIONS)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_section_without_a_call_is_noted(name: str, size: int) -> None:
    """Each time, whatever is remembered of those that have one; also where the turn ends in it."""
    fmt, tok = FORMATS[name], tokens(name)
    sound = next(case for case in FIXTURES[name] if case.calls and not case.diagnostics and case.finish == "stop")
    for opener, closer in sections(fmt):
        for text in (f"{opener}\n{closer}Yes.", opener + closer, opener, f"{opener}\n"):
            for ids, raw in ((False, text), (True, tok.encode(text)), (True, tok.encode(sound.raw)), (False, text)):
                parser = unbraid.Parser(tok.bound if ids else fmt)
                for at in range(0, len(raw), size):
                    piece: Any = raw[at : at + size]
                    parser.feed(piece) if ids else parser.feed_text(piece)
                parser.finish()
                found = [each.kind for each in parser.message.diagnostics].count("empty_call")
                assert found == (not parser.message.tool_calls), text


@pytest.mark.parametrize(
    ("text", "finish", "kinds"),
    [
        ("<tool_call>\n</tool_call>Yes.", "stop", ["empty_call"]),
        ("<tool_call>", "stop", ["empty_call"]),
        ("<tool_call>\n", "length", ["empty_call"]),
        ("No.<tool_call></tool_call><tool_call> </tool_call>", "stop", ["empty_call", "empty_call"]),
        ('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "stop", []),
    ],
)
def test_an_empty_call_is_noted_once(text: str, finish: FinishReason, kinds: list[str]) -> None:
    for size in (1, 3, 1000):
        parser = unbraid.Parser(unbraid.get_format("qwen3_instruct"))
        for at in range(0, len(text), size):
            parser.feed_text(text[at : at + size])
        parser.finish(finish)
        assert [each.kind for each in parser.message.diagnostics] == kinds


@pytest.mark.parametrize(
    ("policy", "finish", "kind", "said"),
    [
        (unbraid.Policy(truncated_call="drop"), "length", "incomplete_call", "left out, as policy says"),
        (unbraid.Policy(calls="atomic"), "length", "incomplete_call", "left out, as policy says"),
        (unbraid.Policy(malformed_call="drop"), "stop", "malformed_call", "left out, as policy says"),
        (unbraid.Policy(), "stop", "malformed_call", "passed on as content"),
    ],
)
def test_what_policy_leaves_out_is_noted(policy: unbraid.Policy, finish: FinishReason, kind: str, said: str) -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a": 1'
    message = unbraid.parse(unbraid.get_format("qwen3_instruct"), text, policy=policy, finish_reason=finish)
    (note,) = message.diagnostics
    assert note.kind == kind
    assert said in note.message
    assert bool(message.content) == ("content" in said)
