"""The implementations behind the library: which one is in use, and that all of them find the same."""

import itertools
import sys

import pytest
import torch

import sharmix
from sharmix._operators import cpu, fast
from tests.sharmix.cases import every_case


def logits(rows=7, classes=50, dtype=torch.float32):
    return 2 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def test_a_device_without_a_kernel_has_plain_torch():
    assert sharmix.backend(torch.device("meta")) == "torch"


LONG = [pytest.param(classes, marks=pytest.mark.medium) for classes in (600, 1500, 5000)]


@pytest.mark.parametrize("classes", [1, 3, 17, 100, *LONG])
def test_map_and_loss_are_those_of_plain_torch(classes):
    all_orders = [(1.25, 1.5), (1.3, 1.4), (2.0, 1.5), (1.75, 1.25), (1.0, 1.5), (1.1, 1.9)]
    with every_case() as case:
        for dtype, scale, (q, r) in itertools.product([torch.float32, torch.float64], [0.0, 0.02, 1.0], all_orders):
            with case(dtype=dtype, scale=scale, q=q, r=r):
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


def test_orders_of_their_own_for_each_row():
    z, q = logits(40, 30), torch.linspace(1.01, 1.99, 40).unsqueeze(-1)
    p = sharmix.sharmix(z, q, 1.5)
    for row in range(40):
        torch.testing.assert_close(p[row], sharmix.sharmix(z[row], q[row].item(), 1.5), rtol=1e-5, atol=1e-7)


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


@pytest.mark.parametrize(
    "classes", [513, *(pytest.param(n, marks=pytest.mark.medium) for n in (530, 543, 1025, 1040, 1055))]
)
def test_the_largest_logits_may_be_anywhere(classes):
    with every_case() as case:
        for rows, orders, last in itertools.product([1, 9], [(1.25, 1.5), (1.5, 4.0)], range(1, 40, 3)):
            with case(rows=rows, orders=orders, last=last):
                z = torch.full((rows, classes), -torch.inf)
                z[:, -last:] = torch.linspace(0, 1.5, last)
                z[0] = torch.randn(classes, generator=torch.Generator().manual_seed(last))
                z[0, -last] = 12.0
                p = sharmix.sharmix(z, *orders)
                with sharmix.plain_torch():
                    torch.testing.assert_close(p, sharmix.sharmix(z, *orders), rtol=1e-5, atol=1e-7)


def test_logits_so_large_or_a_temperature_so_small_that_one_unit_of_rounding_decides():
    with every_case() as case:
        for dtype, classes in itertools.product([torch.float32, torch.float64], [6, 2000]):
            z = torch.zeros(2, classes, dtype=dtype)
            z[:, ::2], z[:, 1] = 1e9 if dtype == torch.float32 else 1e17, -1e9
            for values, temperature in ((z, 1.0), (z / z.amax() * 5, 1e-18)):
                with case(dtype=dtype, classes=classes, temperature=temperature):
                    values = values.clone().requires_grad_()
                    p = sharmix.sharmix(values, temperature=temperature)
                    torch.testing.assert_close(p.sum(-1), torch.ones(2, dtype=dtype))
                    loss = sharmix.fenchel_young_loss(values, torch.zeros(2).long(), temperature=temperature)
                    gradients = torch.autograd.grad(p.square().sum() + loss, values)[0]
                    assert loss.isfinite()
                    assert gradients.isfinite().all()


def test_what_lies_on_another_device_is_refused():
    z, elsewhere = logits(3, 4), torch.zeros(3, dtype=torch.long, device="meta")
    with pytest.raises(ValueError, match="targets are on meta, but logits on cpu"):
        sharmix.fenchel_young_loss(z, elsewhere)
    with pytest.raises(ValueError, match="q is on meta"):
        sharmix.sharmix(z, torch.full((3, 1), 1.5, device="meta"))


def test_gradients_that_are_zero_by_a_flag_alone():
    z = logits(3, 4).requires_grad_()
    zero = torch._efficientzerotensor((3, 4))
    assert (torch.autograd.grad(sharmix.sharmix(z), z, zero)[0] == 0).all()


