"""The typed form of `conf/`: what each setting may be. Values, and what they mean, stand in the YAML alone."""

import dataclasses
import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from experiments.errors import ConfigurationError
from experiments.identity import run_id

SAMPLERS = ("instance", "square_root", "class_balanced", "progressive")
FEWEST_EXAMPLES = 2  # in one forward pass of training: batch normalisation needs a spread


def limited(least: float = -math.inf, above: float = -math.inf, below: float = math.inf) -> Any:
    """A number, or None, with least ≤ number and above < number < below."""
    bounds = {">=": least, ">": above, "<": below}
    return dataclasses.field(
        metadata={"bounds": {sign: bound for sign, bound in bounds.items() if math.isfinite(bound)}}
    )


def three(above: float = -math.inf) -> Any:
    """Three finite numbers above a bound, one for each colour."""
    return dataclasses.field(metadata={"bounds": {">": above}, "length": 3})


def one_of(*choices: str) -> Any:
    """One of the words given, or None."""
    return dataclasses.field(metadata={"choices": choices})


@dataclass
class ActivationSettings:
    """An output activation; what it does not take stays None. Every field is declared, so that a grid can sweep it."""

    name: str
    alpha: float | None = None
    q: float | None = None
    r: float | None = None
    tau: float | None = None
    temperature: float | None = None
    objective: str | None = None
    nonconcave: str | None = None
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """What `sharmix.build_activation` is to be given beside the name."""
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        extra = named.pop("parameters")
        del named["name"]
        return {key: value for key, value in named.items() if value is not None} | dict(extra)


# From here on no field has a default: a value that no YAML file gives is an error.


@dataclass(unsafe_hash=True)  # a key of the cache of loaded data; never changed
class AirlineSettings:
    name: str
    max_length: int = limited(least=1)
    minimum_count: int = limited(least=1)
    test_fraction: float = limited(above=0, below=1)
    split_seed: int = limited(least=0, below=2**32)


@dataclass(unsafe_hash=True)
class ShotSettings:
    rule: str
    many_above: int = limited(least=0)
    few_below: int = limited(least=0)


@dataclass(unsafe_hash=True)  # a key of the cache of loaded data; never changed
class DigitsSettings:
    name: str
    test_fraction: float = limited(above=0, below=1)
    split_seed: int = limited(least=0, below=2**32)
    imbalance: float = limited(least=1)
    tail_seed: int = limited(least=0, below=2**32)
    shots: ShotSettings


@dataclass(unsafe_hash=True)  # a key of the cache of loaded data; never changed
class Cifar100Settings:
    name: str
    source: str = one_of("hub", "torchvision")
    augmentation: str = one_of("none", "standard")
    padding: int = limited(least=0)
    imbalance: float = limited(least=1)
    tail_seed: int = limited(least=0, below=2**32)
    shots: ShotSettings


@dataclass(unsafe_hash=True)  # a key of the cache of loaded data; never changed
class ImagenetSettings:
    name: str
    folder: str
    test_folder: str
    long_tailed: bool
    repeat_images: bool
    tail_seed: int = limited(least=0, below=2**32)
    image_size: int = limited(least=1)
    least_area: float = limited(above=0, below=1)
    shorter_side: int = limited(least=1)
    unreadable_share: float = limited(least=0, below=1)
    shots: ShotSettings


@dataclass(unsafe_hash=True)  # a key of the cache of loaded data; never changed
class ParallelTextSettings:
    name: str
    source: str
    target: str
    train: str
    dev: str
    test: str
    hub: str
    hub_files: str | None
    vocabulary_size: int = limited(least=5)
    max_length: int = limited(least=1)


@dataclass(unsafe_hash=True)  # a key of the cache of loaded data; never changed
class CopySettings:
    name: str
    words: int = limited(least=2)
    shortest: int = limited(least=1)
    longest: int = limited(least=1)
    train_size: int = limited(least=1)
    evaluation_size: int = limited(least=1)
    data_seed: int = limited(least=0, below=2**32)


