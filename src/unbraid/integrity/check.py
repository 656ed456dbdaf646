"""One endpoint through the cases: its raw layer, its one-shot reply and its stream must tell the same story.

Both forms of a request are asked. Where the raw layer of each is known, each is held against its own, so that an endpoint which
answers differently every time can still be judged; the two forms are held against each other only if they answer the same raw text.
Without a raw layer the forms are held against each other, once a repeated request has shown that the endpoint says the same twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from unbraid.integrity.align import Raw, Story, tell, thinking_of
from unbraid.integrity.cases import Case
from unbraid.integrity.causes import Comparison, Markers, differences, levelled
from unbraid.integrity.client import Answer, Endpoint, work_through
from unbraid.integrity.files import Json
from unbraid.integrity.findings import Finding, Layer, excerpt, first_difference
from unbraid.integrity.layers import Reply, Said, spelled_by
from unbraid.integrity.raw import raw_of
from unbraid.policy import Policy
from unbraid.protocol import reasoning_wishes
from unbraid.table import Format
from unbraid.vocabulary import Vocabulary

HIDING = ("include_reasoning", "separate_reasoning", "reasoning_format", "reasoning")
"""Fields that hide reasoning; without them the same request shows what is hidden."""
Status = Literal["sound", "found", "skipped"]


@dataclass(slots=True)
class Result:
    """What a case showed."""

    case: Case
    status: Status = "sound"
    findings: list[Finding] = field(default_factory=list)
    raw: bool = False
    """Whether the raw layer was known."""
    reason: str = ""
    """Of a skipped case: why."""
    seconds: float = 0.0
    captures: dict[str, str] = field(default_factory=dict)
    """What came over the wire, by form."""


@dataclass(slots=True)
class Report:
    """What a check found."""

    url: str
    model: str
    owner: str
    format: str
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def findings(self) -> list[Finding]:
        return [finding for result in self.results for finding in result.findings]

    def counts(self) -> dict[str, int]:
        """How many of each level."""
        levels = [finding.level for finding in self.findings]
        return {level: levels.count(level) for level in ("error", "warning", "note")}

    @property
    def sound(self) -> bool:
        return not any(finding.level == "error" for finding in self.findings)


async def check(
    endpoint: Endpoint,
    fmt: Format,
    cases: Sequence[Case],
    *,
    vocabulary: Vocabulary | None = None,
    concurrency: int = 1,
    done: Callable[[Result], None] = lambda result: None,
) -> Report:
    """Ask everything, in order; `done` is told of each case. Raises `Unreachable`."""
    started = time.monotonic()
    if endpoint.model is None or not endpoint.owner:
        await endpoint.greet()
    # Markers of the format, and whatever else the tokenizer calls special.
    markers = Markers.of(
        fmt, [text for text, id in vocabulary.special.items() if id in vocabulary.control] if vocabulary else ()
    )

    async def one(case: Case) -> Result:
        result = await _Trial(endpoint, fmt, case, vocabulary, markers).run()
        done(result)
        return result

    results = await work_through(cases, one, concurrency)
    return Report(endpoint.url, endpoint.model or "", endpoint.owner, fmt.name, results, time.monotonic() - started)


@dataclass(slots=True)
class _Form:
    """One form of a reply with what its raw layer tells, by choice."""

    layer: Layer
    reply: Reply
    stories: dict[int, Story] = field(default_factory=dict)


@dataclass(slots=True)
class _Trial:
    """One case."""

    endpoint: Endpoint
    fmt: Format
    case: Case
    vocabulary: Vocabulary | None
    markers: Markers
    prompt: Sequence[int] | str | None = None
    found: list[Finding] = field(default_factory=list)

    @property
    def request(self) -> Mapping[str, Any]:
        return self.case.request

    async def run(self) -> Result:
        started = time.monotonic()
        result = Result(self.case)
        forms = await self.ask(result)
        if forms is not None:
            await self.settle(*forms)
            self.judge(*forms)
            result.raw = bool(forms[0].stories or forms[1].stories)
        result.findings = _ranked(self.found)
        if result.status != "skipped" and any(finding.level != "note" for finding in result.findings):
            result.status = "found"
        result.seconds = time.monotonic() - started
        return result

    # Asking

    async def ask(self, result: Result) -> tuple[_Form, _Form] | None:
        """Both forms with their raw layers; nothing if the endpoint refuses the case."""
        once = await self.endpoint.chat(self.asked(stream=False), stream=False)
        stream = await self.endpoint.chat(self.asked(stream=True), stream=True)
        result.captures = {"one-shot": once.reply.text, "stream": stream.reply.text}
        if once.status != 200 or stream.status != 200:
            self.refused(once, stream, result)
            return None
        forms = (_Form("one-shot", once.reply), _Form("stream", stream.reply))
        self.prompt = once.reply.prompt_ids or stream.reply.prompt_ids or once.reply.prompt_text
        self.prompt = self.prompt or await self.endpoint.prompt_of(self.request)
        if self.hides:
            await self.reveal(forms)
        else:
            for form in forms:
                await self.read(form, form.reply)
        return forms

    def asked(self, *, stream: bool) -> Json:
        """The request with what makes the endpoint tell its raw layer."""
        asked = {**self.request}
        if not self.hides:
            asked["return_token_ids"] = True
        if "llama" in self.endpoint.owner:  # streams refuse logprobs beside tools, and leave entries out
            return asked if stream else {**asked, "logprobs": True, "return_tokens": True}
        if "sglang" in self.endpoint.owner:  # streams are refused beside the other two
            told = {} if stream else {"return_meta_info": True, "return_prompt_token_ids": True}
            return {**asked, "logprobs": True, **told}
        return asked

    @property
    def hides(self) -> bool:
        return reasoning_wishes(dict(self.request)).shown == "hidden"

    async def reveal(self, forms: tuple[_Form, _Form]) -> None:
        """The raw layer of a reply that hides a part: that of the same request, not hiding."""
        shown = {name: value for name, value in self.request.items() if name not in HIDING}
        answer = await self.endpoint.chat({**shown, "return_token_ids": True, "logprobs": True}, stream=False)
        if answer.status == 200:
            for form in forms:
                await self.read(form, answer.reply)

    async def read(self, form: _Form, reply: Reply) -> None:
        for index, said in reply.choices.items():
            raw = await raw_of(said, self.prompt, self.fmt, self.endpoint.pieces, self.endpoint.owner, self.vocabulary)
            if raw is not None and not self.incomplete(form, reply, said, raw):
                form.stories[index] = self.story(raw, form.reply.choices.get(index) or said)

    def incomplete(self, form: _Form, reply: Reply, said: Said, raw: Raw) -> bool:
        """Whether a raw layer that was read off log-probabilities lacks tokens."""
        total = (reply.usage or {}).get("completion_tokens")
        if said.token_ids is not None or not isinstance(total, int) or len(reply.choices) > 1:
            return False
        missing = total - len(raw.ids)
        if missing > 1:  # the end of the turn may have no entry
            message = f"{missing} of {total} tokens have no entry"
            self.say(form.layer, "logprobs.content", "logprobs", message, level="warning")
        return missing > 1

    def story(self, raw: Raw, said: Said) -> Story:
        """What the raw layer tells, under the policy and start that fit the reply best; the default ones if none fits."""
        best: tuple[int, Story] | None = None
        for thinking in self.thinkings(raw):
            for policy in self.policies():
                story = tell(
                    raw, self.fmt, self.request, policy=policy, thinking=thinking, said_length=said.finish == "length"
                )
                score = len(differences(story.said, levelled(story.said, said)))
                if best is None or score < best[0]:
                    best = score, story
                if not score:
                    return story
        assert best is not None
        return best[1]

    def thinkings(self, raw: Raw) -> list[bool | None]:
        """Where no prompt tells in which state the answer starts, either may be."""
        asked = thinking_of(self.request, self.fmt)
        return [asked] if raw.prompt is not None or asked is not None else [None, True, False]

    def policies(self) -> Iterator[Policy]:
        """Choices that a deployment may make; the first is ours."""
        kept = frozenset(self.request.get("keep_special_tokens") or ())
        own = Policy(keep_special_tokens=kept)
        yield own
        if self.request.get("tool_choice") == "none":
            yield replace(own, tool_choice_none="strip")
        if self.request.get("tools"):
            yield replace(own, truncated_call="drop")

    # Judging

    def refused(self, once: Answer, stream: Answer, result: Result) -> None:
        statuses = (once.status, stream.status)
        worst = max(statuses, key=lambda status: (status >= 500 or status == 0, status))
        said = once.error or stream.error
        if 200 in statuses:
            layer: Layer = "one-shot" if once.status != 200 else "stream"
            self.say(layer, "status", "server_error", f"{worst}: {said} (the other form is answered)")
        elif worst == 0 or worst >= 500:
            self.say("one-shot", "status", "server_error", f"{worst or 'no answer'}: {said}")
        else:
            result.status, result.reason = "skipped", f"{worst}: {said}"

    def judge(self, once: _Form, stream: _Form) -> None:
        for form in (once, stream):
            for index, said in form.reply.choices.items():
                if index in form.stories:
                    self.against(form, index, form.stories[index].said, said, form.stories[index])
                self.by_itself(form, index, said)
            self.problems(form)
            self.choices(form)
            self.usage(form)
        self.streamed(stream)
        for story in list(once.stories.values())[:1]:
            self.off_format(story)
        self.unoffered()
        self.conventions()

    def unoffered(self) -> None:
        """Extensions that only some servers promise: elsewhere they are a fault if the two forms disagree, else good to know."""
        if self.endpoint.owner == "unbraid":
            return
        ignored: list[Finding] = []
        if self.request.get("keep_special_tokens"):
            kept = [f for f in self.found if f.cause == "special_stripped" and f.field == "content"]
            ignored += kept if len(kept) == 2 else []
        if self.hides and "vllm" not in self.endpoint.owner:
            shown = [f for f in self.found if f.cause == "hidden_reasoning" and f.field == "reasoning"]
            causes = ("hidden_reasoning", "text_added")
            ignored += [f for f in self.found if f.cause in causes] if len({f.layer for f in shown}) == 2 else []
        self.found = [replace(f, level="note") if f in ignored else f for f in self.found]

    def conventions(self) -> None:
        """White space beside markers is a convention if both forms have it alike, and a fault if they differ."""
        edges = [f for f in self.found if f.cause == "edge_space"]
        alike = [f for f in edges if any(_ends(f) == _ends(o) and f.layer != o.layer for o in edges)]
        self.found = [replace(f, level="warning") if f in alike else f for f in self.found]

    def say(self, layer: Layer, field: str, cause: str, message: str, **words: Any) -> None:
        self.found.append(Finding(self.case.name, layer, field, cause, message, **words))

    def problems(self, form: _Form) -> None:
        """What is wrong with the reply by itself. The first of each kind; how many there are is said."""
        seen: dict[tuple[str, int], int] = {}
        for problem in form.reply.problems:
            seen[problem.cause, problem.choice] = seen.get((problem.cause, problem.choice), 0) + 1
        for problem in form.reply.problems:
            if count := seen.pop((problem.cause, problem.choice), 0):
                if problem.cause == "arguments_broken" and problem.choice in form.stories:
                    continue  # either the model wrote them so, or that has been said
                message = problem.message + (f" ({count} times)" if count > 1 else "")
                self.say(
                    form.layer, problem.field, problem.cause, message,
                    choice=problem.choice, level=problem.level, got=problem.got,
                )  # fmt: skip

    def against(self, form: _Form, index: int, expected: Said, said: Said, story: Story | None) -> None:
        if story is not None and self.passed_on(said, expected, story):
            expected = replace(expected, content=said.content)
        comparison = Comparison(self.case.name, form.layer, expected, said, self.markers, index, story, self.request)
        self.found += comparison.findings()

    def passed_on(self, said: Said, expected: Said, story: Story) -> bool:
        """Whether calls that weren't allowed are shown to the letter, the markers of their section too: a policy like another."""
        shown = (said.content or "").strip()
        whole = shown and len(shown) >= len((expected.content or "").strip()) and story.text.strip().endswith(shown)
        return self.request.get("tool_choice") == "none" and bool(whole)

    def by_itself(self, form: _Form, index: int, said: Said) -> None:
        story = form.stories.get(index)
        self.hidden(form, index, said, story)
        self.logprobs(form, index, said)
        self.form(form, index, said)

    def hidden(self, form: _Form, index: int, said: Said, story: Story | None) -> None:
        """Thoughts that were not to be seen."""
        if not self.hides:
            return
        thought = story.reasoning if story else ""
        spelled = spelled_by(said.logprobs or ())
        places = {"reasoning": said.reasoning or "", "content": said.content or "", "logprobs.content": spelled}
        for field_name, text in places.items():
            if (field_name == "reasoning" and text) or (thought.strip() and thought.strip()[:24] in text):
                self.say(
                    form.layer, field_name, "hidden_reasoning", "the hidden thought is visible here",
                    choice=index, got=excerpt(text, 0), strand="reasoning", offset=max(text.find(thought.strip()[:24]), 0),
                )  # fmt: skip
        if story and said.token_ids and len(said.token_ids) > len(story.tokens) - story.reasoning_tokens:
            message = "the ids of the hidden thought are among the token ids"
            self.say(form.layer, "token_ids", "hidden_reasoning", message, choice=index, strand="reasoning")

    def logprobs(self, form: _Form, index: int, said: Said) -> None:
        """They spell the content, where they were asked for by the case itself."""
        if not self.request.get("logprobs") or self.hides:
            return
        if said.logprobs is None:
            if said.content:
                self.say(form.layer, "logprobs.content", "logprobs", "asked for, and there are none", choice=index)
            return
        spelled = spelled_by(said.logprobs)
        content = said.content or ""
        if spelled != content:
            at = first_difference(spelled, content)
            self.say(
                form.layer, "logprobs.content", "logprobs", "the entries don't spell the content",
                choice=index, offset=at, expected=excerpt(content, at), got=excerpt(spelled, at), strand="content",
            )  # fmt: skip

    def form(self, form: _Form, index: int, said: Said) -> None:
        """What the request forced."""
        if said.finish == "length":
            return
        choice = self.request.get("tool_choice")
        story = form.stories.get(index)
        forced = choice == "required" or isinstance(choice, Mapping)
        if forced and not said.calls and not (story and story.said.calls):
            self.say(form.layer, "tool_calls", "constraint_off", "a call was required and none came", choice=index)
        if choice == "none" and said.calls:
            self.say(form.layer, "tool_calls", "constraint_off", "tool_choice is none and a call came", choice=index)
        if self.request.get("parallel_tool_calls") is False and len(said.calls) > 1:
            message = f"parallel_tool_calls is false and {len(said.calls)} calls came"
            self.say(form.layer, "tool_calls", "constraint_off", message, choice=index)
        wanted = (self.request.get("response_format") or {}).get("type")
        if wanted in ("json_object", "json_schema") and not said.calls and not _is_json(said.content or ""):
            self.say(
                form.layer, "content", "constraint_off", "JSON was asked for, and the content is none",
                choice=index, got=excerpt(said.content or "", 0),
            )  # fmt: skip

    def choices(self, form: _Form) -> None:
        wanted, got = self.request.get("n") or 1, sorted(form.reply.choices)
        if got and got != list(range(wanted)):
            self.say(form.layer, "choices", "choices_mixed", f"the choices are {got}, and {wanted} were asked for")

    def usage(self, form: _Form) -> None:
        usage = form.reply.usage
        if usage is None or not form.stories or self.hides or len(form.stories) != len(form.reply.choices):
            return
        thought = sum(story.reasoning_tokens for story in form.stories.values())
        told = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", usage.get("reasoning_tokens"))
        if thought and not told:
            message = f"reasoning_tokens is {told}, and the thought has {thought} tokens"
            self.say(form.layer, "usage.reasoning_tokens", "usage", message, level="warning", strand="reasoning")
        total = sum(len(story.tokens) for story in form.stories.values())
        if (
            total
            and isinstance(usage.get("completion_tokens"), int)
            and abs(usage["completion_tokens"] - total) > len(form.stories)
        ):
            message = f"completion_tokens is {usage['completion_tokens']}, and the raw layer has {total} tokens"
            self.say(form.layer, "usage.completion_tokens", "usage", message, level="warning")

    def streamed(self, form: _Form) -> None:
        for index, said in form.reply.choices.items():
            for at, call in enumerate(said.calls):
                if call.pieces == 1 and len(call.arguments) > 200:
                    self.say(
                        form.layer, f"tool_calls[{at}].function.arguments", "not_streamed",
                        f"{len(call.arguments)} characters of arguments came in one piece", choice=index, level="warning",
                        strand="tool_call",
                    )  # fmt: skip

    def off_format(self, story: Story) -> None:
        if story.diagnostics and not story.cut:
            first = story.diagnostics[0]
            self.say(
                "raw", "text", "off_format", first.message, level="note", raw_offset=first.offset,
                offset=first.offset, got=excerpt(story.raw, first.offset),
            )  # fmt: skip

    # Both forms

    async def settle(self, once: _Form, stream: _Form) -> None:
        """Whether the two forms answer the same raw text; if no raw layer is known, hold them against each other."""
        for index, said in once.reply.choices.items():
            other = stream.reply.choices.get(index)
            if other is None:
                continue
            one, two = once.stories.get(index), stream.stories.get(index)
            if one and two:
                if one.text == two.text:  # another policy in the other form would be a difference, too
                    once.stories[index] = stream.stories[index] = _fitting(one, said, two, other)
                else:
                    await self.same_raw(index, said, one, two, stream)
                continue
            if one:
                if not differences(one.said, other) or await self.steady(index, said):
                    stream.stories[index] = one
                continue
            differ = differences(said, other) or said.finish != other.finish
            if differ and not (one or two) and await self.steady(index, said):
                self.against(stream, index, said, other, None)

    async def same_raw(self, index: int, said: Said, one: Story, two: Story, stream: _Form) -> None:
        """Chunks that are lost (or come twice) take their tokens with them: then the stream's raw layer is a part of the
        one-shot's, the endpoint says the same twice, and the stream is held against what it should have been."""
        whole, streamed = ([token.text for token in story.tokens] for story in (one, two))
        part = _within(streamed, whole) or _within(whole, streamed)
        if not part or not await self.steady(index, said):
            self.unsteady(index, one.text, two.text)
            return
        stream.stories[index] = one

    async def steady(self, index: int, said: Said) -> bool:
        """Whether the endpoint says the same again."""
        again = await self.endpoint.chat(self.asked(stream=False), stream=False)
        twice = again.reply.choices.get(index)
        if twice is None or differences(said, twice):
            self.unsteady(index, said.content or "", twice.content or "" if twice else "")
            return False
        return True

    def unsteady(self, index: int, one: str, other: str) -> None:
        at = first_difference(one, other)
        self.say(
            "raw", "text", "not_reproducible", "the same request was answered differently", level="note", choice=index,
            offset=at, expected=excerpt(one, at), got=excerpt(other, at),
        )  # fmt: skip


def _fitting(one: Story, said: Said, two: Story, other: Said) -> Story:
    """Of two readings of one raw text by different policies, the one that explains a form fully; the first, if both or neither do."""
    first, second = (differences(story.said, levelled(story.said, s)) for story, s in ((one, said), (two, other)))
    return two if first and not second else one


def _ends(finding: Finding) -> tuple[str, int, str, str]:
    """A field's white space at both ends."""
    got = finding.got or ""
    inner = got.strip()
    before, _, after = got.partition(inner) if inner else (got, "", "")
    return finding.field, finding.choice, before, after


def _within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether a list is another one with some of its entries left out."""
    rest = iter(whole)
    return bool(part) and all(any(each == other for other in rest) for each in part)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _ranked(found: Iterable[Finding]) -> list[Finding]:
    """Errors first; the same said twice is said once."""
    order = ("error", "warning", "note")
    return sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.level))
