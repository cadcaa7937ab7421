"""The handwritten digits that ship inside scikit-learn: 1,797 images, nothing to download."""

import numpy as np
import torch

from experiments.configuration import DigitsSettings
from experiments.dataset import ClassificationData, InMemory
from experiments.errors import ConfigurationError
from experiments.long_tail import exponential_counts, keep_counts, shot_facts, shot_groups
from experiments.splits import split_hash, stratified_group_split

BRIGHTEST = 16  # scikit-learn's digits count the ink of 4 × 4 blocks: integers from 0 to 16


def load_digits_data(settings: DigitsSettings) -> ClassificationData:
    """Load scikit-learn's digits, split with the share of each class kept; the training side then as asked.

    Args:
        settings: the split, and the imbalance of the training side.

    Returns:
        Inputs are the 8 × 8 pixels of each image, float32 [n, 64] in [0, 1].

    Raises:
        ConfigurationError: the split leaves a class out.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    count = len(digits.target)
    try:
        train, test = stratified_group_split(
            digits.target, np.arange(count), settings.test_fraction, settings.split_seed
        )
    except ValueError as error:
        raise ConfigurationError(f"data.test_fraction={settings.test_fraction} is not allowed; {error}") from error
    long_tailed = settings.imbalance > 1
    counts = np.bincount(digits.target[train]).tolist()
    if long_tailed:
        profile = exponential_counts(max(counts), len(counts), settings.imbalance)
        counts = [min(own, kept) for own, kept in zip(counts, profile, strict=True)]
        train = train[keep_counts(digits.target[train], counts, settings.tail_seed)]
    inputs = torch.from_numpy(digits.data / BRIGHTEST).float()
    targets = torch.from_numpy(digits.target).long()
    kept = np.sort(np.concatenate([train, test]))
    return ClassificationData(
        train=InMemory(inputs[train], targets[train]),
        test=InMemory(inputs[test], targets[test]),
        class_names=tuple(str(name) for name in digits.target_names),
        split_hash=split_hash(map(str, kept), np.searchsorted(kept, test)),
        facts={
            "records": count,
            "features": inputs.shape[1],
            **{f"train_{name}": own for name, own in zip(digits.target_names, counts, strict=True)},
            "train_size": len(train),
            "test_size": len(test),
            **(shot_facts(counts, settings.shots) if long_tailed else {}),
        },
        shots=shot_groups(counts, settings.shots) if long_tailed else None,
    )
