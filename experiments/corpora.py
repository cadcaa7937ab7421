"""Parallel corpora as translation data: subwords learned from the training split, all sentences numbered."""

from collections.abc import Sequence
from pathlib import Path

from experiments.configuration import ParallelTextSettings
from experiments.dataset import LOCAL_DATA
from experiments.errors import DataError
from experiments.parallel_text import Pair, read_parallel_text, text_hash
from experiments.sentence_pairs import SentencePairs, TranslationData
from experiments.subwords import Subwords, learned_subwords

SPLITS = ("train", "dev", "test")
CACHE = LOCAL_DATA / "subwords"


def load_corpus(settings: ParallelTextSettings, folder: Path | None) -> TranslationData:
    """Load a parallel corpus, in one vocabulary of subwords for both languages.

    Args:
        settings: languages, files, size of the vocabulary, and how long a training sentence may be.
        folder: that holds the set's files; None loads it from the hub.

    Raises:
        ConfigurationError: the training split does not allow the size of the vocabulary.
        DataError: as `read_parallel_text`.
    """
    texts = {split: read_parallel_text(settings, split, folder) for split in SPLITS}
    pairs = {split: text.pairs for split, text in texts.items()}
    facts: dict[str, int | float | str] = {f"{split}_size": len(pairs[split]) for split in ("dev", "test")}
    facts |= {f"{split}_skipped_{why}": count for split in SPLITS for why, count in texts[split].skipped.items()}
    sentences = [sentence for pair in pairs["train"] for sentence in pair]
    subwords = learned_subwords(sentences, settings.vocabulary_size, CACHE)
    numbered = {split: _numbered(subwords, pairs[split]) for split in SPLITS}
    train = _short_enough(numbered["train"], settings.max_length)
    if not len(train.references):
        raise DataError(
            f"data.max_length={settings.max_length} leaves no training pair: each has a side of more subwords"
        )
    facts |= {
        "train_size": len(train.references),
        "train_skipped_over_long": len(pairs["train"]) - len(train.references),
        "train_target_tokens": int(train.predicted_tokens().sum()),
        "vocabulary_size": len(subwords),
        "subwords_hash": subwords.hash(),
    }
    data = TranslationData(
        train, numbered["dev"], numbered["test"], len(subwords), subwords.text, text_hash(pairs.values()), facts
    )
    facts["target_types"] = int(data.types_in_use().sum())
    return data


def _numbered(subwords: Subwords, pairs: Sequence[Pair]) -> SentencePairs:
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return SentencePairs.of(subwords.encode(sources), subwords.encode(targets), targets)


def _short_enough(pairs: SentencePairs, max_length: int) -> SentencePairs:
    """The pairs with at most `max_length` subwords on either side."""
    source, target = pairs.sources.lengths - 1, pairs.targets.lengths - 2
    return pairs.subset(((source <= max_length) & (target <= max_length)).nonzero().flatten())
