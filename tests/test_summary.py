"""The printed summary of an experiment and its figure."""

import io
import re

import matplotlib
import pytest
from rich.console import Console

from reporting.palette import LOOKS, label, look
from reporting.records import RecordError
from reporting.summary import draw, group_runs, main, summarise
from tests.synthetic_records import finish_runs, make_record


@pytest.fixture
def records():
    return [
        make_record(
            name,
            seed,
            "digits",
            test={"accuracy": 0.9 + seed / 100, "sparsity": sparsity},
            **parameters,
        )
        for name, sparsity, parameters in (
            ("sharmix_learned", 0.2, {"q": 1.25, "r": 1.5}),
            ("softmax", 0.0, {}),
            ("entmax", 0.25, {"alpha": 1.5}),
        )
        for seed in (1, 2, 3)
    ]


def printed(records, outputs):
    finish_runs(outputs, records)
    console = Console(file=io.StringIO(), width=140)
    summarise("digits", outputs, console)
    return console.file.getvalue()


def test_the_table_holds_means_over_seeds_softmax_first(records, tmp_path):
    lines = printed(records, tmp_path).splitlines()
    rows = [re.split(r"\s{2,}", text.strip()) for text in lines if "±" in text]
    assert [row[0] for row in rows[1:]] == [
        "softmax",
        "entmax (α = 1.5)",
        "SharMiX learned (1.25, 1.50)",
    ]
    assert rows[3][1] == "0.920 ±0.010"
    assert rows[3][3] == "0.200 ±0.000"
    assert rows[3][-1] == "3"


def test_a_single_seed_shows_no_deviation(records, tmp_path):
    text = printed(records[:1], tmp_path)
    (row,) = (line for line in text.splitlines() if "SharMiX learned" in line)
    assert "0.910" in row
    assert "±" not in row


def test_the_figure_is_written_twice_and_repeatable(records, tmp_path):
    finish_runs(tmp_path, records)
    first = summarise("digits", tmp_path, Console(file=io.StringIO()))
    assert first == tmp_path / "digits" / "summary.png"
    assert first.read_bytes().startswith(b"\x89PNG")
    vector = first.with_suffix(".svg").read_text("utf-8")
    assert "SharMiX learned (1.25, 1.50)" in vector
    summarise("digits", tmp_path, Console(file=io.StringIO()))
    assert first.with_suffix(".svg").read_text("utf-8") == vector


def test_the_figure_draws_every_seed_and_the_mean_curve(records):
    trade_off, learning = draw("digits", group_runs(records)).axes
    points = [point for scatter in trade_off.collections for point in scatter.get_offsets().tolist()]
    assert [0.2, 0.93] in points
    curves = {curve.get_label(): curve.get_ydata().tolist() for curve in learning.lines}
    assert curves["softmax"] == pytest.approx([0.82, 0.87, 0.92 - 0.1 / 3])
    assert len(curves) == 3


def test_configurations_of_one_activation_differ_in_line_alone():
    starts = [make_record("sharmix_fixed", q=q, r=1.5) for q in (1.25, 1.5, 1.75)]
    styles = [group.style for group in group_runs(starts)]
    assert {(style["color"], style["marker"]) for style in styles} == {("#009E73", "D")}
    assert len({style["linestyle"] for style in styles}) == 3


def test_configurations_that_share_a_label_are_told_apart_by_run():
    first, second = make_record(seed=1), make_record(seed=1)
    second["run_id"] = "0therrun-and-more"
    second["config"]["optimizer"] = {"learning_rate": 0.1}
    labels = [group.label for group in group_runs([first, second])]
    assert sorted(labels) == ["softmax [0therrun]", "softmax [softmax]"]


def test_looks_differ_in_colour_and_in_marker():
    assert len({style.colour for style in LOOKS.values()}) == len(LOOKS)
    assert len({style.marker for style in LOOKS.values()}) == len(LOOKS)
    assert all(matplotlib.colors.is_color_like(style.colour) for style in LOOKS.values())


@pytest.mark.parametrize(
    ("activation", "text"),
    [
        ({"name": "softmax"}, "softmax"),
        ({"name": "sharmix_learned", "q": 1.25, "r": 1.5}, "SharMiX learned (1.25, 1.50)"),
        ({"name": "alpha_relu", "alpha": 1.5, "tau": 0.3}, "α-ReLU (α = 1.5, τ = 0.3)"),
        (
            {"name": "sharmix_learned", "q": 1.25, "r": 1.5, "objective": "brier"},
            "SharMiX learned (1.25, 1.50, brier)",
        ),
        (
            {"name": "sharmix_fixed", "q": 1.25, "r": 1.5, "temperature": 1.0},
            "SharMiX fixed (1.25, 1.50)",
        ),
        (
            {"name": "sharmix_fixed", "q": 1.25, "r": 1.5, "temperature": 0.5},
            "SharMiX fixed (1.25, 1.50, T = 0.5)",
        ),
        ({"name": "theirs.Own", "parameters": {"width": 2}}, "Own (width = 2)"),
    ],
)
def test_labels_say_what_was_configured(activation, text):
    assert label(activation) == text
    assert text.startswith(look(activation["name"]).label)


def test_the_command_prints_where_the_figure_is(records, tmp_path, capsys):
    finish_runs(tmp_path, records)
    main(["--experiment", "digits", "--outputs", str(tmp_path)])
    last = capsys.readouterr().out.splitlines()[-1]
    assert str(tmp_path / "digits" / "summary.png") in last
    with pytest.raises(SystemExit, match="no finished run of 'airline'"):
        main(["--experiment", "airline", "--outputs", str(tmp_path)])


def test_without_runs_there_is_one_clear_error(tmp_path):
    with pytest.raises(RecordError, match=r"python run\.py experiment=digits"):
        summarise("digits", tmp_path, Console(file=io.StringIO()))
