"""Maps and losses of a DTensor are those of the whole tensor, for rows split in any dimension but the classes'."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
)

import sharmix
from tests.sharmix.cases import every_case
from tests.sharmix.doors import per_row
from tests.sharmix.test_parallel import in_processes

CLASSES = 6
OPTIONS = [
    ("mean", False),
    ("mean", True),
    ("sum", False),
    ("none", True),
]  # reduction, and whether classes have weights
PLACEMENTS = [Replicate(), Shard(0), Shard(1), Shard(2), Partial()]  # of logits [3, 5, 6]


def batch():
    z = 2 * torch.randn(3, 5, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(15).reshape(3, 5) % CLASSES
    y[0], y[2, 1] = -100, -100  # more rows of one process than of the other do not count
    return z, y


MAPS = {
    "sharmix": sharmix.sharmix,
    "softmax's rows": lambda z, q, r: sharmix.sharmix(z, 1.0, r),
    "entmax": lambda z, q, r: sharmix.entmax(z, alpha=q),
    "normmax": lambda z, q, r: sharmix.normmax(z, alpha=q),
    "sparsemax": lambda z, q, r: sharmix.sparsemax(z),
    "along the first dimension": lambda z, q, r: sharmix.sharmix(z, q, r, dim=0),
    "masked rows": lambda z, q, r: sharmix.sharmix(z.where(z > -1e9, -torch.inf), q, r, masked_rows="zeros"),
    "half precision": lambda z, q, r: sharmix.sharmix(z.bfloat16(), q, r).double(),
    "alpha_relu": lambda z, q, r: sharmix.alpha_relu(z, alpha=1.5, tau=q),
    "entropy": lambda z, q, r: sharmix.sharma_mittal_entropy(z.softmax(-1), q, r),
}
LOSSES = {
    "loss": lambda z, y, q, r, **options: sharmix.fenchel_young_loss(z, y, q, r, **options),
    "numbers": lambda z, y, q, r, **options: sharmix.fenchel_young_loss(z, y, **options),
    "smoothed": lambda z, y, q, r, **options: sharmix.fenchel_young_loss(z, y, q, r, label_smoothing=0.1, **options),
    "soft": lambda z, y, q, r, **options: sharmix.entmax_loss(z, (-z.detach()).softmax(-1), alpha=q, **options),
    "alpha_relu": lambda z, y, q, r, **options: sharmix.alpha_relu_loss(z, y, alpha=1.5, tau=q, **options),
    "softmax": lambda z, y, q, r, **options: sharmix.Softmax().loss(z, y, **options),
}


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def outcomes(compute, *leaves):
    """The output, and the gradients of a weighted sum of it, as whole tensors."""
    output = whole(compute(*leaves))
    weights = torch.arange(1, output.numel() + 1, dtype=output.dtype).reshape(output.shape)
    gradients = torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True)
    return output, *(gradient if gradient is None else whole(gradient) for gradient in gradients)


def check(compute, mesh, placement, *tensors):
    expected = outcomes(compute, *(one.clone().requires_grad_() for one in tensors))
    placements = [placement, *[Replicate()] * (len(tensors) - 1)]
    split = (distribute_tensor(one, mesh, [where]) for one, where in zip(tensors, placements, strict=True))
    found = outcomes(compute, *(one.requires_grad_() for one in split))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)  # in half precision orders are float32


def check_maps(mesh, case):
    z, _ = batch()
    number = torch.tensor(1.5, dtype=torch.float64)
    for (name, compute), placement in itertools.product(MAPS.items(), PLACEMENTS):
        with case(map=name, placement=placement):
            check(compute, mesh, placement, z, number, number)
    for rows, placement in itertools.product((z, z[:1], z[:, :1]), PLACEMENTS):
        with case(order=rows.shape, placement=placement):
            check(sharmix.sharmix, mesh, placement, z, per_row(rows, 1.3), number)
    with case(rows=1):
        check(sharmix.sharmix, mesh, Shard(0), z[:1], number, number)


def check_losses(mesh, case):
    z, y = batch()
    number, weight = torch.tensor(1.5, dtype=torch.float64), torch.arange(1.0, CLASSES + 1, dtype=torch.float64)
    for (name, compute), placement, (reduction, weighted) in itertools.product(
        LOSSES.items(), (Replicate(), Shard(0), Shard(1), Shard(2)), OPTIONS
    ):

        def loss(z, q, r, compute=compute, reduction=reduction, weighted=weighted):
            targets, options = y, {"weight": weight} if weighted else {}
            if isinstance(z, DTensor):
                targets = distribute_tensor(y, mesh, [Shard(0)])
                options = {name: distribute_tensor(one, mesh, [Replicate()]) for name, one in options.items()}
            return compute(z, targets, q, r, reduction=reduction, **options)

        with case(loss=name, placement=placement, reduction=reduction, weighted=weighted):
            check(loss, mesh, placement, z, number, number)


def check_criteria(mesh, case):
    """In the layout of cross-entropy, and with the parameters and buffers that `distribute_module` replicates."""
    z, y = batch()
    z = z.float().movedim(-1, 1)
    for criterion in (
        lambda: sharmix.SharMiXLoss(learned=True),
        lambda: sharmix.FenchelYoungLoss(sharmix.AlphaReLU(tau=0.3)),
        lambda: sharmix.FenchelYoungLoss("softmax", weight=torch.arange(1.0, CLASSES + 1)),
    ):
        plain, split = criterion(), distribute_module(criterion(), mesh)
        with case(criterion=plain):
            leaf = distribute_tensor(z, mesh, [Shard(0)]).requires_grad_()
            split(leaf, distribute_tensor(y, mesh, [Shard(0)])).backward()
            expected = z.clone().requires_grad_()
            plain(expected, y).backward()
            torch.testing.assert_close(leaf.grad.full_tensor(), expected.grad)
            for mine, theirs in zip(split.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(mine.grad.full_tensor(), theirs.grad)


def check_two_processes():
    mesh = init_device_mesh("cpu", (2,))
    with every_case() as case:
        check_maps(mesh, case)
        check_losses(mesh, case)
        check_criteria(mesh, case)


@pytest.mark.medium
def test_two_processes(tmp_path):
    in_processes(2, check_two_processes, tmp_path)


@pytest.fixture
def split():
    """The DTensor of a tensor on a mesh of one process, in one part."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    yield lambda tensor: distribute_tensor(tensor, mesh, [Shard(0) if tensor.dim() else Replicate()])
    dist.destroy_process_group()


