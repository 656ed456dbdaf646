"""Engines: whatever generates tokens, behind the one small interface of `unbraid.engines.base`.

    llama.py      llama.cpp in this process (extra `local`); the default, on the small model that model.py fetches
    remote.py     engines elsewhere, over HTTP: what vllm.py, sglang.py, llama_server.py and completions.py share
    recording.py  replays token steps from a file, and records those of any other engine
    scripted.py   replays given ids; for tests

Importing this package imports nothing outside the standard library.
"""

from unbraid.engines.base import Abilities, Constraint, Engine, Generation, Grammar, Spent, Step, TokenLogprob

__all__ = ["Abilities", "Constraint", "Engine", "Generation", "Grammar", "Spent", "Step", "TokenLogprob"]
