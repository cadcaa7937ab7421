"""Does a sparse output help on your data? Softmax and others, of logits you have.

python -m sharmix.compare logits.npy labels.npy
python -m sharmix.compare logits.pt labels.pt --coverage 0.95

Give examples that the network was not trained on. One half of them, drawn at
random, fits temperatures, orders and sets; the other half measures. Files are
.npy, .npz with one array, .pt with one tensor, or .csv without a header.
"""

import argparse
import csv
import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import torch
from torch import Tensor

from sharmix import functional
from sharmix._operators.orders import is_concave
from sharmix.conformal import SupportPredictor, checked_labels, rank_of

FITTED = 1000  # examples at most that fit temperatures and orders; more change little and take time
ORDERS = 1.25, 1.5, 1.75, 2.0  # from which SharMiX's are chosen
LEAST = 20  # examples of a half, with fewer of which intervals mean little
STANDARD_ERRORS = 1.96  # in the margin of a 95 % interval
EXPONENTS = 1.5  # of 10, up to which temperatures are tried, both ways
WIDTH = 79  # characters of a line

Map = Callable[[Tensor, float], Tensor]  # from logits and a temperature to probabilities


class Half(NamedTuple):
    """Logits [examples, classes] and labels [examples]."""

    logits: Tensor
    labels: Tensor

    def of_labels(self, values: Tensor) -> Tensor:
        """Of values [examples, classes] those of the labels, [examples]."""
        return values.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)


class Output(NamedTuple):
    """An output of the measured half: probabilities, and sets as booleans, [examples, classes]; None if it has none."""

    name: str
    probabilities: Tensor | None
    sets: Tensor | None


class Interval(NamedTuple):
    """A mean over examples, and the margin of its 95 % interval: mean ± margin."""

    mean: float
    margin: float

    def __str__(self) -> str:
        digits = 3 if abs(self.mean) < 10 else 1
        return f"{self.mean:.{digits}f} ±{self.margin:.{digits}f}"


