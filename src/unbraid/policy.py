"""One frozen object of choices, with one set of defaults for all formats.

A policy says what to do where a format leaves room or a model breaks its rules. It never depends on the format: what
differs between formats is a word of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """How to treat what a format leaves open. All defaults keep everything and promise nothing that isn't there."""

    calls: Literal["incremental", "atomic"] = "incremental"
    """`incremental`: a call's arguments are delivered as they come. `atomic`: a call is delivered once it is complete,
    so a call cut off by the length limit never is."""
    truncated_call: Literal["keep", "drop"] = "keep"
    """A call cut off by the length limit: kept and marked incomplete, or left out."""
    malformed_call: Literal["content", "drop"] = "content"
    """A call whose body breaks its format: its raw text is content, or it is left out."""
    unknown_tool: Literal["forward", "content"] = "forward"
    """A call to a tool that wasn't offered: delivered like any other, or its raw text is content."""
    tool_choice_none: Literal["passthrough", "strip"] = "passthrough"
    """A call although `tool_choice` is `none`: its raw text is content, or it is left out."""
    call_in_reasoning: Literal["implicit_end", "literal"] = "implicit_end"
    """A call opener inside reasoning: it ends the reasoning, or it is text of the reasoning."""
    spelled_markers: Literal["literal", "accept"] = "literal"
    """A special marker spelled with ordinary tokens: text, or a marker all the same (for models that can only spell)."""
    orphan_call: Literal["off", "recover"] = "off"
    """A call body whose opening wrapper is missing, at the beginning of an answer: text, or a call once its closing marker has come.
    JSON that merely looks like a call stays text: if tools are offered, the call's must be among them, whatever `unknown_tool` says, and
    its required arguments must be there. One call of an array that isn't so, and all of it is text."""
    keep_special_tokens: frozenset[str] = frozenset()
    """Control tokens that stay visible in content, by spelling: for models whose end tag is part of the text."""


DEFAULT_POLICY = Policy()
