"""The interface of choice sets that are processed chunk by chunk, because they may not fit into memory.

Scanned tables (:mod:`pcmcnet.data.scan`) read their chunks from disk. Catalogues (:mod:`pcmcnet.data.catalogue_data`)
form their chunks from choosers and items. Predictions and evaluations depend only on this interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.schema import Schema

U = TypeVar("U")


class DataChunk(Protocol):
    """Choice sets of a chunk, and their place in the whole data."""

    @property
    def data(self) -> ChoiceData:
        """The choice sets, with rows numbered from 0."""

    @property
    def first(self) -> Ints:
        """First row of each set in the whole data, (S,)."""

    @property
    def table_rows(self) -> Ints:
        """Row in the whole data of each row of the chunk, (n_rows,)."""


class ChunkedData(ABC):
    """Base class of choice sets in chunks."""

    if TYPE_CHECKING:  # an attribute here would be the default value of a field of the same name

        @property
        def schema(self) -> Schema:
            """Roles of the columns."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of choice sets."""

    @property
    @abstractmethod
    def n_alternatives(self) -> int:
        """Number of available alternatives over all sets."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """Size of the largest set."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows of the whole data, including unavailable alternatives."""

    @abstractmethod
    def chunks(self) -> Iterator[DataChunk]:
        """Yield all sets in chunks. A thread prepares the next chunk while the current one is in use."""

    @abstractmethod
    def parts(self) -> Iterator[ChoiceData]:
        """Yield all sets as ChoiceData objects of bounded size."""

    @abstractmethod
    def each(self, function: Callable[[ChoiceData], U]) -> Iterator[U]:
        """Yield ``function(part)`` for each part in :meth:`parts`.

        Parameters
        ----------
        function
            Function of one argument, a ChoiceData.
        """

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Whether all sets fit into memory."""

    @abstractmethod
    def read(self) -> ChoiceData:
        """Return all sets in memory."""

    @abstractmethod
    def read_if_fits(self) -> ChoiceData:
        """Return all sets in memory, or raise InputError if they do not fit."""

    @abstractmethod
    def with_positive_weight(self) -> ChunkedData:
        """Return the sets with a weight above 0."""

    @abstractmethod
    def require_chosen(self, purpose: str) -> Any:
        """Raise InputError if the choices are unknown.

        Parameters
        ----------
        purpose
            Subject of the error message, such as "fit".
        """

    @abstractmethod
    def groups(self, by: Any = None) -> Ints:
        """Return a group number for each set.

        Parameters
        ----------
        by
            Name of an individual-level or kept column. By default, persons form groups.
        """

    @abstractmethod
    def by_row(self, values: Iterable[tuple[Ints, ArrayLike]]) -> NDArray[np.float64]:
        """Arrange the values of all chunks in the order of the rows.

        Parameters
        ----------
        values
            Rows and values of each chunk.
        """

    @abstractmethod
    def by_set(self, values: Iterable[tuple[Ints, NDArray[np.float64]]]) -> NDArray[np.float64]:
        """Return the values of all chunks in the order of the choice sets.

        Parameters
        ----------
        values
            First row of each choice set, and values of the choice sets, of each chunk.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a SHA-256 hash of the choice sets."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the summary that a fitted model saves."""


def read_chunked(data: Any) -> Any:
    """Return choice sets in memory if ``data`` has chunks, and any other data unchanged.

    Raises
    ------
    InputError
        If the choice sets do not fit into memory.
    """
    return data.read_if_fits() if isinstance(data, ChunkedData) else data
