"""What Hydra or the suite refuses while a configuration is composed is one message, before Hydra makes a folder."""

import contextlib
import io

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.hints import one_message
from experiments.resolvers import register_resolvers
from tests.experiments.building import CONF
from tests.sharmix.cases import every_case

pytestmark = pytest.mark.medium  # composing takes a tenth of a second

REFUSED = {
    "~activation": "activation.name is missing; give activation.name=VALUE",
    **{f"~{key}": f"{key} is missing; give {key}=VALUE" for key in ("data", "threads")},
    "activation=custom": "activation.name is missing; give activation.name=VALUE",
    "model=timm": "model.architecture is missing; give model.architecture=VALUE",
    "paths.outputs=${x}": "paths.outputs: Interpolation key 'x' not found",
    "paths.data=${oc.env:NOPE}": "paths.data: \"Environment variable 'NOPE' not found\"",
    "name=${name}": "name: Recursive interpolation detected",
    "activation.alpha=${bad:1}": "activation.alpha: Unsupported interpolation type bad",
    "data=digit": "data=digit is not allowed. Did you mean digits? Allowed: airline, ",
    "activation.parameters.x=5": "setting 'activation.parameters.x' yet; +activation.parameters.x=5 adds it",
    "attention=null": "attention=null is not allowed. Allowed: entmax, sharmix, softmax",
    "trainer=null": "trainer=null is not allowed. Allowed: default",
    "model=[1]": "model=[1] is not allowed. Allowed: embedding_bag, ",
    "experiment=": "experiment= is not allowed. Allowed: airline, ",
    "trainer.epochz=3": "there is no setting 'trainer.epochz' (given trainer.epochz=3). Did you mean trainer.",
    "+seed=3": "Could not append to config. An item is already at 'seed'.",
    "+x=3": "there is no setting x (given x=3)",
    "paths=x": "paths='x' is not allowed; it should be a valid dictionary",
    "seed=[1": "no viable alternative at input '[1'",
    "paths.outputs=": "paths.outputs='' is not allowed; it should be a folder; is a variable of the shell not set?",
    "seed=-1": "seed=-1 is not allowed; it should be greater than or equal to 0",
    "hydra.run.dir=${nope}": "hydra.run.dir: Interpolation key 'nope' not found",
}


def folder_of(*arguments: str) -> str:
    """The folder that Hydra would make for a run."""
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", overrides=["experiment=digits", *arguments], return_hydra_config=True)
        return str(OmegaConf.select(config, "hydra.run.dir"))


def test_a_run_has_a_folder_of_its_own() -> None:
    assert folder_of("seed=42").startswith("outputs/digits/softmax-")
    assert folder_of("seed=42").endswith("/seed-42")


def test_what_cannot_be_composed_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    with every_case() as case:
        for argument, words in REFUSED.items():
            with case(argument=argument):
                printed = io.StringIO()
                error = contextlib.redirect_stderr(printed)
                with error, pytest.raises(SystemExit) as stopped, one_message([argument]):
                    folder_of(argument)
                assert stopped.value.code == 1
                assert printed.getvalue().startswith(words) or words in printed.getvalue().splitlines()[0]
                assert "Traceback" not in printed.getvalue()


def test_tracebacks_are_shown_on_demand_and_for_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(Exception, match="seed"), one_message(["~seed"]):
        folder_of("~seed")
    monkeypatch.delenv("HYDRA_FULL_ERROR")
    with pytest.raises(ZeroDivisionError), one_message([]):
        raise ZeroDivisionError
