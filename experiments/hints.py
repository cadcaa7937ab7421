"""A hint at the setting that was meant, after Hydra has refused an override."""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from experiments.identity import ROOT
from experiments.settings import closest


def hints(arguments: Sequence[str]) -> Iterator[str]:
    """A line for each override of a command line, such as `trainer.epochz=5`, whose key no setting has."""
    options = ArgumentParser(add_help=False, exit_on_error=False)
    options.add_argument("--config-dir", "-cd")
    overrides = [argument.split("=", 1) for argument in arguments if "=" in argument and argument[0] not in "-+~"]
    GlobalHydra.instance().clear()
    try:
        given = options.parse_known_args(arguments)[0].config_dir
        own = [Path(given).resolve()] if given is not None else []
        groups = {group.name for folder in (ROOT / "conf", *own) for group in folder.iterdir() if group.is_dir()}
        chosen = [f"{key}={value}" for key, value in overrides if key in groups and "," not in value]
        chosen.append(f"hydra.searchpath=[{', '.join(f'file://{folder}' for folder in own)}]")
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            known = [*_keys(OmegaConf.to_container(compose("config", overrides=chosen)))]
    except Exception:  # what Hydra refuses, it has explained
        return
    for key, value in overrides:
        if key not in known and "/" not in key and not key.startswith("hydra."):
            group = key.rpartition(".")[0]
            siblings = ", ".join(other for other in known if other.rpartition(".")[0] == group)
            yield f"there is no setting {key!r} (given {key}={value}).{closest(key, known)} Allowed: {siblings}"


def _keys(settings: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    yield from ("experiment", "attention", "metrics")
    for name, value in settings.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
