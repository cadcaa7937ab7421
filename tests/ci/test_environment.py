"""`make setup`, with commands that are recorded and not run: what installs, and what is said where nothing can."""

import runpy
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet

from experiments.identity import ROOT

BY_UV, BY_PIP = ["-m", "uv", "pip", "install"], ["-m", "pip", "install"]


@pytest.fixture
def set_up(monkeypatch, tmp_path):
    """set_up(BROKEN, ...) runs the script with these ways of installing broken; returns what each package came by."""

    monkeypatch.chdir(tmp_path)

    def run_script(*broken):
        installed = {}

        def run(command, env=None, **options):
            way = [*command[1:5]] if command[1:3] == BY_UV[:2] else [*command[1:4]]
            if way in broken:
                return SimpleNamespace(returncode=1, stdout="")
            if way in (BY_UV, BY_PIP):
                assert command[command.index("--constraint") + 1] == "constraints.txt"
                installed[command[-1]] = way, env
            return SimpleNamespace(returncode=0, stdout="https://configured.invalid\n")

        monkeypatch.setattr(subprocess, "run", run)
        monkeypatch.setattr(sys, "argv", ["environment.py", "folder"])
        runpy.run_path(str(ROOT / ".ci" / "environment.py"), run_name="__main__")
        return installed

    return run_script


def test_uv_installs_from_the_index_of_pip(set_up, monkeypatch, tmp_path):
    kernels = tmp_path / "sharmix" / "_kernel.cpython-312.so", tmp_path / "sharmix" / "_kernel.abi3.so"
    kernels[0].parent.mkdir()
    for variable, index in ((None, "https://configured.invalid"), ("https://given.invalid", "https://given.invalid")):
        monkeypatch.delenv("PIP_INDEX_URL", raising=False)
        if variable:
            monkeypatch.setenv("PIP_INDEX_URL", variable)
        for kernel in kernels:
            kernel.touch()
        (_, by_pip), (_, of_torch), (_, of_all) = set_up().items()
        assert [kernel.exists() for kernel in kernels] == [False, True]  # the first is of an older checkout
        assert by_pip[0] == BY_PIP  # uv itself
        for way, env in (of_torch, of_all):
            assert way == BY_UV
            assert env["UV_DEFAULT_INDEX"] == index


def test_pip_installs_the_same_where_uv_fails(set_up):
    both = [*set_up()]
    by_pip = set_up(BY_UV)
    assert [*by_pip] == both
    assert all(way == BY_PIP for way, _ in by_pip.values())


def test_one_line_says_so_where_nothing_installs(set_up, capsys):
    with pytest.raises(SystemExit, match=r"^error: .*pip install .*torch failed; see its messages above$"):
        set_up(BY_UV, BY_PIP)
    assert "uv cannot be installed" in capsys.readouterr().out


def test_the_pythons_that_are_refused_are_those_that_pyproject_refuses(set_up, monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for minor in range(8, 16):
        monkeypatch.setattr(sys, "version_info", (3, minor, 1))
        if SpecifierSet(project["requires-python"]).contains(f"3.{minor}.1"):
            set_up()
        else:
            with pytest.raises(SystemExit, match=r"^error: Python 3.11 to 3.13 is needed, .* make PYTHON=python3.12$"):
                set_up()
