"""A real vLLM on CPU in a process of its own, with the logits processor that writes the ids which a request tells it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

HERE = Path(__file__).parent / "real_vllm"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""A tiny model has nothing to share out, and threads that wait for each other are slow beside other work."""
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


@contextmanager
def vllm_server(python: str, model: str | Path, *flags: str) -> Iterator[str]:
    """vLLM of this Python, serving this model's folder; its URL. The module is started, since `vllm-cpu` has no working command."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "8192"]
    command += ["--max-num-seqs", "16", "--enforce-eager", "--logits-processors", "replay:Replay", *flags]
    environment = {**os.environ, **QUIET, **ONE_THREAD, "PYTHONPATH": str(HERE)}
    process = subprocess.Popen(command, env=environment, stdout=sys.stderr)
    try:
        _wait(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 600
    while time.monotonic() < end:
        assert process.poll() is None, "vLLM ended before it was up"
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise AssertionError("vLLM isn't up after ten minutes")


def replayed(ids: Sequence[Sequence[int]]) -> dict[str, str]:
    """What a request's `vllm_xargs` say, so that these are written: one list of ids, or one for each choice."""
    return {"replay": ";".join(",".join(map(str, each)) for each in ids)}
