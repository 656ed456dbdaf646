"""What the two grammars of named rules, Lark's and GBNF's, write alike: sequences, choices, names, tokens among texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from unbraid.grammar.tree import Choice, Literal, Named, Node, Ref, Repeat, Sequence
from unbraid.table import Special, Spelling
from unbraid.vocabulary import Vocabulary


@dataclass(slots=True)
class RuleWriter(ABC):
    """Writes a tree as an expression and the rules that it needs. Subclasses write what their language says its own way."""

    vocabulary: Vocabulary
    rules: list[str] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    """The rules that are there already, by what they say."""
    rules_of: dict[str, str] = field(default_factory=dict)
    """What a `Ref` stands for."""

    JOINT: ClassVar[str]
    """Stands between the parts of a rule's name."""
    DEFINES: ClassVar[str]
    """Stands between a rule's name and its body."""

    def node(self, node: Node) -> str:
        """An expression; rules that it needs are added."""
        match node:
            case Literal():
                return self.spelling(node.pieces)
            case Sequence():
                return " ".join(self.node(item) for item in node.items) or '""'
            case Choice():
                return f"({' | '.join(self.node(item) for item in node.items)})"
            case Repeat():
                return self.repeat(node)
            case Named():
                return self._named(node)
            case Ref():
                return self.rules_of[node.name]
            case _:
                return self.leaf(node)

    @abstractmethod
    def repeat(self, node: Repeat) -> str: ...

    @abstractmethod
    def leaf(self, node: Node) -> str:
        """JSON, text, patterns."""

    @abstractmethod
    def quoted(self, text: str) -> list[str]:
        """Text as literals; none, if there is none."""

    def spelling(self, pieces: Spelling) -> str:
        """Texts and tokens. A marker for which the vocabulary has no token is text."""
        parts: list[str] = []
        text = ""
        for piece in pieces:
            if isinstance(piece, Special) and piece.text in self.vocabulary.special:
                parts += [*self.quoted(text), f"<[{self.vocabulary.special[piece.text]}]>"]
                text = ""
            else:
                text += piece if isinstance(piece, str) else piece.text
        return " ".join([*parts, *self.quoted(text)]) or '""'

    def _named(self, node: Named) -> str:
        """A rule of its own, for which the name stands from here on."""
        self.rules_of[node.name] = name = f"{node.name}{self.JOINT}{len(self.rules)}"
        at = len(self.rules)
        self.rules.append("")
        self.rules[at] = f"{name}{self.DEFINES}{self.node(node.body)}"
        return name


__all__ = ["RuleWriter"]
