"""Runs studies of the uses of a sparse output, then rebuilds the tables of all studies from their records.

python -m studies [NAME ...] [--data FOLDER]
"""

import argparse
import sys
from pathlib import Path

from experiments.command_line import one_message
from experiments.errors import UserError
from studies.pages import write_findings, write_tables
from studies.study import available_studies, load_study
from studies.tasks import gather, read_records, run_tasks, write_records

RESULTS = Path("results/studies")
OUTPUTS = Path("outputs/studies")
PAGE = Path("docs/studies.md")


def main(arguments: list[str] | None = None) -> None:
    """Command line.

    Args:
        arguments: the arguments of the command; None takes the arguments of the process.

    Raises:
        SystemExit: with one line, for an error that the user can correct.
    """
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(available_studies())} (default: none)")
    parser.add_argument("--data", type=Path, help="the data sets' folder")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side (default: 2)")
    parser.add_argument("--allow-mixed-code", action="store_true", help="gather tasks that different code measured")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; it must be at least 1")
    if not PAGE.is_file():
        parser.error(f"there is no {PAGE}; start it in the project's folder")
    if unknown := {*options.names} - {*available_studies()}:
        parser.error(f"there is no study {', '.join(sorted(unknown))}; there are {', '.join(available_studies())}")
    try:
        for name in options.names:
            study = load_study(name)
            run_tasks(study, options.data, OUTPUTS, options.jobs, options.allow_mixed_code)
            write_records(RESULTS, name, *gather(study, options.data, OUTPUTS, options.allow_mixed_code))
        rebuild_pages(RESULTS, PAGE, RESULTS)
        for name in options.names:
            print(f"{name}: tables in {RESULTS / name}.md, all verdicts in {PAGE}", file=sys.stderr)
    except UserError as error:
        raise SystemExit(f"error: {error}") from error


def rebuild_pages(folder: Path, page: Path, linked: Path) -> None:
    """Rebuild the tables of every study with records in a folder, and the table of all findings on a page.

    The page links to the tables in the folder `linked`.
    """
    findings = {}
    for name, records, source in read_records(folder):
        study = load_study(name)
        report = study.report(records, source["settings"], study.shown)
        write_tables(folder / f"{name}.md", report, source)
        if report.findings:
            findings[name] = source["title"], report.findings
    if findings:
        write_findings(page, findings, linked)


if __name__ == "__main__":
    with one_message():
        main()
