"""A fork of a parser goes on as the parser would have, and disturbs it in nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, Literal

import pytest
from fixtures import FIXTURES
from tokens import tokens

import unbraid
from unbraid.formats import FORMATS


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("calls", ["incremental", "atomic"])
def test_a_fork_goes_on_as_its_parser_would(name: str, calls: Literal["incremental", "atomic"]) -> None:
    tok = tokens(name)
    for case in FIXTURES[name]:
        policy = unbraid.Policy(calls=calls) if case.policy == unbraid.Policy() else case.policy
        prompt = None if case.prompt is None else tok.encode(case.prompt)
        ids = tok.encode(case.raw)

        def parser() -> unbraid.Parser:
            return unbraid.Parser(tok.bound, prompt=prompt, tools=case.tools, thinking=case.thinking, policy=policy)  # noqa: B023

        whole, stepped = parser(), parser()
        events = [list(whole.feed([id])) for id in ids]
        end = whole.finish(case.finish)
        for position, id in enumerate(ids):
            assert list(stepped.feed([id])) == events[position]
            if position % 3:
                continue
            fork = stepped.fork()
            assert [list(fork.feed([rest])) for rest in ids[position + 1 :]] == events[position + 1 :]
            assert fork.finish(case.finish) == end
            assert fork.message == whole.message
        assert stepped.finish(case.finish) == end
        assert stepped.message == whole.message


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", ["qwen3", "seed_oss", "glm45", "harmony", "gemma4", "kimi_k2", "pythonic"])
def test_a_parser_copied_otherwise_goes_on_too(name: str, copied: Callable[[Any], Any]) -> None:
    tok = tokens(name)
    case = next(case for case in FIXTURES[name] if case.calls)
    ids, prompt = tok.encode(case.raw), None if case.prompt is None else tok.encode(case.prompt)
    whole, stepped = (unbraid.Parser(tok.bound, prompt=prompt, **case.options) for _ in range(2))
    whole.feed(ids)
    whole.finish(case.finish)
    for position in range(0, len(ids), 9):
        other = copied(stepped)
        other.feed(ids[position:])
        other.finish(case.finish)
        assert other.message == whole.message
        stepped.feed(ids[position : position + 9])
    assert copied(stepped).message == stepped.message


def test_a_fork_doesnt_copy_what_is_shared() -> None:
    parser = unbraid.Parser(tokens("qwen3").bound)
    parser.feed(tokens("qwen3").encode('<think>Hm.</think><tool_call>{"name": "f", "arguments": {"a": "b'))
    fork = parser.fork()
    assert fork._program is parser._program
    assert fork._row is parser._row
    assert fork._plain is parser._plain
    assert fork.tools is parser.tools
    assert fork._sink != parser._sink


@pytest.mark.parametrize("name", FORMATS)
def test_formats_can_be_sent_to_another_process(name: str) -> None:
    tok = tokens(name)
    for fmt in (tok.bound.format, tok.bound.format.replace(about="a table of somebody's own")):
        bound = pickle.loads(pickle.dumps(fmt.bind(tok.vocabulary)))
        assert copy.deepcopy(fmt) is fmt
        assert (bound.format is fmt) == (FORMATS[name] is fmt)
        for case in FIXTURES[name][:12]:
            prompt = None if case.prompt is None else tok.encode(case.prompt)
            ids = tok.encode(case.raw)
            expected = unbraid.parse(tok.bound, ids, prompt=prompt, finish_reason=case.finish, **case.options)
            assert unbraid.parse(bound, ids, prompt=prompt, finish_reason=case.finish, **case.options) == expected


def test_a_stream_says_that_it_cant_be_pickled() -> None:
    with pytest.raises(TypeError, match="fork"):
        pickle.dumps(unbraid.Parser(tokens("qwen3").bound))
