"""Two deployments, the same requests: what differs, byte for byte, by kind, with the request that shows it.

Reference and candidate are each an endpoint, or what an endpoint once said (a baseline file). A request that differs is asked again:
an endpoint that contradicts itself is said to do so, and its difference isn't counted against the other. What is random by design
(ids, times) or measured (log-probabilities) isn't compared; that a log-probability's tokens spell the same text is.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from unbraid.errors import UnbraidError
from unbraid.integrity.cases import Case
from unbraid.integrity.causes import Comparison, Markers, differences
from unbraid.integrity.client import Answer, Endpoint, work_through
from unbraid.integrity.files import Json, read_file
from unbraid.integrity.findings import Finding, Layer, excerpt
from unbraid.integrity.layers import Call, Said, spelled_by

FORMS: tuple[Layer, Layer] = ("one-shot", "stream")
VERSION = 1
"""Of baseline and state files."""


@dataclass(frozen=True, slots=True)
class Task:
    """One request in one form."""

    case: Case
    form: Layer

    @property
    def key(self) -> str:
        """The same for the same request, whenever and wherever it is asked."""
        data = json.dumps([self.form, self.case.request], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(data.encode("utf-8", "backslashreplace")).hexdigest()[:24]


def tasks(cases: Sequence[Case], count: int) -> list[Task]:
    """`count` requests: the cases in both forms, then the cases again with another question number, until there are enough."""
    found: list[Task] = []
    turn = 0
    while len(found) < count and cases:
        found += [Task(_numbered(case, turn), form) for case in cases for form in FORMS]
        turn += 1
    return found[:count]


def _numbered(case: Case, turn: int) -> Case:
    """The case as another question: engines cache, and a fault may take more than one prompt to show."""
    if not turn:
        return case
    messages = [dict(message) for message in case.request["messages"]]
    last = next((m for m in reversed(messages) if m.get("role") == "user" and isinstance(m.get("content"), str)), None)
    if last is not None:
        last["content"] = f"Question {turn}. {last['content']}"
    return replace(case, name=f"{case.name} #{turn}", request={**case.request, "messages": messages})


# -- what a side says --------------------------------------------------------------------------------------------------


def record(answer: Answer) -> Json:
    """What is compared of an answer, as JSON."""
    reply = answer.reply
    counts: dict[str, int] = {}
    for problem in reply.problems:
        counts[problem.cause] = counts.get(problem.cause, 0) + 1
    usage = reply.usage or {}
    details = usage.get("completion_tokens_details") or {}
    return {
        "status": answer.status,
        "error": answer.error or None,
        "choices": {str(index): _said(said) for index, said in sorted(reply.choices.items())},
        "problems": counts,
        "usage": {
            "prompt_tokens": usage.get("prompt_tokens"),
            "completion_tokens": usage.get("completion_tokens"),
            "reasoning_tokens": details.get("reasoning_tokens"),
        },
    }


def _said(said: Said) -> Json:
    return {
        "reasoning": said.reasoning or None,
        "content": said.content or None,
        "calls": [[call.name, call.arguments] for call in said.calls],
        "finish": said.finish,
        "logprobs": None if said.logprobs is None else spelled_by(said.logprobs),
    }


def _unsaid(data: Json) -> Said:
    calls = [Call(name, arguments) for name, arguments in data["calls"]]
    return Said(data["reasoning"], data["content"], calls, data["finish"])


class Side(Protocol):
    """Whoever can be asked."""

    @property
    def name(self) -> str: ...

    async def ask(self, task: Task) -> Json | None:
        """What it says; `None` if it was never asked this."""


class Live:
    """An endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.name = endpoint.url

    async def ask(self, task: Task) -> Json:
        return record(await self.endpoint.chat(task.case.request, stream=task.form == "stream"))


class Baseline:
    """What an endpoint once said, from a file."""

    def __init__(self, path: str) -> None:
        self.name = path
        self.records: dict[str, Json] = {}
        for line in _lines(path, "baseline"):
            try:
                self.records[line["key"]] = line["said"]
            except (KeyError, TypeError) as error:
                raise UnbraidError(f"{path}: an entry without `key` and `said`, which --save writes") from error
        if not self.records:
            raise UnbraidError(f"{path}: no baseline of this version with answers in it; --save makes one")

    async def ask(self, task: Task) -> Json | None:
        return self.records.get(task.key)


