"""What pages say of an experiment, from its settings, records and tables: commands, time, machine, seeds, a table."""

import re
from pathlib import Path
from statistics import median

from experiments.durations import duration
from experiments.record import Record
from reporting.records.collected_records import read_records
from reporting.records.declaration import load_declaration
from reporting.records.yaml_files import TableError
from reporting.text.columns import Block, Column
from reporting.text.markdown import pipe_table
from reporting.text.number_formats import number

HEADER = re.compile(r"^# (\w+): +(.*(?:\n#  +.*)*)", re.MULTILINE)  # `key: text`, with its indented continuation lines
KEYS = ("command", "time", "hardware", "expect")  # of a header


def describe_settings(root: Path, to_root: str, name: str) -> str:
    """A list of facts from the header of an experiment's settings: model, time, hardware and the command."""
    header = _header(root, name)
    lines = [
        f"Settings: [conf/experiment/{name}.yaml]({to_root}conf/experiment/{name}.yaml)",
        f"One run: `{header['command']}`",
        f"Expected time: {header['time']} ({header['hardware']})",
        f"Expected result: {header['expect']}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def describe_runs(root: Path, to_root: str, name: str) -> str:
    """A list of facts from an experiment's records: the command for all runs, their number, time and machine."""
    records = read_records(root / "results", name)
    tables = load_declaration(root / "conf" / "reporting").tables.values()
    steps = dict.fromkeys(step for table in tables if table.experiment == name for step in table.repeat.split(" && "))
    commands = sorted(steps, key=lambda step: step.startswith("make tables"))  # last, after the runs
    seconds = [record.wall_time_seconds for record in records]
    memory = max(record.peak_memory_mib for record in records)
    hardware = [record.environment.hardware for record in records]
    machines = sorted({f"{one['processor']}, {_count(one['cores'], 'core')}" for one in hardware})
    seeds = _seeds(records)
    time = _time_in_all(records)
    if len(records) > 1:
        least, most = duration(min(seconds)), duration(max(seconds))
        time = f"{duration(median(seconds))} a run ({least} to {most}), {time} in all"
    lines = [
        f"All runs: `{'`, then `'.join(commands)}`",
        f"One run: `{_header(root, name)['command']}`",
        f"[Records]({to_root}results/records/{name}.jsonl): {_count(len(records), 'run')}, "
        f"{_count(_settings(records), 'setting')}, {'seed' if ',' not in seeds else 'seeds'} {seeds}, "
        f"{_epochs(records)} epochs",
        f"Time: {time}; memory: at most {number(memory / 1024, 1)} GiB",
        f"Machine: {'; '.join(machines)}",
        f"Settings: [conf/experiment/{name}.yaml]({to_root}conf/experiment/{name}.yaml)",
    ]
    return "\n".join(f"- {line}" for line in lines)


def list_runs(root: Path, to_root: str) -> str:
    """A table of all recorded runs: by experiment their number, settings, seeds, epochs and time, and the total."""
    results = root / "results"
    recorded = {path.stem: read_records(results, path.stem) for path in sorted((results / "records").glob("*.jsonl"))}
    everything = [record for records in recorded.values() for record in records]
    columns = [
        Column("runs", [str(len(records)) for records in (*recorded.values(), everything)]),
        Column("settings", [*(str(_settings(records)) for records in recorded.values()), ""]),
        Column("seeds", [*map(_seeds, recorded.values()), ""]),
        Column("epochs", [*(_epochs(records) for records in recorded.values()), ""]),
        Column("time in all", [_time_in_all(records) for records in (*recorded.values(), everything)]),
    ]
    return pipe_table(Block("", [*(f"`{name}`" for name in recorded), "all"], columns), "experiment")


def quote_table(root: Path, to_root: str, name: str, *words: str) -> str:
    """A link to results/tables/NAME.md, then one of its tables: the one below a heading, or the only one."""
    tables = load_declaration(root / "conf" / "reporting").tables
    if name not in tables:
        raise TableError(f"there is no table {name!r} in tables.yaml; it has {', '.join(tables)}")
    table = tables[name]
    page = (root / "results" / "tables" / f"{name}.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^(?:## (.+)\n\n)?((?:\|.*\n)+)", page, re.MULTILINE))
    wanted = " ".join(words).lower()
    exact = [heading for heading in sections if heading.lower() == wanted]
    meant = exact or [heading for heading in sections if heading.lower().startswith(wanted)]
    if len(meant) != 1:
        raise TableError(f"results/tables/{name}.md: which heading is {wanted!r}? It has {', '.join(sections)}")
    source = f"[{table.number or table.title}]({to_root}results/tables/{name}.md)"
    return f"{meant[0]}{', from' if meant[0] else 'From'} {source}:\n\n{sections[meant[0]].rstrip()}"


def _seeds(records: list[Record]) -> str:
    return ", ".join(str(seed) for seed in sorted({record.seed for record in records}))


def _settings(records: list[Record]) -> int:
    return len({record.run_id for record in records})


def _epochs(records: list[Record]) -> str:
    ends = min(record.last_epoch for record in records), max(record.last_epoch for record in records)
    return " to ".join(dict.fromkeys(map(str, ends)))


def _time_in_all(records: list[Record]) -> str:
    return duration(sum(record.wall_time_seconds for record in records))


def _header(root: Path, name: str) -> dict[str, str]:
    file = root / "conf" / "experiment" / f"{name}.yaml"
    header = {key: re.sub(r"\n# +", " ", value) for key, value in HEADER.findall(file.read_text(encoding="utf-8"))}
    if missing := [key for key in KEYS if key not in header]:
        raise TableError(f"{file}: its header has no line `# {missing[0]}: …`")
    return header


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
