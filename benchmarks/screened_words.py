"""How many words screening leaves, epoch by epoch of a training of translation, and what it changes.

python run.py experiment=multi30k activation=entmax paths.data=FOLDER \\
    '+callbacks.words={_target_: benchmarks.screened_words.Words, every: 50}'
python run.py experiment=multi30k activation=entmax paths.data=FOLDER
python -m benchmarks.screened_words outputs/multi30k/entmax-{0123456789ab,ba9876543210}/seed-21 [RUN ...]

The second training is the first without screening: make it on a processor without instructions for bfloat16.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from matplotlib.ticker import PercentFormatter
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

import sharmix
from benchmarks.contenders import FIXED
from benchmarks.harness import Row
from benchmarks.publication import origin, provenance, publish
from experiments.identity import ROOT, run_id
from experiments.record import Record, load_record
from experiments.run_folder import RECORD
from reporting.figures.drawing import label_lines, save_figure, stack_of_panels, style
from reporting.look.palette import look
from reporting.records.collected_records import read_records
from reporting.text.markdown import paragraph
from sharmix import _layer_screened
from sharmix._layer_screened import list_room, rounded
from sharmix._operators import cpu

NAMES = {"entmax": "1.5-entmax", "sharmix_fixed": FIXED}
RESULTS = ROOT / "results"
REPEAT = "python -m benchmarks.screened_words RUNS"
SCREENED, NOT_SCREENED, RECORDED = "screened", "not screened", "recorded"  # kinds of trainings
_ABOUT = (
    "Each number is the mean of every {every}th batch of an epoch, in a training on Multi30k. *Nonzero*, per token: "
    "the words that get a gradient: those with a probability above 0, and the target. *Listed*: the share of the "
    "tokens that get a list, because the product in bfloat16 leaves less than a sixteenth of all words "
    "([why](../../docs/math.md#9-which-classes-of-an-output-layer-can-matter)); for the others all logits are "
    "computed. *Left*, per token: its target, and the words whose logits in float32 are near enough to its largest; "
    "all words where the product excludes none. *Rows*, per batch: the share of the output weight's rows that get a "
    "gradient. *Time*: the layer with its loss, forward and backward, without screening and with it, relative to the "
    "same layer with cross-entropy, in processor time beside other work; each is timed once a batch. Here all tokens "
    "are screened. The library tries 16 tokens of a batch, and goes on if at most four of these have no list."
)
_WITHOUT = "This processor has no instructions for bfloat16, so the product of screening is slow."
_CURVES = (
    "*Not screened*: the training without screening, at commit {not_screened}. *Recorded*: once more without "
    "screening, [as recorded](../records/multi30k.jsonl) on a processor with {vectors}, at commit {recorded}. "
    "*Screened*: the trainings above, whose batches are all screened, also where most tokens get no list. The three "
    "should differ in rounding alone, which each step carries over to the next. *Loss*: of training. *BLEU*: on dev."
)


class Words(Callback):
    """Screens the loss of every batch, and logs what this leaves of every so many: words/left and so on.

    The loss is one that can be screened: on the CPU, in float32, without label smoothing, 1 < q ≤ 2.
    """

    def __init__(self, every: int) -> None:
        self.every, self.batch = every, 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        activation: Any = pl_module.activation
        compute = activation.linear_loss

        def counted(*layer: Tensor, **options: Any) -> Tensor:
            if self.batch % self.every == 0:
                plain = [one.detach() for one in layer]  # Multi30k's layer has a bias
                orders = [float(order) for order in activation._regulariser().orders]
                found = counts(*plain, orders) | times(compute, plain, options)
                found["instructions"] = float(_layer_screened.has_bfloat16())
                named = {f"words/{name}": value for name, value in found.items()}
                pl_module.log_dict(named, on_step=False, on_epoch=True, batch_size=1)
            return loss_with(True, compute, layer, options)

        activation.linear_loss = counted

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module.activation.linear_loss

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        self.batch = batch_idx


def loss_with(
    screening: bool, loss: Callable[..., Tensor], layer: Sequence[Tensor], options: Mapping[str, Any]
) -> Tensor:
    """The loss of an output layer with all its rows screened, also where that does not pay, or with none."""
    every_layer = {"_LEAST_ROWS": 0, "_LEAST_CLASSES": 0, "_UNLISTED": 1.0}
    with mock.patch.multiple(_layer_screened, has_bfloat16=lambda: screening, **every_layer):
        return loss(*layer, **options)


def times(loss: Callable[..., Tensor], layer: Sequence[Tensor], options: Mapping[str, Any]) -> Row:
    """The processor time of a layer and its loss, forward and backward, relative to cross-entropy's."""
    *tensors, targets = layer
    leaves = [one.requires_grad_() for one in tensors]

    def seconds(compute: Callable[[], Tensor]) -> float:
        start = time.process_time()
        torch.autograd.grad(compute(), leaves)
        return time.process_time() - start

    baseline = seconds(lambda: cross_entropy(linear(*leaves), targets, reduction="sum"))
    plain = seconds(lambda: loss_with(False, loss, layer, options))
    screened = seconds(lambda: loss_with(True, loss, layer, options))
    return {"time": plain / baseline, "time_screened": screened / baseline}


