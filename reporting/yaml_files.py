"""Reads YAML files that people write. Any fault in a file raises a `TableError` that names the file."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from experiments.record import RecordError, read_text

_MOST = 100_000  # values in a file after its aliases are expanded


class TableError(ValueError):
    """No table can be built from a declaration or from records."""


class _Loader(yaml.SafeLoader):
    """Raises an error for a key that a mapping has twice; YAML's own loader would use the last value.

    Mappings merged by `<<` hold each key once, so repeated merges do not make them grow without end.
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


def _values(content: Any) -> Iterator[Any]:
    """All nested values. An alias counts each time it is used; an alias of itself makes the sequence endless."""
    yield content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _values(inner)


def _key(name: yaml.Node) -> Any:
    return (name.tag, name.value) if isinstance(name, yaml.ScalarNode) else name


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; raises a TableError that names the file and, if possible, the line."""
    try:
        content = yaml.load(read_text(path, "restore it, or mend it by hand"), _Loader)  # a SafeLoader
        if sum(1 for _ in islice(_values(content), _MOST)) == _MOST:
            raise TableError(f"{path}: its aliases make more than {_MOST} values of it; restore it, or mend it by hand")
        return content
    except RecordError as error:
        raise TableError(str(error)) from error
    except RecursionError as error:
        raise TableError(f"{path}: it nests too deep; restore it, or mend it by hand") from error
    except TableError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date or number
        raise TableError(f"{path}: {error}; restore it, or mend it by hand") from error
