"""Runs studies of the uses of a sparse output, then rebuilds the tables of all studies from their records.

python -m studies [NAME ...] [--data FOLDER]
"""

import argparse
import sys
from pathlib import Path

from experiments.messages import one_message
from studies.pages import rebuild_pages
from studies.study import available_studies, load_study
from studies.tasks import measure_tasks, write_records

RESULTS = Path("results/studies")
OUTPUTS = Path("outputs/studies")
PAGE = Path("docs/studies.md")


def main(arguments: list[str] | None = None) -> None:
    """Command line.

    Args:
        arguments: the arguments of the command; None takes the arguments of the process.
    """
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(available_studies())} (default: none)")
    parser.add_argument("--data", type=Path, help="the data sets' folder")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side (default: 2)")
    options = parser.parse_args(arguments)
    if not PAGE.is_file():
        parser.error(f"there is no {PAGE}; start it in the project's folder")
    if options.jobs < 1:
        parser.error(f"--jobs={options.jobs} is not allowed; it must be 1 or more")
    if unknown := {*options.names} - {*available_studies()}:
        parser.error(f"there is no study {', '.join(sorted(unknown))}; there are {', '.join(available_studies())}")
    for name in options.names:
        write_records(RESULTS, name, *measure_tasks(load_study(name), options.data, OUTPUTS, options.jobs))
    rebuild_pages(RESULTS, PAGE, RESULTS)
    for name in options.names:
        print(f"{name}: tables in {RESULTS / name}.md, all verdicts in {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    with one_message():
        main()
