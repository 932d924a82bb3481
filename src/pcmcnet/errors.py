"""The exceptions of pcmcnet: one root, one class per kind of trouble.

Every message says what was expected, what was found, where, and what to do. Whatever comes from
bad input is a ``ValueError`` too, so callers may catch either. Names and ids of a table or a file are shown in
messages, so what a terminal would obey is written out: no message moves the cursor, hides a line or rings a bell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

# Control characters but tab and new line, marks that turn the direction of text, and halves of characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 60  # characters of a value that is shown


class PcmcNetError(Exception):
    """Root of all exceptions raised on purpose by pcmcnet."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(PcmcNetError, ValueError):
    """Something given to pcmcnet is not usable as it is."""


class SchemaError(InputError):
    """A table does not fit the roles declared for its columns."""


class ConfigError(InputError):
    """An option has an unknown name or an impossible value."""


class ChainError(InputError):
    """A rate matrix has no unique stationary distribution."""


class ArtifactError(InputError):
    """A saved model or another result is missing, damaged, altered or too new, or cannot be written."""


class DatasetError(InputError):
    """A named table cannot be found; the message gives the command that installs it."""


class NotFittedError(PcmcNetError, RuntimeError, AttributeError):
    """A model was asked for something before ``fit``; an AttributeError, since fitted attributes do not exist yet."""


class StopFit(PcmcNetError):  # noqa: N818 - a wish, and no error
    """Raised by a callback of an epoch to end a fit there, with what was learnt so far."""


class TrainingError(PcmcNetError, RuntimeError):
    """Training broke down; the last good state is kept where a run folder was given."""


def printable(text: str) -> str:
    r"""Write out what a terminal would obey or could not show.

    >>> print(printable("price \x1b[2J"))
    price \x1b[2J
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known word, else the list of what is known."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Known: {', '.join(names)}." if names else ""


def shortened(text: str, most: int = 500) -> str:
    """Cut off what a message quotes at length."""
    return text if len(text) <= most else text[:most] + "..."


def describe_value(value: Any) -> str:
    """Show what was found, in few characters: a client may send anything."""
    match value:
        case None:
            return "null"
        case True | False:
            return str(value).lower()
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case str():
            return repr(shortened(value, _LONGEST))
        case int():  # Python refuses to write very long ones
            return str(value) if abs(value) < 10**_LONGEST else f"a whole number of more than {_LONGEST} digits"
        case _:
            return str(value)
