"""Builds the CPU kernel, once for each kind of processor.

The kernel needs nothing of torch, and of Python the limited API alone: one wheel serves every version of both
that the library supports. Where a build fails, the library installs all the same, and a warning says what is lost.
"""

import copy
import platform
import shutil
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

_FLAGS = ["-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-Wno-psabi"]
# No symbols, and code and constants on the same pages: for a smaller wheel.
_SMALL = {"linux": ["-Wl,-s", "-Wl,-z,noseparate-code"], "darwin": ["-Wl,-x"]}.get(sys.platform, [])
_X86 = {"avx512": ("AVX-512", ["-march=x86-64-v4"]), "avx2": ("AVX2", ["-march=x86-64-v3"])}
_PROCESSORS = (_X86 if platform.machine().lower() in ("x86_64", "amd64") else {}) | {"baseline": ("any processor", [])}
_SOURCES = sorted(Path("sharmix/csrc").glob("[a-z]*.*"))
_DIGEST = zlib.crc32(b"".join(file.read_bytes() for file in _SOURCES))  # which cpu.py computes, too
_HAS_LIMITED_API = not sysconfig.get_config_var("Py_GIL_DISABLED")  # free-threaded Pythons get it with 3.15


def kernel(name: str, architecture: list[str]) -> Extension:
    """The kernel for one kind of processor."""
    return Extension(
        f"sharmix._kernel_{name}",
        ["sharmix/csrc/module.cpp"],
        depends=["setup.py", *map(str, _SOURCES)],
        define_macros=[("MODULE", f"_kernel_{name}"), ("DIGEST", str(_DIGEST))]
        + [("Py_LIMITED_API", "0x030B0000")] * _HAS_LIMITED_API,
        py_limited_api=_HAS_LIMITED_API,
        extra_compile_args=["-std=c++17", *_FLAGS, *architecture],
        extra_link_args=_SMALL,
        language="c++",
        optional=True,
    )


class BuildKernel(build_ext):
    """Compiles for all processors at once, says for which, and says once what is lost where that fails."""

    def run(self) -> None:
        self.parallel = True
        self.failures: dict[str, str] = {}  # why, by the kind of processor
        super().run()
        if self.failures:
            self.warn(
                f"no CPU kernel for {', '.join(self.failures)}: {'; '.join(sorted(set(self.failures.values())))}. Such "
                "a processor runs the kernel for an older one; if there is none, plain torch computes instead, with "
                "the same results, several times slower. A build takes Python's headers and gcc or clang, on Windows "
                "MSVC with clang-cl."
            )

    def build_extensions(self) -> None:
        if self.compiler.compiler_type == "msvc":
            self.use_clang()
        super().build_extensions()

    def use_clang(self) -> None:
        """In place of MSVC's own compiler, which does not know the vector types that the kernel is written in."""
        clang = shutil.which("clang-cl")
        try:
            self.compiler.initialize()
        except BaseError as error:
            clang, why = None, str(error)
        else:
            why = "clang-cl is not on the PATH"
        if clang is None:
            self.failures = {processor: why for processor, _ in _PROCESSORS.values()}
            self.extensions = []
            return
        self.compiler.cc = clang
        for extension in self.extensions:
            flags = [f"/clang:{flag}" for flag in extension.extra_compile_args[1:]]
            extension.extra_compile_args = ["/std:c++17", *flags]

    def build_extension(self, extension: Extension) -> None:
        processor, _ = _PROCESSORS[extension.name.removeprefix("sharmix._kernel_")]
        print(f"building the CPU kernel for {processor}", flush=True)
        own = copy.copy(self)
        own.build_temp = f"{self.build_temp}/{extension.name}"  # the builds compile the same file at the same time
        try:
            build_ext.build_extension(own, extension)
        except (BaseError, CCompilerError) as error:
            self.failures[processor] = str(error)


with tempfile.TemporaryDirectory() as build:  # a folder that stays would bring files of older versions into the wheel
    setup(
        ext_modules=[kernel(name, architecture) for name, (_, architecture) in _PROCESSORS.items()],
        cmdclass={"build_ext": BuildKernel},
        options={"build": {"build_base": build}}
        | ({"bdist_wheel": {"py_limited_api": "cp311"}} if _HAS_LIMITED_API else {}),
    )
