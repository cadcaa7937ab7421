"""The sparse maps, their losses and their entropy, as functions."""

from numbers import Integral
from typing import Any, Literal, Unpack

import torch
from torch import Tensor

from sharmix._arguments import (
    HALF,
    Order,
    checked,
    checked_dim,
    checked_memory,
    classes_last,
    one_value,
    per_row,
    widened,
)
from sharmix._caller import current_caller
from sharmix._dtensor import is_dtensor, loss_of_rows, map_of_rows
from sharmix._export import check_exportable, exportable_map
from sharmix._fenchel_young import LossOptions, Reduction, composed_class_loss
from sharmix._fenchel_young import fenchel_young_loss as loss_of_regulariser
from sharmix._mathematics.entropy import sharma_mittal_entropy as sharma_mittal_entropy
from sharmix._operators import alpha_relu as alpha_relu_operators
from sharmix._operators import autograd
from sharmix._operators.backend import backend
from sharmix._operators.orders import solving_dtype

Nonconcave = Literal["global", "error"]
MaskedRows = Literal["nan", "zeros"]

USUAL_R = float("1.5")  # the default of r beside `dim`; an object of its own, which tells whether r was given


def sharmix(
    logits: Tensor,
    q: Order = 1.25,
    r: Order = USUAL_R,
    temperature: Order = 1.0,
    *,
    dim: int = -1,
    nonconcave: Nonconcave = "global",
    masked_rows: MaskedRows = "nan",
) -> Tensor:
    """The Sharma–Mittal map, from logits to probabilities that can be exactly 0.

        p* = argmax over the simplex of  p·z + (T₀/q) H_{q,r}(p)

    H_{q,r} is the Sharma–Mittal entropy (see `sharma_mittal_entropy`) and R_q the Rényi entropy. The map is α-entmax
    with α = q, at a temperature T = T₀ exp((q − r) R_q(p*)) that depends on the entropy of the output. Three special
    cases are exact: r = q is α-entmax, (q, r) = (2, 2) is sparsemax, and (1, 1) is softmax.

    Args:
        logits: z, floating point, of any shape. A logit of −inf gets probability 0. A row that holds a NaN or +inf
            becomes a row of NaN. Half precision is computed in float32.
        q: 1 ≤ q ≤ 1000; the output is sparser for a larger q. A number, or a tensor that broadcasts against the logits
            with size 1 along `dim`.
        r: r > 0, with (r − 1) log(classes) ≤ 500; the output is sharper for a larger r. A number, or a tensor as for q.
        temperature: T₀ > 0, in units of the logits, and no less than 2.23e-308, below which 1/T₀ overflows. A number,
            or a tensor as for q.
        dim: the dimension that holds the classes.
        nonconcave: what happens where r < 2 − 1/q. There the objective can have several maxima, and the map can jump.
            `global` returns the highest maximum, found by branch and bound; `error` raises ValueError. For q > 2 and r
            within 1e-6 of 2 − 1/q the result may be another maximum, whose objective is within 1e-10 T₀ of the highest.
        masked_rows: the output for a row whose logits are all −inf: `nan`, as softmax gives, or `zeros`.

    Returns:
        p*, with the shape and dtype of `logits`, contiguous in memory. Its error is about as large as the change of p*
        when the arguments are rounded. Rounding changes p* much in two cases: where r is within 1e-6 of 2 − 1/q, and
        where q > 2 and two nearly equal logits are about to join the support (the classes of probability above 0).
        The derivatives with respect to logits, q, r and temperature are exact functions of p*, and can be
        differentiated again. Forward mode within forward mode is the exception: it raises NotImplementedError.

    Raises:
        TypeError: the logits are not floating-point numbers.
        ValueError: a value or shape of q, r or temperature is not allowed, there are 2³¹ classes or more, or
            `nonconcave="error"` and r < 2 − 1/q. On a GPU the values in a tensor are not checked, and the rows of such
            an order are NaN, unless the environment has SHARMIX_CHECK=1.

    Source: the SharMiX paper's Eq. (2); solved in docs/math.md, section 2.

    Example:
        >>> sharmix.sharmix(torch.tensor([2.0, 1.0, -1.0]), q=1.5, r=2.0)
        tensor([0.8741, 0.1259, 0.0000])
    """
    if isinstance(logits, Tensor) and logits.dim() == 0:  # one class, as torch has it
        options: Any = {"dim": dim, "nonconcave": nonconcave, "masked_rows": masked_rows}
        return sharmix(logits[None], q, r, temperature, **options)[0]
    z = _in_kernel_dtype(classes_last(logits, "logits", dim))
    masked = None
    if masked_rows == "zeros":
        masked = (z == -torch.inf).all(-1, keepdim=True)
        z = torch.where(masked, 0, z)
    elif masked_rows != "nan":
        raise ValueError(f"masked_rows={masked_rows!r} is not allowed; it must be 'nan' or 'zeros'")
    orders = orders_of(logits, dim, q, r, temperature)
    caller = current_caller()
    if caller.is_compiled and caller.exports_to_onnx:
        check_exportable(q, r, temperature)
        p = exportable_map(z, *orders)
    elif is_dtensor(z):
        p = map_of_rows(autograd.solved, z, orders, nonconcave, caller)
    else:
        p = autograd.solved(z, orders, nonconcave, caller)
    p = p if masked is None else torch.where(masked, 0, p)
    p = p if dim in (-1, logits.dim() - 1) else p.movedim(-1, dim).clone(memory_format=torch.contiguous_format)
    return p if p.dtype == logits.dtype else p.to(logits.dtype)


