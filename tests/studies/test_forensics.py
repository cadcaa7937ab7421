"""The studies of the published numbers and of the printed formula's precision: the printed map, and the report."""

from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn

import sharmix
from experiments.data.examples import InMemory
from studies import forensics, mixed_precision
from studies.printed_map import PrintedSharMiX
from studies.study import load_study

STUDY = load_study("forensics")
Z = torch.tensor([[2.0, 0.5, -3.0], [0.1, 0.0, -0.1], [9.0, 1.0, 0.0]], dtype=torch.float64)


def test_the_printed_map_is_ours_up_to_the_clamp():
    ours, printed = sharmix.sharmix(Z, 1.5, 1.75), PrintedSharMiX(1.5, 1.75)(Z)
    torch.testing.assert_close(printed, ours, rtol=0, atol=1e-12)
    assert (ours == 0).any()
    assert (printed > 0).all()


def test_the_precision_alone_decides_whether_the_printed_formula_has_zeros():
    settings = load_study("mixed_precision").settings
    logits = 4 * torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    for q in settings["orders"]:
        readings = mixed_precision.readings(logits, q, settings)
        zeros = {name: int((p == 0).sum()) for name, p in readings.items()}
        assert zeros["float32"] == zeros["bfloat16"] == 0
        assert zeros["float16"] >= zeros[mixed_precision.OWN] > 100
        for p in readings.values():
            torch.testing.assert_close(p.float().sum(-1), torch.ones(50), atol=0.02, rtol=0)


@pytest.mark.parametrize(("r", "equal"), [(1.5, True), (1.75, False)])
def test_the_printed_jacobian_is_right_for_equal_orders_only(r, equal):
    gradients = []
    for jacobian in ("true", "printed"):
        z = Z[:2].clone().requires_grad_()
        PrintedSharMiX(1.5, r, jacobian=jacobian)(z)[:, 0].sum().backward()
        gradients.append(z.grad)
    assert torch.allclose(*gradients, atol=1e-6) == equal


def test_the_thresholds_of_the_package_give_another_map_for_unequal_orders_and_for_equal_ones():
    printed = PrintedSharMiX(1.5, 1.5, threshold="entmax")(Z)
    torch.testing.assert_close(printed.sum(-1), torch.ones(3, dtype=torch.float64))
    assert not torch.allclose(printed, sharmix.entmax(Z, alpha=1.5), atol=1e-2)


def test_a_measurement_by_hand(monkeypatch):
    """The run and its training are left out; the network gives its inputs as logits."""
    logits = torch.tensor([[3.0, 1.0, 0.0], [2.0, 1.5, 0.0], [0.0, 1.0, 2.0], [5.0, 0.0, 0.0]])
    split = InMemory(logits, torch.tensor([0, 1, 2, 2]))
    module = SimpleNamespace(network=nn.Identity(), activation=sharmix.Sparsemax())
    monkeypatch.setattr(forensics, "Run", lambda *_: SimpleNamespace(folder=None, train=lambda: None))
    monkeypatch.setattr(
        forensics, "load_run", lambda _: (module, SimpleNamespace(data=SimpleNamespace(train=split, test=split)))
    )
    task = {"hypothesis": "the suite's experiment", "rows": "sparsemax", "seed": 21}
    found = {row["metric"]: row["value"] for row in forensics.measure(task, STUDY.settings, None)}
    expected = {"accuracy": 2 / 4, "macro_f1": (2 / 4 + 0 + 2 / 3) / 3, "sparsity": (2 + 1 + 2 + 2) / 12}
    assert found == pytest.approx(expected)


def test_a_row_is_explained_within_two_deviations_of_all_three_metrics():
    rows = {name: STUDY.settings["rows"][name] for name in ("softmax", "1.5-entmax")}
    settings = STUDY.settings | {"rows": rows, "hypotheses": ["far", "near"]}
    means, deviations = forensics.published(settings)
    shift = {"near": 1.5, "far": 2.5}
    records = pd.DataFrame(
        {"hypothesis": hypothesis, "split": "test", "reading": forensics.OWN, "contender": row, "metric": metric}
        | {"value": means.loc[row, metric] + distance * deviations.loc[row, metric] + seed}
        for hypothesis, distance in shift.items()
        for seed in (-0.01, 0.01)
        for row in rows
        for metric in forensics.METRICS
    )
    tables = forensics.report(records, settings, STUDY.shown | {"splits": ["near"]}).tables
    counts, nearest, between_seeds, distances = tables.values()
    assert counts.to_dict("records") == [
        {"hypothesis": "near", "split": "test", "reading": forensics.OWN, "rows given": 2}
    ]
    assert between_seeds.to_dict("list") == {"row": [*rows], "near": ["0.0141"] * 2}  # 0.01 √2
    assert [*distances["hypothesis"]] == settings["hypotheses"]
    assert [*distances["rows given"]] == [0, 2]
    assert [*distances["softmax"]] == ["2.5", "1.5"]
    assert [*nearest["trained"]] == ["near", "near"]
