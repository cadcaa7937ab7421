"""Formulas as MathML, made while the site is built: a browser shows them without a script and without a network."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

_APPLICATION = re.compile(r"<mo>(&ApplyFunction;</mo>\s*<m[^o])")  # as of log to S: docutils leaves no room


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_inline(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _write_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="mathematics"{_identifier(node)}>{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.math | nodes.math_block, as_block: bool) -> str:
    try:
        return _APPLICATION.sub(r'<mo rspace="0.17em">\1', tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        raise ExtensionError(f"{node.source}:{node.line}: {error} in the formula {node.astext()!r}") from error


def _identifier(node: nodes.math_block) -> str:
    return f' id="{node["ids"][0]}"' if node.get("ids") else ""
