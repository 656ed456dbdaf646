"""OpenAI's protocols, spoken from events: a library of its own, usable without any server.

    events of one choice --Choice--> deltas --Chunks--> server-sent chunks of a stream
                                            --fold----> the choice of a one-shot reply

Both replies are made of the same deltas, so they can't tell different stories. Nothing here does I/O or reads a clock,
and nothing beyond the standard library is imported.
"""

from unbraid.openai.chat import Choice, Delta, Options, Usage, chunk_object, completion_object, delta_object, fold
from unbraid.openai.reasoning import Wishes, reasoning_wishes
from unbraid.openai.stops import StopStrings
from unbraid.openai.wire import DONE, Chunks, encode_json, error_object, server_sent

__all__ = [
    "DONE",
    "Choice",
    "Chunks",
    "Delta",
    "Options",
    "StopStrings",
    "Usage",
    "Wishes",
    "chunk_object",
    "completion_object",
    "delta_object",
    "encode_json",
    "error_object",
    "fold",
    "reasoning_wishes",
    "server_sent",
]
