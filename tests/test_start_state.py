"""Where an answer starts: every family, every way in which its prompts end, behind prompts full of traps.

A tail is what stands behind the last turn boundary: nothing, an opened or closed thought, or the beginning of an answer
that is to be continued. Before it stand, in turn, nothing, a system prompt with a format example of real marker tokens,
and an earlier turn with a thought and a call: none of them may change the answer.

    R   reasoning: not ended, text is reasoning
    W   waiting: not ended, but text that isn't the opener is content
    C   content: ended
    T   in a tool call: ended
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from _pytest.mark import ParameterSet
from fixtures import FIXTURES
from test_formats import check_tiling
from tokens import Tokens, tokens

import unbraid
from unbraid.formats import FORMATS

R, W, C, T = "reasoning", "waiting", "content", "tool call"
ON, OFF, DEFAULT = True, False, None
Tails = dict[str, str | dict[bool | None, str]]
"""Tail -> where the answer starts; by thinking, where the tail doesn't decide."""


@dataclass(frozen=True)
class Family:
    """How a format's prompts look."""

    system: str
    """A system turn with an example of the format."""
    earlier: str
    """A question, an answer with a thought and a call, the call's result."""
    user: str
    opener: str
    """The generation prompt up to the tail."""
    tails: Tails

    @property
    def contexts(self) -> dict[str, str]:
        return {
            "bare": "",
            "question": self.user,
            "example": self.system + self.user,
            "earlier_turn": self.user + self.earlier,
            "both": self.system + self.user + self.earlier,
        }


def chatml(call: str, tails: Tails) -> Family:
    return Family(
        system=f"<|im_start|>system\nThink in <think>...</think>, then\n{call}\nas in <tool_call><|im_end|>\n",
        earlier=f"<|im_start|>assistant\n<think>\nOld.\n</think>\n\n{call}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n<think> 4 </tool_call>\n</tool_response><|im_end|>\n",
        user="<|im_start|>user\nWhat now?<|im_end|>\n",
        opener="<|im_start|>assistant\n",
        tails=tails,
    )


JSON_CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
XML_CALL = "<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>"
NEVER: Tails = {
    "": C,
    "It is": C,
    "It is\n": C,
}
JSON_CALLS: Tails = {
    "<tool_call>": T,
    '<tool_call>\n{"name": "f", "argu': T,
    '<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call> ': T,
    JSON_CALL: C,
    f"So:\n{JSON_CALL}\nand": C,
    f"{JSON_CALL}\n<tool_call>\n": T,
}
XML_CALLS: Tails = {
    "<tool_call>\n<function=f": T,
    "<tool_call>\n<function=f>\n<parameter=a>\n</tool_call> <think> ": T,
    XML_CALL: C,
    f"{XML_CALL}\n<tool_call>\n": T,
}
THOUGHTS: Tails = {
    "<think>\n": R,
    "<think>": R,
    "<think>\nSo far": R,
    "<think>\nSo far</thi": R,
    "<think>\n\n</think>\n\n": C,
    "<think>\n\n</think>": C,
    "<think>\nDone.\n</think>\n\nIt is": C,
    f"<think>\nDone.\n</think>\n\n{JSON_CALL}": C,
    "<think>\nNow.\n<tool_call>\n": T,
    "<think>\nNow.\n" + JSON_CALL: C,
    "</think>\n\n": C,
}

V3_CALL = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
    "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
V31_CALL = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
V3_OPEN, V31_OPEN = (call[: call.index("{") + 1] for call in (V3_CALL, V31_CALL))
OUTPUTS = "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>4<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"


def deepseek(call: str, result: str, tails: Tails) -> Family:
    return Family(
        system=f"<｜begin▁of▁sentence｜>Think in <think>...</think>, then\n{call}",
        earlier=f"<｜Assistant｜><think>Old.</think>{call}<｜end▁of▁sentence｜>{result}",
        user="<｜User｜>What now?",
        opener="<｜Assistant｜>",
        tails=tails,
    )


