"""Facts about an experiment from its settings and records: the commands, the time, the machine, the seeds."""

import re
from pathlib import Path
from statistics import median

from reporting.declaration import load_declaration
from reporting.number_formats import number
from reporting.pages.wording import duration, span
from reporting.records import read_records
from reporting.yaml_files import TableError

HEADER = re.compile(r"^# (\w+): +(.*(?:\n#  +.*)*)", re.MULTILINE)  # `key: text`, with its indented continuation lines
KEYS = ("command", "time", "hardware", "expect")  # of a header


def describe_settings(root: Path, to_root: str, name: str) -> str:
    """A list of facts from the header of an experiment's settings: model, time, hardware and the command.

    Args:
        root: the repository.
        to_root: way from the page to the repository, for links.
        name: name of the experiment.

    Raises:
        TableError: where the header is not complete.
    """
    header = _header(root, name)
    lines = [
        f"Settings: [conf/experiment/{name}.yaml]({to_root}conf/experiment/{name}.yaml)",
        f"One run: `{header['command']}`",
        f"Expected time: {header['time']} ({header['hardware']})",
        f"Expected result: {header['expect']}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def describe_runs(root: Path, to_root: str, name: str) -> str:
    """A list of facts from an experiment's records: the command for all runs, their number, time and machine.

    Args:
        root: the repository.
        to_root: way from the page to the repository, for links.
        name: name of the experiment.

    Raises:
        RecordError: where the experiment has no records.
        TableError: where no table shows it, or the header of its settings is not complete.
    """
    results = root / "results"
    records = read_records(results, name)
    tables = [table for table in load_declaration(results).tables.values() if table.experiment == name]
    if not tables:
        raise TableError(f"no table of results/tables.yaml shows the experiment {name!r}")
    seconds = [record.wall_time_seconds for record in records]
    memory = max(record.peak_memory_mib or 0 for record in records)
    hardware = [record.environment.hardware for record in records]
    machines = sorted({f"{one['processor']}, {_count(one['cores'], 'core')}" for one in hardware})
    seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in records}))
    commands = tables[0].repeat.replace(" && ", "`, then `")
    settings = len({record.run_id for record in records})
    each = f"{duration(median(seconds))} a run ({duration(min(seconds))} to {duration(max(seconds))})"
    lines = [
        f"All runs: `{commands}`",
        f"One run: `{_header(root, name)['command']}`",
        f"[Records]({to_root}results/records/{name}.jsonl): {_count(len(records), 'run')}, "
        f"{_count(settings, 'setting')}, {'seed' if ',' not in seeds else 'seeds'} {seeds}, "
        f"{span([record.last_epoch for record in records], 0)} epochs",
        f"Time: {each}, {duration(sum(seconds))} in all; memory: at most {number(memory / 1024, 1)} GiB",
        f"Machine: {'; '.join(machines)}",
        f"Settings: [conf/experiment/{name}.yaml]({to_root}conf/experiment/{name}.yaml)",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _header(root: Path, name: str) -> dict[str, str]:
    file = root / "conf" / "experiment" / f"{name}.yaml"
    header = {key: re.sub(r"\n# +", " ", value) for key, value in HEADER.findall(file.read_text(encoding="utf-8"))}
    if missing := [key for key in KEYS if key not in header]:
        raise TableError(f"{file}: its header has no line `# {missing[0]}: …`")
    return header


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
