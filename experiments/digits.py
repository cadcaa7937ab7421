"""The handwritten digits that ship inside scikit-learn: 1,797 images, nothing to download."""

import numpy as np
import torch

from experiments.configuration import DigitsSettings
from experiments.dataset import ClassificationData
from experiments.splits import split_hash, stratified_group_split

BRIGHTEST = 16  # scikit-learn's digits count the ink of 4 × 4 blocks: integers from 0 to 16


def load_digits_data(settings: DigitsSettings) -> ClassificationData:
    """Load scikit-learn's digits, split with the share of each class kept.

    Args:
        settings: the split.

    Returns:
        Inputs are the 8 × 8 pixels of each image, float32 [n, 64] in [0, 1].

    Raises:
        ValueError: for a setting out of range, or a split that leaves a class out.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    count = len(digits.target)
    train, test = stratified_group_split(digits.target, np.arange(count), settings.test_fraction, settings.split_seed)
    inputs = torch.from_numpy(digits.data / BRIGHTEST).float()
    targets = torch.from_numpy(digits.target).long()
    class_names = tuple(str(name) for name in digits.target_names)
    class_counts = np.bincount(digits.target).tolist()
    return ClassificationData(
        train_inputs=inputs[train],
        train_targets=targets[train],
        test_inputs=inputs[test],
        test_targets=targets[test],
        class_names=class_names,
        split_hash=split_hash(map(str, range(count)), test),
        facts={
            "records": count,
            **{f"records_{n}": c for n, c in zip(class_names, class_counts, strict=True)},
            "train_size": len(train),
            "test_size": len(test),
        },
    )
