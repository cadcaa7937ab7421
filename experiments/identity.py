"""Identifies a run: a hash of the settings that decide its result, and a hash of the code that computes it."""

import ast
import functools
import hashlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RUNNER = "experiments.run"  # the module that every run imports, beside the classes that its settings name

# Settings that decide a result, and exceptions among them. The seed is left out: it has its own folder.
DECISIVE = ("name", "activation", "data", "model", "module", "optimizer", "trainer", "callbacks", "threads")
INDECISIVE = {
    "data": ("seed", "folder", "num_workers", "expected_examples"),
    "trainer": (
        *("profiler", "detect_anomaly", "enable_model_summary", "log_every_n_steps"),
        *("default_root_dir", "enable_autolog_hparams", "model_registry", "num_sanity_val_steps"),
    ),
}


def run_id(config: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of the hash of a configuration's decisive settings."""
    return hashlib.sha256(json.dumps(decisive(config), sort_keys=True).encode()).hexdigest()[:12]


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration that decide its result, apart from the seed."""
    return {key: _plain(config[key], INDECISIVE.get(key, ())) for key in DECISIVE}


def _plain(value: Any, left_out: tuple[str, ...] = ()) -> Any:
    """Settings as JSON holds them; 1 and 1.0 are the same setting."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if key not in left_out}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def code_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The commit, whether the run's files differed from it, the hash of all these files, and the hash of each file.

    A run's code consists of the classes that its settings name and everything they import, without installed packages.
    """
    files = _imported((RUNNER, *sorted(_named(config))))
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + _content(file) + b"\0" for file, name in files.items()))
    hashes = {name: hashlib.sha256(_content(file)).hexdigest()[:12] for file, name in files.items()}
    own = [str(file) for file in files if file.is_relative_to(ROOT)]
    commit, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", *own)
    dirty = None if status is None else bool(status)
    return {"commit": commit, "dirty": dirty, "digest": digest.hexdigest(), "files": hashes}


def _named(settings: Any) -> Iterator[str]:
    """The modules of the classes that settings name, and of the activations that packages register."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            if key not in ("_target_", "name") or not isinstance(value, str):
                yield from _named(value)
            elif module := value.rpartition(".")[0] or _registered().get(value):
                yield module
    elif isinstance(settings, list):
        for value in settings:
            yield from _named(value)


@functools.cache
def _registered() -> dict[str, str]:
    """The modules of the activations that packages register, by the names of the activations."""
    return {point.name: point.module for point in entry_points(group="sharmix.activations")}


@functools.cache  # cached: the process keeps its code even if a file is edited meanwhile
def _imported(modules: tuple[str, ...]) -> dict[Path, str]:
    """The files of modules and of all modules that they import, with their names; and the kernels' sources.

    Installed packages are left out. A file outside the project gets the name of its module, wherever the file lies.
    """
    # All of the library counts: it imports some modules by name, and its kernels are not Python.
    library = [file for kind in ("py", "h", "cpp") for file in (ROOT / "sharmix").rglob(f"*.{kind}")]
    files = {file: file.relative_to(ROOT).as_posix() for file in library}
    waiting, seen = list(modules), {""}
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        package = module.rpartition(".")[0]
        waiting.append(package)  # importing a module also imports its packages
        file = _file(module)
        if file is not None and file not in files:
            outside = f"{module.replace('.', '/')}{'/__init__' if file.name == '__init__.py' else ''}.py"
            files[file] = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else outside
            waiting += _imports(file, module if file.name == "__init__.py" else package)
    return dict(sorted(files.items()))


def _file(module: str) -> Path | None:
    """The source file of a module; None for an installed module, and for a name that is no module."""
    top, *rest = module.split(".")
    if (place := _place(top)) is None:
        return None
    inside = place.joinpath(*rest)  # `find_spec` would import the packages around the module
    candidates = (inside, inside.with_suffix(".py"), inside / "__init__.py")
    return next((file.resolve() for file in candidates if file.suffix == ".py" and file.is_file()), None)


@functools.cache
def _place(package: str) -> Path | None:
    """The folder of a package, or the file of a module; None if it comes with Python or was installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return None
    places = [*(spec.submodule_search_locations or ()), spec.origin] if spec else []
    if not places or places[0] is None or package in sys.stdlib_module_names:
        return None
    place = Path(places[0])
    return None if {"site-packages", "dist-packages"} & set(place.parts) else place


def _imports(file: Path, package: str) -> Iterator[str]:
    """The modules that a file's import statements name, anywhere in the file."""
    for node in ast.walk(ast.parse(_content(file), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


@functools.cache
def _content(file: Path) -> bytes:
    return file.read_bytes()


@functools.cache
def _git(*arguments: str) -> str | None:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None  # an installed copy, or no git
