"""Options are told with the words of their docstrings."""

from dataclasses import dataclass, field

import pytest

from pcmcnet.models.interface.option_docs import REQUIRED, option_docs, plain_roles


@dataclass
class Base:
    """Some options.

    Parameters
    ----------
    low, high
        Ends of the range, see
        :class:`~pcmcnet.Other`.
    """

    low: int
    high: int = 3


@dataclass
class More(Base):
    """More of them.

    Parameters
    ----------
    names
        Any ``names``.

    Returns
    -------
    nothing
        At all.
    """

    names: list[str] = field(default_factory=list)


def test_options_have_the_words_of_their_own_class_and_of_those_it_extends() -> None:
    ends = "Ends of the range, see `pcmcnet.Other`."
    assert option_docs(More) == [("low", REQUIRED, ends), ("high", 3, ends), ("names", [], "Any `names`.")]


def test_an_option_without_words_is_refused() -> None:
    @dataclass
    class Silent(Base):
        other: int = 0

    with pytest.raises(LookupError, match=r"Silent: no docstring describes other\."):
        option_docs(Silent)


def test_references_become_code() -> None:
    assert plain_roles("see :meth:`fit` and ``x``") == "see `fit` and `x`"
