"""A table held against a real chat template: small conversations are rendered, and what the template writes for the
assistant is read with the table. What comes out must be what went in.

The template is the model's own account of how it writes a turn, so a difference is a mistake of the table (or of the
template, and then the model has learned it). Each is reported with the marker in question and the template's line that
writes the text.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unbraid.errors import EngineError, RenderError, RequestError
from unbraid.lint import Finding, ordered
from unbraid.message import Message, ToolCall
from unbraid.parser import Parser, parse
from unbraid.render import pieces
from unbraid.table import Format, spelled, thinks

if TYPE_CHECKING:
    from unbraid.boundary import BoundFormat
    from unbraid.chat_template import ChatTemplate

Json = dict[str, Any]

_PROPERTIES = {
    "query": {"type": "string"}, "note": {"type": "string"}, "limit": {"type": "integer"}, "ratio": {"type": "number"},
    "exact": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
    "place": {"type": "object", "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}}},
}  # fmt: skip
TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks for something.",
            "parameters": {"type": "object", "properties": _PROPERTIES, "required": []},
        },
    }
    for name in ("find_bridge", "list_ports")
]
"""What every conversation with calls offers."""

_LIKE_A_MARKER = re.compile(r"<[^<>\s]{1,60}>?|\[/?[A-Z_]+\]|\][^\w\s]\w?\]")
_FORGIVEN = {
    "missing_closer",
    "missing_opener",
    "surplus_text",
    "stray_text",
    "odd_closer",
    "no_header",
    "unknown_channel",
}
"""Diagnostics of what a model may get wrong, but no template."""
_SHORTEST = 4
"""Characters of a text's beginning by which a template's line is found, at least so many and one."""
REASONING = "They ask about bridges.\n\nThe old one, then."
CONTENT = "Under the old bridge.\nMind the step."
PLAIN = {"query": "old bridge", "limit": 3}
EVERYTHING = {
    "query": 'Brücke "Süd" \\ 深川 🌉', "note": "line one\n  line two\n", "limit": -12, "ratio": 0.25, "exact": True,
    "tags": ["a", "b c"], "place": {"zip": "10115", "floor": 2},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Probe:
    """One message that the template is to write, and the conversation before it."""

    name: str
    reasoning: str | None = None
    content: str | None = None
    calls: Sequence[tuple[str, Json]] = ()
    before: Sequence[str] = ("user",)
    """What was said before: `user`; `call` and `result` of an earlier call."""
    thinking: bool | None = None


PROBES = (
    Probe("plain", content=CONTENT),
    Probe("plain, thinking off", content=CONTENT, thinking=False),
    Probe("reasoning", REASONING, CONTENT, thinking=True),
    Probe("one call", calls=[("find_bridge", PLAIN)]),
    Probe("one call, thinking off", calls=[("find_bridge", PLAIN)], thinking=False),
    Probe("content and a call", content=CONTENT, calls=[("find_bridge", PLAIN)]),
    Probe("reasoning and a call", REASONING, None, [("find_bridge", PLAIN)], thinking=True),
    Probe("reasoning, content and a call", REASONING, CONTENT, [("find_bridge", PLAIN)], thinking=True),
    Probe("two calls", calls=[("find_bridge", PLAIN), ("list_ports", {"query": "sea"})]),
    Probe("no arguments", calls=[("list_ports", {})]),
    Probe("every kind of argument", calls=[("find_bridge", EVERYTHING)]),
    Probe("after a tool's result", content=CONTENT, before=("user", "call", "result")),
    Probe("reasoning after a tool's result", REASONING, CONTENT, before=("user", "call", "result"), thinking=True),
    Probe("a call after a tool's result", calls=[("list_ports", {})], before=("user", "call", "result")),
)


def lint_template(
    fmt: Format, source: str, special_tokens: Mapping[str, str] | None = None, bound: BoundFormat | None = None
) -> list[Finding]:
    """Every difference between what this template writes and what the table reads.

    With a bound format the ids are read, too. Needs jinja2 (the extra `server`).
    """
    from unbraid.chat_template import ChatTemplate

    known = {"bos_token": "", "eos_token": "", **(special_tokens or {})}  # templates fail if they miss these
    try:
        template = ChatTemplate(source, known)
    except EngineError as error:
        return [
            Finding(
                "broken_template",
                "error",
                "chat template",
                str(error),
                "no engine can render a conversation with it",
                "fetch it again with the model's files, or give another one",
            )
        ]
    inspector = _Inspector(fmt, template, source, bound)
    return ordered(_together(finding for probe in PROBES for finding in inspector.inspect(probe)))


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a table and a template agree, in probes."""

    tried: int
    """Probes that the template writes."""
    read: int
    """Those that the table reads as they were meant."""
    written: int
    """Those that the table would write exactly so."""