@dataclass
class EmbeddingBagSettings:
    name: str
    embedding_dimension: int = limited(least=1)


@dataclass
class PerceptronSettings:
    name: str
    hidden_units: int = limited(least=1)


@dataclass
class ResNetSettings:
    name: str
    stem: str = one_of("imagenet", "cifar")
    pixel_mean: list[float] = three()
    pixel_std: list[float] = three(above=0)


@dataclass
class TimmSettings:
    name: str
    architecture: str
    pixel_mean: list[float] = three()
    pixel_std: list[float] = three(above=0)


@dataclass
class BeamSettings:
    size: int = limited(least=1)
    limit_ratio: float = limited(least=0)
    limit_extra: int = limited(least=0)
    length_penalty: float = limited(least=0)
    scores: str = one_of("normalised", "raw")


@dataclass
class TransformerSettings:
    name: str
    dimension: int = limited(least=2)
    feedforward: int = limited(least=1)
    heads: int = limited(least=1)
    encoder_layers: int = limited(least=1)
    decoder_layers: int = limited(least=1)
    dropout: float = limited(least=0, below=1)
    attention_dropout: float = limited(least=0, below=1)
    attention: ActivationSettings
    beam: BeamSettings


ImageSettings = Cifar100Settings | ImagenetSettings
TranslationSettings = ParallelTextSettings | CopySettings
DataSettings = AirlineSettings | DigitsSettings | ImageSettings | TranslationSettings
ModelSettings = EmbeddingBagSettings | PerceptronSettings | ResNetSettings | TimmSettings | TransformerSettings


@dataclass
class OptimizerSettings:
    learning_rate: float = limited(above=0)
    entropy_learning_rate: float = limited(above=0)
    beta1: float = limited(least=0, below=1)
    beta2: float = limited(least=0, below=1)
    schedule: str = one_of("constant", "inverse_square_root")
    warm_up_steps: int = limited(least=1)
    average_decay: float | None = limited(above=0, below=1)


@dataclass
class TrainerSettings:
    epochs: int = limited(least=1)
    batch_size: int = limited(least=1)
    evaluation_batch_size: int = limited(least=1)
    gradient_clip: float = limited(above=0)
    label_smoothing: float = limited(least=0, below=1)
    steps_per_epoch: int | None = limited(least=1)
    passes_per_step: int = limited(least=1)
    sampler: str = one_of(*SAMPLERS)
    train_metrics: str = one_of("evaluated", "running")
    precision: str = one_of("32-true", "bf16-mixed", "16-mixed")
    channels_last: bool
    compile: bool
    threads: int = limited(least=1)
    accelerator: str = one_of("cpu", "auto")
    devices: int = limited(least=1)
    nodes: int = limited(least=1)


@dataclass
class LoggerSettings:
    name: str = one_of("csv", "wandb", "tensorboard")
    project: str | None


@dataclass
class PathSettings:
    data: str | None
    outputs: str


@dataclass
class RunSettings:
    """Everything one run needs to know."""

    name: str
    seed: int = limited(least=0, below=2**32)
    force: bool
    progress: bool
    workers: int = limited(least=0)
    paths: PathSettings
    activation: ActivationSettings
    data: Any  # DataSettings
    model: Any  # ModelSettings
    optimizer: OptimizerSettings
    trainer: TrainerSettings
    logger: LoggerSettings


