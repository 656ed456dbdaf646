"""The memo changes nothing but the time: with it and without, warm and cold, a stream says the same, event by event."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import pytest
from fixtures import FIXTURES, Fixture
from test_formats import check_tiling
from test_nothing_lost import calls
from test_properties import FINISHES, POLICIES, every_format, said, scraps
from tokens import RESERVED, Tokens, plain, tokens

import unbraid
from unbraid.codecs.json_scanner import Scanner
from unbraid.codecs.tagged_values import _Value
from unbraid.events import Event, Text
from unbraid.gate import Gate
from unbraid.gathered import Call, Segment
from unbraid.machine import Machine
from unbraid.memo import Key, Memo, Place
from unbraid.native import compiled, fields
from unbraid.parser import Parser, text_program
from unbraid.policy import DEFAULT_POLICY
from unbraid.program import Program
from unbraid.schema import Tools

# -- the same stream with and without ------------------------------------------------------------------------------------


@contextmanager
def remembering(program: Program, memo: Memo) -> Iterator[Memo]:
    """All parsers of the program use this memo."""
    before, program.memo = program.memo, memo
    try:
        yield memo
    finally:
        program.memo = before


def in_steps(units: Any, size: int, salt: int) -> Iterator[Any]:
    """Cut into steps of this size; of any size from 0 to 9 if it is 0."""
    sizes = random.Random(salt)
    at = 0
    while at < len(units):
        step = size or sizes.randint(0, 9)
        yield units[at : at + step]
        at += step


class Stream:
    """One output and all that a parser of it is told."""

    def __init__(self, name: str, ids: list[int], finish: Any, prompt: list[int] | None, **options: Any) -> None:
        self.tok: Tokens = tokens(name)
        self.ids = ids
        self.finish = finish
        self.prompt = prompt
        self.options = options
        self.policy = options.get("policy", DEFAULT_POLICY)

    def by_ids(self, size: int) -> tuple[list[Event], unbraid.Message]:
        parser = unbraid.Parser(self.tok.bound, prompt=self.prompt, **self.options)
        events = [event for step in in_steps(self.ids, size, len(self.ids)) for event in parser.feed(step)]
        events += parser.finish(self.finish)
        check_tiling(events, self.tok.decode(self.ids), len(self.ids))
        return events, parser.message

    def by_text(self, size: int) -> tuple[list[Event], unbraid.Message]:
        prompt = None if self.prompt is None else self.tok.decode(self.prompt)
        text = self.tok.decode(self.ids)
        parser = unbraid.Parser(self.tok.bound.format, prompt=prompt, **self.options)
        events = [event for step in in_steps(text, size, len(text)) for event in parser.feed_text(step)]
        events += parser.finish(self.finish)
        check_tiling(events, text, 0)
        return events, parser.message


def some_fixtures(name: str, most: int) -> list[Fixture]:
    """All are read with a memo in `test_formats.py`, and come out right: here some are enough."""
    cases = FIXTURES[name]
    return random.Random(name).sample(cases, min(most, len(cases)))


def check_same(run: Callable[[int], tuple[list[Event], unbraid.Message]], program: Program) -> None:
    with remembering(program, Memo(0)) as none:
        bare = run(1)
        whole = said(*run(100_000))
        assert not none.places
    assert whole == said(*bare)
    with remembering(program, Memo()):
        assert run(1) == bare  # cold
        assert run(1) == bare  # warm
        assert said(*run(8)) == said(*run(0)) == whole


def check_parsed(stream: Stream, program: Program) -> None:
    """Read at once, without events of what is known, it comes to the same message."""
    tok, ids, prompt = stream.tok, bool(program.ids), stream.prompt
    source: Any = tok.bound if ids else tok.bound.format
    output: Any = stream.ids if ids else tok.decode(stream.ids)
    before: Any = prompt if ids or prompt is None else tok.decode(prompt)
    with remembering(program, Memo()):
        _, message = (stream.by_ids if ids else stream.by_text)(1)
        for _ in range(2):
            assert (
                unbraid.parse(source, output, prompt=before, finish_reason=stream.finish, **stream.options) == message
            )


@every_format
def test_a_fixture_says_the_same_with_and_without(name: str) -> None:
    tok = tokens(name)
    for case in some_fixtures(name, 8):
        prompt = None if case.prompt is None else tok.encode(case.prompt)
        stream = Stream(name, tok.encode(case.raw), case.finish, prompt, **case.options)
        check_same(stream.by_ids, tok.bound.program(case.policy))
        if case.text:
            check_same(stream.by_text, text_program(tok.bound.format, case.policy))


def soups(name: str, count: int) -> Iterator[Stream]:
    """Streams of pieces of the format's fixtures among markers, halves of markers, broken characters and noise."""
    chance, tok = random.Random(name), tokens(name)
    raws, noise = [tok.encode(case.raw) for case in FIXTURES[name]], scraps(name)
    for _ in range(count):
        ids: list[int] = []
        for _ in range(chance.randint(1, 16)):
            if chance.random() < 0.4:
                raw = chance.choice(raws)
                at = chance.randrange(len(raw) + 1)
                ids += raw[at : at + chance.randint(1, 60)]
            else:
                ids += chance.choice(noise)
        case = chance.choice(FIXTURES[name])
        prompt = None if case.prompt is None or chance.random() < 0.3 else tok.encode(case.prompt)
        options = {
            "tools": case.tools,
            "policy": chance.choice(POLICIES),
            "thinking": chance.choice([None, True, False]),
        }
        yield Stream(name, ids, chance.choice(["stop", "length"]), prompt, **options)


