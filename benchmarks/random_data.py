"""The settings of an experiment with random data of the same shapes instead of its data set."""

import torch

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.settings import AtLeastOne, RunSettings, validated_class

EXAMPLES = {"_target_": "benchmarks.random_data.RandomExamples"}
COPIES = {"_target_": "experiments.data.copying.CopyDataModule", "train_size": 300, "evaluation_size": 300}
DATA = {
    "airline": {**EXAMPLES, "shape": [20], "classes": 3, "vocabulary": 4498},
    "cifar100": {**EXAMPLES, "shape": [3, 32, 32], "classes": 100},
    "imagenet_balanced": {**EXAMPLES, "shape": [3, 224, 224], "classes": 1000},
    "multi30k": {**COPIES, "words": 7996, "shortest": 14, "longest": 14},
}
BATCHES = ("seed", "batch_size", "evaluation_batch_size", "num_workers", "sampler", "train_metrics")


def on_random_data(settings: RunSettings, experiment: str, steps: int) -> RunSettings:
    """The same settings with random data. If the data are random examples, an epoch has `steps` steps."""
    data = {key: settings.data[key] for key in BATCHES if key in settings.data} | DATA[experiment]
    if "shape" in data:
        data["examples"] = steps * settings.data["batch_size"]
    return settings.model_copy(update={"data": data})


@validated_class
class RandomExamples(ClassificationDataModule):
    """Random tokens of a vocabulary, or where there is none random images, in every split.

    Args:
        examples: number of examples.
        shape: shape of an example.
        classes: number of classes.
        vocabulary: number of tokens; None for images.
    """

    examples: AtLeastOne
    shape: list[AtLeastOne]
    classes: AtLeastOne
    vocabulary: AtLeastOne | None = None

    def load(self) -> ClassificationData:
        generator = torch.Generator().manual_seed(0)
        dtype = torch.uint8 if self.vocabulary is None else torch.int64
        size = (self.examples, *self.shape)
        inputs = torch.randint(1, self.vocabulary or 256, size, dtype=dtype, generator=generator)
        side = InMemory(inputs, torch.randint(self.classes, (self.examples,), generator=generator))
        sizes = {} if self.vocabulary is None else {"vocabulary_size": self.vocabulary}
        return ClassificationData(side, side, tuple(map(str, range(self.classes))), sizes=sizes)