# Which experiments can be composed from which parts: each name in `conf/<group>/` has a schema here.
_GROUPS: dict[str, dict[str, type]] = {
    "data": {
        "airline": AirlineSettings,
        "digits": DigitsSettings,
        "cifar100": Cifar100Settings,
        "imagenet": ImagenetSettings,
        "multi30k": ParallelTextSettings,
        "iwslt14": ParallelTextSettings,
        "wmt14": ParallelTextSettings,
        "copy": CopySettings,
    },
    "model": {
        "embedding_bag": EmbeddingBagSettings,
        "perceptron": PerceptronSettings,
        "resnet18": ResNetSettings,
        "resnet50": ResNetSettings,
        "timm": TimmSettings,
        "transformer": TransformerSettings,
    },
}
_IMAGES = (Cifar100Settings, ImagenetSettings)
_TRANSLATION = (ParallelTextSettings, CopySettings)
_READS: dict[type, tuple[type, ...]] = {
    EmbeddingBagSettings: (AirlineSettings,),
    PerceptronSettings: (DigitsSettings,),
    ResNetSettings: _IMAGES,
    TimmSettings: _IMAGES,
    TransformerSettings: _TRANSLATION,
}
_CHOSEN_BY_NAME = ("experiment", "attention")


def register() -> None:
    """Tell Hydra the schemas and the `run_id` resolver."""
    store = ConfigStore.instance()
    store.store(name="schema", node=RunSettings)
    for group, schemas in _GROUPS.items():
        for name, schema in schemas.items():
            store.store(group=group, name=f"{name}_schema", node=schema)
    OmegaConf.register_new_resolver("run_id", lambda *, _root_: run_id(_root_), replace=True)


def typed(config: DictConfig) -> RunSettings:
    """The settings as typed objects, every value checked.

    Raises:
        ConfigurationError: for the first value out of its range.
    """
    settings: RunSettings = OmegaConf.to_object(config)  # type: ignore[assignment]
    _validate(settings, "")
    if not isinstance(settings.data, readable := _READS[type(settings.model)]):
        fitting = ", ".join(name for name, schema in _GROUPS["data"].items() if issubclass(schema, readable))
        raise ConfigurationError(
            f"model={settings.model.name} cannot read data={settings.data.name}; it reads {fitting}"
        )
    if isinstance(settings.data, DigitsSettings | ImageSettings):
        _check_shots(settings.data.shots)
    if isinstance(settings.model, TransformerSettings):
        _check_translation(settings)
    else:
        _check_classification(settings)
    return settings


def _check_translation(settings: RunSettings) -> None:
    model, data, trainer = settings.model, settings.data, settings.trainer
    if model.dimension % (2 * model.heads):
        raise ConfigurationError(
            f"model.dimension={model.dimension} is not allowed; it must be divisible by 2 * model.heads = "
            f"{2 * model.heads}"
        )
    longest = data.longest if isinstance(data, CopySettings) else data.max_length
    least = (longest + 1) * trainer.devices * trainer.nodes * trainer.passes_per_step
    if trainer.batch_size < least:
        raise ConfigurationError(
            f"trainer.batch_size={trainer.batch_size} is not allowed; it counts target tokens here, and must be at "
            f"least {least}, the longest sentence and its end for each device, node and pass"
        )
    if isinstance(data, CopySettings):
        _check_copies(data)
    for key, value, only in (
        ("sampler", trainer.sampler, "instance"),
        ("train_metrics", trainer.train_metrics, "running"),
    ):
        if value != only:
            raise ConfigurationError(f"trainer.{key}={value} is not allowed with model={model.name}; it must be {only}")


def _check_copies(data: CopySettings) -> None:
    if data.shortest > data.longest:
        raise ConfigurationError(
            f"data.shortest={data.shortest} is not allowed; it must be at most data.longest={data.longest}"
        )
    there_are = sum(data.words**length for length in range(data.shortest, data.longest + 1))
    asked = data.train_size + 2 * data.evaluation_size
    if 2 * asked > there_are:  # beyond, drawing different ones takes long
        raise ConfigurationError(
            f"data.train_size={data.train_size} and data.evaluation_size={data.evaluation_size} ask for {asked} "
            f"different sentences; of data.words={data.words} words, data.shortest={data.shortest} to "
            f"data.longest={data.longest} a sentence, there are {there_are}, of which at most half may be asked for"
        )


