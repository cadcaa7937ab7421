"""The logits for the playground's prediction sets, from a small classifier on scikit-learn's digits."""

import base64

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

TRAINED_ON = 60  # digits: so few that the classifier errs, and sets of one class are not enough
CALIBRATION, TEST = 500, 500
PICTURES = 16  # number of test digits
UNIT = 1e-3  # unit to which logits are rounded
SEED = 21


def logits_of_digits() -> dict[str, object]:
    """Logits and labels of calibration and test digits, and pictures of the first test digits.

    A logistic regression learns from `TRAINED_ON` digits, drawn with a fixed seed; the others are calibration and test
    digits. Logits are rounded to `UNIT` and kept as 16-bit integers in base64.

    Returns:
        What the page reads as JSON.
    """
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(labels))
    train, calibration, test = np.split(order, np.cumsum([TRAINED_ON, CALIBRATION]))
    test = test[:TEST]
    model = LogisticRegression(max_iter=1000).fit(pixels[train] / 16, labels[train])

    def part(rows: NDArray[np.int64]) -> dict[str, object]:
        logits = model.decision_function(pixels[rows] / 16)
        integers = np.rint(logits / UNIT).astype("<i2")
        return {
            "logits": base64.b64encode(integers.tobytes()).decode(),
            "labels": "".join(map(str, labels[rows])),
        }

    pictures = np.minimum(pixels[test[:PICTURES]], 15).astype(int)  # 16 does not fit into one hexadecimal digit
    return {
        "unit": UNIT,
        "accuracy": model.score(pixels[test] / 16, labels[test]),
        "calibration": part(calibration),
        "test": part(test) | {"images": ["".join(f"{ink:x}" for ink in picture) for picture in pictures]},
    }
