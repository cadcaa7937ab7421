"""Time and memory of causal attention by the number of tokens: torch's softmax, and ours whole and in blocks.

python -m benchmarks.attention
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import torch
from matplotlib.ticker import EngFormatter
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from tqdm import tqdm

import sharmix
from benchmarks.harness import Row, command_line, in_fresh_process
from benchmarks.publication import origin, publish
from experiments.machine import forget_peak_memory, peak_memory_mib
from reporting.figures.drawing import label_lines, save_figure, stack_of_panels, style
from reporting.look.palette import look
from reporting.text.markdown import paragraph
from sharmix._attention import attend

_ABOUT = (
    "Causal attention of {heads} heads of {width} numbers, forward and backward, on one thread, in float32. Each "
    "contender has a process of its own; the time is that of its fastest call, and the memory the most on top of the "
    "inputs. *Sparse*: scores with a standard deviation of {regimes[sparse]:g}; *dense*: of {regimes[dense]:g}."
)
SOFTMAX, WHOLE = "softmax (torch)", "1.5-entmax, all scores in memory"


def contenders() -> dict[str, Callable[..., Tensor]]:
    """Attention by name, of queries, keys and values."""
    entmax, fixed = sharmix.Entmax(alpha=1.5), sharmix.SharMiX(q=1.25, r=1.5)
    return {
        SOFTMAX: partial(scaled_dot_product_attention, is_causal=True),
        WHOLE: lambda *given: attend(*given, entmax, is_causal=True, need_weights=True)[0],
        "1.5-entmax": partial(sharmix.attention, activation=entmax, is_causal=True),
        "SharMiX (1.25, 1.5)": partial(sharmix.attention, activation=fixed, is_causal=True),
    }


def measured(name: str, tokens: int, scale: float, calls: int, settings: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of the fastest call, and MiB on top of the inputs, of one contender in this process."""
    torch.set_num_threads(1)
    attention, generator = contenders()[name], torch.Generator().manual_seed(settings["seed"])
    shape = 1, settings["heads"], tokens, settings["width"]
    query, key, value = (torch.randn(shape, generator=generator) for _ in range(3))
    leaves = [one.requires_grad_() for one in (scale * query, key, value)]

    def seconds(count: int) -> float:
        start = time.perf_counter()
        output = attention(*(leaf[:, :, :count] for leaf in leaves))
        torch.autograd.grad(output, leaves, torch.ones_like(output))
        return time.perf_counter() - start

    seconds(min(tokens, 256))
    forget_peak_memory()
    before = psutil.Process().memory_info().rss / 2**20
    return min(seconds(tokens) for _ in range(calls)), peak_memory_mib() - before


def measure(settings: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each number of tokens, regime and contender."""
    cases = [
        (cell["tokens"], cell["calls"], regime)
        for cell in settings["cells"]
        for regime in cell.get("regimes", settings["regimes"])
    ]
    for tokens, calls, regime in tqdm(cases, "attention"):
        baseline = None
        for name in contenders():
            if name == WHOLE and tokens > settings["whole_up_to"]:
                continue
            scale = settings["regimes"][regime]
            seconds, memory = in_fresh_process(measured, name, tokens, scale, calls, dict(settings))
            baseline = baseline or seconds
            row = {"tokens": tokens, "regime": regime, "contender": name, "calls": calls}
            yield row | {"seconds": seconds, "ratio": seconds / baseline, "memory_mib": memory}


def page(data: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    parts = [
        "# Time and memory of attention",
        paragraph(f"{_ABOUT.format(**settings)} {origin(data, 'make attention')}"),
        "![Time and memory against tokens](attention.svg)",
    ]
    for title, column, form in (
        ("Seconds", "seconds", "{:.3f}"),
        ("Time, softmax is 1", "ratio", "{:.2f}"),
        ("Memory, MiB", "memory_mib", "{:.0f}"),
    ):
        wide = data.pivot(index=["regime", "tokens"], columns="contender", values=column)[[*contenders()]]
        shown = wide.loc[[*settings["regimes"]]].map(form.format, na_action="ignore").fillna("–").reset_index()
        parts += [f"## {title}", shown.to_markdown(index=False, disable_numparse=True)]
    return "\n\n".join(parts) + "\n"


@style()
def draw(data: pd.DataFrame, path: Path) -> None:
    """The figure beside the CSV file: seconds and MiB against tokens, of sparse scores."""
    looks = {SOFTMAX: ("softmax", "-"), WHOLE: ("entmax", "--"), "1.5-entmax": ("entmax", "-")}
    figure, panels = stack_of_panels(2, 2.4, sharex=True)
    shown = data[data["regime"] == "sparse"]
    for axes, column, unit, factor in zip(panels, ("seconds", "memory_mib"), ("s", "B"), (1, 2**20), strict=True):
        axes.set(xscale="log", yscale="log", ylabel="forward and backward" if unit == "s" else "memory")
        for name, (activation, line) in looks.items():
            own = shown[shown["contender"] == name]
            colour, marker = look(activation).colour, look(activation).marker
            axes.plot(own["tokens"], factor * own[column], color=colour, linestyle=line, marker=marker, label=name)
        axes.yaxis.set_major_formatter(EngFormatter(unit))
    panels[-1].set_xticks(tokens := [*data["tokens"].unique()], [f"{count:,}" for count in tokens])
    panels[-1].minorticks_off()
    panels[-1].set_xlabel("tokens")
    label_lines(figure, panels)
    save_figure(figure, path.parent, path.stem)


def main() -> None:
    """Command line: measure, write the CSV, and make its page and figure."""
    options = command_line("attention", __doc__).parse_args()
    settings = options.settings
    path = options.folder / "attention.csv"
    publish("attention", measure(settings), path, lambda data: page(data, settings))
    draw(pd.read_csv(path), path)


if __name__ == "__main__":
    main()
