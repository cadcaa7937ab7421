"""docs/tutorials: what the site does not see when it runs the notebooks."""

import re

from cycler import Cycler
from matplotlib import rc_params_from_file

from experiments.identity import ROOT
from reporting.palette import LOOKS

TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = sorted(page for page in TUTORIALS.glob("*.md") if page.name != "index.md")


def test_figures_have_the_colours_of_the_project() -> None:
    cycle = rc_params_from_file(TUTORIALS / "matplotlibrc", use_default_template=False)["axes.prop_cycle"]
    assert isinstance(cycle, Cycler)
    names = ("softmax", "sharmix_fixed", "sharmix_learned", "entmax", "sparsemax")
    assert cycle.by_key()["color"] == [LOOKS[name].colour for name in names]


def test_the_first_page_has_every_tutorial_in_its_table() -> None:
    text = (TUTORIALS / "index.md").read_text()
    listed = re.findall(r"^\| \[.*\]\((\w+)\.md\) \|", text, re.MULTILINE)
    assert sorted(listed) == [page.stem for page in PAGES]
