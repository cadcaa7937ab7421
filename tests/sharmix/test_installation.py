"""What is built of the library, and what an installation without a compiler gives."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import torch

import sharmix
from sharmix._operators import cpu
from sharmix._show_config import _INSTRUCTION_SETS as KERNELS
from tests.sharmix.conftest import needs_kernel

ROOT = Path(__file__).parents[2]
COMPILER = """#!/bin/sh
command="$*"
while [ "$1" != -o ]; do shift; done
echo "$command" > "$2"
"""
needs_sources = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the sources are not beside the tests")
needs_shell = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for a compiler is a shell script")


@needs_kernel
def test_the_kernels_are_small_and_of_no_one_python():
    kernels = [path for path in Path(cpu.kernel.__file__).parent.glob("_kernel_*") if path.suffix in (".so", ".pyd")]
    suffix = ".pyd" if sys.platform == "win32" else ".abi3.so"
    assert {path.name for path in kernels} == {f"_kernel_{name}{suffix}" for name in KERNELS}
    assert sum(path.stat().st_size for path in kernels) < 1e6


def run(*command, cwd, **environment):
    """What a process printed, both streams together."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(kind, source, **environment):
    """A wheel or an sdist, by what pip and build call; its path, and what was printed."""
    printed = run(
        sys.executable, "-c", f"from setuptools import build_meta; print(build_meta.build_{kind}('.'))",
        cwd=source, **environment,
    )  # fmt: skip
    return source / printed.split()[-1], printed


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Unpacked, and built in a checkout in which an older version, which packed more, was built before."""
    checkout = tmp_path_factory.mktemp("checkout") / "sharmix"
    left_out = (".*", "*.so", "*.pyd", "*.egg-info", "__pycache__", "build", "data", "outputs", "results", "wandb")
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*left_out))
    for folder in ("build/lib", f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}", "."):
        (checkout / folder / "experiments").mkdir(parents=True, exist_ok=True)
        (checkout / folder / "experiments" / "__init__.py").touch()
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(build("sdist", checkout)[0]) as archive:
        archive.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    shutil.copytree(checkout / "build", folder / "build")
    return folder


@pytest.fixture
def source(sdist, tmp_path):
    """The sdist's content, a copy for each build."""
    return shutil.copytree(sdist, tmp_path / "source")


@needs_sources
@pytest.mark.slow
def test_the_sdist_has_the_library_with_its_own_tests(sdist):
    files = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    files = {file for file in files if not file.startswith(("build/", "sharmix.egg-info/"))}
    top = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "MANIFEST.in", "PKG-INFO"}
    assert {file for file in files if "/" not in file} == top | {"pyproject.toml", "setup.cfg", "setup.py"}
    assert {file.split("/")[0] for file in files if "/" in file} == {"sharmix", "tests"}
    tests = {file for file in files if file.startswith("tests/") and not file.startswith("tests/sharmix/")}
    assert tests == {"tests/__init__.py", "tests/conftest.py"}
    expected = {path for path in (ROOT / "sharmix").rglob("*") if path.suffix in (".py", ".h", ".cpp")}
    assert {path.relative_to(ROOT).as_posix() for path in expected} <= files


@needs_sources
@pytest.mark.slow
def test_the_tests_of_the_sdist_run(source):
    """All are collected, some of them run: with the kernels here, as an installation in place would compile them."""
    for kernel in Path(sharmix.__file__).parent.glob("_kernel_*.so"):
        shutil.copy(kernel, source / "sharmix")
    options = ("-q", "-p", "no:cacheprovider", "-n", "0", "-m", "not medium and not slow")
    some = ("-k", "test_backends or test_modules")
    printed = run(sys.executable, "-m", "pytest", *options, *some, "tests", cwd=source, PYTHONPATH="")
    assert " passed" in printed
    where = run(sys.executable, "-c", "import sharmix; print(sharmix.__file__)", cwd=source, PYTHONPATH="")
    assert Path(where.strip()) == source / "sharmix" / "__init__.py"


@needs_sources
@needs_shell
@pytest.mark.slow
def test_the_wheel_holds_the_library_alone_and_serves_every_python(source, tmp_path):
    compiler = tmp_path / "compiler"  # leaves its command in place of a result
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    path, printed = build("wheel", source, CC=str(compiler), CXX=str(compiler))
    version = sharmix.__version__
    assert path.name.startswith(f"sharmix-{version}-cp311-abi3-")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        metadata = Parser().parsestr(wheel.read(f"sharmix-{version}.dist-info/METADATA").decode())
        links = [wheel.read(name).decode() for name in names if "_kernel_" in name]
    assert {name.split("/")[0] for name in names} == {"sharmix", f"sharmix-{version}.dist-info"}
    kernels = {f"sharmix/_kernel_{name}.abi3.so" for name in KERNELS}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sharmix").rglob("*.py")}
    assert {name for name in names if name.startswith("sharmix/")} == kernels | modules | {"sharmix/py.typed"}
    assert f"sharmix-{version}.dist-info/licenses/LICENSE" in names
    assert metadata["License-Expression"] == "MIT"
    assert [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need] == ["torch>=2.10"]
    assert printed.count("building the CPU kernel for ") == len(KERNELS)
    assert "no CPU kernel" not in printed
    objects = {word for link in links for word in link.split() if word.endswith(".o")}
    assert len(objects) == len(KERNELS)  # none overwrites another's, though all compile at the same time


@needs_sources
@pytest.mark.slow
def test_an_installation_without_a_compiler(source, tmp_path):
    target = tmp_path / "installed"
    path, printed = build("wheel", source, PATH=str(tmp_path), CC="no-compiler", CXX="no-compiler")
    assert printed.count("no CPU kernel for") == 1
    assert "plain torch computes instead" in printed
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(target)
    assert not list((target / "sharmix").glob("_kernel_*"))
    z = 2 * torch.randn(7, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    script = f"""
import json, warnings
import torch, sharmix
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    p = sharmix.sharmix(torch.tensor({z.tolist()}))
    sharmix.sharmix(torch.zeros(2, 3))
print(json.dumps([sharmix.__file__, sharmix.backend(), [str(w.message) for w in told], p.tolist()]))
"""
    python = (sys.executable, "-S")  # without site, whose editable installation would find this checkout
    paths = {"PYTHONPATH": os.pathsep.join([str(target), sysconfig.get_path("purelib")])}
    file, backend, told, p = json.loads(run(*python, "-c", script, cwd=tmp_path, **paths))
    assert file.startswith(str(target))
    assert backend == "torch"
    assert len(told) == 1
    assert "no compiled kernel" in told[0]
    torch.testing.assert_close(torch.tensor(p), sharmix.sharmix(z), rtol=1e-6, atol=1e-7)

    (target / "sharmix" / f"_kernel_baseline{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"not a library")
    printed = run(*python, "-m", "sharmix", cwd=tmp_path, **paths)
    assert "implementation: torch" in printed
    assert "which every processor has: its kernel does not load: " in printed
    assert "_kernel_baseline" in printed  # as the ImportError says
