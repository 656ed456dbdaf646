"""Which format a model writes, from what its files say: names, tokens, chat template.

No format brings code for this: each is known by its table. A marker counts by how few formats have it; it speaks for a
format that has it and, where the model's files show it, against one that doesn't. The chat template says more: whether
it has the format's thinking switch, what the switch's default is, whether the prompt opens the thought, and whether
what it writes for the assistant is what the table reads and would write. And a model id that a format claims counts,
too, but not against the evidence: people rename models.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unbraid.checkpoint import Checkpoint
from unbraid.errors import EngineError, RequestError
from unbraid.formats import FORMATS, format_of_model
from unbraid.parser import Parser
from unbraid.table import Format, Special, spelled, thinks

if TYPE_CHECKING:
    from unbraid.chat_template import ChatTemplate

Confidence = Literal["sure", "likely", "guess"]

_NAMED, _SWITCH, _START, _READ, _WRITTEN = 0.5, 0.1, 0.1, 0.4, 0.2
_IN_VOCABULARY_ONLY = 0.3
"""What a token counts that the chat template doesn't use: tokenizers have tokens of sisters and ancestors."""
_CANDIDATES = 12
_CLEAR, _FAIR, _LEAD = 0.6, 0.3, 0.15
"""What its markers must say for a format to be likely, and with the model's name to be so; how far it must lead to be sure without one."""
_PROMPT = ({"role": "user", "content": "Which way?"},)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason for a format, or against it."""

    weight: float
    message: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A format that it may be, and why."""

    format: Format
    score: float
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found, the likeliest first. Empty: nothing speaks for any format."""

    candidates: tuple[Candidate, ...]
    confidence: Confidence

    @property
    def format(self) -> Format | None:
        """The likeliest format."""
        return self.candidates[0].format if self.candidates else None


def detect(checkpoint: Checkpoint) -> Detection:
    """The format of this model. Without jinja2 (the extra `server`) the chat template is searched, but not run."""
    named = _named(checkpoint)
    found = [_by_markers(fmt, checkpoint) for fmt in FORMATS.values()]
    found = [_more(c, _by_name(c.format, named)) for c in found]
    found = sorted((c for c in found if c.score > 0), key=lambda c: -c.score)[:_CANDIDATES]
    if checkpoint.template is not None and (template := _compiled(checkpoint)) is not None:
        found = [_more(c, _by_template(c.format, template)) for c in found]
    found.sort(key=lambda c: -c.score)
    return Detection(tuple(found), _confidence(found, named))


def _confidence(found: list[Candidate], named: dict[Format, str]) -> Confidence:
    if not found:
        return "guess"
    markers = found[0].evidence[0].weight
    lead = found[0].score - found[1].score if len(found) > 1 else 1.0
    is_named = found[0].format in named
    if markers >= _CLEAR and (is_named or lead >= _LEAD):
        return "sure"
    return "likely" if markers >= (_FAIR if is_named else _CLEAR) else "guess"


def _more(candidate: Candidate, evidence: Iterator[Evidence]) -> Candidate:
    found = tuple(evidence)
    score = candidate.score + sum(each.weight for each in found)
    return Candidate(candidate.format, score, candidate.evidence + found)


# -- markers -----------------------------------------------------------------------------------------------------------


@functools.cache
def _signs(fmt: Format) -> frozenset[str]:
    """The spellings by which a format may be known: markers and the delimiters of its calls, but no plain words. Of
    what may be spelled or written in several ways the first is the format's own."""
    found = {spelled(marker.spellings[0]) for marker in fmt.markers if marker.spellings}
    for state in fmt.states:
        if state.codec:
            codec = getattr(state.codec, "codecs", (state.codec,))[0]
            found |= {spelled(s) for s in codec.spellings()}
            found |= {p.text for s in codec.spellings() for p in s if isinstance(p, Special)}
    return frozenset(text for text in found if len(text) > 2 and not re.fullmatch(r"[\w\s]*", text))


@functools.cache
def _rarity() -> dict[str, float]:
    """How much a sign says: the fewer formats have it, the more."""
    every = [_signs(fmt) for fmt in FORMATS.values()]
    return {
        text: math.log((len(every) + 1) / sum(text in signs for signs in every)) for text in frozenset().union(*every)
    }


