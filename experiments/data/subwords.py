"""One byte-pair encoding for two languages, learned from a training split."""

import hashlib
import io
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from sentencepiece import SentencePieceTrainer

from experiments.data.special_tokens import BEGIN, END, PADDING, UNKNOWN
from experiments.errors import ConfigurationError
from experiments.files import kept

OPTIONS = {
    "model_type": "bpe",
    "character_coverage": 1.0,
    "normalization_rule_name": "identity",  # so that translations are scored against the text as it is
    "pad_id": PADDING,
    "unk_id": UNKNOWN,
    "bos_id": BEGIN,
    "eos_id": END,
    "num_threads": 1,
}


def learned_subwords(sentences: Sequence[str], vocabulary_size: int, cache: Path) -> bytes:
    """The sentencepiece model, learned from sentences of both languages, or loaded from the cache.

    Raises:
        ConfigurationError: the sentences do not allow a vocabulary of this size.

    Source: Sennrich, Haddow and Birch, Neural Machine Translation of Rare Words with Subword Units, 2016.
    """
    digest = hashlib.sha256(json.dumps([version("sentencepiece"), vocabulary_size, OPTIONS]).encode())
    for sentence in sentences:
        digest.update(f"{sentence}\n".encode())
    return kept(cache / f"{digest.hexdigest()[:16]}.model", lambda: _learn(sentences, vocabulary_size))


def _learn(sentences: Sequence[str], vocabulary_size: int) -> bytes:
    model, options = io.BytesIO(), {"vocab_size": vocabulary_size, "minloglevel": 2, **OPTIONS}
    try:
        SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **options)
    except RuntimeError as error:
        raise ConfigurationError(f"data.vocabulary_size={vocabulary_size} is not allowed: {error}") from error
    return model.getvalue()