def test_targets_of_any_integer_type():
    z, y = logits(3, 200), torch.tensor([156, 3, 5])
    expected = sharmix.fenchel_young_loss(z, y)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        torch.testing.assert_close(sharmix.fenchel_young_loss(z, y.to(dtype)), expected)


def test_a_misspelt_choice_is_refused_by_map_and_loss():
    z = logits(3, 4)
    for call in (sharmix.sharmix, lambda z, **given: sharmix.fenchel_young_loss(z, torch.zeros(3).long(), **given)):
        with pytest.raises(ValueError, match="nonconcave='any'"):
            call(z, nonconcave="any")


def test_strided_logits_and_an_empty_batch():
    z = logits(40, 40)
    torch.testing.assert_close(sharmix.sharmix(z.T), sharmix.sharmix(z.T.contiguous()))
    torch.testing.assert_close(sharmix.sharmix(z, dim=0), sharmix.sharmix(z.T).T)
    assert sharmix.sharmix(z[:0]).shape == (0, 40)
    assert sharmix.fenchel_young_loss(z[:0], torch.zeros(0, dtype=torch.long)).isnan()


@pytest.mark.medium
@pytest.mark.parametrize(("rows", "classes", "spread"), [(70, 130_001, 1), (31, 70_001, 0.01)], ids=["sparse", "dense"])
def test_results_too_large_for_the_caches(rows, classes, spread):
    z = (logits(rows, classes) * spread).requires_grad_()
    with torch.no_grad():
        z[3, 5], z[4] = torch.nan, -torch.inf
    y = torch.arange(rows).where(torch.arange(rows) != 7, -100)
    p, loss = sharmix.sharmix(z), sharmix.fenchel_young_loss(z, y, reduction="none")
    assert (p[0] > 0).float().mean().gt(0.125) == (spread < 1)
    counted = torch.tensor([i not in (3, 4) for i in range(rows)])
    weights = logits(rows, classes).flip(1)
    by_map, by_loss = (torch.autograd.grad(out[counted].sum(), z)[0] for out in (p * weights, loss))
    for row in (0, 3, 4, 7, rows - 1):
        alone = z[row].detach().requires_grad_()
        one = sharmix.sharmix(alone)
        torch.testing.assert_close(p[row], one, rtol=1e-6, atol=1e-9, equal_nan=True)
        if counted[row]:
            expected = torch.autograd.grad((one * weights[row]).sum(), alone)[0]
            torch.testing.assert_close(by_map[row], expected, rtol=1e-5, atol=1e-7)
            error = sharmix.fenchel_young_loss(alone, y[row], reduction="sum")
            torch.testing.assert_close(by_loss[row], torch.autograd.grad(error, alone)[0], rtol=1e-5, atol=1e-7)


