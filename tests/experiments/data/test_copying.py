"""A synthetic language whose translation is the sentence itself."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.data.copying import CopyDataModule
from experiments.data.special_tokens import END, FIRST, PADDING
from experiments.errors import ConfigurationError
from tests.experiments.data.support import BATCHES, COPIES, words


def module(**changes: Any) -> CopyDataModule:
    data = CopyDataModule(**COPIES | BATCHES | changes)
    data.setup()
    return data


def test_copies_are_the_sentences_and_no_split_shares_one() -> None:
    copies = module().data
    seen: set[str] = set()
    for pairs, size in ((copies.train, 300), (copies.dev, 20), (copies.test, 20)):
        sources, targets, _ = pairs.read(torch.arange(size), torch.zeros(size))
        for source, target, reference in zip(sources, targets, pairs.references, strict=True):
            assert words(source) == words(target)
            assert copies.text(words(target)) == reference
            assert 2 <= len(words(source)) <= 9
        assert not seen & set(pairs.references)
        assert len(set(pairs.references)) == size
        seen |= set(pairs.references)
    assert copies.vocabulary_size == FIRST + 6


def test_the_sentences_follow_the_data_seed_alone() -> None:
    first, again, other = (module(data_seed=data_seed, seed=seed).data for data_seed, seed in ((3, 1), (3, 2), (4, 1)))
    assert first.content_hash == again.content_hash != other.content_hash
    # The sentences that records were made with.
    assert first.content_hash == "0bb93e9dd8d3e8e4f12e5106574c9480be5e7ebf849c80aad9895aa1bb88fb73"


def test_impossible_sentences_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"data\.shortest=3 is not allowed.*data\.longest=2"):
        module(shortest=3, longest=2)
    with pytest.raises(ConfigurationError, match=r"ask for 1040 different.*there are 36, of which at most half"):
        module(shortest=2, longest=2, train_size=1000)


def test_lines_of_a_users_file_become_tokens(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("w4 w5 w9\n\nw7\n")
    inputs, names = module().encode(tmp_path / "mine.txt")
    assert names == ["w4 w5 w9", "w7"]
    assert inputs.tolist() == [[4, 5, 9, END], [7, END, PADDING, PADDING]]


def test_what_a_shell_has_opened_is_read_to_its_end() -> None:
    data = module()
    reading, writing = os.pipe()  # as of <(command)
    os.write(writing, b"w4 w5 w9\n")
    os.close(writing)
    assert data.encode(Path(f"/dev/fd/{reading}"))[1] == ["w4 w5 w9"]
    os.close(reading)
