"""Builds the CPU kernel, once for each kind of processor, and its place in torch's autograd graph.

Where a build fails, the library installs and works without what it would have given.
"""

import importlib.util
import platform
import runpy
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

_HEADERS = glob("sharmix/csrc/*.h")
_FLAGS = ["-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-Wno-psabi"]
_X86 = {"avx512": ["-march=x86-64-v4"], "avx2": ["-march=x86-64-v3"]}  # beside what every processor can run
_VARIANTS = {"baseline": []} | (_X86 if platform.machine().lower() in ("x86_64", "amd64") else {})


def kernel(name: str, architecture: list[str]) -> Extension:
    """The kernel for one kind of processor; it needs nothing of torch."""
    return Extension(
        f"sharmix._kernel_{name}",
        ["sharmix/csrc/module.cpp"],
        depends=_HEADERS,
        define_macros=[("MODULE", f"_kernel_{name}")],
        extra_compile_args=_FLAGS + architecture,
        language="c++",
        optional=True,
    )


def autograd() -> list[Extension]:
    """The map and the loss as nodes of the graph, for the torch that is there at the build (`--no-build-isolation`)."""
    torch = importlib.util.find_spec("torch")
    if torch is None:
        return []
    home = Path(torch.origin).parent
    version = runpy.run_path(str(home / "version.py"))["__version__"]  # importing torch would take seconds
    headers = [home / "include", home / "include" / "torch" / "csrc" / "api" / "include"]
    return [
        Extension(
            "sharmix._autograd",
            ["sharmix/csrc/autograd.cpp"],
            depends=_HEADERS,
            define_macros=[("BUILT_FOR_TORCH", f'"{version}"')],
            extra_compile_args=["-std=c++20", "-O2", "-fvisibility=hidden", *(f"-isystem{path}" for path in headers)],
            library_dirs=[str(home / "lib")],
            libraries=["c10", "torch", "torch_cpu", "torch_python"],
            language="c++",
            optional=True,
        )
    ]


setup(ext_modules=[*(kernel(name, architecture) for name, architecture in _VARIANTS.items()), *autograd()])
