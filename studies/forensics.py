"""Where the published numbers come from: the rows of Tables 1 and 3 under each hypothesis about their measurement.

Each task trains one row under one hypothesis, and measures its output on the training and on the test tweets. A
measurement reads the output as the activation gives it, or as the paper's printed formula gives it in some precision.
The output of 1.5-entmax is also read over the wrong dimension and with two classes exchanged.
"""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import f1_score
from torch import Tensor

import sharmix
from experiments.composition import settings_of
from experiments.data.examples import Examples
from experiments.modules.base import OutputModule
from experiments.run import Run, load_run
from reporting.records.yaml_files import read_yaml
from studies.altered_tweets import over_examples
from studies.printed_map import softmax_of_logarithm
from studies.study import Report, Row, Settings, Task, rows_of

PUBLISHED = Path("conf/reporting/published/sharmix.yaml")
METRICS = ["accuracy", "macro_f1", "sparsity"]
OWN = "own map"


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    """A task for each hypothesis, row and seed. Weights carried along the grid make one task of all its rows."""
    return [
        {"hypothesis": name, "rows": row, "seed": seed}
        for name, hypothesis in settings["hypotheses"].items()
        for row in (["grid"] if "carried" in hypothesis else _rows(hypothesis["rows"], settings))
        for seed in settings["seeds"]
    ]


def _rows(rows: str | list[str], settings: Settings) -> list[str]:
    if isinstance(rows, list):
        return rows
    return [name for name, row in settings["rows"].items() if rows == "all" or "orders" in row]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    hypothesis = settings["hypotheses"][task["hypothesis"]]
    rows = _rows("grid", settings) if task["rows"] == "grid" else [task["rows"]]
    measured = []
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):  # a line a run would hide the study's progress
        for number, row in enumerate(rows):
            overrides = [
                "experiment=airline",
                *_activation(settings["rows"][row], hypothesis, settings),
                *hypothesis["overrides"],
                *(_carried(task["seed"] + number, folder) if "carried" in hypothesis else []),
                f"seed={task['seed']}",
                f"paths.data={data or 'null'}",
                "progress=none",
            ]
            run = Run(settings_of(*overrides), Path(folder, row))
            run.train()
            module, splits = load_run(run.folder)
            for split in ("train", "test"):
                measured += _measured(row, split, module, getattr(splits.data, split), settings)
    return measured


def _activation(row: dict[str, Any], hypothesis: dict[str, Any], settings: Settings) -> list[str]:
    """The overrides that choose the activation of a row."""
    if "orders" not in row:
        return [f"activation={row['activation']}"]
    q, r = row["orders"]
    if "printed" not in hypothesis:
        return ["activation=sharmix_learned", f"activation.q={q}", f"activation.r={r}"]
    parameters = {"q": q, "r": r, "clamp": settings["clamp"], **hypothesis["printed"]}
    return [
        "activation=custom",
        "activation.name=studies.printed_map.PrintedSharMiX",
        *(f"+activation.parameters.{name}={value}" for name, value in parameters.items()),
    ]


def _carried(split_seed: int, folder: str) -> list[str]:
    """The overrides of a training that starts with the network of the training before it, on another split."""
    callback = f"{{_target_: studies.altered_tweets.CarriedNetwork, file: {folder}/carried.pt}}"
    return [f"data.split_seed={split_seed}", f"+callbacks.carried={callback}"]


@torch.inference_mode()
def _measured(row: str, split: str, module: OutputModule, examples: Examples, settings: Settings) -> Iterator[Row]:
    """Accuracy, macro-F1 and sparsity of a split, by each way to read the output."""
    inputs, targets = examples.read(torch.arange(len(examples.targets)), torch.zeros(len(examples.targets)))
    for reading, p in _readings(module, module.network(inputs), settings).items():
        predicted = p.argmax(-1)
        values = {
            "accuracy": (predicted == targets).double().mean().item(),
            "macro_f1": f1_score(targets, predicted, average="macro"),
            "sparsity": (p == 0).double().mean().item(),
        }
        yield from rows_of(values, contender=row, split=split, reading=reading)