@pytest.mark.medium
def test_second_derivatives_and_a_compiled_step(split):
    z, y = batch()
    torch.testing.assert_close(*(second_derivative(sharmix.sharmix, leaf(z)) for leaf in (split, torch.clone)))

    def step(z, y):
        return sharmix.sharmix(z, 1.3).square().sum() + sharmix.sparsemax_loss(z, y)

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for one in (compiled, step):
        found = outcomes(lambda z, one=one: one(z, split(y)), split(z).requires_grad_())
        torch.testing.assert_close(found, outcomes(lambda z: step(z, y), z.clone().requires_grad_()))


def second_derivative(function, z):
    z = z.requires_grad_()
    (gradient,) = torch.autograd.grad(function(z).square().sum(), z, create_graph=True)
    return whole(torch.autograd.grad(gradient.square().sum(), z)[0])


def test_what_is_not_allowed(split):
    z, y = batch()
    number = torch.tensor(1.5, dtype=torch.float64)
    z, targets, learning = split(z), split(y), {"learned": True, "objective": "brier"}
    with every_case() as case:
        for error, message, call in (
            (TypeError, "q must be a DTensor beside", lambda: sharmix.sharmix(z, number)),
            (TypeError, "temperature must be", lambda: sharmix.fenchel_young_loss(z, targets, temperature=number)),
            (TypeError, "targets must be a DTensor beside", lambda: sharmix.sparsemax_loss(z, y)),
            (TypeError, "weight must be", lambda: sharmix.sparsemax_loss(z, targets, weight=batch()[0][0, 0])),
            (ValueError, "reduction='men'", lambda: sharmix.sparsemax_loss(z, targets, reduction="men")),
            (ValueError, "alpha=0.5 is not allowed", lambda: sharmix.entmax(z, alpha=split(number - 1))),
            (ValueError, "label 8 is out of range", lambda: sharmix.sparsemax_loss(z, split(torch.full_like(y, 8)))),
            (NotImplementedError, "takes no DTensor", lambda: sharmix.SharMiXLoss(**learning)(z[0], targets[0])),
        ):
            with case(message=message), pytest.raises(error, match=message):
                call()
