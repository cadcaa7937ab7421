"""Prediction sets: the support of a sparse map beside LAC, APS, RAPS and the log-margin.

Each data set or network gives logits of held-out examples. A part of them chooses parameters; the rest is split many
times at random into halves, of which one calibrates and the other tests.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import sharmix
from studies.comparison import compare
from studies.conformal_scores import (
    ALPHA,
    APS,
    LAC,
    LAC_OWN,
    LAC_T,
    MARGIN,
    ORDERS,
    OWN,
    RAPS,
    ConformalSplits,
    Contenders,
)
from studies.logits import PUBLIC, LabelledLogits, network_logits, public_probabilities
from studies.study import Finding, Report, Row, Settings, Task

CASE = ["data_set", "network", "seed", "level"]  # the columns that tell prediction sets apart
SOFTMAX = "softmax"
SHOWN = (LAC, LAC_T, LAC_OWN, APS, RAPS, MARGIN, OWN, ALPHA, ORDERS)


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    """The public probabilities, and every network with every seed."""
    public = [{"data_set": name, "network": PUBLIC, "seed": 0} for name in settings["probability_sets"]]
    return public + [
        {"data_set": data_set, "network": network, "seed": seed}
        for data_set, networks in settings["networks"].items()
        for network, described in networks.items()
        for seed in described["seeds"]
    ]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    """Coverage, size, singletons and stratified violation of every score, means over all splits.

    A coverage is left out if, on the selection part, sets of one class reach it, or if all classes with a probability
    above 0 do not reach it. It is also left out if too few calibration scores lie beyond the threshold.
    """
    examples = _examples(task, settings, data)
    logits, labels, _ = examples
    random = np.random.default_rng(settings["seed"])
    order = random.permutation(len(labels))
    count = round(settings["selection_share"] * len(labels))
    selection, pool = np.sort(order[:count]), np.sort(order[count:])
    contenders = Contenders(examples, selection, settings, random)
    halves = np.stack([random.permutation(len(pool)) for _ in range(settings["splits"])])
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
            found = ConformalSplits(scores[pool], labels[pool], level, halves, settings)
            plain = found if plain is None else plain
            low, high = np.quantile(found.size / plain.size - 1, settings["quantiles"])
            values = found.means() | chosen | {"size over LAC, low": low, "size over LAC, high": high}
            rows += [
                {"contender": name, "level": level, "metric": metric, "value": values[metric]} for metric in values
            ]
    return rows


def _examples(task: Task, settings: Settings, data: Path | None) -> LabelledLogits:
    if task["network"] == PUBLIC:
        probabilities, labels = public_probabilities(task["data_set"], data)
        return LabelledLogits(probabilities.log(), labels, sharmix.Softmax())  # −∞ where a probability is 0
    network = settings["networks"][task["data_set"]][task["network"]]
    return network_logits(network["overrides"], task["seed"], data)


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Coverage, size, singletons and violation of each score, and the comparisons of the settings."""
    confidence = shown["confidence"]
    sized = pd.concat([records, _relative_sizes(records)])
    answers = [_answer(*asked, sized, confidence) for asked in shown["asked"]]
    sparse = records[records["contender"] == OWN]["network"].unique().tolist()
    trained = {"networks trained by sparse losses": sparse} | {f"{one} network": [one] for one in sparse}
    answers += [
        _between_networks(records, name, networks, score, confidence)
        for (name, networks), score in product(trained.items(), (OWN, LAC_T))
    ]
    tables = {
        "Coverage": _coverage(records),
        "What was asked": pd.DataFrame(answers),
        "Mean size": _by_contender(records, "size", "{:.3f}".format),
        "Size relative to LAC's": _over_splits(records),
        "Share of sets with one class": _by_contender(records, "singletons", "{:.3f}".format),
        "Size-stratified coverage violation": _by_contender(records, "violation", "{:.3f}".format),
    }
    by_question = {(answer["contender"], answer["against"], answer["metric"]): answer for answer in answers}
    findings = [_finding(use, by_question[tuple(asked)], settings["splits"]) for use, asked in shown["found"].items()]
    return Report(tables, findings, [note.format(**settings) for note in shown["notes"]])


