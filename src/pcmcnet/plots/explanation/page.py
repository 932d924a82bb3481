"""Sections -> one HTML page that is whole in itself: plotly's own script lies in it, and nothing is fetched.

A content security policy forbids the page to fetch anything, so that it cannot. Without scripts, each figure is the
table of its numbers. The page follows the reader's light or dark mode, fits a phone and prints.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from pcmcnet.errors import ConfigError
from pcmcnet.plots.explanation.style import HEAD, SCRIPT, STYLE
from pcmcnet.reports import html as parts
from pcmcnet.reports.html import escape
from pcmcnet.reports.sections import Block, Facts, Figure, Heading, Section, Table, Tiles, Words


def explanation_page(sections: Sequence[Section], *, title: str) -> str:
    """Return the page as text.

    Raises
    ------
    ConfigError
        When plotly, whose script goes into the page, is not installed.
    """
    library = plotly_script()
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    numbers = count(1)
    body = "\n".join(_section(section, numbers) for section in sections)
    shown = f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n<main>\n{body}\n</main>'
    text = f'<div class="columns">\n{shown}\n</div>\n<script>{library}</script>\n<script>{SCRIPT}</script>'
    return parts.page(title, text, style=STYLE, head=HEAD)


def plotly_script() -> str:
    """Return plotly's JavaScript, out of the installed package; the package itself is not loaded."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise ConfigError("a report with figures needs plotly: pip install plotly, or 'pcmcnet[serve]'.")
    text = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text("utf-8")
    return text.replace("</script", "<\\/script")


def _section(section: Section, numbers: count[int]) -> str:
    """One section; neighbouring figures that need half a page share a line."""
    found, row = [], []
    for block in section.blocks:
        if isinstance(block, Figure) and block.narrow:
            row.append(_figure(block, next(numbers)))
            continue
        found += [_side_by_side(row)] if row else []
        row = []
        found.append(_html(block, numbers))
    found += [_side_by_side(row)] if row else []
    inner = "\n".join(found)
    return f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n{inner}\n</section>'


def _side_by_side(figures: list[str]) -> str:
    return f'<div class="pair">{"".join(figures)}</div>' if len(figures) > 1 else "".join(figures)


def _html(block: Block, numbers: count[int]) -> str:
    match block:
        case Words(text=text, tone=tone):
            kind = "" if tone == "plain" else f' class="{tone}"'
            return f"<p{kind}>{escape(text)}</p>"
        case Heading(text=text):
            return f"<h3>{escape(text)}</h3>"
        case Facts(pairs=pairs):
            return parts.facts(pairs)
        case Tiles(tiles=tiles):
            inner = "".join(
                f"<li><span>{escape(name)}</span><strong>{escape(value)}</strong><small>{escape(beside)}</small></li>"
                for name, value, beside in tiles
            )
            return f'<ul class="tiles">{inner}</ul>'
        case Table(cells=cells, strong=strong, folded=folded):
            table = parts.table(cells, strong=strong)
            return table if folded is None else _folded(folded, table)
        case Figure():
            return _figure(block, next(numbers))


def _figure(figure: Figure, number: int) -> str:
    """A place for plotly to draw in, the figure as JSON, its caption and its numbers."""
    drawn = json.dumps({"data": figure.traces, "layout": figure.layout}, allow_nan=False)
    caption = escape(figure.caption)
    height = f"min({figure.height}px, 80vw)" if figure.square else f"{figure.height}px"
    return (
        f'<figure>\n<div class="plot" id="figure-{number}" role="img" aria-label="{caption}" '
        f'style="height:{height}"></div>\n'
        f'<script type="application/json" data-for="figure-{number}">{_inside_script(drawn)}</script>\n'
        f"<figcaption>{caption}</figcaption>\n"
        f'<noscript><p class="note">The figure needs JavaScript; its numbers are in the table below.</p></noscript>\n'
        f"{_folded('Numbers', parts.table(figure.numbers))}\n</figure>"
    )


def _inside_script(text: str) -> str:
    """Keep what is inside of a script element from ending it; of all that is not visible, JSON leaves DEL as it is."""
    return text.replace("<", "\\u003c").replace("\x7f", "\\u007f")


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"
