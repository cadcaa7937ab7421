"""The implementations behind the library: which one is in use, and that all of them find the same."""

import sys
import time

import pytest
import torch

import sharmix
from sharmix._operators import alpha_relu, autograd, backend, cpu
from tests.sharmix.cases import for_every
from tests.sharmix.conftest import needs_kernel


def logits(rows=7, classes=50, dtype=torch.float32):
    return 2 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


MEDIUM = [pytest.param(classes, marks=pytest.mark.medium) for classes in (1, 3, 17, 600, 1500, 5000)]


@pytest.mark.parametrize("classes", [100, *MEDIUM])
@for_every(
    "q, r",
    [(1.25, 1.5), (1.3, 1.4), (2.0, 1.5), (1.75, 1.25), (1.0, 1.5), (1.1, 1.9)],
    dtype=[torch.float32, torch.float64],
    scale=[0.0, 0.02, 1.0],
)
def test_map_and_loss_are_those_of_plain_torch(classes, dtype, scale, q, r):
    z = scale * logits(11, classes, dtype)
    found = map_and_loss_with_gradients(z, q, r)
    with sharmix.plain_torch():
        expected = map_and_loss_with_gradients(z, q, r)
    digits = {"rtol": 1e-3, "atol": 3e-5} if dtype == torch.float32 else {"rtol": 1e-6, "atol": 1e-9}
    values = {name: allowed / 100 for name, allowed in digits.items()}
    torch.testing.assert_close(found[:2], expected[:2], **values)
    torch.testing.assert_close(found[2:], expected[2:], **digits)


def map_and_loss_with_gradients(z, q, r):
    z, orders = z.detach().requires_grad_(), [torch.tensor(value, requires_grad=True) for value in (q, r)]
    y = torch.arange(len(z)) % z.shape[1]
    p, loss = sharmix.sharmix(z, *orders), sharmix.fenchel_young_loss(z, y, *orders, reduction="none")
    weights = logits(*z.shape, z.dtype).flip(0)
    of_map, of_loss = (torch.autograd.grad(total, [z, *orders]) for total in ((p * weights).sum(), loss.sum()))
    return [p, loss, *of_map, *of_loss]


@needs_kernel
@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_two_classes_take_a_small_part_of_the_time_of_three(alpha):
    def seconds(classes):
        z = logits(1 << 16, classes).requires_grad_()
        start = time.process_time()
        p = sharmix.entmax(z, alpha=alpha)
        torch.autograd.grad(p, z, p)
        return time.process_time() - start

    of_two, of_three = (min(seconds(classes) for _ in range(5)) for classes in (2, 3))
    assert of_two < of_three / 3  # nine tenths without the closed form, at most a sixth with it


def test_rows_do_not_depend_on_their_neighbours_or_on_threads():
    z = logits(300, 200)
    z[5, 3], z[6], z[7, 1] = torch.nan, -torch.inf, torch.inf
    one = sharmix.sharmix(z)
    assert one[5:8].isnan().all()
    assert not one[:5].isnan().any()
    torch.set_num_threads(2)
    try:
        two = sharmix.sharmix(z)
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-8, equal_nan=True)


@for_every(dtype=[torch.float32, torch.float64], classes=[6, 2000], temperature=[1.0, 1e-18])
def test_logits_so_large_or_a_temperature_so_small_that_one_unit_of_rounding_decides(dtype, classes, temperature):
    z = torch.zeros(2, classes, dtype=dtype)
    z[:, ::2], z[:, 1] = 1e9 if dtype == torch.float32 else 1e17, -1e9
    values = (z if temperature == 1 else z / z.amax() * 5).requires_grad_()
    p = sharmix.sharmix(values, temperature=temperature)
    torch.testing.assert_close(p.sum(-1), torch.ones(2, dtype=dtype))
    loss = sharmix.fenchel_young_loss(values, torch.zeros(2).long(), temperature=temperature)
    gradients = torch.autograd.grad(p.square().sum() + loss, values)[0]
    assert loss.isfinite()
    assert gradients.isfinite().all()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_missing_kernel_is_told_once_at_the_users_line(compiled, monkeypatch):
    monkeypatch.setattr(cpu, "kernel", None)
    monkeypatch.setattr(backend, "_warned", False)
    sparsemax = torch.compile(sharmix.sparsemax, backend="eager") if compiled else sharmix.sparsemax
    with pytest.warns(RuntimeWarning, match="no compiled kernel") as warned:
        sparsemax(logits())
    sparsemax(logits())  # a second warning would be an error
    assert [warning.filename for warning in warned] == [__file__]


