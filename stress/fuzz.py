"""Random calls of every public function and module, against a bisection that shares no code with the library.

python -m stress.fuzz SECONDS SEED prints the outcome; each trial is drawn from its own number, which its failure names.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sharmix
from stress.bisection import Array, Orders
from stress.outcome import Outcome
from stress.trials import Wrong

_WHAT = "random calls of every public function and module, against a bisection in double precision"
_DIFFERENCE = 1e-5  # of a central difference
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 3e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
_DTYPES = (torch.float64, torch.float64, torch.float32, torch.float32, torch.bfloat16, torch.float16)
compared = 0  # tensors and refusals, so far


class Draw:
    """Logits and settings of one trial."""

    def __init__(self, number: int) -> None:
        self.generator = np.random.default_rng(number)
        self.dtype: torch.dtype = self.one_of(_DTYPES)
        self.shape = tuple(int(length) for length in self.generator.integers(0, 4, self.generator.integers(0, 3)))
        self.classes = int(self.one_of((1, 2, 3, 7, 18, 33)))
        self.orders = self.draw_orders()
        self.logits = self.draw_logits()

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.generator.integers(len(choices)))]

    def draw_orders(self) -> Orders:
        """Of the concave region, a little inside, where p answers no change by more than some hundred times."""
        q = float(self.one_of((1.0, 1.0 + 1e-9, 1.01, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, self.generator.uniform(1, 4))))
        least = 2 - 1 / q + 0.05
        r = float(self.one_of((q, least, least + 0.3, 2.0, 3.0, self.generator.uniform(least, 5))))
        temperature = float(self.one_of((1.0, 1.0, 0.5, 3.0, 10.0 ** self.generator.uniform(-2, 2))))
        return Orders(q, max(r, least), temperature)

    def draw_logits(self) -> Tensor:
        """[..., classes] in any memory layout, with ties and −∞ now and then."""
        scale = self.one_of((0.0, 0.1, 1.0, 1.0, 5.0, 100.0)) * self.orders.temperature
        values = self.generator.normal(size=(*self.shape, self.classes)) * scale
        if self.generator.random() < 0.2:
            values = np.round(values)
        if self.generator.random() < 0.1 and self.classes > 1:
            values[..., -1] = -np.inf
        z = torch.tensor(values).to(self.dtype)
        layout = self.one_of(("contiguous", "transposed", "every other", "negative"))
        if layout == "transposed" and z.dim() > 1:
            return z.transpose(0, -1).contiguous().transpose(0, -1)
        if layout == "every other":
            return torch.stack([z, torch.full_like(z, math.nan)], -1)[..., 0]
        return torch._neg_view(-z) if layout == "negative" else z

    @property
    def rows(self) -> Array:
        return self.logits.double().resolve_neg().reshape(-1, self.classes).numpy()

    @property
    def given(self) -> tuple[Any, Any, Any]:
        """q, r and T₀ as numbers, as tensors, or one for each row."""
        values = (self.orders.q, self.orders.r, self.orders.temperature)
        kind = self.one_of(("numbers", "tensors", "rows"))
        if kind == "numbers":
            return values
        shape = () if kind == "tensors" else (*self.shape, 1)
        q, r, temperature = (torch.full(shape, value, dtype=torch.float64) for value in values)
        return q, r, temperature

    def targets(self) -> tuple[Tensor, Array]:
        """A class for each row that is not masked, and the same as distributions."""
        finite = np.isfinite(self.rows)
        classes = [int(self.one_of(np.flatnonzero(row))) for row in finite]
        one_hot = np.eye(self.classes)[classes].reshape(-1, self.classes)
        dtype = self.one_of((torch.int64, torch.int32, torch.uint8))
        return torch.tensor(classes, dtype=dtype).reshape(self.shape), one_hot

    def soft(self) -> tuple[Tensor, Array]:
        """Targets that are distributions, 0 where a logit is masked."""
        weights = np.where(np.isfinite(self.rows), self.generator.random(self.rows.shape) ** 3 + 1e-3, 0)
        y = weights / weights.sum(-1, keepdims=True)
        return torch.tensor(y).reshape(self.logits.shape), y


def check(name: str, found: Tensor, expected: Array, dtype: torch.dtype, scale: float = 1.0) -> None:
    """Raise Wrong if a tensor is further from the reference than its dtype explains."""
    global compared
    compared += 1
    numbers = found.detach().double().resolve_neg().numpy().reshape(-1)
    reference = np.asarray(expected, dtype=np.float64).reshape(-1)
    if numbers.shape != reference.shape:
        raise Wrong(f"{name} has {numbers.shape}, not {reference.shape} numbers")
    if not len(numbers):
        return
    allowed = _TOLERANCE[dtype] * (scale + np.abs(reference))
    error = np.where(numbers == reference, 0, np.abs(numbers - reference))
    if not (error <= allowed).all():  # of NaN as well
        place = int(np.argmax(np.where(np.isnan(error), np.inf, error / allowed)))
        raise Wrong(f"{name}[{place}] is {numbers[place]!r}, not {reference[place]!r}")


def try_map(draw: Draw) -> None:
    orders, z = draw.orders, draw.logits
    dim = int(draw.generator.integers(-z.dim(), z.dim()))
    given = draw.given if dim in (-1, z.dim() - 1) else (orders.q, orders.r, orders.temperature)
    moved = z.movedim(-1, dim)
    p = sharmix.sharmix(moved, *given, dim=dim)
    if p.shape != moved.shape or p.dtype != z.dtype:
        raise Wrong(f"sharmix gives {p.dtype} {tuple(p.shape)} for {z.dtype} {tuple(moved.shape)}")
    p = p.movedim(dim, -1)
    expected = orders.map(draw.rows)
    check("sharmix", p, expected, z.dtype)
    if ((p < 0) | (p > 1)).any() or ((p.double().sum(-1) - 1).abs() > 0.01).any():
        raise Wrong("sharmix leaves the simplex")
    if z.dtype == torch.float64 and (p.numpy().reshape(expected.shape)[expected == 0] > 1e-9).any():
        raise Wrong("sharmix has a class too many in its support")
    sizes = sharmix.support_size(p)
    check("support_size", sizes, (p > 0).sum(-1).numpy(), torch.float64)


def try_special_maps(draw: Draw) -> None:
    z, rows, q = draw.logits, draw.rows, draw.orders.q
    check("entmax", sharmix.entmax(z, q), Orders(q, q, 1.0).map(rows), z.dtype)
    check("sparsemax", sharmix.sparsemax(z), Orders(2.0, 2.0, 1.0).map(rows), z.dtype)
    modules = ((sharmix.Softmax(), (1.0, 1.0)), (sharmix.Sparsemax(), (2.0, 2.0)), (sharmix.Entmax(q), (q, q)))
    for module, (first, second) in modules:
        check(repr(module), module(z), Orders(first, second, 1.0).map(rows), z.dtype)
    for learned in (False, True):
        start = min(max(q, 1.01), 1.9)
        module = sharmix.SharMiX(start, 1.95, learned=learned)
        held = (order.item() if learned else order for order in (module.q, module.r))  # learned ones are in float32
        check(repr(module), module(z), Orders(*held, 1.0).map(rows), z.dtype)
    alpha = max(q, 1.1)
    weight = np.maximum((alpha - 1) * rows - 0.3, 0) ** (1 / (alpha - 1))
    limit = torch.finfo(z.dtype).max
    if weight.size == 0 or weight.max() < limit:
        check("alpha_relu", sharmix.alpha_relu(z, alpha, 0.3), weight, z.dtype, 1e-3)


def try_normmax(draw: Draw) -> None:
    """Its optimality: p·z − ‖p‖ is no less than at the reference's points nearby and at the corners."""
    z, alpha = draw.logits.double(), max(draw.orders.q, 1.1)
    p = sharmix.normmax(z, alpha)
    finite = z.clamp_min(-1e6)

    def objective(point: Tensor) -> Tensor:
        return (point * finite).sum(-1) - point.pow(alpha).sum(-1) ** (1 / alpha)

    others = [torch.eye(draw.classes, dtype=torch.float64)[i].expand_as(p) for i in range(draw.classes)]
    others += [torch.full_like(p, 1 / draw.classes), sharmix.entmax(z, alpha)]
    for other in others:
        for share in (1.0, 0.1, 1e-3):
            if (objective(p + share * (other - p)) > objective(p) + 1e-9 * (1 + finite.abs().amax(-1))).any():
                raise Wrong("normmax is no maximum")