def entmax(logits: Tensor, *, alpha: Order = 1.5, dim: int = -1, masked_rows: MaskedRows = "nan") -> Tensor:
    """α-entmax, which leads from softmax (α = 1) over 1.5-entmax to sparsemax (α = 2) and further.

        p* = argmax over the simplex of  p·z + (1 − Σ pᵢ^α)/(α(α − 1))

    The order α, 1 ≤ α ≤ 1000 with (α − 1) log(classes) ≤ 500, is a number or a tensor as q of `sharmix`. All else is as
    for `sharmix`.

    Source: Peters, Niculae and Martins (2019); SharMiX at q = r = α.

    Example:
        >>> sharmix.entmax(torch.tensor([2.0, 1.0, -1.0]))
        tensor([0.8307, 0.1693, 0.0000])
    """
    order = checked(alpha, "alpha")
    return sharmix(logits, order, order, dim=dim, masked_rows=masked_rows)


def sparsemax(logits: Tensor, dim: int = -1, *, masked_rows: MaskedRows = "nan") -> Tensor:
    """Sparsemax, the point of the simplex that is nearest to the logits.

        p* = argmin over the simplex of  ‖p − z‖²

    Arguments, returns and raises are as for `sharmix`.

    Source: Martins and Astudillo (2016); SharMiX at q = r = 2.

    Example:
        >>> sharmix.sparsemax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    return sharmix(logits, 2.0, 2.0, dim=dim, masked_rows=masked_rows)


def normmax(logits: Tensor, *, alpha: Order = 2.0, dim: int = -1, masked_rows: MaskedRows = "nan") -> Tensor:
    """α-normmax, the map whose entropy is 1 minus a norm of the probabilities.

        p* = argmax over the simplex of  p·z + 1 − ‖p‖_α

    The order α, 1 < α ≤ 1000, is a number or a tensor as q of `sharmix`. All else is as for `sharmix`.

    Source: Blondel, Martins and Niculae (2020), section 4.3; SharMiX at q = α, r = 2 − 1/α, T₀ = α − 1. This r is
    the least at which the objective is concave (docs/math.md, section 7).

    Example:
        >>> sharmix.normmax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6890, 0.3110, 0.0000])
    """
    return sharmix(logits, *normmax_orders(alpha), dim=dim, masked_rows=masked_rows)


def normmax_orders(alpha: Order) -> tuple[Order, Order, Order]:
    """(q, r, T₀) of α-normmax, float64 where the device has it: a rounded r could be below 2 − 1/q, and not concave."""
    order = checked(alpha, "alpha of normmax")
    order = order.to(solving_dtype(order.device)) if isinstance(order, Tensor) else order
    return order, 2 - 1 / order, order - 1


def support_size(probabilities: Tensor, dim: int = -1) -> Tensor:
    """The number of classes with a probability above 0: |{i : pᵢ > 0}|.

    The classes are along `dim`. The result is int64, with the shape of `probabilities` without `dim`.

    Example:
        >>> sharmix.support_size(sharmix.sparsemax(torch.tensor([1.0, 0.5, -1.0])))
        tensor(2)
    """
    return (probabilities > 0).sum(checked_dim(dim))


def alpha_relu(logits: Tensor, *, alpha: float = 1.5, tau: Order = 0.3) -> Tensor:
    """The α-ReLU map, elementwise: α-entmax with a constant threshold τ.

        pᵢ = [(α − 1) zᵢ − τ]₊^{1/(α−1)}

    Args:
        logits: z, floating point, of one dimension or more. Half precision is computed in float32.
        alpha: α > 1.
        tau: τ, the threshold of (α − 1) z; a number, or a tensor of one element.

    Returns, Raises: as `sharmix`, but the non-negative weights need not sum to 1, nor be contiguous.

    Source: Tezekbayev et al., Speeding Up Entmax, Eq. (1).

    Example:
        >>> sharmix.alpha_relu(torch.tensor([2.0, 1.0, -1.0]))
        tensor([0.4900, 0.0400, 0.0000])
    """
    alpha, tau = _threshold(alpha, tau)
    z = widened(classes_last(logits, "logits", -1))
    tau = tau.to(z.dtype) if isinstance(tau, Tensor) else tau
    return alpha_relu_operators.weights(z, alpha, tau).to(logits.dtype)


def _threshold(alpha: Order, tau: Order) -> tuple[Any, Order]:
    alpha, tau = checked(alpha, "alpha of alpha-ReLU"), one_value(tau, "tau")
    if isinstance(tau, Tensor) and not tau.is_floating_point():
        raise TypeError(f"tau must be a number or a floating-point tensor, got {tau.dtype}")
    return alpha, checked_memory(tau) if isinstance(tau, Tensor) else checked(tau, "tau")


def _in_kernel_dtype(logits: Tensor) -> Tensor:
    """The logits, with half precision converted to float32; Triton's kernels read half precision themselves."""
    return logits if logits.dtype not in HALF or backend(logits.device) == "triton" else logits.float()


