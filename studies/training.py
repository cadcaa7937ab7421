"""The trainings of a study: runs of the suite that print nothing and leave no files."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.composition import settings_of
from experiments.record import Record
from experiments.run import Run


def trained(experiment: str, *overrides: str, data: Path | None) -> Record:
    """The record of an experiment's training with the overrides of a command line."""
    given = f"paths.data={data or 'null'}", "keep_weights=false", "progress=none"
    run = settings_of(f"experiment={experiment}", *overrides, *given)
    # Without it, the line of each run would hide the study's progress.
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        record = Run(run, Path(folder)).train()
    assert record is not None  # one process trains it
    return record