@every_format
def test_a_soup_says_the_same_with_and_without(name: str) -> None:
    for stream in soups(name, 3):
        program, by_text = stream.tok.bound.program(stream.policy), text_program(stream.tok.bound.format, stream.policy)
        check_same(stream.by_ids, program)
        check_same(stream.by_text, by_text)
        check_parsed(stream, program)
        check_parsed(stream, by_text)
        with remembering(stream.tok.bound.program(stream.policy), Memo(7)) as memo:
            often = stream.by_ids(1)
            memo.most = 0
            assert stream.by_ids(1) == often  # emptied over and over


def some_tools(chance: random.Random, case: Fixture) -> list[dict[str, Any]] | None:
    """The fixture's, or none, or with parameters of other types."""
    if not case.tools or chance.random() < 0.5:
        return chance.choice((case.tools, None, []))
    tools = chance.sample(copy.deepcopy(case.tools), chance.randint(1, len(case.tools)))
    for tool in tools:
        properties = tool["function"].get("parameters", {}).get("properties", {})
        properties.update({key: chance.choice(SCHEMAS) for key in properties})
    return tools


def streams_of(name: str, policy: unbraid.Policy) -> Iterator[Stream]:
    """Openers of calls with nothing, or next to nothing, behind them; pieces of fixtures behind one another; soups. The same with a
    prompt that wrote their beginning, and of requests that differ. Many of them lead to places where others have been."""
    chance, tok = random.Random(name), tokens(name)
    cases = FIXTURES[name]
    raws = [case.raw for case in cases]
    texts = [
        f"{before}{opener}{inside}{closer}{after}"
        for opener, closers in calls(tok.bound.format)
        for inside, closer in itertools.product(
            ("", "\n", "[]", "[\n]", '[{"name": "f", "arguments": {}}', "f"), closers[:2]
        )
        for before, after in [(chance.choice(("", "Hm. ", "Hm.\n")), chance.choice(("", "\n", chance.choice(raws))))]
    ]
    for _ in range(12):
        a, b = chance.choice(raws), chance.choice(raws)
        texts.append(a[: chance.randint(0, len(a))] + b[chance.randint(0, len(b)) :])
    streams = [*soups(name, 6)]
    for text in texts:
        case = chance.choice(cases)
        behind = [text.index(special) + len(special) for special in tok.special if special in text]
        at = chance.choice((0, 0, min(behind, default=0), chance.randint(0, len(text))))
        before = (case.prompt or "") * (chance.random() < 0.4)
        options = {
            "tools": some_tools(chance, case),
            "tool_choice": chance.choice(("auto", "auto", "auto", "none")),
            "thinking": chance.choice((None, None, True, False)),
            "choice": chance.randint(0, 1),
        }
        prompt = tok.encode(before + text[:at]) or None
        ids = tok.encode(text[at:])
        streams += [Stream(name, ids, finish, prompt, **options) for finish in FINISHES]
    for stream in streams:
        stream.policy = stream.options["policy"] = policy
    chance.shuffle(streams)
    yield from streams


