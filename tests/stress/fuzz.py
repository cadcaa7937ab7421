"""Random calls of every public function and module, against arithmetic of fifty digits.

Each trial draws its numbers from a seed, which is its own number. A failure names this number: `trial(NUMBER)` repeats
the trial.
"""

import faulthandler
import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from mpmath import mp, mpf
from torch import Tensor

import sharmix
from tests.sharmix import reference
from tests.stress.outcome import Outcome, Wrong

Array = np.ndarray[Any, Any]
WHAT = "random calls of every public function and module, against arithmetic of fifty digits"
_STEP = mpf("1e-15")  # of a central difference of fifty digits; the map can be so steep that 1e-5 is too large
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 3e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
_DTYPES = (torch.float64, torch.float64, torch.float32, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Orders:
    """The orders q and r and the temperature T₀, the same for all rows, and what they give to fifty digits."""

    q: float
    r: float
    temperature: float

    def map(self, logits: Array) -> Array:
        """p* of logits [rows, classes], which are finite or −∞."""
        p = np.zeros_like(logits)
        for own, row in zip(p, logits, strict=True):
            finite = np.isfinite(row)
            own[finite] = reference.sharmix(row[finite], self.q, self.r, self.temperature)
        return p

    def slope(self, logits: Array, along: Array, **by: float) -> Array:
        """The derivative of p* of finite logits along a direction, and by the orders in `by` times their factors."""
        with mp.workdps(reference.DIGITS):
            ends = [
                [
                    reference.sharmix(
                        [mpf(v) + step * mpf(d) for v, d in zip(row, own, strict=True)],
                        *(mpf(value) + step * by.get(name, 0) for name, value in asdict(self).items()),
                    )
                    for row, own in zip(logits, along, strict=True)
                ]
                for step in (_STEP, -_STEP)
            ]
            differences = np.array(ends[0], dtype=object) - np.array(ends[1], dtype=object)
            return (differences / (2 * _STEP)).astype(float)

    def entropy(self, p: Array) -> Array:
        """H_{q,r} of each row."""
        return np.array([float(reference.entropy(shares(row), self.q, self.r)) for row in p])

    def loss(self, logits: Array, targets: Array) -> Array:
        """L(z, y) of each row, for targets [rows, classes] on the simplex, 0 where the logit is −∞."""
        losses = []
        for row, y in zip(logits, targets, strict=True):
            finite = np.isfinite(row)
            loss = reference.fenchel_young_loss(row[finite], shares(y[finite]), self.q, self.r, self.temperature)
            losses.append(float(loss))
        return np.array(losses)


def shares(p: Array) -> list[mpf]:
    """A distribution that adds up to 1 to fifty digits: next to q = 1, the rounding of its sum would show."""
    with mp.workdps(reference.DIGITS):
        exact = [mpf(v) for v in p]
        return [v / mp.fsum(exact) for v in exact]


class RandomCall:
    """Random logits and orders of one trial."""

    def __init__(self, number: int) -> None:
        self.generator = np.random.default_rng(number)
        self.dtype: torch.dtype = self.one_of(_DTYPES)
        self.shape = tuple(int(length) for length in self.generator.integers(0, 4, self.generator.integers(0, 3)))
        self.classes = int(self.one_of((1, 2, 3, 7, 18, 33)))
        self.orders = self.random_orders()
        self.logits = self.random_logits()

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.generator.integers(len(choices)))]

    def random_orders(self) -> Orders:
        """Orders a little inside the concave region, where no derivative of p is above some hundreds."""
        q = float(self.one_of((1.0, 1.0 + 1e-9, 1.01, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, self.generator.uniform(1, 4))))
        least = 2 - 1 / q + 0.05
        r = float(self.one_of((q, least, least + 0.3, 2.0, 3.0, self.generator.uniform(least, 5))))
        temperature = float(self.one_of((1.0, 1.0, 0.5, 3.0, 10.0 ** self.generator.uniform(-2, 2))))
        return Orders(q, max(r, least), temperature)

    def random_logits(self) -> Tensor:
        """Logits [..., classes] in any memory layout, now and then with ties or −∞."""
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
    def order_arguments(self) -> tuple[Any, ...]:
        """q, r and T₀ as numbers, as tensors, or one for each row."""
        values = (self.orders.q, self.orders.r, self.orders.temperature)
        kind = self.one_of(("numbers", "tensors", "rows"))
        if kind == "numbers":
            return values
        shape = () if kind == "tensors" else (*self.shape, 1)
        return tuple(torch.full(shape, value, dtype=torch.float64) for value in values)

    def targets(self) -> tuple[Tensor, Array]:
        """A class with a finite logit for each row, and the same classes as distributions."""
        finite = np.isfinite(self.rows)
        classes = [int(self.one_of(np.flatnonzero(row))) for row in finite]
        one_hot = np.eye(self.classes)[classes].reshape(-1, self.classes)
        dtype = self.one_of((torch.int64, torch.int32, torch.uint8))
        return torch.tensor(classes, dtype=dtype).reshape(self.shape), one_hot

    def soft(self) -> tuple[Tensor, Array]:
        """Targets that are distributions, which are 0 where the logit is −∞."""
        weights = np.where(np.isfinite(self.rows), self.generator.random(self.rows.shape) ** 3 + 1e-3, 0)
        y = weights / weights.sum(-1, keepdims=True)
        return torch.tensor(y).reshape(self.logits.shape), y


