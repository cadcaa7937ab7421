"""Collect the records of finished runs, and rebuild tables and figures from them."""

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.identity import ROOT
from experiments.record import RecordError
from reporting.records.declaration import SETTINGS, TableError

if TYPE_CHECKING:
    from reporting.records.kept_runs import KeptRuns


def main(arguments: list[str] | None = None) -> None:
    """The command line `python -m reporting`.

    Raises:
        SystemExit: with one line that starts with "error: ", for records, a declaration or files that cannot be used.
    """
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (RecordError, TableError) as error:
        raise SystemExit(f"error: {' '.join(str(error).split())}") from error
    except OSError as error:
        place = error.filename or "the results"
        raise SystemExit(f"error: {place}: {error.strerror}; see that it can be read and written") from error
    except KeyboardInterrupt:
        print("interrupted; repeat the command", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m reporting", description=__doc__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    runs, results, settings, allowances = (ArgumentParser(add_help=False) for _ in range(4))
    runs.add_argument("experiments", metavar="EXPERIMENT", nargs="+", help="name of an experiment")
    runs.add_argument("--outputs", type=Path, default=Path("outputs"), help="the runs' folder (default: outputs)")
    results.add_argument(
        "--results",
        type=Path,
        default=Path(os.path.relpath(ROOT / "results")),
        help="folder of records, tables and figures (default: the project's, from any working folder)",
    )
    settings.add_argument(
        "--settings", type=Path, default=SETTINGS, help="folder of tables.yaml and published/ (default: the project's)"
    )
    allowances.add_argument("--allow-missing-seeds", action="store_true", help="use the seeds that have records")
    allowances.add_argument("--allow-mixed-code", action="store_true", help="accept different or uncommitted code")
    kept = [results, settings, allowances]
    summary = "print finished runs beside the recorded runs and the papers' numbers"
    for run, text, parents in (
        (_collect, "add the records of finished runs to those under results/records/", [runs, results]),
        (_tables, "rebuild the tables and the verdicts from the kept records", kept),
        (_figures, "rebuild the figures from the kept records", kept),
        (_pages, "rewrite the generated parts of README.md and docs/", []),
        (_summary, summary, [runs, results, settings]),
        (_report, "write an interactive page of the kept records, or of the finished runs in --outputs", kept),
    ):
        command = commands.add_parser(run.__name__.strip("_"), help=text, description=text, parents=parents)
        command.set_defaults(run=run)
    report = commands.choices["report"]
    report.add_argument("--outputs", type=Path, help="show the finished runs in this folder, in place of results")
    report.add_argument(
        "--output", type=Path, default=Path("outputs/report.html"), help="the page (default: outputs/report.html)"
    )
    return parser


# Each command has its own imports, because pandas, matplotlib and torch take seconds.


def _collect(options: Namespace) -> None:
    from reporting.records.collected_records import collect

    print(*collect(options.experiments, options.outputs, options.results), sep="\n")


def _tables(options: Namespace) -> None:
    from reporting.tables import rebuild_tables

    files, notices = rebuild_tables(_kept(options))
    print(*files, *notices, sep="\n")


def _figures(options: Namespace) -> None:
    from reporting.figures import rebuild_figures

    files, notices = rebuild_figures(_kept(options))
    print(*files, *notices, sep="\n")


def _pages(_: Namespace) -> None:
    from reporting.generated_parts import write_pages

    print(*write_pages(ROOT), sep="\n")


def _summary(options: Namespace) -> None:
    from rich.console import Console

    from reporting.summary import summarise

    summarise(options.experiments, options.outputs, options.results, options.settings, Console())


def _report(options: Namespace) -> None:
    from reporting.report.page import report_of_outputs, report_of_results

    if options.outputs is not None:
        page = report_of_outputs(options.outputs, options.output, options.settings)
    else:
        page = report_of_results(_kept(options), options.output)
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB; open it in a browser)")


def _kept(options: Namespace) -> "KeptRuns":
    from reporting.records.kept_runs import KeptRuns

    return KeptRuns.load(
        options.results,
        options.settings,
        allow_missing_seeds=options.allow_missing_seeds,
        allow_mixed_code=options.allow_mixed_code,
    )


if __name__ == "__main__":
    main()