@every_format
def test_what_other_streams_left_changes_nothing(name: str) -> None:
    """Nor the diagnostics: a place that forgot what they depend on would go by what another stream did there."""
    tok = tokens(name)
    other = random.Random(name).choice(POLICIES[1:])
    runs: tuple[tuple[Any, unbraid.Policy, Program], ...] = (
        (Stream.by_ids, DEFAULT_POLICY, tok.bound.program(DEFAULT_POLICY)),
        (Stream.by_text, DEFAULT_POLICY, text_program(tok.bound.format, DEFAULT_POLICY)),
        (Stream.by_ids, other, tok.bound.program(other)),
    )
    for run, policy, program in runs:
        streams = [*streams_of(name, policy)]
        with remembering(program, Memo(0)):
            bare = [run(stream, 1) for stream in streams]
        with remembering(program, Memo()):
            for size in (1, 1, 8):
                for stream, alone in zip(streams, bare, strict=True):
                    warm = run(stream, size)
                    same = warm == alone if size == 1 else said(*warm) == said(*alone)
                    assert same, stream.tok.decode(stream.ids)


def decisions(stream: Stream, budget: int | None) -> list[Any]:
    """All that a gate says on the way, some tokens taken back among them."""
    gate = Gate(
        stream.tok.bound, stream.prompt, tools=stream.options["tools"], reasoning=stream.options["thinking"], budget=budget
    )  # fmt: skip
    chance, said = random.Random(len(stream.ids)), []
    for ids in in_steps(stream.ids, 0, len(stream.ids)):
        said += [gate.validate(ids), gate.advance(ids), gate.state, gate.reasoning_ended, gate.spent, gate.forced]
        said += [gate.answer_start, gate.terminated, [id for id in stream.tok.special.values() if gate.allows(id)]]
        if chance.random() < 0.2:
            gate.rollback(chance.randint(0, min(6, len(gate.ids))))
    return said


@every_format
def test_a_gate_decides_alike_with_and_without(name: str) -> None:
    chance = random.Random(name)
    streams = [(stream, chance.choice((None, 0, 2, 9))) for stream in [*streams_of(name, DEFAULT_POLICY)][:8]]
    program = tokens(name).bound.program(DEFAULT_POLICY)
    with remembering(program, Memo(0)):
        bare = [decisions(*each) for each in streams]
    with remembering(program, Memo()):
        for (stream, budget), alone in [*zip(streams, bare, strict=True)] * 2:
            assert decisions(stream, budget) == alone, stream.tok.decode(stream.ids)


def in_two(at: int, text: str) -> Iterator[bytes]:
    """Two tokens, the second from character `at` on."""
    yield from (text[:at].encode(), text[at:].encode())


def in_one(text: str) -> Iterator[bytes]:
    """All of it is one token."""
    if text:
        yield text.encode("utf-8", "surrogatepass")


@every_format
def test_tokens_that_hold_whole_calls(name: str) -> None:
    """Or several, or the end of one and the beginning of the next: each call's name must be offered, and has its own id."""
    chance, fine = random.Random(name), tokens(name)
    cases = some_fixtures(name, 10)
    written = [*(case.raw for case in cases), *(fine.decode(stream.ids) for stream in typed_streams(name, 4))]
    tok = Tokens(fine.bound.format, written, in_one)
    streams = []
    for raw, _ in itertools.product(written, range(3)):
        case = chance.choice(cases)
        options = {"tools": some_tools(chance, case), "policy": unbraid.Policy(unknown_tool="content")}
        stream = Stream(name, tok.encode(raw), chance.choice(FINISHES), None, **options)
        stream.tok = tok
        streams.append(stream)
    program = tok.bound.program(streams[0].policy)
    with remembering(program, Memo(0)):
        bare = [stream.by_ids(1) for stream in streams]
    with remembering(program, Memo()):
        for stream, alone in [*zip(streams, bare, strict=True)] * 2:
            assert stream.by_ids(1) == alone, tok.decode(stream.ids)


