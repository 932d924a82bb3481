"""What to write instead of the syntax of other packages: formulas of R, patsy, mlogit and larch.

Each rule rewrites one construct, such as ``x * z`` as ``x + z + x:z``. A formula that cannot be parsed is rewritten by
all rules; if the result can be parsed, the error shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAME = r"(?:`(?:[^`]|``)+`|[^\W\d][\w.]*)"
_FACTOR = rf"(?:{_NAME}\([^()]*\)|{_NAME})"
_POWER = r"\s*(?:\^|\*\*)\s*2(?![\d.])"

# Pattern, replacement, and the reason, which completes the sentence "formula '...': ...".
RULES: list[tuple[str, str, str]] = [
    (r"^[^~]*~", "", "a formula has no left side, because the table declares which alternative is chosen"),
    (rf"\bI\(\s*({_NAME}){_POWER}\s*\)", r"square(\1)", "squares are written square(COLUMN)"),
    (rf"\bI\(\s*({_FACTOR})\s*\)", r"\1", "I(...) is not needed"),
    (rf"\bpoly\(\s*({_NAME})\s*,\s*2\s*\)", r"\1 + square(\1)", "polynomials are sums of terms"),
    (rf"({_NAME}){_POWER}", r"square(\1)", "squares are written square(COLUMN)"),
    (rf"\b(?:C|factor|as\.factor)\(\s*({_NAME})\s*\)", r"\1", "categories need no function"),
    (r"\b(?:scale|standardize|center)\(", "standardise(", "standardised columns are written standardise(COLUMN)"),
    (rf"({_FACTOR})\s*\*\s*({_FACTOR})", r"\1 + \2 + \1:\2", "interactions are written with ':'"),
]  # fmt: skip


def rewritten(text: str, parse: Callable[[str], object]) -> tuple[str, str] | None:
    """Return what to write instead of a formula of another package, and why, or None if no rule helps.

    Parameters
    ----------
    text
        A formula that cannot be parsed.
    parse
        Function that raises ValueError if a formula cannot be parsed.

    Examples
    --------
    >>> rewritten("y ~ x * z", lambda text: None)[0]
    'x + z + x:z'
    """
    reasons, formula = [], text
    for pattern, replacement, reason in RULES:
        changed = re.sub(pattern, replacement, formula)
        if changed != formula:
            formula = changed
            reasons += [reason] if reason not in reasons else []
    # "- 1" removes the intercept in R. Here, constants are in the second part.
    parts = formula.split("|")
    for k, part in enumerate(parts[:2]):
        without = re.sub(r"(^|\s)-\s*1\s*$", "", part)
        if without != part:
            parts[k] = without
            parts[1:2] = [f"{parts[1]} + 0" if len(parts) > 1 and parts[1].strip() else " 0"]
            reasons.append("'| 0' leaves out the constants")
    formula = " | ".join(" ".join(part.split()) for part in parts)
    if not reasons:
        return None
    try:
        parse(formula)
    except ValueError:
        return None
    return formula, " and ".join(reasons)
