"""Messages and time of losses whose classes are split over processes, beside `loss_parallel` and gathered logits.

python -m benchmarks.vocab_parallel --run outputs/multi30k/entmax-…/seed-21 --data FOLDER
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
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
    for rows, one in product(table["rows"], measured.to_dict("records")):
        scale = rows / one["rows"]
        if "gathered" in one["contender"]:  # a process gives all its logits, of which it has fewer
            scale *= table["classes"] / one["classes"] * one["processes"] / size
        traffic = scale * others * (one["all_gather_bytes"] + one["all_reduce_bytes"] * 2 / size)
        hops = others * (one["all_gathers"] + 2 * one["all_reduces"])
        times = {
            link: f"{hops * speed['microseconds'] + traffic / speed['gigabytes_a_second'] / 1e3:,.0f}"
            for link, speed in table["links"].items()
        }
        lines.append({"rows": f"{rows:,}", "logits": one["logits"], "loss": one["contender"], **times})
    return pd.DataFrame(lines)


def page(data: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The tables as Markdown."""
    baseline, networks = settings["baseline"], [one for one in data["logits"].unique() if one not in settings["logits"]]
    of_networks = f" The last are of a trained network of the suite ({networks[0]})." if networks else ""
    cells = data.assign(
        time=[
            f"{row.median_milliseconds:.1f} ms"
            if row.contender == baseline
            else f"{row.median_ratio:.2f} ({row.lowest_ratio:.2f}–{row.highest_ratio:.2f})"
            for row in data.itertuples()
        ],
        sent=[
            f"{row.all_gathers + row.all_reduces}, {(row.all_gather_bytes + row.all_reduce_bytes) / row.rows:,.0f}"
            for row in data.itertuples()
        ],
        logits=data["logits"].str.partition(",")[0],
        classes=data["classes"].map("{:,}".format),
        loss=data["contender"].replace(settings["short"]),
    )
    size = settings["computed"]
    links = "; ".join(
        f"{link}: {speed['microseconds']} µs a hop, {speed['gigabytes_a_second']} GB/s"
        for link, speed in size["links"].items()
    )
    parts = [
        "# Losses of logits whose classes are split over processes",
        paragraph(
            f"Forward and backward of {data['rows'][0]:,} rows of float32 logits, whose classes are split evenly over "
            f"processes of one thread. Cross-entropy is torch's, under `loss_parallel`. Logits are drawn from normal "
            f"distributions: {kinds_of(settings)}.{of_networks}"
        ),
        "## Time",
        paragraph(
            "Cross-entropy's milliseconds, and the other losses' time relative to it: the median of "
            f"{settings['rounds']} rounds (lowest–highest). More processes than cores wait for one another. "
            f"{origin(data.iloc[0], ('torch',), 'make vocab_parallel RUN=FOLDER DATA=FOLDER')}"
        ),
        *_by_loss(cells, "time"),
        "## Messages, bytes",
        paragraph("The collectives of a step, and the bytes a row that one process gives to them."),
        *_by_loss(cells, "sent"),
        f"## {size['processes']} devices",
        paragraph(
            f"Computed, not measured: microseconds of the messages alone for {size['processes']} devices and "
            f"{size['classes']:,} classes, with as many messages and bytes as above, in a ring. {links}. "
            "The bandwidths are published, the latencies are assumed."
        ),
        narrow(computed(data, settings)),
    ]
    return "\n\n".join(parts) + "\n"


def _by_loss(cells: pd.DataFrame, column: str) -> Iterator[str]:
    """For each number of processes a table with a row for each case and a column for each loss."""
    for processes, some in cells.groupby("processes"):
        table = some.pivot_table(column, ["classes", "logits"], "loss", "first", sort=False)
        yield f"### {processes} processes"
        yield narrow(table.reset_index())


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
    with tempfile.TemporaryDirectory() as shared:
        trained = Path(shared, "trained.pt")
        if options.run:
            torch.save(translation(options.run, options.data, settings), trained)
        for processes in settings["processes"]:
            with tempfile.TemporaryDirectory() as folder:
                mp.spawn(measure, (processes, settings, folder, trained), processes)
                rows += [{**row, **source} for row in json.loads(Path(folder, "rows.json").read_text(encoding="utf-8"))]
    write_csv(rows, options.folder / "vocab_parallel.csv")
    text = page(pd.DataFrame(rows), settings)
    write_atomically(options.folder / "vocab_parallel.md", text)
    Console().print(Markdown(text))


if __name__ == "__main__":
    main()
