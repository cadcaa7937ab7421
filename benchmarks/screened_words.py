"""How many words screening leaves, epoch by epoch of a training of translation.

python run.py experiment=multi30k activation=entmax paths.data=FOLDER \\
    '+callbacks.words={_target_: benchmarks.screened_words.Words, file: /tmp/entmax.csv}'
python -m benchmarks.screened_words /tmp/entmax.csv [FILE ...]
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from matplotlib.ticker import PercentFormatter
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

import sharmix
from benchmarks.contenders import FIXED
from benchmarks.harness import Row
from benchmarks.publication import origin, publish
from reporting.figures.drawing import label_lines, save_figure, stack_of_panels, style
from reporting.look.palette import look
from reporting.text.markdown import paragraph
from sharmix._layer_screened import rounded
from sharmix._operators import cpu

NAMES = {"entmax": "1.5-entmax", "sharmix_fixed": FIXED}
REPEAT = "python -m benchmarks.screened_words FILES"
_ABOUT = (
    "Of one batch in {every} of a training on Multi30k, means of an epoch. *Nonzero*: the words with a gradient, of a "
    "token: those with a probability above 0, and its target. *Left*: the words that screening cannot exclude, of a "
    "token ([why](../../docs/math.md), section 9). *Listed*: the share of the tokens for which these are at most a "
    "sixteenth of all; for the others all logits are computed. *Rows*: the share of the table's rows that have a "
    "gradient from a batch. *Time*: the layer with its loss, forward and backward, as it is computed without "
    "screening, relative to the same layer with cross-entropy, in processor time beside other work."
)


class Words(Callback):
    """Counts the words of every so many batches, and writes their means after each epoch into a file."""

    def __init__(self, file: str, every: int = 50) -> None:
        self.file, self.every, self.calls = file, every, 0
        self.rows: list[Row] = []
        self.found: list[Row] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        activation: Any = pl_module.activation
        compute = activation.linear_loss

        def counted(*layer: Tensor, **options: Any) -> Tensor:
            self.calls += 1
            if self.calls % self.every == 0:
                plain = [one.detach() for one in layer]
                orders = [float(order) for order in activation._regulariser().orders]
                self.rows.append(counts(*plain, orders) | {"ratio": ratio(compute, plain, options)})
            return compute(*layer, **options)

        activation.linear_loss = counted

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        means = pd.DataFrame(self.rows).mean().to_dict()
        self.found.append({"epoch": trainer.current_epoch + 1, **means, "every": self.every})
        self.rows = []
        pd.DataFrame(self.found).to_csv(self.file, index=False)

    def state_dict(self) -> dict[str, Any]:
        return {"found": self.found}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.found = state_dict["found"]


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
    (near_hidden, of_hidden), (near_weight, of_weight) = rounded(hidden), rounded(weight)
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


def measured(files: Sequence[str]) -> Iterator[Row]:
    """The rows of files that the callback has written, each named after its activation."""
    for file in files:
        for row in pd.read_csv(file).to_dict("records"):
            yield {"activation": Path(file).stem, **row}


def page(data: pd.DataFrame) -> str:
    """The page as Markdown."""
    shown = pd.DataFrame({"activation": data["activation"].replace(NAMES), "epoch": data["epoch"]})
    for title, column, form in (
        ("nonzero", "nonzero", "{:.1f}"),
        ("left", "left", "{:.0f}"),
        ("listed", "listed", "{:.0%}"),
        ("rows", "rows", "{:.1%}"),
        ("time", "ratio", "{:.2f}"),
    ):
        shown[title] = data[column].map(form.format)
    words = f"The table has {data['words'].iloc[0]:,.0f} words, and a batch {data['tokens'].mean():,.0f} tokens."
    about = paragraph(f"{_ABOUT.format(every=data['every'].iloc[0])} {words} {origin(data, REPEAT)}")
    table = shown.to_markdown(index=False, disable_numparse=True)
    return f"# Words that screening leaves\n\n{about}\n\n![Words and lists by epoch](screened_words.svg)\n\n{table}\n"


@style()
def draw(data: pd.DataFrame, path: Path) -> None:
    """The figure beside the CSV file: words of a token by epoch, and the share of the tokens with a list."""
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
    parser.add_argument("files", nargs="+", metavar="FILE", help="what the callback wrote")
    options = parser.parse_args()
    path = options.folder / "screened_words.csv"
    publish("screened_words", measured(options.files), path, page)
    draw(pd.read_csv(path), path)


if __name__ == "__main__":
    main()
