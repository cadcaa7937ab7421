"""A report of the implementation in use on each device, and of the reason why a faster one is not in use."""

import platform

import torch

from sharmix._layer_screened import has_bfloat16
from sharmix._operators import backend, cpu
from sharmix._version import __version__

_CUDA = "experimental: tested on an H100 and an H200; attention's kernels by Triton's interpreter alone"
_PLAIN_TORCH = "sharmix.plain_torch() is active"
_ANY = {"baseline": "baseline, which every processor has"}
_X86 = {"avx512": "AVX-512", "avx2": "AVX2"} | _ANY  # the fastest first
_INSTRUCTION_SETS = _X86 if platform.machine().lower() in ("x86_64", "amd64") else _ANY


def show_config() -> None:
    """Print the implementation in use on each device, and why a faster one is not in use.

    A line `not ...` names something faster that is not in use, with the reason. `python -m sharmix` prints the same.

    Example:
        >>> sharmix.show_config()
        sharmix: ...
        torch: ...
    """
    print(f"sharmix: {__version__}", f"torch: {torch.__version__}", sep="\n")
    print(f"Python: {platform.python_version()}")
    for device, facts in (("CPU", _cpu_facts() | {"threads": str(torch.get_num_threads())}), ("CUDA", _cuda_facts())):
        print(f"{device}:", *(f"  {name}: {fact}" for name, fact in facts.items()), sep="\n")


def _cpu_facts() -> dict[str, str]:
    if backend.is_plain_torch():
        return {"implementation": "torch", "not c++": _PLAIN_TORCH}
    facts: dict[str, str] = {"implementation": backend.backend("cpu")}
    loaded = cpu.kernel.__name__.removeprefix("sharmix._kernel_") if cpu.kernel else None
    for kernel, instructions in _INSTRUCTION_SETS.items():
        if kernel == loaded:
            screens = {"output layers": "screened by products in bfloat16"}
            lacks = {"not screening of output layers": "torch uses no instructions for bfloat16 on this processor"}
            return facts | {"instruction set": instructions} | (screens if has_bfloat16() else lacks)
        facts[f"not {instructions}"] = _why_not(kernel)
    return facts


def _why_not(kernel: str) -> str:
    error = cpu.failures.get(kernel)
    if error is None:
        return f"this processor lacks it (torch reports {torch.backends.cpu.get_cpu_capability()})"
    if isinstance(error, ModuleNotFoundError):
        return "its kernel was not compiled at installation; that takes a C++ compiler and Python's headers"
    return f"its kernel does not load: {error}"


def _cuda_facts() -> dict[str, str]:
    facts = {"implementation": backend.backend("cuda"), "status": _CUDA}
    if facts["implementation"] == "triton":
        return facts
    why = _PLAIN_TORCH if backend.is_plain_torch() else "the package triton is not installed"
    if torch.version.hip:
        why = "this torch is built for ROCm, for which the kernels are not made"
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        why = "torch finds no CUDA device" if built else "this torch is built without CUDA"
    return facts | {"not triton": why}
