"""Running a plan: engine steps through the machine into deltas, all choices of a request at once.

Whoever stops listening closes the generator, and the engine's iterators with it: a generation nobody reads doesn't go
on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from unbraid.engines.base import Engine, Step
from unbraid.errors import EngineError
from unbraid.protocol import Delta, Usage, joined
from unbraid.server.gateway import Plan, Run
from unbraid.server.reading import text_usage

T = TypeVar("T")

_AHEAD = 8
"""Steps that a choice may be ahead of a slow reader when several choices share one stream."""


Steps = AsyncGenerator[tuple[int, list[Delta]], None]
"""`(choice index, deltas)` for each engine step."""


def run_plan(engine: Engine, plan: Plan) -> Steps:
    """What all choices say, as they say it. Iterating raises `EngineError`."""
    if len(plan.runs) == 1:
        return run_choice(engine, plan.runs[0], 0, plan.runs[0].choice.open())
    return _run_choices(engine, plan)


async def _run_choices(engine: Engine, plan: Plan) -> Steps:
    """With the first step, whosever it is, all choices open, in their order: the accumulator of OpenAI's SDK puts them
    into a list as they come."""
    opened = False
    async with aclosing(merged([run_choice(engine, run, index) for index, run in enumerate(plan.runs)])) as steps:
        async for item in steps:
            if not opened:
                opened = True
                for index, run in enumerate(plan.runs):
                    yield index, run.choice.open()
            yield item


async def run_choice(engine: Engine, run: Run, index: int, opening: Sequence[Delta] = ()) -> Steps:
    """What one choice says: `opening` with the first step, the finish reason with the last one. The first step is passed
    on even if there is nothing to show: the engine works, the reply may begin. Steps that are here together go on together:
    the deltas of each, for one write."""
    parser, choice, watch = run.parser, run.choice, run.watch
    begun = False
    waiting = [*opening]
    steps = engine.generate(run.generation)
    try:
        async for step in steps:
            ids = step.ids
            if step.finish == "stop" and ids and ids[-1] in run.unseen_stops:
                ids = ids[:-1]
            events = parser.feed(ids) if step.text is None else parser.feed_text(step.text)
            watch.step(events)
            out = choice.feed(events, ids, step.logprobs)
            ended = step.finish is not None or choice.stopped
            if step.finish is not None:
                events = parser.finish(step.finish)
                watch.step(events)
                out += choice.feed(events)
            if ended:
                run.spent = step.spent
                out += choice.finish(step.finish or "stop")
                watch.finish = out[-1].text
            if len(out) > 1:
                out = joined(out)
            waiting = waiting + out if waiting else out
            if (waiting or not begun) and (ended or not step.more):
                begun = True
                yield index, waiting
                waiting = []
            if ended:
                return
    except EngineError:
        if waiting and watch.first is not None:  # for a step that never came
            yield index, waiting
        raise
    finally:
        watch.ended(parser.diagnostics, run.spent)
        await _close(steps)
    raise EngineError("the engine ended without saying why")


async def _close(steps: AsyncIterator[Step]) -> None:
    if isinstance(steps, AsyncGenerator):
        await steps.aclose()


async def merged(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """The items of several generators as they come. One failure ends all."""
    queue: asyncio.Queue[tuple[int, T] | asyncio.Task[None]] = asyncio.Queue()
    room = [asyncio.Semaphore(_AHEAD) for _ in sources]

    async def pump(number: int, source: AsyncGenerator[T, None]) -> None:
        async with aclosing(source):
            async for item in source:
                await room[number].acquire()
                queue.put_nowait((number, item))

    tasks = [asyncio.create_task(pump(number, source)) for number, source in enumerate(sources)]
    for task in tasks:
        task.add_done_callback(queue.put_nowait)
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, asyncio.Task):
                item.result()
                running -= 1
            else:
                room[item[0]].release()
                yield item[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def usage_of(plan: Plan, index: int | None = None) -> Usage:
    """Tokens of all choices, or of one, so far; the prompt counts once."""
    runs = plan.runs if index is None else plan.runs[index : index + 1]
    counted = [(run.counted, run.spent) for run in runs if run.counted is not None]
    if counted:
        return text_usage(counted)
    choices = [run.choice for run in runs]
    return Usage(plan.prompt_tokens, sum(c.tokens for c in choices), sum(c.reasoning_tokens for c in choices))
