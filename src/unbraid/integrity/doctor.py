"""An installation before it serves: does the model's folder fit its format, do the packages fit each other, do the engine's flags fit both?

Nothing is loaded and nothing is asked over a network. What a tokenizer, a chat template and a format say to each other is the linter's
business (`unbraid.lint`, `unbraid.probes`); here is what lies between the files, and around them. Every finding says why it matters and
what to do.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any

from unbraid.checkpoint import Checkpoint, read_checkpoint
from unbraid.errors import FormatNotFound, UnbraidError
from unbraid.formats import FORMATS, get_format
from unbraid.gguf import read_header
from unbraid.integrity.cases import end_tokens
from unbraid.integrity.files import Json
from unbraid.lint import Finding, lint, ordered
from unbraid.table import ENDED, Format, Special, ends_of, spelled, thinks
from unbraid.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Installation:
    """A model's folder, or its GGUF, as files."""

    folder: Path
    checkpoint: Checkpoint
    vocabulary: Vocabulary | None
    added: Mapping[str, Json] = field(default_factory=dict)
    """The added tokens of `tokenizer.json`, by spelling."""
    decoder: Mapping[str, Json] = field(default_factory=dict)
    """Those of `tokenizer_config.json`; each entry has its `id`."""
    tokenizer_config: Json = field(default_factory=dict)
    generation: Json = field(default_factory=dict)
    config: Json = field(default_factory=dict)


def read_installation(path: str | Path) -> Installation:
    """What a model's folder holds. Raises `VocabularyError` for what is damaged."""
    folder = Path(path)
    checkpoint = read_checkpoint(folder)
    if folder.suffix == ".gguf":
        end = read_header(folder).get("tokenizer.ggml.eos_token_id")
        return Installation(folder, checkpoint, Vocabulary.from_file(folder), config={"eos_token_id": end})
    if not folder.is_dir():
        return Installation(folder, checkpoint, None)
    tokenizer = _object(folder / "tokenizer.json")
    entries = [entry for entry in tokenizer.get("added_tokens") or () if isinstance(entry, dict)]
    tokenizer_config = _object(folder / "tokenizer_config.json")
    decoder = tokenizer_config.get("added_tokens_decoder") or {}
    has_tokens = any((folder / name).is_file() for name in ("tokenizer.json", "tekken.json", "tiktoken.model"))
    return Installation(
        folder,
        checkpoint,
        Vocabulary.from_file(folder) if has_tokens else None,
        {str(entry.get("content")): entry for entry in entries},
        {str(e.get("content")): {**e, "id": int(id)} for id, e in decoder.items() if isinstance(e, dict)},
        tokenizer_config,
        _object(folder / "generation_config.json"),
        _object(folder / "config.json"),
    )


def _object(file: Path) -> Json:
    """A JSON file that holds an object; nothing if there is no such file. `read_checkpoint` has read the others already."""
    if not file.is_file():
        return {}
    try:
        data = json.loads(file.read_text("utf-8", "replace"))
    except ValueError as error:
        raise UnbraidError(f"{file}: not JSON ({error})") from error
    return data if isinstance(data, dict) else {}


def examine(found: Installation, fmt: Format) -> list[Finding]:
    """The model's folder against its format, errors first."""
    findings: list[Finding] = []
    if found.vocabulary is not None:
        findings += _by_linter(fmt, found.vocabulary, found.checkpoint.template)
        findings += _tokens(found, fmt)
        findings += _stops(found, fmt, found.vocabulary)
    elif found.folder.is_dir():
        findings.append(
            Finding(
                "no_tokenizer",
                "error",
                str(found.folder),
                "holds no tokenizer.json, tekken.json or tiktoken.model",
                "without it markers can't be told from text",
                "copy the tokenizer beside the weights",
            )
        )
    return ordered([*findings, *_template(found, fmt)])


def _by_linter(fmt: Format, vocabulary: Vocabulary, template: str | None) -> Iterator[Finding]:
    """What the linter says of the tokenizer. An opener of other turns that it lacks (DeepSeek's `<｜System｜>`) harms no answer, and a
    marker that the chat template doesn't have either is none that the model writes."""
    others = {spelled(s) for marker, target in fmt.turns.items() if target is not ENDED for s in marker.spellings}
    for finding in lint(fmt, vocabulary):
        if finding.kind in _BY_TOKENIZER:
            unwritten = template is not None and finding.place not in template
            harmless = finding.kind == "split" and (finding.place in others or unwritten)
            yield replace(finding, level="note") if harmless else finding


_BY_TOKENIZER = ("split", "plain_token", "no_boundary_token")
"""What the linter says of a tokenizer that isn't fine by itself in many models."""


