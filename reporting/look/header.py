"""The header that the site, the playground and the report share, with the switch of the theme."""

from pathlib import Path

PAGES = {"Docs": "docs/index.html", "Playground": "playground.html", "Report": "report.html"}  # below the site's root


def page_header(current: str, root: str | None) -> str:
    """The header of a page in HTML.

    Args:
        current: the page's key in `PAGES`.
        root: the relative address of the site's root, such as "" or "../"; None outside a site, which has no links.
    """
    links = [] if root is None else PAGES.items()
    here = {current: ' aria-current="page"'}
    items = " ".join(f'<a href="{root}{page}"{here.get(name, "")}>{name}</a>' for name, page in links)
    brand = "<span>SharMiX</span>" if root is None else f'<a href="{root}{PAGES["Docs"]}">SharMiX</a>'
    nav = f'<nav aria-label="Site">{items}</nav>' if items else ""
    return (
        f'<header class="site-header"><div class="brand">{brand}</div>{nav}'
        '<button id="theme" type="button" aria-label="Dark theme" aria-pressed="false">◐</button></header>'
    )


def theme_script() -> str:
    """The script of the theme. It is in the page's head, so that the page never shows the other theme."""
    return Path(__file__).with_name("theme.js").read_text("utf-8")
