"""Builds the playground: one HTML file, in which the kernel of `sharmix/csrc` runs as WebAssembly.

The file needs no network and no server. Its sources are the style that all pages share (`reporting/look/look.css`), and
in `page/` the template `index.html`, `style.css`, and scripts, which become one module in the order of `SCRIPTS`.
"""

import base64
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from docs.playground.digits import CALIBRATION, TEST, TRAINED_ON, logits_of_digits
from experiments.files import write_atomically
from reporting.look.header import page_header, theme_script
from reporting.look.palette import page_style

HERE = Path(__file__).parent
PAGE, KERNEL = HERE / "page", HERE / "kernel.cpp"
HEADERS = HERE.parents[1] / "sharmix/csrc"
SCRIPTS = (
    "kernel",
    "state",
    "drawing",
    "plane",
    "bars",
    "maps",
    "derivatives",
    "triangle",
    "curves",
    "sets",
    "presets",
    "python",
    "main",
)
TARGET = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-O3")
FLAGS = (
    *("-std=c++17", "-msimd128", "-g0"),
    *("-fno-exceptions", "-fno-math-errno", "-fno-trapping-math", "-Wno-bitwise-conditional-parentheses"),
    "-D_LIBCPP_VERBOSE_ABORT(...)=__builtin_trap()",  # in place of an error message, which would need a console
)


class BuildError(Exception):
    """The playground cannot be built; the message says why."""


def compiled_kernel() -> bytes:
    """`kernel.cpp` and the headers of `sharmix/csrc` as WebAssembly.

    Zig compiles the C library that is linked on its first use, in about 40 seconds of processor time, and keeps it.

    Raises:
        BuildError: The compiler is missing or fails.
    """
    if find_spec("ziglang") is None:
        raise BuildError("the compiler for WebAssembly is not installed: pip install ziglang")
    with tempfile.TemporaryDirectory() as folder:
        compiled, linked = f"{folder}/kernel.o", f"{folder}/kernel.wasm"
        _zig("c++", *FLAGS, f"-I{HEADERS}", "-c", str(KERNEL), "-o", compiled)
        _zig("cc", "-s", compiled, "-o", linked)  # not c++, which would compile all of libc++ without need
        return Path(linked).read_bytes()


def _zig(compiler: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "ziglang", compiler, *TARGET, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise BuildError(f"the kernel does not compile to WebAssembly:\n{run.stderr}")


def page(kernel: bytes, in_site: bool) -> str:
    """The whole page.

    Args:
        kernel: the compiled kernel.
        in_site: whether the page is part of the site, to whose other pages it links.
    """
    digits = logits_of_digits()
    fills = {
        "style": f"{page_style()}\n{_source('style.css')}",
        "theme": theme_script(),
        "header": page_header("Playground", "" if in_site else None),
        "digits_note": _note_on(digits),
        "data": json.dumps({"digits": digits}),
        "kernel": base64.b64encode(kernel).decode(),
        "scripts": "\n".join(_source(f"{name}.js") for name in SCRIPTS),
    }
    text = _source("index.html")
    for name, fill in fills.items():
        text = text.replace(f"{{{{{name}}}}}", fill, 1)
    return text


def build(output: Path) -> None:
    """Write the page. It is part of the site where there is an `index.html` in the same folder.

    Raises:
        BuildError: The kernel cannot be compiled.
        OSError: The page cannot be written.
    """
    write_atomically(output, page(compiled_kernel(), in_site=(output.parent / "index.html").exists()))


def _source(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8").rstrip("\n")


def _note_on(digits: dict[str, object]) -> str:
    return (
        f"The logits are those of a logistic regression that saw {TRAINED_ON} of scikit-learn’s handwritten digits; "
        f"alone it is right on {digits['accuracy']:.1%} of the test digits. The temperature is calibrated on "
        f"{CALIBRATION} digits and counted on {TEST} others. Underlined: the true digit. "
        "Press a digit to see its logits in the bars."
    )
