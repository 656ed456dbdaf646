"""What can be wrong with a reply: the causes, each with why it matters and what to do about it.

A finding names the layer (`raw`, `one-shot`, `stream`), the field, the character, the token and the strand; its cause is a
key of `CAUSES`. Keys are short and stable, for counting.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from unbraid.events import Strand

Layer = Literal["raw", "one-shot", "stream"]
Level = Literal["error", "warning", "note"]


class Cause(NamedTuple):
    """A kind of fault."""

    title: str
    why: str
    remedy: str


CAUSES: dict[str, Cause] = {
    "special_stripped": Cause(
        "special token stripped by the detokeniser",
        "a token that the text needs, or that a parser waits for, was dropped when ids became text",
        "let the engine keep special tokens (`skip_special_tokens: false`) and hide them by the format; for end tags that "
        "readers expect, `keep_special_tokens`",
    ),
    "marker_eaten": Cause(
        "marker eaten by the wrong parser",
        "characters that only look like markup were taken for it, so text that the model wrote is gone",
        "match markers by token id, and only in the states in which the format has them",
    ),
    "marker_leaked": Cause(
        "markup left in the text",
        "the format's own delimiters reach readers and programs",
        "let the parser of this format run on every path, and drop control tokens that no field shows",
    ),
    "reasoning_in_content": Cause(
        "reasoning in content",
        "thoughts are shown as the answer, and programs that read the answer break",
        "start the parser in the state in which the prompt ends, and check that the reasoning parser is this format's",
    ),
    "content_in_reasoning": Cause(
        "content in reasoning",
        "the answer is hidden among the thoughts; clients see an empty reply",
        "start the parser in the state in which the prompt ends: with thinking off there's no end of reasoning to wait for",
    ),
    "call_lost": Cause(
        "call lost",
        "the agent never learns that the model called a tool",
        "check that the tool-call parser is this format's, and that it runs on this path",
    ),
    "call_invented": Cause(
        "text taken for a call",
        "a tool is run that the model never called: an injection",
        "match markers by token id; text without them is never a call",
    ),
    "call_name": Cause(
        "call's name damaged", "clients look the name up: half a name is no tool", "send a name once, and whole"
    ),
    "call_index": Cause(
        "call's index wrong",
        "clients join the pieces of a call by its index: calls overwrite each other or melt together",
        "number the calls of a choice from 0, in order, on every delta",
    ),
    "call_id": Cause(
        "call's id wrong",
        "the tool's result can't be told to which call it answers",
        "give every call an id of its own, in its first delta",
    ),
    "argument_type": Cause(
        "argument type changed",
        "the tool gets a text where its schema says number, boolean, list or object (or the other way round)",
        "convert arguments by the tool's JSON schema, `$ref`, `anyOf` and nullable types included",
    ),
    "arguments_rewritten": Cause(
        "arguments re-serialised",
        "the bytes differ from the model's: caches miss, signatures fail, and a stream joined from both is broken JSON",
        "pass JSON bodies on as the model wrote them",
    ),
    "arguments_broken": Cause(
        "arguments are no JSON",
        "every client fails on the call",
        "end a body by its own syntax, not at the first closing marker; `{}` for no arguments, never an empty text",
    ),
    "white_space": Cause(
        "white space changed",
        "code and exact-match edits break",
        "strip only the white space that the format's markers own",
    ),
    "edge_space": Cause(
        "white space beside markers changed",
        "readers see empty lines at the ends of a text; a text that is sent back has another prompt; a stream shows a blank answer",
        "let the format say which white space its markers own, in both forms alike",
    ),
    "entities": Cause(
        "entities decoded or encoded",
        "`&amp;` in a file became `&`, or the reverse",
        "hand values on verbatim unless the format escapes them",
    ),
    "character_broken": Cause(
        "character broken",
        "a character split over tokens was decoded too early",
        "decode bytes incrementally, holding an incomplete character back",
    ),
    "text_cut": Cause(
        "end of the text lost",
        "files and arguments end too early, with a sound finish_reason",
        "flush what is held back when the stream ends, whatever came in the last step",
    ),
    "text_lost": Cause("text lost", "something that the model wrote never arrives", "compare the parser's input and output"),
    "text_doubled": Cause(
        "text doubled", "the reader sees a piece twice", "let one place own the buffer of a stream, not two"
    ),
    "text_added": Cause(
        "text added", "the reply holds text that the model didn't write", "look for what writes into this field beside the parser"
    ),
    "text_changed": Cause(
        "text changed", "the reply isn't what the model wrote", "look for a filter or re-encoding between engine and client"
    ),
    "finish_reason": Cause(
        "finish reason wrong",
        "clients decide by it: run the tool, ask for more, or show an error",
        "`length` wins; `tool_calls` takes a natural end and a complete call",
    ),
    "stop_string": Cause(
        "stop string mishandled",
        "the answer shows the stop text, or was cut somewhere else than at it",
        "scope stop strings to content and take them out of it",
    ),
    "empty_delta": Cause(
        "empty delta", "some clients take an empty piece for the end, or for a new block", "send a chunk when there's something in it"
    ),
    "stream_order": Cause(
        "stream out of order",
        "clients have closed the message, or never do",
        "role first, then deltas, one finish_reason a choice, `[DONE]` last",
    ),
    "stream_broken": Cause(
        "stream broken", "clients stop here", "send every event as `data:` and one JSON object"
    ),
    "wrong_type": Cause(
        "field of another type",
        "typed clients refuse the whole reply, others fail where they read the field",
        "give every field the type that the protocol says; arguments are JSON as a text",
    ),
    "stream_error": Cause(
        "error inside the stream", "the reply is incomplete", "the engine's log says why; a client must not take this for an end"
    ),
    "not_streamed": Cause(
        "buffered, not streamed",
        "a long argument arrives in one piece at the end: no progress, and time-outs",
        "emit arguments as they come",
    ),
    "logprobs": Cause(
        "logprobs misaligned",
        "`logprobs.content` doesn't spell the content, so whoever scores answers scores something else",
        "attach each token's entry to the text that it belongs to, by its span",
    ),
    "hidden_reasoning": Cause(
        "hidden reasoning visible",
        "the client was not to see the thoughts, and can",
        "filter by span: text, logprobs, token ids and delimiters alike",
    ),
    "usage": Cause(
        "usage wrong", "cost and limits are computed from it", "count tokens by their spans: reasoning tokens are part of the completion's"
    ),
    "reasoning_fields": Cause(
        "reasoning fields disagree",
        "`reasoning` and `reasoning_content` say different things, so what is seen depends on the client",
        "write both from the same text",
    ),
    "constraint_off": Cause(
        "constraint not enforced",
        "the request forced a form and the reply doesn't have it",
        "switch the grammar on where reasoning ends, not before and not never; check that it compiled",
    ),
    "choices_mixed": Cause(
        "choices mixed up", "text of one choice stands in another", "keep all state per choice"
    ),
    "prefill": Cause(
        "prefill repeated or lost", "the continued message doesn't fit its beginning", "send only what is new"
    ),
    "server_error": Cause(
        "server error", "the request has no reply", "the server's log says why; what a model writes must never raise"
    ),
    "refused": Cause("request refused", "this case couldn't be tried here", "nothing, if the endpoint doesn't offer this"),
    "not_reproducible": Cause(
        "not reproducible",
        "the same greedy, seeded request has another answer: layers of different runs can't be compared to the byte",
        "temperature 0, one request at a time, prefix caching off; then look for batch-dependent kernels",
    ),
    "off_format": Cause(
        "output leaves its format",
        "the model (or its chat template, or a grammar) writes what the format doesn't know",
        "check that the format is this model's, and its chat template",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the raw layer."""

    index: int
    id: int | None
    text: str
    special: bool

    def __str__(self) -> str:
        name = f"{self.id} " if self.id is not None else ""
        return f"token {self.index}: {name}{self.text!r}{' (special)' if self.special else ''}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that isn't as it should be, and where."""

    case: str
    layer: Layer
    field: str
    """As a path into the message: `content`, `tool_calls[0].function.arguments`."""
    cause: str
    message: str
    level: Level = "error"
    choice: int = 0
    offset: int | None = None
    """Character of the field at which it begins."""
    expected: str | None = None
    """What should stand there, from a little before the offset on."""
    got: str | None = None
    raw_offset: int | None = None
    """Character of the raw text to which the offset belongs."""
    token: Token | None = None
    strand: Strand | None = None
    also: tuple[str, ...] = ()
    """Other fields of the same reply that differ."""

    @property
    def title(self) -> str:
        return CAUSES[self.cause].title

    @property
    def why(self) -> str:
        return CAUSES[self.cause].why

    @property
    def remedy(self) -> str:
        return CAUSES[self.cause].remedy

    @property
    def place(self) -> str:
        """Layer, choice, field and character, for people."""
        choice = f" choice {self.choice}" if self.choice else ""
        at = f" at character {self.offset}" if self.offset is not None else ""
        return f"{self.layer}{choice} {self.field}{at}"

    def object(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "title": self.title, "why": self.why, "remedy": self.remedy}


def excerpt(text: str, at: int, room: int = 60) -> str:
    """A piece of a text around a place, with ellipses where more stands."""
    start, stop = max(0, at - room // 3), min(len(text), at + room)
    return f"{'…' if start else ''}{text[start:stop]}{'…' if stop < len(text) else ''}"


def first_difference(one: str, other: str) -> int:
    """The first character at which two texts differ; their common length if one begins the other."""
    at, end = 0, min(len(one), len(other))
    step = 4096  # large pieces first: texts are mostly equal
    while at < end and one[at : at + step] == other[at : at + step]:
        at += step
    at = min(at, end)
    while at < end and one[at] == other[at]:
        at += 1
    return at
