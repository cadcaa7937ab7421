"""Links that no page answers: to folders of the repository, and to the pages that `make site` makes after Sphinx."""

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode
from sphinx.util.osutil import relative_uri

LISTED = {"results/tables": "docs/tables", "results/figures": "docs/figures", "results/studies": "docs/studies"}
MADE_LATER = ("playground.html", "report.html")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(_ResolveLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _ResolveLinks(SphinxPostTransform):
    """A folder's link leads to the page that lists the folder; without such a page the link is plain text."""

    default_priority = 8  # before MyST, which has 9 and warns

    def run(self) -> None:
        for link in list(self.document.findall(pending_xref)):
            if link["reftype"] != "myst" or link.get("refdomain") == "doc":
                continue
            target = (self.env.doc2path(link["refdoc"]).parent / link["reftarget"].partition("#")[0]).resolve()
            if target.is_relative_to(self.env.srcdir) and (found := self._found(link, target)):
                link.replace_self(found)

    def _found(self, link: pending_xref, target: Path) -> nodes.Node | None:
        name = target.relative_to(self.env.srcdir).as_posix()
        if name in MADE_LATER:
            here = self.app.builder.get_target_uri(link["refdoc"])
            return nodes.reference("", "", *link.children, refuri=relative_uri(here, name), internal=True)
        if not target.is_dir() or name == ".":
            return None
        page = LISTED.get(name)
        return make_refnode(self.app.builder, link["refdoc"], page, "", link.children) if page else link[0]
