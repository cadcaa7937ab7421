"""Messages and time of losses whose classes are split over processes, beside `loss_parallel` and gathered logits.

python -m benchmarks.vocab_parallel --run outputs/multi30k/entmax-…/seed-21 --data FOLDER
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from timeit import timeit
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import yaml
from rich.console import Console
from rich.markdown import Markdown
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.profiler import profile

import sharmix
from benchmarks.harness import Row, Step, in_turn, origin, provenance, ratios, spread, write_csv
from experiments.data.special_tokens import PADDING
from experiments.files import write_atomically
from experiments.record import load_record
from experiments.run import load_run
from experiments.run_folder import RECORD
from reporting.markdown import narrow, paragraph

SETTINGS = Path(__file__).with_suffix(".yaml")
WIDTHS = {"float": 4, "double": 8}


class Gathered(torch.autograd.Function):
    """All classes' logits from those of each process, of equal numbers."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        parts = local.new_empty(dist.get_world_size() * len(local), local.shape[-1])
        dist.all_gather_into_tensor(parts, local.contiguous())
        return torch.cat(parts.split(len(local)), -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.chunk(dist.get_world_size(), -1)[dist.get_rank()]


def contenders(logits: Tensor, targets: Tensor) -> dict[str, Step]:
    """Forward and backward of each loss of this process's logits, a leaf."""
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh
    from torch.distributed.tensor.parallel import loss_parallel

    from sharmix.parallel import VocabParallelLoss

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    entmax, default = VocabParallelLoss("entmax"), VocabParallelLoss("sharmix_fixed")

    def of_dtensor() -> None:
        with loss_parallel():
            cross_entropy(DTensor.from_local(logits, mesh, [Shard(-1)], run_check=False), targets).backward()

    return {
        "cross-entropy, loss_parallel": of_dtensor,
        "1.5-entmax, gathered logits": lambda: sharmix.entmax_loss(Gathered.apply(logits), targets).backward(),
        "1.5-entmax, shared": lambda: entmax(logits, targets).backward(),
        "SharMiX, shared": lambda: default(logits, targets).backward(),
    }


def logits_of(kind: Mapping[str, float], rows: int, classes: int, generator: torch.Generator) -> Tensor:
    logits = kind["scale"] * torch.randn(rows, classes, generator=generator)
    raised = torch.randint(classes, (rows, int(kind["raised"])), generator=generator)
    return logits.scatter_add(-1, raised, torch.full(raised.shape, float(kind["by"])))


def messages(step: Step) -> dict[str, int]:
    """The collectives of a step, and the bytes that this process gives to them."""
    with profile(record_shapes=True) as seen:
        step()
    found = {"all_gathers": 0, "all_reduces": 0, "all_gather_bytes": 0, "all_reduce_bytes": 0}
    for event in seen.profiler.kineto_results.events():
        name = event.name().removeprefix("gloo:")
        if f"{name}s" in found and event.name() != name:
            found[f"{name}s"] += 1
            found[f"{name}_bytes"] += torch.Size(event.shapes()[0]).numel() * WIDTHS[event.dtypes()[0]]
    return found


def translation(run: Path, data: Path | None, settings: Mapping[str, Any]) -> tuple[str, Tensor, Tensor]:
    """The name of a finished translation run, its logits for words of its dev split, and the words that follow.

    A few last words of the vocabulary are left out, so that all processes have equally many.
    """
    record = load_record(run / RECORD)
    name = f"{record.experiment}, {record.config['activation']['name']}, epoch {record.epoch}"
    module, examples = load_run(run, data)
    classes = module.network.output_bias.numel()
    classes -= classes % math.lcm(*settings["processes"])
    batch = next(iter(examples.val_dataloader()[0]))
    words = batch.targets[:, 1:]
    wanted = (words != PADDING) & (words < classes)
    with torch.no_grad():
        logits = module.network.logits(module.network(batch.inputs, batch.targets[:, :-1])[wanted])
    return name, logits[: settings["rows"], :classes].clone(), words[wanted][: settings["rows"]]


def cases(settings: Mapping[str, Any], trained: Path) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each kind of logits [rows, classes], with targets."""
    for classes in settings["classes"]:
        for kind, description in settings["logits"].items():
            generator = torch.Generator().manual_seed(settings["seed"])
            logits = logits_of(description, settings["rows"], classes, generator)
            yield kind, logits, torch.randint(classes, (settings["rows"],), generator=generator)
    if trained.exists():
        yield torch.load(trained, weights_only=True)


def cells(settings: Mapping[str, Any], processes: int, trained: Path) -> Iterator[Row]:
    """A row for each case and contender; every process measures the same in turn."""
    for kind, whole, targets in cases(settings, trained):
        logits = whole.chunk(processes, -1)[dist.get_rank()].clone().requires_grad_()
        steps = contenders(logits, targets)

        def seconds(name: str, steps: Mapping[str, Step] = steps, logits: Tensor = logits) -> float:
            logits.grad = None
            dist.barrier()
            return timeit(steps[name], number=1)

        in_turn(seconds, dict.fromkeys(steps, settings["warm_up"]))
        sent = {name: messages(step) for name, step in steps.items()}
        times = in_turn(seconds, dict.fromkeys(steps, settings["rounds"]))
        case = {"processes": processes, "classes": whole.shape[-1], "rows": len(whole), "logits": kind}
        for name, own in times.items():
            ratio = spread(ratios(own, times[settings["baseline"]]), "ratio")
            yield {**case, "contender": name, **sent[name], **spread(own, "milliseconds", 1e3), **ratio}


def measure(rank: int, processes: int, settings: Mapping[str, Any], folder: str, trained: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=processes)
    rows = list(cells(settings, processes, trained))
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()


def kinds_of(settings: Mapping[str, Any]) -> str:
    """The kinds of drawn logits in words."""
    return "; ".join(
        f"{kind}, standard deviation {one['scale']}"
        + (f", and {one['raised']} classes of a row higher by {one['by']}" if one["raised"] else "")
        for kind, one in settings["logits"].items()
    )


def computed(data: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Microseconds of each contender's messages on each link, from their measured numbers and bytes a row."""
    table, size = settings["computed"], settings["computed"]["processes"]
    others = size - 1
    measured = data[data["classes"] == data["classes"].max()]
    measured = measured[measured["processes"] == measured["processes"].max()]
    lines = []
    for one in measured.to_dict("records"):
        line = {"logits": one["logits"], "loss": one["contender"]}
        for rows in table["rows"]:
            scale = rows / one["rows"]
            if "gathered" in one["contender"]:  # a process gives all its logits, of which it has fewer
                scale *= table["classes"] / one["classes"] * one["processes"] / size
            traffic = scale * others * (one["all_gather_bytes"] + one["all_reduce_bytes"] * 2 / size)
            hops = others * (one["all_gathers"] + 2 * one["all_reduces"])
            for link, speed in table["links"].items():
                time = hops * speed["microseconds"] + traffic / speed["gigabytes_a_second"] / 1e3
                line[f"{link}, {rows:,} rows"] = f"{time:,.0f}"
        lines.append(line)
    return pd.DataFrame(lines)


def page(data: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The tables as Markdown."""
    shown = data[["processes", "classes", "logits"]].assign(
        loss=data["contender"],
        messages=data["all_gathers"] + data["all_reduces"],
        bytes_a_row=((data["all_gather_bytes"] + data["all_reduce_bytes"]) / data["rows"]).map("{:,.0f}".format),
        ms=data["median_milliseconds"].map("{:.1f}".format),
        relative=[
            f"{row.median_ratio:.2f} ({row.lowest_ratio:.2f}–{row.highest_ratio:.2f})" for row in data.itertuples()
        ],
    )
    about = (
        f"Forward and backward of {data['rows'][0]:,} rows of float32; the classes are split evenly over processes of "
        f"one thread. Messages are collectives; bytes are those that one process gives to them. Time is relative to "
        f"{settings['baseline']}, the median of {settings['rounds']} rounds (lowest–highest). Where there are more "
        f"processes than cores, they wait for one another. Logits are normal: {kinds_of(settings)}. "
        "The others are of a network of the suite, named with its activation and its epoch. "
        f"{origin(data.iloc[0], ('torch',), 'python -m benchmarks.vocab_parallel')}"
    )
    size = settings["computed"]
    assumed = (
        f"Computed, not measured: microseconds of the messages alone for {size['processes']} devices and "
        f"{size['classes']:,} classes, with as many messages and bytes as above, in a ring. "
        + "; ".join(
            f"{link}: {speed['microseconds']} µs a hop, {speed['gigabytes_a_second']} GB/s"
            for link, speed in size["links"].items()
        )
        + "."
    )
    title = "# Losses of logits whose classes are split over processes"
    tables = [narrow(shown.rename(columns={"bytes_a_row": "bytes a row"})), narrow(computed(data, settings))]
    return (
        "\n\n".join(
            [title, paragraph(about), tables[0], f"## {size['processes']} devices", paragraph(assumed), tables[1]]
        )
        + "\n"
    )


def main() -> None:
    """Command line: measure, and write the CSV and the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vocab_parallel", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"), help="for what is written")
    parser.add_argument("--run", type=Path, help="folder of a finished translation, whose logits are measured, too")
    parser.add_argument("--data", type=Path, help="folder of the data sets, for --run")
    parser.add_argument("--quick", action="store_true", help="one small cell")
    options = parser.parse_args()
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    settings |= settings["quick"] if options.quick else {}
    source, rows = provenance(), []
    for processes in settings["processes"]:
        with tempfile.TemporaryDirectory() as folder:
            trained = Path(folder, "trained.pt")
            if options.run:
                torch.save(translation(options.run, options.data, settings), trained)
            mp.spawn(measure, (processes, settings, folder, trained), processes)
            rows += [{**row, **source} for row in json.loads(Path(folder, "rows.json").read_text(encoding="utf-8"))]
    write_csv(rows, options.folder / "vocab_parallel.csv")
    text = page(pd.DataFrame(rows), settings)
    write_atomically(options.folder / "vocab_parallel.md", text)
    Console().print(Markdown(text))


if __name__ == "__main__":
    main()