@torch.no_grad()
def counts(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, orders: Sequence[float]) -> Row:
    """Of one batch: tokens, words, those with a gradient and those left, of a token, and the share of rows touched."""
    (near_hidden, of_hidden), (near_weight, of_weight) = rounded(hidden), rounded(weight)
    product = (near_hidden.float() @ near_weight.float().T).bfloat16()  # fast on every processor
    screen = (hidden, weight, bias, targets), product, (of_hidden, of_weight), orders
    left = cpu.screen(*screen, len(weight))[0]
    left = torch.where(left < 0, len(weight), left)  # the product excludes none
    p = sharmix.sharmix(linear(hidden, weight, bias), *orders)
    p.scatter_add_(1, targets[:, None], -torch.ones_like(p[:, :1]))
    return {
        "tokens": len(hidden),
        "words": len(weight),
        "nonzero": (p != 0).sum(1).float().mean().item(),
        "left": left.float().mean().item(),
        "listed": (cpu.screen(*screen, list_room(len(weight)))[0] > 0).float().mean().item(),
        "rows": (p != 0).any(0).float().mean().item(),
    }


def measured(folders: Sequence[Path], results: Path) -> Iterator[Row]:
    """A row for each epoch of finished runs, with and without the callback, and of the records of the same runs."""
    runs, experiments = set(), set()
    for folder in folders:
        record = load_record(folder / RECORD)
        yield from rows_of(record, SCREENED if "words/left" in record.curves[0] else NOT_SCREENED)
        runs.add((run_id(record.config | {"callbacks": {}}), record.seed))
        experiments.add(record.experiment)
    for experiment in experiments:
        for record in read_records(results, experiment):
            if (record.run_id, record.seed) in runs:
                yield from rows_of(record, RECORDED)


def rows_of(record: Record, training: str) -> Iterator[Row]:
    """A row for each epoch of a record: loss, BLEU, and what the callback has logged."""
    about = {"activation": record.config["activation"]["name"], "seed": record.seed, "training": training}
    every = record.config["callbacks"].get("words", {}).get("every")
    source = provenance(record.environment.model_dump(), record.code.model_dump())
    for row in record.curves:
        words = {name.removeprefix("words/"): value for name, value in row.items() if name.startswith("words/")}
        curves = {"epoch": row["epoch"], "loss": row["train/loss"], "bleu": row["dev/bleu"], "every": every}
        yield about | curves | words | source


