"""The exceptions of pcmcnet: one base class, and one class per cause.

Each message states what was expected, what was found, where, and what to do. Errors about bad input are also subclasses
of ``ValueError``, so callers may catch either type. Messages quote names and ids from tables and files. Control
characters in these texts are escaped, so that no message moves the cursor, hides a line or rings a bell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

# Control characters except tab and newline, line separators, marks that change the direction of text, and surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_MAX_VALUE_CHARACTERS = 60  # of a value quoted in a message


class PcmcNetError(Exception):
    """Base class of all exceptions that pcmcnet raises itself.

    Parameters
    ----------
    *arguments
        The message.
    command_line
        The message on the command line, if it names options of a command instead of arguments of a function.
    """

    def __init__(self, *arguments: object, command_line: str | None = None) -> None:
        Exception.__init__(self, *arguments)  # torch.compile cannot trace super().__init__() of a built-in class
        self.command_line = command_line

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(PcmcNetError, ValueError):
    """An argument, a table or a file is not valid."""


class SchemaError(InputError):
    """A table does not match the roles declared for its columns."""


class ConfigError(InputError):
    """An option has an unknown name or an impossible value."""


class UndefinedTermError(ConfigError):
    """A formula contains a transformation that is neither built in nor defined by ``pcmcnet.term``."""


class ArgumentError(ConfigError, TypeError):
    """A function has no argument of this name. The message names the remedy. This is also a TypeError."""


class ChainError(InputError):
    """A rate matrix has no unique stationary distribution."""


class ArtifactError(InputError):
    """A saved model or other result is missing, damaged, altered, too new, or cannot be written."""


class DatasetError(InputError):
    """A named data set is not installed. The message gives the command that installs it."""


class NotFittedError(PcmcNetError, RuntimeError, AttributeError):
    """A method or attribute that needs a fitted model was used before ``fit``. This is also an AttributeError."""


class StopFit(PcmcNetError):  # noqa: N818 - a request, not an error
    """Raise this exception in an ``on_epoch`` callback to stop a fit. The model keeps what it has learnt so far."""


class TrainingError(PcmcNetError, RuntimeError):
    """Training failed or diverged. If there is a run folder, it holds the last good state."""


class ResourceError(PcmcNetError, MemoryError):
    """The system does not provide enough memory or threads."""


# Errors of libraries that mean a lack of memory, or of threads, whose stacks need memory.
_LACK_OF_RESOURCES = (
    *("out of memory", "allocate memory", "not enough memory", "realloc of size", "malloc of size"),
    *("can't start new thread", "Resource temporarily unavailable", "failed to map segment"),
)


def is_lack_of_resources(error: BaseException) -> bool:
    """Return True if an error of any library means that the system does not provide enough memory or threads.

    >>> is_lack_of_resources(RuntimeError("can't start new thread"))
    True
    """
    return isinstance(error, MemoryError) or any(words in str(error) for words in _LACK_OF_RESOURCES)


def printable(text: str) -> str:
    r"""Return text with control characters escaped.

    >>> print(printable("price \x1b[2J"))
    price \x1b[2J
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_MIN_SIMILARITY = 0.61  # difflib's default, 0.6, takes "income" for a misspelt "time"


def did_you_mean(word: object, words: Iterable[str], other_names: Mapping[str, str] | None = None) -> str:
    """Return " Did you mean 'x'?" for the closest of the valid words, or list the valid words if none is close.

    ``other_names`` maps names that other packages use, in lower case and with hyphens, to valid words.

    >>> did_you_mean("Logit", ["mnl", "reslogit"], {"logit": "mnl"})
    " Did you mean 'mnl'?"
    """
    names = sorted(words)
    other = (other_names or {}).get(str(word).lower().replace("_", "-").replace(" ", "-"))
    same = [name for name in names if name.casefold() == str(word).strip().casefold()]  # but for capitals and blanks
    near = [other] if other in names else same or get_close_matches(str(word), names, n=1, cutoff=_MIN_SIMILARITY)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Known: {', '.join(names)}." if names else ""


def such_rows(number: int) -> str:
    """Return the number of bad rows, as in "; 3 such rows"."""
    return "1 such row" if number == 1 else f"{number} such rows"


def shortened(text: str, max_characters: int = 500) -> str:
    """Truncate text that is quoted in a message."""
    return text if len(text) <= max_characters else text[:max_characters] + "..."


def describe_value(value: Any) -> str:
    """Describe a JSON value of a request in a few characters, for an error message."""
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
            return repr(shortened(value, _MAX_VALUE_CHARACTERS))
        case int():  # str() raises for integers of more than 4,300 digits
            is_short = abs(value) < 10**_MAX_VALUE_CHARACTERS
            return str(value) if is_short else f"a whole number of more than {_MAX_VALUE_CHARACTERS} digits"
        case _:
            return str(value)
