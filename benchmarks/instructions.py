"""Compares the C++ kernel's instruction counts with the recorded ones. A busy machine changes times, but no counts.

python -m benchmarks.instructions
"""

import argparse
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from distutils.core import run_setup
from pathlib import Path
from typing import Any

import yaml

from experiments.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(__file__).with_suffix(".cpp")
RECORD = ROOT / "results/benchmarks/instructions.yaml"
KERNEL = ("setup.py", "sharmix/csrc")  # the files that decide the counts
TOLERANCE = 0.02
LIMIT = f"{100 * TOLERANCE:g} %"
_COUNT = re.compile(r"^desc: Trigger: Client Request: (.+)$(?:\n(?!totals).*)*\ntotals: (\d+)$", re.MULTILINE)


class CannotCheck(Exception):
    """This machine cannot count, or its counts cannot be compared with the record."""


def toolchain(compiler: list[str]) -> dict[str, str]:
    """The compiler, C library and valgrind of this machine: with others, the same code has other counts."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        here = f"{platform.system()} on {platform.machine()}"
        raise CannotCheck(f"the AVX2 kernel is counted, under Linux on x86_64; this is {here}.")
    if shutil.which("valgrind") is None:
        raise CannotCheck("valgrind is missing. `apt install valgrind` gets it, or `dnf install valgrind-devel`.")
    if shutil.which(compiler[0]) is None:
        raise CannotCheck(f"the C++ compiler {compiler[0]} is missing. The variable CXX names another one.")
    return {
        "compiler": _output(*compiler, "--version").splitlines()[0],
        "libc": " ".join(platform.libc_ver()),
        "valgrind": _output("valgrind", "--version").strip().replace("-", " "),
    }


def kernel_flags() -> list[str]:
    """The flags with which setup.py compiles the AVX2 kernel; valgrind knows no AVX-512."""
    extensions = run_setup(str(ROOT / "setup.py"), stop_after="init").ext_modules
    return next(one.extra_compile_args for one in extensions if one.name == "sharmix._kernel_avx2")


def count(compiler: list[str], flags: list[str]) -> dict[str, int]:
    """Compile `instructions.cpp` and run it under callgrind: instructions by step."""
    with tempfile.TemporaryDirectory() as folder:
        program, counts = f"{folder}/program", f"{folder}/counts"
        _output(*compiler, *flags, f"-I{ROOT / 'sharmix/csrc'}", str(PROGRAM), "-o", program)
        options = ("--tool=callgrind", "--instr-atstart=no", "--combine-dumps=yes", f"--callgrind-out-file={counts}")
        _output("valgrind", *options, program)
        return counts_in(Path(counts).read_text(encoding="utf-8"))


def counts_in(written: str) -> dict[str, int]:
    """The totals of the named parts of a file that callgrind has written."""
    return {name: int(total) for name, total in _COUNT.findall(written)}


def compare(recorded: dict[str, int], now: dict[str, int]) -> list[str]:
    """Print a line for each count. Return the names whose count is beyond the tolerance, new or gone."""
    print(f"{'instructions of':45} {'recorded':>12} {'now':>12} {'change':>9}")
    wrong = []
    for name in {**now, **recorded}:
        before, after = recorded.get(name, 0), now.get(name, 0)
        change = after / before - 1 if before and after else math.nan
        mark = "" if abs(change) <= TOLERANCE else "  <- too far"
        wrong += [name] if mark else []
        print(f"{name:45} {before:12,} {after:12,} {100 * change:+7.2f} %{mark}")
    return wrong


def main() -> None:
    """Command line: compare with the record, or write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the counts down as those to compare with")
    options = parser.parse_args()
    compiler = shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++")
    try:
        tools = toolchain(compiler)
        record = None if options.record else comparable_record(tools)
    except CannotCheck as why:
        if options.record:
            sys.exit(f"error: {why}")
        print(f"NOT CHECKED: instruction counts of the kernel: {why}")
        return
    now = count(compiler, kernel_flags())
    if record is None:
        write(tools, now)
        print(f"Written: {RECORD}, {len(now)} counts")
        return
    commit = record["commit"][:12]
    if wrong := compare(record["instructions"], now):
        sys.exit(
            f"error: {len(wrong)} instruction counts changed by more than {LIMIT}, or are in the record or in "
            f"instructions.cpp alone. `git diff {commit} -- {' '.join(KERNEL)}` shows what changed since they were "
            "recorded. If the change is wanted, `make instructions RECORD=1` records all again."
        )
    print(f"All {len(now)} instruction counts are within {LIMIT} of those of {commit}.")


def comparable_record(tools: dict[str, str]) -> dict[str, Any]:
    """The record, if it was made with the tools at hand."""
    record: dict[str, Any] = yaml.safe_load(RECORD.read_text(encoding="utf-8"))
    if record["toolchain"] != tools:
        theirs, ours = (", ".join(one.values()) for one in (record["toolchain"], tools))
        raise CannotCheck(
            f"they were recorded with {theirs}; here are {ours}, with which the same code has other counts. To compare "
            "here, `make instructions RECORD=1` before a change of the kernel, and `make instructions` after it."
        )
    return record


def write(tools: dict[str, str], counts: dict[str, int]) -> None:
    """Write the record: counts, and where they come from."""
    record: dict[str, Any] = {
        **origin(*KERNEL),
        "flags": shlex.join(kernel_flags()),
        "toolchain": tools,
        "instructions": counts,
    }
    write_atomically(RECORD, yaml.safe_dump(record, allow_unicode=True, sort_keys=False, width=1000))


def origin(*files: str) -> dict[str, Any]:
    """The commit, and whether these files differ from it."""
    return {
        "commit": _output("git", "-C", str(ROOT), "rev-parse", "HEAD").strip(),
        "dirty": bool(_output("git", "-C", str(ROOT), "status", "--porcelain", "--", *files)),
    }


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {shlex.join(command)} failed:\n{done.stderr}{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
