"""Prediction sets: the support of a sparse map beside LAC, APS, RAPS and the log-margin.

Each data set or network gives logits of held-out examples. A part of them chooses parameters; the rest is split 1,000
times at random into halves, of which one calibrates and the other tests.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import betabinom
from torch import Tensor

import sharmix
from experiments.errors import DataError
from experiments.files import replace_atomically
from reporting.declaration import Bootstrap
from sharmix.conformal import support_scores
from studies.comparison import Comparison, compare
from studies.study import Finding, Report, Row, Settings, Task

CACHE = Path("outputs/studies/prediction_sets/logits")
PUBLISHED = "published"  # the network of a data set that comes as probabilities
CASE = ["data_set", "network", "seed", "level"]  # what sets are made for
SOFTMAX = "softmax"
LAC, LAC_T, LAC_OWN, MARGIN = "LAC", "LAC, fitted temperature", "LAC of its own output", "log-margin"
APS, RAPS = "APS", "RAPS, chosen"
OWN, ALPHA, ORDERS = "support of its own map", "support, q = r chosen", "support, (q, r) chosen"
SHOWN = (LAC, LAC_T, LAC_OWN, APS, RAPS, MARGIN, OWN, ALPHA, ORDERS)
QUESTIONS = [  # use in the table of all findings, contender, opponent, metric
    ("small sets of a given network", ORDERS, LAC, "relative size"),
    ("small sets of a given network", ORDERS, LAC_T, "relative size"),
    ("", ORDERS, RAPS, "relative size"),
    ("", ORDERS, MARGIN, "relative size"),
    ("", ALPHA, LAC_T, "relative size"),
    ("small sets: r beside q", ORDERS, ALPHA, "relative size"),
    ("small sets of a network trained by a sparse loss", OWN, LAC, "relative size"),
    ("", OWN, LAC_T, "relative size"),
    ("", OWN, LAC_OWN, "relative size"),
    ("", OWN, MARGIN, "relative size"),
    ("coverage at every size of set: r > q", "support (1.5, 2)", "support (1.5, 1.5)", "violation"),
    ("", "support (2, 3)", "support (2, 2)", "violation"),
    ("", "support (1.25, 1.5)", "support (1.25, 1.25)", "violation"),
    ("", "support (1.5, 2)", "support (1.5, 1.5)", "relative size"),
    ("", "support (2, 3)", "support (2, 2)", "relative size"),
    ("", "support (1.25, 1.5)", "support (1.25, 1.25)", "relative size"),
    ("coverage at every size of set", ORDERS, RAPS, "violation"),
    ("", ORDERS, LAC_T, "violation"),
    ("", OWN, LAC, "violation"),
]
NOTES = [
    "Each number is a mean over {splits} random splits of the examples that chose nothing. A coverage is left out "
    "where, on the selection part, sets of one class reach it, or the classes with a probability above 0 do not; and "
    "where fewer than {least_beyond} calibration scores lie beyond the threshold.",
    "Coverage: the number of covered test examples of a split is beta-binomial; the band holds {band:.0%} of that "
    "distribution, at least. A case is a score, a network and a coverage. Ties lift coverage: LAC of its own output "
    "gives all classes of probability 0 one score. APS and RAPS are randomised, and like LAC can give empty sets; "
    "supports and the log-margin never do.",
    "Intervals of the questions are over data sets, whose networks, seeds and coverages are averaged, for they share "
    "their test examples; lower is better. Brackets in the table of sizes relative to LAC's hold 95 % of the splits. "
    "The violation is the largest |coverage − asked| over sets of 0 or 1, 2 or 3, 4 to 10, 11 to 100 classes, of at "
    "least {least_stratum} examples.",
    "LAC takes the softmax of the logits, LAC of its own output the probabilities of the map that trained the network. "
    "APS and RAPS take softmax at the fitted temperature.",
]

Array = np.ndarray[Any, np.dtype[Any]]


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    """The published probabilities, and every finished run of the experiments and networks."""
    published = [{"data_set": name, "network": PUBLISHED, "seed": 0} for name in settings["probabilities"]]
    return published + [task for task, _ in _runs(settings)]


def _runs(settings: Settings) -> Iterator[tuple[Task, Path]]:
    """The task and the folder of every finished run."""
    for name, experiment in settings["experiments"].items():
        for file in sorted(Path(settings["outputs"], experiment["folder"]).glob("*/seed-*/record.json")):
            config = json.loads(file.read_text(encoding="utf-8"))["config"]
            if not all(values.items() <= config[group].items() for group, values in experiment["settings"].items()):
                continue
            for network, described in settings["networks"].items():
                if described["activation"].items() <= config["activation"].items():
                    yield {"data_set": name, "network": network, "seed": config["seed"]}, file.parent


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    """Coverage, size, singletons and stratified violation of every score, means over all splits.

    A coverage is left out where, on the selection part, sets of one class reach it, or not even all classes of a
    probability above 0 do; and where too few calibration scores lie beyond the threshold.
    """
    logits, labels = _examples(task, settings, data)
    random = np.random.default_rng(settings["seed"])
    order = random.permutation(len(labels))
    count = round(settings["selection_share"] * len(labels))
    selection, pool = np.sort(order[:count]), np.sort(order[count:])
    contenders = Contenders(logits, labels, selection, settings["networks"].get(task["network"], {}), settings, random)
    halves = [random.permutation(len(pool)) for _ in range(settings["splits"])]
    chosen_on = logits[selection], labels[selection]
    accuracy = float((chosen_on[0].argmax(-1) == chosen_on[1]).double().mean())
    reachable = float(chosen_on[0].gather(-1, chosen_on[1][:, None]).isfinite().double().mean())
    rows: list[Row] = []
    for level in settings["coverages"]:
        few = len(pool) // 2 * (1 - level) < settings["least_beyond"]
        if few or not accuracy < level <= reachable:
            continue
        plain = None
        for name, scores, chosen in contenders.all(level):
            found = _Splits(scores[pool], labels[pool], level, halves, settings)
            plain = found if plain is None else plain
            low, high = np.quantile(found.size / plain.size - 1, [0.025, 0.975])
            values = found.means() | chosen | {"size over LAC, low": low, "size over LAC, high": high}
            rows += [
                {"contender": name, "level": level, "metric": metric, "value": values[metric]} for metric in values
            ]
    return rows


def _examples(task: Task, settings: Settings, data: Path | None) -> tuple[Tensor, Tensor]:
    """Logits [n, classes] in float64, and labels [n]."""
    if task["network"] == PUBLISHED:
        if data is None:
            raise DataError("prediction_sets reads calibration/*.npy of a folder; name it by DATA=FOLDER")
        name = data / "calibration" / f"{task['data_set']}_test"
        probabilities, labels = (
            torch.from_numpy(np.load(f"{name}_{part}.npy")) for part in ("probabilities", "labels")
        )
        return probabilities.double().log(), labels.long()
    folder = next(folder for one, folder in _runs(settings) if one == task)
    record = (folder / "record.json").read_bytes()
    cache = CACHE / f"{hashlib.sha256(record).hexdigest()[:16]}.pt"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        found = _logits(
            folder, data if "folder" in json.loads(record)["config"]["data"] else None, settings["batch_size"]
        )
        replace_atomically(cache, lambda file: torch.save(found, file))
    logits, labels = torch.load(cache, weights_only=True)
    return logits.double(), labels


@torch.no_grad()
def _logits(folder: Path, data: Path | None, batch_size: int) -> tuple[Tensor, Tensor]:
    """What a run's network gives for its test examples, and their labels."""
    from experiments.loading import load_run

    module, source = load_run(folder, data)
    examples = source.data.test
    parts = torch.arange(len(examples.targets)).split(batch_size)
    inputs = (examples.read(part, torch.zeros_like(part))[0] for part in parts)
    return torch.cat([module.network(part).float() for part in inputs]), examples.targets


