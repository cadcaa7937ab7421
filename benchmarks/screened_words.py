"""How many words screening leaves, epoch by epoch of a training of translation, and what it changes.

python run.py experiment=multi30k activation=entmax paths.data=FOLDER \\
    '+callbacks.words={_target_: benchmarks.screened_words.Words, every: 50, screened: false}'
python -m benchmarks.screened_words outputs/multi30k/entmax-0123456789ab/seed-21 [FOLDER ...]
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
from experiments.identity import ROOT
from experiments.record import load_record, read_record
from experiments.run_folder import CURVES, RECORD
from reporting.figures.drawing import label_lines, save_figure, stack_of_panels, style
from reporting.look.palette import look
from reporting.text.markdown import paragraph
from sharmix import _layer_screened
from sharmix._operators import cpu

NAMES = {"entmax": "1.5-entmax", "sharmix_fixed": FIXED}
RECORDS = ROOT / "results" / "records" / "multi30k.jsonl"
REPEAT = "python -m benchmarks.screened_words FOLDERS"
_ABOUT = (
    "Of one batch in {every:.0f} of a training on Multi30k, means of an epoch. *Nonzero*: the words with a gradient, "
    "of a token: those with a probability above 0, and its target. *Left*: the words that screening cannot exclude, of "
    "a token ([why](../../docs/math.md), section 9). *Listed*: the share of the tokens for which these are at most a "
    "sixteenth of all; for the others all logits are computed. *Rows*: the share of the table's rows that have a "
    "gradient from a batch. *Time*: the layer with its loss, forward and backward, as it is computed without "
    "screening, relative to the same layer with cross-entropy, in processor time beside other work."
)
_SCREENED = (
    "Each training once more, with the same seed: all its batches are *screened*, also where most tokens get no list. "
    "Rounding alone differs, and its effect grows from step to step. *Recorded*: the same training without screening "
    "by an earlier commit, which sums in another order, from [the records](../records/multi30k.jsonl). So far apart "
    "are two trainings without screening. *Loss*: of training. *BLEU*: on dev. *Time*: as above. This processor is not "
    "made for bfloat16, and {listed:.0%} to {most:.0%} of a batch's tokens get a list."
)


class Words(Callback):
    """Logs what screening leaves of every so many batches, and the time of the loss, as words/left and so on.

    Args:
        every: one batch in so many is counted.
        screened: whether the loss is screened in every batch, on any processor.
    """

    def __init__(self, every: int, screened: bool) -> None:
        self.every, self.screened, self.calls = every, screened, 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.screened:
            always = {"has_bfloat16": lambda: True, "_LEAST_ROWS": 0, "_LEAST_CLASSES": 0, "_UNLISTED": 1.0}
            mock.patch.multiple(_layer_screened, **always).start()
        activation: Any = pl_module.activation
        compute = activation.linear_loss

        def counted(*layer: Tensor, **options: Any) -> Tensor:
            self.calls += 1
            if self.calls % self.every == 0:
                plain = [one.detach() for one in layer]
                orders = [float(order) for order in activation._regulariser().orders]
                settings = {"every": self.every, "screened": float(self.screened)}
                found = counts(*plain, orders) | {"ratio": ratio(compute, plain, options)}
                named = {f"words/{name}": value for name, value in (settings | found).items()}
                pl_module.log_dict(named, on_step=False, on_epoch=True, batch_size=1)
            return compute(*layer, **options)

        activation.linear_loss = counted


def ratio(loss: Callable[..., Tensor], layer: Sequence[Tensor], options: Mapping[str, Any]) -> float:
    """The processor time of a layer and its loss, forward and backward, relative to cross-entropy's."""
    *tensors, targets = layer
    leaves = [one.requires_grad_() for one in tensors]
    contenders = (
        lambda: loss(*leaves, targets, **options),
        lambda: cross_entropy(linear(*leaves), targets, reduction="sum"),
    )
    seconds = []
    for contender in contenders:
        start = time.process_time()
        torch.autograd.grad(contender(), leaves)
        seconds.append(time.process_time() - start)
    return seconds[0] / seconds[1]


@torch.no_grad()
def counts(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, orders: Sequence[float]) -> Row:
    """Of one batch: tokens, words, those with a gradient and those left, of a token, and the share of rows touched."""
    (near_hidden, of_hidden), (near_weight, of_weight) = map(_layer_screened.rounded, (hidden, weight))
    product = (near_hidden.float() @ near_weight.float().T).bfloat16()  # fast on every processor
    norms = of_hidden, of_weight
    left = cpu.screen((hidden, weight, bias, targets), product, norms, orders, len(weight))[0]
    left = torch.where(left < 0, len(weight), left)  # without a list all logits are computed
    p = sharmix.sharmix(linear(hidden, weight, bias), *orders)
    p.scatter_add_(1, targets[:, None], -torch.ones_like(p[:, :1]))
    return {
        "tokens": len(hidden),
        "words": len(weight),
        "nonzero": (p != 0).sum(1).float().mean().item(),
        "left": left.float().mean().item(),
        "listed": (left <= len(weight) / 16).float().mean().item(),
        "rows": (p != 0).any(0).float().mean().item(),
    }


