"""Table 6: time and memory of a training step under each activation, and of translating, beside the same under softmax.

python -m benchmarks.overhead
"""

import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats
from tqdm import tqdm

from benchmarks.harness import Row, command_line, in_fresh_process, in_turn, ratios, with_range
from benchmarks.publication import origin, publish
from benchmarks.random_data import on_random_data
from benchmarks.training_step import our_loop, our_translations, seconds_per_step
from experiments.composition import settings_of
from experiments.machine import forget_peak_memory, keep_freed_memory, peak_memory_mib
from experiments.run import Run
from experiments.settings import RunSettings
from reporting.look.palette import look
from reporting.records.declaration import load_declaration
from reporting.text.markdown import narrow, paragraph

BESIDES = {
    "benchmarks.entmax_sort.FullSort": "entmax (package), full sort",
    "benchmarks.entmax_sort.TopK": "entmax (package), top 100 sorted first",
}
PUBLISHED = Path("conf/reporting/published/sharmix.yaml")


def settings_under(size: dict[str, Any], activation: str) -> RunSettings:
    """The settings of a run of the block's experiment under an activation, on random data."""
    is_class = "." in activation
    named = ["activation=custom", f"activation.name={activation}"] if is_class else [f"activation={activation}"]
    settings = settings_of(f"experiment={size['experiment']}", *named, "data.num_workers=0", *size["overrides"])
    return on_random_data(settings, size["experiment"], size["steps"])


def blocks(size: dict[str, Any], activations: Iterable[str]) -> dict[str, Callable[[], None]]:
    """Under each activation a block of training steps, as a run takes them; or of translations, if `size` says so.

    All blocks train one network: copies of it, elsewhere in memory, differ in speed by some per cent.
    """
    found, network = {}, None
    for activation in activations:
        settings = settings_under(size, activation)
        module, data = Run(settings, Path()).build()
        network = module.network if network is None else network
        module.network = network
        if size.get("translates"):
            found[activation] = our_translations(module, data)
        else:
            found[activation] = our_loop(settings, module, data, size["steps"])
    return found


def medians(size: dict[str, Any], activations: list[str], seed: int) -> dict[str, tuple[float, float]]:
    """Each activation's median of seconds a step in this process, and of their ratios to softmax's.

    Each round has one block under each activation, in an order that is drawn.
    """
    keep_freed_memory()
    draw = random.Random(seed)
    turns = blocks(size, draw.sample(activations, len(activations)))
    for run in turns.values():
        run()  # the first block allocates
    rounds = dict.fromkeys(activations, size["rounds"])
    times = in_turn(lambda activation: seconds_per_step(turns[activation], size["steps"]), rounds, draw)
    return {
        activation: (statistics.median(seconds), statistics.median(ratios(seconds, times["softmax"])))
        for activation, seconds in times.items()
    }


def memory(size: dict[str, Any], activation: str) -> float:
    """The peak of two blocks in this process, in MiB."""
    (run,) = blocks(size, [activation]).values()
    forget_peak_memory()
    run()
    run()
    return peak_memory_mib()


def measure(name: str, size: dict[str, Any], settings: Mapping[str, Any], confidence: float) -> Iterator[Row]:
    """A row for each activation of a block."""
    title, names = size["title"], [*settings["activations"], *size.get("besides", [])]
    size = {**size, "overrides": [*size["overrides"], f"threads={settings['threads']}"]}
    found = [in_fresh_process(medians, size, names, seed) for seed in tqdm(range(settings["processes"]), title)]
    peaks = {one: in_fresh_process(memory, size, one) for one in tqdm(names, f"{title}, memory")}
    for activation in names:
        seconds, relative = zip(*(one[activation] for one in found), strict=True)
        yield {
            "experiment": name,
            "title": title,
            "activation": activation,
            **relative_time(relative, confidence),
            "milliseconds": 1e3 * statistics.median(seconds),
            "memory_mib": peaks[activation],
            "relative_memory": peaks[activation] / peaks["softmax"],
        }


def relative_time(relative: Sequence[float], confidence: float) -> dict[str, Any]:
    """The median over processes of their medians, and its interval."""
    low, high = median_interval(relative, confidence)
    return {
        "relative_time": statistics.median(relative),
        "low": low,
        "high": high,
        "processes": " ".join(f"{ratio:.4f}" for ratio in relative),
    }


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Both ends of the percentile bootstrap interval of the median; NaN for fewer than two values.

    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    if len(values) < 2:
        return nan, nan
    rng = np.random.default_rng(0)
    found = stats.bootstrap((values,), np.median, confidence_level=confidence, method="percentile", rng=rng)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def table(data: pd.DataFrame, settings: dict[str, Any], confidence: float) -> str:
    """Table 6: our numbers. Beside each experiment of the paper are the paper's, which name no experiment."""
    printed = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))[settings["published"]]
    names = data["activation"].where(data["experiment"].isin(settings["trained_in_the_paper"]))
    published = [printed.get(name) for name in names.map(settings["activations"].get)]
    shown = pd.DataFrame(
        {
            "activation": [BESIDES.get(name) or look(name).label for name in data["activation"]],
            "ms": data["milliseconds"].map("{:.2f}".format),
            "relative time": [
                with_range(*row, decimals=3) for row in data[["relative_time", "low", "high"]].to_numpy()
            ],
            "published": [f"{numbers[0]:.2f}" if numbers else "–" for numbers in published],
            "memory": data["relative_memory"].map("{:.3f}".format),
            "published memory": [f"{numbers[1]:.2f}" if numbers else "–" for numbers in published],
        }
    )
    about = (
        "A training step, or the translation of a batch, with random inputs of each experiment's shapes; threads: "
        f"{settings['threads']}. In each of {settings['processes']} fresh processes the activations take turns. A "
        "process gives the median of the ratios to softmax's time in the same round; *relative time* is the median "
        f"over processes, with its percentile bootstrap interval ({confidence:.0%}). *Memory* is the peak of a process "
        "of its own, relative to softmax's. *Published* is what the paper prints; it does not say of which "
        f"experiment. {origin(data, 'make overhead')}"
    )
    title = "# Table 6. A training step, and translating, under each activation, relative to softmax"
    parts = [title, paragraph(about)]
    for experiment, lines in shown.groupby(data["title"], sort=False):
        parts += [f"## {experiment}", narrow(lines.loc[:, (lines != "–").any()])]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Command line: measure, and write the CSV and the table."""
    options = command_line("overhead", __doc__).parse_args()
    settings, confidence = options.settings, load_declaration().confidence
    rows = chain.from_iterable(measure(name, size, settings, confidence) for name, size in settings["blocks"].items())
    publish("overhead", rows, options.folder / "table6.csv", lambda data: table(data, settings, confidence))


if __name__ == "__main__":
    main()
