"""Every private name of torch in sharmix/_private_torch.py does what the library needs it for."""

import ctypes
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

import sharmix
from sharmix import _private_torch as private

SOURCE = Path(private.__file__)
ONE = (torch.ones(()),)


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        getattr(self, "seen", id)(function)
        return function(*arguments, **(keywords or {}))


class Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.parameter = nn.Parameter(torch.tensor([3.0, 5.0]))

    def forward(self, z):
        return self.function(z, self.parameter)


def seen_in(transform, look):
    """What `look` says while a function is transformed and called, and what it says of a plain call before it."""
    seen = []

    def function(z):
        seen.append(look())
        return z.square()

    function(*ONE)
    transform(function)
    return seen


def torch_runs_a_loop():
    body_type = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    loop = ctypes.CFUNCTYPE(ctypes.c_int32, number, number, number, body_type, pointer)(private.parallel_loop())
    parts = []
    assert loop(2, 9, 1, body_type(lambda begin, end, _: parts.append((begin, end))), None) == 0
    assert sorted(row for begin, end in parts for row in range(begin, end)) == list(range(2, 9))


def compilers_leave_alone():
    seen = []

    def step(z):
        private.never_compiled(lambda: seen.append(torch.compiler.is_compiling()))()
        return z + 1

    torch.compile(step, backend="eager")(torch.zeros(2))
    assert seen == [False]


def modes_are_left():
    seen = []
    with Mode() as mode:
        mode.seen = seen.append
        with private.outside_of_trace():
            torch.ones(2) + 1
        assert seen == []
        torch.ones(2) + 1
        assert seen != []


def modes_are_seen():
    assert not private.dispatch_modes_active()
    with Mode():
        assert private.dispatch_modes_active()


def modes_are_counted():
    assert private._modes() == 0
    with Mode(), Mode():
        assert private._modes() == 2


def transforms_are_seen():
    for transform in (lambda f: grad(f)(*ONE), lambda f: vmap(f)(torch.ones(2)), lambda f: jvp(f, ONE, ONE)):
        assert seen_in(transform, private.function_transforms_active) == [False, True]


def forward_modes_are_counted():
    twice = seen_in(lambda f: jvp(lambda z: jvp(f, (z,), ONE)[1], ONE, ONE), private.forward_mode_depth)
    assert twice == [0, 2]
    assert seen_in(lambda f: grad(lambda z: jvp(f, (z,), ONE)[1])(*ONE), private.forward_mode_depth) == [0, 1]
    assert seen_in(lambda f: grad(grad(f))(*ONE), private.forward_mode_depth) == [0, 0]


def batches_are_seen():
    for transform in (lambda f: vmap(f)(torch.ones(2)), lambda f: grad(lambda z: vmap(f)(z).sum())(torch.ones(2))):
        assert seen_in(transform, private.vmap_active) == [False, True]
    assert seen_in(lambda f: grad(f)(*ONE), private.vmap_active) == [False, False]
    doubled = vmap(lambda z: 2 * z if private.vmap_active() else z)
    assert torch.compile(doubled, fullgraph=True, backend="eager")(torch.ones(2)).tolist() == [2, 2]


def tangents_are_seen():
    assert seen_in(lambda f: jvp(f, ONE, ONE), private.forward_mode_active) == [False, True]
    with forward_ad.dual_level():
        assert private.forward_mode_active()


def traces_are_seen():
    def trace(function):
        torch.jit.trace(function, ONE, check_trace=False)

    assert seen_in(trace, lambda: (private._tracing_state() is not None, private.is_traced())) == [
        (False, False),
        (True, True),
    ]


def onnx_exports_are_seen():
    from torch.onnx._internal.exporter import _flags

    z, model = torch.zeros(2), Module(lambda z, _: z + 1 if private.in_onnx_export() else z - 1).eval()
    exported = torch.onnx.export(model, (z,), dynamo=True, verbose=False).model_proto.graph
    assert [node.op_type for node in exported.node] == ["Add"]
    traced = _flags.set_onnx_exporting_flag(lambda: torch.export.export(model, (z,), strict=True))()  # by dynamo
    assert torch.equal(traced.module()(z), z + 1)
    assert torch.equal(torch.export.export(model, (z,), strict=True).module()(z), z - 1)


def parameters_are_found():
    found = []

    def look(z, parameter):
        found.extend(private.traced_tensor(one) for one in (parameter, 2 * parameter))
        return z + parameter

    model = Module(look)
    torch.export.export(model, (torch.zeros(2),))
    assert found[0] is model.parameter
    assert found[1:] == [None]
    assert private.traced_tensor(torch.zeros(2)) is None


def modules_load_their_own():
    class Loaded(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *arguments):
            super()._load_from_state_dict(state_dict, prefix, *arguments)
            prefixes.append(prefix)

    prefixes, network = [], nn.Sequential(Loaded(1, 1))
    network.load_state_dict({"0.weight": torch.full((1, 1), 7.0), "0.bias": torch.zeros(1)})
    assert prefixes == ["0."]
    assert network[0].weight == 7


def kept_graphs_are_seen():
    x = torch.ones((), requires_grad=True)
    y, seen = x.square(), []
    y.register_hook(lambda _: seen.append(private.keeps_graph()))
    y.backward(retain_graph=True)
    y.backward()
    assert seen == [True, False]


NEEDED = {
    "torch._compile._disable_dynamo": compilers_leave_alone,
    "torch.utils._python_dispatch._disable_current_modes": modes_are_left,
    "torch.utils._python_dispatch.is_in_torch_dispatch_mode": modes_are_seen,
    "torch._C._len_torch_dispatch_stack": modes_are_counted,
    "torch._C._are_functorch_transforms_active": transforms_are_seen,
    "torch._C._functorch.get_interpreter_stack": forward_modes_are_counted,
    "torch._C._functorch.TransformType.Jvp": forward_modes_are_counted,
    "torch._C._functorch.TransformType.Vmap": batches_are_seen,
    "torch._C._autograd._get_current_graph_task_keep_graph": kept_graphs_are_seen,
    "torch._C._get_tracing_state": traces_are_seen,
    "torch.autograd.forward_ad._current_level": tangents_are_seen,
}
USED = NEEDED | {
    "a function's _dynamo_marked_constant": batches_are_seen,
    "torch_parallel_for in torch's library": torch_runs_a_loop,
    "torch.onnx._internal.exporter._flags._is_onnx_exporting": onnx_exports_are_seen,
    "the tensor_memo and describer of a fake tensor's meta_converter": parameters_are_found,
    "torch.nn.Module._load_from_state_dict": modules_load_their_own,
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.medium) if "onnx" in name else name for name in USED]
)
def test_torch_still_has(name):
    try:
        USED[name]()
    except Exception as error:
        pytest.fail(f"torch {torch.__version__} has no {name} any more, or another: see {SOURCE}\n{error!r}")


def test_the_names_above_are_all():
    assert set(re.findall(r'_private\("(.+)"\)', SOURCE.read_text())) == set(NEEDED)
    private_name = re.compile(r"\b(torch|nn|Tensor|forward_ad)\.([\w.]+\.)?_(?!_)|from torch[\w.]* import (.*, )?_")
    for path in SOURCE.parent.rglob("*.py"):
        if path != SOURCE:
            assert not private_name.search(path.read_text()), path


def test_without_the_flag_of_onnx_exports_all_other_exports_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.onnx._internal.exporter._flags", None)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: False)  # as another torch would find it
    z, act = torch.randn(3, 5), sharmix.build_activation("sharmix_learned")
    torch.testing.assert_close(torch.export.export(act, (z,)).module()(z), act(z))
