"""The figures of sparsity, fit and learned orders on three training sets, by step and by fit."""

import pytest

from reporting.figures.class_frequencies import TABLES, draw_class_frequencies
from reporting.figures.sparsity_by_fit import draw_sparsity_by_fit
from reporting.kept_runs import KeptRuns
from tests.reporting.synthetic_records import make_record
from tests.reporting.synthetic_results import loaded, write_projects

OBJECTIVES = {"fenchel_young": 0.125, "brier": 0.25, "log": 0.5}  # the sparsity under each


def learned(experiment: str, steps: int) -> list[dict]:
    """A run under each objective, with so many steps an epoch."""
    settings = {"data": {"augmentation": "none"}, "q": 1.25, "r": 1.5}
    fit = {"accuracy": 0.9, "macro_f1": 0.01 * steps}
    records = [
        make_record("sharmix_learned", 21, experiment, {"sparsity": sparsity}, fit, objective=objective, **settings)
        for objective, sparsity in OBJECTIVES.items()
    ]
    for record in records:
        for row in record["curves"]:
            row["steps"] = steps * row["epoch"]
    return records


STEPS = {"cifar100": 50, "cifar100_subset": 10, "cifar100_lt": 20}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> KeptRuns:
    records = {name: learned(name, count) for name, count in STEPS.items()}
    return loaded(write_projects(tmp_path_factory.mktemp("sets"), **records), allow_missing_seeds=True)


def test_each_objective_has_sparsity_fit_q_and_r_by_step_on_each_set(found):
    panels = draw_class_frequencies(found).axes
    assert [axes.get_ylabel() for axes in panels] == 3 * ["sparsity on test", "accuracy on train", "q", "r"]
    for axes, sparsity in zip(panels[::4], OBJECTIVES.values(), strict=True):
        lines = {line.get_label(): line for line in axes.lines}
        assert list(lines) == list(TABLES)
        assert all(line.get_ydata() == pytest.approx([sparsity] * 3) for line in lines.values())
        assert list(lines["CIFAR-100"].get_xdata()) == [50, 100, 150]
        assert list(lines["control"].get_xdata()) == [10, 20, 30]
        assert list(lines["long-tailed"].get_xdata()) == [20, 40, 60]
        assert len({line.get_linestyle() for line in lines.values()}) == 3
    for axes, start in ((panels[2], 1.25), (panels[3], 1.5)):
        assert axes.lines[0].get_ydata() == pytest.approx([start + 0.01 * epoch for epoch in (1, 2, 3)])


def test_sparsity_stands_over_accuracy_and_over_macro_f1_on_train_for_each_objective(found):
    panels = draw_sparsity_by_fit(found).axes
    assert [axes.get_xlabel() for axes in panels] == 3 * ["accuracy on train"] + 3 * ["macro-F1 on train"]
    for axes, sparsity in zip(panels, 2 * [*OBJECTIVES.values()], strict=True):
        assert [line.get_label() for line in axes.lines] == list(TABLES)
        assert all(line.get_ydata() == pytest.approx([sparsity] * 3) for line in axes.lines)
    for axes in panels[:3]:
        assert [line.get_xdata()[-1] for line in axes.lines] == pytest.approx([0.9, 0.9, 0.9])
    for axes in panels[3:]:
        assert [line.get_xdata()[-1] for line in axes.lines] == pytest.approx([0.5, 0.1, 0.2])
