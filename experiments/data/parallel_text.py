"""Sentence pairs as text, from files with a sentence a line or from the Hugging Face hub."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from experiments.errors import DataError

Line = str | None  # None where it is no UTF-8


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Corpus(NamedTuple):
    """Where the sentences of a corpus are.

    Attributes:
        name: folder of the corpus.
        folder: folder that holds <name>/<file>.<language>; None for the hub.
        languages: source and target.
        files: the file of each split, without its language.
        hub: name of the corpus on the Hugging Face hub.
        hub_files: pattern of the parquet files there, with {split}; None for all that the hub's own reader finds.
    """

    name: str
    folder: Path | None
    languages: tuple[str, str]
    files: dict[str, str]
    hub: str
    hub_files: str | None


@dataclass(frozen=True)
class ParallelText:
    """The usable pairs of a split.

    Attributes:
        pairs: in the order of the file.
        skipped: how many were left out, by why: empty, undecodable.
    """

    pairs: list[Pair]
    skipped: Counter[str]


def read_parallel_text(corpus: Corpus, split: str) -> ParallelText:
    """The pairs of a split.

    Args:
        corpus: where the sentences are.
        split: `train`, `dev` or `test`.

    Raises:
        DataError: files that are missing or have different numbers of lines, a hub that cannot be reached, or no pair
            at all, naming the remedy.
    """
    if corpus.folder is None:
        place, (sources, targets) = f"{corpus.hub}, {split}", _on_hub(corpus, split)
    else:
        stem = corpus.folder / corpus.name / corpus.files[split]
        paths = [stem.with_name(f"{stem.name}.{language}") for language in corpus.languages]
        place, (sources, targets) = str(stem), [_lines(path, corpus) for path in paths]
        if len(sources) != len(targets):
            raise DataError(
                f"{paths[0]} has {len(sources)} lines, but {paths[1]} has {len(targets)}: line by line they must be "
                f"translations of one another; fetch both again, from {corpus.hub} on the Hugging Face hub"
            )
    text = _usable(sources, targets)
    if not text.pairs:
        raise DataError(f"{place}: no pair of sentences can be used ({dict(text.skipped)}); fetch the files again")
    return text


def text_hash(splits: Iterable[Sequence[Pair]]) -> str:
    """The SHA-256 of all sentences, split by split."""
    digest = hashlib.sha256()
    for pairs in splits:
        for pair in pairs:
            digest.update(f"{pair.source}\t{pair.target}\n".encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _usable(sources: Sequence[Line], targets: Sequence[Line]) -> ParallelText:
    pairs, skipped = [], Counter(empty=0, undecodable=0)  # a count of 0 tells that it was counted
    for source, target in zip(sources, targets, strict=True):
        if source is None or target is None:
            skipped["undecodable"] += 1
        elif not source.strip() or not target.strip():
            skipped["empty"] += 1
        else:
            pairs.append(Pair(source.strip(), target.strip()))
    return ParallelText(pairs, skipped)


def _lines(path: Path, corpus: Corpus) -> list[Line]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); paths.data={corpus.folder} must be a folder that holds "
            f"{corpus.name}/{path.name}, or null to load {corpus.hub} from the Hugging Face hub"
        ) from error
    # Only a newline ends a line: str.splitlines also cuts at characters that sentences hold.
    return [_decoded(line) for line in content.removesuffix(b"\n").split(b"\n")]


def _decoded(line: bytes) -> Line:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _on_hub(corpus: Corpus, split: str) -> tuple[list[Line], list[Line]]:
    name = {"dev": "validation"}.get(split, split)
    # The hub's client fails with the errors of several libraries that share no base class.
    try:
        from datasets import load_dataset

        if corpus.hub_files is None:
            rows = load_dataset(corpus.hub, split=name)
        else:  # named one by one, for where a script lies beside them the client refuses the whole set
            files = f"hf://datasets/{corpus.hub}/{corpus.hub_files.format(split=name)}"
            rows = load_dataset("parquet", data_files={name: files}, split=name)
    except Exception as error:
        raise DataError(
            f"{corpus.hub} cannot be loaded from the Hugging Face hub ({error}); give paths.data=FOLDER, a folder "
            f"that holds {corpus.name}/{corpus.files[split]}.{corpus.languages[0]} and .{corpus.languages[1]}"
        ) from error
    try:
        pairs = rows["translation"] if "translation" in rows.column_names else rows
        sources, targets = ([pair[language] for pair in pairs] for language in corpus.languages)
    except KeyError as error:
        raise DataError(f"{corpus.hub}: no sentences in {error} among {', '.join(rows.column_names)}") from error
    return sources, targets
