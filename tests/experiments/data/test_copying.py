"""A synthetic language whose translation is the sentence itself."""

from pathlib import Path

import torch

from experiments.data.special_tokens import END, FIRST, PADDING
from tests.experiments.data.support import loaded, module, words


def test_copies_are_the_sentences_and_no_split_shares_one() -> None:
    copies = loaded("copy")
    seen: set[str] = set()
    for pairs, size in ((copies.train, 300), (copies.dev, 20), (copies.test, 20)):
        sources, targets = pairs.read(torch.arange(size), torch.zeros(size))
        for source, target, reference in zip(sources, targets, pairs.references, strict=True):
            assert words(source) == words(target)
            assert copies.text(words(target)) == reference
            assert 2 <= len(words(source)) <= 9
        assert not seen & set(pairs.references)
        assert len(set(pairs.references)) == size
        seen |= set(pairs.references)
    assert copies.vocabulary_size == FIRST + 6


def test_the_sentences_follow_the_data_seed_alone() -> None:
    first, again, other = (
        loaded("copy", data_seed=data_seed, seed=seed) for data_seed, seed in ((3, 1), (3, 2), (4, 1))
    )
    assert first.content_hash == again.content_hash != other.content_hash


def test_lines_of_a_users_file_become_tokens(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("w4 w5 w9\n\nw7\n")
    data = module("copy")
    data.setup()
    inputs, names = data.encode(tmp_path / "mine.txt")
    assert names == ["w4 w5 w9", "w7"]
    assert inputs.tolist() == [[4, 5, 9, END], [7, END, PADDING, PADDING]]
