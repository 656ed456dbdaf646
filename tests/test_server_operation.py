"""The server as operators know it: keys, limits, metrics, logs, traces, options."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
import time
import tracemalloc
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import httpx
import pytest
from parrot import CALL, END, VOCABULARY, WEATHER, Client, Parrot
from serving import serving

from unbraid.cli import main
from unbraid.engines.base import Abilities
from unbraid.engines.connect import DIALECTS, KINDS
from unbraid.server import Settings, create_app
from unbraid.server.logs import JsonLines, TextLines, access
from unbraid.server.options import OPTIONS, OptionError, add_arguments, resolved, settings_of
from unbraid.server.run import greeting, listen, warn

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


# Keys


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer two"}, 200),
        ({"authorization": "bearer  one"}, 200),
        ({"x-api-key": "one"}, 200),
        ({"authorization": "Bearer one two"}, 401),
        ({"authorization": "Basic one"}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"x-api-key": "onetwo"}, 401),
        ({"x-api-key": ""}, 401),
        ({"x-api-key": "wrong", "authorization": "Bearer one"}, 200),
    ],
)
async def test_keys(headers: dict[str, str], status: int) -> None:
    engine = Parrot()
    client = Client(engine, Settings(api_keys=("one", "two")))
    for path in (CHAT, "/v1/messages"):
        response = await client.request("POST", path, json=HELLO | {"max_tokens": 9}, headers=headers)
        assert response.status_code == status, response.text
        if status == 401:
            error = response.json()["error"]
            assert error["type"] == ("authentication_error")
            assert "one" not in response.text
            assert not engine.asked
    for path in ("/health", "/ready"):
        assert (await client.request("GET", path, headers=headers)).status_code == 200
    for path in ("/metrics", "/v1/models", "/nowhere"):
        assert ((await client.request("GET", path, headers=headers)).status_code == 401) == (status == 401)


def test_the_greeting_can_be_pasted_where_a_key_is_needed() -> None:
    with listen("127.0.0.1", 0) as listening:
        open_to_all = greeting(create_app(Parrot()), listening)
        locked = greeting(create_app(Parrot(), settings=Settings(api_keys=("one",))), listening)
    key = " -H 'Authorization: Bearer KEY'"
    assert key in locked
    assert locked.replace(key, "") == open_to_all


# Limits


async def test_one_request_too_many_is_told_to_come_back() -> None:
    client = Client(Parrot("Hello", stall_at=2), Settings(max_requests=2))
    waiting = [asyncio.create_task(client.post()) for _ in range(2)]
    while client.engine.running < 2:
        await asyncio.sleep(0.01)
    third = await client.post()
    assert third.status_code == 503
    assert third.headers["retry-after"] == "1"
    assert third.json()["error"]["code"] == "overloaded"
    assert (await client.request("GET", "/health")).status_code == 200
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    client.engine.stall_at = None
    client.engine.ids = VOCABULARY.encode("Hi.<|im_end|>")
    assert (await client.post()).status_code == 200


async def test_a_body_that_does_not_arrive() -> None:
    with serving(create_app(Parrot(), settings=Settings(body_seconds=0.2))) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
        assert b" 408 " in answer
        writer.close()


SOUND = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
KEYLESS = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"


@pytest.mark.parametrize(
    ("begun", "keys", "dribbled"),
    [
        (b"", (), b""),
        (b"GET / HTTP/1.1\r\n", (), b"x"),
        (SOUND, (), b"x"),
        (KEYLESS, ("key",), b"x"),
    ],
    ids=["silent", "head", "second head", "body after the reply"],
)
async def test_a_connection_that_does_not_come_to_the_point(
    begun: bytes, keys: tuple[str, ...], dribbled: bytes
) -> None:
    """A byte now and then doesn't keep it open."""
    app = create_app(Parrot(), settings=Settings(api_keys=keys))
    with serving(app, header_seconds=0.3) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(begun)

        async def dribble() -> None:
            while True:
                writer.write(dribbled)
                await asyncio.sleep(0.02)

        dribbling = asyncio.create_task(dribble())
        with contextlib.suppress(ConnectionError):  # how it hears of it depends on what was under way
            answer = await asyncio.wait_for(reader.read(), 10)
            assert answer.count(b"HTTP/1.1 ") == (begun in (SOUND, KEYLESS))
        dribbling.cancel()
        writer.close()


