"""Calls written as a tag with the function's name, in it a tag for each parameter around its raw value.

    <function=get_weather>            <invoke name="get_weather">
    <parameter=city>                  <parameter name="city">Oslo</parameter>
    Oslo                              </invoke>
    </parameter>
    </function>
    frame="\\n"                       quoted=True

Nothing in a value is escaped, so its end is a rule, and the rule is the table's: see `XmlParameters.ends`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from unbraid.codecs.base import (
    HEADER_LIMIT,
    SPACE,
    Reach,
    Reader,
    Sink,
    ValueReader,
    WrittenCall,
    literal,
    partial,
)
from unbraid.codecs.json_scanner import Scanner
from unbraid.codecs.tagged_values import TagReader, first_reach, value_reach
from unbraid.grammar.raw_values import raw_value, text_and_rest, typed_value
from unbraid.grammar.schemas import properties
from unbraid.grammar.tree import Node, choice, optional, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.search import Search
from unbraid.table import ANY, Piece, Spelling, spelled

# A name holds no special token. The second is what could still become a name and the `>` behind it: the two must agree.
# Without a `>` nothing is tried: a long run of white space would be, from each of its characters on, for each token.
_NAME = (
    r"""(?=[^>]*>)\s*(?:"(?P<double>[^"\n\ud800-\udfff]*)"|'(?P<single>[^'\n\ud800-\udfff]*)'"""
    r"""|(?P<bare>[^"'\s>\ud800-\udfff][^>\n\ud800-\udfff]*?))\s*"""
)
_FUNCTION = _NAME.replace("(?P<bare>", "(?P<bare>(?![^>]*<)")
"""A bare name of a function holds no `<`: that is the next tag, and this one has lost its end."""
_HALF_NAME = re.compile(
    r"""\s*(?:"[^"\n\ud800-\udfff]*(?:"[^>\ud800-\udfff]*)?|'[^'\n\ud800-\udfff]*(?:'[^>\ud800-\udfff]*)?"""
    r"""|[^"'\s>\ud800-\udfff][^>\n\ud800-\udfff]*\s*)?"""
)
_SHORT_NAME = r"[^<>\n\ud800-\udfff]{1,64}"
_CDATA, _UNCDATA = "<![CDATA[", "]]>"
_UNCDATA_SEARCH = Search([_UNCDATA])


