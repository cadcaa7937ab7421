"""Ways to keep learned orders in their range: the time that each adds to a training step, and what each can do.

python -m benchmarks.learned_range
"""

import argparse
import pickle
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from sharmix import fenchel_young_loss
from sharmix._fenchel_young import Reduction
from sharmix._learned_range import ORDERS, Learning, learned, limits

ROWS, CLASSES, FEATURES = 64, 3, 20
STEPS = 50  # in a block; the candidates take turns, block by block
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}


class Unbounded(nn.Module):
    """Orders (q, r) that nothing keeps in their range."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.r = nn.Parameter(torch.tensor(1.25)), nn.Parameter(torch.tensor(1.5))

    def orders(self) -> list[Tensor]:
        return [self.q, self.r]

    def loss(self, logits: Tensor, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
        return fenchel_young_loss(logits, targets, *self.orders(), reduction=reduction)

    def after_step(self) -> None:
        """The training loop calls this method after each step."""


class OptimizerHook(Learning, Unbounded):
    """Orders that a hook of the optimizer keeps in their range: the library's way."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.r = learned("q", 1.25), learned("r", 1.5)


class ByHand(Unbounded):
    """A projection that the training loop calls."""

    @torch.no_grad()
    def after_step(self) -> None:
        for order in (self.q, self.r):
            order.clamp_(*limits("q", order.dtype))


class Sigmoid(nn.Module):
    """The real line onto the range, for torch.nn.utils.parametrize."""

    def forward(self, raw: Tensor) -> Tensor:
        return ORDERS[0] + (ORDERS[1] - ORDERS[0]) * raw.sigmoid()

    def right_inverse(self, order: Tensor) -> Tensor:
        return ((order - ORDERS[0]) / (ORDERS[1] - ORDERS[0])).logit()


class Parametrized(Unbounded):
    """A sigmoid of unbounded parameters."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("q", "r"):
            parametrize.register_parametrization(self, name, Sigmoid())


class ProjectedInForward(Unbounded):
    """A projection in place, before each use."""

    @torch.no_grad()
    def orders(self) -> list[Tensor]:
        for order in (self.q, self.r):
            order.clamp_(*limits("q", order.dtype))
        return [self.q, self.r]


class ClampedInForward(Unbounded):
    """Unbounded parameters, clamped at each use; the gradient passes through."""

    def orders(self) -> list[Tensor]:
        inside = (order.detach().clamp(*limits("q", order.dtype)) for order in (self.q, self.r))
        return [value + (order - order.detach()) for value, order in zip(inside, (self.q, self.r), strict=True)]


CANDIDATES = {
    "nothing": Unbounded,
    "optimizer hook": OptimizerHook,
    "projection by hand": ByHand,
    "sigmoid parametrization": Parametrized,
    "projection in forward": ProjectedInForward,
    "clamp in forward": ClampedInForward,
}


def training(candidate: type[Unbounded], optimizer: str, modules: int) -> Callable[[], None]:
    """A block of training steps of one linear layer under the losses of some modules."""
    torch.manual_seed(0)
    layer, outputs = nn.Linear(FEATURES, CLASSES), nn.ModuleList(candidate() for _ in range(modules))
    inputs, targets = torch.randn(ROWS, FEATURES), torch.randint(CLASSES, (ROWS,))
    stepping = OPTIMIZERS[optimizer]([*layer.parameters(), *outputs.parameters()], lr=1e-5)

    def block() -> None:
        for _ in range(STEPS):
            stepping.zero_grad()
            logits = layer(inputs)
            torch.stack([output.loss(logits, targets) for output in outputs]).sum().backward()
            stepping.step()
            for output in outputs:
                output.after_step()

    return block


def microseconds_per_step(optimizer: str, modules: int, rounds: int) -> dict[str, list[float]]:
    """Processor time of a training step under each candidate, one value a round."""
    blocks = {name: training(candidate, optimizer, modules) for name, candidate in CANDIDATES.items()}
    times: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for _ in range(rounds + 1):
        for name, block in blocks.items():
            start = time.process_time()
            block()
            times[name].append(1e6 * (time.process_time() - start) / STEPS)
    return {name: values[1:] for name, values in times.items()}  # the first block allocates


def driven(candidate: type[Unbounded], optimizer: str, **settings: float) -> tuple[float, float, str]:
    """The lowest and highest order used in 100 steps up and 200 down, and the steps until q has come back by 0.1."""
    module = candidate()
    stepping = OPTIMIZERS[optimizer](module.parameters(), **settings)
    seen: list[list[float]] = []
    for step in range(300):
        stepping.zero_grad()
        orders = module.orders()
        seen.append([order.item() for order in orders])
        (torch.stack(orders).sum() * (-1 if step < 100 else 1)).backward()
        stepping.step()
        module.after_step()
    flat = [value for values in seen for value in values]
    turn = min(seen[100][0], ORDERS[1])
    back = next((str(step) for step in range(200) if seen[100 + step][0] < turn - 0.0999), "> 200")
    return min(flat), max(flat), back


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(ROWS, CLASSES, requires_grad=True), torch.randint(CLASSES, (ROWS,))


def two_forwards(module: Unbounded) -> None:
    """One backward pass through two forward passes, whose graphs hold the orders; a mean's graph holds values."""
    (module.loss(*batch(), "none") + module.loss(*batch(), "none")).sum().backward()


