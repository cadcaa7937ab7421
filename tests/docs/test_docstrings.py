"""The docstrings of public names: all are there, and what the site makes of them."""

import importlib
import inspect
import re
import sys

import pytest

from tests.docs.pages import PUBLIC_NAME, ROOT

sys.path.append(str(ROOT / "docs" / "_extensions"))
import docstrings

PUBLIC = sorted(docstrings.public_names().values())


def found(name):
    module, _, short = name.rpartition(".")
    return getattr(importlib.import_module(module), short)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_and_its_public_methods_have_docstrings(name):
    assert found(name).__doc__
    if inspect.isclass(found(name)):
        methods = {key: value for key, value in vars(found(name)).items() if key[0] != "_"}
        documented = {key: value for key, value in methods.items() if callable(value) or isinstance(value, property)}
        assert [key for key in documented if not inspect.getdoc(getattr(found(name), key))] == []


def test_every_public_name_stands_on_one_page_of_the_site():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    assert sorted(PUBLIC_NAME.findall(pages)) == PUBLIC


def test_the_index_of_the_api_has_every_public_name_once():
    index = (ROOT / "docs" / "api" / "index.md").read_text()
    assert sorted(f"sharmix.{name}" for name in re.findall(r"^    ~?([\w.]+)$", index, re.MULTILINE)) == PUBLIC


def test_a_page_gives_each_formula_of_a_docstring_in_latex():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    typed = [name for name in PUBLIC if ":class: formula" in docstrings.rewritten(inspect.getdoc(found(name)))]
    assert {"sharmix.entmax", "sharmix.EntmaxLoss"} <= {*typed}
    with_formula = r"{}\n(    :.*\n)*\n    \.\. math::"  # options stand between
    assert [name for name in typed if not re.search(with_formula.format(re.escape(name)), pages)] == []


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("As for `sharmix`.", "As for :py:obj:`sharmix <sharmix.sharmix>`."),
        ("See `support_scores`.", "See :py:obj:`support_scores <sharmix.conformal.support_scores>`."),
        ("`sharmix.SharMiX` of `z`", ":py:obj:`sharmix.SharMiX <sharmix.SharMiX>` of ``z``"),
        ("`q=2` and `a_b`", "``q=2`` and ``a_b``"),
        ("p* of |z|", "p\\* of \\|z\\|"),
        ("docs/math.md, section 2.", ":ref:`math section 2 <math-section-2>`."),
        (
            "docs/math.md, sections 4 and 5.",
            ":ref:`math section 4 <math-section-4>`, :ref:`math section 5 <math-section-5>`.",
        ),
        ("Source: Guo et al.", "**Source.** Guo et al."),
        ("Is\n\n    p = z*\n\nhere.", "Is\n\n.. code-block:: text\n    :class: formula\n\n    p = z*\n\nhere."),
        ("Args:\n    z: p*.\n\n    More.", "Args:\n    z: p\\*.\n\n    More."),
        ("Example:\n    >>> f(*z)", "Example:\n    >>> f(*z)"),
    ],
)
def test_a_docstring_becomes(docstring, expected):
    assert docstrings.rewritten(docstring) == expected