def page(data: pd.DataFrame) -> str:
    """The page as Markdown."""
    data = data.assign(activation=data["activation"].replace(NAMES))
    screened = data[data["training"] == SCREENED]
    first, tokens = screened.iloc[0], screened["tokens"].mean()
    sizes = f"There are {first['words']:,.0f} words, and {tokens:,.0f} tokens in a batch, on average."
    trainings = dict(list(data.groupby("training")))
    vectors, recorded = (_all(trainings[RECORDED], column) for column in ("vectors", "commit"))
    curves = _CURVES.format(vectors=vectors, recorded=recorded, not_screened=_all(trainings[NOT_SCREENED], "commit"))
    without = "" if first["instructions"] else _WITHOUT
    about = f"{_ABOUT.format(every=int(first['every']))} {without} {sizes} {origin(screened, REPEAT)}"
    return "\n\n".join(
        (
            "# Words that screening leaves",
            paragraph(about),
            "![Words and lists by epoch](screened_words.svg)",
            _table_of_words(screened),
            "## What screening changes",
            paragraph(curves),
            _table_of_curves(data) + "\n",
        )
    )


def _all(data: pd.DataFrame, column: str) -> str:
    return ", ".join(str(value)[:12] for value in data[column].unique())


def _table_of_words(screened: pd.DataFrame) -> str:
    shown = screened[["activation", "seed", "epoch"]].copy()
    for title, column, form in (
        ("nonzero", "nonzero", "{:.1f}"),
        ("left", "left", "{:.0f}"),
        ("listed", "listed", "{:.0%}"),
        ("rows", "rows", "{:.1%}"),
        ("time", "time", "{:.2f}"),
        ("time, screened", "time_screened", "{:.2f}"),
    ):
        shown[title] = screened[column].map(form.format)
    return shown.to_markdown(index=False, disable_numparse=True)


def _table_of_curves(data: pd.DataFrame) -> str:
    """Loss and BLEU of each kind of training, side by side."""
    forms = {"loss": "{:.4f}", "bleu": "{:.2f}"}
    shown = data.pivot(index=["activation", "seed", "epoch"], columns="training", values=list(forms))
    for column, form in forms.items():
        shown[column] = shown[column].map(form.format, na_action="ignore")
    shown.columns = [f"{metric.replace('bleu', 'BLEU')}, {training}" for metric, training in shown.columns]
    return shown.reset_index().to_markdown(index=False, disable_numparse=True)


@style()
def draw(data: pd.DataFrame, path: Path) -> None:
    """The figure beside the CSV file: words of a token by epoch, and the share of the tokens with a list."""
    data = data[data["training"] == SCREENED]
    figure, panels = stack_of_panels(2, 2.4, sharex=True)
    for activation, name in NAMES.items():
        rows, own = data[data["activation"] == activation].groupby("epoch", as_index=False).mean(True), look(activation)
        for axes, column, line in ((0, "left", "-"), (0, "nonzero", ":"), (1, "listed", "-")):
            form = {"color": own.colour, "marker": own.marker, "linestyle": line}
            panels[axes].plot(rows["epoch"], rows[column], label=f"{name}, {column}", **form)
    panels[0].set(yscale="log", ylabel=f"words, of {data['words'].iloc[0]:,.0f}")
    panels[1].set(ylim=(0, 1), ylabel="tokens with a list", xlabel="epoch", xticks=data["epoch"].unique())
    panels[1].yaxis.set_major_formatter(PercentFormatter(1))
    label_lines(figure, panels)
    save_figure(figure, path.parent, path.stem)


def main() -> None:
    """Command line: collect the rows of runs, write the CSV, and make its page and figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screened_words", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"), help="for what is written")
    text = "finished runs with the callback, and the same runs without it"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=text)
    options = parser.parse_args()
    path = options.folder / "screened_words.csv"
    rows = list(measured(options.runs, RESULTS))
    if missing := {SCREENED, NOT_SCREENED, RECORDED} - {row["training"] for row in rows}:
        parser.error(f"no training of RUN is {' or '.join(sorted(missing))}")
    publish("screened_words", rows, path, page)
    draw(pd.read_csv(path), path)


if __name__ == "__main__":
    main()