def checkpointing(module: Unbounded) -> None:
    loss = checkpoint(module.loss, *batch(), use_reentrant=False)
    (loss + module.loss(*batch())).backward()


def compiling(module: Unbounded) -> None:
    torch.compile(module.loss, fullgraph=True, backend="aot_eager")(*batch()).backward()


def pickling(module: Unbounded) -> None:
    pickle.loads(pickle.dumps(module))


def lbfgs(module: Unbounded) -> None:
    """Steps of LBFGS, which evaluates the loss between moves; its learning rate is 1 by default."""
    logits, targets = batch()
    stepping = torch.optim.LBFGS([logits, *module.parameters()])

    def evaluate() -> Tensor:
        stepping.zero_grad()
        loss = module.loss(logits, targets)
        loss.backward()
        assert all(ORDERS[0] - 1e-6 < order < ORDERS[1] for order in module.orders())
        return loss

    for _ in range(5):
        stepping.step(evaluate)


CHECKS = (two_forwards, checkpointing, compiling, pickling, lbfgs)


def succeeds(check: Callable[[Unbounded], None], candidate: type[Unbounded]) -> str:
    try:
        check(candidate())
    except AssertionError:
        return "leaves the range"
    except Exception as error:
        return type(error).__name__
    return "yes"


def print_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    lines = [head, ["---"] * len(head), *rows]
    print(f"\n{title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))


def main() -> None:
    """Command line: print the tables of docs/learned_orders.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learned_range", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="blocks of each candidate, in turn")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)

    cases = [(optimizer, modules) for modules in (1, 24) for optimizer in OPTIMIZERS]
    times = [microseconds_per_step(*case, rounds) for case in cases]
    head = ["", *(f"{optimizer}, {modules} module{'s' * (modules > 1)}" for optimizer, modules in cases)]
    rows = [["nothing", *(f"{statistics.median(of['nothing']):.0f}" for of in times)]]
    for name in list(CANDIDATES)[1:]:
        added = ([one - base for one, base in zip(of[name], of["nothing"], strict=True)] for of in times)
        rows.append([name, *(f"{statistics.median(values):+.0f}" for values in added)])
    print_table(f"Microseconds a training step, and added to it ({ROWS} × {CLASSES} logits)", head, rows)

    rows = []
    for name, candidate in CANDIDATES.items():
        low, high, _ = driven(candidate, "AdamW", lr=1.0, weight_decay=0.1)
        back = [driven(candidate, optimizer, lr=0.1, weight_decay=0.0)[2] for optimizer in OPTIMIZERS]
        rows.append([name, f"{low:.8g} to {high:.8g}", *back])
    head = ["", "orders used, AdamW at lr 1, decay 0.1", "steps to come back, SGD", "AdamW"]
    print_table("Orders pushed up for 100 steps, then down", head, rows)

    names = [check.__name__.replace("_", " ").replace("lbfgs", "LBFGS") for check in CHECKS]
    rows = [[name, *(succeeds(check, candidate) for check in CHECKS)] for name, candidate in CANDIDATES.items()]
    print_table("What works", ["", *names], rows)


if __name__ == "__main__":
    main()
