"""`python -m sharmix.compare`: what it advises where the truth is known, its numbers, and the files that it reads."""

import re
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import sharmix
from sharmix import compare


def drawn(output, examples=3000, classes=12, scale=2.0):
    """Logits, and labels that are drawn from an output of them."""
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(examples, classes, generator=generator)
    return logits, torch.multinomial(output(logits), 1, generator=generator).squeeze(1)


def rows_of(text):
    """The cells of each output."""
    lines = [re.split(r"\s{2,}", line) for line in text.splitlines() if "±" in line and "examples" not in line]
    return {name: cells for name, *cells in lines}


def test_softmax_is_kept_where_labels_come_from_softmax():
    text = compare.compare(*drawn(lambda z: z.softmax(-1)))
    assert "Probabilities: keep softmax, T" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_sparse_output_is_better_where_labels_come_from_one():
    text = compare.compare(*drawn(lambda z: sharmix.sparsemax(z / 3), scale=4.0))
    assert re.search(r"Probabilities: SharMiX \(2, .*\) is better than softmax, T .* \(-0\.", " ".join(text.split()))
    assert float(rows_of(text)["sparsemax"][0].split()[0]) < float(rows_of(text)["1.5-entmax"][0].split()[0])


def test_the_advice_prefers_an_output_only_if_the_interval_of_the_difference_leaves_out_0():
    told = set()
    for output, examples, scale in (
        (lambda z: sharmix.sparsemax(z / 3), 200, 4.0),
        (lambda z: z.softmax(-1), 200, 4.0),
        (lambda z: z.softmax(-1), 60, 2.0),
        (lambda z: z.softmax(-1), 200, 2.0),
    ):
        text = " ".join(compare.compare(*drawn(output, examples, scale=scale)).split())
        found = r"(is .*?) (?:than .*)?\((.*) Brier \[(.*), (.*)\]\)"
        verdict, *numbers = re.search(found, text.partition("Probabilities:")[2]).groups()
        mean, low, high = map(float, numbers)
        assert (low + high) / 2 == pytest.approx(mean, abs=1.1e-3)
        assert verdict == ("is better" if high < 0 else "is behind" if low > 0 else "is not shown to be better")
        told.add((verdict, mean > 0))
    assert told == {
        ("is better", False), ("is not shown to be better", False), ("is not shown to be better", True),
        ("is behind", True),
    }  # fmt: skip


def test_the_scale_of_the_logits_changes_temperatures_alone():
    logits, labels = drawn(lambda z: z.softmax(-1))
    first, *others = [compare.compare(scale * logits, labels) for scale in (1.0, 1e-3, 1e3)]
    for other in others:
        assert rows_of(other).keys() - rows_of(first).keys() == {next(name for name in rows_of(other) if "T " in name)}
        assert [row[1:] for row in rows_of(other).values()] == [row[1:] for row in rows_of(first).values()]


def test_the_numbers_of_softmax_are_those_of_scipy_and_numpy():
    logits, labels = drawn(lambda z: (z / 1.7).softmax(-1))
    fitting, measuring = torch.randperm(3000, generator=torch.Generator().manual_seed(0)).tensor_split(2)

    def brier(z, y, temperature):
        return ((z / temperature).softmax(-1) - torch.eye(12)[y]).square().sum(-1).mean().item()

    z, y = (one[fitting][: compare.FITTED] for one in (logits, labels))
    best = minimize_scalar(lambda t: brier(z, y, t), bounds=(0.5, 5), method="bounded").x
    rows = rows_of(compare.compare(logits, labels))
    (name,) = (name for name in rows if name.startswith("softmax, T"))
    assert float(name.split()[-1]) == pytest.approx(best, rel=0.03)
    assert float(rows[name][0].split()[0]) == pytest.approx(brier(logits[measuring], labels[measuring], best), abs=2e-3)

    p, y = (logits / best).softmax(-1).double().numpy(), labels.numpy()
    ordered = -np.sort(-p, -1)
    before = np.take_along_axis(ordered.cumsum(-1) - ordered, (-p).argsort(-1).argsort(-1), -1)  # of each class
    for of, scores in (("k most probable", (-p).argsort(-1).argsort(-1)), ("LAC", 1 - p), ("APS", before)):
        own = np.sort(scores[fitting, y[fitting]])
        sizes = (scores[measuring] <= own[int(np.ceil(1501 * 0.9)) - 1]).sum(-1)
        mean, half = map(float, rows[f"softmax, {of}"][-2].split("±"))
        assert mean == pytest.approx(sizes.mean(), rel=0.02), of
        assert half == pytest.approx(1.96 * sizes.std(ddof=1) / len(sizes) ** 0.5, rel=0.02, abs=1e-3), of