def compare(logits: Tensor, labels: Tensor, coverage: float = 0.9, seed: int = 0) -> str:
    """A table of outputs and of sets of classes, and one sentence of advice on probabilities.

    Temperatures and SharMiX's orders are those of the least Brier score Σₖ (pₖ − yₖ)², and sets are split conformal
    ones, both of one half of the examples. The other half gives the numbers, with the margins of their 95 % intervals
    over these examples.

    Args:
        logits: [examples, classes], of examples that the network was not trained on.
        labels: class indices [examples] of an integer type.
        coverage: the least probability that a set contains the label, 0 < coverage < 1.
        seed: of the draw of the halves.

    Raises:
        TypeError, ValueError: a shape, label, logit or the coverage is not allowed, or the examples are too few.

    Source: temperature scaling, Guo et al. (2017); LAC, Sadinle et al. (2019); APS, here without its randomisation,
    Romano et al. (2020); supports as sets, docs/math.md, section 8.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage={coverage!r} is not allowed; it must be > 0 and < 1")
    if not all(isinstance(one, Tensor) for one in (logits, labels)) or logits.dim() != 2 or logits.shape[1] < 2:
        shapes = [tuple(one.shape) if isinstance(one, Tensor) else type(one).__name__ for one in (logits, labels)]
        raise ValueError(
            f"logits must be a tensor [examples, classes], got {shapes[0]}, and labels class indices [examples], got "
            f"{shapes[1]}; if one number decides between two classes, stack 0 and this number"
        )
    logits, labels = logits.detach().cpu().float(), checked_labels(labels.cpu(), logits.detach().cpu().float())
    if not logits.isfinite().all():
        raise ValueError("the logits hold a number that is not finite in float32")
    if len(logits) and (logits >= 0).all() and ((logits.sum(1) - 1).abs() < 1e-2).all():
        raise ValueError("the logits are probabilities: each row is >= 0 and sums to 1; give what the softmax gets")
    if len(logits) < 2 * LEAST:
        raise ValueError(f"{len(logits)} examples are too few; it takes {2 * LEAST} at least")
    shuffled = torch.randperm(len(logits), generator=torch.Generator().manual_seed(seed))
    fitting, measuring = shuffled.tensor_split(2)
    fitted, measured = (Half(logits[half], labels[half]) for half in (fitting, measuring))
    rank = rank_of(len(fitting), Fraction(str(float(coverage))))
    if rank > len(fitting):
        raise ValueError(f"coverage={coverage:g} needs {rank} examples in each half, and there are {len(fitting)}")
    scale = (fitted.logits.amax(-1) - fitted.logits.mean(-1)).mean().item() or 1.0  # in units of which T is searched
    outputs = [
        *_softmax_outputs(fitted, measured.logits, rank, scale),
        *_sparse_outputs(fitted, measured.logits, coverage, scale),
    ]
    return _report(outputs, measured, coverage)


def _softmax_outputs(fitted: Half, logits: Tensor, rank: int, scale: float) -> list[Output]:
    """Softmax at its temperature, and the sets made from it: the k most probable classes, LAC and APS."""
    temperature, _ = _fitted(lambda z, t: (z / t).softmax(-1), fitted, scale)
    scores: dict[str, Callable[[Tensor], Tensor]] = {  # of each class; a set has those with a low one
        "softmax, k most probable": lambda z: z.argsort(dim=-1, descending=True, stable=True).argsort(-1).double(),
        "softmax, LAC": lambda z: -(z.double() / temperature).log_softmax(-1),
        "softmax, APS": lambda z: _mass_before((z.double() / temperature).softmax(-1)),
    }
    sets = []
    for name, score in scores.items():
        most = fitted.of_labels(score(fitted.logits)).kthvalue(rank).values
        sets.append(Output(name, None, score(logits) <= most))
    return [Output(f"softmax, T {temperature:.3g}", (logits / temperature).softmax(-1), None), *sets]


def _mass_before(p: Tensor) -> Tensor:
    """The probability of all classes that are more probable than a class."""
    ordered, order = p.sort(dim=-1, descending=True, stable=True)
    return torch.empty_like(p).scatter_(-1, order, ordered.cumsum(-1) - ordered)


def _sparse_outputs(fitted: Half, logits: Tensor, coverage: float, scale: float) -> list[Output]:
    """Sparsemax, 1.5-entmax and, last, SharMiX of the best orders, each at its temperature; their supports as sets."""
    fits = {(q, r): _fitted(_sharmix(q, r), fitted, scale) for q, r in product(ORDERS, ORDERS) if is_concave(q, r)}
    best = min(fits, key=lambda pair: fits[pair][1])
    named = {"sparsemax": (2.0, 2.0), "1.5-entmax": (1.5, 1.5), f"SharMiX ({best[0]:g}, {best[1]:g})": best}
    outputs = []
    for name, (q, r) in named.items():
        calibrated = SupportPredictor(q, r).calibrate(*fitted, coverage).temperature
        assert calibrated is not None
        supports = _sharmix(q, r)(logits, calibrated.item()) > 0
        outputs.append(Output(name, _sharmix(q, r)(logits, fits[q, r][0]), supports))
    return outputs


def _sharmix(q: float, r: float) -> Map:
    return lambda z, t: functional.sharmix(z, q, r, t)


def _fitted(output: Map, fitted: Half, scale: float) -> tuple[float, float]:
    """The temperature of the least Brier score, and that score: a grid of three decades, made finer around its best."""
    half = Half(*(one[:FITTED] for one in fitted))
    scores: dict[float, float] = {}
    exponents, step = torch.linspace(-EXPONENTS, EXPONENTS, 13).tolist(), EXPONENTS / 6
    for _ in range(7):
        scores |= {at: _brier(output(half.logits, scale * 10**at), half).mean().item() for at in exponents}
        best, step = min(scores, key=lambda at: scores[at]), step / 2
        exponents = [best - step, best + step]
    return scale * 10**best, scores[best]


def _brier(p: Tensor, half: Half) -> Tensor:
    """Σₖ (pₖ − yₖ)² of each example."""
    return (p.square().sum(-1) - 2 * half.of_labels(p) + 1).double()


def _interval(values: Tensor) -> Interval:
    return Interval(values.mean().item(), STANDARD_ERRORS * values.std().item() / math.sqrt(len(values)))


def _report(outputs: Sequence[Output], measured: Half, coverage: float) -> str:
    """The table and the advice."""
    rows, briers = [["output", "Brier", "log loss", "at 0", "set size", "coverage"]], {}
    for name, p, sets in outputs:
        cells = [name, *["–"] * 5]
        if p is not None:
            of_label, briers[name] = measured.of_labels(p), _brier(p, measured)
            missed = (of_label == 0).double().mean().item()
            log_loss = "infinite" if missed else f"{of_label.log().mean().neg().item():.3f}"
            cells[1:4] = str(_interval(briers[name])), log_loss, f"{100 * missed:.1f} %"
        if sets is not None:
            covered = measured.of_labels(sets).double().mean().item()
            cells[4:] = str(_interval(sets.sum(-1).double())), f"{covered:.3f}"
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    accuracy = _interval((measured.logits.argmax(-1) == measured.labels).double())
    about = (
        f"{len(measured.labels)} examples measured, the others fitted; accuracy {accuracy}; sets of a coverage of "
        f"{coverage:g}. ±: margin of the 95 % interval over the measured examples. At 0: labels of probability 0."
    )
    on_sets = "Sets: no advice. What the rows are, and how to choose sets: docs/tutorials/does_it_help.md"
    return "\n".join([fill(about, WIDTH), "", *table, "", fill(_advice(briers), WIDTH), fill(on_sets, WIDTH)])


def _advice(briers: dict[str, Tensor]) -> str:
    """Of softmax and of SharMiX, whose orders the other half chose: α-entmax and sparsemax are among them."""
    (dense, of_softmax), *_, (sparse, of_sharmix) = briers.items()
    mean, margin = _interval(of_sharmix - of_softmax)
    found = f"{mean:+.3f} Brier [{mean - margin:+.3f}, {mean + margin:+.3f}]"
    if mean + margin < 0:
        return f"Probabilities: {sparse} is better than {dense} ({found})."
    verdict = "is behind" if mean - margin > 0 else "is not shown to be better"
    return f"Probabilities: keep {dense}; {sparse} {verdict} ({found})."


def read(path: Path) -> Tensor:
    """The tensor or array of a file.

    Raises:
        OSError, ValueError: the file cannot be read, or holds something else.
    """
    if path.suffix not in _READERS:
        raise ValueError(f"{path}: files are {', '.join(_READERS)}")
    try:
        found = _READERS[path.suffix](path)
    except OSError:
        raise
    except Exception as error:  # of three libraries
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path}: cannot be read as {path.suffix} ({first})") from error
    if not isinstance(found, Tensor) or found.is_complex():
        raise ValueError(f"{path}: it must hold one tensor or array of real numbers")
    return found


def _read_numpy(path: Path) -> Tensor | None:
    import numpy

    with path.open("rb") as file:
        loaded = numpy.load(file, allow_pickle=False)
        if isinstance(loaded, numpy.ndarray):
            return torch.from_numpy(loaded)
        return torch.from_numpy(loaded[loaded.files[0]]) if len(loaded.files) == 1 else None


def _read_csv(path: Path) -> Tensor:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = [[float(cell) for cell in row] for row in csv.reader(file) if row]
        except ValueError as error:
            raise ValueError(f"{error}; it must hold numbers alone, with commas between them and no header") from error
    if len({len(row) for row in rows}) != 1:
        raise ValueError("it needs rows of equal length")
    return torch.tensor(rows, dtype=torch.float64).squeeze(-1)


def _read_torch(path: Path) -> Tensor:
    found: Tensor = torch.load(path, map_location="cpu", weights_only=True)
    return found


_READERS = {".npy": _read_numpy, ".npz": _read_numpy, ".pt": _read_torch, ".csv": _read_csv}


def main() -> None:
    """Command line: print the table of two files."""
    parser = argparse.ArgumentParser(
        prog="python -m sharmix.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logits", type=Path, help="[examples, classes]")
    parser.add_argument("labels", type=Path, help="class indices [examples], from 0")
    parser.add_argument("--coverage", type=float, default=0.9, help="of the sets; 0.9 by default")
    parser.add_argument("--seed", type=int, default=0, help="of the draw of the halves; 0 by default")
    options = parser.parse_args()
    try:
        logits, labels = read(options.logits), read(options.labels)
        whole = labels.is_floating_point() and bool((labels == labels.round()).all())  # as a CSV file gives them
        print(compare(logits, labels.long() if whole else labels, options.coverage, options.seed))
    except (OSError, TypeError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
