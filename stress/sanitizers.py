"""The CPU kernel under AddressSanitizer and UndefinedBehaviorSanitizer, and a planted error that they must report.

A copy of the library in a temporary folder gets the kernels compiled with both; the work that they watch is
python -m stress.sanitizers SECONDS SEED.
"""

import math
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import torch

from stress.outcome import Outcome

ROOT = Path(__file__).parents[1]
_WHAT = "maps, losses and gradients of many shapes on kernels compiled with ASan and UBSan, one with a planted error"
_FLAGS = ("-std=c++17", "-O0", "-g", "-fPIC", "-shared", "-fno-math-errno", "-fsanitize=address,undefined",
          "-fno-sanitize-recover=undefined", "-Wno-psabi")  # fmt: skip
_BUILDS = {"avx512": ("-march=x86-64-v4",), "avx2": ("-march=x86-64-v3",), "baseline": ()}
_LEAST = 45.0  # seconds of a stage, so that every build does some work after its compilation
# The kernel then reads one logit past the end of its last row.
_SOUND_READ = "data = memory(object.get(), of.rows * of.classes);"
_PLANTED_READ = (
    _SOUND_READ + "\n        if (of.bytes == 4 && of.rows) "
    "{ volatile float past = static_cast<float*>(data)[of.rows * of.classes]; (void)past; }"
)


def builds_here() -> list[str]:
    """The builds that this processor runs."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ["baseline"]
    capability = torch.backends.cpu.get_cpu_capability()
    return {"AVX512": list(_BUILDS), "AVX2": ["avx2", "baseline"]}.get(capability, ["baseline"])


def runtime_libraries() -> str | None:
    """What must be loaded before Python so that its extensions can be watched; None without a compiler that can."""
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        return None
    found = []
    for name in ("libasan.so", "libubsan.so", "libstdc++.so"):
        path = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        if not Path(path.stdout.strip()).is_absolute():
            return None
        found.append(str(Path(path.stdout.strip()).resolve()))
    return " ".join(found)


def copy_with_kernel(folder: Path, build: str, planted: bool) -> subprocess.CompletedProcess[str]:
    """The library in a folder, with one kernel compiled anew under the name of the build."""
    shutil.copytree(ROOT / "sharmix", folder / "sharmix", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(ROOT / "stress", folder / "stress", ignore=shutil.ignore_patterns("__pycache__"))
    header = folder / "sharmix/csrc/tensors.h"
    if planted:
        text = header.read_text(encoding="utf-8")
        assert _SOUND_READ in text, f"{header} no longer has the line that the error is planted after"
        header.write_text(text.replace(_SOUND_READ, _PLANTED_READ), encoding="utf-8")
    name = f"_kernel_{builds_here()[0]}"  # the first that the library looks for; the others are of the installed one
    command = ["g++", *_FLAGS, *_BUILDS[build], f"-I{sysconfig.get_paths()['include']}", f"-DMODULE={name}",
               "-DPy_LIMITED_API=0x030B0000", str(folder / "sharmix/csrc/module.cpp"),
               "-o", str(folder / f"sharmix/{name}.abi3.so")]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False)


def watched(folder: Path, libraries: str, seconds: float, seed: int) -> subprocess.CompletedProcess[str]:
    """The work in a process that the sanitizers look on."""
    options = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    environment = os.environ | options | {"LD_PRELOAD": libraries, "PYTHONPATH": str(folder), "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-W", "ignore", "-m", "stress.sanitizers", str(seconds), str(seed)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=seconds + 300
    )


def was_reported(done: subprocess.CompletedProcess[str]) -> bool:
    return "ERROR: AddressSanitizer" in done.stderr or "runtime error:" in done.stderr


def calls_in(done: subprocess.CompletedProcess[str]) -> int:
    """How many calls the work reports, 0 if it did not come to its end."""
    lines = done.stdout.split()
    return int(lines[-1]) if done.returncode == 0 and lines and lines[-1].isdigit() else 0


def run(seconds: float, seed: int) -> Outcome:
    """0 tried where no compiler has the sanitizers."""
    outcome, began = Outcome(_WHAT), time.monotonic()
    libraries = runtime_libraries()
    if libraries is None:
        outcome.what = f"not run: no g++ with ASan and UBSan is installed ({_WHAT})"
        return outcome
    trials = [(build, False) for build in builds_here()] + [(builds_here()[0], True)]
    for number, (build, planted) in enumerate(trials):
        left = max(_LEAST, seconds) - (time.monotonic() - began)
        with tempfile.TemporaryDirectory() as folder:
            compiled = copy_with_kernel(Path(folder), build, planted)
            if compiled.returncode:
                outcome.tried += 1
                outcome.failures.append(f"{build} does not compile: {compiled.stderr[-500:]}")
                continue
            work = 1.0 if planted else max(3.0, left / (len(trials) - number) - 20)
            done = watched(Path(folder), libraries, work, seed)
        reported, calls = was_reported(done), calls_in(done)
        outcome.tried += max(1, calls)
        if planted and reported:
            outcome.survived += 1
        elif planted:
            outcome.failures.append(f"{build}: the planted error was not reported: {done.stderr[-500:]}")
        elif reported or not calls:
            outcome.lost += 1
            outcome.failures.append(f"{build}, seed {seed}, ended with {done.returncode}: {done.stderr[:3000]}")
        else:
            outcome.survived += calls
    return outcome


# The work.


def shapes(generator: torch.Generator) -> tuple[int, int]:
    """Rows and classes, often at the edges of vectors, blocks and chunks."""
    classes = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255, 257, 511, 513, 1023, 1025, 5000)
    rows = (1, 2, 3, 7, 8, 9, 16, 17, 33)
    drawn = torch.randint(1 << 30, (2,), generator=generator).tolist()
    return rows[drawn[0] % len(rows)], classes[drawn[1] % len(classes)]


def call_everything(sharmix: object, generator: torch.Generator) -> int:
    """Map and losses of one draw, and their gradients; how many calls these were."""
    rows, classes = shapes(generator)
    draw = torch.rand(4, generator=generator).tolist()
    dtype = torch.float32 if draw[0] < 0.6 else torch.float64
    scale = 10 ** (4 * draw[1] - 3)
    z = (scale * torch.randn(rows, classes, generator=generator)).to(dtype).requires_grad_()
    y = torch.randint(classes, (rows,), generator=generator)
    q = (1.0, 1.1, 1.25, 1.5, 2.0)[int(5 * draw[2])]
    r = q if draw[3] < 0.3 else 0.5 + 3 * draw[3]
    numbers = (q, r, 1.0)
    learned = [torch.tensor(value, requires_grad=True) for value in numbers]
    by_row = [torch.full((rows, 1), value, dtype=torch.float64) for value in numbers]
    weights, calls = torch.randn(rows, classes, generator=generator).to(dtype), 0
    with torch.no_grad():
        masked = z.detach().clone()
        masked[:, classes // 2 :] = -math.inf
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


def main() -> None:
    import sharmix
    from sharmix._operators import cpu

    kernel = cpu.kernel.__file__ if cpu.kernel else "no kernel"
    assert Path(kernel).parents[1] == Path.cwd(), f"{kernel} is loaded, not the one with the sanitizers"
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    generator, stop, calls = torch.Generator().manual_seed(seed), time.monotonic() + seconds, 0
    torch.set_num_threads(1)
    while calls == 0 or time.monotonic() < stop:
        calls += call_everything(sharmix, generator)
    torch.set_num_threads(2)
    calls += call_everything(sharmix, generator)
    print(calls)


if __name__ == "__main__":
    main()