@pytest.mark.parametrize("name", ["llama3_json", "llama4_json", "llama4_pythonic", "xlam"])
def test_a_token_that_ends_all_calls_of_a_list(name: str) -> None:
    """Wherever it begins: each call ends once."""
    raw = '[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"b": 2}}]'
    for at in range(1, len(raw)):
        tok = Tokens(tokens(name).bound.format, [raw], functools.partial(in_two, at))
        stream = Stream(name, tok.encode(raw), "stop", None)
        stream.tok = tok
        with remembering(tok.bound.program(DEFAULT_POLICY), Memo(0)):
            bare = stream.by_ids(1)
        with remembering(tok.bound.program(DEFAULT_POLICY), Memo()):
            for _ in range(3):
                assert stream.by_ids(1) == bare, raw[:at]


def test_a_token_that_ends_one_call_and_begins_a_parameter_of_the_next() -> None:
    """The parameter's type is that of the second call's tool, and it is the second call's."""
    fine = tokens("minimax_m2")
    opening, between = (
        '\n<invoke name="f">\n<parameter name="b">',
        '</parameter>\n</invoke>\n<invoke name="g">\n<parameter name="a">',
    )
    raw = f"</think><minimax:tool_call>{opening}x{between}7</parameter>\n</invoke>\n</minimax:tool_call>"
    tok = Tokens(
        fine.bound.format, [raw], lambda text: iter([run.encode() for run in re.split("(?<=>)(?=[x7])", text)])
    )
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo()):
        for kinds in [*itertools.product(("string", "integer"), repeat=2)] * 2:
            tools = [
                {"type": "function", "function": {"name": name, "parameters": {"properties": {"a": {"type": kind}}}}}
                for name, kind in zip("fg", kinds, strict=True)
            ]
            parser = Parser(tok.bound, tools=tools)
            for id in tok.encode(raw):
                parser.feed([id])
            found = [json.loads(call.arguments) for call in parser.message.tool_calls]
            assert found == [{"b": "x"}, {"a": "7" if kinds[1] == "string" else 7}]


# -- where it stands -----------------------------------------------------------------------------------------------------

OWN = {
    "_consulted",
    "_asked",
    "_done",
    "_place",
    "_plain",
    "_private",
    "_since",
    "_sink",
    "_steps",
    "_strand",
    "_tried",
    "_special",
    "_announced",
    "_whole",
    "_written",
}
"""Fields in which two machines may differ that stand at the same point of a stream: how far in the text the slow path has come,
what is the memo's, what may stay set for longer than it must (`_special`), and what only counts on trial."""
PASSING = {"_mark", "_out", "_text", "fixes", "waits_on_blank"}
"""Scratch of the feed that is going on."""
UP = {"sink", "_machine"}
"""What leads from a part back to the machine."""


def difference(a: Any, b: Any, path: str = "") -> str:
    """Where two machines, or parts of them, differ; empty if they don't."""
    if a is b:
        return ""
    if type(a) is not type(b):
        return f"{path}: {a!r} and {b!r}"
    if isinstance(a, Call):
        parts = [(getattr(a, name), getattr(b, name)) for name in ("index", "name", "raw", "arguments", "outcome")]
        return difference([x for x, _ in parts], [y for _, y in parts], path)
    if isinstance(a, Scanner) and isinstance(b, Scanner):
        return difference((a.place(), a.error), (b.place(), b.error), path)
    if isinstance(a, _Value):  # text that has been passed on is held no longer
        one, other = ((value.key, value.stage, "" if value.verbatim else "".join(value.held)) for value in (a, b))
        return difference(one, other, path)
    if isinstance(a, Segment):
        return difference((a.strand, a.later, "".join(a.pieces)), (b.strand, b.later, "".join(b.pieces)), path)
    if callable(a) and hasattr(a, "__self__"):
        return "" if a.__name__ == b.__name__ else f"{path}: {a} and {b}"
    if (
        path.endswith(".held")
        and isinstance(a, list)
        and isinstance(b, list)
        and {str} >= {type(each) for each in a + b}
    ):
        return difference("".join(a), "".join(b), path)
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{path}: {a!r} and {b!r}"
        return next(
            filter(None, (difference(x, y, f"{path}[{n}]") for n, (x, y) in enumerate(zip(a, b, strict=True)))), ""
        )
    if type(a).__module__.startswith("unbraid.") and fields(type(a)):
        names = set(fields(type(a))) - OWN - PASSING - UP
        pairs = ((getattr(a, name, None), getattr(b, name, None), f"{path}.{name}") for name in sorted(names))
        return next(filter(None, (difference(*pair) for pair in pairs)), "")
    return "" if a == b else f"{path}: {a!r} and {b!r}"