def agreement(fmt: Format, template: ChatTemplate) -> Agreement:
    """The same for whoever looks for a format: how many probes fit. What the format can't hold doesn't fit."""
    inspector = _Inspector(fmt, template, "")
    tried = read = written = 0
    for probe in PROBES:
        try:
            made = inspector.best(probe)
        except RequestError:
            continue
        if made.expected != Message():
            tried += 1
            read += not any(found.level != "note" for found in inspector.compare(probe, made))
            ours = inspector.ours(made).strip()
            written += bool(ours) and ours in made.prompt + made.output
    return Agreement(tried, read, written)


def _together(found: Iterable[Finding]) -> list[Finding]:
    """Findings that say the same of several probes as one."""
    places: dict[Finding, list[str]] = {}
    for finding in found:
        places.setdefault(replace(finding, place=""), []).append(finding.place)
    return [replace(finding, place=", ".join(dict.fromkeys(where))) for finding, where in places.items()]


@dataclass(slots=True)
class _Written:
    """What the template made of a probe."""

    prompt: str
    output: str
    expected: Message
    asked: str
    """The prompt that the model gets. `prompt` is what stands before the answer in a history: mostly the same."""


@dataclass(slots=True)
class _Inspector:
    fmt: Format
    template: ChatTemplate
    source: str
    bound: BoundFormat | None = None

    def inspect(self, probe: Probe) -> Iterator[Finding]:
        if (probe.calls or "call" in probe.before) and not self.fmt.calls:
            return
        if probe.reasoning and not self.fmt.reasons:
            return
        if probe.thinking is False and not self.switches:
            return  # there is no switch: the probe would be another one's twin
        try:
            written = self.best(probe)
        except RequestError as error:
            yield self.note(probe, "refused", f"the template refuses it: {error}")
            return
        if missing := self.missing(probe, written):
            yield self.note(probe, "unwritten", f"the template doesn't write its {missing}")
        yield from self.prompt(probe, written)
        yield from self.compare(probe, written)

    @property
    def switches(self) -> tuple[str, ...]:
        """The names of the thinking switch that this template reads."""
        return tuple(name for name in self.fmt.thinking.keywords if name in self.template.variables)

    def note(self, probe: Probe, kind: str, message: str) -> Finding:
        return Finding(
            kind, "note", f"probe {probe.name!r}", message, "so this template can't show how it is written",
            "nothing, if the models are like this",
        )  # fmt: skip

    # Writing

    def best(self, probe: Probe) -> _Written:
        """What the template makes of a probe. Some want the thought within the content, as the model wrote it."""
        written = self.write(probe, self.answers(probe))
        if not probe.reasoning or written.expected.reasoning:
            return written
        own = self.text(Message(probe.reasoning, probe.content))
        inside = self.write(probe, [{**next(self.answers(probe)), "content": own}])
        fits = inside.expected.reasoning and all(found.level == "note" for found in self.compare(probe, inside))
        return inside if fits else written

    def write(self, probe: Probe, answers: Iterable[Json]) -> _Written:
        """Render the conversation without and with the answer: what they share is the prompt."""
        keywords = {} if probe.thinking is None else dict.fromkeys(self.switches, probe.thinking)
        tools = TOOLS if probe.calls or "call" in probe.before else None
        before = self.history(probe)
        prompt = self.template.render(before, tools, True, **keywords)
        refusal: RequestError | None = None
        best: str | None = None
        for answer in answers:
            try:
                whole = self.template.render([*before, answer], tools, False, **keywords)
            except RequestError as error:
                refusal = refusal or error
                continue
            if best is None or (probe.reasoning and probe.reasoning in whole):
                best = whole
            if not probe.reasoning or probe.reasoning in whole:
                break
        if best is None:
            assert refusal is not None
            raise refusal
        at = self.split(self.template.render(before, tools, False, **keywords), prompt, best)
        return _Written(best[:at], best[at:], self.expected(probe, best[at:]), prompt)

    def answers(self, probe: Probe) -> Iterator[Json]:
        """The answer under the names that templates know: some refuse one, some ignore the other."""
        calls = [self.call(name, arguments, index) for index, (name, arguments) in enumerate(probe.calls)]
        answer: Json = {"role": "assistant", "content": probe.content or ("" if not calls else None)}
        if calls:
            answer["tool_calls"] = calls
        if not probe.reasoning:
            yield answer
            return
        yield {**answer, "reasoning_content": probe.reasoning, "reasoning": probe.reasoning}
        yield {**answer, "thinking": probe.reasoning}
        thought = {"type": "thinking", "thinking": probe.reasoning}
        yield {**answer, "content": [thought, {"type": "text", "text": probe.content or ""}]}

    def history(self, probe: Probe) -> list[Json]:
        name = "list_ports"
        said: dict[str, Json] = {
            "user": {"role": "user", "content": "Where do we sleep?"},
            "call": {"role": "assistant", "content": None, "tool_calls": [self.call(name, {"query": "all"}, 0)]},
            "result": {"role": "tool", "tool_call_id": self.id(name, 0), "name": name, "content": "no"},
        }
        return [said[each] for each in probe.before]

    def call(self, name: str, arguments: Json, index: int) -> Json:
        return {"id": self.id(name, index), "type": "function", "function": {"name": name, "arguments": arguments}}

    def id(self, name: str, index: int) -> str:
        """An id as the format has them, or nine letters and digits (Mistral's templates insist)."""
        ids = self.fmt.ids
        pattern = ids.pattern if ids.written else "?" * 9
        letters = iter(f"{index}bcdefghijklmnopqrstuvwxyz" * 2)
        return re.sub(r"\?", lambda _: next(letters), pattern.replace("{name}", name).replace("{index}", str(index)))

    def split(self, history: str, prompt: str, whole: str) -> int:
        """Where the answer starts in `whole`: behind the prompt; where history is written otherwise, behind what opens
        the turn in both; else where the two part, but not within a marker."""
        if whole.startswith(prompt):
            return len(prompt)
        shared = _shared(prompt, whole)
        opener = prompt.removeprefix(history) if prompt.startswith(history) else ""
        if shared < len(history) and opener and (at := whole.rfind(opener)) >= shared:
            return at + len(opener)
        cut = max((_overlap(prompt[:shared], spelling) for spelling in self.spellings()), default=0)
        return shared - cut

    def expected(self, probe: Probe, output: str) -> Message:
        """The probe as far as the template wrote it."""
        calls = [ToolCall("", name, json.dumps(arguments)) for name, arguments in probe.calls if name in output]
        reasoning = probe.reasoning if probe.reasoning and probe.reasoning in output else None
        return Message(reasoning, probe.content if probe.content and probe.content in output else None, calls)

    def missing(self, probe: Probe, written: _Written) -> str:
        expected = written.expected
        parts = {
            "reasoning": probe.reasoning and not expected.reasoning,
            "content": probe.content and not expected.content,
            "calls": len(expected.tool_calls) < len(probe.calls),
        }
        return " and ".join(name for name, lacks in parts.items() if lacks)

    # Reading

    def prompt(self, probe: Probe, written: _Written) -> Iterator[Finding]:
        """Whether the prompt opens the answer's turn, and its thought, in a way that the table knows."""
        turns = Parser(self.fmt).program.turns
        last = written.asked.rfind(self.history(probe)[-1]["content"])
        if probe.before != ("user",) or not turns.openers or last < 0:
            return  # behind a tool's result some go on without a new turn
        opener = turns.last_opener(written.asked)
        opened = opener is not None and opener[0] > last
        behind = written.asked[opener[0] if opened and opener else last :]
        strange = self.strange(self.words().findall(behind))
        marker = _nearest(strange, self.spellings())
        if opened and not (strange and marker):
            return
        line = self.line_of(strange)
        about = f"the template writes {strange!r}" if strange else "the template writes nothing"
        about += f" where the table has {marker!r}" if marker else ""
        yield Finding(
            "unknown_marker" if opened else "no_turn", "error" if strange else "note",
            f"probe {probe.name!r}" + (f" (template line {line})" if line else ""),
            f"{'behind what opens the turn' if opened else 'no turn is opened behind the last message'}: {about}",
            "the prompt says where the answer starts: a marker in it that isn't known is passed over",
            "compare the table with what the template writes for `add_generation_prompt`",
        )  # fmt: skip

    def compare(self, probe: Probe, written: _Written) -> Iterator[Finding]:
        tools = TOOLS if probe.calls else None
        thinking = probe.thinking
        if not written.expected.reasoning and not written.output.startswith(tuple(self.thinkers())):
            thinking = False  # the template shows an answer without a thought: as if the switch were off
        got = parse(self.fmt, written.output, tools=tools, prompt=written.prompt, thinking=thinking)
        found = list(self.differences(probe, written, got))
        if found and self.says_otherwise(written, got):
            yield self.note(probe, "moved", "the template writes the content beside a call as reasoning")
            return
        if found and self.leaves_out(written, tools):
            yield self.note(
                probe, "history", "of earlier answers the template leaves out the thought that its prompt opens"
            )
            return
        if self.bound is not None and not found:
            encode = self.bound.vocabulary.encode
            ids, prompt = encode(written.output), encode(written.prompt)
            got = parse(self.bound, ids, tools=tools, prompt=prompt, thinking=thinking)
            found = list(self.differences(probe, written, got))
        if not found and (forgiven := [d for d in got.diagnostics if d.kind in _FORGIVEN]):
            yield self.finding(probe, written, forgiven[0].kind, "a mistake of models", "", False)
        yield from found

    def says_otherwise(self, written: _Written, got: Message) -> bool:
        """Whether the template itself marks the content as reasoning (gpt-oss' does, beside calls)."""
        text = written.expected.content
        marked = text is not None and written.output.find(text) > 0
        return marked and (got.reasoning, got.content) == (text, None) and written.expected.reasoning is None

    def leaves_out(self, written: _Written, tools: Sequence[Json] | None) -> bool:
        """Whether the answer would be read behind the prompt that the model gets, or right behind a thought: the history
        lacks what the prompt opens, or the thought that the model writes there."""
        ways = [(written.asked, written.output)]
        if not written.expected.reasoning:
            rows = [row for state, row in self.fmt.states.items() if thinks(state)]
            ender = next((m.text for row in rows for m, target in row.items() if target.strand == "content"), None)
            ways += [(prompt, ender + written.output) for prompt in (written.prompt, written.asked) if ender]
        read = (parse(self.fmt, output, tools=tools, prompt=prompt, thinking=True) for prompt, output in ways)
        return any(_same(written.expected, got) for got in read)

    def thinkers(self) -> Iterator[str]:
        for row in self.fmt.states.values():
            yield from (spelled(s) for m, t in row.items() if t.strand == "reasoning" for s in m.spellings)

    def differences(self, probe: Probe, written: _Written, got: Message) -> Iterator[Finding]:
        wanted = written.expected
        for name in ("reasoning", "content"):
            one, other = getattr(wanted, name), getattr(got, name)
            if one != other:
                blank = (one or "").strip() == (other or "").strip()
                yield self.finding(probe, written, name, _shown(one), _shown(other), blank)
        calls, read = _calls(wanted), _calls(got)
        if calls != read:
            yield self.finding(probe, written, "calls", _shown(calls), _shown(read), False)

    def finding(self, probe: Probe, written: _Written, part: str, wanted: str, got: str, blank: bool) -> Finding:
        marker, culprit = self.culprit(written, blank)
        line = self.line_of(culprit)
        place = f"probe {probe.name!r}" + (f" (template line {line})" if line else "")
        about = f"; the template writes {culprit!r}" if culprit and not blank else ""
        about += f", beside {culprit!r}" if culprit and blank else ""
        about += f" where the table has {marker!r}" if marker and marker != culprit else ""
        return Finding(
            "white_space" if blank else "template",
            "warning" if blank else "error",
            place,
            (f"{part} is {wanted}, but is read as {got}" if got else f"is read, but only as {wanted} ({part})") + about,
            "the models write what their template writes: real output will be read like this",
            "let the marker own the white space around it (`before`, `after`)"
            if blank
            else f"compare {marker or 'the markers'} in the table with the template",
        )

    def culprit(self, written: _Written, blank: bool) -> tuple[str, str]:
        """The first thing that the template writes otherwise: the table's marker, the template's text. `blank`:
        the marker beside the first white space."""
        words = self.words()
        wanted, found = words.findall(self.ours(written)), words.findall(written.output)
        known = self.spellings()
        changes = [
            (a, b, c, d)
            for kind, a, b, c, d in difflib.SequenceMatcher(None, wanted, found, autojunk=False).get_opcodes()
            if kind != "equal"
        ]
        if not blank and (strange := self.strange(word for _, _, c, d in changes for word in found[c:d])):
            return _nearest(strange, known), strange
        for a, b, c, d in changes:
            table, template = "".join(wanted[a:b]).strip(), "".join(found[c:d]).strip()
            if (template in known and not blank) or bool(table or template) == blank:
                continue
            if blank:
                beside = [word for word in (*found[d : d + 1], *found[c - 1 : c]) if word in known]
                return (beside[0], beside[0]) if beside else ("", "")
            return table or _nearest(template, known), template
        return "", ""

    def strange(self, words: Iterable[str]) -> str:
        """The first of these words that looks like a marker and is none of the table's."""
        known = self.spellings()
        return next((word for word in words if _LIKE_A_MARKER.fullmatch(word) and word not in known), "")

    def ours(self, written: _Written) -> str:
        """What the table would write; nothing if it can't."""
        return self.text(written.expected)

    def text(self, message: Message) -> str:
        """The message as the table writes it; nothing if it can't."""
        try:
            return "".join(
                p if isinstance(p, str) else p.text for p in pieces(self.fmt, message, bool(message.reasoning))
            )
        except RenderError:
            return ""

    def words(self) -> re.Pattern[str]:
        """Markers whole, anything that looks like one, then words, white space and single characters."""
        known = "|".join(re.escape(text) for text in sorted(self.spellings(), key=len, reverse=True))
        return re.compile((f"{known}|" if known else "") + r"<[^<>\s]{1,60}>|\[/?[A-Z_]+\]|\s+|\w+|.", re.DOTALL)

    def spellings(self) -> set[str]:
        """Every marker and every delimiter of the calls' bodies, as text."""
        found = {spelled(s) for m in self.fmt.markers for s in m.spellings} | set(self.fmt.specials)
        for state in self.fmt.states:
            if state.codec:
                found |= {spelled(s) for s in state.codec.spellings()}
        return found - {""}

    def line_of(self, text: str) -> int | None:
        """The line of the template that holds this text, or the longest part or beginning of it."""
        lines = [f"{line}\0" + line.replace("\\n", "\n") for line in self.source.split("\n")]
        parts = sorted({text, *re.split(r"\s+", text)}, key=len, reverse=True)
        beginnings = (parts[0][:length] for length in range(len(parts[0]) - 1, _SHORTEST, -1))
        for part in (*parts, *beginnings):
            if len(part) < 2:
                continue
            for number, line in enumerate(lines, 1):
                if part in line:
                    return number
        return None


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    both = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))


def _overlap(text: str, spelling: str) -> int:
    """How much of `spelling` stands at the end of `text`, if not all of it."""
    return next((n for n in range(len(spelling) - 1, 0, -1) if text.endswith(spelling[:n])), 0)


def _nearest(text: str, known: set[str]) -> str:
    """The marker that is spelled most alike."""
    found = difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    return found[0] if found else ""


def _calls(message: Message) -> list[tuple[str, Any]]:
    return [(call.name, _value(call.arguments)) for call in message.tool_calls]


def _same(one: Message, other: Message) -> bool:
    return (one.reasoning, one.content, _calls(one)) == (other.reasoning, other.content, _calls(other))


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."
