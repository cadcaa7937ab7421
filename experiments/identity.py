"""What a run is known by: a hash of the settings that decide its result, and of the code that computes it."""

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

DECISIVE = ("name", "activation", "data", "model", "optimizer", "trainer")  # the seed names a folder of its own

RECORD_SCHEMA = 1  # the shape of a run's record; raised when readers must tell old from new

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("run.py", "conf", "experiments", "sharmix")
KINDS = ("py", "yaml", "h", "cpp")


def run_id(config: DictConfig) -> str:
    """12 hexadecimal digits of the hash of a configuration's decisive settings."""
    # Only the parts asked for: resolving all of it would come back here, through the folder's name.
    parts = {key: config[key] for key in DECISIVE}
    return run_id_of({k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in parts.items()})


def run_id_of(decisive: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of the hash of settings given as plain values."""
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


@functools.cache  # as the process found them: what it runs stays the same when a file is edited under it
def code_digest(root: Path = ROOT) -> str:
    """A hash of the sources that a run's result depends on, so that results of other code can be told apart."""
    digest = hashlib.sha256()
    for source in SOURCES:
        top = root / source
        files = [top] if top.is_file() else sorted(file for kind in KINDS for file in top.rglob(f"*.{kind}"))
        for file in files:
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
