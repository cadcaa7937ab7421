"""Airline Tweets: tokens, split, and the same data from a file and from the hub."""

import torch
from datasets import Dataset

from tests.experiments.data.generated import HEADER, SENTIMENTS, tweets, write_tweets
from tests.experiments.data.support import loaded, ready


def test_load_gives_token_rows_targets_and_facts_of_both_sides(tweets_folder):
    tweets = ready("airline", tweets_folder)
    data, facts = tweets.data, dict(tweets.data.facts)
    assert data.train.inputs.shape == (48, 6)
    assert data.test.inputs.shape == (12, 6)
    assert data.train.inputs.dtype == data.train.targets.dtype == torch.int64
    assert data.test.targets.bincount().tolist() == [4, 4, 4]
    assert data.class_names == tuple(SENTIMENTS)
    # Every number of the vocabulary but "unknown" occurs in training, and in training alone.
    size = facts.pop("vocabulary_size")
    assert data.train.inputs.unique().tolist() == [0, *range(2, size)]
    assert data.test.inputs.max() < size
    assert tweets.network_arguments() == {"num_classes": 3, "vocabulary_size": size}
    assert tweets.module_arguments() == {"num_classes": 3, "shots": None}
    assert 0 < facts.pop("test_unknown_share") < 1  # each tweet has a word of its own
    assert facts == {
        "records": 60,
        "records_negative": 20,
        "records_neutral": 20,
        "records_positive": 20,
        "repeated_ids": 1,
        "repeated_texts": 2,
        "train_size": 48,
        "test_size": 12,
    }


def test_repeats_stay_in_one_part(tweets_folder):
    rows = tweets()
    for i, text in {0: "repeats too", 3: "repeats", 6: "repeats", 9: "repeats"}.items():
        rows[i][3] = text
    write_tweets(tweets_folder, rows)
    found = set()
    for seed in range(12):
        data = loaded("airline", tweets_folder, split_seed=seed, validation_fraction=0.3, validation_seed=seed)
        short = {}  # how many of the four joined records, which alone are short, each part has
        for part in ("train", "validation", "test"):
            numbers = torch.arange(len(getattr(data, part).targets))
            inputs, _ = getattr(data, part).read(numbers, numbers)
            short[part] = int(((inputs != 0).sum(dim=1) <= 2).sum())
        assert sorted(short.values()) == [0, 0, 4], (seed, short)
        found |= {part for part, count in short.items() if count}
    assert len(found) > 1


def test_the_vocabulary_is_that_of_the_tweets_that_remain_for_training(tweets_folder):
    whole = loaded("airline", tweets_folder)
    data = loaded("airline", tweets_folder, validation_fraction=0.3)
    (train, _), (validation, _) = (
        part.read(torch.arange(len(part.targets)), torch.arange(0)) for part in (data.train, data.validation)
    )
    assert train.max() + 1 == data.facts["vocabulary_size"] == data.sizes["vocabulary_size"]
    assert data.facts["vocabulary_size"] < whole.facts["vocabulary_size"]
    assert 1 not in train  # each word of a tweet that remains is known
    assert 1 in validation


def test_hub_and_folder_give_the_same_data(tweets_folder, monkeypatch):
    rows = Dataset.from_list([dict(zip(HEADER, [int(row[0]), *row[1:]], strict=True)) for row in tweets()])
    asked = []
    monkeypatch.setattr("datasets.load_dataset", lambda *name, **options: asked.append((name, options)) or rows)
    hub, file = loaded("airline"), loaded("airline", tweets_folder)
    assert asked == [(("osanseviero/twitter-airline-sentiment",), {"split": "train"})]
    assert hub.content_hash == file.content_hash
    assert hub.facts == file.facts


def test_lines_of_a_users_file_are_encoded_as_tweets_are(tweets_folder, tmp_path):
    data = ready("airline", tweets_folder)
    of_flights = [text for _, _, _, text in tweets() if text.startswith("the late flight")]
    file = tmp_path / "mine.txt"
    file.write_text("\n".join(of_flights) + "\n\n  \nSomething nobody wrote\n")
    inputs, names = data.encode(file)
    assert names == [*of_flights, "Something nobody wrote"]
    rows = {tuple(row) for row in torch.cat([data.data.train.inputs, data.data.test.inputs]).tolist()}
    assert {tuple(row) for row in inputs[:-1].tolist()} <= rows
    assert inputs[-1].tolist() == [1, 1, 1, 0, 0, 0]


def test_a_drawn_split_changes_with_the_training_seed(tweets_folder):
    one, other = (loaded("airline", tweets_folder, split_seed=None, seed=seed) for seed in (1, 2))
    again = loaded("airline", tweets_folder, split_seed=1, seed=2)
    assert one.content_hash == again.content_hash != other.content_hash


def test_protocols_choose_training_tweets_and_vocabulary(tweets_folder):
    assert len(loaded("airline", tweets_folder, trained_on="all").train.targets) == 60
    assert loaded("airline", tweets_folder, vocabulary_of="all").facts["test_unknown_share"] == 0
    write_tweets(tweets_folder, tweets()[:50])  # 16 of the last class are left, and 17 of each other
    sizes = {
        oversampled: [
            getattr(loaded("airline", tweets_folder, oversampled=oversampled), split).targets.bincount().tolist()
            for split in ("train", "test")
        ]
        for oversampled in ("never", "before_split", "after_split")
    }
    assert sizes["after_split"][1] == sizes["never"][1]
    assert sizes["never"][0] == [13, 14, 13]
    assert sizes["after_split"][0] == sizes["before_split"][0] == [14, 14, 14]
