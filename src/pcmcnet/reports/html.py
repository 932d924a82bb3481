"""Parts of a result -> one HTML page that is whole in itself: no script, no font, nothing fetched from elsewhere.

It follows the reader's light or dark mode, fits a phone and prints. Text is escaped here, and what cannot be seen of it
written out; what is given as ``body`` is HTML already.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from html import escape as escape_markup
from pathlib import Path

from pcmcnet.errors import InputError, visible
from pcmcnet.storage.files import write_bytes

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #5c5c5c; --rule: #d5d5d5;
  --dot: #0072b2; --best: #c04e00; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e8e8e8; --soft: #a4a4a4; --rule: #3c4048;
  --dot: #5ab4e6; --best: #ff9e57; } }
@media print { :root { --back: #fff; --text: #000; --soft: #444; --rule: #bbb; --dot: #0072b2; --best: #c04e00; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 75rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child, td.failed, .facts td { text-align: left; }
th { color: var(--soft); font-weight: 600; } tr.best td, tr.best th { font-weight: 600; }
tbody th { color: var(--text); } td.failed { white-space: normal; color: var(--best); }
.facts th { text-align: left; vertical-align: top; } .facts td { white-space: normal; }
.note { color: var(--soft); font-size: .9rem; margin: .4rem 0; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: .9rem; color: var(--soft); }
img { max-width: 100%; height: auto; background: #fff; }
td.words { white-space: normal; min-width: 10rem; } td.words, th.words { text-align: left; }
.thumbnail { height: 3.5rem; max-width: 6rem; object-fit: contain; vertical-align: middle; }
@media (max-width: 40rem) { .cards thead { display: none; }
  .cards tr { display: block; padding: .3rem 0; border-bottom: 1px solid var(--rule); }
  .cards th, .cards td { display: flex; justify-content: space-between; gap: 1rem; padding: .05rem .45rem; border: 0;
    white-space: normal; min-width: 0; }
  .cards td::before { content: attr(data-head); flex: none; max-width: 50%; color: var(--soft); text-align: left; }
  .cards td.words { text-align: right; } }
"""

_MANY, _LONG = 3, 28  # columns that a phone has room for, and letters that need no second line


def escape(text: str) -> str:
    r"""Keep text from being taken for markup, and show its control characters: names come out of other people's tables.

    >>> print(escape("a<b\x1b[2J"))
    a&lt;b\x1b[2J
    """
    return escape_markup(visible(text))


def page(title: str, body: str, *, style: str = "", head: str = "") -> str:
    """Return a page with its heading and style; ``style`` is added to that of all pages, ``head`` to its head."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
{head}<style>{_STYLE}{style}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
</body>
</html>
"""


def table(cells: Sequence[Sequence[str]], *, strong: Collection[int] = ()) -> str:
    """Return a table that scrolls sideways where it is too wide; on a phone, rows of many columns become cards.

    ``cells`` are rows of text, the heads first; the rows after them that ``strong`` numbers, from 0, are set in bold.
    A row shorter than the heads, such as that of a failure, ends in a cell that takes the rest of the line.
    """
    head, *body = cells
    whole = [row for row in body if len(row) == len(head)]
    words = [k > 0 and any(len(row[k]) > _LONG for row in whole) for k in range(len(head))]
    kinds = [' class="words"' if long else "" for long in words]
    heads = "".join(f'<th scope="col"{kind}>{escape(cell)}</th>' for cell, kind in zip(head, kinds, strict=True))
    rows = "\n".join(_row(row, head, kinds, strong=k in strong) for k, row in enumerate(body))
    kind = ' class="cards"' if len(head) > _MANY else ""
    return (
        f'<div class="wide"><table{kind}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'
    )


class Thumbnail(str):
    """A cell that is a picture: its text stands for it where there are only letters."""

    __slots__ = ("uri",)
    uri: str

    @classmethod
    def of(cls, uri: str, text: str = "picture") -> Thumbnail:
        """Show a picture that lies in a data URI, which is all that a page may load."""
        cell = cls(text)
        cell.uri = uri
        return cell


def _cell(cell: str, head: str, kind: str) -> str:
    """A cell, with its head where rows may become cards."""
    inner, named = escape(cell), f' data-head="{escape(head)}"' if head else ""
    if isinstance(cell, Thumbnail) and cell.uri.startswith("data:image/"):
        inner = f'<img class="thumbnail" alt="{inner}" src="{escape(cell.uri)}">'
    return f"<td{kind}{named}>{inner}</td>"


def _row(row: Sequence[str], heads: Sequence[str], kinds: Sequence[str], *, strong: bool) -> str:
    label, *cells = row
    kind, width = ' class="best"' if strong else "", len(heads)
    if len(row) < width:
        *cells, last = cells
        rest = f'<td class="failed" colspan="{width - len(row) + 1}">{escape(last)}</td>'
    else:
        rest = ""
    named = heads[1:] if width > _MANY else [""] * width
    inner = "".join(map(_cell, cells, named, kinds[1:])) + rest
    return f'<tr{kind}><th scope="row">{escape(label)}</th>{inner}</tr>'


def facts(pairs: Mapping[str, object]) -> str:
    """Return a table of names and what is to be said of them."""
    rows = "\n".join(f"<tr><th>{escape(k)}</th><td>{escape(str(v))}</td></tr>" for k, v in pairs.items())
    return f'<div class="wide"><table class="facts">\n{rows}\n</table></div>'


def note(text: str) -> str:
    """Return a paragraph in small letters."""
    return f'<p class="note">{escape(text)}</p>'


def picture(png: bytes, caption: str) -> str:
    """Return a PNG picture that lies in the page itself."""
    text = escape(caption)
    data = b64encode(png).decode()
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def write_page(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page, whole or not at all; refuses a name that does not end in .html."""
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise InputError(f"expected a file name that ends in .html, got {target.name!r}.")
    write_bytes(target, text.encode())
    return target
