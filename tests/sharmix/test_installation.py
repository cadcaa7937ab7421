"""The library in processes of its own: what a first import loads, and what an installation without a compiler gives."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import torch

import sharmix
from sharmix import _cpu

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def test_a_first_import_and_a_first_call():
    """With torch's own word for the plainest of processors, for which the baseline build is loaded."""
    script = """
import json, sys
import torch, sharmix
from sharmix import _cpu
loaded = sorted({"lightning", "hydra", "sklearn", "pandas", "scipy", "entmax", "torchmetrics"} & set(sys.modules))
with torch.inference_mode():
    sharmix.sharmix(torch.zeros(2, 3))
p = sharmix.sharmix(torch.zeros(2, 3, requires_grad=True))
in_python = isinstance(p.grad_fn, torch.autograd.function.BackwardCFunction)
print(json.dumps([loaded, _cpu._kernel and _cpu._kernel.__name__, in_python]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=ROOT, env=os.environ | {"ATEN_CPU_CAPABILITY": "default"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    unwanted, kernel, in_python = json.loads(done.stdout)
    assert unwanted == []
    assert kernel == ("sharmix._kernel_baseline" if _cpu._kernel else None)
    assert in_python == (_cpu.node is None)  # a first call in inference mode changes nothing for later ones


def test_an_installation_without_a_compiler(tmp_path):
    source, target = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "sharmix", source / "sharmix", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for folder in ("experiments", "reporting"):
        (source / folder).mkdir()
    hidden = {"PATH": str(tmp_path), "CC": "no-compiler", "CXX": "no-compiler"}
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"  # which is what pip calls
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=source, env=os.environ | hidden, check=True, capture_output=True, text=True
    )
    with zipfile.ZipFile(source / done.stdout.split()[-1]) as wheel:
        wheel.extractall(target)
    assert not list((target / "sharmix").glob("*.so"))
    script = """
import json, warnings
import torch, sharmix
z = 2 * torch.randn(7, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    p = sharmix.sharmix(z)
    sharmix.sharmix(z)
print(json.dumps([sharmix.__file__, sharmix.backend(), [str(w.message) for w in told], p.tolist()]))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],  # without site, whose editable installation would find this checkout
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(target), sysconfig.get_path("purelib")])},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    file, backend, told, p = json.loads(done.stdout)
    assert file.startswith(str(target))
    assert backend == "torch"
    assert len(told) == 1
    assert "without a C++ compiler" in told[0]
    z = 2 * torch.randn(7, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    torch.testing.assert_close(torch.tensor(p), sharmix.sharmix(z), rtol=1e-6, atol=1e-7)
