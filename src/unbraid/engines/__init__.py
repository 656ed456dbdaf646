"""Engines: whatever generates tokens, behind the one small interface of `unbraid.engines.base`.

    llama.py      llama.cpp in this process (extra `local`); the default, on the small model that model.py fetches
    scripted.py   replays given ids; for tests

Importing this package imports nothing outside the standard library.
"""

from unbraid.engines.base import Constraint, Engine, Generation, Step, TokenLogprob

__all__ = ["Constraint", "Engine", "Generation", "Step", "TokenLogprob"]
