"""A parallel corpus as translation data: subwords learned from the training split, all sentences as token numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.data.base import LOCAL_DATA
from experiments.data.parallel_text import Corpus, Pair, read_parallel_text, text_hash
from experiments.data.sentence_pairs import SentencePairs
from experiments.data.subwords import Subwords, learned_subwords
from experiments.data.translation import TranslationData, TranslationDataModule
from experiments.errors import DataError
from experiments.settings import AtLeastOne, validated

SPLITS = ("train", "dev", "test")
CACHE = LOCAL_DATA / "subwords"


class ParallelCorpusDataModule(TranslationDataModule):
    """A parallel corpus, in one vocabulary of subwords for both languages.

    Args:
        name: folder of the corpus, below `folder`.
        folder: folder that holds <name>/<file>.<language>; None loads the corpus from the hub.
        source, target: the two languages, as the files are named.
        train, dev, test: the file of each split, without its language.
        hub: name of the corpus on the Hugging Face hub.
        hub_files: pattern of the parquet files there, with {split}; None for all that the hub's own reader finds.
        vocabulary_size: subwords of both languages together.
        max_length: subwords on either side of a training pair; longer pairs are left out.
        **batches: as for `TranslationDataModule`.
    """

    @validated
    def __init__(
        self,
        *,
        name: str,
        folder: Path | None = None,
        source: str,
        target: str,
        train: str,
        dev: str,
        test: str,
        hub: str,
        hub_files: str | None = None,
        vocabulary_size: AtLeastOne,
        max_length: AtLeastOne,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        files = {"train": train, "dev": dev, "test": test}
        self.corpus = Corpus(name, folder, (source, target), files, hub, hub_files)
        self.vocabulary_size, self.max_length = vocabulary_size, max_length

    def load(self) -> TranslationData:
        texts = {split: read_parallel_text(self.corpus, split) for split in SPLITS}
        pairs = {split: text.pairs for split, text in texts.items()}
        facts: dict[str, int | float | str] = {f"{split}_size": len(pairs[split]) for split in ("dev", "test")}
        facts |= {f"{split}_skipped_{why}": count for split in SPLITS for why, count in texts[split].skipped.items()}
        sentences = [sentence for pair in pairs["train"] for sentence in pair]
        subwords = learned_subwords(sentences, self.vocabulary_size, CACHE)
        numbered = {split: _numbered(subwords, pairs[split]) for split in SPLITS}
        train = _short_enough(numbered["train"], self.max_length)
        if not len(train.references):
            raise DataError(
                f"data.max_length={self.max_length} leaves no training pair: each has a side of more subwords"
            )
        facts |= {
            "train_size": len(train.references),
            "train_skipped_over_long": len(pairs["train"]) - len(train.references),
            "train_target_tokens": int(train.predicted_tokens().sum()),
            "vocabulary_size": len(subwords),
            "subwords_hash": subwords.hash(),
        }
        data = TranslationData(
            train=train,
            dev=numbered["dev"],
            test=numbered["test"],
            vocabulary_size=len(subwords),
            text=subwords.text,
            numbers=subwords.numbers,
            split_hash=text_hash(pairs.values()),
            facts=facts,
        )
        facts["target_types"] = int(data.types_in_use().sum())
        return data


def _numbered(subwords: Subwords, pairs: Sequence[Pair]) -> SentencePairs:
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return SentencePairs.of(map(subwords.numbers, sources), map(subwords.numbers, targets), targets)


def _short_enough(pairs: SentencePairs, max_length: int) -> SentencePairs:
    """The pairs with at most `max_length` subwords on either side."""
    source, target = pairs.sources.lengths - 1, pairs.targets.lengths - 2
    return pairs.subset(((source <= max_length) & (target <= max_length)).nonzero().flatten())
