"""The description at /openapi.json is sound, and whatever it allows, or nearly allows, is answered: never with a 5xx."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("schemathesis")
import schemathesis
from hypothesis import HealthCheck, settings
from parrot import CALL, Client, Parrot
from schemathesis.checks import not_a_server_error

from unbraid.server.app import ANSWERED, GENERATING
from unbraid.server.openapi import description


def server() -> Client:
    """Its engine never runs out of words, not even where the request forbids it to stop."""
    parrot = Parrot(f"<think>\nHm.\n</think>\n\nHi.{CALL}<|im_end|>" * 20)
    parrot.context_length = 600
    return Client(parrot)


EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "15"))
SCHEMA: Any = schemathesis.openapi.from_asgi("/openapi.json", server().app)


def test_every_post_is_described() -> None:
    paths = description()["paths"]
    assert {path for path, operations in paths.items() if "post" in operations} == {*GENERATING, *ANSWERED}


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_is_too_odd(case: Any) -> None:
    case.call_and_validate(checks=[not_a_server_error])
