"""One job of the runner: recognise a finished run, or finish it."""

from pathlib import Path

from rich.console import Console

from experiments.configuration import RunSettings

RECORD = "record.json"
CHECKPOINT = "last.ckpt"


def perform(settings: RunSettings, folder: Path) -> None:
    """Bring the run in `folder` to its record: skip it if it is there, else train on from the last checkpoint.

    Args:
        settings: what to run; `force` repeats a finished run from its start.
        folder: the run's own folder, named by what it computes.

    Raises:
        ConfigurationError, DataError: before any training.
    """
    console = Console()
    title = f"{settings.name} {folder.parent.name} seed {settings.seed}"
    if (folder / RECORD).exists() and not settings.force:
        console.print(f"[green]finished before[/] {title}: {folder / RECORD}", highlight=False, soft_wrap=True)
        return
    if settings.force:
        (folder / CHECKPOINT).unlink(missing_ok=True)

    from experiments.training import train  # seconds of imports that a finished run can do without

    record = train(settings, folder / CHECKPOINT, folder / RECORD)
    test = record["metrics"]["test"]
    console.print(
        f"[bold green]finished[/] {title}: test accuracy {test['accuracy']:.4f}, sparsity {test['sparsity']:.3f}, "
        f"{record['wall_time_seconds']:.1f} s, {folder / RECORD}",
        highlight=False,
        soft_wrap=True,
    )
