"""What users and tools write is text, also where it spells a special token.

A chat template puts their words between its own markers, and a tokenizer makes the same ids of either. So a user's `<|im_end|>`, or
that of a page which a tool has read, would end the turn, and what follows would pass for somebody else's. Therefore such
spellings are rendered with a seam behind their first character, and the prompt is tokenized from seam to seam: all characters are
there, and none of the pieces spells the token. Every tokenizer can do that, one behind HTTP as well.

What tools are made of is such words, too, all of it: they come from servers of others. So are the arguments of calls: data, whoever wrote
them. What the system and the assistant say may mean its tokens: there are system prompts with `[THINK]` in them, and templates
look for `</think>` in the history.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unbraid.chat_template import written_object
from unbraid.errors import RequestError
from unbraid.search import either
from unbraid.table import Format
from unbraid.vocabulary import Vocabulary

ROLES = frozenset({"user", "tool"})


def markup(vocabulary: Vocabulary, format: Format, template: str) -> list[str]:
    """The spellings that mean something in a prompt: control tokens, and what format or template write as markup. Other added
    tokens (runs of blanks, Gemma's `<table>`) are how the tokenizer spells ordinary text."""
    known = set(format.specials)
    return [
        text
        for text, id in vocabulary.special.items()
        if len(text) > 1 and not text.isspace() and (id in vocabulary.control or text in known or text in template)
    ]


class Seams:
    """Sews messages, and cuts what was rendered of them."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self._spelled = re.compile(either((text, "") for text in sorted(spellings, key=len, reverse=True)))

    def sewn(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[list[dict[str, Any]], list[Any] | None, str]:
        """Messages and tools with seams in the words of users and tools and in what calls hold, and the seam; `""` if none is needed."""
        needle = _Needle(self)
        sewn = [needle.sewn(message) if message.get("role") in ROLES else needle.said(message) for message in messages]
        offered = None if tools is None else needle.sewn(list(tools))
        return sewn, offered, needle.seam if needle.used else ""

    def pieces(self, text: str) -> list[str]:
        """Cut inside all spellings, those that overlap as well."""
        pieces: list[str] = []
        last = 0
        match = self._spelled.search(text)
        while match:
            at = match.start() + 1
            pieces.append(text[last:at])
            last = at
            match = self._spelled.search(text, at)
        return [*pieces, text[last:]]


class _Needle:
    """Sews the texts of one request."""

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self.seam = secrets.token_hex(16)  # nobody can have written it
        self.used = False

    def sewn(self, value: Any) -> Any:
        """The same with seams in every text of it: a schema's titles, defaults and names of parameters get into the prompt, too."""
        if isinstance(value, str):
            pieces = self._seams.pieces(value)
            self.used = self.used or len(pieces) > 1
            return self.seam.join(pieces)
        if isinstance(value, Mapping):
            return {self.sewn(key): self.sewn(inner) for key, inner in value.items()}
        return [self.sewn(inner) for inner in value] if isinstance(value, list) else value

    def said(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message of the system or the assistant: of all it says, its calls are data."""
        calls = message.get("tool_calls")
        return {**message, "tool_calls": [self._call(call) for call in calls]} if calls else dict(message)

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """JSON may write a character otherwise, so what it spells is sewn; what needs no seam stays to the letter."""
        function = call["function"]
        arguments = written_object(function["arguments"])
        try:
            sewn = self.sewn(arguments)
        except RecursionError as error:
            message = f"messages: the arguments of {function['name']!r} are nested too deeply"
            raise RequestError(message, param="messages") from error
        return {**call, "function": {**function, "arguments": function["arguments"] if sewn == arguments else sewn}}
