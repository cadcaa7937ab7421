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


def test_a_sparse_output_is_advised_where_labels_come_from_one():
    text = compare.compare(*drawn(lambda z: sharmix.sparsemax(z / 3), scale=4.0))
    assert re.search(r"Probabilities: use (sparsemax|SharMiX \(.*\)),\s-0\.", text)
    assert float(rows_of(text)["sparsemax"][0].split()[0]) < float(rows_of(text)["1.5-entmax"][0].split()[0])


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
    z, y = logits[measuring], labels[measuring]
    assert float(rows[name][0].split()[0]) == pytest.approx(brier(z, y, best), abs=2e-3)
    ranks = (logits[fitting].argsort(-1, descending=True) == labels[fitting, None]).nonzero()[:, 1].sort().values
    most = ranks[int(np.ceil(1501 * 0.9)) - 1].item() + 1
    assert rows["softmax, k largest"][-2] == (f"{most:.3f} ±0.000" if most < 10 else f"{most:.1f} ±0.0")


def test_sets_cover_what_is_asked_for():
    logits, labels = drawn(lambda z: z.softmax(-1))
    for coverage in (0.8, 0.95):
        rows = rows_of(compare.compare(logits, labels, coverage))
        for name in ("softmax, k largest", "softmax, LAC", "softmax, APS", "sparsemax", "1.5-entmax"):
            assert float(rows[name][-1]) >= coverage - 0.03, name


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
    (tmp_path / "labels.txt").touch()
    for file, message in (("labels.txt", r"labels\.txt: files are"), ("none.npy", "No such file")):
        with pytest.raises(SystemExit, match=message):
            printed(files[0], tmp_path / file)
    with pytest.raises(SystemExit, match="of an integer type"):
        printed(files[1], files[0])


def test_what_cannot_be_compared_is_named():
    logits, labels = drawn(lambda z: z.softmax(-1), examples=60)
    with pytest.raises(ValueError, match="19 examples are too few, they must be at least 20"):
        compare.compare(logits[:19], labels[:19])
    with pytest.raises(ValueError, match="not finite"):
        compare.compare(logits.index_fill(0, torch.tensor(3), torch.nan), labels)
    with pytest.raises(ValueError, match="label 12 is out of range for 12 classes"):
        compare.compare(logits, labels.index_fill(0, torch.tensor(3), 12))
    with pytest.raises(TypeError, match=r"integer type, got torch\.float32"):
        compare.compare(logits, labels.float())
