"""Reading YAML files that people write: whatever is wrong with one is a `TableError` that names it."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from experiments.record import RecordError, read_text

_MOST = 100_000  # values in a file, all aliases written out


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


def _values(content: Any) -> Iterator[Any]:
    """All values inside each other, those of an alias as often as it is named; without end where one names itself."""
    yield content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _values(inner)


def _key(name: yaml.Node) -> Any:
    return (name.tag, name.value) if isinstance(name, yaml.ScalarNode) else name


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; a TableError names the file, and where possible the line."""
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
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a day or a number that there is not
        raise TableError(f"{path}: {error}; restore it, or mend it by hand") from error
