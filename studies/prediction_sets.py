"""Prediction sets: the support of a sparse map beside LAC, APS, RAPS and the log-margin.

Each data set or network gives logits of held-out examples. A part of them chooses parameters; the rest is split many
times at random into halves: one calibrates and the other tests.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from studies.comparison import compare
from studies.conformal_scores import LAC, LAC_OWN, LAC_T, NAMES, OWN, ConformalSplits, candidates, fitted_temperature
from studies.logits import logits_of, seeds_of, sources
from studies.study import Finding, Report, Row, Settings, Task, rows_of

PLACE = ["data_set", "network", "level"]  # the columns that name the lines of tables
CASE = [*PLACE, "seed"]  # the columns that tell prediction sets apart
SOFTMAX = "softmax"


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    """The public probabilities, and every network with every seed."""
    return [source | {"seed": seed} for source in sources(settings) for seed in seeds_of(source, settings)]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    """Coverage, size, singletons and stratified violation of every score, means over all splits.

    A coverage is left out if, on the selection part, sets of one class reach it, or if all classes with a probability
    above 0 do not reach it. It is also left out if too few calibration scores lie beyond the threshold.
    """
    examples = logits_of(task, task["seed"], settings, data)
    random = np.random.default_rng(settings["seed"])
    order = random.permutation(len(examples.labels))
    count = round(settings["selection_share"] * len(order))
    selection, pool = np.sort(order[:count]), np.sort(order[count:])
    z, y = examples.logits[selection], examples.labels[selection]
    dither = torch.from_numpy(random.random((len(order), 1)))
    contenders = candidates(examples, fitted_temperature(z, y), dither, settings)
    to_choose = {name: [score(selection) for _, score in own] for name, own in contenders.items() if len(own) > 1}
    selection_halves, halves = (
        np.stack([random.permutation(len(part)) for _ in range(splits)])
        for part, splits in ((selection, settings["selection_splits"]), (pool, settings["splits"]))
    )
    accuracy = (z.argmax(-1) == y).double().mean()
    reachable = z.gather(-1, y[:, None]).isfinite().double().mean()
    rows: list[Row] = []
    for level in settings["coverages"]:
        few = len(pool) // 2 * (1 - level) < settings["least_beyond"]
        if few or not accuracy < level <= reachable:
            continue
        plain = None
        for name, own in contenders.items():
            (parameters, score), chosen = own[0], {}
            if name in to_choose:  # the least mean size decides
                sizes = [ConformalSplits(one, y, level, selection_halves).size.mean() for one in to_choose[name]]
                parameters, score = own[np.argmin(sizes)]
                chosen = {f"chosen {key}": value for key, value in parameters.items()}
            found = ConformalSplits(score(pool), examples.labels[pool], level, halves)
            plain = found if plain is None else plain
            low, high = np.quantile(found.size / plain.size - 1, settings["quantiles"])
            values = found.means(settings) | chosen | {"size over LAC, low": low, "size over LAC, high": high}
            rows += rows_of(values, contender=name, level=level)
    return rows


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Coverage and size of each score, and the comparisons of the settings."""
    sized = pd.concat([records, _relative_sizes(records)])
    answers = [_answer(*asked, sized) for asked in shown["asked"]]
    sparse = records[records["contender"] == OWN]["network"].unique().tolist()
    trained = {"networks trained by sparse losses": sparse} | {f"{one} network": [one] for one in sparse}
    answers += [_between_networks(records, *names, score) for names, score in product(trained.items(), (OWN, LAC_T))]
    tables = {
        "Coverage": _coverage(records),
        "What was asked": pd.DataFrame(answers),
        "Size relative to LAC's": _over_splits(records),
    }
    by_question = {(answer["contender"], answer["against"], answer["metric"]): answer for answer in answers}
    findings = []
    for use, asked in shown["found"].items():
        contender, opponent, metric, difference, data_sets, _, verdict = by_question[tuple(asked)].values()
        difference = f"{metric} {difference}"
        findings.append(Finding(use, contender, opponent, verdict, difference, int(data_sets), settings["splits"]))
    return Report(tables, findings, [note.format(**settings) for note in shown["notes"]])


def _answer(contender: str, opponent: str, metric: str, records: pd.DataFrame) -> dict[str, str]:
    """The line of one comparison in the table of what was asked."""
    rows = records[(records["metric"] == metric) & records["contender"].isin([contender, opponent])]
    both = rows.groupby(CASE).filter(lambda case: len(case) == 2)
    found = compare(both, metric, contender, opponent, "data_set", relative=metric == "relative size")
    return {
        "contender": contender,
        "against": opponent,
        "metric": metric,
        "difference": str(found),
        "data sets": str(found.units),
        "networks": str(len(both.groupby(["data_set", "network", "seed"]))),
        "verdict": found.verdict("lower"),
    }


def _relative_sizes(records: pd.DataFrame) -> pd.DataFrame:
    """Mean sizes divided by the mean size of LAC's sets, for the same network and coverage."""
    sizes = records[records["metric"] == "size"]
    plain = sizes[sizes["contender"] == LAC].set_index(CASE)["value"]
    relative = sizes["value"].to_numpy() / plain.loc[pd.MultiIndex.from_frame(sizes[CASE])].to_numpy()
    return sizes.assign(metric="relative size", value=relative)


def _between_networks(records: pd.DataFrame, name: str, networks: list[str], score: str) -> dict[str, str]:
    """Networks trained by sparse losses, with a score, against a softmax network with LAC at a fitted temperature."""
    sizes = records[records["metric"] == "size"].drop(columns="metric")
    plain = sizes[(sizes["network"] == SOFTMAX) & (sizes["contender"] == LAC_T)]
    sparse = sizes[sizes["network"].isin(networks) & (sizes["contender"] == score)]
    both = sparse.merge(plain, on=["data_set", "seed", "level"], suffixes=("", " of softmax"))
    ours, opponent = f"{name}, {score}", f"softmax network, {LAC_T}"
    relative = {ours: both["value"] / both["value of softmax"], opponent: 1.0}
    rows = pd.concat(both[CASE].assign(contender=one, metric="relative size", value=of) for one, of in relative.items())
    return _answer(ours, opponent, "relative size", rows)


def _coverage(records: pd.DataFrame) -> pd.DataFrame:
    """For each data set, how often the number of covered test examples lies in the band that theory gives."""
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


def _over_splits(records: pd.DataFrame) -> pd.DataFrame:
    """The size relative to LAC's, and the range that holds 95 % of the splits. Means over seeds."""
    table = records.pivot_table("value", [*PLACE, "contender"], "metric").reset_index("contender")
    table["middle"] = table["size"] / table.loc[table["contender"] == LAC, "size"] - 1
    numbers = 100 * table[["middle", "size over LAC, low", "size over LAC, high"]]
    texts = ["{:+.1f} % [{:+.1f}, {:+.1f}]".format(*line).replace("-", "−") for line in numbers.to_numpy()]
    wide = table.assign(text=texts).reset_index().pivot(index=PLACE, columns="contender", values="text")
    return wide[NAMES].drop(columns=LAC).fillna("–").reset_index()
