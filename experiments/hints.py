"""A hint at the setting that was meant, after Hydra has refused an override."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from experiments.identity import ROOT
from experiments.settings import closest


def hints(arguments: Sequence[str]) -> Iterator[str]:
    """A line for each override such as `trainer.epochz=5` whose key no setting has.

    Args:
        arguments: of the command line.
    """
    overrides = [argument.split("=", 1) for argument in arguments if "=" in argument and argument[0] not in "-+~"]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            chosen = [f"{key}={value}" for key, value in overrides if key == "experiment" and "," not in value]
            known = [*_keys(OmegaConf.to_container(compose("config", overrides=chosen)))]
    except Exception:  # what Hydra refuses, it has explained
        return
    for key, value in overrides:
        group = key.rpartition(".")[0]
        siblings = [other for other in known if other.rpartition(".")[0] == group]
        if key not in known and "/" not in key and not key.startswith("hydra."):
            allowed = ", ".join(siblings)
            yield f"there is no setting {key!r} (given {key}={value}).{closest(key, known)} Allowed: {allowed}"


def _keys(settings: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    yield from ("experiment", "attention")
    for name, value in settings.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
