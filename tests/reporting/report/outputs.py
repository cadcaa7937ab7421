"""A made-up folder of outputs: three finished runs, a stopped one, a failed one, damaged files, and a killed sweep."""

import base64
import gzip
import json
import re
import socket
from pathlib import Path
from typing import Any

from experiments.files import write_rows
from experiments.sweep_progress import failed_line, planned_line
from tests.reporting.synthetic_records import make_record

SECONDS = 6.1  # that the made-up runs took
PLANNED = 8


def write_outputs(outputs: Path) -> None:
    """Write the folder: of the eight runs of a sweep, three have finished, two have begun, one has failed."""
    for seed in (1, 2, 3):
        put_record(
            outputs, make_record("sharmix_learned", seed, "digits", {"accuracy": 0.9 + seed / 100}, q=1.25, r=1.5)
        )
    rows = make_record("softmax", 1, "digits", epochs=2)["curves"]
    write_rows(outputs / "digits/softmax-0123456789ab/seed-1/metrics.csv", rows)
    (outputs / "digits/softmax-0123456789ab/seed-2").mkdir()
    diverged = failed_line(
        "activation=entmax seed=1", "epoch 2: it diverged\nat once", "digits/entmax-ba9876543210/seed-1"
    )
    killed = outputs / f"digits/.ended-{socket.gethostname()}-{2**30}"
    killed.write_text(planned_line(PLANNED) + "ended\n" * 3 + diverged)


def put_record(outputs: Path, record: dict[str, Any]) -> Path:
    """Write a record where its run would."""
    name = f"{record['config']['activation']['name']}-{record['run_id']}/seed-{record['seed']}"
    folder = outputs / record["experiment"] / name
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(record), "utf-8")
    return folder


def payload_of(page: Path) -> dict[str, Any]:
    """What the page carries for its script."""
    packed = re.search(r'<script type="application/gzip\+base64" id="payload">(.*?)</script>', page.read_text("utf-8"))
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