def orders_of(values: Tensor, dim: int, q: Order, r: Order, temperature: Order) -> autograd.Orders:
    """q, r and T₀ in the form that the operators expect: numbers, or one value for each row of `values`."""
    if r is USUAL_R and dim == -1 and isinstance(q, Integral) and not isinstance(q, bool):  # as in torch.softmax(z, 1)
        raise TypeError(f"q={q}, a whole number without r, could be meant as a dimension; write q={q}.0, or dim={q}")
    return (
        q if type(q) is float else per_row(values, dim, q, "q"),
        r if type(r) is float else per_row(values, dim, r, "r"),
        temperature if type(temperature) is float else per_row(values, dim, temperature, "temperature"),
    )


class SharmaMittalRegulariser:
    """Ω(p) = −(T₀/q) H_{q,r}(p) over the simplex; arguments as for `fenchel_young_loss`."""

    normalised = True

    def __init__(self, q: Order, r: Order, temperature: Order, nonconcave: Nonconcave) -> None:
        self.orders = q, r, temperature
        self.nonconcave = nonconcave

    def entropy(self, probabilities: Tensor) -> Tensor:
        """(T₀/q) H_{q,r}(p) of probabilities [..., classes], broadcast against the rows of q, r and T₀."""
        q, r, temperature = self.orders
        tensors = [order for order in self.orders if isinstance(order, Tensor)]
        # not by torch.broadcast_shapes, which imports sympy
        rows = torch.broadcast_tensors(probabilities[..., :1], *tensors)[0].shape[:-1]  # type: ignore[no-untyped-call]
        weight = temperature / q
        weight = weight.squeeze(-1) if isinstance(weight, Tensor) and weight.dim() else weight
        return weight * sharma_mittal_entropy(probabilities.expand(*rows, -1), q, r)

    def conjugate(self, logits: Tensor) -> Tensor:
        """Ω*(z), [...], of logits [..., classes] minus the largest logit of their row."""
        orders = orders_of(logits, -1, *self.orders)
        return autograd.solved(logits, orders, self.nonconcave, current_caller(), True)[1]

    def class_loss(self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction) -> Tensor:
        caller = current_caller()
        if not caller.is_plain and (caller.needs_composition or backend(logits.device) == "torch"):
            return composed_class_loss(self, widened(logits), targets, ignore_index, reduction)
        orders = orders_of(logits, -1, *self.orders)
        return autograd.class_loss(logits, targets, orders, ignore_index, reduction, caller, self.nonconcave)