def _answer(contender: str, opponent: str, metric: str, records: pd.DataFrame, confidence: float) -> dict[str, str]:
    """The line of one comparison in the table of what was asked."""
    rows = records[(records["metric"] == metric) & records["contender"].isin([contender, opponent])]
    both = rows.groupby(CASE).filter(lambda case: len(case) == 2)
    relative = metric == "relative size"
    found = compare(both, metric, contender, opponent, "data_set", confidence, relative=relative)
    return {
        "contender": contender,
        "against": opponent,
        "metric": metric,
        "difference": str(found),
        "data sets": str(found.units),
        "networks": str(len(both.groupby(["data_set", "network", "seed"]))),
        "verdict": found.verdict("lower"),
    }


def _finding(use: str, answer: dict[str, str], splits: int) -> Finding:
    by = f"{answer['metric']} {answer['difference']}"
    return Finding(use, answer["contender"], answer["against"], answer["verdict"], by, int(answer["data sets"]), splits)


def _relative_sizes(records: pd.DataFrame) -> pd.DataFrame:
    """Mean sizes divided by the mean size of LAC's sets, for the same network and coverage."""
    sizes = records[records["metric"] == "size"]
    plain = sizes[sizes["contender"] == LAC].set_index(CASE)["value"]
    relative = sizes["value"].to_numpy() / plain.loc[pd.MultiIndex.from_frame(sizes[CASE])].to_numpy()
    return sizes.assign(metric="relative size", value=relative)


def _between_networks(
    records: pd.DataFrame, name: str, networks: list[str], score: str, confidence: float
) -> dict[str, str]:
    """Networks trained by sparse losses, with a score, against a softmax network with LAC at a fitted temperature."""
    sizes = records[records["metric"] == "size"].drop(columns="metric")
    plain = sizes[(sizes["network"] == SOFTMAX) & (sizes["contender"] == LAC_T)]
    sparse = sizes[sizes["network"].isin(networks) & (sizes["contender"] == score)]
    both = sparse.merge(plain, on=["data_set", "seed", "level"], suffixes=("", " of softmax"))
    ours, opponent = f"{name}, {score}", f"softmax network, {LAC_T}"
    relative = {ours: both["value"] / both["value of softmax"], opponent: 1.0}
    rows = pd.concat(both[CASE].assign(contender=one, metric="relative size", value=of) for one, of in relative.items())
    return _answer(ours, opponent, "relative size", rows, confidence)


def _coverage(records: pd.DataFrame) -> pd.DataFrame:
    """For each data set, how often the number of covered test examples lies in the band of the theory."""
    wide = records.pivot_table("value", [*CASE, "contender"], "metric").reset_index()
    wide["excess"] = wide["coverage"] - wide["expected coverage"]
    wide["scores"] = np.where(wide["contender"].str.startswith("support"), "supports", "LAC, APS, RAPS, log-margin")
    wide.loc[wide["contender"] == LAC_OWN, "scores"] = LAC_OWN
    groups = wide.groupby(["data_set", "scores"], sort=False)
    shown = {
        "cases": groups.size().map(str),
        "coverage − expected": groups["excess"].mean().map(_signed),
        "least": groups["excess"].min().map(_signed),
        "largest": groups["excess"].max().map(_signed),
        "splits inside the band": groups["inside band"].mean().map("{:.2%}".format),
        "below it": groups["below band"].mean().map("{:.2%}".format),
        "below it, worst case": groups["below band"].max().map("{:.1%}".format),
    }
    return pd.DataFrame(shown).reset_index()


def _signed(value: float) -> str:
    return f"{value:+.5f}".replace("-", "−")


def _by_contender(records: pd.DataFrame, metric: str, text: Callable[[float], str]) -> pd.DataFrame:
    """Means over seeds, one line for each data set, network and coverage."""
    rows = records[(records["metric"] == metric) & records["contender"].isin(SHOWN)]
    table = rows.pivot_table("value", ["data_set", "network", "level"], "contender")[list(SHOWN)]
    return table.map(lambda value: "–" if np.isnan(value) else text(value)).reset_index()


def _over_splits(records: pd.DataFrame) -> pd.DataFrame:
    """The size relative to LAC's, and the range that holds 95 % of the splits. Means over seeds."""
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
