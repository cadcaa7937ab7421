"""The commands that configs, README.md and docs/ give compose: no group, choice or setting in them is gone."""

import itertools
import re
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.composition import composed
from experiments.composition import settings_of as settings
from experiments.identity import ROOT
from tests.docs.pages import PAGES, command_lines

pytestmark = pytest.mark.medium

CONFIGS = sorted((ROOT / "conf").rglob("*.yaml"))
COMMAND = re.compile(r"python run\.py ([^`\n]*)")  # test_outside.py runs those that name the folder
TRY = re.compile(r"^# try: +the same with (.*)", re.MULTILINE)
OPTIONS = {"-m": 0, "--help": 0, "--cfg": 1}  # of Hydra, with the number of words that follow


def commands(file):
    """The overrides of every command in a file; of `try:` those that it adds to the command above."""
    text = "\n".join(command_lines(file)) if file.suffix == ".md" else file.read_text().replace("\\\n", " ")
    given: tuple[str, ...] = ()
    for given in map(overrides, COMMAND.findall(text)):
        yield given
    for added in TRY.findall(text):
        yield (*given, *overrides(added))


def overrides(arguments):
    """What is left without Hydra's options and its launchers and sweepers, which test_run.py composes."""
    words = iter(shlex.split(arguments, comments=True))
    found = []
    for word in words:
        if word in OPTIONS:
            list(itertools.islice(words, OPTIONS[word]))
        elif "=" in word and not word.startswith(("hydra", "[")):  # brackets say what may be given
            found.append(word)
    return tuple(found)


def jobs(given):
    """As few jobs as name every choice of a command that sweeps; else the command's one job."""
    choices = []
    for word, override in zip(given, OverridesParser.create().parse_overrides(list(given)), strict=True):
        key = override.get_key_element()
        swept = override.is_sweep_override()
        choices.append([f"{key}={value}" for value in override.sweep_string_iterator()] if swept else [word])
    for number in range(max(map(len, choices), default=1)):
        yield tuple(values[number % len(values)] for values in choices)


def test_every_command_of_a_config_composes_into_settings():
    found = {file.relative_to(ROOT / "conf").as_posix(): list(commands(file)) for file in CONFIGS}
    for file in (ROOT / "conf" / "experiment").iterdir():
        assert found[f"experiment/{file.name}"], file
    assert sum(len(TRY.findall(file.read_text())) for file in CONFIGS) >= 2
    for job in {job for given in itertools.chain(*found.values()) for job in jobs(given)}:
        settings(*job)


def test_every_command_of_the_docs_composes():
    found = {job for file in PAGES for given in commands(file) for job in jobs(given)}
    assert len(found) > 20
    for job in found:  # among them are some that a run refuses
        composed(*job)