def try_entropy(draw: Draw) -> None:
    orders = draw.orders
    p = orders.map(draw.rows).astype(np.float64)
    found = sharmix.sharma_mittal_entropy(torch.tensor(p).reshape(draw.logits.shape), orders.q, orders.r)
    check("sharma_mittal_entropy", found, orders.entropy(p) * orders.q / orders.temperature, torch.float64, 10.0)


def try_class_loss(draw: Draw) -> None:
    orders, z = draw.orders, draw.logits.detach().clone().requires_grad_()
    y, one_hot = draw.targets()
    rows = orders.loss(draw.rows, one_hot)
    counted = draw.generator.random(rows.shape) < 0.8
    ignored = y.clone().long()
    ignored[torch.tensor(~counted).reshape(draw.shape)] = -100
    reduction = draw.one_of(("mean", "sum", "none"))
    found = sharmix.fenchel_young_loss(z, ignored, *draw.given, reduction=reduction)
    kept = np.where(counted, rows, 0)
    divisor = max(counted.sum(), 1) if reduction == "mean" else 1
    scale = 1.0 + float(np.abs(np.where(np.isfinite(draw.rows), draw.rows, 0)).max(initial=0))
    loss_dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    if reduction == "none":
        check("loss of each row", found, kept, loss_dtype, scale)
    elif counted.any():
        check(f"loss, {reduction}", found, kept.sum() / divisor, loss_dtype, scale * len(rows))
    elif reduction == "mean" and not found.isnan():
        raise Wrong(f"the mean over no rows is {found}, not NaN as torch has it")
    (gradient,) = torch.autograd.grad(found.sum(), z)
    error = (orders.map(draw.rows) - one_hot) * counted[:, None] / divisor
    check(f"gradient of the loss, {reduction}", gradient, error, z.dtype)


