r"""Convert the formulas of the documentation to MathML: a hook of mkdocs.yml.

Pages write LaTeX, ``$q_{ij}$`` within a line and ``$$ ... $$`` as a block. The Markdown extension arithmatex marks each
formula; this hook replaces it by MathML, which browsers display without a script, a font or a network.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace each marked formula by MathML; mkdocs calls this for every page."""
    return _FORMULA.sub(lambda match: _mathml(match[2], is_block=match[1] == "["), content)


def _mathml(latex: str, *, is_block: bool) -> str:
    formula: str = convert(html.unescape(latex.strip()), display="block" if is_block else "inline")
    return formula