@dataclass(frozen=True, slots=True)
class XmlParameters:
    """A tag with the function's name, in it a tag for each parameter with its value as raw text. `call=()`: a header gave the name, and
    there are only the parameters.

    The tags are given by what stands before the name and what closes the element; between the two stand the name, in quotes of
    either kind or bare, and `>`. `frame`: the newline that the format puts directly inside a parameter on both sides; `ANY`: white space
    there is never part of the value. `cdata`: a value may stand in `<![CDATA[...]]>`, and is then all that's between the brackets.
    `attribute`: the parameter's attribute that says whether the value is a string (`string="true"`) or JSON. `wrappers`: names
    of a parameter that models invent to hold all arguments as one object.

    `ends`: which closing tag ends a value. `followed`: only one that, after white space, is followed by the next parameter, the
    function's end or the end of the turn, so that a value may contain the tag. `first`: the first one. A framed value
    (its opening tag is followed by a newline) always ends by a closing tag at the start of a line that is `followed`.
    """

    call: Spelling = ("<function=",)
    uncall: Spelling = ("</function>",)
    parameter: Spelling = ("<parameter=",)
    unparameter: Spelling = ("</parameter>",)
    frame: str = ""
    cdata: bool = False
    quoted: bool = False
    attribute: str = ""
    ends: Literal["first", "followed"] = "followed"
    wrappers: tuple[str, ...] = ()
    untyped: Literal["string", "json"] = "string"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return tuple(_with_blanks(self.call))

    def spellings(self) -> Iterable[Spelling]:
        return tuple(tag for tag in (self.call, self.uncall, self.parameter, self.unparameter) if tag)

    def compile(self, alphabet: Any) -> _Xml:
        return _Xml(self, alphabet, "tokens", _Xml(self, alphabet, "text", None))

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call = calls[0]
        out: list[Piece] = [*self.call, f"{self._named(call.name)}>\n"] if self.call else []
        for key, value, json_text in call.items():
            text = self._guarded(value) if json_text.startswith('"') else json_text
            kind = (
                f' {self.attribute}="{"true" if json_text.startswith(chr(34)) else "false"}"' if self.attribute else ""
            )
            out += [
                *self.parameter,
                f"{self._named(key)}{kind}>{self._inside}{text}{self._inside}",
                *self.unparameter,
                "\n",
            ]
        return (*out, *self.uncall)

    def _named(self, name: str) -> str:
        """A name as it stands in its tag: in quotes that it doesn't hold."""
        quote = "" if not self.quoted else "'" if '"' in name and "'" not in name else '"'
        return f"{quote}{name}{quote}"

    @property
    def _inside(self) -> str:
        """What is written directly inside a parameter."""
        return "" if self.frame == ANY else self.frame

    def _guarded(self, text: str) -> str:
        """A text that can't be told from markup or framing, in brackets if the syntax has them."""
        if not self.cdata or _UNCDATA in text or (text == text.strip() and "<" not in text):
            return text
        return f"{_CDATA}{text}{_UNCDATA}"

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        parts: list[Node] = [exactly(*self.call, f"{self._named(name)}>\n")] if self.call else []
        for key, part, required in properties(schema):
            item = self._parameter_grammar(self._named(key), part)
            parts.append(item if required else optional(item))
        return sequence(*parts, exactly(*self.uncall))

    def _parameter_grammar(self, key: str, schema: Mapping[str, Any]) -> Node:
        """One parameter: as text if it may be a string, as JSON otherwise."""
        close = (self._inside, *self.unparameter, "\n")
        options: list[Node] = []
        text, other = text_and_rest(schema)
        if text is not None:
            kind = f' {self.attribute}="true"' if self.attribute else ""
            opening = exactly(*self.parameter, f"{key}{kind}>")
            options.append(sequence(opening, raw_value(text, close, self._forbidden(), self._inside)))
        if other is not None:
            kind = f' {self.attribute}="false"' if self.attribute else ""
            opening = exactly(*self.parameter, f"{key}{kind}>{self._inside}")
            # JSON has no line that begins with a tag.
            value = typed_value(other, () if self._inside else self._forbidden())
            options.append(sequence(opening, value, exactly(*close)))
        return choice(options)

    def _forbidden(self) -> tuple[str, ...]:
        """What may not stand in a raw value, because the reader could end it there."""
        tags = (self.unparameter, self.uncall, self.parameter, self.call)
        texts = [spelled(found) for tag in tags if len(tag) == 1 for found in _with_blanks(tag)]
        return tuple(f"{self._inside}{text}" for text in texts)


def _with_blanks(tag: Spelling) -> list[Spelling]:
    """A tag of ordinary text with the blanks that models put into it, `< parameter =`, `</ parameter >`, or lose, `<paramname=`."""
    if len(tag) != 1 or not isinstance(tag[0], str):
        return [tag] if tag else []
    opening = "</" if tag[0].startswith("</") else "<"
    end = tag[0][-1]
    name = tag[0][len(opening) : -1]
    names = dict.fromkeys([name, name.replace(" ", ""), name.replace(" ", "Ġ")])  # the last: a blank never decoded
    return [(f"{opening}{before}{name}{after}{end}",) for name in names for before in ("", " ") for after in ("", " ")]