# -- the tokenizer's files ---------------------------------------------------------------------------------------------


def _tokens(found: Installation, fmt: Format) -> Iterator[Finding]:
    for text in fmt.specials:
        one, other = found.added.get(text), found.decoder.get(text)
        if one and other:
            yield from _two_accounts(text, one, other)
        if one:
            yield from _one_token(found, text, one)
    yield from _pairs(found, fmt)


def _two_accounts(text: str, one: Json, other: Json) -> Iterator[Finding]:
    if one.get("id") != other.get("id"):
        yield Finding(
            "id_differs", "error", text,
            f"has the id {one.get('id')} in tokenizer.json and {other.get('id')} in tokenizer_config.json",
            "which of the two an engine takes depends on its loader; with the wrong one the marker is never seen",
            "take both files from the same revision of the model's repository",
        )  # fmt: skip
    if bool(one.get("special")) != bool(other.get("special")):
        yield Finding(
            "flag_differs", "warning", text,
            f"is{'' if one.get('special') else ' not'} special in tokenizer.json, and is{'' if other.get('special') else ' not'} "
            "in tokenizer_config.json",
            "an engine that skips special tokens keeps or drops it depending on which file its loader reads",
            "make the two files agree: take both from the same revision",
        )  # fmt: skip


def _one_token(found: Installation, text: str, entry: Json) -> Iterator[Finding]:
    size, id = found.config.get("vocab_size"), entry.get("id")
    if isinstance(size, int) and isinstance(id, int) and id >= size:
        yield Finding(
            "beyond_vocabulary", "error", text, f"has the id {id}, and the model has only {size} tokens",
            "the model can't write it: it will be spelled with ordinary tokens, or something else comes",
            "resize the embeddings, or use the tokenizer that the model was trained with",
        )  # fmt: skip
    if entry.get("lstrip") or entry.get("rstrip"):
        side = " and ".join(name for name, key in (("before", "lstrip"), ("behind", "rstrip")) if entry.get(key))
        yield Finding(
            "strips_space", "warning", text, f"swallows the white space {side} it when a prompt is tokenized",
            "the model sees its history differently from what it wrote; where a thought begins shifts",
            "set lstrip and rstrip to false, unless the model was trained so",
        )  # fmt: skip


def _pairs(found: Installation, fmt: Format) -> Iterator[Finding]:
    """Markers of which one is special and its partner isn't."""
    vocabulary = found.vocabulary
    assert vocabulary is not None
    for opener, closer in _opened_and_closed(fmt):
        ids = [vocabulary.special.get(text) for text in (opener, closer)]
        if None in ids:
            continue
        flagged = [id in vocabulary.control for id in ids]
        if flagged[0] != flagged[1]:
            special, plain = (opener, closer) if flagged[0] else (closer, opener)
            yield Finding(
                "half_special", "error", f"{opener} {closer}", f"{special} is special, {plain} isn't",
                "with skip_special_tokens (the default of most engines) the text keeps one of the two, and no parser can "
                "find the end of the thought or call",
                "flag both alike in tokenizer.json; until then serve with skip_special_tokens: false",
            )  # fmt: skip


def _opened_and_closed(fmt: Format) -> Iterator[tuple[str, str]]:
    """Special openers of reasoning and calls with the special marker that ends them."""
    seen: set[tuple[str, str]] = set()
    for row in fmt.states.values():
        for opener, inside in row.items():
            if not (inside.codec or inside.strand == "reasoning") or not _is_special(opener.spellings):
                continue
            for closer, after in fmt.states.get(inside, {}).items():
                leaves = after.strand != inside.strand and after.codec is None
                if leaves and _is_special(closer.spellings) and opener is not closer:
                    pair = spelled(opener.spellings[0]), spelled(closer.spellings[0])
                    if pair not in seen:
                        seen.add(pair)
                        yield pair


def _is_special(spellings: Sequence[Sequence[Any]]) -> bool:
    return bool(spellings) and len(spellings[0]) == 1 and isinstance(spellings[0][0], Special)


# -- stop tokens -------------------------------------------------------------------------------------------------------


