"""Streams that nobody has seen before: other words, names and numbers in each.

The contest feeds the same stream again and again, and the parser remembers what tokens do (`unbraid.memo`): it could look good by
knowing the benchmark. A server sees structure again, markup, names of tools, keys, but not values. Here each stream is run once, after
some of its kind, and then the same ones once more: the two columns should be close.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import unbraid
from benchmarks import prose
from benchmarks.contest import Prepared, as_result, judge, ours
from benchmarks.timing import floor, once
from benchmarks.workloads import HARMONY, QWEN3, QWEN3_5, Call, Workload

TOKENS = 40_000
"""About so many are measured of each kind."""
WARM = 0.25
"""This share of the streams is run before."""
_SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu bar den fil gon hur".split()


@dataclass(frozen=True)
class Unseen:
    """One kind of streams in one mode."""

    kind: str
    mode: str
    tokens: int
    first: float
    """To the floor of the same streams: the first time."""
    again: float


def _word(random: Random) -> str:
    return "".join(random.choice(_SYLLABLES) for _ in range(random.randint(1, 4)))


def _sentence(random: Random, words: int) -> str:
    chosen = [_word(random) if random.random() < 0.3 else random.choice(prose.WORDS) for _ in range(words)]
    return " ".join(chosen).capitalize() + random.choice(".?!")


def _text(random: Random, sentences: int) -> str:
    return random.choice((" ", "\n")).join(_sentence(random, random.randint(5, 18)) for _ in range(sentences))


def _weather(random: Random) -> Call:
    return "get_weather", {"city": _word(random).capitalize(), "days": random.randint(1, 99)}


def _file(random: Random, characters: int) -> Call:
    arguments = {
        "path": f"{_word(random)}/{_word(random)}.py",
        "text": prose.code(characters, random.randint(0, 1 << 30)),
        "mode": random.randint(100, 777),
        "tags": [_word(random), _word(random)],
    }
    return "write_file", arguments


def _calls(random: Random) -> tuple[Call, ...]:
    return tuple(_weather(random) for _ in range(16))


KINDS: dict[str, Callable[[Random], Workload]] = {
    "plain answers": lambda random: QWEN3.write("plain", content=_text(random, 40)),
    "short requests": lambda random: QWEN3.write(
        "short", reasoning=_sentence(random, 6), content=_sentence(random, 8), bound=(5, 3)
    ),
    "16 short calls": lambda random: QWEN3.write("calls", reasoning=_sentence(random, 3), calls=_calls(random)),
    "8 JSON calls": lambda random: QWEN3.write("json", calls=tuple(_file(random, 600) for _ in range(8))),
    "XML calls, 5k characters": lambda random: QWEN3_5.write("xml", calls=(_file(random, 5_000),)),
    "Harmony, short": lambda random: HARMONY.write("harmony", reasoning=_text(random, 3), calls=(_weather(random),)),
}


def measure(modes: Sequence[str], only: str, say: Callable[[str], None]) -> list[Unseen]:
    """Every kind in every mode. A wrong message stops it."""
    rows: list[Unseen] = []
    for kind, make in KINDS.items():
        if not any(text in kind for text in only.split(",")):
            continue
        for number, mode in enumerate(modes):
            rows.append(_measured(kind, mode, _streams(make, seed=1_000 * number)))
            say(f"  {kind:26} {mode:10} {rows[-1].first:6.2f} {rows[-1].again:6.2f}")
    return rows


def _streams(make: Callable[[Random], Workload], seed: int) -> list[Prepared]:
    """Other ones for each seed: what one mode has seen, the next hasn't."""
    random = Random(seed)
    first = Prepared.of(make(random))
    count = max(8, int(TOKENS / len(first.ids)))
    return [first, *(Prepared.of(make(random)) for _ in range(count - 1))]


def _measured(kind: str, mode: str, streams: list[Prepared]) -> Unseen:
    workload = streams[0].workload
    bound = unbraid.get_format(workload.format).bind(workload.tokens.vocabulary)
    works = [ours(stream, mode, bound) for stream in streams]
    warm = int(len(works) * WARM)
    for work in works[:warm]:
        work()
    deltas = [stream.deltas for stream in streams[warm:]]
    measured = works[warm:]

    def floors() -> None:
        for delta in deltas:
            floor(delta)

    def run() -> None:
        for work in measured:
            work()

    floors()
    base = once(floors)
    first = once(run)
    again = once(run)
    base = min(base, once(floors))
    for stream, work in zip(streams, works, strict=True):
        verdict = judge(as_result(work()), stream.workload.expected)
        if verdict != "right":
            raise SystemExit(f"{kind}, {mode}: {verdict}")
    return Unseen(kind, mode, sum(map(len, deltas)), first / base, again / base)