def dsml(section: str, blank: str, tails: Tails, result: str = "<｜User｜><tool_result>4</tool_result>") -> Family:
    tag = f"｜DSML｜{blank}"
    head = f'<｜DSML｜{section}>\n<{tag}invoke name="f">\n<{tag}parameter name="a" string="true">'
    call = f"{head}b</{tag}parameter>\n</{tag}invoke>\n</｜DSML｜{section}>"
    inside: Tails = {
        "<think>": R,
        "</think>": C,
        "<think>So far": R,
        "<think>So far <｜DSML｜": R,
        "<think>Done.</think>": C,
        "<think>Done.</think>It is": C,
        "<think>Done.</think>It is <": C,
        f"</think>\n\n{head}b": T,
        f"</think>\n\n{head}<think> </think> b</{tag}parameter>\n": T,
        f"<think>Now.\n\n{head}": T,
    }
    return deepseek(call, result, {**inside, **tails})


def glm(newline: str, tails: Tails) -> Family:
    pair = f"<arg_key>a</arg_key>{newline}<arg_value>b"
    call = f"<tool_call>f{newline}{pair}</arg_value>{newline}</tool_call>"
    inside: Tails = {
        "<think>": R,
        "<think>So far": R,
        "<think></think>": C,
        "<think>Done.</think>It is": C,
        "</think>It is": C,
        "</think><tool_call>f": T,
        f"</think><tool_call>f{newline}{pair}": T,
        f"</think><tool_call>f{newline}{pair} </tool_call> <think>": T,
        f"</think>{call}": C,
        f"<think>Now.{newline}<tool_call>": T,
    }
    return Family(
        system=f"[gMASK]<sop><|system|>\nThink in <think>...</think>, then {call}",
        earlier=f"<|assistant|>{newline}<think>Old.</think>{newline}{call}<|observation|>{newline}<tool_response>4</tool_response>",
        user="<|user|>\nWhat now?",
        opener="<|assistant|>",
        tails={**inside, **tails},
    )


SECTION = "<|tool_calls_section_begin|>"
KIMI_HEAD = f"{SECTION}<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
KIMI_CALL = f'{KIMI_HEAD}{{"a": "b"}}<|tool_call_end|><|tool_calls_section_end|>'
KIMI_CALLS: Tails = {
    f"{SECTION}<|tool_call_begin|>functions": T,
    KIMI_HEAD + '{"a": "<|tool_call_end|>': T,
    KIMI_CALL: C,
}


def kimi(tails: Tails) -> Family:
    return Family(
        system=f"<|im_system|>system<|im_middle|>Think in <think>...</think>, then {KIMI_CALL} <think><|im_end|>",
        earlier=f"<|im_assistant|>assistant<|im_middle|><think>Old.</think>{KIMI_CALL}<|im_end|>"
        "<|im_system|>f<|im_middle|>## Return of functions.f:0\n4<|im_end|>",
        user="<|im_user|>user<|im_middle|>What now?<|im_end|>",
        opener="<|im_assistant|>assistant<|im_middle|>",
        tails={**KIMI_CALLS, **tails},
    )


MINIMAX_HEAD = '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">'
MINIMAX_CALL = f"{MINIMAX_HEAD}b</parameter>\n</invoke>\n</minimax:tool_call>"
SEED_HEAD = "<seed:tool_call>\n<function=f>\n<parameter=a>"
SEED_CALL = f"{SEED_HEAD}b</parameter>\n</function>\n</seed:tool_call>"
SWITCHED_OFF: Tails = {"": {ON: W, OFF: C, DEFAULT: W}}
V3_TAILS: Tails = {
    "": {OFF: C, DEFAULT: C},
    "It is": {OFF: C, DEFAULT: C},
    f"Now{V3_OPEN}": T,
    V3_CALL: C,
    f"{V3_CALL}<｜end▁of▁sentence｜>{OUTPUTS}": C,
}