def resumed(machine: Parser) -> Parser:
    """A copy in which all that it will go by is written back from its place, and counted from where it stands."""
    machine = machine.fork()
    machine._resume()
    machine._buffer = machine._take_queue()
    machine._rewind()
    machine._starts = [start - machine._done for start in machine._starts]
    return machine


@every_format
def test_a_machine_stands_where_it_would_without(name: str) -> None:
    """Every field, the reader's included: one that a place forgot would differ here sooner or later."""
    chance, tok = random.Random(name), tokens(name)
    for case in some_fixtures(name, 6):
        prompt = None if case.prompt is None else tok.encode(case.prompt)
        program = tok.bound.program(case.policy)
        ids = tok.encode(case.raw)
        with remembering(program, Memo()) as memo:
            Stream(name, ids, case.finish, prompt, **case.options).by_ids(1)
            options = {**case.options, "tools": Tools.resolve(case.tools)}
            warm = Parser(tok.bound, prompt=prompt, **options)
            program.memo = Memo(0)
            bare = Parser(tok.bound, prompt=prompt, **options)
            for at, id in enumerate(ids):
                program.memo = Memo(0)
                bare.feed([id])
                program.memo = memo
                warm.feed([id])
                if at % 7 == 0 or chance.random() < 0.1:
                    found = difference(resumed(warm), resumed(bare))
                    assert not found, f"{case}, behind {tok.decode(ids[: at + 1])!r}: {found}"


@every_format
def test_a_prompt_leads_where_it_would_without(name: str) -> None:
    """Whatever stands before the end that is remembered: nothing, a marker, half a turn, another prompt."""
    chance, tok = random.Random(name), tokens(name)
    prompts = sorted({case.prompt for case in FIXTURES[name] if case.prompt})
    pieces = ["", "Hi. ", *prompts, *(tok.decode(scrap) for scrap in chance.sample(scraps(name), 8))]
    streams = ["", *(chance.choice(pieces) + chance.choice(pieces) + end for end in [*prompts, *pieces] for _ in "12")]
    kinds: list[tuple[Any, Program, Callable[[str], Any]]] = [
        (tok.bound, tok.bound.program(DEFAULT_POLICY), tok.encode),
        (tok.bound.format, text_program(tok.bound.format, DEFAULT_POLICY), str),
    ]
    for source, program, read in kinds:
        with remembering(program, Memo()) as memo:
            for text in [*streams, *streams]:
                options = {"prompt": read(text), "thinking": chance.choice([None, True, False])}
                program.memo = Memo(0)
                bare = Parser(source, **options)
                program.memo = memo
                warm = Parser(source, **options)
                found = "" if warm._prepared else difference(resumed(warm), resumed(bare))
                assert not found, f"{options}: {found}"


@pytest.mark.parametrize("name", ["qwen3", "functionary_v31", "ling3", "reka_edge", "mistral_v13", "think"])
def test_prompts_that_end_alike_are_known(name: str) -> None:
    """Whatever a user wrote before that; also where only what opens a turn behind the end of another counts."""
    tok = tokens(name)
    end = next(case.prompt for case in FIXTURES[name] if case.prompt)
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo()) as memo:
        for text in ("One. ", "And two. " * 50, "Three?"):
            assert Parser(tok.bound, prompt=tok.encode(text + end))._prepared == (text == "One. ")
        assert len(memo.tails) == 1


