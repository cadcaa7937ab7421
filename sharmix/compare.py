"""Does a sparse output help on your data? Logits of a trained network, and what each output makes of them.

python -m sharmix.compare logits.npy labels.npy
python -m sharmix.compare logits.pt labels.pt --coverage 0.95

One half of the examples, drawn at random, fits temperatures, orders and sets; the other half measures. Give examples
that the network was not trained on. Files are .npy, .npz with one array, .pt with one tensor, or .csv without a header.
"""

import argparse
import csv
import math
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import torch
from torch import Tensor

from sharmix import functional
from sharmix._operators.orders import is_concave
from sharmix._targets import check_indices, checked_classes
from sharmix.conformal import SupportPredictor

FEWEST = 20  # examples
FITTED = 1000  # calibration examples that fit temperatures and orders; more change little and take time
ORDERS = 1.25, 1.5, 1.75, 2.0  # from which SharMiX's are chosen
RESAMPLES, CONFIDENCE = 1000, 0.95  # of the bootstrap over examples
WIDTH = 79  # characters of a line
_NEVER = -100

Map = Callable[[Tensor, float], Tensor]  # from logits and a temperature to probabilities


class Output(NamedTuple):
    """An output as measured on each example; None for what it has not."""

    name: str
    probabilities: Tensor | None  # [examples, classes]
    sets: Tensor | None  # bool [examples, classes]


class Interval(NamedTuple):
    """A mean over examples, and its interval by the bootstrap."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 3 if abs(self.mean) < 10 else 1
        return f"{self.mean:.{digits}f} ±{(self.high - self.low) / 2:.{digits}f}"


def compare(logits: Tensor, labels: Tensor, coverage: float = 0.9, seed: int = 0) -> str:
    """A table of calibrated outputs and candidate sets of logits, and one sentence of advice.

    Temperatures and SharMiX's orders are those of the least Brier score Σₖ (pₖ − yₖ)², and sets are split conformal
    ones of the coverage that is asked for, both of one half of the examples. The other half gives the numbers, with
    half of the width of their 95 % intervals.

    Args:
        logits: [examples, classes], of examples that the network was not trained on.
        labels: class indices [examples].
        coverage: the least probability that a set contains the label.
        seed: of the halves and of the bootstrap.

    Raises:
        TypeError, ValueError: the shapes, a label or a logit is not allowed, or there are too few examples.

    Source: temperature scaling, Guo et al. (2017); LAC, Sadinle et al. (2019); APS, Romano et al. (2020); supports as
    sets, docs/math.md, section 8.
    """
    check_indices(logits, labels, "logits")
    if len(logits) < FEWEST or not logits.isfinite().all():
        problem = f"{len(logits)} examples are too few, they must be at least {FEWEST}"
        raise ValueError(problem if len(logits) < FEWEST else "the logits hold a number that is not finite")
    labels = checked_classes(labels.long(), logits.shape[-1], _NEVER)
    generator = torch.Generator().manual_seed(seed)
    fitting, measuring = torch.randperm(len(logits), generator=generator).tensor_split(2)
    z, y = logits.float(), labels
    fitted = z[fitting], y[fitting]
    outputs = [*_softmax_outputs(fitted, z[measuring], coverage), *_sparse_outputs(fitted, z[measuring], coverage)]
    return _report(outputs, z[measuring].argmax(-1) == y[measuring], y[measuring], coverage, generator)


def _softmax_outputs(fitted: tuple[Tensor, Tensor], logits: Tensor, coverage: float) -> list[Output]:
    """Softmax at its temperature, and the sets made from it: the k largest, LAC and APS."""
    z, y = fitted
    temperature, _ = _fitted(lambda z, t: (z / t).softmax(-1), fitted)
    own, p = (z / temperature).softmax(-1), (logits / temperature).softmax(-1)
    scores = {  # of each class, the less the more it fits
        "softmax, k largest": lambda p: p.argsort(dim=-1, descending=True, stable=True).argsort(-1).double(),
        "softmax, LAC": lambda p: 1 - p,
        "softmax, APS": _mass_before,
    }
    sets = []
    for name, score in scores.items():
        most = _quantile(score(own).gather(-1, y[:, None]).squeeze(-1), coverage)
        sets.append(Output(name, None, (score(p) <= most) | (p == p.amax(-1, keepdim=True))))
    return [Output(f"softmax, T {temperature:.3g}", p, None), *sets]


def _mass_before(p: Tensor) -> Tensor:
    """The probability of a class and of all that are more probable."""
    ordered, order = p.sort(-1, descending=True)
    return torch.empty_like(p).scatter_(-1, order, ordered.cumsum(-1))


def _quantile(scores: Tensor, coverage: float) -> float:
    """The ⌈(n + 1) coverage⌉-th smallest score; infinite if there are fewer."""
    rank = math.ceil((len(scores) + 1) * coverage)
    return scores.sort().values[rank - 1].item() if rank <= len(scores) else math.inf


def _sparse_outputs(fitted: tuple[Tensor, Tensor], logits: Tensor, coverage: float) -> list[Output]:
    """Sparsemax, 1.5-entmax and SharMiX of the best orders, each at its temperature, and their supports as sets."""
    pairs = [(q, r) for q, r in product(ORDERS, ORDERS) if is_concave(q, r)]
    fits = {pair: _fitted(_sharmix(*pair), fitted) for pair in pairs}
    best = min(pairs, key=lambda pair: fits[pair][1])
    named = {"sparsemax": (2.0, 2.0), "1.5-entmax": (1.5, 1.5), f"SharMiX ({best[0]:g}, {best[1]:g})": best}
    outputs = []
    for name, (q, r) in named.items():
        temperature = float(SupportPredictor(q, r).calibrate(*fitted, coverage).temperature)  # type: ignore[arg-type]
        supports = _sharmix(q, r)(logits, temperature) > 0 if temperature < math.inf else torch.ones_like(logits) > 0
        outputs.append(Output(name, _sharmix(q, r)(logits, fits[q, r][0]), supports))
    return outputs


def _sharmix(q: float, r: float) -> Map:
    return lambda z, t: functional.sharmix(z, q, r, t)


def _fitted(output: Map, fitted: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """The temperature of the least Brier score, and that score: a grid of three decades, made finer around its best."""
    z, y = (one[:FITTED] for one in fitted)
    scores: dict[float, float] = {}
    exponents, step = torch.linspace(-1.5, 1.5, 13).tolist(), 0.25
    for _ in range(7):
        scores |= {at: _brier(output(z, 10**at), y).mean().item() for at in exponents}
        best, step = min(scores, key=lambda at: scores[at]), step / 2
        exponents = [best - step, best + step]
    return 10**best, scores[best]


def _brier(p: Tensor, labels: Tensor) -> Tensor:
    """Σₖ (pₖ − yₖ)² of each example."""
    return (p.square().sum(-1) - 2 * p.gather(-1, labels[:, None]).squeeze(-1) + 1).double()


def _bootstrap(values: Tensor, draws: Tensor) -> Interval:
    means, tail = values[draws].mean(-1), (1 - CONFIDENCE) / 2
    low, high = means.quantile(torch.tensor([tail, 1 - tail], dtype=means.dtype)).tolist()
    return Interval(values.mean().item(), low, high)


def _report(
    outputs: Sequence[Output], right: Tensor, labels: Tensor, coverage: float, generator: torch.Generator
) -> str:
    """The table and the advice. `right` tells of which examples the largest logit is the label\'s."""
    draws = torch.randint(len(labels), (RESAMPLES, len(labels)), generator=generator)
    header = ["output", "Brier", "log loss", "at 0", "set size", "coverage"]
    rows, briers, sizes = [header], {}, {}
    for name, p, sets in outputs:
        cells = [name, *["–"] * 5]
        if p is not None:
            of_label, briers[name] = p.gather(-1, labels[:, None]).squeeze(-1), _brier(p, labels)
            missed = (of_label == 0).double().mean().item()
            log_loss = "infinite" if missed else f"{-of_label.log().mean().item():.3f}"
            cells[1:4] = str(_bootstrap(briers[name], draws)), log_loss, f"{100 * missed:.1f} %"
        if sets is not None:
            covered, sizes[name] = sets.gather(-1, labels[:, None]).squeeze(-1).double(), sets.sum(-1).double()
            cells[4:] = str(_bootstrap(sizes[name], draws)), f"{covered.mean().item():.3f}"
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    about = f"{len(labels)} examples measured, as many fitted; accuracy {_bootstrap(right.double(), draws)}; sets of a "
    about += f"coverage of {coverage:g}; ± half of the {CONFIDENCE:.0%} interval over examples."
    advice = [_advice("Probabilities", briers, draws, "Brier"), _advice("Sets", sizes, draws, "classes")]
    return "\n".join([fill(about, WIDTH), "", *table, "", *(fill(line, WIDTH) for line in advice)])


