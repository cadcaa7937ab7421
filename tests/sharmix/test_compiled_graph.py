"""What torch.compile makes of maps and losses holds no tensor on the CPU where the logits are on another device.

Such a tensor, as of an order that is a number, would keep mode="reduce-overhead" from recording a CUDA graph. The meta
device stands for CUDA.
"""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils._pytree import tree_leaves

import sharmix
from sharmix import functional
from tests.sharmix.doors import EVERYTHING, build, labels

# There torch loses the gradient of `torch.where` with a number, and says so. That of the soft loss remains.
pytestmark = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")


def criterion(name, **options):
    loss = sharmix.FenchelYoungLoss(build(name, torch.float32), **options).to("meta")
    return lambda z: loss(z, labels(z))


MORE = {
    "normmax": sharmix.normmax,
    "entropy": lambda z: sharmix.sharma_mittal_entropy(z, 1.25, 1.5),
    "criterion of fixed orders": criterion("sharmix_fixed", reduction="none"),
    "criterion of learned orders": criterion("sharmix_learned"),
    "weighted criterion": criterion("sparsemax", weight=torch.ones(4)),
}
QUICK = {"sharmix": ["solve", "map_backward"], "loss": ["class_loss", "class_loss_backward"]}


def compiled_nodes(function):
    """The nodes of the graphs of a function of logits and of its gradient, as if the logits were on CUDA."""
    nodes = []

    def keep(graph, _):
        nodes.extend(graph.graph.nodes)
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    z = torch.empty(3, 4, device="meta", requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "backend", lambda _: "triton")
        torch.compile(function, fullgraph=True, backend=backend)(z).sum().backward()
    return nodes


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.medium) for name in EVERYTHING | MORE]
)
def test_no_tensor_is_on_the_cpu(name):
    nodes = compiled_nodes((EVERYTHING | MORE)[name])
    values = tree_leaves([node.meta.get("val") for node in nodes])
    assert {value.device.type for value in values if isinstance(value, torch.Tensor)} == {"meta"}


@pytest.mark.parametrize("name", QUICK)
def test_operators_of_value_and_gradient_take_orders_as_numbers(name):
    nodes = [node for node in compiled_nodes(EVERYTHING[name]) if str(node.target).startswith("sharmix.")]
    assert [str(node.target) for node in nodes] == [f"sharmix.{operator}.default" for operator in QUICK[name]]
    assert all({1.25, 1.5, 1.0} <= set(node.args) for node in nodes)