class AlphaReLURegulariser:
    """Ω(p) = Σ pⱼ^α/(α(α−1)) + τ Σ pⱼ/(α−1) over non-negative p."""

    normalised = False

    def __init__(self, alpha: float, tau: Order) -> None:
        self.alpha, self.tau = _threshold(alpha, tau)

    def entropy(self, probabilities: Tensor) -> Tensor:
        alpha, tau = self.alpha, self.tau
        powers = alpha_relu_operators.power(probabilities, alpha).sum(-1)
        negative: Tensor = powers / (alpha * (alpha - 1)) + tau / (alpha - 1) * probabilities.sum(-1)
        return -negative

    def conjugate(self, logits: Tensor) -> Tensor:
        alpha = self.alpha
        tau = self.tau.to(logits.dtype) if isinstance(self.tau, Tensor) else self.tau
        return alpha_relu_operators.power((alpha - 1) * logits - tau, alpha / (alpha - 1)).sum(-1) / alpha

    def class_loss(self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction) -> Tensor:
        inputs = logits, targets, self.alpha, self.tau
        if not alpha_relu_operators.has_node(current_caller(), *inputs):
            return composed_class_loss(self, logits, targets, ignore_index, reduction)
        return alpha_relu_operators.ClassLoss.apply(*inputs, ignore_index, reduction)


def fenchel_young_loss(
    logits: Tensor,
    targets: Tensor,
    q: Order = 1.25,
    r: Order = 1.5,
    temperature: Order = 1.0,
    *,
    nonconcave: Nonconcave = "global",
    **options: Unpack[LossOptions],
) -> Tensor:
    """The Fenchel–Young loss of the Sharma–Mittal map.

        L(z, y) = p*·z + (T₀/q) H_{q,r}(p*) − z·y − (T₀/q) H_{q,r}(y),     p* = sharmix(z, q, r, T₀)

    L ≥ 0, and L = 0 exactly where p* = y. The gradient with respect to the logits is p* − y. The gradient with respect
    to q, r and T₀ is the derivative of T₀ H_{q,r}/q at p* minus its derivative at y (envelope theorem). At
    (q, r) = (1, 1) and T₀ = 1 the loss is cross-entropy minus the entropy of y.

    Args:
        logits: z, [..., classes], floating point. For half precision the loss is computed and returned in float32.
        targets: y, class indices [...] of an integer type, or probabilities with the shape of the logits. Each row of
            probabilities is divided by its sum. The sum may differ from 1 by 2⁻⁸, as it can after rounding to bfloat16.
        q, r, temperature, nonconcave: as for `sharmix`, with the classes last.
        **options: `weight` (one for each class), `ignore_index` (−100), `label_smoothing` (0) and `reduction` (`mean`,
            `sum` or `none`), with the meaning that `torch.nn.CrossEntropyLoss` gives them; see `LossOptions`.

    Returns:
        The loss, a scalar, or [...] with `reduction="none"`.

    Raises:
        TypeError: the logits or targets are of the wrong type.
        ValueError: a value, a label or a shape is not allowed. On a GPU the host does not wait to check values in
            tensors: the loss and the gradient of a row with such a label, order or distribution are NaN. With
            SHARMIX_CHECK=1 in the environment it waits, and raises.

    Source: Blondel, Martins and Niculae (2020); docs/math.md, section 5. In the SharMiX paper's appendix B.1 the
    term −z·y is missing.

    Example:
        >>> z, y = torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0])
        >>> sharmix.fenchel_young_loss(z, y, q=1.5, r=2.0)
        tensor(0.0455)
    """
    z = _in_kernel_dtype(classes_last(logits, "logits", -1))
    if is_dtensor(z):
        orders = {"q": q, "r": r, "temperature": temperature}
        return loss_of_rows(fenchel_young_loss, z, targets, orders, nonconcave=nonconcave, **options)
    return loss_of_regulariser(SharmaMittalRegulariser(q, r, temperature, nonconcave), z, targets, **options)