def try_other_losses(draw: Draw) -> None:
    """Soft and smoothed targets, class weights, and the same loss by criterion, module and linear layer."""
    orders, z = draw.orders, draw.logits.detach().clone()
    if not np.isfinite(draw.rows).all():
        z = torch.where(z == -torch.inf, -1, z)
    rows = z.double().reshape(-1, draw.classes).numpy()
    scale = 1.0 + float(np.abs(rows).max(initial=0))
    dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    soft, y = draw.soft()
    y = soft.double().reshape(y.shape).numpy()
    given = (orders.q, orders.r, orders.temperature)
    found = sharmix.fenchel_young_loss(z, soft, *given, reduction="none")
    check("soft loss", found, orders.loss(rows, y), dtype, scale)
    labels, one_hot = draw.targets()
    smoothing = float(draw.generator.random())
    smoothed = (1 - smoothing) * one_hot + smoothing / draw.classes
    found = sharmix.fenchel_young_loss(z, labels, *given, label_smoothing=smoothing, reduction="none")
    check("smoothed loss", found, orders.loss(rows, smoothed), dtype, scale)
    weight = draw.generator.random(draw.classes) + 0.1
    found = sharmix.fenchel_young_loss(z, labels, *given, weight=torch.tensor(weight), reduction="none")
    check("weighted loss", found, orders.loss(rows, one_hot) * (one_hot * weight).sum(-1), dtype, scale)
    single = Orders(orders.q, orders.q, 1.0)
    expected = single.loss(rows, one_hot)
    functions = (sharmix.entmax_loss(z, labels, orders.q, reduction="none"),
                 sharmix.Entmax(orders.q).loss(z, labels, reduction="none"))  # fmt: skip
    for loss in functions:
        check("entmax_loss", loss, expected, dtype, scale)
    if z.dim() > 1 and len(rows):
        criterion = sharmix.EntmaxLoss(orders.q, reduction="sum")
        check("EntmaxLoss", criterion(z.movedim(-1, 1), labels), expected.sum(), dtype, scale * len(rows))
    eye = torch.eye(draw.classes, dtype=z.dtype)
    if len(rows):
        found = sharmix.linear_fenchel_young_loss(z, eye, None, labels, *given, reduction="sum")
        check("linear loss", found, orders.loss(rows, one_hot).sum(), dtype, scale * len(rows))


