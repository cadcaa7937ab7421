"""What a configuration trains, on what: classification or translation."""

import functools
from collections.abc import Collection
from pathlib import Path

import torch

import sharmix
from experiments import batches, token_batches
from experiments.airline import load_airline
from experiments.batches import Division, Draws, TrainingDraws, loader
from experiments.cifar100 import load_cifar100
from experiments.classifier import Classifier
from experiments.configuration import (
    ActivationSettings,
    AirlineSettings,
    Cifar100Settings,
    CopySettings,
    DataSettings,
    DigitsSettings,
    ImagenetSettings,
    RunSettings,
    TransformerSettings,
)
from experiments.copying import load_copy
from experiments.corpora import load_corpus
from experiments.dataset import Batch, ClassificationData, Examples
from experiments.digits import load_digits_data
from experiments.errors import ConfigurationError
from experiments.fitting import Feed
from experiments.imagenet import load_imagenet
from experiments.learner import Learner
from experiments.models import build_model, build_transformer
from experiments.sentence_pairs import TranslationData
from experiments.token_batches import TokenDraws
from experiments.translator import Translator

Data = ClassificationData | TranslationData


@functools.cache  # the jobs of a sweep that share a process share the data
def load_data(settings: DataSettings, folder: str | None) -> Data:
    """The data a configuration asks for, from `folder` or its public home.

    Raises:
        ConfigurationError, DataError: as the data set's own loader.
    """
    path = Path(folder) if folder else None
    if isinstance(settings, AirlineSettings):
        return load_airline(settings, path)
    if isinstance(settings, Cifar100Settings):
        return load_cifar100(settings, path)
    if isinstance(settings, DigitsSettings):
        return load_digits_data(settings)
    if isinstance(settings, ImagenetSettings):
        return load_imagenet(settings, path)
    return load_copy(settings) if isinstance(settings, CopySettings) else load_corpus(settings, path)


def build_activation(settings: ActivationSettings, group: str = "activation") -> sharmix.Activation:
    """The activation a configuration asks for, in the group of that name.

    Raises:
        ConfigurationError: it does not exist or does not allow its settings.
    """
    try:
        return sharmix.build_activation(settings.name, **settings.arguments())
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigurationError(f"{group}={settings.name}: {error}") from error


def build_learner(settings: RunSettings, data: Data, activation: sharmix.Activation) -> Learner:
    """The network a configuration asks for, under its activation.

    Raises:
        ConfigurationError: the network is not to be had.
    """
    trainer, model = settings.trainer, settings.model
    fused = trainer.precision != "16-mixed"
    if isinstance(data, TranslationData):
        assert isinstance(model, TransformerSettings)
        transformer = build_transformer(model, data.vocabulary_size)
        return Translator(transformer, activation, settings.optimizer, fused, trainer.label_smoothing, data, model.beam)
    network = build_model(model, data)
    if trainer.channels_last:
        network.to(memory_format=torch.channels_last)
    return Classifier(
        network,
        activation,
        settings.optimizer,
        fused,
        trainer.label_smoothing,
        classes=len(data.class_names),
        augment=data.augment,
        shots=data.shots,
        running=trainer.train_metrics == "running",
    )


def build_feed(settings: RunSettings, data: Data, processes: int, process: int, pin_memory: bool) -> Feed:
    """The batches that one of the processes trains on and measures.

    Args:
        settings: how they are drawn.
        data: from what.
        processes: that train together.
        process: which of them this is.
        pin_memory: as for `loader`.
    """
    trainer = settings.trainer
    division = Division(processes, process, trainer.passes_per_step)

    def batches_of(examples: Examples, draws: Draws) -> Collection[Batch]:
        return loader(examples, draws, settings.workers, pin_memory)

    if isinstance(data, TranslationData):
        token_draws = TokenDraws(data.train, trainer.batch_size, settings.seed, trainer.steps_per_epoch, division)
        pairs = {"dev": data.dev, "test": data.test}
        measuring = {
            split: batches_of(own, token_batches.measuring_draws(own, trainer.evaluation_batch_size, division))
            for split, own in pairs.items()
        }
        return Feed(token_draws, batches_of(data.train, token_draws), measuring)
    draws = TrainingDraws(
        data.train.targets.numpy(),
        trainer.sampler,
        trainer.batch_size,
        settings.seed,
        trainer.epochs,
        trainer.steps_per_epoch,
        division,
    )
    examples = {"train": data.train, "test": data.test} if trainer.train_metrics == "evaluated" else {"test": data.test}
    measuring = {
        split: batches_of(own, batches.measuring_draws(len(own.targets), trainer.evaluation_batch_size, division))
        for split, own in examples.items()
    }
    return Feed(draws, batches_of(data.train, draws), measuring)
