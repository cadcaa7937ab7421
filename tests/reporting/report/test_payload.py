"""The runs that a page carries, and the command that repeats each."""

import json
import re
import shlex
from html import unescape
from pathlib import Path

import pytest

from experiments.repeat import find_record
from reporting.records.collected_records import finished_records
from reporting.records.declaration import load_declaration
from reporting.records.groups import label_runs, style_groups
from reporting.report.page import report_of_outputs
from reporting.summary import best_activation
from tests.reporting.report.conftest import carried_by
from tests.reporting.synthetic_records import finish_runs, make_record
from tests.reporting.synthetic_results import RESULTS

pytestmark = pytest.mark.medium


def test_every_run_stands_in_the_page_with_every_number_of_its_record(payload, kept):
    experiments = {table.experiment for table in kept.declaration.tables.values()} - kept.missing.keys()
    lines = [
        line for name in experiments for line in (RESULTS / f"records/{name}.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(payload["runs"]) == len(lines)
    for line in lines:
        record = json.loads(line)
        run = payload["runs"][f"{record['experiment']}/{record['run_id']}/seed-{record['seed']}"]
        columns = {column for row in record["curves"] for column in row}
        assert run["curves"] == {name: [row.get(name) for row in record["curves"]] for name in columns}
        assert not [key for key in record.keys() - {"curves", "code", "schema", "digest"} if run[key] != record[key]]
        assert run["code"]["digest"] == record["code"]["digest"]


def test_attention_tells_translations_apart_rather_than_a_hash(payload):
    labels = {group["label"] for group in payload["groups"].values() if "attention" in group["label"]}
    assert labels == {f"softmax, attention {name}" for name in ("entmax learned", "SharMiX learned")}


def test_the_columns_of_the_page_come_from_the_list_of_metrics(payload):
    translation = payload["experiments"]["multi30k"]
    names = ("accuracy", "bleu", "chrf", "exact_match", "sparsity", "support", "coverage")
    assert translation["means"] == [f"test/{name}" for name in names]
    assert translation["headline"] == "test/accuracy"
    assert translation["columns"]["test/bleu"] == "BLEU, test"
    few = payload["experiments"]["cifar100_lt"]["columns"]["test/few_accuracy"]
    assert few == "accuracy of few-shot classes, test"
    assert [*translation["columns"]][:2] == ["test/accuracy", "dev/accuracy"]  # of one metric the test split first


def test_a_first_configuration_is_drawn_as_in_the_figures(payload):
    softmax = [group for group in payload["groups"].values() if group["label"] == "softmax"]
    assert {(group["dash"], group["symbol"]) for group in softmax} == {("solid", "circle")}


def test_texts_of_runs_stay_texts_and_the_page_links_to_the_site_it_is_part_of(tmp_path):
    finish_runs(tmp_path / "<i>", [make_record(experiment="digits")])
    text = report_of_outputs(tmp_path / "<i>", tmp_path / "report.html").read_text("utf-8")
    assert "&lt;i&gt;" in text
    assert "<i>" not in text
    assert "1 finished run of digits." in text
    assert "index.html" not in text
    (tmp_path / "index.html").touch()
    assert 'href="docs/index.html"' in report_of_outputs(tmp_path / "<i>", tmp_path / "report.html").read_text("utf-8")


def test_a_folder_of_outputs_inside_of_another_one_has_a_page_of_its_own(tmp_path):
    finish_runs(tmp_path, [make_record(experiment="airline")])
    finish_runs(tmp_path / "demo", [make_record(experiment="digits"), make_record(experiment="digits", seed=42)])
    assert "1 finished run of airline." in report_of_outputs(tmp_path, tmp_path / "report.html").read_text("utf-8")
    demo = report_of_outputs(tmp_path / "demo", tmp_path / "demo.html")
    assert "2 finished runs of digits." in demo.read_text("utf-8")


def test_the_page_of_own_runs_opens_on_the_answer_of_each_experiment(tmp_path):
    for experiment, lead in (("digits", 0.05), ("digits_lt", -0.05)):
        for seed in (1, 2, 3):
            softmax, better = 0.8 + seed / 1000, 0.8 + lead + seed / 900
            finish_runs(tmp_path, [make_record("softmax", seed, experiment, {"accuracy": softmax})])
            finish_runs(tmp_path, [make_record("sparsemax", seed, experiment, {"accuracy": better})])
    runs = [finished_records(tmp_path, name).values() for name in ("digits", "digits_lt")]
    groups = style_groups([label_runs([*of_one]) for of_one in runs])
    said = [
        best_activation(name, of, load_declaration().confidence)
        for name, of in zip(("digits", "digits_lt"), groups, strict=True)
    ]
    text = unescape(report_of_outputs(tmp_path, tmp_path / "report.html").read_text("utf-8"))
    leads = re.findall(r'<p class="lead">(.*?)</p>', text)
    assert leads[:2] == said
    assert (
        text.index('id="trade-off"') < text.index('id="curves"') < text.index('id="plane"') < text.index('id="means"')
    )


def test_the_command_of_a_run_names_its_record(payload, tmp_path):
    for run in {run["experiment"]: run for run in payload["runs"].values()}.values():
        python, _, module, file, *which = shlex.split(run["command"])
        assert (python, module) == ("python", "experiments.repeat")
        record = find_record(Path(file), *(word.partition("=")[2] for word in which))
        assert (record.run_id, record.seed) == (run["run_id"], run["seed"])
    finish_runs(tmp_path, [make_record(experiment="digits")])  # in folders of other names than a run's own
    (run,) = carried_by(report_of_outputs(tmp_path, tmp_path / "report.html"))["runs"].values()
    assert Path(shlex.split(run["command"])[-1]) == next(tmp_path.rglob("record.json"))
