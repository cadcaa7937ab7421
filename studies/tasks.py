"""Measures the tasks of a study. The rows of each task are kept when it ends, then gathered in one table."""

import hashlib
import json
import sys
from collections.abc import Iterator
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

from experiments.errors import ConfigurationError
from experiments.files import write_atomically
from experiments.identity import code_of
from experiments.machine import environment
from studies.study import Settings, Study, Task, load_study

SOURCE = ("commit", "dirty", "digest")  # of the code that measured a task


def run_tasks(study: Study, data: Path | None, outputs: Path, jobs: int, allow_mixed_code: bool) -> None:
    """Measure all tasks that are not finished. Each writes a file of its own below `outputs`.

    Raises:
        ConfigurationError: other code measured the finished tasks.
    """
    files = {_file(study, task, outputs): task for task in study.tasks(study.settings, data)}
    left = [task for file, task in files.items() if not file.exists()]
    source = code_of({"_target_": f"studies.{study.name}.measure"})  # now, before anybody edits a file
    if left and not allow_mixed_code:
        done = {json.loads(file.read_text(encoding="utf-8"))["digest"] for file in files if file.exists()}
        _check_same_code(outputs / study.name, {source["digest"], *done})
    print(f"{study.name}: {len(left)} of {len(files)} tasks are left", file=sys.stderr)
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        work = (joblib.delayed(_run_task)(study.name, study.settings, task, data) for task in left)
        results = joblib.Parallel(jobs, return_as="generator_unordered")(work)
        for task, result in tqdm(results, study.name, len(left)):
            content = {"task": task, **{key: source[key] for key in SOURCE}, **result}
            write_atomically(_file(study, task, outputs), json.dumps(content))


def _run_task(name: str, settings: Settings, task: Task, data: Path | None) -> tuple[Task, dict[str, Any]]:
    torch.set_num_threads(1)
    began = monotonic()
    try:
        rows = load_study(name).measure(task, settings, data)
    except Exception as error:
        error.add_note(f"in the task {task} of the study {name}")
        raise
    return task, {"rows": rows, "seconds": monotonic() - began}


def _file(study: Study, task: Task, outputs: Path) -> Path:
    text = json.dumps([task, study.settings], sort_keys=True)
    return outputs / study.name / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def gather(
    study: Study, data: Path | None, outputs: Path, allow_mixed_code: bool
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows of all tasks with the tasks' keys, and their origin.

    Raises:
        ConfigurationError: different code measured the tasks.
    """
    tasks = study.tasks(study.settings, data)
    done = [json.loads(_file(study, task, outputs).read_text(encoding="utf-8")) for task in tasks]
    digests = {one["digest"] for one in done}
    if not allow_mixed_code:
        _check_same_code(outputs / study.name, digests)
    rows = [{**one["task"], **row} for one in done for row in one["rows"]]
    found = environment(torch.device("cpu"))
    packages = found["packages"] | {name: version(name) for name in study.shown.get("packages", ())}
    source = {
        "title": study.title,
        "repeat": f"make study-{study.name}",
        "commit": sorted({one["commit"] or "unknown" for one in done}),
        "dirty": any(one["dirty"] for one in done),
        "digest": _short(digests),
        "python": found["python"],
        "packages": packages,
        "hardware": found["hardware"],
        "tasks": len(done),
        "seconds": round(sum(one["seconds"] for one in done)),
        "finished": datetime.now(UTC).date().isoformat(),
        "settings": study.settings,
    }
    return pd.DataFrame(rows), source


def _check_same_code(folder: Path, digests: set[str]) -> None:
    if len(digests) > 1:
        raise ConfigurationError(
            f"{folder}: its tasks were measured by different code ({', '.join(_short(digests))}); remove the folder to "
            "measure all of them again, or give --allow-mixed-code"
        )


def _short(digests: set[str]) -> list[str]:
    return sorted(digest[:12] for digest in digests)


def write_records(folder: Path, name: str, records: pd.DataFrame, source: dict[str, Any]) -> None:
    """Write the table of records and its origin."""
    # The table comes last: a study without its origin could not be read after a kill between the two.
    write_atomically(folder / f"{name}.yaml", yaml.safe_dump(source, sort_keys=False, allow_unicode=True))
    write_atomically(folder / f"{name}.csv", records.to_csv(index=False, lineterminator="\n", float_format="%.8g"))


def read_records(folder: Path) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Name, records and origin of every study with records in a folder."""
    for path in sorted(folder.glob("*.csv")):
        source = yaml.safe_load(path.with_suffix(".yaml").read_text(encoding="utf-8"))
        yield path.stem, pd.read_csv(path), source
