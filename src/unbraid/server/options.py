"""The options of `unbraid serve`, each said once: from this table come the flags, the environment and the configuration file.

    --max-body-bytes 1000000                a flag
    UNBRAID_MAX_BODY_BYTES=1000000          the environment
    max-body-bytes = 1000000                a line of the TOML file that `--config` (or UNBRAID_CONFIG) names

Flags beat the environment, the environment beats the file. Where an option takes several values, the environment separates
them with commas, and the file has a list. What is unknown or malformed is an error that says where it stands.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbraid.errors import UnbraidError
from unbraid.policy import Policy
from unbraid.server.settings import DEFAULT_SETTINGS, Settings

LOOPBACK = "127.0.0.1"


class OptionError(UnbraidError):
    """An option in the environment or in a file that can't be used."""


@dataclass(frozen=True, slots=True)
class Option:
    """One of them. `type` reads it from a text."""

    name: str
    type: Callable[[str], Any]
    default: Any
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    many: bool = False
    secret: bool = False
    """Not to be shown, not even as somebody's default."""

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return f"UNBRAID_{self.key.upper()}"

    def read(self, given: Any, where: str) -> Any:
        """A value of the environment (a text) or of the file (of its own type)."""
        if self.many:
            items = given.split(",") if isinstance(given, str) else given
            if not isinstance(items, list):
                raise OptionError(f"{where}: expected a list")
            return [self._one(item, where) for item in items if item != ""]
        return self._one(given, where)

    def _one(self, given: Any, where: str) -> Any:
        try:
            value = self.type(given if isinstance(given, str) else str(given))
        except ValueError as error:
            raise OptionError(f"{where}: {given!r} can't be read ({error})") from error
        if self.choices and value not in self.choices:
            raise OptionError(f"{where}: {given!r} is none of {', '.join(self.choices)}")
        return value


def switch(text: str) -> bool:
    """A yes or no."""
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected true or false")


def number(text: str) -> int:
    """A whole number that isn't negative."""
    value = int(text)
    if value < 0:
        raise ValueError("it is negative")
    return value


def port(text: str) -> int:
    value = number(text)
    if value > 65535:
        raise ValueError("ports end at 65535")
    return value


def seconds(text: str) -> float:
    """A time longer than none."""
    value = float(text)
    if not value > 0:
        raise ValueError("it must be longer than 0")
    return value


def rate(text: str) -> float:
    """Something per second, or 0."""
    value = float(text)
    if value < 0:
        raise ValueError("it is negative")
    return value


def path(text: str) -> Path:
    return Path(text).expanduser()


def _limit(name: str, type: Callable[[str], Any], help: str, metavar: str | None = None) -> Option:
    """An option that is a setting of the same name, and has its default."""
    return Option(name, type, getattr(DEFAULT_SETTINGS, name.replace("-", "_")), help, metavar)


EMBEDDED, ELSEWHERE = "embedded engine", "engine elsewhere"

