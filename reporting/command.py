"""The command line of what is rebuilt from the kept records."""

import argparse
from collections.abc import Callable
from pathlib import Path

from reporting.declaration import TableError
from reporting.records import RecordError


def run_command(
    module: str,
    description: str | None,
    rebuild: Callable[..., list[Path]],
    left_out: Callable[[Path], list[str]],
    arguments: list[str] | None,
) -> None:
    """Parse the arguments, rebuild, and print the files written and what is left out.

    Args:
        module: what `python -m` is given.
        description: for --help.
        rebuild: from the results' folder, allow_missing_seeds and allow_mixed_code to the files written.
        left_out: from the results' folder to a line for each thing that has no records.
        arguments: of the command; None for those of the process.

    Raises:
        SystemExit: with one message, for records or a declaration that cannot be used.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--results", type=Path, default=Path("results"), help="the results' folder")
    parser.add_argument("--allow-missing-seeds", action="store_true", help="take the seeds there are")
    parser.add_argument("--allow-mixed-code", action="store_true", help="accept different or uncommitted code")
    options = parser.parse_args(arguments)
    try:
        written = rebuild(
            options.results,
            allow_missing_seeds=options.allow_missing_seeds,
            allow_mixed_code=options.allow_mixed_code,
        )
    except (RecordError, TableError) as error:
        raise SystemExit(f"error: {error}") from error
    print(*written, *left_out(options.results), sep="\n")
