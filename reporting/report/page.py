"""The page itself: one HTML file with all its content, which needs no other file."""

import base64
import gzip
import json
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.files import write_atomically
from experiments.record import RecordError
from reporting.kept_runs import KeptRuns
from reporting.outcomes import IN_PLURAL, OUTCOMES, count_outcomes, in_one_sentence, why_open
from reporting.records import read_records
from reporting.report.claims import by_kind, decided_claims
from reporting.report.paper_tables import shown_tables
from reporting.report.payload import build_payload
from reporting.report.progress import Progress, State, read_progress, unfinished_of
from reporting.verdicts import NOT_REACHED_RULE, RULE

_FOLDER = Path(__file__).parent
LARGEST = 5_000_000  # bytes of a page
_REST = 750_000  # part of these bytes for everything but the runs and Plotly


def report_of_results(kept: KeptRuns, output: Path) -> Path:
    """Write the page of the kept records: verdicts, tables, and all runs.

    Args:
        kept: the kept runs.
        output: the file to write.

    Returns:
        The file.
    """
    experiments = dict.fromkeys(kept.declaration.tables[name].experiment for name in kept.selections)
    claims = decided_claims(kept)
    verdicts = [claim.verdict for claim in claims]
    shown = {
        "title": "What reproduces",
        "sentence": f"{in_one_sentence(verdicts)}.",
        "counts": count_outcomes(verdicts),
        "reasons": why_open(verdicts),
        "kinds": {kind: (of, count_outcomes(one.verdict for one in of)) for kind, of in by_kind(claims).items()},
        "claims": claims,
        "rules": [_bold(RULE), _bold(NOT_REACHED_RULE)],
        "tables": shown_tables(kept),
        "repeat": _command("--results", kept.results),
    }
    payload = build_payload({name: read_records(kept.results, name) for name in experiments})
    payload["claims"] = [
        {"claim": f"{one.claim}: {one.row}", "difference": one.difference, "outcome": one.outcome, **one.numbers}
        for one in claims
    ]
    return _write(output, shown, payload)


def report_of_outputs(outputs: Path, output: Path) -> Path:
    """Write the page of the runs below a folder, whether they have finished or not.

    Args:
        outputs: the folder.
        output: the file to write.

    Returns:
        The file.

    Raises:
        RecordError: there is no run.
    """
    progress = read_progress(outputs)
    left = progress.seconds_left()
    shown = {
        "title": f"Runs below {outputs}",
        "sentence": _progress_sentence(progress, left),
        "counts": {state.value: count for state, count in progress.counts().items()},
        "progress": progress,
        "written": datetime.now().astimezone().strftime("%d %B %Y, %H:%M:%S"),
        "repeat": _command("--outputs", outputs, "--output", output),
    }
    payload = build_payload(progress.records, [*unfinished_of(progress)])
    payload["claims"] = []
    return _write(output, shown, payload)


def _command(*arguments: str | Path) -> str:
    return shlex.join(["python", "-m", "reporting", "report", *map(str, arguments)])


def _progress_sentence(progress: Progress, left: float | None) -> str:
    counts = progress.counts()
    total = sum(counts.values())
    parts = [f"{counts[State.FINISHED]} of {total} run{'s have' if total != 1 else ' has'} finished"]
    parts += [f"{count} {state.value}" for state, count in counts.items() if count and state is not State.FINISHED]
    if left is None:
        return f"{', '.join(parts)}."
    if counts[State.RUNNING]:
        return f"{', '.join(parts)}; about {time_left(left)} left."
    return f"{', '.join(parts)}; about {time_left(left)} of computing left, and no run is at work."


def time_left(seconds: float) -> str:
    """An estimate in words, such as "40 s", "3 min" or "2.5 h"; rounded up, so that it is rarely too short."""
    if seconds < 60:
        return f"{ceil(seconds)} s"
    return f"{ceil(seconds / 60)} min" if seconds < 5400 else f"{ceil(seconds / 360) / 10:g} h"


def _write(output: Path, shown: Mapping[str, Any], payload: Mapping[str, Any]) -> Path:
    data, every = _fitted(payload, LARGEST - len(_plotly()) - _REST)
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["slug"] = lambda text: re.sub(r"\W+", "-", text).strip("-")
    own = {"progress": None, "claims": [], "tables": [], "written": "", **shown}
    text = environment.get_template("page.html").render(
        own,
        home=(output.parent / "index.html").exists(),
        outcomes=[*OUTCOMES],
        plural=IN_PLURAL,
        css=Markup((_FOLDER / "page.css").read_text("utf-8")),
        script=Markup((_FOLDER / "page.js").read_text("utf-8")),
        plotly=_plotly(),
        payload=data,
        every=every,
    )
    write_atomically(output, text)
    return output


def _fitted(payload: Mapping[str, Any], room: int) -> tuple[str, int]:
    """The payload as text of at most `room` bytes, with every n-th epoch of the curves; and n, which is 1 if all fit.

    Raises:
        RecordError: there is no room even for the runs without their curves.
    """
    for every in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        thinned = {**payload, "runs": {key: _thinned(run, every) for key, run in payload["runs"].items()}}
        text = _packed(json.dumps(thinned, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())
        if len(text) <= room:
            return text, every
    raise RecordError(f"{len(payload['runs'])} runs are too many for a page; name a folder of fewer with --outputs")


def _thinned(run: Mapping[str, Any], every: int) -> Mapping[str, Any]:
    """A run with every n-th epoch of its curves, the reported epoch and the last epoch."""
    epochs = run["curves"]["epoch"]
    kept = [place for place, epoch in enumerate(epochs) if epoch % every == 0 or epoch in (run["epoch"], epochs[-1])]
    if len(kept) == len(epochs):
        return run
    return {**run, "curves": {name: [values[place] for place in kept] for name, values in run["curves"].items()}}


@cache
def _plotly() -> str:
    """The script of Plotly from its Python package."""
    return _packed((files("plotly") / "package_data" / "plotly.min.js").read_bytes())


def _packed(content: bytes) -> str:
    """The compressed text in a form that HTML can hold; the page's script unpacks it."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def _bold(text: str) -> Markup:
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text)), flags=re.DOTALL))