def test_what_lies_on_another_device_is_refused():
    with pytest.raises(ValueError, match="targets are on meta, but logits on cpu"):
        sharmix.fenchel_young_loss(logits(3, 4), torch.zeros(3, dtype=torch.long, device="meta"))
    for q in (torch.full((3, 1), 1.5, device="meta"), torch.tensor(1.5, device="meta")):
        with pytest.raises(ValueError, match="q is on meta, but the logits are on cpu; move one of them"):
            sharmix.sharmix(logits(3, 4), q)
    with pytest.raises(ValueError, match="q is on meta, but the probabilities are on cpu"):
        sharmix.sharma_mittal_entropy(torch.ones(3, 1), torch.full((3, 1), 1.5, device="meta"), 1.5)
    with pytest.raises(RuntimeError, match="device meta"):
        sharmix.alpha_relu_loss(logits(3, 4), torch.zeros(3).long(), alpha=1.5, tau=torch.tensor(0.3, device="meta"))


@pytest.mark.parametrize("q", [1.1, 1.2, 1.3, 1.5, 1.75, 2])
def test_a_decided_row_of_a_large_batch_has_no_gradient_at_all(q):
    z = logits(4096, 100) - 60  # more logits than are worth a gradient from the forward pass
    z[:, 0] = torch.linspace(0, 8, 4096)
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(sharmix.fenchel_young_loss(z, torch.zeros(4096).long(), q=q), z)
    assert not gradient.any()


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_plain_call_is_one_node_of_the_graph_which_calls_the_kernel_itself(dtype):
    z, orders = logits(dtype=dtype).requires_grad_(), [torch.tensor(1.3, requires_grad=True), 1.5]
    module = sharmix.build_activation("alpha_relu", tau=0.3)
    for output in (sharmix.sharmix(z, *orders), sharmix.fenchel_young_loss(z, torch.arange(7), *orders)):
        assert output.grad_fn.__class__ in (autograd.Map._backward_cls, autograd.ClassLoss._backward_cls)
        leaves = [node for node, _ in output.grad_fn.next_functions if node]
        assert [leaf.variable for leaf in leaves] == [z, orders[0]]
    for loss in (sharmix.alpha_relu_loss(z, torch.arange(7)), module.loss(z, torch.arange(7))):
        assert loss.grad_fn.__class__ is alpha_relu.ClassLoss._backward_cls
        assert [node.variable for node, _ in loss.grad_fn.next_functions if node] == [z]


@needs_kernel
def test_losses_of_half_precision_have_the_results_of_single():
    for dtype in (torch.float16, torch.bfloat16):
        z, found = logits(dtype=dtype).requires_grad_(), []
        for given in (z, z.float()):
            loss = sharmix.fenchel_young_loss(given, torch.arange(7))
            assert loss.grad_fn.__class__ is autograd.ClassLoss._backward_cls
            by_z = torch.autograd.grad(loss, z, create_graph=True)[0]
            found.append((loss, by_z, *torch.autograd.grad(by_z.square().sum(), z)))
        torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("rows", [7, 6000])
def test_a_gradient_changed_in_place_changes_no_later_one(rows):
    z, q = logits(rows).requires_grad_(), torch.tensor(1.5, requires_grad=True)
    loss = sharmix.fenchel_young_loss(z, torch.arange(rows) % 50, q)
    first = torch.autograd.grad(loss, (z, q), retain_graph=True)
    expected = [gradient.clone() for gradient in first]
    for gradient in first:
        gradient.zero_()
    torch.testing.assert_close(torch.autograd.grad(loss, (z, q)), tuple(expected), rtol=0, atol=0)


