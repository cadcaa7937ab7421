"""Repeat a recorded run, from the settings in its record.

python -m experiments.repeat outputs/digits/softmax-a3032b1d2d94/seed-21/record.json
python -m experiments.repeat results/records/airline.jsonl run_id=edc246647aff seed=21 paths.data=FOLDER

The file is the record of a run, or a file with records of several runs; then `run_id` and `seed` name one. Further
settings say where: `paths.data` is the folder of the data sets, null for their public source, and `paths.outputs` the
folder of the new run, outputs/repeated if you give none. The command trains, and says whether the weights are the same.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.composition import settings_of_record
from experiments.errors import UserError
from experiments.identity import code_of
from experiments.messages import one_message
from experiments.record import Record, RecordError, read_record, read_text
from experiments.run_folder import folder_of


def main(arguments: Sequence[str]) -> None:
    """Train the run again, and compare its weights with those of the record; status 1 if they differ.

    Args:
        arguments: of the command line.

    Raises:
        UserError: an argument, the record or a setting cannot be used; or the weights differ.
    """
    parser = argparse.ArgumentParser(
        prog="python -m experiments.repeat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="RECORD")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    given = {"paths.outputs": "outputs/repeated"} | dict(one.partition("=")[::2] for one in options.settings)
    record = find_record(options.file, given.pop("run_id", None), given.pop("seed", None))
    settings = settings_of_record(record, given)

    from experiments.run import Run  # it imports torch

    run = Run(settings, folder_of(settings))
    if code_of(run.config)["digest"] != record.code.digest:
        run.say(f"other code made the record (commit {record.code.commit}); this run uses the code in this folder")
    again = run.complete()
    if again is None:  # another process of the run, which compares nothing
        return
    if again.weights_hash != record.weights_hash:
        raise UserError("the weights are not those of the record")
    run.say("the weights are those of the record, to the bit")


def find_record(file: Path, run_id: str | None, seed: str | None) -> Record:
    """The only record in a file that is of this run and seed; a RecordError if there is none, or several."""
    text = read_text(file, "name the record of a run, or a file in results/records")
    lines = text.split("\n") if file.suffix == ".jsonl" else [text]
    records = [read_record(line, str(file)) for line in lines if line.strip()]
    found = [one for one in records if run_id in (None, one.run_id) and seed in (None, str(one.seed))]
    if len(found) != 1:
        matching = f"{len(found)} of its {len(records)} records match"
        raise RecordError(f"{file}: {matching}; give run_id=ID and seed=NUMBER of one record")
    return found[0]


if __name__ == "__main__":
    with one_message():
        main(sys.argv[1:])