class _Xml:
    """`XmlParameters` for an alphabet."""

    def __init__(self, codec: XmlParameters, alphabet: Any, only: str, spelled_out: _Xml | None) -> None:
        self.codec = codec
        self.spelled_out = spelled_out
        """The same syntax spelled with ordinary tokens: for a call that was opened so."""

        def spell(tag: Spelling) -> tuple[str, ...]:
            return tuple(alphabet.spell(_with_blanks(tag), only=only))

        self.calls, self.uncalls = spell(codec.call), spell(codec.uncall)
        self.parameters, self.unparameters = spell(codec.parameter), spell(codec.unparameter)
        self.sure = len(codec.parameter) > 1
        """The tags hold a special token: a parameter's tag in a value can only mean that the value's closer is missing."""
        attribute = (
            rf"""(?:{re.escape(codec.attribute)}\s*=\s*["']?(?P<attribute>true|false)["']?\s*)?"""
            if codec.attribute
            else ""
        )
        self.call = re.compile(rf"(?:{literal(self.calls) or '(?!)'}){_FUNCTION}(?P<empty>/)?>")
        self.parameter = re.compile(rf"(?:{literal(self.parameters)}){_NAME}{attribute}>")
        self.uncall = re.compile(literal(self.uncalls) or "(?!)")
        self.unparameter = re.compile(literal(self.unparameters))
        self.closers = [*self.unparameters, *self.uncalls]
        self.openers = (*self.parameters, *self.uncalls, *self.calls)
        """What may follow a closed parameter; behind a call, another one."""
        opening, closing = literal(self.parameters), literal(self.unparameters)
        after = rf"(?:{opening}|{literal(self.uncalls) or '(?!)'})"
        then = rf"(?:(?:{opening}){_SHORT_NAME}>\n?|{after})"
        cut = r"<(?:/?[a-z]*\Z)?"
        self.opening = re.compile(rf"\s{{0,8}}(?:{literal(self.calls) or '(?!)'}){_SHORT_NAME}>\n?")
        """How a body mostly begins."""
        self.heads = {
            "open": re.compile(rf"{self.opening.pattern}|{_SHORT_NAME}>\n?"),
            "body": re.compile(rf"\s{{0,8}}{then}|{_SHORT_NAME}>\n?|\s{{1,8}}"),
            "value": re.compile(
                rf"\s{{0,8}}(?:(?:{closing})(?:\s{{0,8}}{after})?|{cut})|/?[a-z]{{1,20}}>(?:\s{{0,8}}{after})?"
            ),
            "text": re.compile(
                rf"\s{{0,8}}(?:(?:{closing})(?:\s{{0,8}}{then})?|{cut})|/?[a-z]{{1,20}}>(?:\s{{0,8}}{then})?"
            ),
        }
        """How what comes next is cut, by the reader's step, so that it may be known: the tags of a call and what of them is there. Behind a
        value that isn't `text` no further than up to the next name: what it comes to depends on the request, and so does what follows."""
        self.trims = codec.frame == ANY
        ends = sorted([*self.closers, *self.parameters], key=len, reverse=True)
        self.ends = Search(ends)
        """For what may end a value."""
        self.line_ends = Search([f"\n{tag}" for tag in ends])
        """For what may end a framed one: it begins a line."""

    def reader(self, sink: Sink) -> Reader:
        return _XmlReader(sink, self)

    def trimmed_until(self, text: str, at: int) -> int:
        """How far a value's text goes for certain where white space at its end isn't part of it."""
        return at + len(text[at : self.ends.find(text, at)].rstrip())


def _name(match: re.Match[str]) -> str:
    double, single, bare = match.group("double", "single", "bare")
    return str(double or single or bare or "").strip()