def _stops(found: Installation, fmt: Format, vocabulary: Vocabulary) -> Iterator[Finding]:
    source = "generation_config.json" if "eos_token_id" in found.generation else "config.json"
    source = found.folder.name if found.folder.suffix == ".gguf" else source
    given = found.generation.get("eos_token_id", found.config.get("eos_token_id"))
    if given is None:
        return
    ids = {id for id in (given if isinstance(given, list) else [given]) if isinstance(id, int)}
    names = {id: text for text, id in vocabulary.special.items()}
    ends = [text for text in end_tokens(fmt) if text in vocabulary.special]
    # Formats list what may end a turn; what does end it is what the chat template writes.
    ends = [text for text in ends if text in (found.checkpoint.template or "")] or ends
    if ends and not any(vocabulary.special[text] in ids for text in ends):
        shown = ", ".join(names.get(id, str(id)) for id in sorted(ids))
        yield Finding(
            "stop_missing", "error", f"{source}: eos_token_id", f"has {shown}, and not {ends[0]} ({vocabulary.special[ends[0]]})",
            "the engine doesn't stop where the turn ends: the model goes on writing the user's next turn",
            f"add {vocabulary.special[ends[0]]} to eos_token_id",
        )  # fmt: skip
    inner = {spelled(s) for m in fmt.markers for s in m.spellings if m not in fmt.turns}
    for id in sorted(ids):
        text = names.get(id, "")
        if text in inner and text not in end_tokens(fmt):
            yield Finding(
                "stop_early", "error", f"{source}: eos_token_id", f"has {id}, which is {text}: a marker inside the turn",
                "every answer ends there: thoughts without an answer, or calls without their closer",
                f"take {id} out of eos_token_id",
            )  # fmt: skip
        elif id not in vocabulary.tokens:
            yield Finding(
                "stop_unknown", "warning", f"{source}: eos_token_id", f"has {id}, which is no token of this tokenizer",
                "the file belongs to another model, or the tokenizer does", "take both from the same repository",
            )  # fmt: skip


# -- the chat template -------------------------------------------------------------------------------------------------


def _template(found: Installation, fmt: Format) -> list[Finding]:
    if found.checkpoint.template is None:
        return [
            Finding(
                "no_template",
                "warning",
                str(found.folder),
                "there is no chat template",
                "the engine makes one up or refuses to chat; the parser's start depends on it",
                "add chat_template.jinja, or give the engine one by its flag",
            )
        ]
    from unbraid.probes import lint_template

    bound = fmt.bind(found.vocabulary) if found.vocabulary else None
    return lint_template(fmt, found.checkpoint.template, found.checkpoint.special_tokens, bound)


# -- the engine's flags ------------------------------------------------------------------------------------------------


def examine_flags(words: str | Sequence[str], fmt: Format, vocabulary: Vocabulary | None = None) -> list[Finding]:
    """An engine's command line (`vllm serve ...`, `python -m sglang.launch_server ...`, `llama-server ...`) against the format."""
    try:
        words = shlex.split(words) if isinstance(words, str) else list(words)
    except ValueError as error:
        raise UnbraidError(f"the engine's command line can't be read ({error}): {words}") from error
    flags = _flags(words)
    line = " ".join(words[:6])
    if "llama-server" in line or "llama.cpp" in line:
        return ordered(_llama_flags(flags, fmt))
    engine = "sglang" if "sglang" in line else "vllm"
    found = [*_parsers(flags, fmt, engine), *_auto_choice(flags, line), *_backend(flags, line)]
    return ordered([*found, *_skipping(flags, fmt, vocabulary)])


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Flag -> value, "" for one that stands alone."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            following = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("-") else ""
            found[name.replace("_", "-")] = value if equals else following
    return found


def _parsers(flags: Mapping[str, str], fmt: Format, engine: str) -> Iterator[Finding]:
    kinds: tuple[tuple[str, bool, Shape, str], ...] = (
        ("--tool-call-parser", fmt.calls, _calls_of, "calls"),
        ("--reasoning-parser", fmt.reasons, _thoughts_of, "reasoning"),
    )
    for flag, knows, shape, what in kinds:
        name = flags.get(flag)
        suggested = _suggested(fmt, shape, _registered()[engine]["tool" if what == "calls" else "reasoning"])
        if not name:
            if knows:
                yield Finding(
                    "no_parser", "warning", flag, f"isn't given, and {fmt.name} writes {what}",
                    f"{what} stays in the content as the model wrote it", f"add {flag} {suggested}",
                )  # fmt: skip
            continue
        try:
            other = get_format(name)
        except FormatNotFound:
            near = difflib.get_close_matches(
                name, [alias for f in FORMATS.values() for alias in (f.name, *f.aliases)], 2
            )
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            yield Finding(
                "unknown_parser", "error", flag, f"no engine has a parser {name!r}{hint}",
                "the engine won't start, or has a plugin that nobody here knows", f"use {suggested}",
            )  # fmt: skip
            continue
        if knows and not shape(fmt) & shape(other):
            yield Finding(
                "wrong_parser", "error", flag, f"{name} reads {other.name}, and the model writes {fmt.name}",
                f"its {what} has other markers: it is never found, and stays in the content",
                f"use {suggested}",
            )  # fmt: skip


Shape = Callable[[Format], set[Any]]