def try_derivatives(draw: Draw) -> None:
    """The map's derivatives against central differences of the reference, where no class joins or leaves."""
    orders = draw.orders
    if draw.classes < 2 or not draw.rows.size or not np.isfinite(draw.rows).all():
        return
    z = draw.logits.double().detach().clone().requires_grad_()
    values = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in asdict(orders).values()]
    direction = draw.generator.normal(size=draw.rows.shape)
    p = sharmix.sharmix(z, *values)
    found = torch.autograd.grad(p, [z, *values], torch.tensor(direction).reshape(p.shape))
    step = _DIFFERENCE * orders.temperature
    ends = [orders.map(draw.rows + sign * step * direction) for sign in (1, -1)]
    at = orders.map(draw.rows)
    if not all(((end > 0) == (at > 0)).all() for end in ends) or at[at > 0].min() < 1e-3:
        return
    scale = 1 / orders.temperature
    difference = (ends[0] - ends[1]) / (2 * step)
    tolerance = torch.bfloat16  # of a difference: 1e-2, for steep places; a wrong formula is further off
    check("derivative by the logits", found[0], difference, tolerance, scale)
    for place, name in enumerate(asdict(orders)):
        if orders.q < 1.01:
            continue  # the difference would leave what is allowed
        size = _DIFFERENCE * getattr(orders, name)
        sides = [
            Orders(**(asdict(orders) | {name: getattr(orders, name) + sign * size})).map(draw.rows) for sign in (1, -1)
        ]
        if all(((side > 0) == (at > 0)).all() for side in sides):
            slope = ((sides[0] - sides[1]) * direction).sum() / (2 * size)
            check(f"derivative by {name}", found[1 + place], slope, tolerance, (1 + scale) * math.sqrt(direction.size))


