"""Whether runs were computed by the same code, so that they can be averaged and compared."""

from collections.abc import Iterable

from experiments.record import Record
from reporting.palette import label


def of_one_code(records: Iterable[Record]) -> bool:
    """Whether runs were computed by the same code: no file that two of them import differs between them."""
    versions = {version for record in records for version in record.code.files.items()}
    return len(versions) == len({path for path, _ in versions})


def describe_code(record: Record) -> str:
    """The code of a run in words: its digest, its commit, and whether all of it was committed."""
    code = record.code
    # A tree with unknown state (null) cannot be trusted more than a dirty tree.
    state = "clean" if code.dirty is False else "dirty" if code.dirty else "state unknown"
    return f"digest {code.digest[:12]}, commit {str(code.commit)[:12]}, {state}"


def list_runs_by_code(records: Iterable[Record]) -> str:
    """The code of most runs in words, then each other code with the runs that it computed."""
    runs_of: dict[str, set[str]] = {}
    for record in records:
        run = f"{label(record.config['activation'], record.config['data'])} seed {record.seed}"
        runs_of.setdefault(describe_code(record), set()).add(run)
    most, *others = sorted(runs_of, key=lambda code: (-len(runs_of[code]), code))
    named = [f"{code}: {', '.join(sorted(runs_of[code]))}" for code in others]
    return "; ".join([f"{most}: {len(runs_of[most])} runs", *named])
