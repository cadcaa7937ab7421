"""Learning rates: every activation at one common rate, and each at the rate that a validation part chooses for it.

Each task is one training of the suite. It measures the validation part and the test split after its last epoch.
"""

from itertools import product
from pathlib import Path

import pandas as pd

from reporting.records.statistics import estimate
from studies.comparison import CONFIDENCE, Comparison, compare
from studies.study import Finding, Report, Row, Settings, Task
from studies.training import trained

OPPONENT = "softmax"
MEASURED = {"validation": ("accuracy", "macro_f1"), "test": ("accuracy", "macro_f1", "sparsity")}
TEST_ACCURACY = "test accuracy"


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [
        {"data_set": data_set, "contender": contender, "learning_rate": rate, "seed": seed}
        for data_set, entry in settings["data_sets"].items()
        for contender, rate, seed in product(settings["contenders"], settings["learning_rates"], entry["seeds"])
    ]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    record = trained(
        task["data_set"],
        *settings["contenders"][task["contender"]],
        *(f"{name}={task['seed']}" for name in settings["data_sets"][task["data_set"]]["varied"]),
        f"optimizer.learning_rate={task['learning_rate']}",
        f"data.validation_fraction={settings['validation_fraction']}",
        data=data,
    )
    return [
        {"contender": task["contender"], "metric": f"{split} {name}", "value": record.metrics[split][name]}
        for split, names in MEASURED.items()
        for name in names
    ]


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Each activation at the common rate and at its own rate, with the differences to softmax, also as numbers."""
    tables, findings = {}, []
    for data_set, of_set in records.groupby("data_set", sort=False):
        chosen = own_rates(of_set, shown["chosen_by"])
        common = of_set[of_set["learning_rate"] == shown["common_rate"]]
        own = of_set.merge(chosen.rename("learning_rate").reset_index())
        tables[f"{data_set}: {TEST_ACCURACY} at one rate, and at each activation's own"] = pd.DataFrame(
            {
                "activation": contender,
                f"at {shown['common_rate']:g}": _mean(common, contender),
                f"minus {OPPONENT}": _change(common, contender),
                "own rates": _range(chosen[contender]),
                "at its own": _mean(own, contender),
                f"minus {OPPONENT} at its own": _change(own, contender),
            }
            for contender in settings["contenders"]
        )
        tables[f"{data_set}: {TEST_ACCURACY} minus {OPPONENT}, each at its own rate"] = pd.DataFrame(
            {"activation": contender} | _numbers(_compared(own, contender))
            for contender in settings["contenders"]
            if contender != OPPONENT
        )
        rates = {f"one learning rate for all ({shown['common_rate']:g})": common, "each at its own learning rate": own}
        for (rate, rows), contender in product(rates.items(), shown["found"]):
            found = _compared(rows, contender)
            use, difference = f"accuracy on {data_set}, {rate}", f"accuracy {found}"
            findings.append(Finding(use, contender, OPPONENT, found.verdict("higher"), difference, 1, found.units))
    return Report(tables, findings, shown["notes"])


def own_rates(records: pd.DataFrame, metric: str) -> pd.Series:
    """For each contender and seed, the rate with the largest metric on the validation part of this seed.

    Each seed has its own split: the validation part of another seed contains test images of this seed.
    """
    rows = records[records["metric"] == f"validation {metric}"]
    values = rows.pivot(index=["contender", "seed"], columns="learning_rate", values="value")
    return values.idxmax(axis="columns")  # of equal ones the first, which is the smallest rate


def _range(rates: pd.Series) -> str:
    return f"{rates.min():g} to {rates.max():g}, median {rates.median():g}"


def _mean(records: pd.DataFrame, contender: str) -> str:
    rows = records[(records["metric"] == TEST_ACCURACY) & (records["contender"] == contender)]
    found = estimate(rows["value"], CONFIDENCE)
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _change(records: pd.DataFrame, contender: str) -> str:
    return "–" if contender == OPPONENT else str(_compared(records, contender))


def _numbers(found: Comparison) -> dict[str, float]:
    return {name: round(getattr(found, name), 6) for name in ("difference", "low", "high")}


def _compared(records: pd.DataFrame, contender: str) -> Comparison:
    return compare(records, TEST_ACCURACY, contender, OPPONENT, "seed")
