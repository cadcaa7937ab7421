"""Table 6: time and memory of a training step under each activation, and of translating, beside the same under softmax.

python -m benchmarks.overhead
"""

import argparse
import multiprocessing
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from benchmarks.maps import provenance, write_csv
from benchmarks.settings import on_random_data, settings_of
from benchmarks.training_step import our_loop, our_translations, seconds_per_step
from experiments.files import write_atomically
from experiments.machine import forget_peak_memory, keep_freed_memory, peak_memory_mib

SETTINGS = Path(__file__).with_suffix(".yaml")
BESIDES = {
    "benchmarks.entmax_sort.FullSort": "entmax (package), full sort",
    "benchmarks.entmax_sort.TopK": "entmax (package), top 100 sorted first",
}
SHAPE = {"inputs": "shape", "classes": "classes", "vocabulary": "vocabulary"}  # of `RandomExamples`, as `size` has it
PUBLISHED = Path("results/published/sharmix.yaml")


def block(size: dict[str, Any], activation: str) -> Callable[[], None]:
    """A block of training steps, as a run takes them; or of translations, if `size` asks for these."""
    named = [f"activation={activation}"]
    if "." in activation:
        named = ["activation=custom", f"activation.name={activation}"]
    settings = settings_of(size["experiment"], *named, "data.num_workers=0", *size["overrides"])
    if "sentences" in size:
        settings = on_random_data(settings, "RandomSentences", **size["sentences"])
        return our_translations(settings) if size["translates"] else our_loop(settings, size["steps"])
    shape = {name: size[key] for key, name in SHAPE.items() if key in size}
    examples = size["steps"] * settings.data["batch_size"]
    return our_loop(on_random_data(settings, "RandomExamples", examples=examples, **shape), size["steps"])


def times_in_turn(size: dict[str, Any], activations: list[str]) -> dict[str, list[float]]:
    """Seconds a step under each activation, one block each a round."""
    keep_freed_memory()
    blocks = {activation: block(size, activation) for activation in activations}
    for run in blocks.values():
        run()  # the first block allocates
    times: dict[str, list[float]] = {activation: [] for activation in activations}
    for _ in range(size["rounds"]):
        for activation, run in blocks.items():
            times[activation].append(seconds_per_step(run, size["steps"]))
    return times


def memory(size: dict[str, Any], activation: str) -> float:
    """The peak of two blocks in this process, in MiB."""
    run = block(size, activation)
    forget_peak_memory()
    run()
    run()
    return peak_memory_mib()


def measure(name: str, size: dict[str, Any], names: dict[str, str | None], progress: Progress) -> list[dict[str, Any]]:
    """A row for each activation."""
    times = times_in_turn(size, list(names))
    peaks = {}
    for activation in progress.track(names, description=size["title"]):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peaks[activation] = pool.apply(memory, (size, activation))
    rows = []
    for activation, seconds in times.items():
        ratios = sorted(own / other for own, other in zip(seconds, times["softmax"], strict=True))
        rows.append(
            {
                "experiment": name,
                "title": size["title"],
                "activation": activation,
                "milliseconds": 1e3 * statistics.median(seconds),
                "relative_time": statistics.median(ratios),
                "lowest": ratios[0],
                "highest": ratios[-1],
                "goal": size["goal"] if activation not in size.get("besides", {}) else None,
                "memory_mib": peaks[activation],
                "relative_memory": peaks[activation] / peaks["softmax"],
            }
        )
    return rows


def table(data: pd.DataFrame, settings: dict[str, Any]) -> str:
    """Ours beside the paper's, which are of training, but of no experiment in particular."""
    printed = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))[settings["published"]]
    translating = {name for name, size in settings["blocks"].items() if size.get("translates")}
    names = data["activation"].where(~data["experiment"].isin(translating)).map(settings["activations"].get)
    published = [printed.get(name) for name in names]
    shown = pd.DataFrame(
        {
            "experiment": data["title"],
            "activation": data["activation"].replace(BESIDES),
            "milliseconds": data["milliseconds"].map("{:.2f}".format),
            "relative time": [
                f"{row.relative_time:.3f} ({row.lowest:.3f}–{row.highest:.3f})" for row in data.itertuples()
            ],
            "goal": data["goal"].map("≤ {:.2f}".format, na_action="ignore").fillna("–"),
            "published": [_printed(numbers, 0) for numbers in published],
            "relative memory": data["relative_memory"].map("{:.3f}".format),
            "published memory": [_printed(numbers, 1) for numbers in published],
        }
    )
    first = data.iloc[0]
    dirty = ", with uncommitted changes" if first["dirty"] else ""
    return (
        "# Table 6. A training step, and translating, under each activation, relative to softmax\n\n"
        "Medians of blocks in turn (lowest–highest): a step of training, or a batch translated, with random inputs of "
        "each experiment's shapes; memory is the peak of "
        f"a fresh process. {first['processor']}, {first['cores']} cores, {first['vectors']}; backend "
        f"{first['backend']}; torch {first['torch']}; commit {str(first['commit'])[:12]}{dirty}. "
        "Repeat: `make overhead`.\n\n"
        f"{shown.to_markdown(index=False)}\n"
    )


def _printed(numbers: list[float] | None, place: int) -> str:
    return "–" if numbers is None else f"{numbers[place]:.2f}"


def main() -> None:
    """Command line: measure, and write the CSV and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"), help="for what is written")
    options = parser.parse_args()
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    source, rows = provenance("cpu"), []
    with Progress(console=Console(stderr=True)) as progress:
        for name, size in settings["blocks"].items():
            names = settings["activations"] | size.get("besides", {})
            rows += [{**row, **source} for row in measure(name, size, names, progress)]
    write_csv(rows, options.folder / "table6.csv")
    text = table(pd.DataFrame(rows), settings)
    write_atomically(options.folder / "table6.md", text)
    Console().print(Markdown(text))


if __name__ == "__main__":
    main()