@cache
def _registered() -> dict[str, dict[str, list[str]]]:
    """Engine -> kind of parser -> the names that the engine registers."""
    found: dict[str, dict[str, list[str]]] = json.loads(
        resources.files(__package__).joinpath("parser_names.json").read_text(encoding="utf-8")
    )
    return found


def _suggested(fmt: Format, shape: Shape, names: Sequence[str]) -> str:
    """The engine's own parser for this format, or one that reads the same shape: a namesake, else the one that is known best."""
    alike = [name for name in names if shape(get_format(name)) & shape(fmt)]

    def fitness(name: str) -> tuple[int, bool, bool]:
        kin = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, fmt.name, strict=False)))
        return (kin if kin > 2 else 0), get_format(name).name == fmt.name, name == "hermes"

    return max(alike, key=fitness, default=f"a plugin: this engine has none for {fmt.name}")


def _calls_of(fmt: Format) -> set[tuple[str, str]]:
    """How calls look: what opens them, and how their body is written. Of several ways the first is the format's own; an engine's
    parser of that name knows no other."""
    found = set()
    for row in fmt.states.values():
        for marker, target in row.items():
            for codec in (end.codec for end in ends_of(target) if end.codec):
                own = getattr(codec, "codecs", (codec,))[0]
                found |= {(spelled(s), type(own).__name__) for s in marker.spellings or ((),)}
    return found


def _thoughts_of(fmt: Format) -> set[str]:
    """What ends a thought."""
    return {
        spelled(s)
        for state, row in fmt.states.items()
        if thinks(state)
        for marker, target in row.items()
        if not thinks(target) and not target.codec
        for s in marker.spellings
    }


def _auto_choice(flags: Mapping[str, str], line: str) -> Iterator[Finding]:
    if "vllm" in line and flags.get("--tool-call-parser") and "--enable-auto-tool-choice" not in flags:
        yield Finding(
            "no_auto_choice", "error", "--enable-auto-tool-choice", "isn't given beside --tool-call-parser",
            "vLLM refuses tool_choice auto, which is what clients send", "add --enable-auto-tool-choice",
        )  # fmt: skip


def _backend(flags: Mapping[str, str], line: str) -> Iterator[Finding]:
    """vLLM 0.28 to 0.32 at least: tool parsers write structural tags in a form that this backend can't read
    (vllm-project/vllm#55152, and `backend_guidance.py` of 0.32)."""
    config = flags.get("--structured-outputs-config", "") + flags.get("--structured-outputs-config.backend", "")
    if "vllm" in line and "guidance" in config and flags.get("--tool-call-parser"):
        yield Finding(
            "no_structural_tags", "error", "--structured-outputs-config", "chooses guidance, beside --tool-call-parser",
            "it reads only an older form of structural tags: calls that are required, named or strict are refused with 400",
            "leave the backend to auto, or choose xgrammar",
        )  # fmt: skip


def _skipping(flags: Mapping[str, str], fmt: Format, vocabulary: Vocabulary | None) -> Iterator[Finding]:
    """Special markers that the detokeniser drops, and nobody who asks it not to."""
    if vocabulary is None or flags.get("--tool-call-parser") or flags.get("--reasoning-parser"):
        return  # the engines' parsers ask for special tokens themselves
    turns = {*end_tokens(fmt), *(spelled(s) for marker in fmt.turns for s in marker.spellings)}
    special = [text for text in fmt.specials if vocabulary.special.get(text) in vocabulary.control]
    if dropped := [text for text in special if text not in turns]:
        yield Finding(
            "skipped", "error", "skip_special_tokens", f"drops {', '.join(dropped[:4])} before anybody reads the text",
            "the text has no trace of where a thought or call began",
            "give the parsers of the format, or send skip_special_tokens: false (Unbraid's gateway does)",
        )  # fmt: skip


def _llama_flags(flags: Mapping[str, str], fmt: Format) -> Iterator[Finding]:
    if "--no-jinja" in flags:
        yield Finding(
            "no_jinja", "error", "--no-jinja", "switches the model's own chat template off",
            "llama.cpp then knows only a few built-in templates, and neither tools nor thinking", "leave it out",
        )  # fmt: skip
    if flags.get("--reasoning-format") == "none" and fmt.reasons:
        yield Finding(
            "inline_reasoning", "warning", "--reasoning-format", "is none: thoughts stay in the content",
            "a thought that the prompt opens keeps its closer and loses its opener", "use auto or deepseek",
        )  # fmt: skip


def fitting(found: Iterable[Finding], *, notes: bool) -> list[Finding]:
    """The findings to show: notes only if asked for, so that a sound installation is quiet."""
    return [finding for finding in ordered(found) if notes or finding.level != "note"]
