"""A parallel corpus: pairs of sentences from files or from the Hugging Face hub, numbered by learned subwords."""

import hashlib
from array import array
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from experiments.data.hub import load_from_hub
from experiments.data.local_files import LOCAL_DATA, read_file
from experiments.data.sentence_pairs import SentencePairs
from experiments.data.subwords import learned_subwords
from experiments.data.translation import Pair, TranslationData, TranslationDataModule, text_hash
from experiments.errors import DataError
from experiments.settings import AtLeastOne, validated

HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
CACHE = LOCAL_DATA / "subwords"
MOST_SUBWORDS = 1000  # in one sentence of dev or test: the memory of a translation grows with its square
Line = str | None  # None where it is no text in UTF-8


class ParallelCorpusDataModule(TranslationDataModule):
    """A parallel corpus, in one vocabulary of subwords for both languages. Arguments: `conf/data/multi30k.yaml`."""

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
        self.name, self.folder, self.hub, self.hub_files = name, folder, hub, hub_files
        self.languages, self.files = (source, target), {"train": train, "dev": dev, "test": test}
        self.vocabulary_size, self.max_length = vocabulary_size, max_length

    def load(self) -> TranslationData:
        pairs: dict[str, list[Pair]] = {}
        facts: dict[str, int | float | str] = {}
        for split in self.files:
            pairs[split], skipped = self.read(split)
            facts |= {f"{split}_skipped_{why}": count for why, count in skipped.items()}
        sentences = [sentence for pair in pairs["train"] for sentence in pair]
        model = learned_subwords(sentences, self.vocabulary_size, CACHE)
        subwords = SentencePieceProcessor(model_proto=model)
        splits = {
            split: _numbered(pairs[split], subwords, self.max_length if split == "train" else MOST_SUBWORDS)
            for split in self.files
        }
        for split in ("dev", "test"):
            if over_long := len(pairs[split]) - len(splits[split].references):
                raise DataError(
                    f"{self._place()}, {split}: {over_long} pairs have more than {MOST_SUBWORDS} subwords on a side; "
                    "fetch the files again, or cut these lines into sentences"
                )
        if not splits["train"].references:
            raise DataError(
                f"data.max_length={self.max_length} leaves no training pair: each has a side of more subwords"
            )
        data = TranslationData(
            **splits,
            vocabulary_size=subwords.get_piece_size(),
            text=subwords.decode,
            numbers=subwords.encode,
            facts=facts,
            text_hash=text_hash(pairs.values()),
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

    def read(self, split: str) -> tuple[list[Pair], dict[str, int]]:
        """The usable pairs of `train`, `dev` or `test`, and the number of unusable pairs for each reason.

        Raises:
            DataError: files are missing or have different or unexpected numbers of lines, the hub cannot be reached, or
                hardly any pair can be used; names the remedy.
        """
        sources, targets = self._from_hub(split) if self.folder is None else self._from_files(split)
        self.check_count(split, len(sources), f"{self._place()}, {split}", "fetch the files again")
        pairs, skipped = [], {"empty": 0, "undecodable": 0}
        for source, target in zip(sources, targets, strict=True):
            if source is None or target is None:
                skipped["undecodable"] += 1
            elif not source.strip() or not target.strip():
                skipped["empty"] += 1
            else:
                pairs.append((source.strip(), target.strip()))
        if len(pairs) < max(1, len(sources) / 2):  # in another encoding, only lines without accents remain
            raise DataError(
                f"{self._place()}, {split}: {len(pairs)} of {len(sources)} pairs of sentences can be used ({skipped}); "
                "fetch the files again"
            )
        return pairs, skipped

    def _place(self) -> str:
        return self.hub if self.folder is None else str(self.folder / self.name)

    def _from_files(self, split: str) -> list[list[Line]]:
        paths = [self.folder / self.name / f"{self.files[split]}.{language}" for language in self.languages]
        try:
            contents = [read_file(path).removesuffix(b"\n") for path in paths]
        except OSError as error:
            raise DataError(
                f"{error.filename}: cannot be read ({error.strerror}); paths.data={self.folder} must be a folder that "
                f"holds {self.name}/{Path(error.filename).name}, or null to load {self.hub} from the Hugging Face hub"
            ) from error
        # Only a newline ends a line: str.splitlines also cuts at characters that sentences hold.
        sources, targets = ([_decoded(line) for line in content.split(b"\n")] for content in contents)
        if len(sources) != len(targets):
            raise DataError(
                f"{paths[0]} has {len(sources)} lines, but {paths[1]} has {len(targets)}: line by line they must be "
                f"translations of one another; fetch both again, from {self.hub} on the Hugging Face hub"
            )
        return [sources, targets]

    def _from_hub(self, split: str) -> list[list[Line]]:
        hub_split, file = HUB_SPLITS[split], f"{self.name}/{self.files[split]}"
        remedy = f"give paths.data=FOLDER, a folder that holds {file}.{self.languages[0]} and .{self.languages[1]}"
        if self.hub_files is None:
            rows = load_from_hub(self.hub, hub_split, remedy)
        else:  # files are named one by one: if a script lies beside them, the client rejects the whole set
            files = f"hf://datasets/{self.hub}/{self.hub_files.format(split=hub_split)}"
            rows = load_from_hub("parquet", hub_split, remedy, data_files={hub_split: files})
        try:
            pairs = rows["translation"] if "translation" in rows.column_names else rows
            return [[_text(pair[language]) for pair in pairs] for language in self.languages]
        except (KeyError, TypeError) as error:
            raise DataError(f"{self.hub}: no sentences in {error} among {', '.join(rows.column_names)}") from error


def _decoded(line: bytes) -> Line:
    try:
        return _text(line.decode())
    except UnicodeDecodeError:
        return None


def _text(value: object) -> Line:
    """The line; None if it is no text. UTF-16 text that is read as UTF-8 contains zeros."""
    return value if isinstance(value, str) and "\0" not in value else None


def _numbered(pairs: list[Pair], subwords: SentencePieceProcessor, most: int) -> SentencePairs:
    """The pairs with at most `most` subwords on either side."""
    sources, targets, references = [], [], []
    for pair in pairs:
        source, target = (array("i", subwords.encode(sentence)) for sentence in pair)
        if max(len(source), len(target)) <= most:
            sources.append(source)
            targets.append(target)
            references.append(pair[1])
    return SentencePairs(sources, targets, references)