def _by_markers(fmt: Format, checkpoint: Checkpoint) -> Candidate:
    """How well the format's signs and those of the model's files agree, from 0 to 1."""
    rarity, signs = _rarity(), _signs(fmt)
    if checkpoint.template is None:
        signs &= frozenset(fmt.specials)  # what is spelled can't be seen among tokens
    shown = {text: weight for text in rarity if (weight := _shown(text, checkpoint) * rarity[text])}
    both = sum(shown[text] for text in signs if text in shown)
    if not both:
        return Candidate(fmt, 0.0, (Evidence(0.0, "none of its markers is there"),))
    own = sum(shown.get(text, rarity[text]) for text in signs)
    score = 2 * both / (own + sum(shown.values()))
    known = sorted((text for text in signs if text in shown), key=lambda text: -shown[text])
    lacks = sorted((text for text in signs if text not in shown), key=lambda text: -rarity[text])
    message = f"{len(known)} of its {len(signs)} markers are there: {', '.join(known[:5])}"
    message += f"; not there: {', '.join(lacks[:3])}" if lacks else ""
    return Candidate(fmt, score, (Evidence(score, message),))


def _shown(text: str, checkpoint: Checkpoint) -> float:
    """How far the model's files show this sign."""
    if checkpoint.template is None:
        return float(text in checkpoint.tokens)
    if text in checkpoint.template or text.replace("\n", "\\n") in checkpoint.template:
        return 1.0
    return _IN_VOCABULARY_ONLY if text in checkpoint.tokens else 0.0


# -- names -------------------------------------------------------------------------------------------------------------


def _named(checkpoint: Checkpoint) -> dict[Format, str]:
    """The formats that claim one of the model's names."""
    found: dict[Format, str] = {}
    for name in checkpoint.names:
        for form in (name, name.replace(" ", "-")):
            if (fmt := format_of_model(form)) is not None:
                found.setdefault(fmt, form)
    return found


def _by_name(fmt: Format, named: dict[Format, str]) -> Iterator[Evidence]:
    if fmt in named:
        yield Evidence(_NAMED, f"the model is called {named[fmt]}")


# -- the chat template -------------------------------------------------------------------------------------------------


def _compiled(checkpoint: Checkpoint) -> ChatTemplate | None:
    """The chat template, if it can be run here."""
    try:
        from unbraid.chat_template import ChatTemplate

        return ChatTemplate(checkpoint.template or "", {"bos_token": "", "eos_token": "", **checkpoint.special_tokens})
    except EngineError:  # jinja2 is missing, or the template isn't sound
        return None


def _by_template(fmt: Format, template: ChatTemplate) -> Iterator[Evidence]:
    keywords = [name for name in fmt.thinking.keywords[:1] if name in template.variables]
    others = {name for each in FORMATS.values() for name in each.thinking.keywords} & template.variables
    if keywords:
        yield Evidence(_SWITCH, f"the chat template has its switch `{keywords[0]}`")
        yield from _by_default(fmt, template, keywords[0])
    elif fmt.thinking.keywords:
        yield Evidence(-_SWITCH, f"the chat template lacks its switch `{fmt.thinking.keywords[0]}`")
    elif others:
        yield Evidence(-_SWITCH, f"the chat template has a switch that it lacks: `{min(others)}`")
    yield from _by_start(fmt, template)
    yield from _by_probes(fmt, template)


def _by_default(fmt: Format, template: ChatTemplate, keyword: str) -> Iterator[Evidence]:
    try:
        plain = template.render(_PROMPT)
        on, off = (template.render(_PROMPT, None, **{keyword: value}) for value in (True, False))
    except RequestError:
        return
    if on != off and plain in (on, off):
        same = (plain == on) == fmt.thinking.default
        said = "on" if plain == on else "off"
        yield Evidence(_SWITCH if same else -_SWITCH, f"the switch is {said} by default{'' if same else ', not here'}")


def _by_start(fmt: Format, template: ChatTemplate) -> Iterator[Evidence]:
    """Whether the prompt opens a thought, where the format says that it always does or never."""
    if fmt.thinking.keywords:
        return
    try:
        prompt = template.render(_PROMPT)
    except RequestError:
        return
    opened = thinks(Parser(fmt, prompt=prompt, thinking=False).state)
    always = fmt.thinking.default and fmt.reasons
    if opened != always:
        yield Evidence(-_START, "the prompt opens a thought" if opened else "the prompt doesn't open a thought")
    elif opened:
        yield Evidence(_START, "the prompt opens a thought")


def _by_probes(fmt: Format, template: ChatTemplate) -> Iterator[Evidence]:
    """Whether what the template writes for the assistant is this format."""
    from unbraid.probes import agreement

    if (found := agreement(fmt, template)).tried:
        weight = (_READ * found.read + _WRITTEN * found.written) / found.tried
        message = f"of {found.tried} answers that the chat template writes it reads {found.read} right"
        yield Evidence(weight, f"{message} and would write {found.written} exactly so")
