"""Progress of a benchmark: a bar in a terminal, lines elsewhere."""

from rich.console import Console
from rich.progress import Progress, TaskID

EVERY = 10  # steps from line to line


class ProgressOrLines(Progress):
    """rich's progress bar in a terminal; in a file or a pipe, a plain line after every ten steps and after the last."""

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, disable=not console.is_terminal)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        task = next(task for task in self.tasks if task.id == task_id)
        if self.disable and (task.finished or task.completed % EVERY == 0):
            minutes = (self.tasks[0].elapsed or 0.0) / 60
            text = f"{task.description}: {task.completed:g} of {task.total:g} done, {task.remaining:g} left"
            self.console.print(f"{text}, {minutes:.1f} minutes gone", highlight=False, soft_wrap=True)
