"""`conf/` composes into typed settings, and a value out of range is refused by its key."""

from pathlib import Path

import pytest
from experiments.devices import launched_fabric
from experiments.tasks import build_activation
from hydra import compose, initialize_config_dir

from experiments.errors import ConfigurationError
from experiments.settings import RunSettings, register, typed

CONF = Path(__file__).resolve().parent.parent / "conf"
ACTIVATIONS = sorted(file.stem for file in (CONF / "activation").glob("*.yaml"))
EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))


def settings(*overrides: str) -> RunSettings:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=list(overrides)))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_experiment_composes_with_every_activation(experiment: str, activation: str) -> None:
    name = ["activation.name=my_package.Mine"] if activation == "custom" else []
    found = settings(f"experiment={experiment}", f"activation={activation}", *name)
    assert found.name == experiment
    assert found.activation.name in (activation, "my_package.Mine")
    assert found.data.name == experiment.partition("_")[0]


def test_the_papers_protocol_is_the_default() -> None:
    found = settings("experiment=airline", "activation=sharmix_learned")
    assert (found.trainer.epochs, found.trainer.batch_size, found.trainer.gradient_clip) == (10, 64, 1.0)
    assert (found.optimizer.learning_rate, found.optimizer.entropy_learning_rate) == (1e-3, 1e-4)
    assert (found.model.embedding_dimension, found.data.max_length) == (128, 20)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_opens_with_what_a_reader_needs(experiment: str) -> None:
    header = (CONF / "experiment" / f"{experiment}.yaml").read_text().partition("defaults:")[0]
    for word in ("paper:", "expect:", "time:", "hardware:", "command:"):
        assert word in header


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.max_length=0", "data.max_length=0 is not allowed; it must be >= 1"),
        ("data.minimum_count=0", "data.minimum_count=0 is not allowed; it must be >= 1"),
        ("data.test_fraction=1.5", "data.test_fraction=1.5 is not allowed; it must be > 0 and < 1"),
        ("data.split_seed=-1", "data.split_seed=-1 is not allowed"),
        ("data.split_seed=4294967296", "data.split_seed=4294967296 is not allowed"),
        ("model.embedding_dimension=0", "model.embedding_dimension=0 is not allowed"),
        ("seed=-1", "seed=-1 is not allowed"),
        ("trainer.gradient_clip=0", "trainer.gradient_clip=0.0 is not allowed; it must be > 0"),
        ("trainer.threads=0", "trainer.threads=0 is not allowed"),
        ("trainer.passes_per_step=3", "trainer.batch_size=64 is not allowed"),
        ("trainer.passes_per_step=64", "at least 2 examples for each"),
    ],
)
def test_a_value_out_of_range_is_named_with_what_is_allowed(override: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings("experiment=airline", override)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.pixel_std=[0.2,0.0,0.2]", "model.pixel_std=0.0 is not allowed; it must be > 0"),
        ("model.pixel_mean=[0.5,0.5]", "model.pixel_mean=[0.5, 0.5] is not allowed; it must be 3 numbers"),
        ("model.pixel_mean=[0.5,0.5,inf]", "model.pixel_mean=inf is not allowed"),
    ],
)
def test_pixels_are_standardised_by_three_numbers(override: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings("experiment=cifar100", override)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["activation=sharmix_learned", "activation.q=0.5"], ["sharmix_learned", "q=0.5", "[1.01, 2.0)"]),
        (["activation=sharmix_learned", "activation.objective=luck"], ["luck", "fenchel_young, brier, log"]),
        (
            [
                "activation=sharmix_learned",
                "activation.q=1.75",
                "activation.r=1.25",
                "activation.nonconcave=error",
            ],
            ["(1.75, 1.25)", "2 - 1/q"],
        ),
        (["activation=entmax", "activation.alpha=0.9"], ["alpha=0.9", ">= 1"]),
        (["activation=softmax", "activation.q=1.5"], ["softmax", "no parameter q", "none"]),
        (["activation=custom", "activation.name=nowhere.Mine"], ["nowhere.Mine", "cannot import"]),
    ],
)
def test_an_activation_that_cannot_be_is_refused_before_any_training(overrides: list[str], said: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        build_activation(settings("experiment=digits", *overrides).activation)
    for words in said:
        assert words in str(error.value)


def test_a_precision_that_the_device_does_not_have_is_refused() -> None:
    with (
        pytest.warns(UserWarning, match="not supported on CPU"),
        pytest.raises(ConfigurationError, match=r"trainer.precision=16-mixed.* cpu, which offers bf16-mixed"),
    ):
        launched_fabric(settings("experiment=digits", "trainer.precision=16-mixed").trainer)
