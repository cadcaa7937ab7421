"""One message for settings that Hydra or the suite rejects, with a hint at the setting that was probably meant."""

import os
import re
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.errors import UserError
from experiments.identity import ROOT
from experiments.settings import closest, texts

_TRACEBACKS = "HYDRA_FULL_ERROR"
_REFUSED = re.compile(r"ConfigurationError raised while resolving interpolation: (.*?)(?:\n    full_key|$)", re.DOTALL)
_COMPOSING = ("hydra", "omegaconf", "yaml", "antlr4")  # packages


@contextmanager
def one_message(arguments: Sequence[str]) -> Iterator[None]:
    """Used around Hydra's main: prints one message for rejected settings and exits with status 1.

    For many rejected settings Hydra itself would print a traceback of its own code. Any other error is raised.
    """
    asked = os.environ.get(_TRACEBACKS)
    os.environ[_TRACEBACKS] = "1"  # so that Hydra raises its errors
    try:
        yield
    except Exception as error:
        if asked == "1" or not _is_refusal(error):
            raise
        print(*(list(hints(arguments)) or [_message(error)]), sep="\n", file=sys.stderr)
        print(f"\nSet the environment variable {_TRACEBACKS}=1 for a complete stack trace.", file=sys.stderr)
        sys.exit(1)
    finally:
        os.environ.pop(_TRACEBACKS, None)
        os.environ.update({} if asked is None else {_TRACEBACKS: asked})


def _is_refusal(error: Exception) -> bool:
    if isinstance(error, (CompactHydraException, OmegaConfBaseException)):
        return True
    packages = [frame.f_globals["__name__"].partition(".")[0] for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(packages) and packages[-1] in _COMPOSING


def _message(error: Exception) -> str:
    text = str(error)
    if refused := _REFUSED.search(text):
        return refused[1]
    if not isinstance(error, OmegaConfBaseException):
        cause = f"\n{error.__cause__}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
        return text + cause
    reason = re.sub(r"^\w+ raised while resolving interpolation: ", "", text.partition("\n    full_key")[0])
    return f"{error.full_key}: {reason}"


@contextmanager
def own_code_named(settings: Mapping[str, Any]) -> Iterator[None]:
    """Used around a run: if an error comes from a class of the user's own that the settings name, the message names it.

    Raises:
        UserError: with the traceback from that class on.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        keys = {}  # keys of the settings, by module and name of the class
        for key, path in texts(settings):
            if key.rpartition(".")[2] in ("_target_", "name") and not path.startswith("experiments."):
                module, _, name = path.rpartition(".")
                keys[module, name] = f"{key}={path}"
        below = error.__traceback__
        while below is not None and (blamed := _blamed(below.tb_frame, keys)) is None:
            below = below.tb_next
        if below is None:
            raise
        for frame, _ in traceback.walk_tb(below):
            blamed = _blamed(frame, keys) or blamed  # the innermost
        shown = "".join(traceback.format_exception(type(error), error, below, chain=False))
        raise UserError(f"{blamed} has failed: {type(error).__name__}: {error}\n{shown.rstrip()}") from error


def _blamed(frame: FrameType, keys: Mapping[tuple[str, str], str]) -> str | None:
    module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname.partition(".")[0]
    return keys.get((module, name)) or next((key for path, key in keys.items() if module and path[0] == module), None)


def hints(arguments: Sequence[str]) -> Iterator[str]:
    """One line for each override of a command line with an unknown setting, such as `trainer.epochz=5`, or choice."""
    options = ArgumentParser(add_help=False, exit_on_error=False)
    options.add_argument("--config-dir", "-cd")
    overrides = [argument.split("=", 1) for argument in arguments if "=" in argument and argument[0] not in "-+~"]
    GlobalHydra.instance().clear()
    try:
        given = options.parse_known_args(arguments)[0].config_dir
        own = [Path(given).resolve()] if given is not None else []
        choices = _choices(ROOT / "conf", *own)
        wrong = [*_wrong_choices(overrides, choices)]
        chosen = [f"{key}={value}" for key, value in overrides if key in choices and "," not in value]
        chosen.append(f"hydra.searchpath=[{', '.join(f'file://{folder}' for folder in own)}]")
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config = {} if wrong else OmegaConf.to_container(compose("config", overrides=chosen))
    except Exception:  # Hydra has explained its own errors
        return
    yield from wrong
    known = ["experiment", "attention", "metrics", *_keys(config)]
    for key, value in overrides if config else ():
        if key not in known and "/" not in key and not key.startswith("hydra."):
            group = key.rpartition(".")[0]
            siblings = [other for other in known if other.rpartition(".")[0] == group]
            if group in known and not siblings:
                yield f"there is no setting {key!r} yet; +{key}={value} adds it"
                continue
            allowed = ", ".join(siblings)
            yield f"there is no setting {key!r} (given {key}={value}).{closest(key, known)} Allowed: {allowed}"


def _choices(*folders: Path) -> dict[str, list[str]]:
    """The choices of each group, by its name."""
    choices: dict[str, set[str]] = {}
    for file in (file for folder in folders for file in folder.glob("*/*.yaml")):
        choices.setdefault(file.parent.name, set()).add(file.stem)
    return {group: sorted(names) for group, names in choices.items()}


def _wrong_choices(overrides: Iterable[Sequence[str]], choices: Mapping[str, list[str]]) -> Iterator[str]:
    parser = OverridesParser.create()
    for key, text in overrides:
        if key in choices and not (override := parser.parse_override(f"{key}={text}")).is_sweep_override():
            value = override.value()
            for one in value if isinstance(value, list) else [value]:
                if not isinstance(one, dict) and one not in (known := choices[key]):
                    yield f"{key}={text} is not allowed.{closest(str(one), known)} Allowed: {', '.join(known)}"


def _keys(settings: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for name, value in settings.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
