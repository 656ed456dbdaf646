"""llama.cpp's C API, as far as the engine needs it, from the shared library inside the `xllamacpp` wheel.

The wheel exports the whole API, so ctypes can drive it: every logit, no port, no server. The price is that ctypes
believes whatever it is told. Three things keep that honest:

- the wheel is pinned to one version, with whose `llama.h` the signatures and offsets below were compared;
- structs passed by value stay opaque: llama.cpp fills in its own defaults, we pass them back. They are declared larger
  than they are, which is harmless in every ABI where large structs travel in memory (x86-64, AArch64). Only the
  leading integers of `llama_context_params` are named, and `check_defaults` compares them with the known defaults;
- what was set is read back from the context, and one token is decoded before anything else (`llama.py`).
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import deque
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint8, c_uint32, c_void_p
from importlib import metadata
from typing import Any

from unbraid.errors import EngineError

VERSION = "2026.10.11549"
"""The version of xllamacpp that this file was written against (also in pyproject.toml, extra `local`)."""

_log = logging.getLogger("unbraid.engines.llama")


class ModelParams(ctypes.Structure):
    _fields_ = [("opaque", c_uint8 * 1024)]


class ContextParams(ctypes.Structure):
    _fields_ = [
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("opaque", c_uint8 * 1024),
    ]


class Batch(ctypes.Structure):
    """Pointers to arrays that belong to the caller."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    ]


LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)

# name -> (result, arguments). Handles (model, context, vocabulary, memory) are plain pointers.
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [LogCallback, c_void_p]),
    "llama_model_default_params": (ModelParams, []),
    "llama_context_default_params": (ContextParams, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, ModelParams]),
    "llama_model_free": (None, [c_void_p]),
    "llama_init_from_model": (c_void_p, [c_void_p, ContextParams]),
    "llama_free": (None, [c_void_p]),
    "llama_n_ctx_seq": (c_uint32, [c_void_p]),
    "llama_n_batch": (c_uint32, [c_void_p]),
    "llama_n_seq_max": (c_uint32, [c_void_p]),
    "llama_n_threads": (c_int32, [c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_model_n_ctx_train": (c_int32, [c_void_p]),
    "llama_model_has_encoder": (c_bool, [c_void_p]),
    "llama_model_has_decoder": (c_bool, [c_void_p]),
    "llama_model_meta_val_str": (c_int32, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "llama_model_chat_template": (c_char_p, [c_void_p, c_char_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_vocab_get_attr": (c_int32, [c_void_p, c_int32]),
    "llama_vocab_is_eog": (c_bool, [c_void_p, c_int32]),
    "llama_vocab_bos": (c_int32, [c_void_p]),
    "llama_vocab_eos": (c_int32, [c_void_p]),
    "llama_vocab_eot": (c_int32, [c_void_p]),
    "llama_vocab_pad": (c_int32, [c_void_p]),
    "llama_vocab_get_add_bos": (c_bool, [c_void_p]),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool]),
    "llama_token_to_piece": (c_int32, [c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_seq_rm": (c_bool, [c_void_p, c_int32, c_int32, c_int32]),
    "llama_memory_seq_pos_min": (c_int32, [c_void_p, c_int32]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
}

# llama_token_attr
ATTR_UNKNOWN = 1 << 0
ATTR_CONTROL = 1 << 3
ATTR_USER_DEFINED = 1 << 4

# The defaults of llama_context_params that this version has: a moved field can't pass for them.
_DEFAULTS = {"n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_outputs_max": 0, "n_threads": 4}

complaints: deque[str] = deque(maxlen=4)
"""The last errors that llama.cpp logged, for the message of the EngineError that follows."""

_loading = threading.Lock()
_loaded: Any = None


def load() -> Any:
    """The library, its functions typed as above. Loaded once per process. Raises EngineError with the remedy."""
    global _loaded
    with _loading:
        if _loaded is None:
            _loaded = _load()
        return _loaded


def _load() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise EngineError(
            f"the embedded engine needs xllamacpp {VERSION}, which can't be imported ({error}): "
            "pip install 'unbraid[local]'"
        ) from error
    check_version(metadata.version("xllamacpp"))
    try:
        library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise wrong(str(error)) from error
    check_defaults(library.llama_context_default_params())
    library.llama_log_set(_on_log, None)
    library.llama_backend_init()
    return library


def check_version(found: str) -> None:
    if found != VERSION:
        raise wrong(f"{found} is installed")


def check_defaults(params: ContextParams) -> None:
    found = {name: getattr(params, name) for name in _DEFAULTS}
    if found != _DEFAULTS:
        raise wrong(f"llama_context_params reads {found}")


def wrong(what: str) -> EngineError:
    return EngineError(
        f"the embedded engine calls llama.cpp's C API and so needs exactly xllamacpp {VERSION}: {what}; "
        f"pip install xllamacpp=={VERSION}"
    )


def _relay(level: int, text: bytes, _: object) -> None:
    """llama.cpp's log: errors to Python's, the rest (tensor lists, warnings about every model) to its debug level."""
    message = (text or b"").decode("utf-8", "replace").rstrip()
    if level == 4:
        complaints.append(message)
        _log.error("%s", message)
    elif message:
        _log.debug("%s", message)


_on_log = LogCallback(_relay)  # a callback must outlive the library: kept here for good
