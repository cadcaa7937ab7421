"""A parallel corpus: pairs from files and from the hub, subwords learned from the training split, token numbers."""

import datasets
import pytest
import torch

from experiments.data.special_tokens import BEGIN, END, PADDING, UNKNOWN
from experiments.errors import DataError
from tests.experiments.data.generated import ENGLISH, GERMAN, write_pairs
from tests.experiments.data.support import loaded, module, ready, refusal, words


def test_sentences_are_numbered_and_come_back(pairs_folder):
    module_of_pairs = ready("pairs", pairs_folder)
    data = module_of_pairs.data
    assert module_of_pairs.network_arguments() == {"vocabulary_size": data.vocabulary_size} == {"vocabulary_size": 60}
    assert module_of_pairs.module_arguments() == {"data": data}
    sources, targets = data.train.read(torch.tensor([1, 0]), torch.zeros(2))
    assert data.text(words(sources[0])) == GERMAN[1]
    assert data.text(words(targets[1])) == ENGLISH[0]
    assert (targets[:, 0] == BEGIN).all()
    for tokens in (*sources, *targets):
        real = tokens[tokens != PADDING]
        assert real[-1] == END
        assert (real[:-1] != END).all()
        assert (tokens[len(real) :] == PADDING).all()
    assert data.dev.references == ENGLISH
    in_use = data.types_in_use()
    assert in_use[END]
    assert not in_use[[PADDING, BEGIN]].any()
    assert in_use.sum() == data.facts["target_types"] < 60


def test_a_byte_order_mark_and_ends_of_lines_of_windows_change_no_sentence(pairs_folder):
    plain = loaded("pairs", pairs_folder)
    for file in (pairs_folder / "pairs").iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    again = loaded("pairs", pairs_folder)
    assert (again.text_hash, again.content_hash) == (plain.text_hash, plain.content_hash)


def test_over_long_pairs_leave_training_alone_and_are_counted(pairs_folder):
    for split in ("train", "val"):
        write_pairs(pairs_folder, split, [*GERMAN, "ein " * 60], [*ENGLISH, "a"])
    data = loaded("pairs", pairs_folder)
    assert data.facts["train_skipped_over_long"] == 1
    assert data.facts["train_size"] == len(data.train.references) == len(GERMAN)
    assert len(data.dev.references) == len(GERMAN) + 1
    assert data.train.targets.lengths.max() <= 30 + 2
    assert "train: data.max_length=1 leaves no pair" in refusal("pairs", pairs_folder, DataError, max_length=1)


def test_subwords_are_learned_once_and_depend_on_the_training_split_alone(pairs_folder):
    first = loaded("pairs", pairs_folder)
    (model,) = (pairs_folder / "subwords").iterdir()
    stamp = model.stat().st_mtime_ns
    write_pairs(pairs_folder, "test", ["日本"], ["something else"])
    again = loaded("pairs", pairs_folder)
    assert model.stat().st_mtime_ns == stamp
    assert again.facts["subwords_hash"] == first.facts["subwords_hash"]
    assert UNKNOWN in again.test.sources.tokens  # letters that training never showed
    write_pairs(pairs_folder, "train", [*GERMAN, "noch ein Satz"], [*ENGLISH, "one more"])
    assert loaded("pairs", pairs_folder).facts["subwords_hash"] != first.facts["subwords_hash"]


def test_a_disk_that_cannot_be_written_to_is_no_error(pairs_folder, caplog):
    (pairs_folder / "subwords").write_text("a file in place of the folder")
    loaded("pairs", pairs_folder)
    assert "cannot be written" in caplog.text


def test_lines_of_a_users_file_become_source_tokens(pairs_folder, tmp_path):
    data = ready("pairs", pairs_folder)
    file = tmp_path / "mine.txt"
    file.write_text("\n".join([GERMAN[1], "", GERMAN[0], "  ", "Hund"]))
    inputs, names = data.encode(file)
    assert names == [GERMAN[1], GERMAN[0], "Hund"]
    expected, _ = data.data.train.read(torch.tensor([1, 0]), torch.zeros(2))
    assert torch.equal(inputs[:2], expected)
    assert data.data.text(words(inputs[2])) == "Hund"
    assert inputs[2][inputs[2] != PADDING][-1] == END


def test_pairs_with_an_empty_side_are_left_out_and_counted(pairs_folder):
    german = [*GERMAN[:4], "", "  ", "letzter \x85 Satz\u2028hier"]  # where str.splitlines would cut
    write_pairs(pairs_folder, "train", german, [*ENGLISH[:4], "empty", "blank", "last"])
    pairs, empty = module("pairs", pairs_folder).read("train")
    assert [source for source, _ in pairs] == [*GERMAN[:4], "letzter \x85 Satz\u2028hier"]
    assert pairs[-1][1] == "last"
    assert empty == 2


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("files", [None, "data/{split}-*.parquet"])
def test_the_hub_gives_the_same_pairs(files, nested, monkeypatch):
    asked = []
    pairs = [{"de": german, "en": english} for german, english in zip(GERMAN, ENGLISH, strict=True)]

    def load_dataset(*name, **options):
        asked.append((name, options))
        return datasets.Dataset.from_list([{"translation": pair} for pair in pairs] if nested else pairs)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert module("pairs", hub_files=files).read("dev") == (list(zip(GERMAN, ENGLISH, strict=True)), 0)
    if files is None:
        assert asked == [(("owner/pairs",), {"split": "validation"})]
    else:
        data_files = {"validation": "hf://datasets/owner/pairs/data/validation-*.parquet"}
        assert asked == [(("parquet",), {"split": "validation", "data_files": data_files})]
