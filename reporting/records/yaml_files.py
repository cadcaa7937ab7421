"""Reads YAML files that people write. Any fault in a file raises an error that names the file."""

from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.record import read_text

_REMEDY = "restore it, or mend it by hand"


class TableError(ValueError):
    """No table can be built from a declaration or from records."""


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, in which no mapping has a key twice.

    Raises:
        RecordError: for a file that cannot be read.
        TableError: for a file that is not YAML; names the file and, if possible, the line.
    """
    text = read_text(path, _REMEDY)
    try:
        return OmegaConf.to_container(OmegaConf.create(text))
    except yaml.MarkedYAMLError as error:
        raise TableError(f"{path}: {error.problem} in line {error.problem_mark.line + 1}; {_REMEDY}") from error
    # ValueError: an impossible date or number; RecursionError: thousands of brackets
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise TableError(f"{path}: {error}; {_REMEDY}") from error