class _XmlReader(TagReader):
    """Reads `<function=NAME> <parameter=KEY>VALUE</parameter> ... </function>`."""

    __slots__ = ("framed", "json", "spec", "start")

    first: ClassVar[str] = "open"
    between: ClassVar[frozenset[str]] = frozenset(("open", "body", "closing", "uncdata"))
    closable: ClassVar[frozenset[str]] = frozenset(("body", "closing"))

    def __init__(self, sink: Sink, spec: _Xml) -> None:
        super().__init__(sink)
        self.spec = spec
        self.framed = False
        self.start = False
        self.json: Scanner | None = None

    def begin(self) -> None:
        if not self.spec.codec.call:
            self.name = self.sink.called
            self.named = True
            self.sink.call_start(0, self.name)
            self.step = "body"

    @property
    def streams(self) -> bool:
        return self.step in ("value", "cdata") and not self.start and self.value is not None and self.value.verbatim

    def plain_until(self) -> Callable[[str, int], int] | None:
        if not self.streams:
            return None
        if self.step == "cdata":
            return _UNCDATA_SEARCH.find
        return self.spec.trimmed_until if self.spec.trims else self._ends.find

    def reach(self) -> Callable[[str, int], Reach] | None:
        value = self.value
        if value is None or self.step != "value" or self.private:
            return super().reach()
        until = self.spec.trimmed_until if self.spec.trims else self._ends.find
        reach = functools.partial(value_reach, until, self.spec.heads["text" if value.verbatim else "value"])
        if not self.moves_on:
            return reach
        return functools.partial(
            first_reach, value.begins, self.spec.ends if self.framed and self.start else None, reach
        )

    @property
    def moves_on(self) -> bool:
        return self.step == "value" and self.value is not None and (self.start or bool(self.value.begins))

    @property
    def head(self) -> re.Pattern[str] | None:
        return self.spec.heads.get("text" if self.streams else self.step)

    @property
    def _ends(self) -> Search:
        return self.spec.line_ends if self.framed else self.spec.ends

    def take_step(self, text: str, at: int, final: bool) -> int:
        return _XML_STEPS[self.step](self, text, at, final)

    def _open(self, text: str, at: int, final: bool) -> int:
        other = self.spec.spelled_out
        if other and other.calls != self.spec.calls and text.startswith(other.calls, at):
            self.spec = other
        if text.startswith(self.spec.calls, at) and (stop := self._cut_short(text, at)):
            return stop
        if match := self.spec.call.match(text, at, at + HEADER_LIMIT):
            self.begin_call()
            self.name = self.sink.expand(_name(match))
            if not self.name:
                return self.fail(at, "a call without a name")
            self.named = True
            self.sink.call_start(match.end(), self.name)
            self.step = "body"
            if match.group("empty"):
                self.close_object(match.end())
                self.done = True
            return match.end()
        if self._half_tag(text, at, final, self.spec.calls):
            return -1
        return self.no_body(text, at, final, spelled(self.spec.codec.call))

    def _cut_short(self, text: str, at: int) -> int:
        """`</function>` before any `>` is a call whose tag lost its end. Returns where it ends, 0: it isn't one."""
        head = at + next(len(tag) for tag in self.spec.calls if text.startswith(tag, at))
        match = self.spec.uncall.search(text, head, at + HEADER_LIMIT)
        if not match or ">" in text[head : match.start()]:
            return 0
        self.name = self.sink.expand(text[head : match.start()]).strip().strip("\"'")
        if not self.name or re.search(r"[\s<]", self.name):
            return 0
        self.sink.note("cut_tag", at, f"{spelled(self.spec.codec.call)} without its end")
        self.named = True
        self.sink.call_start(match.start(), self.name)
        self.close_object(match.end())
        self.done = True
        return match.end()

    def _half_tag(self, text: str, at: int, final: bool, tags: Sequence[str]) -> bool:
        """Whether a tag may have begun at `at` whose end hasn't come."""
        if final or len(text) - at >= HEADER_LIMIT:
            return False
        if partial(text, at, tags):
            return True
        for tag in tags:
            if text.startswith(tag, at):
                start = at + len(tag)
                half = _HALF_NAME.match(text, start)
                stop = half.end() if half else start
                # What cuts the name short may have begun in it.
                begun = range(max(start, stop - max(map(len, self.spec.uncalls), default=0)), stop + 1)
                return stop == len(text) or any(partial(text, at, self.spec.uncalls) for at in begun)
        return False

    def _body(self, text: str, at: int, final: bool) -> int:
        spec = self.spec
        if match := spec.parameter.match(text, at, at + HEADER_LIMIT):
            self._begin_parameter(text, match)
            return match.end()
        if match := spec.uncall.match(text, at):
            self.close_object(match.end())
            self.done = True
            return match.end()
        if text[at] == "{" and not self.given:  # the arguments as one JSON object in place of parameters
            self.json = Scanner()
            self.step = "json"
            return at
        if not final and (
            self._half_tag(text, at, final, spec.parameters)
            or partial(text, at, spec.uncalls)
            or partial(text, at, spec.calls)
        ):
            return -1
        marker = self.sink.marker_at(text, at, final)
        if marker < 0:
            return -1
        if marker > 0 or text.startswith(spec.calls, at):
            if spec.codec.uncall:
                self.sink.note("missing_closer", at, f"{spelled(spec.codec.uncall)} is missing")
            self.close_object(at)
            self.done = True
            return at
        end = spelled(spec.codec.uncall) or "the end of the message"
        return self.expected(at, f"a parameter or {end}")

    def _begin_parameter(self, text: str, match: re.Match[str]) -> None:
        codec = self.spec.codec
        attribute = match.group("attribute") if codec.attribute else None
        untyped = "json" if codec.attribute and not attribute else codec.untyped
        self.open_value(
            match.end(), self.sink.expand(_name(match)), verbatim=None if attribute is None else attribute == "true", untyped=untyped,
            wrappers=codec.wrappers,
        )  # fmt: skip
        self.framed = False
        self.start = True
        self.step = "frame" if codec.frame or codec.cdata else "value"

    def _json_body(self, text: str, at: int, final: bool) -> int:
        scanner = self.json
        assert scanner is not None
        stop = scanner.scan(text, at)
        if stop > at:
            self.add(stop, scanner.repaired(text, at, stop, self.sink))
        if scanner.error:
            return self.fail(stop, scanner.error)
        if scanner.done:
            self.whole = True
            self.step = "closing"
        return stop if stop > at else -1

    def _closing(self, text: str, at: int, final: bool) -> int:
        """Behind a body that was one JSON object."""
        match = self.spec.uncall.match(text, at)
        if not match and not final and partial(text, at, self.spec.uncalls):
            return -1
        stop = match.end() if match else at
        self.hand_on()
        self.sink.call_end(stop)
        self.done = True
        return stop

    def _frame(self, text: str, at: int, final: bool) -> int:
        """Directly behind a parameter's tag: a newline there is the format's."""
        codec = self.spec.codec
        if codec.cdata:
            inside = self.skip_space(text, at)
            if inside == len(text) and not final:
                self.waits_on_blank = True
                return -1
            if text.startswith(_CDATA, inside):
                self.step, self.start = "cdata", False
                return inside + len(_CDATA)
            if not final and partial(text, inside, [_CDATA]):
                return -1
        if self.spec.trims:
            at = self.skip_space(text, at)
            if at < len(text):
                self.step = "value"
            return at
        self.step = "value"
        if codec.frame and text.startswith(codec.frame, at):
            self.framed = True
            return at + len(codec.frame)
        return at

    def _cdata(self, text: str, at: int, final: bool) -> int:
        """Between the brackets: nothing but their end has a meaning."""
        stop = _UNCDATA_SEARCH.find(text, at)
        self.take(text, at, stop)
        if text.startswith(_UNCDATA, stop):
            self.step = "uncdata"
            return stop + len(_UNCDATA)
        return stop if stop > at else -1

    def _uncdata(self, text: str, at: int, final: bool) -> int:
        """Behind the brackets: the parameter's closing tag."""
        match = self.spec.unparameter.match(text, at)
        if not match and not final and partial(text, at, self.spec.unparameters):
            return -1
        if not match:
            self.sink.note("missing_closer", at, f"{spelled(self.spec.codec.unparameter)} is missing")
        stop = match.end() if match else at
        self.close_value(at, stop)
        self.step = "body"
        return stop

    # Values

    def _value(self, text: str, at: int, final: bool) -> int:
        """Read on in a value; what can't be decided yet stays."""
        start = at
        if self.framed and self.start and self.spec.ends.stands(text, at):
            verdict, stop = self._tag_ends(text, at, final)
            if not self._belongs(verdict, at):
                return self._settle(text, start, at, verdict, stop)
        ends = self._ends
        while (at := ends.find(text, at)) < len(text):
            tag = at + self.framed  # behind the newline
            verdict, stop = self._tag_ends(text, tag, final)
            if not self._belongs(verdict, tag):
                return self._settle(text, start, at, verdict, stop)
            at += 1
        stop = self._trimmed(text, start, len(text))
        self.take(text, start, stop)
        self.start = self.start and start == stop
        if stop < len(text):
            self.waits_on_blank = not final
            return stop if stop > start else -1
        return stop

    def _belongs(self, verdict: str, at: int) -> bool:
        """Whether what stands at `at` is the value's own text. If it is a tag of the format's, that is one of two readings."""
        if verdict == "tag":
            self.sink.note("ambiguous_value", at, "a tag is taken for text of the value around it")
        return verdict in ("data", "tag")

    def _trimmed(self, text: str, start: int, stop: int) -> int:
        """Where the value's text ends for now: white space at its end may not be part of it."""
        return start + len(text[start:stop].rstrip()) if self.spec.trims else stop

    def _settle(self, text: str, start: int, at: int, verdict: str, stop: int) -> int:
        """The value's text goes to `at`; there it ends or must wait."""
        at = self._trimmed(text, start, at)
        self.take(text, start, at)
        self.start = self.start and at == start
        if verdict == "wait":
            return at if at > start else -1
        if verdict == "missing":
            self.sink.note("missing_closer", at, f"{spelled(self.spec.codec.unparameter)} is missing")
        self.close_value(at, stop)
        self.step = "body"
        return stop

    def _tag_ends(self, text: str, at: int, final: bool) -> tuple[str, int]:
        """What stands at `at` in a value (a framed one: at the beginning of a line): a tag that `ends` it, for another `missing` one too, or
        is a `tag` but part of it; no tag, but `data`; or what has to `wait`. And how far it goes."""
        spec = self.spec
        if match := spec.unparameter.match(text, at):
            if not self.framed and (spec.codec.ends == "first" or (spec.codec.frame and not spec.trims)):
                return "ends", match.end()
            return self._followed(text, match.end(), final)
        if match := spec.uncall.match(text, at):
            verdict, _ = self._followed(text, match.end(), final, after_call=True)
            return ("missing", at) if verdict == "ends" else (verdict, at)
        if match := spec.parameter.match(text, at, at + HEADER_LIMIT):
            return ("missing" if self._expected(match) else "tag"), at
        if not final and (partial(text, at, spec.closers) or self._half_tag(text, at, final, spec.parameters)):
            return "wait", at
        return "data", at

    def _expected(self, match: re.Match[str]) -> bool:
        """Whether this tag opens a parameter of the tool that isn't given yet: then the open value has lost its closer."""
        key, keys = self.sink.expand(_name(match)), self.sink.tools.keys(self.name)
        return key not in self.given and (self.spec.sure or key in keys)

    def _followed(self, text: str, at: int, final: bool, after_call: bool = False) -> tuple[str, int]:
        """Whether what follows a closing tag that ends at `at` lets it be one."""
        spec = self.spec
        space = SPACE.match(text, at)
        next = space.end() if space else at
        if next == len(text):
            self.waits_on_blank = not final
            return ("ends", at) if final else ("wait", at)
        openers = spec.calls if after_call else spec.openers
        if text.startswith(openers, next):
            return "ends", at
        if not final and partial(text, next, openers):
            return "wait", at
        marker = self.sink.marker_at(text, next, final)
        if marker < 0:
            return "wait", at
        return ("ends" if marker else "tag"), at

    def place(self) -> Hashable | None:
        if self.json or self.done or self.private or (self.gathers and self.step not in ("frame", "value")):
            return None
        stage = None if self.value is None else self.value.stage
        return self.spec, self.step, self.framed, self.start, self.named, stage, bool(self.given)

    def resume(self, place: Any) -> None:
        opens = self.step == "frame"
        self.spec, self.step, self.framed, self.start, self.named, stage, _ = place
        self.catch_up(stage, opens=opens)

    def whole_value(self, tail: str) -> str | None:
        # Before the text: what the format puts there came with the tail.
        return None if self.step == "frame" else super().whole_value(tail)

    def value_reader(self) -> ValueReader | None:
        return None if self.step == "frame" else super().value_reader()

    @property
    def frame(self) -> str:
        return self.spec.codec.frame if self.framed or self.spec.trims else ""


_XML_STEPS: dict[str, Callable[[_XmlReader, str, int, bool], int]] = {
    "open": _XmlReader._open,
    "body": _XmlReader._body,
    "frame": _XmlReader._frame,
    "value": _XmlReader._value,
    "json": _XmlReader._json_body,
    "closing": _XmlReader._closing,
    "cdata": _XmlReader._cdata,
    "uncdata": _XmlReader._uncdata,
}
