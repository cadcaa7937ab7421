"""The page itself: one HTML file with all its content, which needs no other file."""

import base64
import gzip
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.files import write_atomically
from experiments.record import Record, RecordError
from experiments.run_folder import RECORD
from reporting.generated_parts.verdict_summary import answers
from reporting.look.header import page_header, theme_script
from reporting.look.palette import page_style
from reporting.records.collected_records import finished_records, records_path
from reporting.records.declaration import SETTINGS, load_declaration
from reporting.records.groups import Group, label_runs, style_groups
from reporting.records.kept_runs import KeptRuns
from reporting.report.claims import Decided, decided_claims
from reporting.report.payload import build_payload, run_key
from reporting.summary import best_activation
from reporting.verdicts import rules
from reporting.verdicts.outcomes import IN_PLURAL, OUTCOMES, count_outcomes, in_one_sentence

_FOLDER = Path(__file__).parent


def report_of_results(kept: KeptRuns, output: Path) -> Path:
    """Write the page of the kept records, with the verdicts and all runs, to the file `output`."""
    claims = decided_claims(kept)
    lines = [claim.line for claim in claims]
    verdicts = [line["verdict"] for line in lines]
    shown = {
        "title": "Does the paper reproduce?",
        "sentences": [
            "We ran its experiments again. Theirs is the paper's number, ours the mean of our runs, on the test split "
            "or on train where the paper says so."
        ],
        "answers": answers(kept.declaration, lines),
        "lines": lines,
        "counted": f"{in_one_sentence(verdicts)}.",
        "verdicts": verdicts,
        "rules": [_bold(text) for text in rules(kept.declaration)],
        "repeat": _command("--results", kept.results),
    }
    return _write(output, shown, _groups(kept.records), claims, partial(_kept_record, kept.results))


def report_of_outputs(outputs: Path, output: Path, settings: Path = SETTINGS) -> Path:
    """Write the page of the finished runs in the folder `outputs` to the file `output`.

    Runs in a folder of outputs inside of it, such as those of `make demo` in outputs/demo, are not shown. The
    declaration in `settings` says how an interval is computed.
    """
    runs = outputs.glob(f"*/*/*/{RECORD}")  # <experiment>/<activation>-<hash>/seed-<seed>
    names = sorted({file.relative_to(outputs).parts[0] for file in runs})
    if not names:
        raise RecordError(
            f"{outputs}: no experiment in it has a finished run; --outputs names the folder that holds the experiments"
        )
    found = {name: finished_records(outputs, name) for name in names}
    groups = _groups({name: [*of_one.values()] for name, of_one in found.items()})
    files = {run_key(record): file for of_one in found.values() for file, record in of_one.items()}
    confidence = load_declaration(settings).confidence
    best = [best_activation(name, own, confidence) for name, own in groups.items()]
    shown = {
        "title": f"Runs in {outputs}",
        "sentences": [sentence for sentence in best if sentence],
        "counted": f"{len(files)} finished run{'' if len(files) == 1 else 's'} of {', '.join(names)}.",
        "repeat": _command("--outputs", outputs, "--output", output),
    }
    return _write(output, shown, groups, [], lambda record: files[run_key(record)])


def _kept_record(results: Path, record: Record) -> Path:
    return records_path(results, record.experiment)


def _groups(records: Mapping[str, list[Record]]) -> dict[str, list[Group]]:
    return dict(zip(records, style_groups([label_runs(of_one) for of_one in records.values()]), strict=True))


def _command(*arguments: str | Path) -> str:
    return shlex.join(["python", "-m", "reporting", "report", *map(str, arguments)])


def _write(
    output: Path,
    shown: Mapping[str, Any],
    groups: Mapping[str, list[Group]],
    claims: Sequence[Decided],
    file_of: Callable[[Record], Path],
) -> Path:
    payload = build_payload(groups, file_of)
    payload["claims"] = [
        {"claim": f"{line['claim']}: {line['row']}", "kind": line["kind"], "outcome": one.outcome, **one.numbers}
        for one in claims
        for line in [one.line]
    ]
    data = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["counted"] = count_outcomes
    text = environment.get_template("page.html").render(
        shown,
        claims=claims,
        header=Markup(page_header("Report", "" if (output.parent / "index.html").exists() else None)),
        theme=Markup(theme_script()),
        outcomes=[*OUTCOMES],
        plural=IN_PLURAL,
        css=Markup(page_style() + (_FOLDER / "page.css").read_text("utf-8")),
        script=Markup((_FOLDER / "page.js").read_text("utf-8")),
        plotly=_packed((files("plotly") / "package_data" / "plotly.min.js").read_bytes()),
        payload=_packed(data.encode()),
    )
    write_atomically(output, text)
    return output


def _packed(content: bytes) -> str:
    """The compressed text in a form that HTML can hold; the page's script unpacks it."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def _bold(text: str) -> Markup:
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text)), flags=re.DOTALL))
