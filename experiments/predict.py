"""Predict for a file of your own with a finished run.

python -m experiments.predict run=outputs/airline/softmax-0123456789ab/seed-21 input=tweets.txt
python -m experiments.predict run=FOLDER input=FILE data=FOLDER

`run` is the folder of the run, with its weights. `input` is a text file with one sentence a line, or an image; for
digits it is an image of 8 × 8 pixels, white on black, or a text file with 64 numbers from 0 to 16 a line. `data` is the
folder of the data sets, if it has moved. The command prints the most probable class first and leaves out every class
with probability exactly 0.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import experiments
from experiments.errors import ConfigurationError, DataError
from experiments.messages import one_message

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.data.base import SplitDataModule
    from experiments.modules.base import OutputModule


def main(arguments: Sequence[str]) -> None:
    """Print the predictions.

    Args:
        arguments: of the command line.

    Raises:
        UserError: an argument, the run or the input cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="python -m experiments.predict", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="run=FOLDER input=FILE [data=FOLDER]")
    given = dict(argument.partition("=")[::2] for argument in parser.parse_args(arguments).settings)
    if set(given) - {"data"} != {"run", "input"} or not all(given.values()):
        raise ConfigurationError(
            f"python -m experiments.predict {' '.join(arguments)}: give run=FOLDER input=FILE, and data=FOLDER where "
            "the data set has moved"
        )
    try:
        module, data = experiments.load_run(given["run"], given.get("data"))
    except DataError as error:
        raise DataError(f"{error}; for predictions, data=FOLDER names another folder") from error
    inputs, names = data.encode(Path(given["input"]))
    if not names:
        raise DataError(f"{given['input']}: holds nothing to predict")
    shown = (line for part in inputs.split(data.evaluation_batch_size) for line in predictions(module, data, part))
    for name, prediction in zip(names, shown, strict=True):
        print(f"{name}\n  {prediction}")


def predictions(module: "OutputModule", data: "SplitDataModule", inputs: "Tensor") -> list[str]:
    """A line for each input: its translation, or the probabilities of its classes."""
    import torch

    from experiments.modules.translator import Translator

    with torch.inference_mode():
        if isinstance(module, Translator):
            return module.translations(inputs)
        probabilities = module.probabilities(inputs)
    if not module.activation.normalised:
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    rows = (row.sort(descending=True, stable=True) for row in probabilities)
    names = data.data.class_names
    return [", ".join(_shares(values.tolist(), order.tolist(), names)) or "no class" for values, order in rows]


def _shares(values: Sequence[float], classes: Sequence[int], names: Sequence[str]) -> Iterator[str]:
    for value, number in zip(values, classes, strict=True):
        if value > 0:
            yield f"{names[number]} {100 * value:.1f} %" if value >= 0.0005 else f"{names[number]} < 0.1 %"


if __name__ == "__main__":
    with one_message():
        main(sys.argv[1:])