def measured(folders: Sequence[Path]) -> Iterator[Row]:
    """The rows of finished runs with the callback: a row for each epoch, beside the records of the same training."""
    records = [read_record(line, str(RECORDS)) for line in RECORDS.read_text("utf-8").splitlines()]
    curves_of = {(one.config["activation"]["name"], one.seed): one.curves for one in records}
    for folder in folders:
        record, curves = load_record(folder / RECORD), pd.read_csv(folder / CURVES)
        run = {"activation": record.config["activation"]["name"], "seed": record.seed}
        words = curves.set_index("epoch").filter(like="words/").rename(columns=lambda name: name.removeprefix("words/"))
        recorded = pd.DataFrame(curves_of[tuple(run.values())])
        source = provenance(record.environment.model_dump(), record.code.model_dump())
        for row in _curves(curves, "").join([_curves(recorded, "_recorded"), words]).reset_index().to_dict("records"):
            yield run | row | source


def _curves(rows: pd.DataFrame, suffix: str) -> pd.DataFrame:
    """The training loss and BLEU on dev by epoch, in columns with a suffix."""
    return rows.set_index("epoch")[["train/loss", "dev/bleu"]].set_axis([f"loss{suffix}", f"bleu{suffix}"], axis=1)


def page(data: pd.DataFrame) -> str:
    """The page as Markdown."""
    screened, data = (data[data["screened"] == which].reset_index(drop=True) for which in (True, False))
    shown = pd.DataFrame({"activation": data["activation"].replace(NAMES), "epoch": data["epoch"]})
    for title, column, form in (
        ("nonzero", "nonzero", "{:.1f}"),
        ("left", "left", "{:.0f}"),
        ("listed", "listed", "{:.0%}"),
        ("rows", "rows", "{:.1%}"),
        ("time", "ratio", "{:.2f}"),
    ):
        shown[title] = data[column].map(form.format)
    about = _ABOUT.format(every=data["every"].iloc[0])
    sizes = f"The table has {data['words'].iloc[0]:,.0f} words, and a batch {data['tokens'].mean():,.0f} tokens."
    return "\n\n".join(
        (
            "# Words that screening leaves",
            paragraph(f"{about} {sizes} {origin(data, REPEAT)}"),
            "![Words and lists by epoch](screened_words.svg)",
            shown.to_markdown(index=False, disable_numparse=True),
            "## What screening changes",
            paragraph(_SCREENED.format(listed=data["listed"].min(), most=data["listed"].max())),
            side_by_side(data, screened).to_markdown(index=False, disable_numparse=True) + "\n",
        )
    )


def side_by_side(data: pd.DataFrame, screened: pd.DataFrame) -> pd.DataFrame:
    """The curves of trainings without and with screening, by activation and epoch."""
    both = data.merge(screened, on=["activation", "epoch", "seed"], suffixes=("", "_screened"))
    shown = pd.DataFrame({"activation": both["activation"].replace(NAMES), "epoch": both["epoch"]})
    for title, column, form, others in (
        ("loss", "loss", "{:.4f}", ("screened", "recorded")),
        ("BLEU", "bleu", "{:.2f}", ("screened", "recorded")),
        ("time", "ratio", "{:.2f}", ("screened",)),
    ):
        shown[title] = both[column].map(form.format)
        for other in others:
            shown[f"{title}, {other}"] = both[f"{column}_{other}"].map(form.format)
    return shown


@style()
def draw(data: pd.DataFrame, path: Path) -> None:
    """The figure beside the CSV file: words of a token by epoch, and the share of the tokens with a list."""
    data = data[data["screened"] == 0]
    figure, panels = stack_of_panels(2, 2.4, sharex=True)
    for activation, name in NAMES.items():
        rows, own = data[data["activation"] == activation], look(activation)
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
    parser.add_argument("runs", nargs="+", type=Path, metavar="FOLDER", help="finished runs with the callback")
    options = parser.parse_args()
    path = options.folder / "screened_words.csv"
    publish("screened_words", measured(options.runs), path, page)
    draw(pd.read_csv(path), path)


if __name__ == "__main__":
    main()
