"""`conf/` composes into checked settings that build what they name, and a value out of range is refused by its key."""

import inspect
import itertools
import math
import re

import pytest
from omegaconf import OmegaConf

import sharmix
from experiments.composition import composed
from experiments.composition import settings_of as settings
from experiments.errors import ConfigurationError
from experiments.identity import ROOT
from experiments.run import Run
from experiments.settings import build, build_activation, checked_settings, get_class_or_function
from experiments.trainer import build_trainer
from tests.experiments.building import CONF, EXPERIMENTS

ACTIVATIONS = sorted(file.stem for file in (CONF / "activation").glob("*.yaml"))

DATA = {
    "airline": "AirlineDataModule",
    "cifar100": "Cifar100DataModule",
    "copy": "CopyDataModule",
    "digits": "DigitsDataModule",
    "imagenet": "ImagenetDataModule",
    "tiny": "TinyImagenetDataModule",
}


@pytest.mark.medium
def test_every_experiment_names_classes_and_arguments_that_there_are():
    for experiment in EXPERIMENTS:
        found = settings(f"experiment={experiment}")
        assert found.name == experiment
        data = build(found.data, "data")
        assert type(data).__name__ == DATA.get(experiment.partition("_")[0], "ParallelCorpusDataModule"), experiment
        build(found.optimizer, "optimizer")
        build_trainer(found.trainer | {"accelerator": "cpu", "precision": "32-true"}, threads=1)
        for key, group in (("model", found.model), ("module", found.module)):
            parameters = inspect.signature(get_class_or_function(group, key)).parameters
            assert set(group) - {"_target_"} <= set(parameters), (experiment, key)
        evaluates = {"dev", "test"} if found.module["_target_"].endswith("Translator") else {"test"}
        assert evaluates <= set(data.evaluated), experiment


@pytest.mark.medium
def test_every_activation_composes_with_every_kind_of_experiment_and_is_built():
    for experiment, activation in itertools.product(("digits", "copy"), ACTIVATIONS):
        name = ["activation.name=my_package.Mine"] if activation == "custom" else []
        found = settings(f"experiment={experiment}", f"activation={activation}", *name)
        assert found.activation.name == (name[0].partition("=")[2] if name else activation)
        if not name:
            build_activation(found.activation)