@needs_kernel
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("rows", [7, 6000])
def test_orders_alone_are_learned_without_a_gradient_by_the_logits(rows, reduction, monkeypatch):
    def by_q(z):
        q = torch.tensor(1.3, requires_grad=True)
        return torch.autograd.grad(sharmix.fenchel_young_loss(z, y, q, reduction=reduction).sum(), q)

    z, y = logits(rows), torch.arange(rows) % 50
    expected = by_q(z.clone().requires_grad_())
    monkeypatch.setattr(cpu, "class_loss_backward", None)  # a call of it fails
    assert by_q(z) == expected


def test_the_operator_of_the_loss_keeps_its_schema():
    orders = torch.tensor(1.5), None, None, None, 1.5, 0.3
    arguments = logits(), torch.arange(7), *orders, "global", -100, "mean", False
    torch.library.opcheck(torch.ops.sharmix.class_loss.default, arguments, test_utils="test_schema")


CHANGED = {
    "freed": (lambda tensor: tensor.untyped_storage().resize_(0), "no memory"),
    "too few targets": (lambda tensor: None if tensor.is_floating_point() else tensor.resize_(1), "7 are needed"),
}


@needs_kernel
@pytest.mark.parametrize("change", CHANGED)
def test_what_a_loss_saved_is_checked_again_in_a_second_backward_pass(change):
    damage, message = CHANGED[change]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.detach().clone()) or kept[-1], lambda x: x):
        z = logits().requires_grad_()
        loss = sharmix.fenchel_young_loss(z, torch.arange(7))
    torch.autograd.grad(loss, z, retain_graph=True)
    for tensor in kept:
        damage(tensor)
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.grad(loss, z)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_a_second_backward_pass_reads_targets_that_a_hook_keeps_in_fewer_bytes(dtype):
    z = logits().requires_grad_()
    packed = lambda x: x if x.is_floating_point() else x.to(dtype)  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(packed, lambda x: x):
        loss = sharmix.fenchel_young_loss(z, torch.arange(7))
    first, second = (torch.autograd.grad(loss, z, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


HALVED = {
    "map": lambda z: (sharmix.sharmix(z) * logits(*z.shape)).sum(),
    "loss of each row": lambda z: sharmix.fenchel_young_loss(z, torch.arange(len(z)) % 50, reduction="none").sum(),
    "loss": lambda z: sharmix.fenchel_young_loss(z, torch.arange(len(z)) % 50),
    "alpha-ReLU": lambda z: sharmix.alpha_relu_loss(z, torch.arange(len(z)) % 50),
}


@needs_kernel
@pytest.mark.parametrize("rows", [7, 6000])
@pytest.mark.parametrize("output", HALVED.values(), ids=HALVED)
def test_two_backward_passes_read_what_a_hook_keeps_in_half_precision(output, rows):
    z = logits(rows).requires_grad_()
    halved = lambda x: x.bfloat16() if x.dtype == torch.float32 else x  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(halved, lambda x: x):
        found = output(z)
    (expected,) = torch.autograd.grad(output(z), z)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(found, z, retain_graph=True)
        torch.testing.assert_close(gradient, expected, rtol=0, atol=0.05 * float(expected.abs().max()))


@needs_kernel
def test_hooks_see_what_a_large_loss_keeps_of_each_row_and_two_backward_passes_agree():
    z, kept = logits(6000).requires_grad_(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape) or x, lambda x: x):
        loss = sharmix.fenchel_young_loss(z, torch.arange(6000) % 50)
    assert kept == [z.shape, (6000,), (6000, 4)]
    first, second = (torch.autograd.grad(loss, z, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@needs_kernel
def test_a_processor_of_no_known_kind_and_a_build_that_does_not_load(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")
    assert cpu._load().__name__ == "sharmix._kernel_baseline"
    monkeypatch.setitem(sys.modules, "sharmix._kernel_baseline", None)  # an import of it fails
    assert cpu._load() is None