FAMILIES: dict[str, Family] = {
    "qwen2_5": chatml(JSON_CALL, {**NEVER, **JSON_CALLS}),
    "qwen3": chatml(JSON_CALL, {**THOUGHTS, **JSON_CALLS, **SWITCHED_OFF}),
    "qwen3_instruct": chatml(JSON_CALL, {**NEVER, **JSON_CALLS}),
    "qwen3_thinking": chatml(JSON_CALL, {**THOUGHTS, **JSON_CALLS, "": {ON: R, DEFAULT: R}}),
    "qwen3_coder": chatml(XML_CALL, {**NEVER, **XML_CALLS, "": {OFF: C, DEFAULT: C}}),
    "qwen3_5": chatml(XML_CALL, {**THOUGHTS, **XML_CALLS, "": {OFF: C}}),
    "qwen3_5_small": chatml(XML_CALL, {**THOUGHTS, **XML_CALLS, "": {OFF: C, DEFAULT: C}}),
    "chatml": chatml(JSON_CALL, {**NEVER, **JSON_CALLS}),
    "deepseek_v3": deepseek(V3_CALL, OUTPUTS, V3_TAILS),
    "deepseek_r1": deepseek(
        V3_CALL,
        OUTPUTS,
        {
            "<think>\n": R,
            "<think>\nSo far": R,
            "<think>\nDone.\n</think>\n\nIt is": C,
            f"<think>\nNow.{V3_OPEN}": T,
            "": {ON: R, DEFAULT: R},
            f"<think>\nNow.\n</think>\n\n{V3_CALL}<｜end▁of▁sentence｜>{OUTPUTS}": {ON: C, OFF: C, DEFAULT: C},
        },
    ),
    "deepseek_v31": deepseek(
        V31_CALL,
        OUTPUTS,
        {
            "<think>": R,
            "</think>": C,
            "<think>So far": R,
            "<think>Done.</think>It is": C,
            f"<think>Now{V31_OPEN}": T,
            f"</think>{V31_CALL}": C,
            f"</think>{V31_CALL}<｜end▁of▁sentence｜>{OUTPUTS}": {ON: C, OFF: C, DEFAULT: C},
        },
    ),
    "deepseek_v32": dsml(
        "function_calls",
        "",
        {"": {ON: R, OFF: C, DEFAULT: C}},
        result="\n\n<function_results>\n<result>4</result>\n</function_results>\n\n<think>Old.</think>4<｜end▁of▁sentence｜>",
    ),
    "deepseek_v4": dsml("tool_calls", "", {"": {ON: R, OFF: C}}),
    "deepseek_v41": dsml(" calls", " ", {"": {ON: R, OFF: C}}),
    "glm45": glm("\n", {"": {ON: W, DEFAULT: W}, "\n<think>": R, "\n<think></think>": C, "\n": {ON: W, DEFAULT: W}}),
    "glm47": glm("", {"": {ON: R, DEFAULT: R}, "</think>": C}),
    "kimi_k2": kimi(
        {
            "": {ON: W, OFF: C, DEFAULT: W},
            "<think>": R,
            "<think>So far": R,
            "<think></think>": C,
            "<think>Done.</think>It is": C,
            f"<think>Now{KIMI_HEAD}": T,
            f"<think>Now.</think>{KIMI_CALL}": C,
        }
    ),
    "kimi_k2_instruct": kimi({"": C, "It is": C}),
    "minimax_m2": Family(
        system=f"]~!b[]~b]system\nThink in <think>...</think>, then\n{MINIMAX_CALL} <think>[e~[\n",
        earlier=f"]~b]ai\n<think>\nOld.\n</think>\n\n{MINIMAX_CALL}[e~[\n]~b]tool\n<response>4 <think></response>[e~["
        "\n",
        user="]~b]user\nWhat now?[e~[\n",
        opener="]~b]ai\n",
        tails={
            "<think>\n": R,
            "<think>\nSo far": R,
            "<think>\n</think>\n\n": C,
            "<think>\nDone.\n</think>\n\nIt is": C,
            f"<think>\nDone.\n</think>\n\n{MINIMAX_HEAD}": T,
            f"<think>\nDone.\n</think>\n\n{MINIMAX_HEAD}</minimax:tool_call> <think>": T,
            f"<think>\nNow.\n{MINIMAX_HEAD}": T,
            f"<think>\nNow.\n{MINIMAX_CALL}": C,
        },
    ),
    "seed_oss": Family(
        system=f"<seed:bos>system\nThink in <seed:think>...</seed:think>, then\n{SEED_CALL} <seed:think><seed:eos>",
        earlier=f"<seed:bos>assistant\n<seed:think>Old.</seed:think>\n{SEED_CALL}<seed:eos><seed:bos>tool\n4<seed:eos>",
        user="<seed:bos>user\nWhat now?<seed:eos>",
        opener="<seed:bos>assistant\n",
        tails={
            "": {ON: W, DEFAULT: W},
            "\n": {ON: W, DEFAULT: W},
            "<seed:think>": R,
            "<seed:think><seed:cot_budget_reflect>": R,
            "<seed:think>So far": R,
            "<seed:think>Done.</seed:think>\nIt is": C,
            "It is": C,
            SEED_HEAD: T,
            f"<seed:think>Now.\n{SEED_HEAD}</seed:tool_call> <seed:think>": T,
            SEED_CALL: C,
        },
    ),
}