def entmax_loss(logits: Tensor, targets: Tensor, *, alpha: Order = 1.5, **options: Unpack[LossOptions]) -> Tensor:
    """The Fenchel–Young loss of α-entmax.

        L(z, y) = p*·z + H_α(p*) − z·y − H_α(y),      H_α(p) = (1 − Σ pᵢ^α)/(α(α − 1))

    The order α is as for `entmax`, all else as for `fenchel_young_loss`.

    Source: Peters, Niculae and Martins (2019).

    Example:
        >>> sharmix.entmax_loss(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor(0.0617)
    """
    order = checked(alpha, "alpha")
    return fenchel_young_loss(logits, targets, order, order, **options)


def sparsemax_loss(logits: Tensor, targets: Tensor, **options: Unpack[LossOptions]) -> Tensor:
    """The Fenchel–Young loss of sparsemax.

        L(z, y) = ½‖y − z‖² − ½‖p* − z‖²

    Arguments, returns and raises are as for `fenchel_young_loss`.

    Source: Martins and Astudillo (2016).

    Example:
        >>> sharmix.sparsemax_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0625)
    """
    return fenchel_young_loss(logits, targets, 2.0, 2.0, **options)


def normmax_loss(logits: Tensor, targets: Tensor, *, alpha: Order = 2.0, **options: Unpack[LossOptions]) -> Tensor:
    """The Fenchel–Young loss of α-normmax.

        L(z, y) = p*·z − ‖p*‖_α − z·y + ‖y‖_α

    The order α is as for `normmax`, all else as for `fenchel_young_loss`.

    Source: Blondel, Martins and Niculae (2020), section 4.3.

    Example:
        >>> sharmix.normmax_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0886)
    """
    return fenchel_young_loss(logits, targets, *normmax_orders(alpha), **options)


def alpha_relu_loss(
    logits: Tensor, targets: Tensor, *, alpha: float = 1.5, tau: Order = 0.3, **options: Unpack[LossOptions]
) -> Tensor:
    """The loss of α-ReLU. Its gradient with respect to the logits is p − y, with p = α-ReLU(z).

        ℓ(z, y) = Σ uⱼ^{α/(α−1)}/α − z·y + τ Σ yⱼ/(α−1) + Σ yⱼ^α/(α(α−1)),      u = [(α−1) z − τ]₊

    ℓ ≥ 0, and ℓ = 0 exactly where α-ReLU(z) = y. It is the Fenchel–Young loss of
    Ω(p) = Σ pⱼ^α/(α(α−1)) + τ Σ pⱼ/(α−1) over non-negative p. α and τ are as for `alpha_relu`, all else as for
    `fenchel_young_loss`.

    Source: docs/math.md, section 6. The loss in the paper's Eq. (2) has another entropy, and its gradient is not p − y.

    Example:
        >>> sharmix.alpha_relu_loss(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor(0.1673)
    """
    z = widened(classes_last(logits, "logits", -1))
    if is_dtensor(z):
        return loss_of_rows(alpha_relu_loss, z, targets, {"alpha": alpha, "tau": one_value(tau, "tau")}, **options)
    return loss_of_regulariser(AlphaReLURegulariser(alpha, tau), z, targets, **options)


def alpha_relu_thresholds(logits: Tensor, alpha: float) -> Tensor:
    """The α-entmax threshold τ(z) of each row of logits, for the logits as they are, without a shift by their maximum.

        τ(z) = (α − 1) max z − (max p)^{α−1},      p = entmax(z, α)

    The threshold is NaN or infinite for a row whose α-entmax is not defined. Source: Speeding Up Entmax, section 3.1.
    """
    z = widened(classes_last(logits, "logits", -1))
    return (alpha - 1) * z.amax(-1) - entmax(z, alpha=alpha).amax(-1) ** (alpha - 1)