@dataclass
class Contenders:
    """The scores of all contenders, [n, classes], the larger the less a class fits."""

    logits: Tensor
    labels: Tensor
    selection: Array
    network: dict[str, Any]
    settings: Settings
    random: np.random.Generator

    def __post_init__(self) -> None:
        self.temperature = _fitted_temperature(self.logits[self.selection], self.labels[self.selection])
        self.dither = torch.from_numpy(self.random.random((len(self.logits), 1)))
        count = len(self.selection)
        self.halves = [self.random.permutation(count) for _ in range(self.settings["selection_splits"])]
        self.fixed = dict(self._fixed())
        self.candidates = {
            name: [(candidate, score(self.selection, **candidate)) for candidate in candidates]
            for name, (score, candidates) in self._choices().items()
        }

    def all(self, level: float) -> Iterator[tuple[str, Tensor, dict[str, float]]]:
        """Names and scores, LAC first, and what was chosen for this coverage: the least mean size."""
        for name, scores in self.fixed.items():
            yield name, scores, {}
        for name, (score, _) in self._choices().items():
            chosen, _ = min(self.candidates[name], key=lambda candidate: self._mean_size(candidate[1], level))
            yield name, score(slice(None), **chosen), {f"chosen {key}": value for key, value in chosen.items()}

    def _choices(self) -> dict[str, tuple[Callable[..., Tensor], list[dict[str, float]]]]:
        """By contender, what computes its scores and the candidates of what is chosen."""
        raps, support = self.settings["raps"], self.settings["support"]
        penalties = [{"penalty": one, "rank": rank} for one, rank in product(raps["penalties"], raps["ranks"])]
        alphas = [{"q": alpha, "r": alpha} for alpha in support["alphas"]]
        orders = [{"q": q, "r": r} for q, r in product(support["alphas"], support["orders"]) if r >= 2 - 1 / q]
        choices = {ALPHA: alphas, ORDERS: alphas + orders}
        return {RAPS: (self._cumulative, penalties)} | {name: (self._support, one) for name, one in choices.items()}

    def _fixed(self) -> Iterator[tuple[str, Tensor]]:
        yield LAC, -self.logits.log_softmax(-1)
        yield LAC_T, -(self.logits / self.temperature).log_softmax(-1)
        yield APS, self._cumulative(slice(None), 0, 0)
        yield MARGIN, self.logits.amax(-1, keepdim=True) - self.logits
        for q, r in self.settings["support"]["fixed"]:
            yield f"support ({q:g}, {r:g})", self._support(slice(None), q, r)
        if orders := self.network.get("orders"):
            yield OWN, self._support(slice(None), *orders)
            yield LAC_OWN, -sharmix.sharmix(self.logits, *orders)

    def _support(self, rows: Array | slice, q: float, r: float) -> Tensor:
        return support_scores(self.logits[rows], q=q, r=r)

    def _cumulative(self, rows: Array | slice, penalty: float, rank: int) -> Tensor:
        """RAPS, randomised, of probabilities at the fitted temperature; APS where the penalty is 0."""
        ordered, classes = (self.logits[rows] / self.temperature).softmax(-1).sort(-1, descending=True)
        scores = ordered.cumsum(-1) - ordered + self.dither[rows] * ordered
        scores = scores + penalty * (torch.arange(1, ordered.shape[-1] + 1) - rank).clamp_min(0)
        return torch.empty_like(scores).scatter(-1, classes, scores)

    def _mean_size(self, scores: Tensor, level: float) -> float:
        found = _Splits(scores, self.labels[self.selection], level, self.halves, self.settings)
        return float(found.size.mean())


