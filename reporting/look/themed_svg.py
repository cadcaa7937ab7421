"""SVG files that follow the theme of the page around them: no ground, ink in the colour of the page's text."""

import re

from reporting.look.palette import ON_DARK

# Ink on a coloured ground. The ground is the same in every theme, so these two colours stay, too.
DARK_INK, LIGHT_INK = "#1c2328", "#fdfdfe"
# A file that stands alone, or in an <img>, follows the reader's system.
_ALONE = "svg:root { color-scheme: light dark; color: light-dark(#1c2328, #e8ecee) }"
_GROUND = "var(--surface, light-dark(#ffffff, #1a2024))"  # behind text that stands on lines
_EVERYWHERE = "*{stroke-linejoin: round; stroke-linecap: butt}"  # Matplotlib's style, which reaches the page around it
_GROUND_OF_HATCH = re.compile(r'\bfill="#(..)\1\1"')
_COLOUR = re.compile(r"\b(fill|stroke): #([0-9a-f]{6})\b")


def themed(svg: str) -> str:
    """An SVG file of Matplotlib's, drawn without a ground, that follows the theme of a page.

    Black and greys become the page's ink. A darker grey becomes a more opaque ink. A colour that cannot be seen on a
    dark page gets the one of `palette.ON_DARK`; programs that do not know CSS's `light-dark` keep the first.
    """
    before, style, after = svg.partition(_EVERYWHERE)
    assert style, "Matplotlib writes another style than before"
    svg = before + _ALONE + after
    svg = svg.replace("<svg ", '<svg fill="currentColor" stroke-linejoin="round" stroke-linecap="butt" ', 1)
    svg = _GROUND_OF_HATCH.sub(lambda found: f'fill="currentColor" fill-opacity="{_opacity(found[1])}"', svg)
    return _COLOUR.sub(_following, svg)


def _following(found: re.Match[str]) -> str:
    what, colour = found.groups()
    if what == "fill" and colour == "ffffff":
        return f"{found[0]}; fill: {_GROUND}"
    if colour[:2] * 3 == colour != "ffffff":
        return f"{what}: currentColor; {what}-opacity: {_opacity(colour[:2])}"
    if dark := ON_DARK.get(f"#{colour.upper()}"):
        return f"{found[0]}; {what}: light-dark(#{colour}, {dark})"
    return found[0]


def _opacity(grey: str) -> str:
    """The opacity with which black on white looks like this grey, which is given by two hexadecimal digits."""
    return f"{1 - int(grey, 16) / 255:.3g}"