def check(name: str, found: Tensor, expected: Array, dtype: torch.dtype, scale: float = 1.0) -> None:
    """Raise Wrong if a tensor differs from the reference by more than rounding in its dtype."""
    numbers = found.detach().double().resolve_neg().numpy().reshape(-1)
    reference = np.asarray(expected, dtype=np.float64).reshape(-1)
    if numbers.shape != reference.shape:
        raise Wrong(f"{name} has {numbers.shape}, not {reference.shape} numbers")
    allowed = _TOLERANCE[dtype] * (scale + np.abs(reference))
    error = np.where(numbers == reference, 0, np.abs(numbers - reference))
    if not (error <= allowed).all():  # true for NaN too
        place = int(np.argmax(np.where(np.isnan(error), np.inf, error / allowed)))
        raise Wrong(f"{name}[{place}] is {numbers[place]!r}, not {reference[place]!r}")


def try_map(call: RandomCall) -> None:
    orders, z = call.orders, call.logits
    dim = int(call.generator.integers(-z.dim(), z.dim()))
    arguments = call.order_arguments if dim in (-1, z.dim() - 1) else (orders.q, orders.r, orders.temperature)
    moved = z.movedim(-1, dim)
    p = sharmix.sharmix(moved, *arguments, dim=dim)
    if p.shape != moved.shape or p.dtype != z.dtype:
        raise Wrong(f"sharmix gives {p.dtype} {tuple(p.shape)} for {z.dtype} {tuple(moved.shape)}")
    p = p.movedim(dim, -1)
    expected = orders.map(call.rows)
    check("sharmix", p, expected, z.dtype)
    if ((p < 0) | (p > 1)).any() or ((p.double().sum(-1) - 1).abs() > 0.01).any():
        raise Wrong("sharmix leaves the simplex")
    if z.dtype == torch.float64 and (p.numpy().reshape(expected.shape)[expected == 0] > 1e-9).any():
        raise Wrong("sharmix has a class too many in its support")
    check("support_size", sharmix.support_size(p), (p > 0).sum(-1).numpy(), torch.float64)


def try_special_maps(call: RandomCall) -> None:
    z, rows, q = call.logits, call.rows, call.orders.q
    check("entmax", sharmix.entmax(z, alpha=q), Orders(q, q, 1.0).map(rows), z.dtype)
    check("sparsemax", sharmix.sparsemax(z), Orders(2.0, 2.0, 1.0).map(rows), z.dtype)
    modules = ((sharmix.Softmax(), (1.0, 1.0)), (sharmix.Sparsemax(), (2.0, 2.0)), (sharmix.Entmax(alpha=q), (q, q)))
    for module, (first, second) in modules:
        check(repr(module), module(z), Orders(first, second, 1.0).map(rows), z.dtype)
    for learned in (False, True):
        start = min(max(q, 1.01), 1.9)
        module = sharmix.SharMiX(start, 1.95, learned=learned)
        held = (order.item() if learned else order for order in (module.q, module.r))  # learned orders are float32
        check(repr(module), module(z), Orders(*held, 1.0).map(rows), z.dtype)
    alpha = max(q, 1.1)
    weight = np.maximum((alpha - 1) * rows - 0.3, 0) ** (1 / (alpha - 1))
    if weight.max(initial=0) < torch.finfo(z.dtype).max:
        check("alpha_relu", sharmix.alpha_relu(z, alpha=alpha, tau=0.3), weight, z.dtype, 1e-3)


def try_entropy(call: RandomCall) -> None:
    orders = call.orders
    p = orders.map(call.rows).astype(np.float64)
    found = sharmix.sharma_mittal_entropy(torch.tensor(p).reshape(call.logits.shape), orders.q, orders.r)
    check("sharma_mittal_entropy", found, orders.entropy(p), torch.float64, 10.0)


def try_class_loss(call: RandomCall) -> None:
    orders, z = call.orders, call.logits.detach().clone().requires_grad_()
    y, one_hot = call.targets()
    rows = orders.loss(call.rows, one_hot)
    counted = call.generator.random(rows.shape) < 0.8
    ignored = y.clone().long()
    ignored[torch.tensor(~counted).reshape(call.shape)] = -100
    reduction = call.one_of(("mean", "sum", "none"))
    found = sharmix.fenchel_young_loss(z, ignored, *call.order_arguments, reduction=reduction)
    kept = np.where(counted, rows, 0)
    divisor = max(counted.sum(), 1) if reduction == "mean" else 1
    scale = 1.0 + float(np.abs(np.where(np.isfinite(call.rows), call.rows, 0)).max(initial=0))
    loss_dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    if reduction == "none":
        check("loss of each row", found, kept, loss_dtype, scale)
    elif counted.any():
        check(f"loss, {reduction}", found, kept.sum() / divisor, loss_dtype, scale * len(rows))
    elif reduction == "mean" and not found.isnan():
        raise Wrong(f"the mean over no rows is {found}, not NaN as torch has it")
    (gradient,) = torch.autograd.grad(found.sum(), z)
    error = (orders.map(call.rows) - one_hot) * counted[:, None] / divisor
    check(f"gradient of the loss, {reduction}", gradient, error, z.dtype)


