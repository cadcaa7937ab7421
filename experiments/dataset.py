"""What every data set of the suite hands to training: tensors of a fixed split."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ClassificationData:
    """A classification data set, split and encoded.

    Attributes:
        train_inputs: one example a row, [n_train, ...].
        train_targets: class indices, int64 [n_train].
        test_inputs: one example a row, [n_test, ...].
        test_targets: class indices, int64 [n_test].
        class_names: the name of each class index.
        split_hash: hash of which example lies on which side, see `splits.split_hash`.
        facts: what a run's record tells of the data: sizes, counts per class, repeats.
    """

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    class_names: tuple[str, ...]
    split_hash: str
    facts: dict[str, int | float | str]
