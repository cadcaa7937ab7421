"""The table and the figure that docs/how_to declares."""

import re
import shutil

from experiments.identity import ROOT
from reporting import figures
from reporting.records.declaration import SETTINGS, load_declaration

PAGES = ROOT / "docs" / "how_to"


def test_the_table_can_be_declared(tmp_path):
    (table,) = re.findall(r"^```yaml\n(.*?)^```$", (PAGES / "own_table.md").read_text(), re.MULTILINE | re.DOTALL)
    shutil.copytree(SETTINGS, tmp_path, dirs_exist_ok=True)
    declared = (SETTINGS / "tables.yaml").read_text().replace("\ntables:\n", f"\ntables:\n{table}", 1)
    (tmp_path / "tables.yaml").write_text(declared)
    assert [*load_declaration(tmp_path).tables["digits"].rows] == ["softmax", "sparsemax", "learned"]


def test_the_figure_is_drawn_from_the_kept_runs(kept, monkeypatch):
    monkeypatch.setattr(figures, "_FIGURES", {})
    (code,) = re.findall(r"^```python\n(.*?)^```$", (PAGES / "own_figure.md").read_text(), re.MULTILINE | re.DOTALL)
    exec(code, {"__name__": "reporting.figures.support"})
    (drawn,) = (draw(kept) for draw in figures._FIGURES.values())
    assert drawn.axes[0].lines
