"""The sound server is sound for every format: what it serves is what `check` reads off the raw layer, whatever the model's way of writing."""

from __future__ import annotations

import httpx
import pytest
from broken import ANSWERS, FORMAT, TEMPLATE, Actor
from tokens import Tokens, plain

import unbraid
from unbraid.engines.scripted import ScriptedEngine
from unbraid.formats import FORMATS
from unbraid.integrity.cases import built_in, end_tokens
from unbraid.integrity.check import check
from unbraid.integrity.client import Endpoint
from unbraid.message import Message
from unbraid.server import create_app
from unbraid.table import Format

ASKED = {"reasoning": "91 a prime", "text_and_call": "First say"}
"""Cases, and which of the zoo's answers they get."""


def written(fmt: Format, answer: str) -> str:
    """An answer of the zoo in another format; what the format doesn't know, or can't say together, is left out."""
    message = unbraid.parse(FORMAT, plain(answer))
    reasoning = message.reasoning if fmt.reasons else None
    calls = message.tool_calls if fmt.calls else []
    try:
        return unbraid.render(fmt, Message(reasoning, message.content, calls))
    except unbraid.RenderError:
        return message.content or ""


class Speaker(Actor):
    """Answers in a format's own way, with a made-up tokenizer."""

    def __init__(self, fmt: Format) -> None:
        self.answers = {key: written(fmt, ANSWERS[key]) for key in ASKED.values()}
        self.tokens = Tokens(fmt, self.answers.values())
        self.end = next((self.tokens.special[text] for text in end_tokens(fmt) if text in self.tokens.special), -1)
        ScriptedEngine.__init__(
            self,
            self.tokens.vocabulary,
            [[]],
            model="actor",
            chat_template=TEMPLATE,
            end_ids=[self.end],
            context_length=8192,
        )


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=list(FORMATS))
async def test_the_sound_server_is_sound_in_every_format(fmt: Format) -> None:
    engine = Speaker(fmt)
    cases = [case for case in built_in(fmt) if case.name in ASKED]
    async with Endpoint("http://zoo", transport=httpx.ASGITransport(create_app(engine, fmt))) as endpoint:
        report = await check(endpoint, fmt, cases, vocabulary=engine.vocabulary)
    assert [str(finding) for finding in report.findings if finding.level != "note"] == []
    assert [result.status for result in report.results] == ["sound"] * len(cases)
    assert all(result.raw for result in report.results)
