"""Builds the CPU kernel, once for each kind of processor; where that fails, the library installs and works without."""

import platform
from glob import glob

from setuptools import Extension, setup

_FLAGS = ["-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-Wno-psabi"]
_X86 = {"avx512": ["-march=x86-64-v4"], "avx2": ["-march=x86-64-v3"]}  # beside what every processor can run
_VARIANTS = {"baseline": []} | (_X86 if platform.machine().lower() in ("x86_64", "amd64") else {})

setup(
    ext_modules=[
        Extension(
            f"sharmix._kernel_{name}",
            ["sharmix/csrc/module.cpp"],
            depends=glob("sharmix/csrc/*.h"),
            define_macros=[("MODULE", f"_kernel_{name}")],
            extra_compile_args=_FLAGS + architecture,
            language="c++",
            optional=True,
        )
        for name, architecture in _VARIANTS.items()
    ]
)
