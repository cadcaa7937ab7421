"""Messages and time of losses whose classes are split over processes, beside `loss_parallel` and gathered logits.

python -m benchmarks.vocab_parallel --run outputs/multi30k/entmax-…/seed-21 --data FOLDER
"""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain, product
from pathlib import Path
from timeit import timeit
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy
from torch.profiler import profile

import sharmix
from benchmarks.harness import Row, Step, command_line, in_turn, ratios, spread
from benchmarks.publication import origin, publish, with_ranges
from experiments.data.special_tokens import PADDING
from experiments.record import load_record
from experiments.run import load_run
from experiments.run_folder import RECORD
from reporting.text.markdown import narrow, paragraph
from sharmix.parallel import VocabParallelLoss

WIDTHS = {"float": 4, "double": 8}
TRAINED, ROWS = "trained.pt", "rows.json"  # files by which processes pass on logits of a network, and rows


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
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    entmax, default = VocabParallelLoss("entmax"), VocabParallelLoss("sharmix_fixed")

    def cross_entropy_of_shards() -> None:
        with loss_parallel():
            cross_entropy(DTensor.from_local(logits, mesh, [Shard(-1)], run_check=False), targets).backward()

    return {
        "cross-entropy, loss_parallel": cross_entropy_of_shards,
        "1.5-entmax, gathered logits": lambda: sharmix.entmax_loss(Gathered.apply(logits), targets).backward(),
        "1.5-entmax, shared": lambda: entmax(logits, targets).backward(),
        "SharMiX, shared": lambda: default(logits, targets).backward(),
    }


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
    rows = settings["rows"]
    for classes, (kind, one) in product(settings["classes"], settings["logits"].items()):
        generator = torch.Generator().manual_seed(settings["seed"])
        logits = one["scale"] * torch.randn(rows, classes, generator=generator)
        raised = torch.randint(classes, (rows, one["raised"]), generator=generator)
        logits.scatter_add_(-1, raised, torch.full(raised.shape, float(one["by"])))
        yield kind, logits, torch.randint(classes, (rows,), generator=generator)
    if trained.exists():
        yield torch.load(trained, weights_only=True)


def measured(kind: str, whole: Tensor, targets: Tensor, settings: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each contender; every process measures the same in turn."""
    processes = dist.get_world_size()
    logits = whole.chunk(processes, -1)[dist.get_rank()].clone().requires_grad_()
    steps = contenders(logits, targets)

    def seconds(name: str) -> float:
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


def on_processes(processes: int, settings: Mapping[str, Any], folder: Path) -> list[Row]:
    """The rows of all cases, whose classes are split over so many processes."""
    mp.spawn(measure, (processes, settings, folder), processes)
    rows: list[Row] = json.loads((folder / ROWS).read_text(encoding="utf-8"))
    return rows


def measure(rank: int, processes: int, settings: Mapping[str, Any], folder: Path) -> None:
    """Measure all cases as one of some processes, the first of which writes the rows into the folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store-{processes}", rank=rank, world_size=processes)
    rows = [row for case in cases(settings, folder / TRAINED) for row in measured(*case, settings)]
    if rank == 0:
        (folder / ROWS).write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()


def computed(data: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Microseconds of each contender's messages on each link, from their measured numbers and bytes a row."""
    table, size = settings["computed"], settings["computed"]["processes"]
    others = size - 1
    largest = (data["classes"] == data["classes"].max()) & (data["processes"] == data["processes"].max())
    lines = []
    for rows, one in product(table["rows"], data[largest].to_dict("records")):
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
    times = data["median_milliseconds"].map("{:.1f} ms".format)
    collectives = data["all_gathers"] + data["all_reduces"]
    row_bytes = (data["all_gather_bytes"] + data["all_reduce_bytes"]) / data["rows"]
    cells = data.assign(
        time=times.where(data["contender"] == baseline, with_ranges(data, "ratio")),
        sent=collectives.astype(str) + ", " + row_bytes.map("{:,.0f}".format),
        logits=data["logits"].str.partition(",")[0],
        classes=data["classes"].map("{:,}".format),
        loss=data["contender"].replace(settings["short"]),
    )
    drawn = "; ".join(
        f"{kind}, standard deviation {one['scale']}"
        + (f", and {one['raised']} classes of a row higher by {one['by']}" if one["raised"] else "")
        for kind, one in settings["logits"].items()
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
            f"distributions: {drawn}.{of_networks}"
        ),
        "## Time",
        paragraph(
            "Cross-entropy's milliseconds, and the other losses' time relative to it: the median of "
            f"{settings['rounds']} rounds (lowest–highest). More processes than cores wait for one another. "
            f"{origin(data, 'make vocab_parallel RUN=FOLDER DATA=FOLDER')}"
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
    parser = command_line("vocab_parallel", __doc__)
    parser.add_argument("--run", type=Path, help="folder of a finished translation, whose logits are measured, too")
    parser.add_argument("--data", type=Path, help="folder of the data sets, for --run")
    options = parser.parse_args()
    settings = options.settings
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.run:
            torch.save(translation(options.run, options.data, settings), folder / TRAINED)
        rows = chain.from_iterable(on_processes(number, settings, folder) for number in settings["processes"])
        publish("vocab_parallel", rows, options.folder / "vocab_parallel.csv", lambda data: page(data, settings))


if __name__ == "__main__":
    main()