@pytest.mark.skipif(compiled(), reason="reads the source of functions")
def test_every_field_of_the_machine_has_been_thought_of() -> None:
    """A new field must go into the key of a place, or keep the machine out of places, or be none of a token's business."""
    first = re.search(r"\((.*?)\) = key", inspect.getsource(Place.__init__), re.S)
    assert first is not None
    key = {f"_{name}" for name in re.findall(r"self\.(\w+)", first[1])}
    key = key - {"_holds", "_kept", "_calls", "_called", "_joint"} | {"_held", "_call", "called", "_thought"}
    assert len(key) == len(get_args(Key)) - 1
    told: Any = Machine._notes_on
    source = "".join(map(inspect.getsource, (Machine._locate, Machine._short_buffer, told.fget)))
    asked = set(re.findall(r"self\.(\w+)", source)) - key
    refused = asked & set(fields(Machine)) - {"_done", "_program", "_at"}
    others = {
        *("_done", "_at", "_token", "_index", "_since"),  # positions
        *("_parts", "_calls", "_last", "_ids", "_new_ids", "diagnostics"),  # what was said: no token's business
        *("_mark", "_out", "_text"),  # scratch of one feed
        *("_plain", "_steps", "_place", "_sink", "_strand"),  # the memo's own
        *("_private", "_asked", "_whole", "_written"),  # the same
        *("_program", "_tools", "_consulted", "_seed", "_finished", "_quiet", "_prepared"),  # the request's, or fixed
        "_queued",  # goes with `_queue`
        "_refused_at",  # only matters while a failed reader waits, which is refused
    }
    assert not others & (key | refused)
    assert key | refused | others == set(fields(Machine))


# -- parameters, whose types are the request's own -----------------------------------------------------------------------

TAGGED = (
    "qwen3_coder", "qwen3_5", "glm47", "minimax_m2", "deepseek_v32", "step3", "seed_oss", "granite_thinking", "longcat", "hy_v3", "mimo",
    "minicpm5", "muse_glimmer", "k2_horizon", "kimi_k3", "gemma4",
)  # fmt: skip
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "string"}, {"type": "integer"}, {"type": ["boolean", "null"]}, {"type": "array"}, {"type": ["string", "number"]}, {},
    {"type": "array", "items": {"type": "integer"}}, {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]},
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    "Oslo", "5", 5, -31, 2.5, True, None, [1, "a <b"], ["1", "true", "x"], [2, 3], {"k": ["</parameter>"]}, " \n 7", "[x", "", "true", "x\n</parameter>\ny", "<parameter=b>",
)  # fmt: skip


def typed_streams(name: str, count: int) -> Iterator[Stream]:
    """Calls of one tool with a few keys, whose values and types are others each time, and mostly don't fit each other."""
    chance, tok = random.Random(name), tokens(name)
    for n in range(count):
        given = {key: chance.choice(VALUES) for key in chance.sample("abcd", chance.randint(0, 4))}
        if n % 4 == 0:
            given["text"] = "\n".join(str(chance.choice(VALUES)) for _ in range(30))
        call = unbraid.ToolCall("call_1", "f", json.dumps(given))
        try:
            raw = unbraid.render(tok.bound.format, unbraid.Message(tool_calls=[call]))
        except unbraid.UnbraidError:  # the format can't write it
            continue
        properties = {key: chance.choice(SCHEMAS) for key in "abcd"}
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}]
        ids = tok.encode(raw)
        cut = chance.randrange(len(ids)) if n % 5 == 0 else len(ids)
        options = {"tools": chance.choice((tools, tools, [])), "policy": chance.choice(POLICIES[:2])}
        yield Stream(name, ids[:cut], chance.choice(("stop", "length")), None, thinking=False, **options)


