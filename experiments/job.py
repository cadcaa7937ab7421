"""One job of the runner: recognise a finished run, or finish it."""

import json
from pathlib import Path

from rich.console import Console

from experiments.configuration import RunSettings
from experiments.identity import code_digest

RECORD = "record.json"
CURVES = "metrics.csv"
HEADLINES = {"bleu": "BLEU {:.2f}", "accuracy": "accuracy {:.4f}", "sparsity": "sparsity {:.3f}"}


def perform(settings: RunSettings, folder: Path) -> None:
    """Bring the run in `folder` to its record: skip it if it is there, else train on from the last checkpoint.

    Args:
        settings: what to run; `force` repeats a finished run from its start.
        folder: the run's own folder, named by what it computes.

    Raises:
        ConfigurationError, DataError, DivergedError: as `training.train`.
    """
    console = Console(highlight=False, soft_wrap=True)
    title = f"{settings.name} {folder.parent.name} seed {settings.seed}"
    record_file = folder / RECORD
    if record_file.exists() and not settings.force:
        same_code = json.loads(record_file.read_text())["code"]["digest"] == code_digest()
        note = "" if same_code else " [yellow](by other code; force=true repeats it)[/]"
        console.print(f"[green]finished before[/] {title}{note}: {record_file}")
        return

    from experiments.training import train  # seconds of imports that a finished run can do without

    record = train(settings, folder)
    if record is None:  # another process of the run reports
        return
    test = record["metrics"]["test"]
    shown = [text.format(test[name]) for name, text in HEADLINES.items() if name in test]
    console.print(
        f"[bold green]finished[/] {title}: test {', '.join(shown)}, {record['wall_time_seconds']:.1f} s, {record_file}"
    )
