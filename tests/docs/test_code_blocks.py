"""Every code block of README.md and docs/ runs, and every command that they show is there."""

import importlib
import importlib.util
import re
import shlex
import sys
import types

import pytest
import torch

import sharmix
from sharmix import registry
from tests.docs.pages import PAGES, ROOT, TUTORIALS, blocks, command_lines, name

# Tests that run a page's blocks and look at what they give.
TESTED_BY = {
    "docs/attention.md": "tests/sharmix/test_transformers.py",
    "docs/export.md": "tests/sharmix/test_export.py",
    "docs/from_entmax.md": "tests/sharmix/test_from_entmax.py",
    "docs/how_to/fine_tune_a_language_model.md": "tests/docs/test_fine_tuning.py",
    "docs/how_to/large_vocabulary_on_several_gpus.md": "tests/docs/test_large_vocabulary.py",
}
PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
RUN_HERE = [page for page in PYTHON if name(page) not in TESTED_BY and TUTORIALS not in page.parents]
COMMANDS = {name(page): list(command_lines(page)) for page in PAGES}


def made_up():
    """What the reader of a page has already: logits, labels, and the parts of a linear layer."""
    torch.manual_seed(0)
    return {
        "logits": torch.randn(40, 10),
        "labels": torch.randint(10, (40,)),
        "new_logits": torch.randn(4, 10),
        "hidden": torch.randn(6, 8),
        "weight": torch.randn(10, 8),
        "bias": torch.randn(10),
        "targets": torch.randint(10, (6,)),
    }


@pytest.mark.medium
@pytest.mark.filterwarnings("default")  # a Trainer advises those who train on little data
@pytest.mark.parametrize("page", RUN_HERE, ids=name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_ACTIVATIONS", dict(registry._ACTIVATIONS))  # pages register classes
    module = types.ModuleType("my_package.my_module")  # what README calls a file of your own
    vars(module).update(sharmix=sharmix, torch=torch, **made_up())
    monkeypatch.setitem(sys.modules, "my_package", types.ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.code)
        elif block.language == "python":
            exec(compile("\n" * block.line + block.code, name(page), "exec"), vars(module))


@pytest.mark.parametrize("page", TESTED_BY)
def test_the_test_that_runs_a_page_is_there(page):
    assert page.rpartition("/")[2] in (ROOT / TESTED_BY[page]).read_text()
    assert ROOT / page in PYTHON


def test_every_target_of_make_is_there():
    rules = re.findall(r"^([\w%. -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pattern = "|".join(re.escape(target).replace("%", r"[\w-]+") for rule in rules for target in rule.split())
    lines = [line for lines in COMMANDS.values() for line in lines if line.startswith("make ")]
    words = {word for line in lines for word in shlex.split(line, comments=True)[1:]}
    targets = {word for word in words if "=" not in word and not word.startswith("-")}
    assert len(targets) > 20
    assert {target for target in targets if not re.fullmatch(pattern, target)} == set()


def modules():
    """Every `python -m MODULE` of the pages, with the words that follow."""
    for line in [line for lines in COMMANDS.values() for line in lines]:
        if found := re.match(r"(?:\S+=\S+ )*(?:\S*/)?python -m ([\w.]+)(.*)", line):
            yield found[1], tuple(shlex.split(found[2], comments=True))


@pytest.mark.medium
def test_every_module_that_is_run_is_there_and_has_its_options(capsys):
    ours = {file.parent.name for file in ROOT.glob("*/__init__.py")}
    found = {(module, words) for module, words in modules() if module.partition(".")[0] in ours}
    assert len(found) > 5
    for module, words in sorted(found):
        specification = importlib.util.find_spec(module)
        assert specification, module
        if specification.submodule_search_locations is None or module == "sharmix":
            continue  # a file, or a package without arguments
        command = [word for word in words[:1] if re.fullmatch(r"[a-z_]+", word)]
        with pytest.raises(SystemExit, match=r"^0$"):
            importlib.import_module(f"{module}.__main__").main([*command, "--help"])
        said = capsys.readouterr().out
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        assert [option for option in options if option not in said] == [], (module, words)
