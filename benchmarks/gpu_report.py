"""The table of `make gpu`, from the rows of its CSV alone, without any package that a borrowed machine may lack."""

from collections.abc import Iterator

from benchmarks.gpu_contenders import BASELINES

_TITLES = {"map": "Map", "loss": "Loss", "layer": "Output layer with its loss"}
_METHOD = (
    "Forward and backward; medians of rounds in which every contender takes its turn (lowest–highest); MiB is what a "
    "step allocates beside its inputs. "
)
_HEAD = ("case", "contender", "µs", "relative", "MiB")

Row = dict[str, str]


def table(rows: list[Row]) -> str:
    """Markdown: the tests, then for each kind of contender its time relative to the baseline's."""
    sections = ["# The CUDA kernels on a GPU"]
    for kind, title in {"test": "Tests of the compiled kernels", **_TITLES}.items():
        if own := [row for row in rows if row["kind"] == kind]:
            against = f" against {BASELINES[kind]}" if kind in BASELINES else ""
            sections += [f"## {title}{against}", _source(own[0]), "\n".join(_lines(own))]
    return "\n\n".join(sections) + "\n"


def _source(row: Row) -> str:
    changed = ", with uncommitted changes" if row["changed"] else ""
    return (
        f"{'' if row['kind'] == 'test' else _METHOD}{row['gpu']}, compute capability {row['capability']}, driver "
        f"{row['driver']}; CUDA {row['cuda']}, torch {row['torch']}, triton {row['triton']}; commit "
        f"{row['commit'][:12]}{changed}. Repeat: `make gpu`."
    )


def _lines(rows: list[Row]) -> Iterator[str]:
    if rows[0]["kind"] == "test":
        yield from (f"- {row['contender']}: {row['note']}" for row in rows)
        return
    yield "| " + " | ".join(_HEAD) + " |"
    yield "|" + "---|" * len(_HEAD)
    for row in rows:
        yield "| " + " | ".join([_case(row), row["contender"], *_measured(row)]) + " |"


def _case(row: Row) -> str:
    size = " × ".join(row[name] for name in ("rows", "features", "classes") if row.get(name))
    return f"{size}, {row['dtype']}, scale {row['scale']}"


def _measured(row: Row) -> tuple[str, str, str]:
    if not row.get("median_ratio"):
        return "–", row["note"].replace("|", "/"), "–"
    ratio, lowest, highest = (float(row[f"{name}_ratio"]) for name in ("median", "lowest", "highest"))
    memory = f"{float(row['memory_mib']):,.0f}" if row["memory_mib"] else "–"
    return f"{float(row['median_microseconds']):,.0f}", f"{ratio:.2f} ({lowest:.2f}–{highest:.2f})", memory