async def test_the_clock_for_heads_stops_with_the_head() -> None:
    with serving(create_app(Parrot()), header_seconds=0.5) as url:
        host, port = url.removeprefix("http://").split(":")
        body = json.dumps(HELLO).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode())
        await asyncio.sleep(0.8)
        writer.write(body)
        assert b" 200 " in await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
        writer.close()


async def test_the_longest_reply() -> None:
    client = Client(Parrot("abcdefgh<|im_end|>"), Settings(max_tokens=3))
    for wish in ({}, {"max_tokens": 100}, {"max_tokens": 2}):
        reply = await client.chat(**wish)
        assert reply["usage"]["completion_tokens"] == min(3, wish.get("max_tokens", 3))


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def bomb(levels: int) -> dict[str, Any]:
    """Small to write, 2 ** levels to write out."""
    refs = {
        f"d{at}": {"type": "object", "properties": {x: {"$ref": f"#/$defs/d{at + 1}"} for x in "ab"}}
        for at in range(levels)
    }
    return {"$defs": refs | {f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def tool(schema: Any, name: str = "f") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WIDE = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(30_000)}}
HOSTILE: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "a megabyte of nested JSON": (b'{"messages": ' + b"[" * 1_000_000, (400,)),
    "a megabyte of nested objects": (b'{"messages": ' + b'{"a":' * 200_000, (400,)),
    "nested but closed": (b'{"messages": [' + b"[" * 500_000 + b"]" * 500_000 + b"]}", (400,)),
    "nested where it is ignored": (b'{"metadata": ' + b"[" * 900 + b"]" * 900 + b', "messages": []}', (400,)),
    "ten thousand tools": (
        json.dumps(HELLO | {"tools": [tool({}, f"f{at}") for at in range(10_000)]}).encode(),
        (400,),
    ),
    "a deep schema": (json.dumps(HELLO | {"tools": [tool(nested(300))]}).encode(), (400,)),
    "a deep response format": (
        json.dumps(
            HELLO | {"response_format": {"type": "json_schema", "json_schema": {"schema": nested(300)}}}
        ).encode(),
        (400,),
    ),
    "a wide schema": (json.dumps(HELLO | {"tools": [tool(WIDE)]}).encode(), (400,)),
    "a wide response format": (
        json.dumps(HELLO | {"response_format": {"type": "json_schema", "json_schema": {"schema": WIDE}}}).encode(),
        (400,),
    ),
    "no Unicode": (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', (400,)),
    "zeros": (b"\0" * 100_000, (400,)),
    "a number without end": (b'{"messages": [], "seed": ' + b"9" * 1_000_000 + b"}", (400,)),
    "nine megabytes": (b'{"messages": "' + b"x" * 9_000_000, (413,)),
    # These two are odd, but small: they may be served.
    "a bomb of a schema": (json.dumps(HELLO | {"tools": [tool(bomb(40))]}).encode(), (200, 400)),
    "a schema that holds itself": (json.dumps(HELLO | {"tools": [tool({"$ref": "#"})]}).encode(), (200, 400)),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_requests_cost_little(name: str) -> None:
    body, statuses = HOSTILE[name]
    client = Client(Parrot())
    before = time.process_time()
    for path in (CHAT,) if b'"response_format"' in body else (CHAT, "/v1/messages", "/v1/responses"):
        sent = body.replace(b'"messages"', b'"input"', 1) if path == "/v1/responses" else body
        response = await client.request("POST", path, content=sent)
        assert response.status_code in (*statuses, 400), (path, response.text[:300])
        assert len(response.content) < 3000
    assert time.process_time() - before < 15  # not how fast: that it isn't exponential


@pytest.mark.parametrize("choice", ["required", "auto"])
async def test_a_bomb_of_a_schema_is_refused_or_served_where_it_is_enforced(choice: str) -> None:
    strict = tool(bomb(40))
    strict["function"]["strict"] = True
    before = time.process_time()
    response = await Client(Parrot(f"{CALL}<|im_end|>")).post(tools=[strict], tool_choice=choice)
    assert response.status_code in (200, 400, 500), response.text
    assert time.process_time() - before < 15


async def test_memory_stays_flat() -> None:
    client = Client(Parrot())

    async def siege() -> None:
        for body, _ in HOSTILE.values():
            await client.request("POST", CHAT, content=body)

    await siege()
    tracemalloc.start()
    try:
        await siege()
        first = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            await siege()
        assert tracemalloc.get_traced_memory()[0] - first < 1_000_000
    finally:
        tracemalloc.stop()


async def test_garbage_instead_of_a_request() -> None:
    """As bytes on a socket: the server answers 4xx or hangs up, and goes on serving."""
    garbage = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + b"a: " + b"b" * 200_000 + b"\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-request-id: \x00\x01\r\n\r\n",
        b"\r\n" * 5000,
    ]
    with serving(create_app(Parrot())) as url:
        host, port = url.removeprefix("http://").split(":")
        for sent in garbage:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            try:
                writer.write_eof()
                answer = await asyncio.wait_for(reader.read(), 15)
            except OSError:  # it wouldn't read all of this
                answer = b""
            assert not answer or answer.split(b" ", 2)[1].startswith(b"4"), (sent[:60], answer[:200])
            writer.close()
        async with httpx.AsyncClient() as client:
            assert (await client.post(url + CHAT, json=HELLO)).status_code == 200


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ raise_exception('no') }}",
    ],
    ids=["endless", "doubling", "prying", "recursive", "refusing"],
)
async def test_a_hostile_chat_template_refuses_and_holds_up_nobody(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unbraid.template_sandbox.MAX_SECONDS", 0.5)
    engine = Parrot()
    engine.chat_template = template
    client = Client(engine)
    asked = asyncio.create_task(client.post())
    while not asked.done():  # somebody else is answered meanwhile
        assert (await client.request("GET", "/health")).status_code == 200
        await asyncio.sleep(0)
    response = await asked
    assert response.status_code == 400
    assert "chat template" in response.json()["error"]["message"]


# Fields that only an engine knows


async def test_fields_that_the_engine_knows_are_handed_on() -> None:
    engine = Parrot()
    client = Client(engine)
    wish = {"repetition_penalty": 1.1, "priority": 3}
    assert (await client.post(**wish)).status_code == 400
    engine.abilities = Abilities(constraints=("mask",), passed=frozenset(("repetition_penalty", "priority")))
    for path, body in ((CHAT, HELLO), ("/v1/completions", {"prompt": "x"})):
        response = await client.request("POST", path, json={**body, **wish, "unknown": 1})
        assert response.status_code == 200
        assert engine.asked[-1].extra == wish


# Metrics


async def test_metrics() -> None:
    pytest.importorskip("prometheus_client")
    engine = Parrot(f"<think>\nHm.\n</think>\n\n{CALL}<|im_end|>")
    client = Client(engine)
    await client.post(tools=[WEATHER])
    await client.post(tools=[WEATHER], stream=True, max_tokens=60)
    engine.fail_at = 3
    await client.post()
    await client.request("GET", "/nowhere/at/all")
    response = await client.request("GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    found = dict(line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    numbers = {name: float(value) for name, value in found.items()}
    assert numbers['unbraid_requests_total{path="/v1/chat/completions",status="200",stream="false"}'] == 1
    assert numbers['unbraid_requests_total{path="/v1/chat/completions",status="200",stream="true"}'] == 1
    assert numbers['unbraid_requests_total{path="/v1/chat/completions",status="500",stream="false"}'] == 1
    assert numbers['unbraid_requests_total{path="other",status="404",stream="false"}'] == 1
    assert numbers["unbraid_requests_in_flight"] == 1  # the one that asks
    assert numbers['unbraid_tokens_total{strand="reasoning"}'] == 3 + 3 + 1
    assert numbers['unbraid_calls_total{outcome="complete"}'] == 1
    assert numbers['unbraid_calls_total{outcome="incomplete"}'] == 1
    assert numbers['unbraid_choices_total{finish="tool_calls"}'] == 1
    assert numbers['unbraid_choices_total{finish="length"}'] == 1
    assert numbers['unbraid_choices_total{finish="aborted"}'] == 1
    assert numbers["unbraid_first_token_seconds_count"] == 3
    assert numbers["unbraid_prompt_tokens_total"] == sum(len(asked.prompt) for asked in engine.asked)


async def test_diagnostics_are_counted() -> None:
    pytest.importorskip("prometheus_client")
    client = Client(Parrot('<tool_call>\n{"name": 3}\n</tool_call><|im_end|>'))
    await client.post(tools=[WEATHER])
    text = (await client.request("GET", "/metrics")).text
    assert 'unbraid_diagnostics_total{format="qwen3",kind="' in text


async def test_without_metrics() -> None:
    assert (await Client(Parrot(), Settings(metrics=False)).request("GET", "/metrics")).status_code == 404


# Logs


@pytest.fixture
def lines() -> Any:
    """What the access log says, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    access.addHandler(handler)
    before = access.level
    access.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    access.removeHandler(handler)
    access.setLevel(before)


SECRET = "the vault opens at noon"


async def test_the_log_has_a_line_per_request_and_no_contents(lines: Any) -> None:
    client = Client(Parrot(f"<think>\n{SECRET}\n</think>\n\n{SECRET}<|im_end|>"))
    await client.post(messages=[{"role": "user", "content": SECRET}])
    response = await client.post(messages=[{"role": "user", "content": SECRET}], temperature=9)
    await client.request("GET", "/health")
    served, refused = lines()
    assert SECRET not in json.dumps([served, refused])
    assert (served["status"], served["finish"], served["stream"]) == (200, ["stop"], False)
    assert served["tokens"]["reasoning"] == len(SECRET)
    assert (refused["status"], refused["id"]) == (400, response.headers["x-request-id"])


async def test_contents_are_logged_if_asked_for(lines: Any) -> None:
    client = Client(Parrot(f"{SECRET}<|im_end|>"), Settings(log_contents=True))
    await client.post(messages=[{"role": "user", "content": "Tell me."}])
    (line,) = lines()
    assert "Tell me." in line["contents"]["prompt"]
    assert line["contents"]["replies"][0]["reasoning" if line["tokens"].get("reasoning") else "content"] == SECRET


async def test_a_request_keeps_its_id() -> None:
    client = Client(Parrot())
    for given, kept in (("abc-1.2", True), ("a b", False), ("x" * 200, False)):
        response = await client.request("POST", CHAT, json=HELLO, headers={"x-request-id": given})
        assert (response.headers["x-request-id"] == given) == kept


def test_lines_for_people() -> None:
    record = logging.LogRecord("unbraid.access", logging.INFO, "", 0, "POST /x 200", None, None)
    record.fields = {
        "method": "POST",
        "path": "/x",
        "status": 200,
        "tokens": {"content": 3},
        "finish": ["stop"],
        "none": None,
    }
    text = TextLines().format(record)
    assert text.endswith("POST /x 200 tokens=content:3 finish=stop")


# Traces


async def test_traces() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from unbraid.server.observe import Observe
    from unbraid.server.tracing import Tracing

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    client = Client(Parrot(f"{SECRET}<|im_end|>"))
    client.app.add_middleware(Observe, watchers=[Tracing("tiny", provider)])
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await client.request("POST", CHAT, json=HELLO, headers={"traceparent": trace})
    (span,) = exporter.get_finished_spans()
    assert span.name == f"POST {CHAT}"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == trace.split("-")[1]
    assert span.parent is not None
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.request.model"] == "tiny"
    assert attributes["gen_ai.usage.output_tokens"] == len(SECRET) + 1
    assert SECRET not in str(attributes)


# Browsers


@pytest.mark.parametrize(("origins", "allowed"), [((), None), (("http://page",), "http://page"), (("*",), "*")])
async def test_a_page_may_ask_if_its_origin_is_named(origins: tuple[str, ...], allowed: str | None) -> None:
    """A browser asks first, and without a key."""
    client = Client(Parrot(), Settings(cors_origins=origins, api_keys=("k",)))
    asking = {"origin": "http://page", "access-control-request-method": "POST"}
    asking["access-control-request-headers"] = "authorization,content-type,x-stainless-lang"
    first = await client.request("OPTIONS", CHAT, headers=asking)
    assert (first.status_code == 200, first.headers.get("access-control-allow-origin")) == (bool(origins), allowed)
    for key, status in (("k", 200), ("wrong", 401)):  # a page reads failures, too
        headers = {"origin": "http://page", "authorization": f"Bearer {key}"}
        reply = await client.request("POST", CHAT, json=HELLO | {"stream": True}, headers=headers)
        assert (reply.status_code, reply.headers.get("access-control-allow-origin")) == (status, allowed)


# Options


def options(*argv: str, **environment: str) -> Namespace:
    parser = ArgumentParser()
    add_arguments(parser)
    return resolved(parser.parse_args(argv), environment)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--tokenizer", "x"], "--tokenizer: for an engine elsewhere, and none is named; give --engine as well"),
        (["--pace", "3"], "--pace: for an engine elsewhere"),
        (["--engine", "http://e", "--model", "m.gguf"], "--model: for an embedded engine, which --engine replaces"),
        (["--engine", "http://e", "--threads", "2"], "--threads: for an embedded engine"),
    ],
)
def test_what_is_said_of_the_other_engine_is_refused(argv: list[str], named: str) -> None:
    with pytest.raises(OptionError, match=re.escape(named)):
        options(*argv)
    assert options("--chat-template", "x.jinja", "--ctx", "100").chat_template == Path("x.jinja")


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "unbraid.toml"
    file.write_text('port = 1\nmax-tools = 1\nmax_requests = 1\nserved-model-name = ["a", "b"]\nmetrics = false\n')
    found = options(
        "--port", "3", "--config", str(file), UNBRAID_PORT="2", UNBRAID_MAX_TOOLS="2", UNBRAID_API_KEY="x,y"
    )
    assert (found.port, found.max_tools, found.max_requests) == (3, 2, 1)
    settings = settings_of(found)
    assert settings == Settings(model_names=("a", "b"), api_keys=("x", "y"), max_tools=2, max_requests=1, metrics=False)
    assert options(UNBRAID_CONFIG=str(file)).port == 1
    assert settings_of(options()) == Settings()


def test_switches() -> None:
    assert options("--no-metrics").metrics is False
    assert options("--log-contents").log_contents is True
    assert options(UNBRAID_LOG_CONTENTS="on").log_contents is True


def test_keys_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\none\n\ntwo\n")
    assert settings_of(options("--api-key-file", str(file), "--api-key", "zero")).api_keys == ("zero", "one", "two")
    file.write_text("# none\n")
    with pytest.raises(OptionError, match="leave the server open"):
        settings_of(options("--api-key-file", str(file)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "no option 'prot'"),
        ("port = -1", "port: -1 can't be read"),
        ("port = ", "not TOML"),
        ('log-level = "loud"', "none of debug, info"),
        ("api-key = 3", "expected a list"),
        ('metrics = "perhaps"', "expected true or false"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "unbraid.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=message):
        options("--config", str(file))


def test_a_variable_that_is_wrong_says_which() -> None:
    with pytest.raises(OptionError, match="UNBRAID_RETRIES"):
        options(UNBRAID_RETRIES="many")
    with pytest.raises(OptionError, match="can't be read"):
        options("--config", "/no/such/file")


DOCS = Path(__file__).parent.parent / "docs"


def test_what_the_pages_tell_to_type_can_be_typed(tmp_path: Path) -> None:
    """Every `unbraid serve` of the pages, and the configuration file."""
    pages = (DOCS / "deploy.md").read_text("utf-8") + (DOCS / "engines.md").read_text("utf-8")
    commands = re.findall(r"\$\s+unbraid serve ([^#\n]*)", pages)
    assert len(commands) >= 6
    for command in commands:
        assert options(*command.split()).engine
    (config,) = re.findall(r"```toml\n(.*?)```", pages, re.DOTALL)
    file = tmp_path / "unbraid.toml"
    file.write_text(config)
    assert options("--config", str(file)).max_requests == 2000
    for flag in re.findall(r"`--([a-z-]+)`", pages):
        theirs = (
            "incremental-streaming-output",
            "reasoning-parser",
            "tool-call-parser",
            "enable-scale-out",
            "tokens-only",
        )
        assert flag.removeprefix("no-").replace("-", "_") in OPTIONS or flag in theirs, flag


def test_the_page_on_engines_is_true() -> None:
    page = (DOCS / "engines.md").read_text("utf-8")
    rows = {cells[1].strip(): cells[2:-1] for line in page.splitlines() if (cells := line.split("|"))[3:]}
    kinds = [cell.strip(" `") for cell in rows["`--engine-kind`"][1:]]
    assert tuple(kinds) == KINDS[1:]
    for kind, passed, logprobs in zip(
        kinds, rows["handed on as they come"][1:], rows["log-probabilities"][1:], strict=True
    ):
        if kind in DIALECTS:
            abilities = DIALECTS[kind].abilities
            named = set(re.findall(r"`([a-z_]+)`", passed))
            assert named <= abilities.passed
            assert named == abilities.passed or "..." in passed
            assert (abilities.top_logprobs is None) == (logprobs.strip() == "refused")


def test_every_setting_has_an_option() -> None:
    unset = {"model_names", "api_keys", "max_stops", "max_stop_length", "reasoning_fields", "policy"}
    assert set(Settings.__dataclass_fields__) - set(OPTIONS) == unset
    assert END


def test_wrong_options_have_the_exit_codes_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unbraid.server.logs.set_up", lambda *_: None)  # the log stays pytest's
    (tmp_path / "no.jsonl").write_text("nonsense\n")
    for words, code, said in [
        (["--config", str(tmp_path / "none.toml")], 3, "can't be read"),
        (["--api-key-file", str(tmp_path / "none")], 3, "can't be read"),
        (["--workers", "2", "--port", "0"], 2, "several need --engine"),
        (["--engine", str(tmp_path / "none.jsonl"), "--port", "0"], 3, "can't be read"),
        (["--engine", str(tmp_path / "no.jsonl"), "--port", "0"], 3, "no step of a recording"),
        (["--model", str(tmp_path / "none.gguf"), "--port", "0"], 3, "no such file"),
        (["--model", str(tmp_path / "no.jsonl"), "--port", "0"], 3, "can't load it"),
        (["--host", "203.0.113.7", "--port", "0"], 2, "can't listen"),
        (["--engine", "http://127.0.0.1:9", "--port", "0"], 4, "can't reach"),
        (["--engine", "http://127.0.0.1:9", "--port", "0", "--record", str(tmp_path)], 4, "can't reach"),
    ]:
        assert main(["serve", *words]) == code
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(("format", "warned"), [("auto", False), ("qwen3", False), ("kimi_k2", True)])
def test_a_format_that_is_another_models_is_told_at_the_start(
    format: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn(create_app(Parrot(), format).state.gateway)
    said = [record.message for record in caplog.records]
    assert bool(said) == warned
    assert all("kimi_k2 doesn't fit tiny" in line and "--format" in line for line in said)


async def test_without_a_template_the_operator_is_told_before_the_clients_are(caplog: pytest.LogCaptureFixture) -> None:
    engine = Parrot()
    engine.chat_template = None
    client = Client(engine)
    with caplog.at_level(logging.WARNING, "unbraid.server"):
        warn(client.app.state.gateway)
    assert "--chat-template" in caplog.text
    refused = await client.request("POST", CHAT, json=HELLO)
    assert refused.status_code == 400
    assert "--chat-template" in refused.json()["error"]["message"]