@pytest.mark.parametrize("name", TAGGED)
def test_a_value_is_read_by_its_own_type(name: str) -> None:
    streams = [*typed_streams(name, 40)]
    assert len(streams) > 16
    for run, program in (
        (Stream.by_ids, lambda stream: stream.tok.bound.program(stream.policy)),
        (Stream.by_text, lambda stream: text_program(stream.tok.bound.format, stream.policy)),
    ):
        warm = {policy: Memo() for policy in POLICIES}
        for _ in range(2):
            for stream in streams:
                with remembering(program(stream), Memo(0)):
                    bare = run(stream, 1)
                    whole = said(*run(stream, 100_000))
                with remembering(program(stream), warm[stream.policy]):
                    assert run(stream, 1) == bare
                    assert said(*run(stream, 0)) == said(*run(stream, 15)) == whole == said(*bare)


@pytest.mark.skipif(compiled(), reason="reads the source of functions")
def test_what_is_remembered_needs_no_field_that_comes_later() -> None:
    """A machine that stands in a place at once has its other fields from `_prepare` when it leaves it."""
    later = set(re.findall(r"self\.(\w+)(?:: [^=]+)? = ", inspect.getsource(Machine._prepare)))
    own = {"_out", "_private"}  # set where they are read
    leaving = {"_informed", "_resume", "_push", "_read_ids", "_work_out", "_feed_unknown", "_settle"}
    seen, waiting = set[str](), ["feed", "feed_text", "fork", "message", "state", "reasoning_ended"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        member = inspect.getattr_static(Machine, name)
        source = inspect.getsource(getattr(member, "fget", member))
        asked = set(re.findall(r"self\.(\w+)\b(?! = )", source))
        assert not asked & later - own, f"{name}: {asked & later - own}"
        waiting += [a for a in asked - seen - leaving if inspect.isfunction(inspect.getattr_static(Machine, a, None))]
    assert "_take_several" in seen


# -- what it holds -------------------------------------------------------------------------------------------------------


def feed_all(bound: unbraid.BoundFormat, ids: Sequence[int]) -> Parser:
    parser = unbraid.Parser(bound)
    for id in ids:
        parser.feed([id])
    return parser


def test_a_second_stream_is_known() -> None:
    tok = tokens("qwen3")
    ids = tok.encode("<think>\nWell, 1 < 2.\n\nSo:\n</think>\n\nYes.\n\nIt is.<|im_end|>")
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo()) as memo:
        feed_all(tok.bound, ids)
        count = memo.count
        feed_all(tok.bound, ids)
        assert memo.count == count > 20


def test_it_is_emptied_when_it_is_full() -> None:
    tok = tokens("qwen3")
    chance = random.Random(1)
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo(50)) as memo:
        for _ in range(40):
            noise = [token for _ in range(30) for token in chance.choice(scraps("qwen3"))]
            feed_all(tok.bound, noise)
            held = [*memo.places.values()]
            assert len(held) + len(memo.tails) + len(memo.kept) + sum(len(p.plain) + len(p.steps) for p in held) <= 50
        assert memo.age > 3


def test_a_place_of_an_earlier_age_learns_nothing() -> None:
    tok = tokens("qwen3")
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo(6)) as memo:
        parser = feed_all(tok.bound, tok.encode("<think>\nOne"))
        old = parser._place
        for text in ("two", "three", "four", "five", "six", "seven"):
            feed_all(tok.bound, tok.encode(f"<think>\n{text}</think>"))
        assert isinstance(old, Place)
        assert memo.age > old.age
        parser.feed(tok.encode("new"))
        assert not [*old.plain, *old.steps]


def test_nothing_of_a_request_is_remembered() -> None:
    """What a stream's tools and names were doesn't reach another stream through the memo."""
    tok = tokens("qwen3")
    call = '<tool_call>\n{{"name": "{}", "arguments": {{"a": "x"}}}}\n</tool_call>'
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo()):
        for _ in range(3):
            for name in ("f", "function"):
                parser = feed_all(tok.bound, tok.encode("</think>" + call.format(name)))
                parser.finish()
                assert [(c.name, c.arguments) for c in parser.message.tool_calls] == [(name, '{"a": "x"}')]


