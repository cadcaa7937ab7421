"""The printed summary of an experiment and its figure."""

import io
import re

import matplotlib
import numpy as np
import pytest
from rich.console import Console

from reporting.groups import label_runs, style_groups
from reporting.palette import LOOKS, label, look
from reporting.records import RecordError
from reporting.summary import draw, main, summarise, tables
from tests.reporting.synthetic_records import finish_runs, make_record

SHOTS = {"shot_rule": "many > 100, few < 20 training examples"}


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


@pytest.fixture
def long_tailed():
    shots = {"many_accuracy": 0.9, "medium_accuracy": 0.7, "few_accuracy": 0.4}
    return [make_record("softmax", seed, "digits_lt", {"accuracy": 0.8, **shots}, facts=SHOTS) for seed in (1, 2)]


def grouped(records):
    (groups,) = style_groups([label_runs(records)])
    return groups


def printed(*experiments, width=140):
    console = Console(file=io.StringIO(), width=width)
    for records in experiments:
        for table in tables(records[0]["experiment"], grouped(records), width):
            console.print(table)
    return console.file.getvalue()


def rows_of(text):
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if re.search(r"\d\.\d{3}", line)]


def test_the_table_holds_means_over_seeds_softmax_first(records):
    lines = printed(records).splitlines()
    rows = [re.split(r"\s{2,}", text.strip()) for text in lines if "±" in text]
    assert [row[0] for row in rows[1:]] == [
        "softmax",
        "entmax (α = 1.5)",
        "SharMiX learned (1.25, 1.50)",
    ]
    assert rows[3][1] == "0.920 ±0.010"
    assert rows[3][3] == "0.200 ±0.000"
    assert rows[3][-1] == "3"


def test_a_single_seed_shows_no_deviation(records):
    text = printed(records[:1])
    (row,) = (line for line in text.splitlines() if "SharMiX learned" in line)
    assert "0.910" in row
    assert "±" not in row


def test_a_long_tail_has_a_table_of_its_groups_and_says_their_rule(records, long_tailed):
    assert "Many" not in printed(records)
    text = printed(long_tailed)
    groups = text[text.index("digits_lt, test accuracy") :]
    assert SHOTS["shot_rule"] in " ".join(groups.split())
    assert "activation All Many Medium Few seeds" in " ".join(groups.split())
    assert rows_of(groups) == [["softmax", "0.800 ±0.000", "0.900 ±0.000", "0.700 ±0.000", "0.400 ±0.000", "2"]]


def test_a_narrow_terminal_breaks_no_number(records, long_tailed):
    text = printed(records, long_tailed, width=80)
    assert max(map(len, text.splitlines())) <= 80
    (row,) = (row for row in rows_of(text) if row[0].startswith("SharMiX learned") and row[-1] == "3")
    assert row[1:] == ["0.920", "0.700", "0.200", "3.000", "1.000", "0.300", "3"]
    assert text.count("±0.010") == 3


def test_the_figure_is_written_twice_and_repeatable(records, long_tailed, tmp_path):
    finish_runs(tmp_path, [*records, *long_tailed])
    experiments = ["digits", "digits_lt"]
    first = summarise(experiments, tmp_path, Console(file=io.StringIO()))
    assert first == tmp_path / "summary" / "digits-digits_lt.png"
    assert first.read_bytes().startswith(b"\x89PNG")
    vector = first.with_suffix(".svg").read_text("utf-8")
    assert "SharMiX learned (1.25, 1.50)" in vector
    summarise(experiments, tmp_path, Console(file=io.StringIO()))
    assert first.with_suffix(".svg").read_text("utf-8") == vector


def test_the_figure_draws_every_seed_the_mean_curve_and_the_paths(records):
    trade_off, learning, plane = draw({"digits": grouped(records)}).axes
    points = [point for scatter in trade_off.collections for point in np.asarray(scatter.get_offsets()).tolist()]
    assert [0.2, 0.93] in points
    curves = {curve.get_label(): curve.get_ydata().tolist() for curve in learning.lines}
    assert curves["softmax"] == pytest.approx([0.92 - 0.2 / 3, 0.92 - 0.05 / 3, 0.92])
    assert len(curves) == 3
    path, *others = [line for line in plane.lines if line.get_label() == "SharMiX learned: Fenchel–Young"]
    assert path.get_xdata().tolist() == pytest.approx([1.25, 1.26, 1.27, 1.28])
    assert path.get_ydata().tolist() == pytest.approx([1.5, 1.51, 1.52, 1.53])
    assert len(others) == 2  # a path a seed


def test_configurations_of_one_activation_differ_in_line_and_filling_alone():
    starts = [make_record("sharmix_fixed", q=q, r=1.5) for q in (1.25, 1.5, 1.75)]
    styles = [group.style for group in grouped(starts)]
    assert {(style["color"], style["marker"]) for style in styles} == {("#009E73", "D")}
    assert len({style["linestyle"] for style in styles}) == 3
    assert len({style["fillstyle"] for style in styles}) == 3


def test_a_configuration_looks_the_same_in_every_panel():
    one = [make_record("sharmix_fixed", q=1.5, r=1.5)]
    other = [make_record("sharmix_fixed", q=1.25, r=1.5), *one]
    first, second = style_groups([label_runs(one), label_runs(other)])
    assert first[0].style == second[1].style != second[0].style


def test_configurations_that_share_a_label_are_told_apart_by_run():
    first, second = make_record(seed=1), make_record(seed=1)
    second["run_id"] = "0therrun-and-more"
    second["config"]["optimizer"] = {"learning_rate": 0.1}
    labels = [group.label for group in grouped([first, second])]
    assert sorted(labels) == ["softmax [0therrun]", "softmax [softmax]"]


def test_a_label_tells_the_augmentation_that_the_paper_does_not_have():
    assert label({"name": "softmax"}, {"augmentation": "standard"}) == "softmax (standard augmentation)"
    assert label({"name": "softmax"}, {"augmentation": "none"}) == "softmax"


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


def test_the_command_prints_every_table_and_where_the_figure_is(records, long_tailed, tmp_path, capsys):
    finish_runs(tmp_path, [*records, *long_tailed])
    main(["--experiment", "digits", "digits_lt", "--outputs", str(tmp_path)])
    out = capsys.readouterr().out
    titles = [out.index(title) for title in ("digits, test split", "digits_lt, test split", "digits_lt, test accuracy")]
    assert titles == sorted(titles)
    assert str(tmp_path / "summary" / "digits-digits_lt.png") in out.splitlines()[-1]
    with pytest.raises(SystemExit, match="no finished run of 'airline'"):
        main(["--experiment", "digits", "airline", "--outputs", str(tmp_path)])


def test_without_runs_there_is_one_clear_error(tmp_path):
    with pytest.raises(RecordError, match=r"python run\.py experiment=digits"):
        summarise(["digits"], tmp_path, Console(file=io.StringIO()))
