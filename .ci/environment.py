"""Makes the virtual environment of the Makefile's commands: python .ci/environment.py FOLDER.

It needs nothing but Python, which may be too old or too new: then one line says so.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

OLDEST, TOO_NEW = (3, 11), (3, 14)  # as `requires-python` in pyproject.toml
PINNED = ("--constraint", "constraints.txt")


def main(folder: str) -> None:
    """Make the environment in a folder, or bring it up to date.

    Raises:
        SystemExit: with one line, if this Python is not supported or a package cannot be installed.
    """
    if not OLDEST <= sys.version_info < TOO_NEW:
        sys.exit(
            f"error: Python 3.11 to 3.13 is needed, this is {platform.python_version()}; "
            "name another: make PYTHON=python3.12"
        )
    python = str(Path(folder) / "bin" / "python")
    say(f"[1/4] virtual environment in {folder}")
    run(sys.executable, "-m", "venv", folder)
    say("[2/4] uv, which installs several times faster than pip")
    if not succeeds([python, "-m", "pip", "install", "--quiet", *PINNED, "uv"]):
        say("uv cannot be installed: pip installs the packages, and takes some minutes")
    say("[3/4] PyTorch: some GB, less where they were downloaded before; then its bytecode is compiled")
    install(python, "--compile", "setuptools", "torch")
    for kernel in Path("sharmix").glob("*.cpython-*.so"):  # of older checkouts; Python would prefer it to the new one
        kernel.unlink()
    say("[4/4] all other packages; then the C++ kernels and bytecode are compiled: a minute or two")
    install(python, "--compile", "--no-build-isolation", "--editable", ".[experiments,development,docs]")
    say("ready")


def install(python: str, *packages: str) -> None:
    """Install packages, with their options, by uv; where uv is missing or fails, by pip."""
    uv = [python, "-m", "uv", "pip", "install", "--python", python, "--reinstall-package", "sharmix"]
    if not succeeds([*uv, *PINNED, *packages], variables_of_uv(python)):
        run(python, "-m", "pip", "install", *PINNED, *packages)


def variables_of_uv(python: str) -> dict[str, str]:
    """What pip reads by itself, and uv only from variables: the system's certificates and pip's own index."""
    configured = subprocess.run(
        [python, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    index = os.environ.get("PIP_INDEX_URL") or configured.stdout.strip()
    return {"UV_SYSTEM_CERTS": "1", **({"UV_DEFAULT_INDEX": index} if index else {})}


def run(*command: str) -> None:
    """Run a command that must succeed."""
    if not succeeds(command):
        sys.exit(f"error: {' '.join(command)} failed; see its messages above")


def succeeds(command: list[str] | tuple[str, ...], variables: dict[str, str] | None = None) -> bool:
    """Run a command, and tell whether it succeeded."""
    return subprocess.run(command, env={**os.environ, **(variables or {})}).returncode == 0


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
