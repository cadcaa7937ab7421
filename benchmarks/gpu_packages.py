"""Installs the packages that `make gpu` times beside ours, the extra `gpu` of pyproject.toml.

It installs each that can be installed. A package that fails does not stop the others.

python -m benchmarks.gpu_packages
"""

import subprocess
import sys
import tomllib
from pathlib import Path

from benchmarks.gpu import check_device

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Command line: install each package on its own, so that one that does not install keeps no other away."""
    check_device()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for package in extras["gpu"]:
        command = [sys.executable, "-m", "pip", "install", "--constraint", str(ROOT / "constraints.txt"), package]
        if subprocess.run(command).returncode:
            print(f"{package} cannot be installed; its rows will say so")


if __name__ == "__main__":
    main()
