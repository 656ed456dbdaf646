"""The lint: every doubt is raised where it belongs, and none about the formats that we ship."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from fixtures import DATA, own_texts
from tokens import tokens

import unbraid
from unbraid.codecs import JsonObject
from unbraid.formats import FORMATS
from unbraid.lint import Finding, lint
from unbraid.probes import lint_template
from unbraid.table import (
    CONTENT,
    ENDED,
    REASONING,
    ROLE,
    SECTION,
    START,
    Format,
    Marker,
    State,
    calling,
    special,
    text,
    turn,
)  # fmt: skip

OPEN, END = turn("<|a|>"), turn("<|z|>")
THINK, UNTHINK, CALL, UNCALL = special("<t>"), special("</t>"), special("<c>"), special("</c>")
CALLING = calling(JsonObject())
STATES: Mapping[State, Mapping[Marker, State]] = {
    CONTENT: {THINK: REASONING, CALL: CALLING},
    REASONING: {UNTHINK: CONTENT},
    CALLING: {UNCALL: CONTENT},
    ROLE: {},
    ENDED: {},
}
SOUND = Format(name="made_up", about="", states=STATES, turns={OPEN: START, turn("<|u|>"): ROLE, END: ENDED})


def kinds(found: list[Finding]) -> dict[str, str]:
    """What was found, and where."""
    return {finding.kind: finding.place for finding in found}


ROLES_ARE_WORDS = {"granite_20b_fc"}
"""Models that have no token to set turns apart. `ASSISTANT:` is all there is, and a text may hold that as well."""


@pytest.mark.parametrize("name", FORMATS)
def test_our_formats_raise_no_doubts(name: str) -> None:
    doubts = {finding.kind for finding in lint(FORMATS[name]) if finding.level != "note"}
    assert doubts == ({"no_turn_opener"} if name in ROLES_ARE_WORDS else set())


def test_a_sound_table() -> None:
    assert lint(SOUND) == []


def test_unreachable() -> None:
    island, bridge = State("island", "content"), State("bridge", "content")
    there, back = text("there"), text("back")
    fmt = SOUND.replace(states={**STATES, island: {there: bridge}, bridge: {back: island}})
    assert kinds(lint(fmt)) == {"unreachable": "state bridge"}
    assert len(lint(fmt)) == 2


def test_reasoning_that_no_answer_comes_to() -> None:
    hidden = {**STATES, CONTENT: {CALL: CALLING}, SECTION: {THINK: REASONING, UNTHINK: SECTION, CALL: CALLING}}
    found = lint(SOUND.replace(states=hidden))
    assert {finding.place for finding in found} >= {"start", "state reasoning"}
    assert found[0].level == "error"


@pytest.mark.parametrize("state", [REASONING, CALLING])
def test_dead_end(state: State) -> None:
    fmt = SOUND.replace(states={**STATES, state: {}})
    assert kinds(lint(fmt)) == {"dead_end": f"state {state.name}"}


def test_a_section_that_nothing_leaves() -> None:
    fmt = SOUND.replace(states={**STATES, CONTENT: {THINK: REASONING, CALL: CALLING, text("["): SECTION}, SECTION: {}})
    assert kinds(lint(fmt)) == {"dead_end": "state section"}


def test_no_turn_opener() -> None:
    states = {state: row for state, row in STATES.items() if state != ROLE}
    found = lint(SOUND.replace(states=states, turns={END: ENDED}))
    assert kinds(found) == {"no_turn_opener": "turns"}
    assert found[0].level == "error"


def test_a_boundary_that_anybody_can_write() -> None:
    fmt = SOUND.replace(turns={OPEN: START, turn("<|u|>"): ROLE, text("### End"): ENDED})
    assert kinds(lint(fmt)) == {"text_boundary": "turns, ### End"}


def test_one_spelling_two_ways() -> None:
    twin = special("<t>", after="\n")
    fmt = SOUND.replace(states={**STATES, CONTENT: {THINK: REASONING, twin: CALLING}, REASONING: {UNTHINK: CONTENT}})
    (found,) = lint(fmt)
    assert (found.kind, found.level, found.place) == ("ambiguous", "error", "state content, <t>")
    assert "reasoning" in found.message
    assert "calling" in found.message


def test_a_marker_that_begins_another() -> None:
    fmt = SOUND.replace(states={**STATES, CONTENT: {text("<c"): REASONING, CALL: CALLING}})
    assert kinds(lint(fmt)) == {"prefix": "state content, <c"}


def vocabulary(special: list[str], control: list[str]) -> unbraid.Vocabulary:
    spellings = {spelling: 1000 + n for n, spelling in enumerate(special)}
    pieces = {n: bytes([n]) for n in range(256)} | {id: spelling.encode() for spelling, id in spellings.items()}
    return unbraid.Vocabulary(pieces, spellings, [spellings[text] for text in control])


def test_a_tokenizer_that_lacks_a_marker() -> None:
    own = ["<t>", "</t>", "<c>", "<|a|>", "<|u|>", "<|z|>"]
    found = {finding.kind: finding for finding in lint(SOUND, vocabulary(own, ["<|a|>", "<|u|>", "<|z|>"]))}
    assert found["split"].place == "</c>"
    assert "spelled by 4" in found["split"].message
    assert found["not_special"].level == "note"
    assert "no_boundary_token" not in found


def test_another_familys_tokenizer() -> None:
    found = [finding for finding in lint(SOUND, vocabulary(["<other>"], [])) if finding.level == "error"]
    assert [finding.kind for finding in found] == ["no_boundary_token", "no_boundary_token"]


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - ROLES_ARE_WORDS))
def test_a_fitting_tokenizer_has_every_boundary(name: str) -> None:
    assert not [f for f in lint(FORMATS[name], tokens(name).vocabulary) if f.level == "error"]


# -- chat templates: ours, as short as they can be ---------------------------------------------------------------------

THINKING_TEMPLATE = """\
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content or '' }}
{%- for call in m.tool_calls or [] %}
{%- if m.content or not loop.first %}{{- '\\n' }}{% endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if not (enable_thinking | default(true)) %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""
PLACE_OF_CLOSER = THINKING_TEMPLATE.split("\n").index("{{- '}\\n</tool_call>' }}") + 1


def test_a_template_that_fits() -> None:
    assert lint_template(FORMATS["qwen3"], THINKING_TEMPLATE) == []
    assert lint_template(FORMATS["qwen3"], THINKING_TEMPLATE, bound=tokens("qwen3").bound) == []


@pytest.mark.parametrize(
    ("table", "changed"),
    [
        ("</tool_call>", "</tool-call>"),
        ("<tool_call>", "<toolcall>"),
        ("</think>", "</thinking>"),
        ("<think>", "<thinking>"),
    ],
)
def test_a_changed_marker_is_named_with_its_line(table: str, changed: str) -> None:
    template = THINKING_TEMPLATE.replace(table, changed)
    line = next(n for n, text in enumerate(template.split("\n"), 1) if changed in text)
    errors = [finding for finding in lint_template(FORMATS["qwen3"], template) if finding.level == "error"]
    assert errors
    assert any(repr(changed) in e.message and repr(table) in e.message and f"line {line})" in e.place for e in errors)


def test_white_space_that_nobody_owns() -> None:
    template = THINKING_TEMPLATE.replace("<think>\\n' + m", "<think>\\n\\n\\n' + m")
    found = lint_template(FORMATS["qwen3"], template)
    assert {(finding.kind, finding.level) for finding in found} == {("white_space", "warning")}


def test_another_familys_template() -> None:
    assert any(finding.level == "error" for finding in lint_template(FORMATS["glm47"], THINKING_TEMPLATE))


def test_what_a_template_refuses_or_leaves_out_is_only_noted() -> None:
    template = THINKING_TEMPLATE.replace(
        "{%- for call in",
        "{%- if (m.tool_calls or []) | length > 1 %}{{ raise_exception('One.') }}{% endif %}{%- for call in",
    )
    (found,) = lint_template(FORMATS["qwen3"], template)
    assert (found.kind, found.level) == ("refused", "note")
    assert "One." in found.message
    forgetful = THINKING_TEMPLATE.replace("m.reasoning_content %}", "false %}")
    forgetful = forgetful.replace("m.content or ''", "(m.content or '').split('</think>')[-1].lstrip()")
    (silent,) = lint_template(FORMATS["qwen3"], forgetful)
    assert (silent.kind, silent.level) == ("unwritten", "note")


# -- a template of each kind, ours as well -----------------------------------------------------------------------------

TEMPLATES = {file.stem: file.read_text("utf-8") for file in sorted((DATA / "templates").glob("*.jinja"))}
every_template = pytest.mark.parametrize("name", TEMPLATES)


@every_template
def test_a_template_of_each_kind_fits(name: str) -> None:
    findings = lint_template(FORMATS[name], TEMPLATES[name], bound=tokens(name).bound)
    assert not [finding for finding in findings if finding.level != "note"]


def written(fmt: Format, message: unbraid.Message) -> str:
    try:
        return unbraid.render(fmt, message)
    except unbraid.RenderError:  # it can't hold this
        return ""


def written_markers(name: str) -> list[str]:
    """The markers that the format writes around a thought, an answer and calls, as far as the template has them."""
    calls = [unbraid.ToolCall(f"functions.f:{n}", "f", '{"a": "b", "n": 1}') for n in range(2)]
    messages = [
        unbraid.Message(None, None, calls[:1]),
        unbraid.Message(None, None, calls),
        unbraid.Message("Hm.", "Yes."),
    ]
    text = "".join(written(FORMATS[name], message) for message in messages)
    found = {marker for marker in own_texts(FORMATS[name]) if marker in text and marker in TEMPLATES[name]}
    return sorted(marker for marker in found if re.search(r"\w{3}", marker))


HARMLESS = {("harmony", "<|constrain|>")}
"""What stands before the type of a body, which may be missing."""


@pytest.mark.parametrize(
    ("name", "marker"),
    sorted({(name, marker) for name in TEMPLATES for marker in written_markers(name)} - HARMLESS),
)
def test_any_changed_marker_is_named_with_its_line(name: str, marker: str) -> None:
    changed = re.sub(r"(\w)(\w)", r"\1\2\2", marker, count=1)
    template = TEMPLATES[name].replace(marker, changed)
    lines = {number for number, line in enumerate(template.split("\n"), 1) if changed in line}
    errors = [finding for finding in lint_template(FORMATS[name], template) if finding.level == "error"]
    assert errors
    named = [error for error in errors if changed in error.message]
    assert any(f"line {line})" in error.place for error in named for line in lines), errors[0]
