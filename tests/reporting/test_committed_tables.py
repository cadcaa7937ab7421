"""What is committed under results/ belongs together: the tables are what the records give, to the letter."""

import shutil
from pathlib import Path

from reporting.tables import rebuild

RESULTS = Path(__file__).resolve().parents[2] / "results"


def test_the_committed_tables_are_those_of_the_committed_records(tmp_path: Path) -> None:
    for part in ("records", "published"):
        shutil.copytree(RESULTS / part, tmp_path / part)
    shutil.copy(RESULTS / "tables.yaml", tmp_path)
    written = rebuild(tmp_path)
    assert {file.name for file in written} == {file.name for file in (RESULTS / "tables").iterdir()}
    for file in written:
        assert file.read_text() == (RESULTS / "tables" / file.name).read_text(), file.name
