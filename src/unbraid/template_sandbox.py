"""Jinja for somebody else's program: a chat template comes with the model's file.

It runs in Jinja's sandbox (no attribute that leads out of the data, nothing that changes the data), and within bounds: at most
`MAX_OUTPUT` characters in any text it builds, `MAX_SECONDS` in its loops and blocks, and Jinja's own 100,000 steps of a `range`. The bounds
stop accidents and quadratic templates; somebody who is out to harm may get around them, as around every sandbox in Python.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from unbraid.errors import EngineError

try:
    import jinja2
except ImportError as missing:
    raise EngineError("chat templates need jinja2: pip install 'unbraid[server]'") from missing

import jinja2.meta
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_OUTPUT = 16_000_000
MAX_SECONDS = 10.0
MAX_NUMBER = 1_000_000
"""The largest width, count or indent that a template may ask for."""

MISFITS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template raises on data that it wasn't written for, beside Jinja's own errors."""


class _Generation(Extension):
    """`{% generation %}`, with which templates mark what the model wrote, for training. It changes nothing here."""

    tags = {"generation"}  # noqa: RUF012  (Jinja declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _BoundedCode(CodeGenerator):
    """Compiles a look at the clock into every block (so into every turn of a loop), and a bound into every `~`."""

    def blockvisit(self, nodes: Any, frame: Frame) -> None:
        self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat_texts((")
        for argument in node.nodes:
            self.visit(argument, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as `transformers` sets it up, within bounds."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
        self._clock = threading.local()
        self.filters |= {name: _bounded(self.filters[name]) for name in ("batch", "center", "indent", "slice")}
        self.filters["tojson"] = _to_json
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _raise, "strftime_now": lambda format: datetime.now().strftime(format)}

    def compiled(self, source: str) -> tuple[jinja2.Template, frozenset[str]]:
        """A template, and the names that it reads. Raises `EngineError` for one that isn't sound."""
        try:
            return self.from_string(source), frozenset(jinja2.meta.find_undeclared_variables(self.parse(source)))
        except (jinja2.TemplateError, RecursionError) as error:
            raise EngineError(f"the model's chat template can't be compiled: {error}") from error

    def run(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """What it writes. Raises one of `MISFITS`."""
        self._clock.end = time.monotonic() + MAX_SECONDS
        pieces, size = [], 0
        for piece in template.generate(variables):
            size += len(piece)
            _check_size(size)
            pieces.append(piece)
        return "".join(pieces)

    def tick(self) -> None:
        if time.monotonic() > self._clock.end:
            raise SecurityError(f"it takes longer than {MAX_SECONDS:g} seconds")

    def concat_texts(self, values: Sequence[Any]) -> str:
        texts = [str(value) for value in values]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            _check_size(len(left) + len(right))
        elif operator == "*":
            for one, other in ((left, right), (right, left)):
                if hasattr(one, "__len__") and isinstance(other, int):
                    _check_size(len(one) * other)
        elif operator == "**" and (abs(right) > 64 or abs(left) > MAX_NUMBER):
            raise SecurityError("a power too large")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(getattr(__obj, "__self__", None), str):  # "x".ljust(10 ** 9)
            _check_numbers(args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)


def _check_size(size: int) -> None:
    if size > MAX_OUTPUT:
        raise SecurityError(f"it writes more than {MAX_OUTPUT:,} characters")


def _check_numbers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise SecurityError(f"the number {value} is too large here")


def _bounded(filter: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_numbers(args[1:], kwargs)  # the first is the value itself
        return filter(*args, **kwargs)

    return bounded


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own escapes `<` and `&` for HTML; models have seen them as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


__all__ = ["MAX_OUTPUT", "MAX_SECONDS", "MISFITS", "Sandbox"]
