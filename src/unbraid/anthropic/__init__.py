"""Anthropic's Messages, spoken from events: a library of its own, usable without any server.

    events --unbraid.protocol.Choice--> deltas --MessagesWriter--> events of a stream, or the message

`chat_fields` puts a request into the words of Chat Completions, which the rest of Unbraid reads. Nothing here does I/O
or reads a clock, and nothing beyond the standard library is imported.
"""

from unbraid.anthropic.messages import MessagesWriter, call_id, error_object, signature
from unbraid.anthropic.request import chat_fields
from unbraid.protocol import Choice, Delta, Options, Usage

__all__ = [
    "Choice",
    "Delta",
    "MessagesWriter",
    "Options",
    "Usage",
    "call_id",
    "chat_fields",
    "error_object",
    "signature",
]
