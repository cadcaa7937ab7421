"""Byte-pair encoding that two languages share, learned from a training split."""

import hashlib
import io
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import sentencepiece

from experiments.data.special_tokens import BEGIN, END, PADDING, UNKNOWN
from experiments.errors import ConfigurationError
from experiments.files import replace_atomically

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


class Subwords:
    """Numbers sentences by subwords and back.

    Args:
        model: sentencepiece's, serialised.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def numbers(self, sentence: str) -> list[int]:
        """The token numbers of a sentence."""
        found: list[int] = self._processor.encode(sentence)
        return found

    def text(self, numbers: list[int]) -> str:
        """The sentence that token numbers stand for."""
        sentence: str = self._processor.decode(numbers)
        return sentence

    def hash(self) -> str:
        """The SHA-256 of the model."""
        return hashlib.sha256(self.model).hexdigest()


def learned_subwords(sentences: Sequence[str], vocabulary_size: int, cache: Path) -> Subwords:
    """Byte-pair encoding learned from sentences, or found in the cache.

    Args:
        sentences: of both languages.
        vocabulary_size: token numbers, the four special ones included.
        cache: folder of models, named by what they were learned from.

    Raises:
        ConfigurationError: the sentences do not allow the size.

    Source: Sennrich, Haddow and Birch, Neural Machine Translation of Rare Words with Subword Units, 2016.
    """
    digest = hashlib.sha256(json.dumps([version("sentencepiece"), vocabulary_size, OPTIONS]).encode())
    for sentence in sentences:
        digest.update(f"{sentence}\n".encode())
    file = cache / f"{digest.hexdigest()[:16]}.model"
    if not file.exists():
        model = _learn(sentences, vocabulary_size)
        replace_atomically(file, lambda opened: opened.write(model))
    return Subwords(file.read_bytes())


def _learn(sentences: Sequence[str], vocabulary_size: int) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocabulary_size,
            minloglevel=2,
            **OPTIONS,
        )
    except RuntimeError as error:
        raise ConfigurationError(f"data.vocabulary_size={vocabulary_size} is not allowed: {error}") from error
    return model.getvalue()
