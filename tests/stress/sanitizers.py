"""The CPU kernel under AddressSanitizer and UndefinedBehaviorSanitizer, and an error that they must report.

A copy of the library in a temporary folder gets kernels that are compiled with both sanitizers. The work that the
sanitizers watch is `python -m tests.stress.sanitizers SECONDS SEED`.
"""

import ctypes
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.stress.outcome import Outcome

ROOT = Path(__file__).parents[2]
WHAT = "maps, losses and gradients of many shapes on kernels compiled with ASan and UBSan, one with a planted error"
_FLAGS = "-O0 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"  # the last -O of a command line decides
_LEAST = 3.0  # seconds of work on each build
_PLANTED = "planted"  # in place of the seconds: the work that reads past the end of its logits


def run(seconds: float, seed: int) -> Outcome:
    """Work for so many seconds on every build that this processor runs; nothing is tried without a compiler."""
    outcome, began = Outcome(WHAT), time.monotonic()
    libraries = runtime_libraries()
    if libraries is None:
        outcome.what = f"not run: no g++ with ASan and UBSan is installed ({WHAT})"
        return outcome
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        compile_copy(folder)
        builds = builds_here()
        for number, build in enumerate(builds):
            left = seconds - (time.monotonic() - began)
            done = run_with_sanitizers(folder, libraries, str(max(_LEAST, left / (len(builds) - number))), str(seed))
            calls = int(done.stdout.split()[-1]) if done.returncode == 0 else 0
            outcome.tried += max(1, calls)
            outcome.survived += calls
            if not calls:
                outcome.lost += 1
                outcome.failures.append(f"{build}, seed {seed}, ended with {done.returncode}: {done.stderr[:3000]}")
            if number == 0:
                done = run_with_sanitizers(folder, libraries, _PLANTED, str(seed))
                reported = "ERROR: AddressSanitizer" in done.stderr
                outcome.tried += 1
                outcome.survived += reported
                if not reported:
                    outcome.failures.append(f"{build}: the planted error was not reported: {done.stderr[-500:]}")
            hide(folder, build)
    return outcome


def builds_here() -> list[str]:
    """The builds that this processor runs. The library tries to load them in this order."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ["baseline"]
    capability = torch.backends.cpu.get_cpu_capability()
    return {"AVX512": ["avx512", "avx2", "baseline"], "AVX2": ["avx2", "baseline"]}.get(capability, ["baseline"])


def runtime_libraries() -> str | None:
    """The libraries that must be loaded before Python, None where no compiler has the sanitizers."""
    if shutil.which("g++") is None or sys.platform != "linux":
        return None
    names = [f"-print-file-name={name}" for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    found = [subprocess.run(["g++", name], capture_output=True, text=True).stdout.strip() for name in names]
    return " ".join(found) if all(map(os.path.isabs, found)) else None


def compile_copy(folder: Path) -> None:
    """Copy the library into a folder, and compile its kernels there as setup.py does, with the sanitizers."""
    for package in ("sharmix", "tests/stress"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "tests/__init__.py"):
        shutil.copy(ROOT / name, folder / name)
    compiler = folder / "g++"
    compiler.write_text(f'#!/bin/sh\nexec g++ "$@" {_FLAGS}\n')
    compiler.chmod(0o755)
    environment = os.environ | {"CC": str(compiler), "CXX": str(compiler)}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if len([*folder.glob("sharmix/_kernel_*.so")]) < len(builds_here()):
        raise RuntimeError(f"the kernel cannot be compiled: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def hide(folder: Path, build: str) -> None:
    """Make the library in a folder load the next build; the stand-in hides an installed build of the same name."""
    for kernel in (folder / "sharmix").glob(f"_kernel_{build}.*so"):
        kernel.unlink()
    (folder / "sharmix" / f"_kernel_{build}.py").write_text("raise ImportError\n")


def run_with_sanitizers(folder: Path, libraries: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The work, in a process that the sanitizers watch."""
    options = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    environment = os.environ | options | {"LD_PRELOAD": libraries, "PYTHONPATH": str(folder), "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.stress.sanitizers", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def call_everything(sharmix: object, generator: torch.Generator) -> int:
    """Call map and losses at random logits, with their gradients. Returns the number of calls."""
    # Numbers of classes and rows at the edges of vectors, blocks and chunks.
    classes = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255, 257, 511, 513, 1023, 1025, 5000)
    rows = (1, 2, 3, 7, 8, 9, 16, 17, 33)
    drawn = torch.randint(1 << 30, (2,), generator=generator).tolist()
    shape = count, width = rows[drawn[0] % len(rows)], classes[drawn[1] % len(classes)]
    draw = torch.rand(4, generator=generator).tolist()
    dtype = torch.float32 if draw[0] < 0.6 else torch.float64
    z = (10 ** (4 * draw[1] - 3) * torch.randn(shape, generator=generator)).to(dtype).requires_grad_()
    y = torch.randint(width, (count,), generator=generator)
    q = (1.0, 1.1, 1.25, 1.5, 2.0)[int(5 * draw[2])]
    numbers = (q, q if draw[3] < 0.3 else 0.5 + 3 * draw[3], 1.0)
    learned = [torch.tensor(value, requires_grad=True) for value in numbers]
    by_row = [torch.full((count, 1), value, dtype=torch.float64) for value in numbers]
    weights, calls = torch.randn(shape, generator=generator).to(dtype), 0
    with torch.no_grad():
        masked = z.detach().clone()
        masked[:, width // 2 :] = -math.inf
        masked[-1] = math.nan
        sharmix.sharmix(masked, *numbers)  # type: ignore[attr-defined]
    for orders in (numbers, learned, by_row):
        sharmix.sharmix(z, *orders).backward(weights)  # type: ignore[attr-defined]
        for reduction in ("mean", "sum", "none"):
            loss = sharmix.fenchel_young_loss(z, y, *orders, reduction=reduction)  # type: ignore[attr-defined]
            loss.sum().backward()
        calls += 8
    sharmix.alpha_relu_loss(z, y).backward()  # type: ignore[attr-defined]
    sharmix.fenchel_young_loss(z, weights.softmax(-1), *numbers).backward()  # type: ignore[attr-defined]
    return calls + 5


def logits_past_the_end() -> torch.Tensor:
    """100 logits in memory for 99: the last one lies behind its end."""
    allocate = ctypes.CDLL(None).malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    numbers = (ctypes.c_float * 100).from_address(allocate(4 * 99))
    return torch.frombuffer(numbers, dtype=torch.float32).reshape(1, 100)


def main(seconds: str, seed: str) -> None:
    """Do the work on the kernel in the working folder, and print the number of calls."""
    import sharmix
    from sharmix._operators import cpu

    kernel = cpu.kernel.__file__ if cpu.kernel else "no kernel"
    assert Path(kernel).parents[1] == Path.cwd(), f"{kernel} is loaded, not the one with the sanitizers"
    if seconds == _PLANTED:
        sharmix.sharmix(logits_past_the_end(), 1.5, 1.5)
        return
    generator, calls, stop = torch.Generator().manual_seed(int(seed)), 0, time.monotonic() + float(seconds)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        calls += call_everything(sharmix, generator)
    while time.monotonic() < stop:
        calls += call_everything(sharmix, generator)
    print(calls)


if __name__ == "__main__":
    main(*sys.argv[1:])
