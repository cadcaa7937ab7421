"""The settings that a benchmark measures: an experiment's settings on random data."""

from experiments.settings import RunSettings

EXAMPLES = {"_target_": "benchmarks.synthetic.RandomExamples"}
COPIES = {"_target_": "experiments.data.copying.CopyDataModule", "train_size": 300, "evaluation_size": 300}
DATA = {  # random data with the shapes of an experiment's inputs
    "airline": {**EXAMPLES, "shape": [20], "classes": 3, "vocabulary": 4498},
    "cifar100": {**EXAMPLES, "shape": [3, 32, 32], "classes": 100},
    "imagenet_balanced": {**EXAMPLES, "shape": [3, 224, 224], "classes": 1000},
    "multi30k": {**COPIES, "words": 7996, "shortest": 14, "longest": 14},
}
BATCHES = ("seed", "batch_size", "evaluation_batch_size", "num_workers", "sampler", "train_metrics")


def on_random_data(settings: RunSettings, experiment: str, steps: int) -> RunSettings:
    """The same settings with random data; of random examples there are so many steps in an epoch of training."""
    data = {key: settings.data[key] for key in BATCHES if key in settings.data} | DATA[experiment]
    if "shape" in data:
        data["examples"] = steps * settings.data["batch_size"]
    return settings.model_copy(update={"data": data})