def rows() -> Iterator[ParameterSet]:
    for format, family in FAMILIES.items():
        for context in family.contexts:
            for tail, starts in family.tails.items():
                decided = starts if isinstance(starts, dict) else dict.fromkeys((ON, OFF, DEFAULT), starts)
                for thinking, start in decided.items():
                    name = f"{format}-{context}-{tail[-30:]!r}-{thinking}"
                    yield pytest.param(
                        format, context, tail, thinking, start, id=name.encode("unicode_escape").decode()
                    )


@pytest.mark.parametrize(("format", "context", "tail", "thinking", "start"), list(rows()))
def test_start_state(format: str, context: str, tail: str, thinking: bool | None, start: str) -> None:
    tok, family = tokens(format), FAMILIES[format]
    prompt = family.contexts[context] + family.opener + tail
    ids = tok.encode(prompt)
    state = tok.bound.state_at(ids, thinking=thinking)
    where = W if state.undecided else {"tool_call": T}.get(state.strand, state.strand)
    assert where == start
    assert tok.bound.is_reasoning_end(ids, thinking=thinking) is (start in (C, T))
    by_text = unbraid.Parser(unbraid.get_format(format), prompt=prompt, thinking=thinking)
    assert by_text.state == state
    assert by_text.reasoning_ended is (start in (C, T))
    if start == T:
        return
    parser = unbraid.Parser(tok.bound, prompt=ids, thinking=thinking)
    parser.feed(tok.ordinary("word"))
    parser.finish()
    message = parser.message
    if start == R:
        assert (message.reasoning, message.content) == ("word", None)
    else:
        assert (message.reasoning, message.content) == (None, "word")


@pytest.mark.parametrize("format", FAMILIES)
def test_content_ids_stop_at_the_last_turn(format: str) -> None:
    """No id of an example or of an earlier turn is content of this one."""
    tok, family = tokens(format), FAMILIES[format]
    for tail, starts in family.tails.items():
        if starts not in (C, T):
            continue
        bare = tok.encode(family.opener + tail)
        expected = tok.bound.content_ids(bare)
        assert len(expected) <= len(bare)
        for context in family.contexts.values():
            assert tok.bound.content_ids(tok.encode(context) + bare) == expected, tail


ENDS = {
    "qwen3": ["</think>"],
    "qwen3_5": ["</think>"],
    "deepseek_r1": ["</think>"],
    "deepseek_v4": ["</think>"],
    "glm47": ["</think>"],
    "kimi_k2": ["</think>"],
    "minimax_m2": ["</think>"],
    "seed_oss": ["</seed:think>"],
}


@pytest.mark.parametrize("format", ENDS)
def test_reasoning_end_ids(format: str) -> None:
    tok = tokens(format)
    assert tok.bound.reasoning_end_ids == tuple(tok.special[text] for text in ENDS[format])


@pytest.mark.parametrize("format", ["qwen2_5", "kimi_k2_instruct"])
def test_formats_without_reasoning_have_always_ended_it(format: str) -> None:
    tok = tokens(format)
    assert tok.bound.reasoning_end_ids == ()
    assert tok.bound.is_reasoning_end([])
    assert tok.bound.is_reasoning_end([], thinking=True)


@pytest.mark.parametrize("format", ["qwen3_instruct", "qwen3_coder", "deepseek_v3"])
def test_models_that_never_think_start_in_content(format: str) -> None:
    assert tokens(format).bound.is_reasoning_end([])


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_output_may_go_on_from_anywhere(format: str) -> None:
    """What was written before is the prompt's, wherever that ends: in a header, in a call, in half a marker."""
    tok, chance = tokens(format), random.Random(format)
    for case in FIXTURES[format]:
        ids = tok.encode(case.raw)
        before = [] if case.prompt is None else tok.encode(case.prompt)
        for cut in chance.sample(range(len(ids)), min(8, len(ids))):
            parser = unbraid.Parser(tok.bound, prompt=before + ids[:cut], **case.options)
            rest = ids[cut:]
            events = [event for id in rest for event in parser.feed([id])]
            events += parser.finish(case.finish)
            said = "".join(event.raw for event in events)
            check_tiling(events, said, len(rest))
            if cut_between_characters(tok, ids, cut):
                assert said == tok.decode(rest)


def cut_between_characters(tok: Tokens, ids: Sequence[int], cut: int) -> bool:
    return tok.decode(ids[:cut]) + tok.decode(ids[cut:]) == tok.decode(ids)