def _fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature of least log loss; labels of probability 0 are left out."""
    kept = logits.gather(-1, labels[:, None]).squeeze(-1).isfinite()

    def log_loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits[kept] / np.exp(log_temperature), labels[kept]))

    return float(np.exp(minimize_scalar(log_loss, bounds=(-4, 4), method="bounded").x))


class _Splits:
    """What the sets of one score do in every split, each attribute an array [splits].

    Args:
        scores: [n, classes].
        labels: [n].
        level: the coverage asked for.
        halves: permutations of n; the first half calibrates.
        settings: of the study.
    """

    def __init__(self, scores: Tensor, labels: Tensor, level: float, halves: list[Array], settings: Settings) -> None:
        own = scores.gather(-1, labels[:, None]).squeeze(-1).numpy()
        by_class = np.ascontiguousarray(scores.numpy().T)  # a row a class: the sum over classes is then fast
        count = len(own) // 2
        rank = int(np.ceil((count + 1) * level - 1e-9))
        self.expected = rank / (count + 1)
        self.band = betabinom(len(own) - count, rank, count + 1 - rank).interval(settings["band"])
        edges, least = settings["strata"], settings["least_stratum"]
        found = [self._split(own, by_class, half[:count], half[count:], rank, edges, level, least) for half in halves]
        self.covered, self.size, self.singletons, self.violation = np.array(found).T
        self.tested = len(own) - count

    @staticmethod
    def _split(
        own: Array, by_class: Array, first: Array, second: Array, rank: int, edges: list[int], level: float, least: int
    ) -> tuple[float, float, float, float]:
        threshold = np.partition(own[first], rank - 1)[rank - 1] if rank <= len(first) else np.inf
        sizes = (by_class <= threshold).sum(0, dtype=np.uint8)[second]
        covered = own[second] <= threshold
        strata = np.searchsorted(edges, sizes)
        counts = np.bincount(strata, minlength=len(edges) + 1)
        inside = np.bincount(strata, covered, minlength=len(edges) + 1)
        told = counts >= least
        violation = np.abs(inside[told] / counts[told] - level).max(initial=0)
        return covered.sum(), sizes.mean(), (sizes == 1).mean(), violation

    def means(self) -> dict[str, float]:
        """By metric, over all splits."""
        low, high = self.band
        return {
            "coverage": self.covered.mean() / self.tested,
            "expected coverage": self.expected,
            "inside band": ((self.covered >= low) & (self.covered <= high)).mean(),
            "below band": (self.covered < low).mean(),
            "size": self.size.mean(),
            "singletons": self.singletons.mean(),
            "violation": self.violation.mean(),
        }


def report(records: pd.DataFrame, settings: Settings) -> Report:
    """Coverage, size, singletons and violation of each score, and what was asked of them."""
    bootstrap = Bootstrap(**settings["bootstrap"])
    sized = pd.concat([records, _relative_sizes(records)])
    answers = [_Answer(*question, sized, bootstrap) for question in QUESTIONS]
    sparse = [network for network in settings["networks"] if network != SOFTMAX]
    answers += [_between_networks(records, network, ours, bootstrap) for network in sparse for ours in (OWN, LAC_T)]
    tables = {
        "Coverage": _coverage(records),
        "What was asked": pd.DataFrame([answer.line() for answer in answers]),
        "Mean size": _by_contender(records, "size", "{:.3f}".format),
        "Size relative to LAC's": _over_splits(records),
        "Share of sets with one class": _by_contender(records, "singletons", "{:.3f}".format),
        "Size-stratified coverage violation": _by_contender(records, "violation", "{:.3f}".format),
    }
    findings = [answer.finding(settings["splits"]) for answer in answers if answer.use]
    return Report(tables, findings, [note.format(**settings) for note in NOTES])


class _Answer:
    """One comparison, and how it is shown; `use` is empty where it is no line of the table of all findings."""

    def __init__(
        self, use: str, contender: str, opponent: str, metric: str, records: pd.DataFrame, bootstrap: Bootstrap
    ) -> None:
        self.use, self.contender, self.opponent, self.metric = use, contender, opponent, metric
        rows = records[(records["metric"] == metric) & records["contender"].isin([contender, opponent])]
        both = rows.groupby(CASE).filter(lambda case: len(case) == 2)
        self.found: Comparison = compare(
            both, metric, contender, opponent, "data_set", bootstrap, relative=metric == "relative size"
        )
        self.verdict = self.found.verdict("lower")
        self.networks = len(both.groupby(["data_set", "network", "seed"]))

    def line(self) -> dict[str, str]:
        """Of the table."""
        return {
            "metric": self.metric,
            "contender": self.contender,
            "against": self.opponent,
            "difference": str(self.found),
            "data sets": str(self.found.units),
            "networks": str(self.networks),
            "verdict": self.verdict,
        }

    def finding(self, splits: int) -> Finding:
        """Of the table of all studies."""
        by = f"{self.metric} {self.found}"
        return Finding(self.use, self.contender, by, self.opponent, self.found.units, splits, self.verdict)


def _relative_sizes(records: pd.DataFrame) -> pd.DataFrame:
    """Mean sizes in units of LAC's with the same network at the same coverage, which may then be averaged."""
    sizes = records[records["metric"] == "size"]
    plain = sizes[sizes["contender"] == LAC].set_index(CASE)["value"]
    relative = sizes["value"].to_numpy() / plain.loc[pd.MultiIndex.from_frame(sizes[CASE])].to_numpy()
    return sizes.assign(metric="relative size", value=relative)


