"""Reads YAML files that people write. Any fault in a file raises an error that names the file."""

from pathlib import Path
from typing import Any

import yaml

from experiments.record import read_text

_REMEDY = "restore it, or mend it by hand"


class TableError(ValueError):
    """No table can be built from a declaration or from records."""


class _Loader(yaml.SafeLoader):
    """Raises an error for a key that a mapping has twice; YAML's own loader would use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        merged = [name for name, _ in node.value if name.tag == "tag:yaml.org,2002:merge"]
        names = [(name.tag, name.value) for name, _ in node.value if isinstance(name, yaml.ScalarNode)]
        if not merged and (doubled := next((name for name in names if names.count(name) > 1), None)):
            problem = f"the key {doubled[1]} is there twice"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        RecordError: for a file that cannot be read.
        TableError: for a file that is not YAML; names the file and, if possible, the line.
    """
    text = read_text(path, _REMEDY)
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date or number
        raise TableError(f"{path}: {error}; {_REMEDY}") from error
