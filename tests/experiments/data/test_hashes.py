"""The hash of the contents: whatever changes in a data set changes it, and nothing else does."""

import pytest
import torch
from torch import Tensor

from experiments.data.examples import InMemory
from tests.experiments.data.generated import ENGLISH, GERMAN, WNIDS, tweets, write_pairs, write_tweets
from tests.experiments.data.support import loaded, small, small_data

# The hashes that records were made with.
RECORDED = {
    "airline": "90ab743748d0a1901becc3e3c9b92a58a03bd0fb5e2faab0a3b00c374bfb84bc",
    "cifar100": "a7bdba689b40174af7c585a496b3cfd4bba3673a6b41d55a689fe4261410adfe",
    "digits": "c5f65ed18fb0e15403678c94de526f28a579e194a1588b39bdeabeacdce9742f",
    "copy": "0bb93e9dd8d3e8e4f12e5106574c9480be5e7ebf849c80aad9895aa1bb88fb73",
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_hash_of_earlier_records(name, folder_of):
    folder = folder_of(name) if name != "copy" else None
    assert loaded(name, folder).content_hash == loaded(name, folder, seed=5).content_hash == RECORDED[name]


def hash_of(**changes):
    return small(small_data(**changes)).data.content_hash


def test_every_input_target_name_and_type_counts():
    inputs, targets = torch.arange(12).reshape(6, 2), torch.arange(6) % 3
    brighter, exchanged = inputs.clone(), targets.clone()
    brighter[5, 1] += 1
    exchanged[:2] = exchanged[:2].flip(0)
    kinds = [
        *((part, targets) for part in (inputs, inputs.flip(0), inputs.int(), inputs[:, :, None], brighter)),
        (inputs, exchanged),
        (inputs[:5], targets[:5]),
    ]
    sides = [InMemory(*kind) for kind in kinds]
    found = [hash_of(**{side: examples}) for side in ("train", "test") for examples in sides]
    found += [hash_of(), hash_of(class_names=("a", "b", "c"))]
    assert len({*found}) == len(found)
    assert found[-2] == hash_of()
    assert all(len(value) == 64 for value in found)


def photo(home, side, number, image=0):
    return home / "photos" / side / WNIDS[number] / f"{WNIDS[number]}_{image}.JPEG"


@pytest.mark.parametrize(
    ("name", "spoils"),
    [
        (
            "pairs",
            [
                lambda home: write_pairs(home, "test", GERMAN, ENGLISH[::-1]),
                # Letters that training never showed.
                lambda home: write_pairs(home, "test", ["日本", *GERMAN[1:]], ENGLISH),
                lambda home: write_pairs(home, "val", GERMAN[:-1], ENGLISH[:-1]),
            ],
        ),
        (
            "imagenet",
            [
                lambda home: photo(home, "train", 2, 2).rename(photo(home, "train", 1, 2)),
                lambda home: photo(home, "train", 2, 1).unlink(),
            ],
        ),
    ],
)
def test_every_sentence_and_image_counts(name, spoils, folder_of):
    folder = folder_of(name)
    found = [loaded(name, folder).content_hash]
    for spoil in spoils:  # one after the other
        spoil(folder)
        found.append(loaded(name, folder).content_hash)
    assert found[-1] == loaded(name, folder).content_hash
    assert len({*found}) == len(found)


def test_what_is_not_read_and_where_it_lies_changes_nothing(tweets_folder, photos, tmp_path):
    before = loaded("airline", tweets_folder).content_hash
    file = write_tweets(tweets_folder, [[*row[:2], "someone else", row[3]] for row in tweets()])
    assert loaded("airline", tweets_folder).content_hash == before
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert loaded("airline", tweets_folder).content_hash == before
    before = loaded("imagenet", photos).content_hash
    (photos / "photos/train" / WNIDS[0] / "notes.txt").write_text("seen")
    (tmp_path / "elsewhere").mkdir()
    (photos / "photos").rename(tmp_path / "elsewhere/photos")
    assert loaded("imagenet", tmp_path / "elsewhere").content_hash == before


def test_examples_without_a_digest_are_read():
    class Numbers:
        def __init__(self, first: int) -> None:
            self.targets, self.first = torch.arange(130) % 3, first

        def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
            return (indices[:, None] == 129) * float(self.first), self.targets[indices]

    assert hash_of(train=Numbers(1)) == hash_of(train=Numbers(1)) != hash_of(train=Numbers(2))
