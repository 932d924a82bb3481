"""Sections -> one HTML page that is whole in itself: nothing is fetched, and a content security policy forbids it.

The page follows the reader's light or dark mode, fits a phone and prints. Where it has figures of plotly, plotly's own
script lies in it; without scripts, each such figure is the table of its numbers. The markup is in ``templates``; every
text is escaped there, and what a terminal would obey is written out, so that no caller can forget it.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcmcnet.errors import ConfigError, InputError, visible
from pcmcnet.reports.sections import Block, Figure, Section, Table
from pcmcnet.storage.files import write_bytes

if TYPE_CHECKING:
    from jinja2 import Environment


def to_html(title: str, sections: Sequence[Section]) -> str:
    """Return the page as text.

    Raises
    ------
    ConfigError
        When there are figures and plotly, whose script goes into the page, is not installed.
    """
    drawn = any(isinstance(block, Figure) for section in sections for block in section.blocks)
    library = plotly_script() if drawn else None
    return _templates().get_template("report.html.jinja").render(title=title, sections=sections, library=library)


def to_fragment(title: str, blocks: Sequence[Block]) -> str:
    """Return blocks without figures as a part of a page, such as a notebook's, whose colours and letters it takes."""
    return _templates().get_template("fragment.html.jinja").render(title=title, blocks=blocks)


def write_html(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page, whole or not at all; refuses a name that does not end in .html."""
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise InputError(f"expected a file name that ends in .html, got {target.name!r}.")
    write_bytes(target, text.encode())
    return target


def plotly_script() -> str:
    """Return plotly's JavaScript, out of the installed package; the package itself is not loaded."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise ConfigError("a report with figures needs plotly: pip install plotly, or 'pcmcnet[serve]'.")
    text = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text("utf-8")
    return text.replace("</script", "<\\/script")


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("pcmcnet.reports"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    templates.policies["json.dumps_function"] = _json
    templates.filters |= {"lines": _lines, "base64": _base64}
    templates.globals["Table"] = Table
    return templates


def _shown(value: Any) -> Any:
    """Write out what a terminal would obey; what is markup already, such as plotly's script, stays as it is."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _json(value: Any, **_: Any) -> str:
    """Write JSON without what is not visible; of that, Python's own leaves DEL as it is."""
    return json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")


def _base64(file: Path) -> str:
    return b64encode(file.read_bytes()).decode()


def _lines(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield what shares a line of the page: neighbouring figures that need half of it, and each other block alone."""
    for narrow, group in groupby(blocks, key=lambda block: getattr(block, "narrow", False)):
        together = list(group)
        yield from [together] if narrow else ([block] for block in together)
