"""The runs that a page carries, and the command that repeats each."""

import json
import re
import shlex
from html import unescape

import pytest

from experiments.composition import composed, settings_of
from experiments.identity import run_id
from experiments.resolvers import register_resolvers
from reporting.records.declaration import load_declaration
from reporting.records.groups import label_runs, style_groups
from reporting.records.record_files import finished_records
from reporting.report.page import report_of_outputs
from reporting.report.repeat import repeating_command
from reporting.summary import best_activation
from tests.reporting.synthetic_records import as_read, changed, finish_runs, make_record
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
    groups = style_groups([label_runs(finished_records(tmp_path, name)) for name in ("digits", "digits_lt")])
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


def test_the_command_of_a_run_of_each_experiment_composes_to_its_settings(payload):
    register_resolvers()
    for run in {run["experiment"]: run for run in payload["runs"].values()}.values():
        python, runner, *overrides = shlex.split(run["command"])
        assert (python, runner) == ("python", "run.py")
        config = composed(*overrides)
        assert (run_id(config), config.seed) == (run["run_id"], run["seed"]), run["command"]


def test_the_command_gives_what_differs_from_the_experiment():
    record = make_record("sharmix_learned", 7, "digits", q=1.25, r=1.5, objective="brier")
    record = as_read(changed(record, optimizer={"learning_rate": 0.01}, data={"folder": "/my data"}))
    words = shlex.split(repeating_command(record))
    assert words[2:4] == ["experiment=digits", "activation=sharmix_learned"]
    assert {"activation.objective=brier", "optimizer.learning_rate=0.01", "seed=7", "paths.data=/my data"} <= {*words}


@pytest.mark.parametrize(
    "overrides",
    [
        ("experiment=copy", "model.attention.name=sparsemax"),
        ("experiment=cifar100", "model=perceptron"),  # which lacks settings of the experiment's network
        ("experiment=cifar100_lt", "data=digits"),  # which lacks a setting that is null
        ("experiment=digits", "data=cifar100", "model=resnet18"),
        ("experiment=cifar100_lt", "data.shots=null", "name='2026'"),
        ("experiment=imagenet_balanced", "data.expected_examples=null"),
        ("name=mine", "activation=custom", "activation.name=my.module.Map", "data.validation_fraction=0.1"),
        ("name=mine", "experiment=airline", "data.validation_fraction=0.1", "callbacks=early_stopping"),
    ],
    ids=lambda overrides: overrides[-1],
)
def test_the_command_of_a_run_with_settings_of_its_own_composes_to_them(overrides):
    register_resolvers()
    config = settings_of(*overrides).model_dump()
    record = as_read(make_record(experiment=config["name"]) | {"config": config, "run_id": run_id(config)})
    again = settings_of(*shlex.split(repeating_command(record))[2:]).model_dump()
    assert run_id(again) == run_id(config)
    assert again["data"].get("expected_examples") == config["data"].get("expected_examples")
