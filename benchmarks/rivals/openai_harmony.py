"""openai-harmony: OpenAI's own parser (Rust under Python), which reads token ids of one format.

Its encoding wants OpenAI's rank file, which it would fetch. The same ranks are in the gpt-oss `tokenizer.json`, so the
file is written from that one (UNBRAID_GPTOSS_TOKENIZER) into a temporary directory; without it this rival stays out.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rivals.base import Fold, Result, Rival
from benchmarks.tokens import HARMONY_TOKENS, gptoss

if TYPE_CHECKING:
    from benchmarks.contest import Prepared


def load() -> Rival | None:
    """The adapter, if the package and the real tokenizer are there."""
    if find_spec("openai_harmony") is None or not os.environ.get("UNBRAID_GPTOSS_TOKENIZER"):
        return None
    return OpenAIHarmony()


class OpenAIHarmony:
    name = "openai-harmony"

    def __init__(self) -> None:
        self._harmony: Any = import_module("openai_harmony")
        self.version = version("openai-harmony")
        vocabulary = gptoss().vocabulary
        ranks = sorted((id, data) for id, data in vocabulary.tokens.items() if id < min(HARMONY_TOKENS.values()) - 4)
        # Kept until the process ends: vLLM loads the same encoding.
        self._directory = tempfile.TemporaryDirectory(prefix="unbraid-o200k-")
        lines = b"".join(base64.b64encode(data) + b" %d\n" % id for id, data in ranks)
        Path(self._directory.name, "o200k_base.tiktoken").write_bytes(lines)
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = self._directory.name
        self._encoding = self._harmony.load_harmony_encoding(self._harmony.HarmonyEncodingName.HARMONY_GPT_OSS)

    def contestant(self, prepared: Prepared, mode: str) -> Callable[[], Result] | None:
        if self.name not in prepared.workload.parsers or mode not in ("ids x1", "whole ids"):
            return None  # it takes one id at a time, and nothing else
        harmony, encoding, ids = self._harmony, self._encoding, prepared.ids
        assistant = harmony.Role.ASSISTANT
        if mode == "whole ids":
            return lambda: _result(encoding.parse_messages_from_completion_tokens(ids, assistant))

        def stream() -> Result:
            parser = harmony.StreamableParser(encoding, assistant)
            process = parser.process
            for id in ids:
                process(id)
                _ = parser.last_content_delta, parser.current_channel, parser.current_recipient
            return _result(parser.messages)

        return stream


def _result(messages: Any) -> Result:
    fold = Fold()
    for message in messages:
        text = "".join(part.text for part in message.content)
        recipient = message.recipient or ""
        if recipient.startswith("functions."):
            fold.call(len(fold.arguments), recipient.removeprefix("functions."), text)
        elif message.channel == "analysis":
            fold.reasoning.append(text)
        else:
            fold.content.append(text)
    return fold.result()