def _readings(module: OutputModule, logits: Tensor, settings: Settings) -> dict[str, Tensor]:
    """The probabilities [n, classes] by each way to read the output."""
    activation, own = module.activation, module.activation(logits)
    readings = {OWN: own}
    if isinstance(activation, sharmix.SharMiX):
        q = float(activation.q)
        for dtype in settings["dtypes"]:
            u = (own ** (q - 1)).to(getattr(torch, dtype))
            readings[f"clamped, {dtype}"] = softmax_of_logarithm(u, q, settings["clamp"])
    if type(activation) is sharmix.Entmax:
        readings["over the examples"] = over_examples(logits)
        readings["neutral and positive exchanged"] = own[:, [0, 2, 1]]
    return readings


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """How many rows each combination gives; theirs beside ours under the nearest one; distances and deviations."""
    (theirs, deviations), means = published(settings), mean_metrics(records, settings)
    rows = means.index.get_level_values("contender")
    distances = ((means - theirs.loc[rows].values).abs() / deviations.loc[rows].values).max(axis="columns")
    by_row = distances.unstack("contender", sort=False).reindex(columns=[*settings["rows"]])
    # Rows that a reading does not change have the distance of the map's own output.
    own = by_row.xs(OWN, level="reading").reindex(by_row.index.droplevel("reading")).set_axis(by_row.index)
    by_row = by_row.fillna(own)
    table = by_row.map(_text).assign(**{"rows given": (by_row <= shown["given_within"]).sum(axis="columns")})
    counts = table[["rows given"]].sort_values("rows given", ascending=False, kind="stable").reset_index()
    counts = counts.drop_duplicates(["hypothesis", "split"])  # the reading that gives the most
    return Report(
        {
            "How many of the rows each hypothesis gives": counts[counts["rows given"] > 0],
            "The nearest hypothesis of each row": _nearest(distances, means, theirs),
            "Deviation of accuracy on test between seeds": _deviations(records, shown["splits"]),
            "Distance of each row by combination": table.reset_index(),
        },
        [],
        [f"{len(table)} combinations of training, split and reading were tried.", *shown["notes"]],
    )


def published(settings: Settings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mean and deviation of each metric, by row. Sparsity was published without a deviation."""
    tables, rows = read_yaml(PUBLISHED), settings["rows"]
    entries = {name: tables[table][key] for name, row in rows.items() for table, key in [row["published"]]}
    cells = pd.DataFrame.from_dict(entries, orient="index")[METRICS]
    pairs = cells.map(lambda cell: cell if isinstance(cell, list) else [cell, settings["sparsity_deviation"]])
    return pairs.map(lambda pair: pair[0]), pairs.map(lambda pair: pair[1])


def mean_metrics(records: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """The mean of each metric over seeds, by hypothesis in the order of the settings, split, reading and row."""
    places = ["hypothesis", "split", "reading", "contender"]
    listed = {name: number for number, name in enumerate(settings["hypotheses"])}
    means = records.pivot_table("value", places, "metric", sort=False)[METRICS]
    return means.sort_index(level=0, key=lambda names: names.map(listed), sort_remaining=False, kind="stable")


def _deviations(records: pd.DataFrame, hypotheses: list[str]) -> pd.DataFrame:
    """The standard deviation over seeds of accuracy on test, by row, under each of some hypotheses."""
    own = records[(records["split"] == "test") & (records["reading"] == OWN) & (records["metric"] == "accuracy")]
    stds = own.pivot_table("value", "contender", "hypothesis", "std", sort=False)[hypotheses]
    return stds.map("{:.4f}".format).rename_axis("row").rename_axis(columns=None).reset_index()


def _text(distance: float) -> str:
    return "–" if np.isnan(distance) else f"{distance:.1f}"


def _nearest(distances: pd.Series, means: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """For each row, theirs and ours under the nearest hypothesis."""
    lines = []
    for row in theirs.index:
        of_row = distances.xs(row, level="contender").round(1)  # of equally near ones, the first is shown
        hypothesis, split, reading = nearest = of_row.idxmin()
        both = {"theirs": theirs.loc[row], "ours": means.loc[(*nearest, row)]}
        lines.append(
            {"row": row}
            | {f"{name}, {whose}": f"{values[name]:.3f}" for name in METRICS for whose, values in both.items()}
            | {"deviations": _text(of_row.min()), "trained": hypothesis, "measured on": split, "read": reading}
        )
    return pd.DataFrame(lines)