def _between_networks(records: pd.DataFrame, network: str, score: str, bootstrap: Bootstrap) -> _Answer:
    """A network trained by a sparse loss against one trained by softmax, under LAC at its fitted temperature."""
    keys, sizes = ["data_set", "seed", "level"], records[records["metric"] == "size"]
    plain, sparse = (
        sizes[(sizes["network"] == one) & (sizes["contender"] == contender)].set_index(keys)["value"]
        for one, contender in ((SOFTMAX, LAC_T), (network, score))
    )
    shared = plain.index.intersection(sparse.index)
    names = f"{network} network, {score}", f"softmax network, {LAC_T}"
    values = (sparse[shared] / plain[shared]), plain[shared] / plain[shared]
    parts = [
        value.rename("value").reset_index().assign(contender=name) for value, name in zip(values, names, strict=True)
    ]
    both = pd.concat(parts).assign(metric="relative size", network=network)
    use = "small sets: training by a sparse loss" if score == OWN else ""
    return _Answer(use, *names, "relative size", both, bootstrap)


def _coverage(records: pd.DataFrame) -> pd.DataFrame:
    """How often the number of covered test examples lies where theory puts it, by data set."""
    wide = records.pivot_table("value", [*CASE, "contender"], "metric").reset_index()
    wide["excess"] = wide["coverage"] - wide["expected coverage"]
    wide["scores"] = np.where(wide["contender"].str.startswith("support"), "supports", "LAC, APS, RAPS, log-margin")
    wide.loc[wide["contender"] == LAC_OWN, "scores"] = LAC_OWN
    groups = wide.groupby(["data_set", "scores"], sort=False)
    shown = {
        "cases": groups.size().map(str),
        "coverage − expected": groups["excess"].mean().map("{:+.5f}".format),
        "least": groups["excess"].min().map("{:+.5f}".format),
        "largest": groups["excess"].max().map("{:+.5f}".format),
        "splits inside the band": groups["inside band"].mean().map("{:.2%}".format),
        "below it": groups["below band"].mean().map("{:.2%}".format),
        "below it, worst case": groups["below band"].max().map("{:.1%}".format),
    }
    return pd.DataFrame(shown).reset_index()