def _lines(path: str, kind: str) -> Iterator[Json]:
    """The entries of a file of ours. A last line that was cut off, as by a crash, doesn't count."""
    lines = read_file(path).split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                return
            raise UnbraidError(f"{path}, line {number}: no JSON ({error})") from error
        if number == 1:
            if not isinstance(data, dict) or data.get("unbraid") != kind or data.get("version") != VERSION:
                raise UnbraidError(f"{path}: no {kind} of this version of `unbraid compare`")
            continue
        yield data


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Different:
    """One difference and the request that shows it."""

    finding: Finding
    task: Task


@dataclass(slots=True)
class Comparing:
    """What a comparison found."""

    reference: str
    candidate: str
    asked: int = 0
    resumed: int = 0
    refused: list[str] = field(default_factory=list)
    """What both sides say of the requests that they refuse alike."""
    unknown: int = 0
    """Requests that the baseline doesn't have."""
    different: list[Different] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    """Of each endpoint, by URL."""
    seconds: float = 0.0

    @property
    def same(self) -> bool:
        return not any(each.finding.level == "error" for each in self.different)

    def groups(self) -> dict[tuple[str, str], list[Different]]:
        """Differences by cause and field, the most frequent first."""
        found: dict[tuple[str, str], list[Different]] = {}
        for each in self.different:
            found.setdefault((each.finding.cause, f"{each.finding.layer} {each.finding.field}"), []).append(each)
        return dict(sorted(found.items(), key=lambda entry: -len(entry[1])))


async def compare(
    reference: Side,
    candidate: Side,
    wanted: Sequence[Task],
    markers: Markers,
    *,
    concurrency: int = 4,
    journal: Journal | None = None,
    done: Callable[[Task], None] = lambda task: None,
) -> Comparing:
    """Ask both sides everything. What the journal knows already isn't asked again."""
    started = time.monotonic()
    found = Comparing(reference.name, candidate.name)
    live = (side.endpoint for side in (reference, candidate) if isinstance(side, Live))
    found.models = {endpoint.url: endpoint.model or "" for endpoint in live}
    differing: dict[str, list[Different]] = {}

    async def one(task: Task) -> None:
        pair = journal.known.get(task.key) if journal else None
        if pair is None:
            right, seen = await work_through((reference, candidate), lambda side: side.ask(task), 2)
            pair = {"right": right, "seen": seen, "steady": True}
            if right is not None and seen is not None and right != seen:
                pair["steady"] = await _steady(reference, right, task) and await _steady(candidate, seen, task)
            if journal:
                journal.write(task.key, pair)
        else:
            found.resumed += 1
        differing[task.key] = list(_judged(task, pair, markers, found))
        found.asked += 1
        done(task)

    await work_through(wanted, one, concurrency)
    found.different = [each for task in wanted for each in differing.pop(task.key, ())]
    found.seconds = time.monotonic() - started
    return found


async def _steady(side: Side, said: Json, task: Task) -> bool:
    return await side.ask(task) == said


def _judged(task: Task, pair: Json, markers: Markers, found: Comparing) -> Iterator[Different]:
    right, seen = pair["right"], pair["seen"]
    if right is None or seen is None:
        found.unknown += 1
        return
    if 400 <= right["status"] == seen["status"]:
        found.refused.append(f"{seen['status']}: {seen['error']}")
    for finding in compared(task, right, seen, markers):
        if not pair["steady"]:
            message = "one of the two answers the same request differently every time"
            yield Different(replace(finding, cause="not_reproducible", level="note", message=message), task)
            return
        yield Different(finding, task)


