"""
Prediction sets: coverage and size
==================================

The map's temperature decides how many classes it keeps. ``SupportPredictor`` fits one temperature on held-out examples,
such that the classes kept hold the right one as often as asked. Left: the share of test digits whose set holds the
right digit. Right: how many digits a set holds. The images are noisy, so that one digit is often not enough.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import sharmix

features, labels = load_digits(return_X_y=True)
noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
features = features + 10 * noise.numpy()
split = train_test_split(features, labels, test_size=0.7, random_state=0)
train, rest, train_labels, rest_labels = split
model = LogisticRegression(C=1e-4, max_iter=1000).fit(train, train_labels)
logits = torch.as_tensor(model.decision_function(rest))
rest_labels = torch.as_tensor(rest_labels)
held_out, test = slice(0, 600), slice(600, None)

asked = [0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99]
found, sizes = [], []
for coverage in asked:
    predictor = sharmix.conformal.SupportPredictor(q=1.5, r=1.5)
    predictor.calibrate(logits[held_out], rest_labels[held_out], coverage)
    sets = predictor.sets(logits[test])
    found.append(sets[range(len(sets)), rest_labels[test]].double().mean())
    sizes.append(sets.sum(-1).double().mean())

figure, (left, right) = plt.subplots(1, 2)
left.plot(asked, asked, color="0.7")
left.plot(asked, found, "o")
left.set(xlabel="coverage asked for", ylabel="share of sets with the right digit")
right.plot(asked, sizes, "o-")
right.set(xlabel="coverage asked for", ylabel="digits in a set, on average")
right.set_ylim(bottom=0)
plt.show()
