"""Settings of the documentation site: `make site`. The source folder is the repository's root, this file's parent."""

import logging
import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from jupyter_client.manager import KernelManager
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx_gallery.sorting import ExplicitOrder

ROOT = Path(__file__).parents[1]
os.environ["PYTHONPATH"] = str(ROOT)  # notebooks run in their own folder, and use this checkout all the same
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_extensions")]

import sharmix  # noqa: E402
from reporting.look.header import page_header  # noqa: E402

project = "SharMiX"
author = "The SharMiX authors"
project_copyright = author
version = release = sharmix.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "figures",
    "grouped_columns",
    "links",
    "mathml",
]
include_patterns = ["*.md", "data/README.md", "outputs/README.md", "docs/**", "results/**"]
exclude_patterns = ["docs/_*", "docs/examples/*", "docs/gallery/*.ipynb", "docs/gallery/*.py"]
root_doc = "docs/index"

# Every warning is an error (-W). Of names that cannot be resolved, ours are one: no network, so no index of others.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!sharmix\b).*"), ("py:class", r"sharmix\.registry\.Class")]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# scikit-learn makes the methods that are left out here, and its own pages explain them
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "exclude-members": "set_fit_request, set_score_request, set_transform_request",
}
autosummary_generate = False
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Shape", "Shape"), ("Warns", "Warns")]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
KernelManager.transport_encryption.default_value = "auto"  # else every kernel warns that others can listen
logging.getLogger("traitlets").setLevel(logging.WARNING)  # what is run is no news

sphinx_gallery_conf = {
    "examples_dirs": ["docs/examples"],
    "gallery_dirs": ["docs/gallery"],
    "filename_pattern": r"/draw_",
    "reset_modules": ("matplotlib", "gallery_style.apply"),
    "image_scrapers": ("gallery_style.scrape",),
    "within_subsection_order": ExplicitOrder(
        [f"draw_{name}.py" for name in ("jump", "temperature", "losses", "attention", "jacobian", "learned_orders")]
        + ["*"]
    ),
    "ignore_pattern": r"__init__\.py",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "copyfile_regex": r".*\.rst",
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1,
    "matplotlib_animations": False,
}

html_theme = "furo"
html_title = "SharMiX"
MATHEMATICAL_FONT = files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"
html_static_path = ["_static", "../reporting/look/look.css", "../reporting/look/theme.js", str(MATHEMATICAL_FONT)]
html_css_files = ["look.css", "site.css"]
html_js_files = ["theme.js", "site.js"]
html_additional_pages = {"index": "first_page.html"}
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_search_scorer = str(ROOT / "docs" / "_extensions" / "search_scorer.js")
html_copy_source = False
html_show_search_summary = False  # a page of the file system may not fetch another for a summary
html_show_sphinx = False
html_math_renderer = "mathml"
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Sphinx) -> None:
    app.add_lexer("csv", TextLexer)  # recipes show a file of this kind
    app.connect("html-page-context", add_header)
    app.connect("doctree-read", leave_out_of_sidebar)


def leave_out_of_sidebar(app: Sphinx, doctree: nodes.document) -> None:
    """No list of pages contains README, whose place the first page takes, or results, to which other pages link."""
    if app.env.docname == "README" or app.env.docname.startswith("results/"):
        app.env.metadata[app.env.docname]["orphan"] = True


def add_header(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    context["header"] = page_header("Docs", context["content_root"])
