"""OpenAI's protocols, spoken from events: a library of its own, usable without any server.

    events --unbraid.protocol.Choice--> deltas --a writer--> chunks of a stream, or the one-shot reply

The writers: `ChatWriter` (Chat Completions), `ResponsesWriter`, `CompletionsWriter`. Both replies of a writer are made of
the same deltas, so they can't tell different stories. `responses_as_chat` puts a Responses request into the words of Chat
Completions. Nothing here does I/O or reads a clock, and nothing beyond the standard library is imported.
"""

from unbraid.openai.chat import DONE, ChatWriter, choice_object, chunk_object, error_object, usage_object
from unbraid.openai.completions import CompletionsWriter, Detokenizer
from unbraid.openai.responses import ResponsesWriter
from unbraid.openai.turns import chat_fields as responses_as_chat
from unbraid.protocol import Choice, Delta, Options, StopStrings, Usage, reasoning_wishes

__all__ = [
    "DONE",
    "ChatWriter",
    "Choice",
    "CompletionsWriter",
    "Delta",
    "Detokenizer",
    "Options",
    "ResponsesWriter",
    "StopStrings",
    "Usage",
    "choice_object",
    "chunk_object",
    "error_object",
    "reasoning_wishes",
    "responses_as_chat",
    "usage_object",
]