def _advice(what: str, values: dict[str, Tensor], draws: Tensor, unit: str) -> str:
    """Softmax's best beside the best sparse output, the best of several."""
    names = sorted(values, key=lambda name: values[name].mean().item())
    dense = next(name for name in names if name.startswith("softmax"))
    sparse = next(name for name in names if not name.startswith("softmax"))
    gain = _bootstrap(values[sparse] - values[dense], draws)
    found = f"{gain.mean:+.3f} {unit} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if gain.high < 0:
        return f"{what}: use {sparse}, {found} from {dense}."
    verdict = "is behind" if gain.low > 0 else "is not shown to be better"
    return f"{what}: keep {dense}; {sparse}, the best of the others, {verdict} ({found})."


def read(path: Path) -> Tensor:
    """The tensor or array of a file.

    Raises:
        ValueError: the file is of another kind, or holds no numbers.
    """
    kind = path.suffix.lower()
    if kind in (".pt", ".pth"):
        found = torch.load(path, map_location="cpu", weights_only=True)
    elif kind in (".npy", ".npz"):
        import numpy

        loaded = numpy.load(path, allow_pickle=False)
        found = loaded if kind == ".npy" else loaded[loaded.files[0]] if len(loaded.files) == 1 else None
        found = None if found is None else torch.from_numpy(found)
    elif kind == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            found = torch.tensor([[float(cell) for cell in row] for row in csv.reader(file) if row])
        found = found.squeeze(-1)
    else:
        raise ValueError(f"{path}: files are .npy, .npz, .pt or .csv")
    if not isinstance(found, Tensor):
        raise ValueError(f"{path}: it must hold one tensor or array")
    return found


def main() -> None:
    """Command line: print the table of two files."""
    parser = argparse.ArgumentParser(
        prog="python -m sharmix.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logits", type=Path, help="[examples, classes]")
    parser.add_argument("labels", type=Path, help="class indices [examples], from 0")
    parser.add_argument("--coverage", type=float, default=0.9, help="of the sets; 0.9 by default")
    parser.add_argument("--seed", type=int, default=0, help="of the halves and of the bootstrap; 0 by default")
    options = parser.parse_args()
    try:
        logits, labels = read(options.logits), read(options.labels)
        whole = labels.is_floating_point() and (labels == labels.round()).all()  # as a CSV file gives them
        print(compare(logits.float(), labels.long() if whole else labels, options.coverage, options.seed))
    except (OSError, TypeError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
