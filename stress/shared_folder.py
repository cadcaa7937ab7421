"""Two or three processes that start the same run in the same folder, at times with a kill of one of them."""

import random
import shutil
import signal
import time
from pathlib import Path
from uuid import uuid4

from stress.outcome import Outcome
from stress.processes import Started, command, last_lines
from stress.runs import RUNS, copied, finished, run_again
from stress.trials import repeat

WHAT = "the same run started two or three times at once, in one folder"


def run(seconds: float, seed: int) -> Outcome:
    return repeat("shared_folder", WHAT, lambda home: SharedFolder(home).trial, seconds, seed)


class SharedFolder:
    """The trials, with the runs that they are compared with."""

    def __init__(self, home: Path, names: tuple[str, ...] = (*RUNS,)) -> None:
        self.home = home
        self.runs = {name: finished(home, name) for name in names}

    def trial(self, draw: random.Random) -> None:
        run, force = self.runs[draw.choice([*self.runs])], draw.random() < 0.3
        outputs = copied(run.outputs, self.home) if force else self.home / uuid4().hex / "outputs"
        function = command("run.py", *run.at(outputs, *(["force=true"] if force else [])))
        started = []
        for _ in range(draw.choice((2, 2, 3))):
            started.append(Started(outputs.parent, function))
            time.sleep(draw.choice((0.0, 0.0, draw.uniform(0, 1))))
        killed = draw.choice(started) if draw.random() < 0.5 else None
        if killed is not None:
            time.sleep(draw.uniform(0, 1))
            killed.send(signal.SIGKILL)
        ends = [one.end() for one in started]
        others = [end for one, end in zip(started, ends, strict=True) if one is not killed]
        for status, printed in others:
            if status:
                raise RuntimeError(f"one of {len(started)} processes ends with {status}: {last_lines(printed)!r}")
        trained = sum("finished before" not in printed for _, printed in others)
        if trained > 1 and not force:
            raise RuntimeError(f"{trained} of {len(started)} processes have trained")
        run.check(outputs)
        run_again(run, outputs)
        shutil.rmtree(outputs.parent)
