"""A copy of a machine and of all that it has gathered, whatever that is: a new field needs no word here."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Mapping
from typing import Any, Final

from unbraid.events import Stretch
from unbraid.native import fields
from unbraid.schema import Type

_FIXED: Final = frozenset((str, int, bool, bytes, float, frozenset, type(None)))
_UNCHANGED: Final = (str, tuple, Stretch, Type)
"""What nobody changes, and what is derived of it: events, diagnostics, pieces of arguments, what a schema says."""
_BOUND: Final = (types.MethodType, types.BuiltinMethodType)
_NOBODY: Final = (types.ModuleType, type(None))
"""What functions written in C are bound to."""


class Copies(dict[int, Any]):
    """What has been copied, by `id`. `shared` is what all copies have in common, likewise."""

    def __init__(self, shared: Mapping[int, Any]) -> None:
        self.shared = shared
        self._copied: list[Any] = []
        """What has been, so that nothing else takes its `id`: a compiled class makes the tuples of its fields when they are read."""

    def get(self, key: int, default: Any = None) -> Any:
        """The copy; `copy.deepcopy` asks too."""
        return self[key] if key in self else self.shared.get(key, default)

    def of(self, value: Any) -> Any:
        """The copy of a value, made if there is none yet."""
        kind = type(value)
        if kind in _FIXED:
            return value
        known = self.get(id(value))
        if known is not None:
            return known
        self._copied.append(value)
        if kind is list:
            known = self[id(value)] = []
            known += map(self.of, value)
        elif kind is dict:
            known = self[id(value)] = {}
            known.update((key, self.of(item)) for key, item in value.items())
        elif kind is set:
            known = self[id(value)] = set(value)
        elif kind is tuple:
            known = self[id(value)] = tuple(map(self.of, value))
        elif isinstance(value, _UNCHANGED):
            known = value
        elif isinstance(value, _BOUND) and not isinstance(value.__self__, _NOBODY):
            known = self[id(value)] = getattr(self.of(value.__self__), value.__name__)
        elif isinstance(value, functools.partial):
            known = self[id(value)] = functools.partial(self.of(value.func), *map(self.of, value.args))
        elif kind.__module__.startswith("unbraid.") and not hasattr(kind, "__deepcopy__"):
            known = self.instance(value)
        else:
            known = copy.deepcopy(value, self)
        return known

    def instance(self, value: Any) -> Any:
        """The copy of an instance of one of our classes."""
        kind: Any = type(value)
        other = self[id(value)] = kind.__new__(kind)
        for name in (*fields(kind), *getattr(value, "__dict__", ())):
            if hasattr(value, name):
                object.__setattr__(other, name, self.of(getattr(value, name)))  # the class may be frozen
        return other


__all__ = ["Copies"]
