"""The report of the study of prediction sets: coverage, what was asked, sizes and violations."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd

from studies.comparison import Comparison, compare
from studies.conformal_scores import ALPHA, APS, LAC, LAC_OWN, LAC_T, MARGIN, ORDERS, OWN, RAPS
from studies.study import Finding, Report, Settings

CASE = ["data_set", "network", "seed", "level"]  # what sets are made for
SOFTMAX = "softmax"
SHOWN = (LAC, LAC_T, LAC_OWN, APS, RAPS, MARGIN, OWN, ALPHA, ORDERS)


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Coverage, size, singletons and violation of each score, and what was asked of them."""
    confidence = shown["confidence"]
    sized = pd.concat([records, _relative_sizes(records)])
    answers = [_Answer(*asked, sized, confidence) for asked in shown["asked"]]
    sparse = records[records["contender"] == OWN]["network"].unique().tolist()
    trained = {"networks trained by sparse losses": sparse} | {f"{one} network": [one] for one in sparse}
    answers += [
        _between_networks(records, name, networks, score, confidence)
        for (name, networks), score in product(trained.items(), (OWN, LAC_T))
    ]
    tables = {
        "Coverage": _coverage(records),
        "What was asked": pd.DataFrame([answer.line() for answer in answers]),
        "Mean size": _by_contender(records, "size", "{:.3f}".format),
        "Size relative to LAC's": _over_splits(records),
        "Share of sets with one class": _by_contender(records, "singletons", "{:.3f}".format),
        "Size-stratified coverage violation": _by_contender(records, "violation", "{:.3f}".format),
    }
    by_question = {answer.question: answer for answer in answers}
    findings = [by_question[tuple(asked)].finding(use, settings["splits"]) for use, asked in shown["found"].items()]
    return Report(tables, findings, [note.format(**settings) for note in shown["notes"]])


class _Answer:
    """One comparison, and how it is shown."""

    def __init__(self, contender: str, opponent: str, metric: str, records: pd.DataFrame, confidence: float) -> None:
        self.question = contender, opponent, metric
        rows = records[(records["metric"] == metric) & records["contender"].isin([contender, opponent])]
        both = rows.groupby(CASE).filter(lambda case: len(case) == 2)
        self.found: Comparison = compare(
            both, metric, contender, opponent, "data_set", confidence, relative=metric == "relative size"
        )
        self.verdict = self.found.verdict("lower")
        self.networks = len(both.groupby(["data_set", "network", "seed"]))

    def line(self) -> dict[str, str]:
        """Of the table."""
        return {
            **dict(zip(("contender", "against", "metric"), self.question, strict=True)),
            "difference": str(self.found),
            "data sets": str(self.found.units),
            "networks": str(self.networks),
            "verdict": self.verdict,
        }

    def finding(self, use: str, splits: int) -> Finding:
        """Of the table of all studies."""
        contender, opponent, metric = self.question
        return Finding(use, contender, f"{metric} {self.found}", opponent, self.found.units, splits, self.verdict)


def _relative_sizes(records: pd.DataFrame) -> pd.DataFrame:
    """Mean sizes in units of LAC's with the same network at the same coverage, which may then be averaged."""
    sizes = records[records["metric"] == "size"]
    plain = sizes[sizes["contender"] == LAC].set_index(CASE)["value"]
    relative = sizes["value"].to_numpy() / plain.loc[pd.MultiIndex.from_frame(sizes[CASE])].to_numpy()
    return sizes.assign(metric="relative size", value=relative)


def _between_networks(records: pd.DataFrame, name: str, networks: list[str], score: str, confidence: float) -> _Answer:
    """Networks trained by sparse losses by a score, against one trained by softmax, by LAC at a fitted temperature."""
    sizes = records[records["metric"] == "size"].drop(columns="metric")
    plain = sizes[(sizes["network"] == SOFTMAX) & (sizes["contender"] == LAC_T)]
    sparse = sizes[sizes["network"].isin(networks) & (sizes["contender"] == score)]
    both = sparse.merge(plain, on=["data_set", "seed", "level"], suffixes=("", " of softmax"))
    ours, opponent = f"{name}, {score}", f"softmax network, {LAC_T}"
    relative = {ours: both["value"] / both["value of softmax"], opponent: 1.0}
    rows = pd.concat(both[CASE].assign(contender=one, metric="relative size", value=of) for one, of in relative.items())
    return _Answer(ours, opponent, "relative size", rows, confidence)


def _coverage(records: pd.DataFrame) -> pd.DataFrame:
    """How often the number of covered test examples lies where theory puts it, by data set."""
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
