"""The parts of README.md and docs/ that come from results/: `python -m reporting pages` rewrites them.

Two marks on a page stand around each part (`reporting.text.marked_text`). The first word of the part's name selects the
function that writes it; the other words are arguments: `run airline` describes the recorded runs of `airline`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments.files import write_atomically
from reporting.generated_parts.experiment import describe_runs, describe_settings, list_runs, quote_table
from reporting.generated_parts.gpu_times import tabulate_gpu_times
from reporting.generated_parts.measured_times import list_measured_times
from reporting.generated_parts.verdict_summary import answer_questions, summarise_verdicts
from reporting.records.yaml_files import TableError
from reporting.text.marked_text import fill, parts

COMMAND = "python -m reporting pages"
WRITERS: dict[str, Callable[..., str]] = {
    "questions": answer_questions,
    "verdict": summarise_verdicts,
    "times": list_measured_times,
    "gpu": tabulate_gpu_times,
    "table": quote_table,
    "run": describe_runs,
    "runs": list_runs,
    "settings": describe_settings,
}


def rewritten_pages(root: Path) -> dict[Path, str]:
    """Every page with a generated part, updated from results/.

    Raises:
        TableError: for a part that nothing writes, or marks that do not match; names the page.
        RecordError: for records that cannot be read.
    """
    pages = {}
    for page in [root / "README.md", *sorted(root.glob("docs/**/*.md"))]:
        text = page.read_text(encoding="utf-8")
        to_root = "../" * len(page.parent.relative_to(root).parts)  # links are relative to the page
        try:
            if parts(text, COMMAND):
                pages[page] = fill(text, COMMAND, partial(_written, root, to_root))
        except TableError as error:
            raise TableError(f"{page}: {error}") from error
    return pages


def write_pages(root: Path) -> list[Path]:
    """Rewrite the generated parts of all pages; returns the pages."""
    pages = rewritten_pages(root)
    for page, text in pages.items():
        write_atomically(page, text)
    return list(pages)


def _written(root: Path, to_root: str, name: str) -> str:
    kind, *about = name.split()
    if kind not in WRITERS:
        raise TableError(f"nothing writes the part {name!r}; there are {', '.join(WRITERS)}")
    return WRITERS[kind](root, to_root, *about)
