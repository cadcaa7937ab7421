"""The loss of classes split over processes is the loss of the whole logits, and takes few messages."""

import copy
import itertools
import math
import os
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.functional import linear

import sharmix
from sharmix import _layer_in_blocks, parallel
from tests.sharmix.cases import every_case, for_every

SIZES = {1: [75], 2: [5, 70], 3: [40, 0, 35], 4: [1, 30, 24, 20]}
ORDERS = [(1.25, 1.5, 1.0), (1.5, 1.5, 0.7), (2.0, 2.0, 1.0), (1.5, 2 - 1 / 1.5, 0.5), (3.0, 2.0, 1.0)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
KINDS = ["peaked", "flat", "ties", "infinite", "ignored", "empty"]
INF = math.inf


def in_processes(number, check, folder):
    """Run `check` in so many processes of one group; an error in one of them is raised here."""
    mp.spawn(process, (number, check, f"file://{folder}/store"), number)


def process(rank, number, check, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, timedelta(seconds=30), rank=rank, world_size=number)
    check()
    dist.destroy_process_group()


@pytest.fixture
def alone():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def batch(kind, classes, dtype):
    """Logits [4, classes] and targets."""
    generator = torch.Generator().manual_seed(classes)
    z = torch.randn(4, classes, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, classes - 1, -100, classes // 2])
    if kind == "flat":
        z = z / 100
    elif kind == "ties":
        z = z.round()
        z[0] = 0
    elif kind == "infinite":
        z[0, 1::2], z[1], z[3, 3] = -INF, -INF, math.nan
        z[2, 0] = INF
    elif kind == "ignored":
        y[:] = -100
    elif kind == "empty":
        z, y = z[:0], y[:0]
    else:
        z = 3 * z
    return z.to(dtype), y


def values(loss, z, y, orders, **options):
    """The loss, and the gradients by logits and orders of its weighted sum."""
    inputs = [tensor.detach().clone().requires_grad_() for tensor in (z, *orders)]
    rows = loss(inputs[0], y, *inputs[1:], **options)
    weights = torch.arange(1, rows.numel() + 1, dtype=rows.dtype).reshape(rows.shape)
    return rows.detach(), *torch.autograd.grad((rows * weights).sum(), inputs)


OPTIONS = {
    "none": {},
    "rows": {"reduction": "none"},
    "smoothed": {"label_smoothing": 0.1},
    "smoothed alone": {"label_smoothing": 1.0, "reduction": "sum"},
}
CASES = [(orders, "none", dtype) for orders in ORDERS for dtype in TOLERANCE]
CASES += [(ORDERS[0], name, torch.float64) for name in OPTIONS if name != "none"]


def check_all_cases(group=None):
    """Every kind of batch, option and orders, with 4 candidates a process: enough for some rows, too few for others."""
    rank, sizes = dist.get_rank(group), SIZES[dist.get_world_size(group)]
    own, split = slice(sum(sizes[:rank]), sum(sizes[: rank + 1])), {"group": group, "sizes": sizes, "candidates": 4}
    with every_case() as case:
        for kind, (chosen, options, dtype) in itertools.product(KINDS, CASES):
            (z, y), bound = batch(kind, sum(sizes), dtype), TOLERANCE[dtype]
            orders = [torch.tensor(order, dtype=torch.float64) for order in chosen]
            mine = values(parallel.vocab_parallel_loss, z[:, own], y, orders, **OPTIONS[options], **split)
            theirs = list(values(sharmix.fenchel_young_loss, z, y, orders, **OPTIONS[options]))
            theirs[1] = theirs[1][:, own]
            learned = torch.stack(mine[2:])
            everywhere = [torch.empty_like(learned) for _ in sizes]
            dist.all_gather(everywhere, learned, group=group)
            with case(kind=kind, options=options, orders=chosen, dtype=dtype):
                torch.testing.assert_close(mine, theirs, rtol=bound, atol=bound, equal_nan=True)
                assert all(torch.equal(one.nan_to_num(), learned.nan_to_num()) for one in everywhere)


def test_one_process_has_the_loss_of_the_whole_logits(alone):
    check_all_cases()


def test_orders_and_temperature_reach_the_loss_of_a_split_layer(alone):
    hidden, weight = torch.randn(6, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    y, orders = torch.tensor([0, 1, 2, 3, 4, -100]), (1.5, 1.5, 0.5)
    found = parallel.vocab_parallel_linear_loss(hidden, weight, None, y, *orders)
    torch.testing.assert_close(found, sharmix.fenchel_young_loss(linear(hidden, weight), y, *orders))


def test_tied_rows_at_a_large_r_are_exact(alone):
    z, y = torch.zeros(2, 301), torch.tensor([0, 7])
    loss = parallel.vocab_parallel_loss(z, y, 1.5, 20.0, candidates=4, reduction="none")
    torch.testing.assert_close(loss, sharmix.fenchel_young_loss(z, y, 1.5, 20.0, reduction="none"))


@for_every(near=(1e-9, 1e-6, 1e-3))
def test_smoothed_targets_keep_their_digits_near_softmax(alone, near):
    z, y = batch("peaked", 75, torch.float64)
    orders = [torch.tensor(order, dtype=torch.float64) for order in (1 + near, 1.5, 1.0)]
    losses = parallel.vocab_parallel_loss, sharmix.fenchel_young_loss
    mine, theirs = (values(loss, z, y, orders, label_smoothing=0.1) for loss in losses)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_targets_of_every_integer_type(alone):
    z = torch.randn(2, 200, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        y = torch.tensor([156 if dtype == torch.uint8 else -100, 0]).to(dtype)  # as int8, 156 is -100
        torch.testing.assert_close(parallel.vocab_parallel_loss(z, y), sharmix.fenchel_young_loss(z, y.long()))


def test_a_criterion_with_a_group_is_copied(alone):
    criterion = parallel.VocabParallelLoss(sharmix.SharMiX(learned=True), group=dist.group.WORLD)
    z, y = torch.randn(2, 9, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 7])
    assert torch.equal(copy.deepcopy(criterion)(z, y), criterion(z, y))


@contextmanager
def messages():
    """The names of the collectives called within it, and their bytes."""
    seen = []

    def counted(name):
        original = getattr(dist, name)

        def call(*tensors, **options):
            seen.append((name, tensors[-1].nbytes))
            return original(*tensors, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("all_gather_into_tensor", "all_reduce"):
            patch.setattr(dist, name, counted(name))
        yield seen


def check_messages():
    rows, classes = 4, 20_000
    generator = torch.Generator().manual_seed(dist.get_rank())
    noise, y = torch.randn(rows, classes, generator=generator), torch.tensor([0, 30_000, 5, -100])
    peaked = noise + 12 * (noise > 3.5)
    batches = [(peaked, 1), *((noise / scale, 7) for scale in (1, 10, 100)), (noise / 1e4, 8), (noise * 0, 3)]
    with every_case() as case:
        for (q, r), (z, most) in itertools.product([(1.25, 1.5), (1.5, 1.5), (2.0, 2.0)], batches):
            z = z.clone().requires_grad_()
            with messages() as seen:
                loss = parallel.vocab_parallel_loss(z, y, q, r)
                forward = len(seen)
                loss.backward()
            with case(q=q, r=r, most=most):
                assert seen[0] == ("all_gather_into_tensor", 16 + 4 * rows * 33)
                assert {name for name, _ in seen[1:]} <= {"all_reduce"}
                assert len(seen) == forward <= most
                assert sum(size for _, size in seen[1:]) <= rows * 32 * (most - 1)


def check_half_precision():
    rank, sizes = dist.get_rank(), SIZES[2]
    z, y = batch("peaked", sum(sizes), torch.bfloat16)
    part = z.split(sizes, -1)[rank].requires_grad_()
    with messages() as seen:
        loss = parallel.vocab_parallel_loss(part, y, sizes=sizes)
    assert seen == [("all_gather_into_tensor", 16 + 2 * len(z) * 33)]
    torch.testing.assert_close(loss, sharmix.fenchel_young_loss(z.float(), y))
    smoothed = parallel.vocab_parallel_loss(part, y, sizes=sizes, label_smoothing=0.1)
    torch.testing.assert_close(smoothed, sharmix.fenchel_young_loss(z.float(), y, label_smoothing=0.1))
    assert torch.autograd.grad(loss, part)[0].dtype == torch.bfloat16


def check_criterion():
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh, classes = init_device_mesh("cpu", (2,)), 75
    z, y = batch("peaked", classes, torch.float32)
    whole, own = (sharmix.build_activation("sharmix_learned") for _ in range(2))
    criterion = parallel.VocabParallelLoss(own, label_smoothing=0.1)
    split = distribute_tensor(z, mesh, [Shard(-1)]).requires_grad_()
    expected = whole.loss(z.requires_grad_(), y, label_smoothing=0.1)
    torch.testing.assert_close(criterion(split, y), expected, rtol=1e-6, atol=1e-6)
    criterion(split, y).backward()
    expected.backward()
    torch.testing.assert_close(split.grad.full_tensor(), z.grad, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(own.q.grad, whole.q.grad)

    part = z.detach()[:, :38] if dist.get_rank() == 0 else z.detach()[:, 38:]
    plain = parallel.VocabParallelLoss("sparsemax", sizes=[38, 37])
    torch.testing.assert_close(plain(part, y), sharmix.sparsemax_loss(z, y))
    plain(part, y)
    assert plain.candidates == 16  # half as many a batch, down to twice the support
    plain(part * 1e-3, y)
    assert plain.candidates == 32
    in_group = parallel.VocabParallelLoss("sparsemax", group=mesh.get_group(), sizes=[38, 37])
    assert torch.equal(torch.compile(in_group, fullgraph=True, backend="eager")(part, y), plain(part, y))
    for placement in (Replicate(), Shard(0)):
        with pytest.raises(ValueError, match="must be split over their last dimension"):
            criterion(DTensor.from_local(z.detach(), mesh, [placement]), y)


def check_criterion_in(group):
    z, y = batch("peaked", 75, torch.float64)
    criterion = parallel.VocabParallelLoss("sparsemax", group=group, sizes=SIZES[2])
    loss = criterion(z.split(SIZES[2], -1)[dist.get_rank(group)], y)
    torch.testing.assert_close(loss, sharmix.sparsemax_loss(z, y))


def check_layer():
    rank, sizes, features = dist.get_rank(), [5, 70], 6
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator) for shape in ((3, 4, features), (75, features), (75,))
    )
    y = torch.randint(75, (3, 4), generator=generator)
    y[0, 0] = -100
    for orders, scale in itertools.product([(1.5, 1.5), (1.25, 1.5)], [2.0, 0.01]):
        inputs = [(scale * one).requires_grad_() for one in (hidden, weight, bias)]
        orders = [torch.tensor(order, requires_grad=True) for order in orders]
        expected = sharmix.fenchel_young_loss(linear(*inputs), y, *orders)
        theirs = list(torch.autograd.grad(expected, [*inputs, *orders]))
        theirs[1:3] = (grad.split(sizes)[rank] for grad in theirs[1:3])
        parts = [one.detach().split(sizes)[rank].clone().requires_grad_() for one in inputs[1:]]
        with messages() as seen:
            loss = parallel.vocab_parallel_linear_loss(inputs[0], *parts, y, *orders, sizes=sizes, candidates=8)
            forward = len(seen)
            mine = torch.autograd.grad(loss, [inputs[0], *parts, *orders])
        assert seen[forward:] == [("all_reduce", hidden.nbytes)]
        torch.testing.assert_close([loss, *mine], [expected, *theirs], rtol=2e-6, atol=1e-6)
    alpha = torch.tensor(1.5, requires_grad=True)
    for tied in ((alpha, alpha), (alpha, alpha + 0.25)):
        inputs = hidden, *(one.split(sizes)[rank] for one in (weight, bias))
        loss = parallel.vocab_parallel_linear_loss(*inputs, y, *tied, sizes=sizes)
        expected = sharmix.fenchel_young_loss(linear(hidden, weight, bias), y, *tied)
        mine, theirs = (torch.autograd.grad(one, alpha, retain_graph=True) for one in (loss, expected))
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=1e-6)


def check_layer_in_parts(group=None):
    """A few rows at a time, where the processes have other numbers of classes, which the loss asks for."""
    rank, generator = dist.get_rank(group), torch.Generator().manual_seed(0)
    split = {"group": group, "label_smoothing": 0.1, "candidates": 75}
    hidden, weight = torch.randn(40, 6, generator=generator), torch.randn(75, 6, generator=generator)
    y = torch.randint(75, (40,), generator=generator)
    for sizes in ([5, 70], [75, 0]):
        inputs = [one.clone().requires_grad_() for one in (hidden, weight.split(sizes)[rank])]
        with pytest.MonkeyPatch.context() as patch, messages() as seen:
            patch.setattr(_layer_in_blocks, "_CHUNK_BYTES", 4 * 75 * 16)
            loss = parallel.vocab_parallel_linear_loss(*inputs, None, y, **split)
        assert [name for name, _ in seen].count("all_gather_into_tensor") > 3
        whole = [one.clone().requires_grad_() for one in (hidden, weight)]
        expected = sharmix.linear_fenchel_young_loss(*whole, None, y, label_smoothing=0.1)
        mine, theirs = (torch.autograd.grad(one, given) for one, given in ((loss, inputs), (expected, whole)))
        theirs = theirs[0], theirs[1].split(sizes)[rank]
        torch.testing.assert_close([loss, *mine], [expected, *theirs], rtol=2e-6, atol=1e-6)


def check_refusals():
    """Processes that do not agree are told so; none of them waits for ever."""
    z, y = torch.zeros(2, [5, 70][dist.get_rank()]), torch.tensor([0, 74])
    with pytest.raises(ValueError, match=r"the processes hold \[5, 70\] classes"):
        parallel.vocab_parallel_loss(z, y, label_smoothing=0.1)
    with pytest.raises(ValueError, match="label 75 is out of range for 75 classes"):
        parallel.vocab_parallel_loss(z, y + 1, sizes=[5, 70])
    other, q = dist.get_rank(), torch.tensor(1.25, requires_grad=dist.get_rank() == 1)
    for targets, *orders in ((y.roll(other),), (y, 1.25 + 0.05 * other), (y, q)):
        with pytest.raises(ValueError, match="the processes give different targets or orders"):
            parallel.vocab_parallel_loss(z, targets, *orders, sizes=[5, 70])


def check_two_processes():
    check_all_cases()
    check_messages()
    check_half_precision()
    check_criterion()
    check_layer()
    check_layer_in_parts()
    check_refusals()
    if dist.get_rank() == 1:
        os._exit(0)  # as a process that was killed
    with pytest.raises(RuntimeError):
        parallel.vocab_parallel_loss(torch.zeros(2, 5), torch.tensor([0, 7]))


@pytest.mark.medium
def test_two_processes(tmp_path):
    in_processes(2, check_two_processes, tmp_path)


def check_four_processes():
    for number in (3, 4):
        group = dist.new_group(range(number))
        if dist.get_rank() < number:
            check_all_cases(group)
    some = dist.new_group([1, 3])  # numbers in the group are others than in all
    if dist.get_rank() in (1, 3):
        check_all_cases(some)
        check_layer_in_parts(some)
        check_criterion_in(some)

    def loss(z):
        return parallel.vocab_parallel_loss(z, y, sizes=SIZES[4], candidates=4)

    z, y = batch("flat", 75, torch.float64)
    part = z.split(SIZES[4], -1)[dist.get_rank()].requires_grad_()
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(loss, fullgraph=True, backend=backend)
        assert torch.equal(compiled(part), loss(part))
        assert torch.equal(*(torch.autograd.grad(one(part), part)[0] for one in (compiled, loss)))


@pytest.mark.slow
def test_three_and_four_processes(tmp_path):
    in_processes(4, check_four_processes, tmp_path)


def test_what_is_not_allowed(alone):
    z, y = torch.zeros(2, 5, requires_grad=True), torch.tensor([0, 4])
    with every_case() as case:
        for change, error, message in (
            ({"q": 1.0, "r": 1.0}, ValueError, "loss_parallel"),
            ({"q": torch.tensor(1.0)}, ValueError, "loss_parallel"),
            ({"q": 3.5, "r": 2.0}, ValueError, "q=3.5 is not allowed.* at most 3"),
            ({"q": 1.75, "r": 1.25}, ValueError, "outside the concave region"),
            ({"q": torch.ones(2, 1)}, ValueError, "q of shape"),
            ({"targets": torch.zeros(2, 5)}, TypeError, "class indices of an integer type"),
            ({"targets": y[:1]}, ValueError, r"local_logits of shape \(2, 5\)"),
            ({"targets": y + 1}, ValueError, "label 5 is out of range"),
            ({"local_logits": z.long()}, TypeError, "local_logits must be a floating-point"),
            ({"sizes": [5, 5]}, ValueError, "1 numbers of classes"),
            ({"sizes": [6]}, ValueError, r"the processes hold \[5\] classes"),
            ({"sizes": [-5]}, ValueError, r"sizes=\[-5\] is not allowed"),
            ({"candidates": 0}, ValueError, "candidates=0"),
            ({"candidates": 2.5}, ValueError, "candidates=2.5 is not allowed"),
            ({"label_smoothing": 2.0}, ValueError, "label_smoothing=2.0"),
        ):
            with case(expected=message), pytest.raises(error, match=message):
                parallel.vocab_parallel_loss(**{"local_logits": z, "targets": y} | change)
    for activation in ("softmax", "alpha_relu"):
        with pytest.raises(ValueError, match="loss_parallel"):
            parallel.VocabParallelLoss(activation)
    for orders, message in (((1.0, 1.5), "q=1 is not allowed"), ((1.75, 1.25), "outside the concave region")):
        with pytest.raises(ValueError, match=message):
            parallel.VocabParallelLoss(sharmix.SharMiX(*orders))
    with pytest.raises(ValueError, match=r"q of shape \(2, 1\) is not allowed; it must hold one element"):
        parallel.VocabParallelLoss(sharmix.Entmax(alpha=torch.full((2, 1), 1.5)))
    with pytest.raises(ValueError, match="objective='brier'"):
        parallel.VocabParallelLoss(sharmix.SharMiX(learned=True, objective="brier"))
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(parallel.vocab_parallel_loss(z, y), z, create_graph=True)


def test_without_a_process_group():
    with pytest.raises(RuntimeError, match="init_process_group"):
        parallel.vocab_parallel_loss(torch.zeros(2, 5), torch.tensor([0, 4]))
