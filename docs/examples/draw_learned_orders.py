"""
Paths of learned orders in training
===================================

Paths of learned (q, r) while a small network trains on scikit-learn's digits, from three starts. Under the
Fenchel–Young loss of class labels both orders rise, whatever the data. Under the Brier score the data decide:
here q falls at first.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import sharmix

features, labels = (torch.as_tensor(values) for values in load_digits(return_X_y=True))
features = features.float() / 16
STARTS = [(1.25, 1.5), (1.5, 1.75), (1.75, 1.5)]
OBJECTIVES = {"fenchel_young": "Fenchel–Young loss", "brier": "Brier score"}


def path(q, r, objective):
    """(q, r) after each of 120 steps."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    activation = sharmix.SharMiX(q, r, learned=True, objective=objective)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    optimizer.add_param_group({"params": activation.parameters(), "lr": 5e-3})
    points = []
    for _ in range(120):
        points.append((activation.q.item(), activation.r.item()))
        optimizer.zero_grad()
        activation.loss(network(features), labels).backward()
        optimizer.step()
    return torch.tensor(points).T


for colour, (objective, name) in enumerate(OBJECTIVES.items()):
    for start in STARTS:
        q, r = path(*start, objective)
        plt.plot(q, r, color=f"C{colour}", label=name if start == STARTS[0] else None)
        plt.plot(q[-1], r[-1], "o", color=f"C{colour}")
starts = zip(*STARTS, strict=True)
plt.plot(*starts, "o", color="white", markeredgecolor="black", label="start")
plt.xlabel("q")
plt.ylabel("r")
plt.legend()
plt.show()