def _check_classification(settings: RunSettings) -> None:
    trainer, decay = settings.trainer, settings.optimizer.average_decay
    if decay is not None:
        raise ConfigurationError(
            f"optimizer.average_decay={decay} is not allowed with model={settings.model.name}; only translation "
            "averages parameters, so it must be null"
        )
    parts = trainer.devices * trainer.nodes * trainer.passes_per_step
    if trainer.batch_size % parts or trainer.batch_size < FEWEST_EXAMPLES * parts:
        raise ConfigurationError(
            f"trainer.batch_size={trainer.batch_size} is not allowed; it counts all devices, nodes and passes, and "
            f"must be divisible by trainer.devices * trainer.nodes * trainer.passes_per_step = {parts}, with at least "
            f"{FEWEST_EXAMPLES} examples for each"
        )


def _check_shots(shots: ShotSettings) -> None:
    if shots.few_below > shots.many_above + 1:
        raise ConfigurationError(
            f"data.shots.few_below={shots.few_below} is not allowed; it must be at most data.shots.many_above + 1 = "
            f"{shots.many_above + 1}, so that no class is both"
        )


def refuse_several_processes(settings: RunSettings) -> None:
    """Raise a ConfigurationError if a job of a sweep asks for several processes.

    Each process but the first starts the whole command line again, and would run the whole sweep.
    """
    if (processes := settings.trainer.devices * settings.trainer.nodes) > 1:
        raise ConfigurationError(
            f"trainer.devices={settings.trainer.devices} and trainer.nodes={settings.trainer.nodes} ask for "
            f"{processes} processes, each of which repeats the sweep; leave out -m and start one run at a time"
        )


def _validate(settings: Any, prefix: str) -> None:
    for field in dataclasses.fields(settings):
        value, key = getattr(settings, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            _validate(value, f"{key}.")
        elif value is not None:
            numbers = value if isinstance(value, list) else [value]
            if len(numbers) != field.metadata.get("length", len(numbers)):
                raise ConfigurationError(f"{key}={value!r} is not allowed; it must be 3 numbers, one for each colour")
            for number in numbers if "bounds" in field.metadata else []:
                _check_bounds(key, number, field.metadata["bounds"])
            choices = field.metadata.get("choices", (value,))
            if value not in choices:
                raise ConfigurationError(f"{key}={value!r} is not allowed; it must be one of {', '.join(choices)}")


def _check_bounds(key: str, value: float, bounds: dict[str, float]) -> None:
    holds = {
        ">=": lambda bound: value >= bound,
        ">": lambda bound: value > bound,
        "<": lambda bound: value < bound,
    }
    if not (math.isfinite(value) and all(holds[sign](bound) for sign, bound in bounds.items())):
        allowed = " and ".join([f"{sign} {bound:g}" for sign, bound in bounds.items()] + ["finite"] * math.isinf(value))
        raise ConfigurationError(f"{key}={value!r} is not allowed; it must be {allowed}")


def check_override_keys(overrides: Sequence[str]) -> None:
    """Check the keys of command-line overrides such as `trainer.epochs=5`, before Hydra composes anything.

    Raises:
        ConfigurationError: for a key that no setting has, naming the key, its value and the keys there are.
    """
    known = set(_keys(RunSettings)) | set(_CHOSEN_BY_NAME)
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~").split("@")[0]
        if key.replace("/", ".") in known or key.startswith(("hydra/", "hydra.", "activation.parameters.")):
            continue
        siblings = sorted(name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0])
        close = difflib.get_close_matches(key, known, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        allowed = ", ".join(siblings) or ", ".join(sorted(name for name in known if "." not in name))
        raise ConfigurationError(f"there is no setting {key!r} (given {override!r}).{hint} Allowed: {allowed}")


def _keys(schema: type, prefix: str = "") -> Iterator[str]:
    """Every key below a schema, groups included; of a group with several schemas, the keys of all."""
    for field in dataclasses.fields(schema):
        key = f"{prefix}{field.name}"
        yield key
        nested = [field.type] if dataclasses.is_dataclass(field.type) else _GROUPS.get(key, {}).values()
        for part in nested:
            yield from _keys(part, f"{key}.")
