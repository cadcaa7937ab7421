"""Collect the records of finished runs, and rebuild tables and figures from them."""

import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.record import RecordError
from reporting.declaration import TableError
from reporting.whole_folders import put_back

if TYPE_CHECKING:
    from reporting.kept_runs import KeptRuns

RESULTS = Path(__file__).parent.parent / "results"


def main(arguments: list[str] | None = None) -> None:
    """The command line `python -m reporting`.

    Args:
        arguments: of the command; None for those of the process.

    Raises:
        SystemExit: with one line that starts with "error: ", for records or a declaration that cannot be used, and for
            files that cannot be read or written.
    """
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (RecordError, TableError) as error:
        raise SystemExit(f"error: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise SystemExit(f"error: {error.filename}: {error.strerror}; see that it can be read and written") from error
    except KeyboardInterrupt:
        print("interrupted; repeat the command", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m reporting", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    outputs, results, others, allowances, root = (ArgumentParser(add_help=False) for _ in range(5))
    outputs.add_argument("experiments", metavar="EXPERIMENT", nargs="+", type=_name, help="name of an experiment")
    outputs.add_argument("--outputs", type=Path, default=Path("outputs"), help="the runs' folder (default: outputs)")
    results.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of records, tables and figures (default: results)"
    )
    choice = others.add_mutually_exclusive_group()
    choice.add_argument(
        "--add",
        action="store_const",
        const="keep",
        dest="other_records",
        default="refuse",
        help="keep the records of runs that are not in outputs",
    )
    choice.add_argument(
        "--replace",
        action="store_const",
        const="drop",
        dest="other_records",
        help="drop the records of runs that are not in outputs",
    )
    allowances.add_argument("--allow-missing-seeds", action="store_true", help="use the seeds that have records")
    allowances.add_argument("--allow-mixed-code", action="store_true", help="accept different or uncommitted code")
    root.add_argument("--root", type=Path, default=RESULTS.parent, help="the repository (default: this one)")

    for run, text, parents in (
        (_collect, "keep the records of finished runs under results/records/", [outputs, results, others]),
        (_tables, "rebuild the tables and the verdicts from the kept records", [results, allowances]),
        (_figures, "rebuild the figures from the kept records", [results, allowances]),
        (_pages, "write the generated parts of README.md and docs/ anew", [root]),
        (_summary, "print tables of finished runs and draw their figure", [outputs]),
    ):
        command = commands.add_parser(run.__name__.strip("_"), help=text, description=text, parents=parents)
        command.set_defaults(run=run)
    text = "write an interactive page of the kept records, or of the runs below --outputs while they run"
    report = commands.add_parser("report", help=text, description=text, parents=[results, allowances])
    report.add_argument("--outputs", type=Path, help="show the runs in this folder, in place of results")
    report.add_argument(
        "--output", type=Path, default=Path("outputs/report.html"), help="the page (default: outputs/report.html)"
    )
    report.set_defaults(run=_report)
    return parser


def _name(text: str) -> str:
    if not text or Path(text).name != text:
        raise ArgumentTypeError(f"{text!r} is not the name of an experiment")
    return text


# Each command has its own imports, because pandas, matplotlib and torch take seconds.


def _collect(options: Namespace) -> None:
    from reporting.records import collect

    print(*collect(options.experiments, options.outputs, options.results, options.other_records), sep="\n")


def _tables(options: Namespace) -> None:
    from reporting.tables import rebuild_tables

    _rebuild(rebuild_tables, options)


def _figures(options: Namespace) -> None:
    from reporting.figures import rebuild_figures

    _rebuild(rebuild_figures, options)


def _report(options: Namespace) -> None:
    if options.outputs is not None:
        from reporting.report.page import report_of_outputs

        page = report_of_outputs(options.outputs, options.output)
    else:
        from reporting.report.page import report_of_results

        page = report_of_results(_kept(options), options.output)
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB; open it in a browser)")


def _rebuild(rebuild: Callable[..., tuple[list[Path], list[str]]], options: Namespace) -> None:
    for name in ("tables", "figures"):
        put_back(options.results / name)
    files, left_out = rebuild(_kept(options))
    print(*files, *left_out, sep="\n")


def _pages(options: Namespace) -> None:
    from reporting.pages import write_pages

    print(*write_pages(options.root), sep="\n")


def _kept(options: Namespace) -> "KeptRuns":
    from reporting.kept_runs import KeptRuns

    return KeptRuns.load(
        options.results, allow_missing_seeds=options.allow_missing_seeds, allow_mixed_code=options.allow_mixed_code
    )


def _summary(options: Namespace) -> None:
    from rich.console import Console

    from reporting.declaration import load_declaration
    from reporting.summary import summarise

    bootstrap = load_declaration(RESULTS).bootstrap  # the same intervals wherever the runs are
    path = summarise(options.experiments, options.outputs, bootstrap, Console())
    print(f"Figure: {path} (and .svg and .pdf beside it)")


if __name__ == "__main__":
    main()
