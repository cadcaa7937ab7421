"""Measures the tasks of a study. The rows of each task are kept when it ends, then gathered in one table."""

import hashlib
import json
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

import joblib
import pandas as pd
import torch
import yaml
from tqdm import tqdm

from experiments.files import write_atomically
from experiments.identity import code_of
from experiments.machine import environment
from studies.study import Settings, Study, Task, load_study


def measure_tasks(study: Study, data: Path | None, outputs: Path, jobs: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows of all tasks with the tasks' keys, and their origin.

    Each task writes a file below `outputs`, named by the task, the settings and the code. So a study that was stopped
    goes on with the tasks that are left, and rows that other code measured are never among its records.
    """
    code = code_of({"_target_": f"studies.{study.name}.measure"})  # before anybody can edit a file
    tasks = study.tasks(study.settings, data)
    names = [json.dumps([task, study.settings, code["digest"]], sort_keys=True) for task in tasks]
    files = [outputs / study.name / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json" for name in names]
    left = [(task, file) for task, file in zip(tasks, files, strict=True) if not file.exists()]
    print(f"{study.name}: {len(left)} of {len(files)} tasks are left", file=sys.stderr)
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        work = (joblib.delayed(_measure)(study.name, study.settings, task, data, file, code) for task, file in left)
        for _ in tqdm(joblib.Parallel(jobs, return_as="generator_unordered")(work), study.name, len(left)):
            pass
    done = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    rows = [{**task, **row} for task, one in zip(tasks, done, strict=True) for row in one["rows"]]
    found = environment(torch.device("cpu"))
    source = {
        "title": study.title,
        "repeat": f"make study-{study.name}",
        "commit": sorted({one["commit"] or "unknown" for one in done}),
        "dirty": any(one["dirty"] for one in done),
        "digest": [code["digest"][:12]],
        "python": found["python"],
        "packages": found["packages"] | {name: version(name) for name in study.shown.get("packages", ())},
        "hardware": found["hardware"],
        "tasks": len(done),
        "seconds": round(sum(one["seconds"] for one in done)),
        "finished": datetime.now(UTC).date().isoformat(),
        "settings": study.settings,
    }
    return pd.DataFrame(rows), source


def _measure(name: str, settings: Settings, task: Task, data: Path | None, file: Path, code: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    began = monotonic()
    try:
        rows = load_study(name).measure(task, settings, data)
    except Exception as error:
        error.add_note(f"in the task {task} of the study {name}")
        raise
    origin = {"commit": code["commit"], "dirty": code["dirty"], "seconds": monotonic() - began}
    write_atomically(file, json.dumps({"rows": rows} | origin))


def write_records(folder: Path, name: str, records: pd.DataFrame, source: dict[str, Any]) -> None:
    """Write the table of records and then its origin, by which `rebuild_pages` finds a study."""
    write_atomically(folder / f"{name}.csv", records.to_csv(index=False, lineterminator="\n", float_format="%.8g"))
    write_atomically(folder / f"{name}.yaml", yaml.safe_dump(source, sort_keys=False, allow_unicode=True))
