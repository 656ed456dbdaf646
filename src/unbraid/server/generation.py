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
from unbraid.events import Event
from unbraid.protocol import Delta, Usage, joined
from unbraid.server.gateway import Plan, Run
from unbraid.server.reading import text_usage

T = TypeVar("T")

_AHEAD = 8
"""Steps that a choice may be ahead of a slow reader when several choices share one stream."""


Steps = AsyncGenerator[tuple[int, list[Delta], Usage | None], None]
"""`(choice index, deltas, usage)` for each read of the engine's steps; the choice's usage until there, if it is to be told."""


def run_plan(engine: Engine, plan: Plan) -> Steps:
    """What all choices say, as they say it. Iterating raises `EngineError`."""
    if len(plan.runs) == 1:
        return run_choice(engine, plan, 0, plan.runs[0].choice.open())
    return _run_choices(engine, plan)


async def written(engine: Engine, plan: Plan) -> AsyncGenerator[bytes, None]:
    """A stream's bytes, one piece for each read of the engine's steps. A choice that is alone goes from steps to bytes here: what
    costs anything in a stream is what is done, and remembered, between two steps."""
    writer = plan.writer
    if len(plan.runs) > 1 or writer.continuous_usage:
        async with aclosing(run_plan(engine, plan)) as told:
            async for item in told:
                yield writer.encode(*item)
        return
    (run,), encode = plan.runs, writer.encode
    deltas = run.choice.open()
    reads = engine.generate(run.generation)
    try:
        async for steps in reads:
            yield encode(0, deltas + said(run, steps) if deltas else said(run, steps))
            deltas = []
            if run.ended:
                return
    finally:
        await _over(run, reads)
    raise EngineError("the engine ended without saying why")


async def _run_choices(engine: Engine, plan: Plan) -> Steps:
    """With the first step, whosever it is, all choices open, in their order: the accumulator of OpenAI's SDK puts them
    into a list as they come."""
    openings = [(index, run.choice.open(), _told(plan, index)) for index, run in enumerate(plan.runs)]
    async with aclosing(merged([run_choice(engine, plan, index) for index in range(len(plan.runs))])) as steps:
        async for item in steps:
            for opening in openings:
                yield opening
            openings = []
            yield item


async def run_choice(engine: Engine, plan: Plan, index: int, opening: Sequence[Delta] = ()) -> Steps:
    """What one choice says: `opening` with the first step, the finish reason with the last one. The first step is passed
    on even if there is nothing to show: the engine works, the reply may begin. Steps that come together go on together, for one
    write; not if each is to be told with what was used until there."""
    run, apart = plan.runs[index], plan.writer.continuous_usage
    deltas, begun = [*opening], False
    reads = engine.generate(run.generation)
    try:
        async for steps in reads:
            for some in zip(steps) if apart else (steps,):
                deltas += said(run, some)
                ended = run.ended
                if deltas or not begun:
                    begun = True
                    yield index, deltas, _told(plan, index)
                    deltas = []
                if ended:
                    return
    finally:
        await _over(run, reads)
    raise EngineError("the engine ended without saying why")


def _told(plan: Plan, index: int) -> Usage | None:
    """A choice's usage so far, if each of its chunks tells it: by the time that it is written, the choice may be further."""
    return usage_of(plan, index) if plan.writer.continuous_usage else None


async def _over(run: Run, reads: AsyncIterator[Sequence[Step]]) -> None:
    run.watch.ended(run.parser.diagnostics, run.spent)
    if isinstance(reads, AsyncGenerator):
        await reads.aclose()


def said(run: Run, steps: Sequence[Step]) -> list[Delta]:
    """What the choice says with these steps, one delta or a few for each; what comes behind its end is left out."""
    parser, choice = run.parser, run.choice
    feed, show, unseen = parser.feed, choice.feed, run.unseen_stops
    seen: list[Event] = []
    out: list[Delta] = []
    for ids, logprobs, finish, text, spent in steps:
        if finish == "stop" and ids and ids[-1] in unseen:
            ids = ids[:-1]
        events = feed(ids) if text is None else parser.feed_text(text)
        seen += events
        deltas = show(events, ids, logprobs)
        if finish is not None:
            events = parser.finish(finish)
            seen += events
            deltas += choice.feed(events)
        if finish is not None or choice.stopped:
            run.ended = True
            run.spent = spent
            deltas += choice.finish(finish or "stop")
            run.watch.finish = deltas[-1].text
            out += joined(deltas)
            break
        out += deltas if len(deltas) < 2 else joined(deltas)
    run.watch.saw(seen)
    return out


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
