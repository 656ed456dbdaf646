"""The command line: one word per thing that one wants to know.

    unbraid parse    raw output, taken apart
    unbraid formats  which formats there are
    unbraid show     one format's table
    unbraid render   a message, written back as raw text
    unbraid diagram  one format's states as a picture
    unbraid lint     what may be wrong with a table, by itself or beside a model's files
    unbraid detect   which format a model writes, from its folder or GGUF
    unbraid new-format
                     the skeleton of a format: table and fixtures
    unbraid serve    an OpenAI-compatible server
    unbraid check    does an endpoint lose anything?
    unbraid compare  two deployments, or one and its past: what differs?
    unbraid audit    captures of replies, read afterwards
    unbraid doctor   does an installation fit together?

    exit code 0  fine
              1  `--strict`, and the output left its format; `lint`, and there is an error;
                 `detect`, and there is nothing to go by; `check`, `compare`, `audit`, `doctor`, and there is a finding
              2  asked in a way that can't be answered: usage, an unknown format, an unusable tool, a port
                 that is taken
              3  a file can't be read (a model and a recording, too), an endpoint can't be reached
              4  the server's engine can't be had, or failed

A command is a module with `add_arguments(parser)` and `main(args) -> int`, imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from unbraid.cli.problems import FILE, Problem, exit_code, near
from unbraid.errors import UnbraidError
from unbraid.terminal import RED, Screen

COMMANDS: Mapping[str, tuple[str, str]] = {
    "parse": ("unbraid.cli.parse", "take raw output apart: reasoning, content, tool calls"),
    "formats": ("unbraid.cli.formats", "list the formats"),
    "show": ("unbraid.cli.show", "print the table of a format"),
    "lint": ("unbraid.cli.lint", "look for mistakes in a table; hold it against a tokenizer, a chat template"),
    "render": ("unbraid.cli.render", "write a message back as raw text"),
    "diagram": ("unbraid.cli.diagram", "draw the states of a format"),
    "detect": ("unbraid.cli.detect", "name the format of a model from its files, with the evidence"),
    "new-format": ("unbraid.cli.new_format", "write the skeleton of a format"),
    "serve": ("unbraid.server.run", "serve a model, OpenAI-compatible"),
    "compare": ("unbraid.cli.compare", "ask two deployments the same, and say what differs"),
    "audit": ("unbraid.cli.audit", "look through captures of replies"),
    "doctor": ("unbraid.cli.doctor", "look at an installation: do tokenizer, template, versions and flags fit?"),
    "check": ("unbraid.cli.check", "ask an endpoint, and say what it loses, where and why"),
}
"""Word -> the module that does it, and what it does."""

_CHECKING = {"httpx", "packaging"}
"""What the commands need that ask endpoints."""

_SERVING = {"xllamacpp", "llguidance", "numpy", "starlette", "uvicorn", "msgspec", "jinja2"}
"""Modules of others, imported only when needed: by `serve` (on its default engine, all), `lint --template` (jinja2)."""


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Of a disk that takes no more."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that can't show a character shows its number
    try:
        return _run(words)
    except (UnbraidError, Problem) as problem:
        _complain(str(problem))
        return exit_code(problem)
    except ImportError as error:
        missing = (error.name or getattr(error.__cause__, "name", None) or "").partition(".")[0]
        if missing not in _SERVING | _CHECKING:
            raise
        extras = "check" if missing in _CHECKING else "server,local"
        _complain(f"`unbraid {words[0]}` needs {missing}: pip install 'unbraid[{extras}]'")
        return 2
    except BrokenPipeError:  # `unbraid ... | head`: the reader has seen enough
        _forget_output()
        return 141
    except OSError as error:
        if error.errno not in _FULL:
            if error.filename is None:
                raise
            _complain(f"{error.filename}: {error.strerror}")
            return FILE
        _forget_output()
        _complain(f"the output can't be written ({error.strerror}); make room, or send it elsewhere")
        return FILE
    except KeyboardInterrupt:
        return 130


def _open_closed() -> None:
    """Streams that the caller has closed (`>&-`) are empty, and take everything."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 -- for as long as the process lives


def _forget_output() -> None:
    """What is still in the buffer would fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    word = words[0] if words else None
    if word is None:
        _parser(None).print_help()
        return 0
    if word not in COMMANDS and not word.startswith("-"):
        raise Problem(f"there is no command {word!r}{near(word, COMMANDS)} (`unbraid --help` lists them)")
    args, unknown = _parser(word).parse_known_args(words)
    if unknown:  # argparse would point to the help of all commands
        command = f"unbraid {word}" if word in COMMANDS else "unbraid"
        raise Problem(f"unrecognized arguments: {' '.join(unknown)} (see `{command} --help`)")
    code: int = args.main(args)
    sys.stdout.flush()
    return code


def _parser(word: str | None) -> argparse.ArgumentParser:
    """The whole parser, of which only the arguments of the command in question are filled in."""
    parser = Parser(
        prog="unbraid",
        description="Takes an LLM's output apart: reasoning, content, tool calls.",
        formatter_class=Help,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=_sentence(summary))
        if name == word:
            loaded = importlib.import_module(module)
            loaded.add_arguments(command)
            command.set_defaults(main=loaded.main)
    return parser


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + ("" if summary.endswith("?") else ".")


class Parser(argparse.ArgumentParser):
    """argparse, with one clear line instead of a page when something is wrong."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to read more; exit code 2."""
        _complain(f"{message} (see `{self.prog} --help`)")
        self.exit(2)


class Help(argparse.HelpFormatter):
    """argparse's, which forgets that the commands are indented when it measures them."""

    def add_argument(self, action: argparse.Action) -> None:
        """Measure the longest command as it will stand."""
        super().add_argument(action)
        self._action_max_length = max(self._action_max_length, 4 + max(map(len, COMMANDS)))


class Version(argparse.Action):
    """`--version`, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        """Print it and leave."""
        from importlib.metadata import PackageNotFoundError, version

        from unbraid.native import compiled

        try:
            found = version("unbraid")
        except PackageNotFoundError:
            found = "(not installed, run from its source)"
        print(f"unbraid {found}{' (compiled)' if compiled() else ''}")
        parser.exit()


def _complain(message: str) -> None:
    screen = Screen(sys.stderr)
    screen.line(f"{screen.paint('unbraid:', RED)} {screen.safe(' '.join(message.splitlines()))}")