def test_every_registered_activation_has_its_settings_and_learns_to_copy():
    registered = set(sharmix.available_activations())
    assert set(ACTIVATIONS) == registered | {"custom"}
    (copying,) = re.findall(r"^copy: .*\n.* activation=(\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(copying.split(",")) == registered


def test_no_experiment_touches_the_activation():
    for experiment in EXPERIMENTS:  # so that each goes with each
        file = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
        chosen = [name for entry in file.defaults if not isinstance(entry, str) for name in entry]
        assert "activation" not in file, experiment
        assert not any(name.endswith("/activation") for name in chosen), experiment


def test_the_papers_protocol_is_the_default():
    found = settings("experiment=airline", "activation=sharmix_learned")
    assert (found.trainer["max_epochs"], found.data["batch_size"], found.trainer["gradient_clip_val"]) == (10, 64, 1.0)
    assert (found.optimizer["learning_rate"], found.optimizer["entropy_learning_rate"]) == (1e-3, 1e-4)
    assert (found.model["embedding_dimension"], found.data["max_length"]) == (128, 20)


def test_an_experiment_opens_with_what_a_reader_needs():
    rules = re.findall(r"^([\w -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    for experiment in EXPERIMENTS:
        header = (CONF / "experiment" / f"{experiment}.yaml").read_text().partition("defaults:")[0]
        for word in ("paper:", "expect:", "time:", "hardware:", "command:"):
            assert word in header, experiment
        assert set(re.findall(r"make (\w+)", header)) <= targets, experiment
        assert " -m " not in header, experiment  # the runs behind a table stand in the Makefile alone


def test_a_value_out_of_range_is_named_with_what_is_allowed():
    for group, name, value, said in (
        ("data", "folder", 3, "data.folder=3 is not allowed; it is not a valid path"),
        ("data", "_target_", "torch", "data._target_=torch is not allowed; it should be the path of a class"),
        ("data", "max_lengths", 3, "there is no setting data.max_lengths (given data.max_lengths=3)"),
        ("optimizer", "learning_rate", math.inf, "optimizer.learning_rate=inf is not allowed; it should be a finite"),
        ("optimizer", "schedule", "linear", "it should be 'constant', 'inverse_square_root' or 'cosine'"),
        ("optimizer", "schedule", "cosine", "schedule='cosine' is not allowed; it needs optimizer.cosine_steps"),
    ):
        wrong = getattr(settings("experiment=airline"), group) | {name: value}
        with pytest.raises(ConfigurationError) as error:
            build(wrong, group)
        assert said in str(error.value), f"{group}.{name}={value}"


TEXTS = {
    **{("name", name): "name=" for name in ("", "..", "../x", "-x", "a\nb", "x" * 201)},
    ("paths.outputs", "  "): "it should be a folder; is a variable of the shell not set?",
    ("paths.outputs", "~/out"): "give $HOME",
    ("paths.data", ""): "paths.data='' is not allowed",
    **{("activation.name", name): "activation.name=" for name in ("", "../x.Y")},
    **{("seed", seed): "seed=" for seed in (-1, 2**32, 1.5, "1", None)},
    ("data.seed", 7): "data.seed=7 is not allowed; it follows the run's: give seed=7",
    ("threads", 0): "threads=0 is not allowed; it should be greater than or equal to 1",
    ("progress", "loud"): "progress='loud' is not allowed; it should be 'auto', 'bar', 'lines' or 'none'",
}


def test_what_would_be_written_elsewhere_or_nowhere_is_refused():
    for (key, value), words in TEXTS.items():
        config = composed("experiment=digits").copy()
        OmegaConf.update(config, key, value)
        with pytest.raises(ConfigurationError, match=re.escape(words)):
            checked_settings(OmegaConf.to_container(config, resolve=True))


COPY, TWEETS = ("experiment=copy", "data.train_size=300"), ("experiment=airline", "paths.data=nowhere")
STOPPING = (*TWEETS, "callbacks=early_stopping")
UNMEASURED = "loss is not allowed; nothing is chosen on the test split, and this run measures train; "
WRONG = [  # settings, and words of the message; the message on tweets comes before the data are read
    (*COPY, "model.dimension=60", "model.dimension=60 is not allowed; it must be divisible by 2 * model.heads = 8"),
    (*COPY, "module.beam.length_penalty=1e30", "module.beam.length_penalty=1e+30 is not allowed"),
    (*COPY, "~model.attention.name", "model.attention.name is missing; give model.attention.name=VALUE"),
    (*COPY, "+data.sampler=class_balanced", "there is no setting data.sampler (given data.sampler='class_balanced')"),
    (*TWEETS, "+module.average_decay=0.1", "there is no setting module.average_decay"),
    (*TWEETS, "model.embedding_dimension=0", "model.embedding_dimension=0 is not allowed; it should be greater than"),
    (*TWEETS, "module.label_smoothing=1", "module.label_smoothing=1 is not allowed; it should be less"),
    (*TWEETS, "optimizer.learning_rate=0", "optimizer.learning_rate=0 is not allowed; it should be greater than 0"),
    (*TWEETS, "activation=sharmix_learned", "activation.q=0.5", "q=0.5 is not allowed as a start"),
    (*TWEETS, "activation=sharmix_learned", "activation.objective=luck", "luck"),
    (*TWEETS, "activation=softmax", "activation.q=1.5", "no parameter q"),
    (*TWEETS, "+activation.parameters.dim=-1", "activation.parameters.dim=-1 is not allowed; an experiment's logits"),
    (*TWEETS, "activation=custom", "activation.name=nowhere.Mine", "cannot import"),
    (*COPY, "attention=entmax", "model.attention.alpha=3", "model.attention=entmax_learned: alpha=3"),
    (*TWEETS, "trainer.num_nodes=2", "trainer.num_nodes=2 is not allowed here: start the run on each machine"),
    (*TWEETS, "+logger.mine._target_=nowhere.Mine", "logger.mine._target_=nowhere.Mine"),
    (*TWEETS, "+callbacks.mine._target_=torch.nn.Identity", "callbacks.mine: Identity must be a Callback of lightning"),
    (*STOPPING, "callbacks.early_stopping.monitor=test/loss", f"monitor=test/{UNMEASURED}"),
    (*STOPPING, "callbacks.early_stopping.monitor=validation/loss", f"monitor=validation/{UNMEASURED}"),
    (*STOPPING, "callbacks.early_stopping.monitor=5", "monitor=5 is not allowed"),
]


@pytest.mark.medium
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong[-2])
def test_a_wrong_setting_is_named_with_what_is_allowed(wrong, tmp_path):
    *overrides, said = wrong
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Run(settings(*overrides), tmp_path / "run").complete()
    assert not (tmp_path / "run").exists()