GROUPS: Mapping[str, tuple[Option, ...]] = {
    "server": (
        Option("host", str, LOOPBACK, "address to listen on"),
        Option("port", port, 8000, "port to listen on; 0 takes a free one"),
        Option("workers", number, 1, "processes that answer; only with an engine elsewhere or a recording"),
        Option("drain", number, 30, "how long replies may take to end after SIGTERM", "SECONDS"),
        Option("served-model-name", str, [], "names for clients (default: the model's own)", "NAME", many=True),
        Option("api-key", str, [], "whoever asks must have this key; any of them, if there are several", "KEY", many=True, secret=True),
        Option("cors-origins", str, [], "origins whose web pages may ask from a browser, such as https://app.example.com; * for all (default: none)", "ORIGIN", many=True),
        Option("api-key-file", path, None, "file with one key a line", "FILE"),
    ),
    "model": (
        Option("format", str, "auto", "how the model writes a turn: a name, or a table's file (default: found by the model's name, tokens, template)", "NAME"),
        Option("chat-template", path, None, "a chat template instead of the model's own: a .jinja, or a file or folder that has one", "FILE"),
        Option("ctx", number, None, "tokens that prompt and reply may have together (default: 4096, or what the engine says)", "N"),
        Option("keep-special-tokens", str, [], "special tokens that stay visible in content, for every request (see docs/keep-special-tokens.md)", "TOKEN", many=True),
        _limit("literal-messages", switch, "read special tokens that users and tools spell as text; false: as tokens, which end turns"),
        Option("record", path, None, "keep what the engine says in this file, to be replayed (see docs/engines.md)", "FILE"),
    ),
    EMBEDDED: (
        Option("model", path, None, "any GGUF file (default: SmolLM2-135M-Instruct, fetched once)", "PATH.gguf"),
        Option("threads", number, 1, "threads of the embedded engine"),
        Option("parallel", number, 4, "generations of the embedded engine at the same time; more wait"),
    ),
    ELSEWHERE: (
        Option("engine", str, None, "URL of an engine, or a recording's file, instead of the embedded one", "URL"),
        Option("engine-kind", str, "auto", "what listens there (default: it is asked)", choices=("auto", "vllm", "vllm-tokens", "sglang", "llama", "completions", "recording")),
        Option("engine-key", str, None, "the engine's own API key", "KEY", secret=True),
        Option("engine-model", str, None, "the model's name there (default: the first that it lists)", "NAME"),
        Option("tokenizer", path, None, "the model's tokenizer.json, GGUF or folder (default: the engine's, if it is on this machine)", "PATH"),
        Option("connect-timeout", seconds, 10.0, "to reach the engine", "SECONDS"),
        Option("first-token-timeout", seconds, 300.0, "from asking the engine to its first token", "SECONDS"),
        Option("stall-timeout", seconds, 60.0, "between two tokens", "SECONDS"),
        Option("retries", number, 2, "further attempts while no token has come"),
        Option("burst", number, 32, "of a recording: how many steps that have come due come at once, at most"),
        Option("pace", rate, None, "of a recording: tokens per second, 0 for no waiting (default: as they came)", "RATE"),
    ),
    "limits": (
        _limit("max-body-bytes", number, "largest request", "N"),
        _limit("max-tokens", number, "longest reply, whatever a request says (default: what the context holds)", "N"),
        _limit("max-choices", number, "largest n of a request", "N"),
        _limit("max-tools", number, "tools of a request", "N"),
        _limit("max-schema-nodes", number, "values in all JSON schemas of a request", "N"),
        _limit("max-schema-depth", number, "levels of a JSON schema", "N"),
        _limit("max-requests", number, "requests served at the same time; more are told to come back", "N"),
        Option("header-seconds", seconds, 20.0, "how long a connection may take to say what it wants", "SECONDS"),
        _limit("body-seconds", seconds, "how long a request may take to arrive", "SECONDS"),
        _limit("request-seconds", seconds, "how long a request may take altogether", "SECONDS"),
    ),
    "operation": (
        Option("log-level", str, "warning", "what is logged; info has a line per request", choices=("debug", "info", "warning", "error")),
        Option("log-format", str, "text", "for people, or one JSON object a line", choices=("text", "json")),
        _limit("log-contents", switch, "log prompts and replies, too"),
        _limit("repeat-call-ids", switch, "send a call's id and type with every piece of its arguments, for clients that want them"),
        _limit("metrics", switch, "serve Prometheus metrics at /metrics"),
        _limit("tracing", switch, "OpenTelemetry: a span per request, sent where OTEL_EXPORTER_OTLP_ENDPOINT says"),
    ),
}  # fmt: skip
OPTIONS = {option.key: option for group in GROUPS.values() for option in group}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `unbraid serve`. What isn't given stays `None`: it may be said elsewhere (`resolved`)."""
    help = "options in TOML, by the names of the flags; also UNBRAID_<OPTION> in the environment"
    parser.add_argument("--config", type=Path, metavar="FILE", help=help)
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for option in options:
            text = option.help
            if option.default not in (None, [], "auto") and "(default" not in text:
                shown = str(option.default).lower() if option.type is switch else option.default
                text += f" (default: {shown})"
            text = text.replace("%", "%%")
            if option.type is switch:
                group.add_argument(f"--{option.name}", action=argparse.BooleanOptionalAction, help=text)
                continue
            more: dict[str, Any] = {"type": option.type, "metavar": option.metavar, "help": text}
            if option.choices:
                more |= {"choices": option.choices, "metavar": None}
            if option.many:
                more |= {"nargs": "+", "action": "extend"}
            group.add_argument(f"--{option.name}", **more)


def resolved(args: argparse.Namespace, environment: Mapping[str, str] | None = None) -> argparse.Namespace:
    """All options with their values. Raises `OptionError`."""
    environment = os.environ if environment is None else environment
    file = args.config or environment.get("UNBRAID_CONFIG")
    written = _file(Path(file)) if file else {}
    found = argparse.Namespace()
    for key, option in OPTIONS.items():
        value = getattr(args, key, None)
        if value is None and environment.get(option.variable):
            value = option.read(environment[option.variable], option.variable)
        if value is None and key in written:
            value = option.read(written[key], f"{file}: {option.name}")
        setattr(found, key, option.default if value is None else value)
    _check_engine(found)
    return found


def _check_engine(options: argparse.Namespace) -> None:
    """What is said of one engine isn't meant for the other."""
    if options.engine:
        group, remedy = EMBEDDED, "which --engine replaces; leave one of them out"
    else:
        group, remedy = ELSEWHERE, "and none is named; give --engine as well"
    for option in GROUPS[group]:
        if getattr(options, option.key) != option.default:
            raise OptionError(f"--{option.name}: for an {group}, {remedy}")


def _file(file: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise OptionError(f"{file}: can't be read ({error.strerror or error})") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise OptionError(f"{file}: not TOML ({error})") from error
    written = {name.replace("-", "_"): value for name, value in data.items()}
    for key in written:
        if key not in OPTIONS:
            raise OptionError(
                f"{file}: there is no option {key.replace('_', '-')!r} (`unbraid serve --help` lists them)"
            )
    return written


def settings_of(options: argparse.Namespace) -> Settings:
    """The part of the options that the application itself knows."""
    same = {name for name in Settings.__dataclass_fields__ if name in OPTIONS} - {"cors_origins"}
    return Settings(
        model_names=tuple(options.served_model_name),
        cors_origins=tuple(options.cors_origins),
        policy=Policy(keep_special_tokens=frozenset(options.keep_special_tokens)),
        api_keys=(*options.api_key, *_keys(options.api_key_file)),
        **{name: getattr(options, name) for name in same},
    )


def _keys(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        found = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeError) as error:
        raise OptionError(f"{file}: can't be read ({error})") from error
    keys = [line for line in found if line and not line.startswith("#")]
    if not keys:
        raise OptionError(f"{file}: holds no key, which would leave the server open; write one a line")
    return keys
