"""Reading YAML files that people write: whatever is wrong with one is a `TableError` that names it."""

from pathlib import Path
from typing import Any

import yaml

from experiments.record import RecordError, read_text


class TableError(ValueError):
    """A declaration or records that no table can be built from."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, of which YAML's own loader takes the last.

    Mappings merged by `<<` hold each key once, so that merging merged ones again does not make them grow without end.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        node.value = [*{_key(name): (name, value) for name, value in node.value}.values()]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value:
            if _key(name) in seen:
                problem = f"the key {name.value} is there twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=name.start_mark)
            seen.add(_key(name))
        return super().construct_mapping(node, deep)


def _key(name: yaml.Node) -> Any:
    return (name.tag, name.value) if isinstance(name, yaml.ScalarNode) else name


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; a TableError names the file, and where possible the line."""
    try:
        return yaml.load(read_text(path, "restore it, or mend it by hand"), _Loader)  # a SafeLoader
    except RecordError as error:
        raise TableError(str(error)) from error
    except RecursionError as error:
        raise TableError(f"{path}: it nests too deep; restore it, or mend it by hand") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a day or a number that there is not
        raise TableError(f"{path}: {error}; restore it, or mend it by hand") from error