def test_sets_cover_what_is_asked_for_and_no_more():
    logits, labels = drawn(lambda z: z.softmax(-1))
    for coverage in (0.8, 0.95):
        rows = rows_of(compare.compare(logits, labels, coverage))
        for name in ("softmax, k most probable", "softmax, LAC", "softmax, APS", "sparsemax", "1.5-entmax"):
            assert coverage - 0.03 <= float(rows[name][-1]) <= coverage + 0.06, name


def test_files_of_every_kind_give_the_same_and_others_are_refused(tmp_path, monkeypatch, capsys):
    logits, labels = drawn(lambda z: z.softmax(-1), examples=60)

    def printed(*files):
        monkeypatch.setattr(sys, "argv", ["compare", *map(str, files)])
        compare.main()
        return capsys.readouterr().out

    found = set()
    for kind in ("npy", "npz", "pt", "csv"):
        files = [tmp_path / f"{name}.{kind}" for name in ("logits", "labels")]
        for file, values in zip(files, (logits, labels), strict=True):
            if kind == "npy":
                np.save(file, values.numpy())
            elif kind == "npz":
                np.savez(file, values=values.numpy())
            elif kind == "pt":
                torch.save(values, file)
            else:
                np.savetxt(file, values.numpy(), delimiter=",", fmt="%.9g")
        found.add(printed(*files))
    assert len(found) == 1
    for name in ("labels.txt", "empty.npy", "empty.pt"):
        (tmp_path / name).touch()
    (tmp_path / "header.csv").write_text("a,b\n1,2\n")
    (tmp_path / "ragged.csv").write_text("1,2\n1\n")
    for file, message in (
        ("labels.txt", r"labels\.txt: files are"),
        ("none.npy", "No such file"),
        ("empty.npy", r"empty\.npy: cannot be read as \.npy"),
        ("empty.pt", r"empty\.pt: cannot be read as \.pt"),
        ("header.csv", r"header\.csv: cannot be read as \.csv .* no header"),
        ("ragged.csv", "rows of equal length"),
    ):
        with pytest.raises(SystemExit, match=message):
            printed(files[0], tmp_path / file)


def test_what_cannot_be_compared_is_named():
    logits, labels = drawn(lambda z: z.softmax(-1), examples=60)
    for error, message, *given in (
        (ValueError, "coverage=0.99 needs 31 examples in each half, and there are 30", logits, labels, 0.99),
        (ValueError, r"got \(60, 1\), .*; if one number decides", logits[:, :1], labels),
        (ValueError, "coverage=nan is not allowed", logits, labels, float("nan")),
        (ValueError, "not finite", logits.index_fill(0, torch.tensor(3), torch.nan), labels),
        (ValueError, "label 12", logits, labels.index_fill(0, torch.tensor(3), 12)),
        (ValueError, "label -100", logits, labels.index_fill(0, torch.tensor(3), -100)),
        (TypeError, "labels must be a tensor of class indices of an integer type", logits, labels.float()),
        (ValueError, r"must be a tensor \[examples, classes\], got \(60,\), .* got \(60, 12\)", labels, logits),
        (ValueError, r"labels\.argmax\(-1\)", logits, torch.eye(12)[labels]),
        (ValueError, "the logits are probabilities", logits.softmax(1), labels),
        (ValueError, "39 examples are too few; it takes 40 at least", logits[:39], labels[:39]),
        (ValueError, "0 examples are too few", logits[:0], labels[:0]),
    ):
        with pytest.raises(error, match=message):
            compare.compare(*given)
