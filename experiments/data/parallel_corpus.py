"""A parallel corpus: pairs of sentences from files or from the Hugging Face hub, numbered by learned subwords."""

import hashlib
import io
import json
from array import array
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from experiments.data.hub import load_from_hub
from experiments.data.special_tokens import BEGIN, END, PADDING, UNKNOWN
from experiments.data.text import lines_of
from experiments.data.translation import Pair, SentencePairs, TranslationData, TranslationDataModule
from experiments.errors import ConfigurationError, DataError, reading
from experiments.files import LOCAL_DATA, kept, read_file
from experiments.settings import AtLeastOne, validated_class

SPLITS = {"train": "train", "dev": "validation", "test": "test"}  # by their names on the hub
CACHE = LOCAL_DATA / "subwords"
SUBWORD_OPTIONS = {
    "model_type": "bpe",
    "character_coverage": 1.0,
    "normalization_rule_name": "identity",  # so that translations are scored against the text as it is
    "pad_id": PADDING,
    "unk_id": UNKNOWN,
    "bos_id": BEGIN,
    "eos_id": END,
    "num_threads": 1,
}


@validated_class
class ParallelCorpusDataModule(TranslationDataModule):
    """A parallel corpus, in one vocabulary of subwords for both languages. Arguments: `conf/data/multi30k.yaml`."""

    name: str
    folder: Path | None = None
    source: str
    target: str
    train: str
    dev: str
    test: str
    hub: str
    hub_files: str | None = None
    vocabulary_size: AtLeastOne
    max_length: AtLeastOne

    def load(self) -> TranslationData:
        pairs: dict[str, list[Pair]] = {}
        facts: dict[str, int | float | str] = {}
        for split in SPLITS:
            pairs[split], facts[f"{split}_skipped_empty"] = self.read(split)
        sentences = [sentence for pair in pairs["train"] for sentence in pair]
        model = _learned_subwords(sentences, self.vocabulary_size)
        subwords = SentencePieceProcessor(model_proto=model)
        splits = {}
        for split in SPLITS:
            splits[split] = _numbered(pairs[split], subwords, self.max_length if split == "train" else None)
            if not splits[split].references:
                raise DataError(f"{self._place()}, {split}: data.max_length={self.max_length} leaves no pair")
        data = TranslationData(
            **splits,
            vocabulary_size=subwords.get_piece_size(),
            text=subwords.decode,
            numbers=subwords.encode,
            facts=facts,
            text_hash=_text_hash(pairs.values()),
        )
        facts |= {f"{split}_size": len(numbered.references) for split, numbered in splits.items()}
        facts |= {
            "train_skipped_over_long": len(pairs["train"]) - len(data.train.references),
            "train_target_tokens": int(data.train.predicted_tokens().sum()),
            "target_types": int(data.types_in_use().sum()),
            "vocabulary_size": data.vocabulary_size,
            "subwords_hash": hashlib.sha256(model).hexdigest(),
        }
        return data

    def read(self, split: str) -> tuple[list[Pair], int]:
        """The pairs of `train`, `dev` or `test`, and the number of pairs left out because a side is empty."""
        lines = self._from_hub(split) if self.folder is None else self._from_files(split)
        self.check_count(split, len(lines), f"{self._place()}, {split}", "fetch the files again")
        pairs = [(source.strip(), target.strip()) for source, target in lines if source.strip() and target.strip()]
        return pairs, len(lines) - len(pairs)

    def _place(self) -> str:
        return self.hub if self.folder is None else str(self.folder / self.name)

    def _from_files(self, split: str) -> list[Pair]:
        file = self.folder / self.name / getattr(self, split)
        paths = [Path(f"{file}.{language}") for language in (self.source, self.target)]
        sources, targets = (self._lines(path) for path in paths)
        if len(sources) != len(targets):
            raise DataError(
                f"{paths[0]} has {len(sources)} lines, but {paths[1]} has {len(targets)}: each line must have its "
                f"translation; fetch both again, from {self.hub} on the Hugging Face hub"
            )
        return [*zip(sources, targets, strict=True)]

    def _lines(self, path: Path) -> list[str]:
        with reading(path, f"fetch it again, or give paths.data=null to load {self.hub} from the Hugging Face hub"):
            return lines_of(read_file(path))

    def _from_hub(self, split: str) -> list[Pair]:
        hub_split, file = SPLITS[split], f"{self.name}/{getattr(self, split)}"
        remedy = f"give paths.data=FOLDER, a folder that holds {file}.{self.source} and .{self.target}"
        if self.hub_files is None:
            rows = load_from_hub(self.hub, hub_split, remedy)
        else:  # files are named one by one: if a script lies beside them, the client rejects the whole set
            files = f"hf://datasets/{self.hub}/{self.hub_files.format(split=hub_split)}"
            rows = load_from_hub("parquet", hub_split, remedy, data_files={hub_split: files})
        pairs = rows["translation"] if "translation" in rows.column_names else rows
        return [(pair[self.source] or "", pair[self.target] or "") for pair in pairs]


def _numbered(pairs: list[Pair], subwords: SentencePieceProcessor, most: int | None) -> SentencePairs:
    """The pairs with at most `most` subwords on either side; all pairs if it is None."""
    sources, targets, references = [], [], []
    for pair in pairs:
        source, target = (array("i", subwords.encode(sentence)) for sentence in pair)
        if most is None or max(len(source), len(target)) <= most:
            sources.append(source)
            targets.append(target)
            references.append(pair[1])
    return SentencePairs(sources, targets, references)


def _learned_subwords(sentences: Sequence[str], vocabulary_size: int) -> bytes:
    """The sentencepiece model, learned from sentences of both languages, or loaded from the cache.

    Source: Sennrich, Haddow and Birch, Neural Machine Translation of Rare Words with Subword Units, 2016.
    """
    digest = hashlib.sha256(json.dumps([version("sentencepiece"), vocabulary_size, SUBWORD_OPTIONS]).encode())
    for sentence in sentences:
        digest.update(f"{sentence}\n".encode())
    return kept(CACHE / f"{digest.hexdigest()[:16]}.model", lambda: _learn(sentences, vocabulary_size))


def _learn(sentences: Sequence[str], vocabulary_size: int) -> bytes:
    model, options = io.BytesIO(), {"vocab_size": vocabulary_size, "minloglevel": 2, **SUBWORD_OPTIONS}
    try:
        SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **options)
    except RuntimeError as error:
        raise ConfigurationError(f"data.vocabulary_size={vocabulary_size} is not allowed: {error}") from error
    return model.getvalue()


def _text_hash(splits: Iterable[Iterable[Pair]]) -> str:
    """The SHA-256 of all sentences, split by split."""
    digest = hashlib.sha256()
    for pairs in splits:
        for source, target in pairs:
            digest.update(f"{source}\t{target}\n".encode())
        digest.update(b"\0")
    return digest.hexdigest()