def _by_contender(records: pd.DataFrame, metric: str, text: Callable[[float], str]) -> pd.DataFrame:
    """Means over seeds, a line for each data set, network and coverage."""
    rows = records[(records["metric"] == metric) & records["contender"].isin(SHOWN)]
    table = rows.pivot_table("value", ["data_set", "network", "level"], "contender")[list(SHOWN)]
    return table.map(lambda value: "–" if np.isnan(value) else text(value)).reset_index()


def _over_splits(records: pd.DataFrame) -> pd.DataFrame:
    """The relative difference to LAC's size, with what 95 % of the splits lie between, means over seeds."""
    keys = ["data_set", "network", "level"]
    table = records.pivot_table("value", [*keys, "contender"], "metric").reset_index("contender")
    plain = table.loc[table["contender"] == LAC, "size"]
    table["middle"] = table["size"] / plain - 1
    table["text"] = [
        f"{100 * middle:+.1f} % [{100 * low:+.1f}, {100 * high:+.1f}]".replace("-", "−")
        for middle, low, high in zip(
            table["middle"], table["size over LAC, low"], table["size over LAC, high"], strict=True
        )
    ]
    others = [name for name in SHOWN if name != LAC]
    wide = table[table["contender"].isin(others)].reset_index().pivot(index=keys, columns="contender", values="text")
    return wide[others].fillna("–").reset_index()