def try_other_losses(call: RandomCall) -> None:
    """Soft and smoothed targets, class weights, and the losses of the function, the module and the linear layer."""
    orders, z = call.orders, call.logits.detach().clone()
    if not np.isfinite(call.rows).all():
        z = torch.where(z == -torch.inf, -1, z)
    rows = z.double().reshape(-1, call.classes).numpy()
    scale = 1.0 + float(np.abs(rows).max(initial=0))
    dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    soft, y = call.soft()
    y = soft.double().reshape(y.shape).numpy()
    given = (orders.q, orders.r, orders.temperature)
    found = sharmix.fenchel_young_loss(z, soft, *given, reduction="none")
    check("soft loss", found, orders.loss(rows, y), dtype, scale)
    labels, one_hot = call.targets()
    smoothing = float(call.generator.random())
    smoothed = (1 - smoothing) * one_hot + smoothing / call.classes
    found = sharmix.fenchel_young_loss(z, labels, *given, label_smoothing=smoothing, reduction="none")
    check("smoothed loss", found, orders.loss(rows, smoothed), dtype, scale)
    weight = call.generator.random(call.classes) + 0.1
    found = sharmix.fenchel_young_loss(z, labels, *given, weight=torch.tensor(weight), reduction="none")
    check("weighted loss", found, orders.loss(rows, one_hot) * (one_hot * weight).sum(-1), dtype, scale)
    single = Orders(orders.q, orders.q, 1.0)
    expected = single.loss(rows, one_hot)
    functions = (sharmix.entmax_loss(z, labels, alpha=orders.q, reduction="none"),
                 sharmix.Entmax(alpha=orders.q).loss(z, labels, reduction="none"))  # fmt: skip
    for loss in functions:
        check("entmax_loss", loss, expected, dtype, scale)
    if z.dim() > 1 and len(rows):
        criterion = sharmix.EntmaxLoss(alpha=orders.q, reduction="sum")
        check("EntmaxLoss", criterion(z.movedim(-1, 1), labels), expected.sum(), dtype, scale * len(rows))
    eye = torch.eye(call.classes, dtype=z.dtype)
    if len(rows):
        found = sharmix.linear_fenchel_young_loss(z, eye, None, labels, *given, reduction="sum")
        check("linear loss", found, orders.loss(rows, one_hot).sum(), dtype, scale * len(rows))


def try_derivatives(call: RandomCall) -> None:
    """The map's derivatives against central differences of the reference, inside of the support."""
    orders = call.orders
    if call.classes < 2 or not call.rows.size or not np.isfinite(call.rows).all():
        return
    z = call.logits.double().detach().clone().requires_grad_()
    values = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in asdict(orders).values()]
    direction = call.generator.normal(size=call.rows.shape)
    p = sharmix.sharmix(z, *values)
    found = torch.autograd.grad(p, [z, *values], torch.tensor(direction).reshape(p.shape))
    at = orders.map(call.rows)
    if at[at > 0].min() < 1e-3:
        return  # near the edge of the support, or the argmax jumps nearby
    scale = 1 / orders.temperature
    tolerance = torch.bfloat16  # 1e-2, because the map is steep in places; a wrong formula is further off
    check("derivative by the logits", found[0], orders.slope(call.rows, direction), tolerance, scale)
    for place, name in enumerate(asdict(orders)):
        slope = (orders.slope(call.rows, np.zeros_like(direction), **{name: 1.0}) * direction).sum()
        check(f"derivative by {name}", found[1 + place], slope, tolerance, (1 + scale) * math.sqrt(direction.size))


TRIALS = (try_map, try_special_maps, try_entropy, try_class_loss, try_other_losses, try_derivatives)


def trial(number: int) -> str | None:
    """Do one trial. Returns its failure: a wrong number, or an error in a call that is allowed."""
    function, call = TRIALS[number % len(TRIALS)], RandomCall(number)
    try:
        function(call)
    except Exception as error:
        about = f"{function.__name__}, {call.orders}, {call.dtype}, {(*call.shape, call.classes)}"
        return f"{type(error).__name__.lower()}: trial({number}), {about}: {error}"
    return None


def run(seconds: float, seed: int, most: int = 10**9) -> Outcome:
    """Do trials one after the other until the time is over, or their number is reached."""
    faulthandler.enable()  # prints where a crash happened
    torch.set_num_threads(1)
    outcome, stop = Outcome(WHAT), time.monotonic() + seconds
    while outcome.tried < most and (outcome.tried == 0 or time.monotonic() < stop):
        failure = trial(seed * 10**9 + outcome.tried)
        outcome.tried += 1
        outcome.survived += failure is None
        if failure is not None:
            outcome.failures.append(failure)
            outcome.wrong += failure.startswith("wrong")
    return outcome