def bad_calls(draw: Draw) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls with one argument that is not allowed."""
    z, y = torch.randn(3, 4), torch.tensor([0, 1, 2])
    loss = sharmix.fenchel_young_loss
    bad = draw.one_of((math.nan, math.inf, -math.inf, -1.0, 0.0, 0.5 - 1e300))
    for name in ("q", "r", "temperature"):
        for value in (bad, torch.tensor(bad, dtype=torch.float64), torch.full((3, 1), bad, dtype=torch.float64)):
            yield f"{name}={value}", lambda n=name, v=value: sharmix.sharmix(z, **{n: v})
            yield f"loss, {name}={value}", lambda n=name, v=value: loss(z, y, **{n: v})
        for value in ("1.5", None, [1.5], 1j, torch.tensor(1), torch.ones(7), torch.full((3, 4), 1.5), True):
            yield f"{name}={value!r}", lambda n=name, v=value: sharmix.sharmix(z, **{n: v})
    for value in (z.long(), z.to(torch.complex64), z.numpy(), None, [1.0], z.to_sparse(), "z"):
        yield f"logits {type(value)}", lambda v=value: sharmix.sharmix(v)
        yield f"loss of logits {type(value)}", lambda v=value: loss(v, y)
    for value in (y[:2], y.bool(), y - 5, y + 3, y.float(), z.long(), torch.full((3, 4), 0.3), -torch.ones(3, 4), None):
        yield f"targets {value}", lambda v=value: loss(z, v)
    for dim in (2, -3, 10**9, 1.0, "1", None):
        yield f"dim={dim!r}", lambda d=dim: sharmix.sharmix(z, dim=d)
    options = ({"reduction": "max"}, {"label_smoothing": 2.0}, {"label_smoothing": math.nan}, {"weight": torch.ones(3)},
               {"ignore_index": 1.5}, {"weights": None}, {"weight": [1.0] * 4})  # fmt: skip
    for option in options:
        yield f"{option}", lambda o=option: loss(z, y, **o)
        yield f"alpha_relu_loss, {option}", lambda o=option: sharmix.alpha_relu_loss(z, y, **o)
    large = float(10.0 ** draw.generator.uniform(3.1, 300))
    yield f"r={large}", lambda: sharmix.sharmix(z, r=large)
    yield f"q={large}", lambda: sharmix.sharmix(z, q=large, r=large)
    yield "a linear layer of another width", lambda: sharmix.linear_fenchel_young_loss(z, torch.ones(5, 3), None, y)


def try_bad_calls(draw: Draw) -> None:
    calls = list(bad_calls(draw))
    global compared
    for name, call in (draw.one_of(calls) for _ in range(12)):
        compared += 1
        try:
            call()
        except (TypeError, ValueError, IndexError) as error:
            if not str(error):
                raise Wrong(f"{name} is refused without a word") from None
        else:
            raise Wrong(f"{name} is not refused")


def try_extremes(draw: Draw) -> None:
    """From finite logits and any orders that are taken, a point of the simplex and a loss that is no NaN."""
    uniform = draw.generator.uniform
    q = float(draw.one_of((1.0, 1 + 10 ** uniform(-15, 0), 10 ** uniform(0, 3))))
    r = float(max(10 ** uniform(-12, 2.5), 2 - 1 / q))
    temperature = 10 ** uniform(-30, 30)
    dtype = draw.one_of((torch.float32, torch.float64))
    z = torch.tensor(draw.generator.normal(size=(2, draw.classes)) * 10 ** uniform(-40, 30)).to(dtype)
    if draw.generator.random() < 0.3:
        z = torch.zeros_like(z)
    try:
        p = sharmix.sharmix(z, q, r, temperature)
        loss = sharmix.fenchel_young_loss(z, torch.zeros(2, dtype=torch.long), q, r, temperature)
    except ValueError as error:
        if "r=" not in str(error):
            raise
        return
    global compared
    compared += 2
    if not ((p.double().sum(-1) - 1).abs() < 1e-4).all() or not loss >= 0:
        raise Wrong(f"q={q!r}, r={r!r}, T={temperature!r}, logits {z.tolist()}: {p.sum(-1).tolist()}, {loss.item()}")


TRIALS = {
    function.__name__.removeprefix("try_"): function
    for function in (
        try_map, try_special_maps, try_normmax, try_entropy, try_class_loss, try_other_losses, try_derivatives,
        try_bad_calls, try_extremes,
    )
}  # fmt: skip


def trial(number: int) -> str | None:
    """The failure of one trial: a number that is wrong, or an error where none is due."""
    name = list(TRIALS)[number % len(TRIALS)]
    try:
        draw = Draw(number)
        TRIALS[name](draw)
    except Exception as error:
        kind = "wrong" if isinstance(error, Wrong) else f"refused by {type(error).__name__}"
        return f"{kind}: trial({number}), {name}, {draw.orders}, {draw.dtype}, {(*draw.shape, draw.classes)}: {error}"
    return None


def search(seconds: float, seed: int, most: int = 10**9) -> Outcome:
    """Trials one after the other until the time is over; the outcome counts their calls."""
    torch.set_num_threads(1)
    outcome, stop = Outcome(_WHAT), time.monotonic() + seconds
    number, before = seed * 10**9, compared
    while time.monotonic() < stop and number < seed * 10**9 + most:
        failure = trial(number)
        number += 1
        if failure is not None:
            outcome.failures.append(failure)
            outcome.wrong += failure.startswith("wrong")
    outcome.tried = compared - before
    outcome.survived = outcome.tried - len(outcome.failures)
    return outcome


def run(seconds: float, seed: int) -> Outcome:
    """The trials in a process of their own, which a crash ends."""
    command = [sys.executable, "-W", "ignore", "-m", "stress.fuzz", str(seconds), str(seed)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 300)
    except subprocess.TimeoutExpired:
        return Outcome(_WHAT, tried=1, lost=1, failures=[f"{' '.join(command)} hangs"])
    if done.returncode == 0:
        return Outcome(**json.loads(done.stdout.splitlines()[-1]))
    ended = f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}"
    return Outcome(_WHAT, tried=1, lost=1, failures=[ended])


if __name__ == "__main__":
    print(json.dumps(asdict(search(float(sys.argv[1]), int(sys.argv[2])))))
