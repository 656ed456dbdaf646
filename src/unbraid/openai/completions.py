"""Completions, the API of raw text: a prompt goes on, nothing is taken apart.

The same deltas, with `content` only. `Detokenizer` stands where the other protocols have a parser: it makes events of
whatever comes, without a format.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from unbraid.events import Control, Diagnostic, Event, Text
from unbraid.openai.chat import DONE, NEVER, error_object, tokens_object, usage_object
from unbraid.protocol.choice import DEFAULT_OPTIONS, Delta, Options, TokenLogprob, Usage, joined
from unbraid.protocol.wire import Template, quoted, server_sent, utf8
from unbraid.vocabulary import Vocabulary


class Detokenizer:
    """Reads ids as text, all of it content. Special tokens that aren't to be seen leave no text (`hidden`, by id)."""

    def __init__(self, vocabulary: Vocabulary, hidden: Collection[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = self._token = self._waiting = 0

    diagnostics: Sequence[Diagnostic] = ()

    def feed_text(self, text: str) -> list[Event]:
        """From an engine in text mode."""
        return [Text.make("content", *self._span(text, 0), text=text)] if text else []

    def feed(self, ids: Sequence[int]) -> list[Event]:
        events: list[Event] = []
        for id in ids:
            if id in self._hidden:
                events += self.finish("stop")
                events.append(Control.make("control", *self._span("", 1)))
                continue
            self._waiting += 1
            text = self._decoder.decode(self._vocabulary.bytes_of(id) or b"")
            if text:
                events.append(Text.make("content", *self._span(text, self._waiting), text=text))
                self._waiting = 0
        return events

    def finish(self, reason: str) -> list[Event]:
        """Half a character at the end is shown as what it is: unreadable."""
        text = self._decoder.decode(b"", final=True)
        waiting, self._waiting = self._waiting, 0
        return [Text.make("content", *self._span(text, waiting), text=text)] if text or waiting else []

    def _span(self, raw: str, tokens: int) -> tuple[str, int, int, int, int]:
        start, self._at = self._at, self._at + len(raw)
        first, self._token = self._token, self._token + tokens
        return raw, start, self._at, first, self._token


class CompletionsWriter:
    """Writes the deltas of one reply, all its choices, as Completions."""

    def __init__(
        self,
        id: str,
        created: int,
        model: str,
        options: Options = DEFAULT_OPTIONS,
        *,
        include_usage: bool = False,
        continuous_usage: bool = False,
        prompt_ids: Sequence[Sequence[int]] = (),
    ) -> None:
        self.head: dict[str, Any] = {"id": id, "object": "text_completion", "created": created, "model": model}
        self.options = options
        self.include_usage = include_usage
        self.continuous_usage = continuous_usage
        self.prompt_ids = prompt_ids
        """With `options.token_ids`: the prompt's ids of each choice."""
        self._templates: dict[int, Template] = {}
        self._offsets: dict[int, int] = {}

    def encode(self, index: int, deltas: Sequence[Delta], usage: Usage | None = None) -> bytes:
        out: list[str] = []
        for delta in deltas:
            kind, text, _, _, _, logprobs, tokens, _ = delta
            if kind == "content" and not logprobs and tokens is None and not self.continuous_usage:
                out.append(quoted(text).join(self._template(index, delta).pieces))
            elif kind in ("content", "finish"):
                out.append(server_sent(self._object(index, text if kind == "content" else "", delta, usage)))
        return utf8("".join(out))

    def end(self, usage: Usage) -> bytes:
        if not self.include_usage:
            return utf8(DONE)
        return utf8(server_sent(self.head | {"choices": [], "usage": usage_object(usage)}) + DONE)

    def error(self, message: str) -> bytes:
        return utf8(server_sent(error_object(message, type="server_error", code="engine_error")))

    def whole(self, said: Sequence[Iterable[Delta]], usage: Usage) -> dict[str, Any]:
        choices = []
        for index, deltas in enumerate(said):
            pieces = joined([delta for delta in deltas if delta.kind in ("content", "finish")])
            text = "".join([delta.text for delta in pieces if delta.kind == "content"])
            entries = tuple(entry for delta in pieces for entry in delta.logprobs or ())
            tokens = tuple(token for delta in pieces for token in delta.tokens or ())
            whole = pieces[-1]._replace(logprobs=entries or None, tokens=tokens)
            choices.append(self._choice(index, text, whole))
        return self.head | {"choices": choices, "usage": usage_object(usage)}

    def _template(self, index: int, delta: Delta) -> Template:
        template = self._templates.get(index)
        if template is None:
            template = self._templates[index] = Template(self._object(index, Template.HOLE, delta, None))
        return template

    def _object(self, index: int, text: str, delta: Delta, usage: Usage | None) -> dict[str, Any]:
        chunk = self.head | {"choices": [self._choice(index, text, delta)]}
        if self.continuous_usage and usage is not None:
            chunk["usage"] = usage_object(usage)
        elif self.include_usage:
            chunk["usage"] = None
        return chunk

    def _choice(self, index: int, text: str, delta: Delta) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "text": text, "logprobs": None, "finish_reason": None}
        if self.options.logprobs and (delta.logprobs or delta.kind == "finish"):
            choice["logprobs"] = self._logprobs(index, delta.logprobs or ())
        if delta.kind == "finish":
            choice["finish_reason"] = delta.text
        if delta.stop_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        if self.options.token_ids:
            choice |= tokens_object(delta.tokens or (), self.options)
            if index not in self._offsets and index < len(self.prompt_ids):
                choice["prompt_token_ids"] = list(self.prompt_ids[index])
        self._offsets.setdefault(index, 0)
        return choice

    def _logprobs(self, index: int, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The old shape: four lists side by side."""
        at = self._offsets.get(index, 0)
        offsets = []
        for entry in entries:
            offsets.append(at)
            at += len(entry.token)
        self._offsets[index] = at
        return {
            "tokens": [self._name(entry) for entry in entries],
            "token_logprobs": [max(entry.logprob, NEVER) for entry in entries],
            "top_logprobs": [
                {self._name(other): max(other.logprob, NEVER) for other in entry.top} for entry in entries
            ],
            "text_offset": offsets,
        }

    def _name(self, entry: TokenLogprob) -> str:
        return f"token_id:{entry.id}" if self.options.tokens_as_ids else entry.token
