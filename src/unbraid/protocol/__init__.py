"""What all client protocols share: from the events of one reply to deltas, and from deltas to bytes.

    events of one choice --Choice--> deltas --a writer--> what the client reads

`Choice` decides everything that must not differ between protocols: what is shown of reasoning, where a stop string ends
the answer, which log-probabilities belong to the visible text, what is a complete call. A *writer* (`unbraid.openai`,
`unbraid.anthropic`) only spells the deltas, in a stream or in one piece. Nothing here does I/O or reads a clock, and
nothing beyond the standard library is imported.
"""

from unbraid.protocol.choice import Choice, Delta, Options, Usage, joined
from unbraid.protocol.reasoning import Wishes, reasoning_wishes
from unbraid.protocol.stops import StopStrings
from unbraid.protocol.wire import Template, Writer, encode_json, quoted, server_sent, utf8

__all__ = [
    "Choice",
    "Delta",
    "Options",
    "StopStrings",
    "Template",
    "Usage",
    "Wishes",
    "Writer",
    "encode_json",
    "joined",
    "quoted",
    "reasoning_wishes",
    "server_sent",
    "utf8",
]
