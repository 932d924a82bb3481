"""Choosers and a catalogue: choice sets whose alternatives are items that many choosers share.

    choosers, one row per choice   x   items, one row per item   ->   choice sets, formed in chunks

The product of S choosers and n items would have S n rows. Here, choosers and items are stored once, and the choice sets
are references to items. Chunks of the product are formed when they are needed, for predictions and evaluations. For a
fit, :meth:`CatalogueData.sample_alternatives` draws some items of each choice set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Ints
from pcmcnet.concurrency import read_ahead
from pcmcnet.data.alternative_sampling import DEFAULT_SAMPLE, SamplingProtocol, draw_samples, strata_of
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunked_data import ChunkedData
from pcmcnet.data.columns.arrays import Categorical, Column, Columns, Numeric, stored_values, take
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.pair_features import PairColumns, PairFeature, pair_values
from pcmcnet.data.schema import Schema
from pcmcnet.data.subsets import fold_parts, generator, number_groups, set_positions, split_parts
from pcmcnet.errors import InputError, SchemaError, did_you_mean

CHUNK_ALTERNATIVES = 3 * 2**16  # approximate alternatives per chunk, as for chunks of tables
MAX_BYTES = 2**30  # of a product that is read into memory as a whole
BYTES_PER_ALTERNATIVE = 16  # row number and label, in addition to 4 bytes per feature
CHOSEN, CHOICE_SET = "chosen", "choice_set"  # columns of the long form

U = TypeVar("U")


# -- Parts of the product ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assortments:
    """Items on offer to each chooser: S lists of positions in the catalogue, each ascending."""

    offsets: Ints  # (S + 1,)
    items: NDArray[np.int32]  # (N,)

    def take(self, sets: Ints) -> Assortments:
        """Return the lists of some choosers."""
        sizes = np.diff(self.offsets)[sets]
        return Assortments(np.append(0, np.cumsum(sizes)), self.items[consecutive_indices(self.offsets[sets], sizes)])


@dataclass(frozen=True, eq=False)
class PairFeatures:
    """Features of pairs of a chooser and an item, and the tables that they are computed from."""

    functions: Mapping[str, PairFeature]
    choosers: pa.Table
    items: pa.Table
    chooser_cache: dict[Any, NDArray[Any]] = field(default_factory=dict)
    item_cache: dict[Any, NDArray[Any]] = field(default_factory=dict)

    def columns(self, chooser_rows: Ints, item_rows: Ints) -> dict[str, Column]:
        """Return the features of some pairs, given by their rows in the two tables."""
        choosers = PairColumns(self.choosers, "choosers", chooser_rows, self.chooser_cache)
        items = PairColumns(self.items, "catalogue", item_rows, self.item_cache)
        return {name: Numeric(pair_values(name, f, choosers, items)) for name, f in self.functions.items()}


@dataclass(frozen=True)
class CatalogueChunk:
    """Consecutive choice sets of a product."""

    data: ChoiceData
    first_row: int  # of the chunk in the product

    @property
    def first(self) -> Ints:
        """First row of each set in the product, (S,)."""
        return self.first_row + self.data.offsets[:-1]

    @property
    def table_rows(self) -> Ints:
        """Row in the product of each row of the chunk, (n_rows,)."""
        return self.first_row + np.arange(self.data.n_rows)


# -- The product -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CatalogueData(ChunkedData):
    """Choice sets of choosers who choose from a catalogue of items.

    Use :meth:`ChoiceData.from_catalogue` to read the two tables. Every model predicts from this object, and every
    evaluation accepts it: choice sets are formed in chunks. To fit a model to a large product, draw a sample with
    :meth:`sample_alternatives`. A small product is read into memory. Row r of the product is pair r of a chooser and an
    item: the items of the first chooser come first, in the order of the catalogue.

    Attributes
    ----------
    schema : Schema
        Roles of the columns of the product.
    set_ids : array, (S,)
        Ids of the choice sets: the row numbers of the choosers, unless a column is declared.
    chosen_items : array of int, (S,), or None
        Row of the chosen item in the catalogue, or None if the choices are unknown.
    weights : array of float, (S,)
        Weights of the choosers.
    individual, keep : dict of columns
        Columns of length S of the choosers.
    items : dict of columns
        Columns of length n of the catalogue.
    item_ids : tuple of str
        Ids of the items, as text.
    offers : Assortments or None
        Items on offer to each chooser, or None if every chooser is offered the whole catalogue.
    pair_features : PairFeatures or None
        Functions of pairs of a chooser and an item, and the tables that they read.
    rows : array of int, (S,)
        Rows of the choosers in their table.
    max_bytes : int
        Largest product that is read into memory as a whole, in bytes. Default 1 GiB.
    """

    schema: Schema
    set_ids: NDArray[Any]
    chosen_items: Ints | None
    weights: NDArray[np.float64]
    individual: Columns
    keep: Columns
    items: Columns
    item_ids: tuple[str, ...]
    offers: Assortments | None
    pair_features: PairFeatures | None
    rows: Ints  # (S,) rows of the choosers in the table that was read
    max_bytes: int = MAX_BYTES

    # Sizes and display

    def __len__(self) -> int:
        return len(self.set_ids)

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return len(self.item_ids)

    @property
    def sizes(self) -> Ints:
        """Number of items that each chooser is offered, (S,)."""
        return np.full(len(self), self.n_items) if self.offers is None else np.diff(self.offers.offsets)

    @cached_property
    def offsets(self) -> Ints:
        """First row of each choice set in the product, followed by the number of rows: (S + 1,)."""
        return np.append(0, np.cumsum(self.sizes))

    @property
    def n_alternatives(self) -> int:
        """Number of rows of the product."""
        return int(self.offsets[-1])

    @property
    def n_rows(self) -> int:
        """Number of rows of the product."""
        return self.n_alternatives

    @property
    def largest(self) -> int:
        """Size of the largest set."""
        return int(self.sizes.max(initial=0))

    def __repr__(self) -> str:
        choices = "choices known" if self.chosen_items is not None else "choices unknown"
        offers = "" if self.offers is None else f", of which choosers are offered up to {self.largest:,}"
        return (
            f"CatalogueData({len(self):,} choosers, {self.n_items:,} items{offers}; {len(self.schema.features)} "
            f"features, {len(self.individual)} individual-level columns; {choices})"
        )

    # Choice sets

    def _items_of(self, sets: Ints) -> Ints:
        """Return the items of some choice sets, set after set."""
        if self.offers is None:
            return np.tile(np.arange(self.n_items), len(sets))
        return self.offers.take(sets).items.astype(np.int64)

    def _form(self, sets: Ints, items: Ints, offsets: Ints, chosen: Ints | None) -> ChoiceData:
        """Return choice sets with the given items (N,) and choices (S,), which are positions within the sets."""
        features = take(self.items, items)
        if self.pair_features is not None:
            choosers = np.repeat(self.rows[sets], np.diff(offsets))
            features |= self.pair_features.columns(choosers, items)
        labels = None if self.schema.alternative is None else Categorical(items.astype(np.int32), self.item_ids)
        return ChoiceData(
            schema=self.schema,
            offsets=offsets,
            set_ids=self.set_ids[sets],
            chosen=chosen,
            weights=self.weights[sets],
            features={name: features[name] for name in self.schema.features},
            labels=labels,
            individual=take(self.individual, sets),
            keep=take(self.keep, sets),
            rows=np.arange(len(items)),
        )

    @cached_property
    def _chosen_positions(self) -> Ints | None:
        """Position of the choice within each set, (S,)."""
        if self.chosen_items is None or self.offers is None:
            return self.chosen_items
        items, bounds = self.offers.items, pairwise(self.offers.offsets.tolist())
        positions = (np.searchsorted(items[a:b], c) for (a, b), c in zip(bounds, self.chosen_items, strict=True))
        return np.fromiter(positions, np.int64, len(self))

    def _full_sets(self, sets: Ints) -> ChoiceData:
        chosen = self._chosen_positions
        offsets = np.append(0, np.cumsum(self.sizes[sets]))
        return self._form(sets, self._items_of(sets), offsets, None if chosen is None else chosen[sets])

    def _chunks(self) -> Iterator[CatalogueChunk]:
        cuts = np.searchsorted(self.offsets, np.arange(0, self.n_rows, CHUNK_ALTERNATIVES))
        for begin, end in pairwise(np.unique([*cuts.tolist(), len(self)]).tolist()):
            yield CatalogueChunk(self._full_sets(np.arange(begin, end)), int(self.offsets[begin]))

    def chunks(self) -> Iterator[CatalogueChunk]:
        """Yield all choice sets in chunks. A thread forms the next chunk while the current one is in use."""
        return read_ahead(self._chunks())

    def parts(self) -> Iterator[ChoiceData]:
        """Yield all choice sets as ChoiceData objects of about 200,000 alternatives each. Larger sets are alone."""
        return (chunk.data for chunk in self._chunks())

    def each(self, function: Callable[[ChoiceData], U]) -> Iterator[U]:
        """Yield ``function(part)`` for each part in :meth:`parts`.

        Parameters
        ----------
        function
            Function of one argument, a ChoiceData.
        """
        return map(function, self.parts())

    @property
    def fits(self) -> bool:
        """Whether the product takes at most 1 GiB of memory."""
        return self.n_rows * (BYTES_PER_ALTERNATIVE + 4 * len(self.schema.features)) <= self.max_bytes

    def read(self) -> ChoiceData:
        """Return the product as choice data in memory, whatever its size.

        Returns
        -------
        ChoiceData
            The choice sets, with a row for each pair of a chooser and an item that is offered.
        """
        return self._full_sets(np.arange(len(self)))

    def read_if_fits(self) -> ChoiceData:
        """Return the product as choice data in memory.

        Raises
        ------
        InputError
            If the product would take more than 1 GiB.
        """
        if not self.fits:
            raise InputError(
                f"all choice sets are needed in memory, but {len(self):,} choosers and {self.n_items:,} items have "
                f"{self.n_rows:,} alternatives: fit a model to data.sample_alternatives(n), or select some choosers "
                f"with data.subset(...). evaluate, score, predict and predict_proba support catalogues of any size."
            )
        return self.read()

    def to_frame(self) -> Any:
        """Return the product as a pandas data frame in long form.

        Returns
        -------
        pandas.DataFrame
            A row for each pair of a chooser and an item that is offered, with the columns of
            :meth:`ChoiceData.to_frame`. If the items are not labels, their ids are in a further column, ``item``.

        Raises
        ------
        InputError
            If the product would take more than 1 GiB. ``data.subset(...).to_frame()`` returns some choosers, and
            ``data.sample_alternatives(n).to_frame()`` some items of each choice set.
        """
        if not self.fits:
            raise InputError(
                f"a data frame of {len(self):,} choosers and {self.n_items:,} items would have {self.n_rows:,} rows: "
                f"write data.subset(range(100)).to_frame() for some choosers, or "
                f"data.sample_alternatives(20).to_frame() for some items of each choice set."
            )
        frame = self.read().to_frame()
        if self.schema.alternative is None:
            name = next(name for name in ("item", "item id", "id of the item") if name not in frame)
            frame.insert(1, name, self.ids_of_rows(np.arange(self.n_rows)))
        return frame

    def ids_of_rows(self, rows: Ints) -> NDArray[Any]:
        """Return the ids of the items in some rows of the product.

        Parameters
        ----------
        rows : array of int
            Row numbers of the product.

        Returns
        -------
        array of str
        """
        items = rows % self.n_items if self.offers is None else self.offers.items[rows]
        return np.array(self.item_ids, dtype=object)[items]

    # Samples

    def sample_alternatives(self, n: int = DEFAULT_SAMPLE, *, by: str = "uniform", seed: int = 0) -> ChoiceData:
        """Draw ``n`` items of each choice set, one of which is the choice, to fit a model.

        Parameters
        ----------
        n, by, seed
            As in :meth:`ChoiceData.sample_alternatives`. Popularity is how often the choosers choose an item.

        Returns
        -------
        ChoiceData
            The smaller sets, with their expansion factors.

        Raises
        ------
        InputError
            If the choices are unknown.
        SchemaError
            If ``by`` is not a categorical feature of the items.
        ConfigError
            If ``n`` is below 2.
        """
        self.require_chosen("sampling alternatives")
        positions = self._chosen_positions
        assert positions is not None
        sample = draw_samples(self.sizes, positions, self._protocol(n, by), seed)
        items = sample.positions
        if self.offers is not None:
            items = self.offers.items[items + np.repeat(self.offers.offsets[:-1], np.diff(sample.offsets))].astype(int)
        sampled = self._form(np.arange(len(self)), items, sample.offsets, sample.chosen)
        return replace(sampled, expansion=sample.expansion)

    def _protocol(self, n: int, by: str) -> SamplingProtocol:
        """Return the protocol for drawing items."""
        if by == "uniform":
            return SamplingProtocol(n)
        if by == "popularity":
            assert self.chosen_items is not None
            counts = np.bincount(self.chosen_items, minlength=self.n_items).astype(np.float64)
            return SamplingProtocol(n, popularity=self._of_set(counts))
        return SamplingProtocol(n, strata=self._of_set(strata_of(by, self.items)))

    def _of_set(self, values: NDArray[Any]) -> Callable[[int], NDArray[Any]]:
        """Return a function from a set to the values (n,) of its items."""
        if (offers := self.offers) is None:
            return lambda at: values
        return lambda at: values[offers.items[offers.offsets[at] : offers.offsets[at + 1]]]

    # Methods of ChoiceData

    def require_chosen(self, purpose: str) -> None:
        """Raise InputError if the choices are unknown.

        Parameters
        ----------
        purpose
            Subject of the error message, such as "fit".
        """
        if self.chosen_items is None:
            raise InputError(f"{purpose} needs the choices: read the choosers with chosen=<column>.")

    def __getitem__(self, index: Any) -> CatalogueData:
        """Return the choosers selected by a slice, a list of positions or a mask, as :meth:`subset` does."""
        return self.subset(np.arange(len(self))[index] if isinstance(index, slice) else index)

    __iter__ = None  # not iterable: there is no object for a single set

    def subset(self, index: ArrayLike) -> CatalogueData:
        """Return some of the choosers, with the same catalogue.

        Parameters
        ----------
        index : array
            Positions of the choosers, in the order of the result, or a boolean mask of shape (S,).

        Returns
        -------
        CatalogueData

        Raises
        ------
        InputError
            If a position is out of range or repeated, or if the mask has the wrong shape.
        """
        sets = set_positions(np.asarray(index), len(self))
        return replace(
            self,
            set_ids=self.set_ids[sets],
            chosen_items=None if self.chosen_items is None else self.chosen_items[sets],
            weights=self.weights[sets],
            individual=take(self.individual, sets),
            keep=take(self.keep, sets),
            offers=None if self.offers is None else self.offers.take(sets),
            rows=self.rows[sets],
        )

    def with_positive_weight(self) -> CatalogueData:
        """Return the choosers with a weight above 0."""
        positive = self.weights > 0
        return self if positive.all() else self.subset(positive)

    def groups(self, by: str | ArrayLike | None = None) -> Ints:
        """Return the group number of each chooser, (S,).

        Parameters
        ----------
        by : str or array, optional
            As in :meth:`ChoiceData.groups`. By default, the rows of a person form a group if persons are declared.

        Raises
        ------
        InputError
            If ``by`` is an array that does not have one value per chooser.
        SchemaError
            If ``by`` is neither an individual-level nor a kept column.
        """
        by = self.schema.group_column if by is None else by
        if by is None or (isinstance(by, str) and by == self.schema.choice_set):
            return np.arange(len(self))
        if isinstance(by, str):
            columns = {**self.individual, **self.keep}
            if by not in columns:
                raise SchemaError(
                    f"column {by!r} is neither an individual-level nor a kept column of the choosers, so it cannot "
                    f"group them: read the tables with keep=[{by!r}]." + did_you_mean(by, columns)
                )
            return number_groups(stored_values(columns[by]))
        values = np.asarray(by)
        if values.shape != (len(self),):
            raise InputError(f"by: expected one value per chooser ({len(self)}), got shape {values.shape}.")
        return number_groups(values)

    def split(
        self, parts: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0, by: str | ArrayLike | None = None
    ) -> tuple[CatalogueData, ...]:
        """Split the choosers at random into parts of the given shares.

        Parameters
        ----------
        parts, seed, by
            As in :meth:`ChoiceData.split`.

        Returns
        -------
        tuple of CatalogueData
            One part per share.

        Raises
        ------
        InputError
            If the shares do not add up to 1, or if there are fewer groups than parts.
        SchemaError
            If ``by`` is neither an individual-level nor a kept column.
        """
        return tuple(self.subset(part) for part in split_parts(self.groups(by), parts, generator(seed)))

    def folds(
        self, k: int = 5, *, seed: int = 0, by: str | ArrayLike | None = None
    ) -> list[tuple[CatalogueData, CatalogueData]]:
        """Split the choosers into k folds for cross-validation.

        Parameters
        ----------
        k, seed, by
            As in :meth:`ChoiceData.folds`.

        Returns
        -------
        list of (CatalogueData, CatalogueData)
            A pair for each fold: the choosers outside the fold, and those of the fold.

        Raises
        ------
        InputError
            If ``k`` is below 2 or above the number of groups.
        SchemaError
            If ``by`` is neither an individual-level nor a kept column.
        """
        everything = np.arange(len(self))
        folds = fold_parts(self.groups(by), k, generator(seed))
        return [(self.subset(np.setdiff1d(everything, fold)), self.subset(fold)) for fold in folds]

    def by_row(self, values: Iterable[tuple[Ints, ArrayLike]]) -> NDArray[np.float64]:
        """Arrange the values of all chunks in the order of the rows of the product.

        Parameters
        ----------
        values
            Rows and values of each chunk.
        """
        out = np.empty(self.n_rows)
        for rows, of_chunk in values:
            out[rows] = of_chunk
        return out

    def by_set(self, values: Iterable[tuple[Ints, NDArray[np.float64]]]) -> NDArray[np.float64]:
        """Return the values of all chunks in the order of the choosers.

        Parameters
        ----------
        values
            First row of each choice set, and values of the choice sets, of each chunk.
        """
        return np.concatenate([np.empty(0), *(of_sets for _, of_sets in values)])

    def fingerprint(self) -> str:
        """Return a SHA-256 hash of the choosers, the items and the choices.

        The product in memory has another fingerprint. The values of pair features are represented by those of the first
        and the last choice set.
        """
        digest = hashlib.sha256(str((len(self), self.n_items)).encode())
        ends = np.unique([0, len(self) - 1]) if len(self) else np.empty(0, np.int64)
        digest.update(self._full_sets(ends).fingerprint().encode())
        # every chooser with the chosen item, or the first item if choices are unknown
        sets, offsets = np.arange(len(self)), np.arange(len(self) + 1)
        items = np.zeros(len(self), np.int64) if self.chosen_items is None else self.chosen_items
        digest.update(self._form(sets, items, offsets, None).fingerprint().encode())
        for array in (items, *(() if self.offers is None else (self.offers.offsets, self.offers.items))):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the summary that a fitted model saves, of a few choosers: see :meth:`ChoiceData.describe`."""
        choosers = max(CHUNK_ALTERNATIVES // max(self.largest, 1), 1)
        return self.subset(np.arange(min(len(self), choosers))).read().describe()