def test_many_short_rows_in_a_result_too_large_for_the_caches():
    z, weights = logits(500_003, 5), logits(500_003, 5).flip(1)
    z[1000], z[2001, 3] = -torch.inf, torch.nan

    def map_and_gradient(part: slice) -> torch.Tensor:
        own = z[part].clone().requires_grad_()
        p = sharmix.sharmix(own)
        return torch.stack([p.detach(), *torch.autograd.grad((p * weights[part]).sum(), own)])

    parts = [map_and_gradient(slice(start, start + 100_000)) for start in range(0, len(z), 100_000)]
    torch.testing.assert_close(map_and_gradient(slice(None)), torch.cat(parts, 1), rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("q", [1.1, 1.2, 1.3, 1.5, 1.75, 2])
def test_a_decided_row_of_a_large_batch_has_no_gradient_at_all(q):
    z = logits(512, 100) - 60  # more logits than are worth a gradient from the forward pass
    z[:, 0] = torch.linspace(0, 8, 512)
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(sharmix.fenchel_young_loss(z, torch.zeros(512).long(), q=q), z)
    assert not gradient.any()


@pytest.mark.parametrize(("q", "r", "temperature"), [(1.5, 11.5, 1), (1.4, 20, 1), (1.3, 8, 1e-19), (1.5, 1.5, 1e30)])
def test_the_gradient_where_the_scale_of_the_logits_leaves_single_precision(q, r, temperature):
    z = torch.zeros(20, 5000, requires_grad=True)
    y = torch.arange(20)
    (gradient,) = torch.autograd.grad(sharmix.fenchel_young_loss(z, y, q, r, temperature, reduction="sum"), z)
    torch.testing.assert_close(gradient, 1 / 5000 - torch.nn.functional.one_hot(y, 5000).float())


@pytest.mark.skipif(cpu.kernel is None, reason="no compiler built the kernel here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_plain_call_is_one_node_of_the_graph_and_goes_the_short_way(dtype):
    z, orders = logits(dtype=dtype).requires_grad_(), [torch.tensor(1.3, requires_grad=True), 1.5]
    alpha_relu = sharmix.build_activation("alpha_relu", tau=0.3)
    for output in (sharmix.sharmix(z, *orders), sharmix.fenchel_young_loss(z, torch.arange(7), *orders)):
        assert output.grad_fn.__class__ in (fast._Map._backward_cls, fast._ClassLoss._backward_cls)
        leaves = [node for node, _ in output.grad_fn.next_functions if node]
        assert [leaf.variable for leaf in leaves] == [z, orders[0]]
    for loss in (sharmix.alpha_relu_loss(z, torch.arange(7)), alpha_relu.loss(z, torch.arange(7))):
        assert loss.grad_fn.__class__ is fast._ClassLoss._backward_cls
        assert [node.variable for node, _ in loss.grad_fn.next_functions if node] == [z]


@pytest.mark.skipif(cpu.kernel is None, reason="no compiler built the kernel here")
def test_losses_of_half_precision_go_the_short_way_with_the_results_of_single():
    for dtype in (torch.float16, torch.bfloat16):
        z, found = logits(dtype=dtype).requires_grad_(), []
        for given in (z, z.float()):
            loss = sharmix.fenchel_young_loss(given, torch.arange(7))
            assert loss.grad_fn.__class__ is fast._ClassLoss._backward_cls
            by_z = torch.autograd.grad(loss, z, create_graph=True)[0]
            found.append((loss, by_z, *torch.autograd.grad(by_z.square().sum(), z)))
        torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_gradient_of_another_shape_is_refused():
    if sharmix.backend() == "c++":
        p, orders = sharmix.sharmix(logits()), [torch.tensor(order, dtype=torch.float64) for order in (1.5, 2.0, 1.0)]
        with pytest.raises(RuntimeError, match="the gradient of a map has the shape and dtype of its probabilities"):
            torch.ops.sharmix.map_backward(p, torch.ones(1, 1), *orders, False)


def test_a_gradient_changed_in_place_changes_no_later_one():
    z = logits().requires_grad_()
    loss = sharmix.fenchel_young_loss(z, torch.arange(7))
    first = torch.autograd.grad(loss, z, retain_graph=True)[0]
    expected = first.clone()
    first.zero_()
    assert torch.equal(torch.autograd.grad(loss, z)[0], expected)


@pytest.mark.parametrize("wanted", range(3))
def test_each_gradient_alone_is_the_one_among_all(wanted):
    z, q, r = logits().requires_grad_(), torch.tensor(1.3, requires_grad=True), torch.tensor(1.6, requires_grad=True)
    for loss in (sharmix.sharmix(z, q, r).square().sum(), sharmix.fenchel_young_loss(z, torch.arange(7), q, r)):
        expected = torch.autograd.grad(loss, (z, q, r), retain_graph=True)[wanted]
        torch.testing.assert_close(torch.autograd.grad(loss, (z, q, r)[wanted])[0], expected, rtol=0, atol=0)


@pytest.mark.skipif(sharmix.backend() == "torch", reason="no compiler built the kernel here")
def test_a_processor_of_no_known_kind_and_a_build_that_does_not_load(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")
    assert cpu._load().__name__ == "sharmix._kernel_baseline"
    monkeypatch.setitem(sys.modules, "sharmix._kernel_baseline", None)  # an import of it fails
    assert cpu._load() is None