def compared(task: Task, right: Json, seen: Json, markers: Markers) -> list[Finding]:
    """What differs between two answers, the reference's being right."""
    name, layer = task.case.name, task.form
    if right["status"] != seen["status"]:
        cause = "server_error" if max(right["status"], seen["status"]) >= 500 or not seen["status"] else "refused"
        message = (
            f"the reference answers {right['status']}, this one {seen['status']}: {seen['error'] or right['error']}"
        )
        return [Finding(name, layer, "status", cause, message)]
    found: list[Finding] = []
    if right["choices"].keys() != seen["choices"].keys():
        message = f"choices {', '.join(seen['choices'])} instead of {', '.join(right['choices'])}"
        found.append(Finding(name, layer, "choices", "choices_mixed", message))
    for index in right["choices"].keys() & seen["choices"].keys():
        found += _choice(task, int(index), right["choices"][index], seen["choices"][index], markers)
    for cause in dict.fromkeys([*right["problems"], *seen["problems"]]):
        one, other = right["problems"].get(cause, 0), seen["problems"].get(cause, 0)
        if bool(one) != bool(other):
            level: Any = "warning" if cause == "empty_delta" else "error"
            found.append(Finding(name, layer, "chunks", cause, f"{other} times, the reference has {one}", level))
    texts = any(finding.field != "finish_reason" for finding in found)
    for name_of, one in right["usage"].items():
        other = seen["usage"].get(name_of)
        if one != other and not texts:  # other texts have other counts
            message = f"{other}, the reference says {one}"
            found.append(Finding(name, layer, f"usage.{name_of}", "usage", message, "warning"))
    return found


def _choice(task: Task, index: int, right: Json, seen: Json, markers: Markers) -> Iterable[Finding]:
    expected, got = _unsaid(right), _unsaid(seen)
    comparison = Comparison(task.case.name, task.form, expected, got, markers, index, None, task.case.request)
    found = comparison.findings()
    if right["logprobs"] != seen["logprobs"] and not differences(expected, got):
        one, other = excerpt(right["logprobs"] or "", 0), excerpt(seen["logprobs"] or "", 0)
        message = "their tokens spell another text"
        found.append(
            Finding(
                task.case.name,
                task.form,
                "logprobs.content",
                "logprobs",
                message,
                choice=index,
                expected=one,
                got=other,
            )
        )
    return found


# -- files -------------------------------------------------------------------------------------------------------------


class Journal:
    """What has been asked already, a line as it comes: whoever is interrupted goes on there."""

    def __init__(self, path: str, reference: str, candidate: str) -> None:
        self.known: dict[str, Json] = {}
        head = {"unbraid": "state", "version": VERSION, "sides": [reference, candidate]}
        file = Path(path)
        if file.is_file() and file.stat().st_size:
            with file.open(encoding="utf-8", errors="replace") as opened:
                first = opened.readline()
            try:
                sides = json.loads(first).get("sides")
            except (ValueError, AttributeError, RecursionError):
                sides = None
            if sides not in (None, [reference, candidate]):
                raise UnbraidError(
                    f"{path}: is of a comparison between {' and '.join(sides)}; name another --state file"
                )
            self.known = {line["key"]: line["pair"] for line in _lines(path, "state")}
        try:
            # Written anew: a line that was cut off must not be gone on with.
            self._file = file.open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UnbraidError(f"{path}: can't be written ({error.strerror or error})") from error
        self._file.write(json.dumps(head) + "\n")
        for key, pair in self.known.items():
            self.write(key, pair)

    def write(self, key: str, pair: Json) -> None:
        self._file.write(json.dumps({"key": key, "pair": pair}, ensure_ascii=False) + "\n")
        self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


async def save(
    side: Live,
    wanted: Sequence[Task],
    path: str,
    *,
    concurrency: int = 4,
    done: Callable[[Task], None] = lambda task: None,
) -> int:
    """Keep what an endpoint says, to compare with later. Returns how many answers."""
    said: dict[str, Json] = {}

    async def one(task: Task) -> None:
        said[task.key] = await side.ask(task)
        done(task)

    await work_through(wanted, one, concurrency)
    head: Mapping[str, Any] = {
        "unbraid": "baseline",
        "version": VERSION,
        "url": side.endpoint.url,
        "model": side.endpoint.model,
    }
    lines = [
        head,
        *({"key": task.key, "case": task.case.name, "form": task.form, "said": said[task.key]} for task in wanted),
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    try:
        Path(path).write_bytes(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UnbraidError(f"{path}: can't be written ({error.strerror or error})") from error
    return len(said)
