"""Predictions of finished runs for files of a person's own."""

import contextlib
import io
import os
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import experiments
from experiments import building
from experiments.errors import ConfigurationError, DataError, UserError
from experiments.identity import ROOT
from experiments.predict import main
from tests.end_to_end.runner import records, succeed
from tests.experiments.data.generated import tweets, write_tweets

DIGITS = load_digits()


def finished(folder, *overrides):
    """The folder of a run that has just finished."""
    succeed(folder / "outputs", *overrides)
    (record,) = records(folder)
    return record.parent


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    """A run on digits whose probabilities are often 0."""
    return finished(tmp_path_factory.mktemp("sparse"), "activation=sparsemax", "trainer.max_epochs=6")


def predicted(run, file, *more):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([f"run={run}", f"input={file}", *more])
    return printed.getvalue().splitlines()


def test_classes_are_printed_with_the_most_probable_first_and_without_zeros(sparse, tmp_path):
    file = tmp_path / "digits.csv"
    np.savetxt(file, DIGITS.data[:40], fmt="%d", delimiter=", ")
    lines = predicted(sparse, file)
    assert lines[::2] == [f"line {number}" for number in range(1, 41)]

    module, data = experiments.load_run(sparse)
    with torch.inference_mode():
        probabilities = module.probabilities(torch.from_numpy(DIGITS.data[:40] / 16).float())
    assert (probabilities == 0).any()
    for line, row in zip(lines[1::2], probabilities, strict=True):
        shown = re.findall(r"(\d) (?:(\d+\.\d) %|< 0\.1 %)(?:, |$)", line)
        assert len(shown) == (row > 0).sum()
        assert [int(name) for name, _ in shown] == row.argsort(descending=True, stable=True)[: len(shown)].tolist()
        for name, percent in shown:
            assert float(percent or 0) == pytest.approx(100 * row[int(name)].item(), abs=0.051)
    assert data.data.class_names == tuple("0123456789")


def test_a_text_with_spaces_and_an_image_are_the_same_digit_in_batches_of_any_size(sparse, tmp_path, monkeypatch):
    digit = np.where(DIGITS.images[7] > 8, 16, 0)
    np.savetxt(tmp_path / "digits.txt", np.stack([digit.flatten()] * 3), fmt="%.1f")
    Image.fromarray((digit // 16 * 255).astype(np.uint8)).save(tmp_path / "digit.png")
    name, image = predicted(sparse, tmp_path / "digit.png")
    assert name == "image"
    assert predicted(sparse, tmp_path / "digits.txt")[1::2] == [image] * 3
    module, data = experiments.load_run(sparse)
    data.evaluation_batch_size = 2
    monkeypatch.setattr(experiments, "load_run", lambda *arguments: (module, data), raising=False)
    assert predicted(sparse, tmp_path / "digits.txt")[1::2] == [image] * 3


@pytest.mark.medium
def test_sentences_are_translated(tmp_path):
    run = finished(tmp_path, "experiment=copy", "data.train_size=600", "data.evaluation_size=4", "trainer.max_epochs=1")
    (tmp_path / "words.txt").write_text("w4 w5 w6\n\nw19 w7\n")
    first, translation, second, _ = predicted(run, tmp_path / "words.txt")
    assert (first, second) == ("w4 w5 w6", "w19 w7")
    assert re.fullmatch(r"  (w\d+ ?)*", translation)
    (tmp_path / "words.txt").write_text("w4 hello\n")
    with pytest.raises(DataError, match=r"words.txt: cannot be read .*the word 'hello' is not one of w4 to w19"):
        main([f"run={run}", f"input={tmp_path / 'words.txt'}"])


@pytest.mark.medium
def test_the_data_set_may_have_moved(tmp_path):
    write_tweets(tmp_path / "before", tweets())
    airline = ("experiment=airline", f"paths.data={tmp_path / 'before'}", "data.expected_examples=null")
    run = finished(tmp_path, *airline, "trainer.max_epochs=1")
    (tmp_path / "tweets.txt").write_text("Great crew!\nlate again\n")
    before = predicted(run, tmp_path / "tweets.txt")
    assert before[::2] == ["Great crew!", "late again"]
    assert all(line.count(" %") == 3 for line in before[1::2])

    (tmp_path / "before").rename(tmp_path / "after")
    building._loaded.clear()
    with pytest.raises(DataError, match=r"Tweets.csv: .*No such file or directory"):
        main([f"run={run}", f"input={tmp_path / 'tweets.txt'}"])
    assert predicted(run, tmp_path / "tweets.txt", f"data={tmp_path / 'after'}") == before


@pytest.mark.parametrize("arguments", [[], ["run=a"], ["run=a", "input=b", "dta=c"], ["a", "b"]])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ConfigurationError, match="give run=FOLDER input=FILE"):
        main(arguments)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds nothing to predict"),
        (b"1 2 3\n", "line 1: 64 numbers from 0 to 16 are needed"),
        (b"\n" + b"17 " * 64, "line 2: 64 numbers from 0 to 16 are needed"),
        (b"one " * 64, "could not convert string to float: 'one'"),
    ],
)
def test_a_file_that_is_no_digits_is_refused(sparse, tmp_path, content, reason):
    (tmp_path / "digits").write_bytes(content)
    with pytest.raises(DataError, match=f"^{tmp_path}/digits: .*{reason}"):
        main([f"run={sparse}", f"input={tmp_path / 'digits'}"])


def test_an_image_of_another_size_a_missing_file_and_a_folder_that_is_not_read_are_refused(sparse, tmp_path):
    def refused(file, *more):
        with pytest.raises(UserError) as caught:
            main([f"run={sparse}", f"input={file}", *more])
        return str(caught.value)

    Image.new("L", (28, 28)).save(tmp_path / "digit.png")
    assert "the image has 28 × 28 pixels, 8 × 8 are needed" in refused(tmp_path / "digit.png")
    assert "gone: cannot be read as input of" in refused(tmp_path / "gone")
    assert "there is no setting data.folder" in refused(tmp_path / "gone", "data=elsewhere")


@pytest.mark.medium
def test_the_command_helps_and_says_in_one_line_what_is_wrong_and_the_package_is_light(tmp_path):
    command = [sys.executable, "-m", "experiments.predict"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    start = partial(subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    done = start([*command, "run=here", "input=there"])
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", "here: there is no record.json; give the folder of a finished run\n")
    done = start([*command, "--help"])
    assert done.returncode == 0
    assert "python -m experiments.predict run=FOLDER input=FILE data=FOLDER" in done.stdout
    light = "import experiments, experiments.predict, experiments.repeat, sys; assert 'torch' not in sys.modules"
    assert start([sys.executable, "-c", light]).returncode == 0
