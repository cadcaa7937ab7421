"""The private names of torch do what the library needs them for, and only sharmix/_private_torch.py uses them.

`import sharmix` fails where torch no longer has a name. Transforms and numbers that vary are tested in
test_transforms.py, modes and traces in test_torch_semantics.py, exports to ONNX in test_export.py, kept graphs in
test_linear_loss.py, tangents in test_drop_in.py, `_load_from_state_dict` in test_learned_range.py, and process groups
in test_parallel.py.
"""

import re
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sharmix import _private_torch as private

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")
SOURCE = Path(private.__file__)


class Mode(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.seen.append(function)
        return function(*arguments, **(keywords or {}))


def test_compilers_leave_a_function_alone():
    seen = []

    def step(z):
        private.never_compiled(lambda: seen.append(torch.compiler.is_compiling()))()
        return z + 1

    torch.compile(step, backend="eager")(torch.zeros(2))
    assert seen == [False]


def test_modes_are_seen_counted_and_left():
    assert not private.dispatch_modes_active()
    assert private._modes() == 0
    with Mode() as mode, Mode():
        assert private.dispatch_modes_active()
        assert private._modes() == 2
        with private.outside_of_trace():
            torch.ones(2) + 1
        assert mode.seen == []


def test_no_other_module_uses_private_names():
    private_name = re.compile(r"\b(torch|nn|Tensor|forward_ad)\.([\w.]+\.)?_(?!_)|from torch[\w.]* import (.*, )?_")
    for path in SOURCE.parent.rglob("*.py"):
        if path != SOURCE:
            assert not private_name.search(path.read_text()), path
