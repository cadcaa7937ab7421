"""What a run is known by: only what decides its result."""

import json

import pytest
from omegaconf import OmegaConf

from experiments import identity
from experiments.composition import composed, resolved
from experiments.composition import settings_of as settings
from experiments.identity import ROOT, code_of, run_id
from tests.experiments.building import EXPERIMENTS


@pytest.mark.medium
def test_an_edit_changes_the_code_of_the_runs_that_import_the_file(monkeypatch):
    configurations = {experiment: settings(f"experiment={experiment}").model_dump() for experiment in EXPERIMENTS}
    read = identity._content

    def read_edited(file):
        return read(file) + (b"\n# edited" if file == edited else b"")

    def digests():
        return {experiment: code_of(config)["digest"] for experiment, config in configurations.items()}

    before, everyone = digests(), set(EXPERIMENTS)
    assert before == digests()
    translation = {"copy", "iwslt14", "multi30k", "multi30k_early", "wmt14"}
    images = {name for name in EXPERIMENTS if name.startswith(("cifar100", "imagenet", "tiny_imagenet"))}
    monkeypatch.setattr(identity, "_content", read_edited)
    for name, expected in (
        ("experiments/data/imagenet.py", {"imagenet_lt", "imagenet_balanced"}),
        ("experiments/data/airline.py", {"airline"}),
        ("experiments/data/copying.py", {"copy"}),
        ("experiments/data/parallel_corpus.py", translation - {"copy"}),
        ("experiments/modules/translator.py", translation),
        ("experiments/modules/beam_search.py", translation),
        ("experiments/networks/attention.py", translation),
        ("experiments/networks/resnet.py", images),
        ("experiments/networks/perceptron.py", {"digits", "digits_lt"}),
        ("experiments/data/samplers.py", everyone),
        ("experiments/modules/base.py", everyone),
        ("experiments/run.py", everyone),
        ("experiments/__init__.py", everyone),
        *((f"sharmix/{file}", everyone) for file in ("__init__.py", "_mathematics/__init__.py", "csrc/module.cpp")),
        ("run.py", set()),
        ("reporting/tables/__init__.py", set()),
    ):
        edited = ROOT / name
        assert edited.is_file()
        changed = {experiment for experiment, digest in digests().items() if digest != before[experiment]}
        assert changed == expected, name


@pytest.mark.medium
def test_classes_and_activations_of_the_users_own_are_part_of_the_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("users_metric", "users_activation"):
        (tmp_path / f"{name}.py").write_text("import users_helper\n")
    plain = settings("experiment=digits").model_dump()
    metric = {"metrics": {"mine": {"_target_": "users_metric.Mine"}}}
    activation = ("activation=custom", "activation.name=users_activation.Mine")
    configurations = [
        plain | {"module": plain["module"] | metric},
        settings("experiment=digits", *activation).model_dump(),
    ]
    found = []
    for value in (1, 2):
        (tmp_path / "users_helper.py").write_text(f"value = {value}\n")
        identity._content.cache_clear()
        found.append([code_of(config)["digest"] for config in (plain, *configurations)])
    assert [one == other for one, other in zip(*found, strict=True)] == [True, False, False]


def test_a_run_is_named_by_the_settings_that_decide_its_result():
    base = ("experiment=digits", "activation=sharmix_learned")
    config = composed(*base)
    plain = run_id(resolved(config))

    def changed(override):
        if override.startswith(("logger=", "callbacks=")):
            return run_id(resolved(composed(*base, override)))
        return run_id(resolved(OmegaConf.merge(config, OmegaConf.from_dotlist([override]))))

    assert len(plain) == 12
    for override in (
        *("seed=42", "force=true", "progress=none", "keep_weights=false", "paths.outputs=elsewhere", "tags=[a]"),
        *("paths.data=elsewhere", "data.num_workers=2", "logger=tensorboard"),
        "data.expected_examples=null",
        *("trainer.profiler=simple", "trainer.enable_model_summary=true", "trainer.default_root_dir=elsewhere"),
        *("activation.q=1.250", "data.imbalance=1.0", "trainer.gradient_clip_val=1", "data.validation_fraction=0"),
    ):
        assert changed(override) == plain, override
    found = {plain: ""}
    for override in (
        *("trainer.max_epochs=21", "activation.q=1.5", "activation.nonconcave=error", "data.batch_size=32"),
        *("data.test_fraction=0.3", "data.validation_seed=1", "data.sampler=square_root", "model.hidden_units=65"),
        *("module.label_smoothing=0.1", "optimizer.learning_rate=2e-3", "trainer.accumulate_grad_batches=2"),
        *("trainer.precision=bf16-mixed", "threads=2", "callbacks=early_stopping", "name=other"),
    ):
        assert found.setdefault(changed(override), override) == override


def test_recorded_runs_have_the_names_of_their_settings():
    for file in (ROOT / "results" / "records").glob("*.jsonl"):
        for line in file.read_text("utf-8").splitlines():
            record = json.loads(line)
            assert run_id(record["config"]) == record["run_id"], (file.name, record["run_id"])