def test_a_call_that_is_remembered_must_be_offered_again() -> None:
    tok = tokens("qwen3")
    policy = unbraid.Policy(unknown_tool="content")
    ids = tok.encode('</think><tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    with remembering(tok.bound.program(policy), Memo()):
        for offered, names in ((tools, ["f"]), (tools, ["f"]), (tools[1:], []), (tools, ["f"]), ([], ["f"])):
            parser = unbraid.Parser(tok.bound, tools=offered, policy=policy)
            for id in ids:
                parser.feed([id])
            parser.finish()
            assert [call.name for call in parser.message.tool_calls] == names
            assert bool(parser.message.content) is not bool(names)


def test_a_header_that_is_remembered_leads_where_the_tools_say() -> None:
    """A recipient by its bare name is a call if it is offered, else nobody's; by its full name it is always one."""
    tok = tokens("harmony")
    offered = [{"type": "function", "function": {"name": "spin"}}]
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo()):
        for _ in range(3):
            for to, tools, names in (
                ("spin", offered, ["spin"]),
                ("spin", [], []),
                ("functions.spin", offered, ["spin"]),
                ("functions.spin", [], ["spin"]),
            ):
                parser = unbraid.Parser(tok.bound, tools=tools)
                for id in tok.encode(f"<|channel|>commentary to={to}<|message|>{{}}<|call|>"):
                    parser.feed([id])
                parser.finish()
                assert [call.name for call in parser.message.tool_calls] == names


def test_messages_are_joined_alike_with_and_without() -> None:
    """Whether a message of a strand came before isn't in the header that leads to the next one."""
    tok = tokens("harmony")
    thought, preamble = "<|channel|>analysis<|message|>Well.<|end|>", "<|channel|>commentary<|message|>So.<|end|>"
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo()):
        for _ in range(3):
            for parts in ([thought], [thought, thought], [preamble, thought], [thought, preamble, thought, preamble]):
                parser = unbraid.Parser(tok.bound)
                events = [event for id in tok.encode("<|start|>assistant".join(parts)) for event in parser.feed([id])]
                parser.finish()
                for strand, text, all in (
                    ("reasoning", "Well.", parser.message.reasoning),
                    ("content", "So.", parser.message.content),
                ):
                    count = sum(part is (thought if strand == "reasoning" else preamble) for part in parts)
                    expected = "\n".join([text] * count) or None
                    said = "".join(event.text for event in events if isinstance(event, Text) and event.strand == strand)
                    assert (said or None, all) == (expected, expected)


def test_an_id_that_the_model_wrote_is_its_own_in_every_stream() -> None:
    """Written twice in one stream, the second call gets another; in the next stream the first one counts again."""
    tok = tokens("kimi_k2_instruct")
    call = '<|tool_call_begin|>functions.f:7<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
    ids = tok.encode(f"<|tool_calls_section_begin|>{call}{call}<|tool_calls_section_end|>")
    with remembering(tok.bound.program(DEFAULT_POLICY), Memo()):
        for _ in range(3):
            parser = feed_all(tok.bound, ids)
            parser.finish()
            first, second = (call.id for call in parser.message.tool_calls)
            assert first == "functions.f:7" != second


@pytest.mark.parametrize("text", ["<", "\n", " \n", "</", "<|im", "\n</thin"])
def test_a_fork_goes_its_own_way_from_a_place(text: str) -> None:
    tok = tokens("qwen3")
    for _ in range(2):
        parser = feed_all(tok.bound, tok.encode("<think>\nA" + plain(text)))
        other = parser.fork()
        parser.feed(tok.ordinary("b"))
        other.feed(tok.encode("</think>"))
        assert parser.state.strand == "reasoning"
        assert other.state.strand == "content"
        parser.finish("length")
        other.finish("length")
        assert (parser.message.reasoning or "").endswith("b")
        assert not (other.message.reasoning or "").endswith("b")


def test_a_token_is_one_character_whoever_meets_it_first() -> None:
    """Streams of several threads may meet a control token at once that no format knows."""
    tok = tokens("qwen3")
    alphabet = tok.bound.program(unbraid.Policy()).alphabet
    token = tok.special[RESERVED]
    char = alphabet.piece(token)
    assert isinstance(char, str)
    assert alphabet._add(token, RESERVED) == char
    assert alphabet.token_of(char) == token
