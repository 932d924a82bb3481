"""Choice sets in memory: columnar and ragged.

Alternatives of all sets lie in flat arrays of length sum(n_S), set after set; ``offsets`` says where each
set begins. Nothing is padded and nothing is kept per set but offsets, ids, individual columns and choices.
Rows of the table that was read keep their places in ``rows``, so that a result can be given back in the
order of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Bools, Ints
from pcmcnet.data import long, wide
from pcmcnet.data.columns.arrays import Categorical, Columns, Contents, stored_values
from pcmcnet.data.describe import describe
from pcmcnet.data.files.tabular import folder_of
from pcmcnet.data.outside import outside_rows
from pcmcnet.data.schema import Conflict, Missing, Schema
from pcmcnet.data.subsets import (
    fingerprint,
    fold_parts,
    generator,
    join,
    number_groups,
    set_positions,
    split_parts,
    take_sets,
)
from pcmcnet.errors import InputError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from pcmcnet.data.scan import ScannedData

U = TypeVar("U")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChoiceData:
    """Choice sets with their alternatives, individuals and choices.

    Build one with :meth:`from_long` or :meth:`from_wide`. ``S`` is the number of sets, ``N`` the number of
    available alternatives over all sets.

    Attributes
    ----------
    schema
        The roles of the table's columns, with the kinds of all columns resolved.
    offsets
        (S + 1,) where each set begins in the flat arrays.
    set_ids
        (S,) ids of the choice sets, in the order of their first row.
    chosen
        (S,) position of the chosen alternative within its set, or None.
    weights
        (S,) weights of the sets; ones where none were declared.
    features, labels
        Columns of length N; ``labels`` is None where no alternative column was declared.
    individual, keep
        Columns of length S; ``keep`` has the persons, too, where they are declared, and the ids of rankings.
    rows, hidden_rows, hidden_sets
        Table row of each alternative; table rows and sets of the unavailable ones.
    added
        Number of rows behind those of the table: outside options that the table has no rows of.
    """

    schema: Schema
    offsets: Ints
    set_ids: NDArray[Any]
    chosen: Ints | None
    weights: NDArray[np.float64]
    features: Columns
    labels: Categorical | None
    individual: Columns
    keep: Columns
    rows: Ints
    hidden_rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    hidden_sets: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    added: int = 0

    # Tables -> choice data

    @classmethod
    def from_long(
        cls,
        table: Any,
        *,
        choice_set: str,
        chosen: str | None = None,
        rank: str | None = None,
        alternative: str | None = None,
        individual: Sequence[str] = (),
        features: Sequence[str] = (),
        categorical: Sequence[str] | None = None,
        available: str | None = None,
        weight: str | None = None,
        person: str | None = None,
        keep: Sequence[str] = (),
        outside: str | None = None,
        conflict: Conflict = "error",
        missing: Missing = "error",
        kinds: Mapping[str, str] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read a long table: one row per alternative, rows in any order.

        Parameters
        ----------
        table
            A path (.csv, .csv.gz, .parquet, .arrow, a folder of parquet), a mapping of arrays, or any data
            frame that narwhals knows (pandas, polars, pyarrow, ...).
        choice_set, chosen, rank, alternative, individual, features, categorical
            The roles of the columns: see :class:`Schema`.
        available, weight, person, keep, outside, conflict, missing, kinds
            Likewise.
        columns
            What people call columns in reports and on the served page, and their units, as in
            ``{"price": {"name": "Price", "unit": "EUR"}}``.

        Returns
        -------
        ChoiceData

        Raises
        ------
        SchemaError
            When the table does not fit the roles; the message names the column, row, choice set and remedy.

        Examples
        --------
        >>> from pcmcnet.data import ChoiceData
        >>> table = {"trip": [1, 1, 2, 2, 2], "mode": ["car", "bus", "car", "bus", "bike"], "took": [1, 0, 0, 0, 1]}
        >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode")
        >>> len(data), data.sizes.tolist(), data.chosen.tolist()
        (2, [2, 3], [0, 2])
        """
        schema = Schema(
            choice_set=choice_set,
            chosen=chosen,
            rank=rank,
            alternative=alternative,
            individual=individual,  # type: ignore[arg-type]  # any sequence; the schema makes tuples
            features=features,  # type: ignore[arg-type]
            categorical=categorical,  # type: ignore[arg-type]
            available=available,
            weight=weight,
            person=person,
            keep=keep,  # type: ignore[arg-type]
            outside=outside,
            conflict=conflict,
            missing=missing,
            kinds=kinds or {},
            named=columns or {},
        )
        return cls.from_schema(table, schema)

    @classmethod
    def from_schema(cls, table: Any, schema: Schema) -> Self:
        """Read a table by a schema, for example that of a fitted model or of a TOML file.

        A wide table is read as one where the schema is that of a wide table.
        """
        woven = wide.long_form(table, schema)
        return cls(**long.read_long(table if woven is None else woven, schema, folder=folder_of(table)))

    @classmethod
    def from_wide(
        cls,
        table: Any,
        *,
        chosen: str | None = None,
        rank: str | Mapping[Any, str | float] | None = None,
        alternatives: Sequence[str | int] | Mapping[Any, Any],
        features: Mapping[str, str | Mapping[Any, str | float]],
        individual: Sequence[str] = (),
        available: str | Mapping[Any, str | float] | None = None,
        weight: str | None = None,
        choice_set: str | None = None,
        categorical: Sequence[str] | None = None,
        person: str | None = None,
        keep: Sequence[str] = (),
        outside: str | None = None,
        missing: Missing = "error",
        kinds: Mapping[str, str] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read a wide table: one row per choice, one group of columns per alternative.

        Parameters
        ----------
        table
            As for :meth:`from_long`.
        chosen
            Column that says which alternative was chosen; None when that is to be predicted, or ranked.
        rank
            Where the rank of each alternative is, 1 for the best and empty for those below: as ``features``.
        alternatives
            The labels, such as ``["car", "bus"]`` or ``[1, 2]``, as ``chosen`` has them; or a mapping from each label
            to the value that stands for it in ``chosen``.
        features
            For each feature, where its values are: a template such as ``"{alternative}_TT"``, or a mapping
            from each label to a column name or to a number that holds for every row.
        available
            Likewise for the 0/1 availability of each alternative.
        individual, weight, choice_set, categorical, person, keep, outside, missing, kinds, columns
            As for :meth:`from_long`; without ``choice_set`` every row is its own set.

        Returns
        -------
        ChoiceData
            Its rows are those of the long form: row r * len(alternatives) + k is alternative k of row r.

        Examples
        --------
        >>> from pcmcnet.data import ChoiceData
        >>> data = ChoiceData.from_wide(
        ...     {"choice": [2, 1], "car_time": [10, 12], "bus_time": [20, 9]},
        ...     chosen="choice",
        ...     alternatives={"car": 1, "bus": 2},
        ...     features={"time": "{alternative}_time"},
        ... )
        >>> data.chosen.tolist(), data.features["time"].values.tolist()
        ([1, 0], [10.0, 20.0, 12.0, 9.0])
        """
        table_, schema = wide.to_long(
            table,
            chosen=chosen,
            rank=rank,
            alternatives=alternatives,
            features=features,
            individual=individual,
            available=available,
            weight=weight,
            choice_set=choice_set,
            categorical=categorical,
            person=person,
            keep=keep,
            outside=outside,
            missing=missing,
            kinds=kinds or {},
            columns=columns,
        )
        return cls(**long.read_long(table_, schema, folder=folder_of(table)))

    @classmethod
    def scan(
        cls,
        table: str | Path,
        *,
        cache: str | Path | None = None,
        memory: str | int = "1 GiB",
        workers: int | None = None,
        **roles: Any,
    ) -> ScannedData:
        """Scan a long table that may be larger than memory, and return its choice sets as they lie on disk.

        The table is checked as by :meth:`from_long` and converted once: a second scan of the same files is instant.

        Parameters
        ----------
        table
            A folder of parquet, or a file: .parquet, .arrow, .csv, .csv.gz. Rows of a set may lie in different files.
        cache
            Folder for the converted table; by default beside the table, with the ending .pcmcnet.
        memory
            What the choice sets may take in memory at any time, now and in training.
        workers
            Threads that convert the table, each of which takes up to two fifths of the memory; the shards are the same
            for any number. By default two where there are two cores.
        roles
            The roles of the columns, as for :meth:`from_long`.
        """
        from pcmcnet.data.scan import ScannedData  # which builds on this module

        return ScannedData.of(table, Schema.from_dict(roles), cache=cache, memory=memory, workers=workers)

    # What there is

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def shape(self) -> tuple[int]:
        """(S,): tools such as scikit-learn's take choice data for an array of choice sets."""
        return (len(self),)

    def __getitem__(self, index: Any) -> ChoiceData:
        """Take some sets, by a slice, a list of positions or a mask: see :meth:`subset`."""
        first = index[0] if isinstance(index, tuple) and index[1:] == (Ellipsis,) else index  # as an array is asked
        return self.subset(np.arange(len(self))[first] if isinstance(first, slice) else first)

    __iter__ = None  # a set is no value of its own

    @property
    def sizes(self) -> Ints:
        """(S,) number of available alternatives of each set."""
        return np.diff(self.offsets)

    @property
    def n_alternatives(self) -> int:
        """Number of available alternatives over all sets."""
        return len(self.rows)

    @property
    def largest(self) -> int:
        """Size of the largest set."""
        return int(self.sizes.max(initial=0))

    @property
    def n_rows(self) -> int:
        """Number of rows of the table, unavailable ones and outside options included."""
        return len(self.rows) + len(self.hidden_rows)

    @property
    def outside(self) -> Bools | None:
        """(N,) which alternatives are the outside option; None where the table declares none."""
        return outside_rows(self)

    @property
    def set_of_alternative(self) -> Ints:
        """(N,) index of the set that each alternative belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def __repr__(self) -> str:
        sizes = self.sizes
        span = f"{sizes.min()} to {sizes.max()}" if len(self) else "0"
        known = "choices known" if self.chosen is not None else "choices unknown"
        return (
            f"ChoiceData({len(self):,} choice sets of {span} alternatives, {len(self.rows):,} in all; "
            f"{len(self.features)} features, {len(self.individual)} individual columns; {known})"
        )

    def _repr_html_(self) -> str:
        from pcmcnet.data.describe import to_html  # which builds on this module

        return to_html(self)

    def require_chosen(self, purpose: str) -> Ints:
        """Return the choices, or say that ``purpose`` needs them."""
        if self.chosen is None:
            raise InputError(f"{purpose} needs the choices: read the table with chosen=<column>, or rank=<column>.")
        return self.chosen

    def to_rows(self, values: ArrayLike, fill: float = 0.0) -> NDArray[Any]:
        """Put values of the N alternatives in the order of the table; unavailable rows get ``fill``."""
        flat = np.asarray(values)
        if flat.shape != (len(self.rows),):
            raise InputError(
                f"expected one value for each of the {len(self.rows)} alternatives, got shape {flat.shape}."
            )
        out = np.full(self.n_rows, fill, dtype=flat.dtype)
        out[self.rows] = flat
        return out

    def from_rows(self, values: ArrayLike) -> NDArray[np.float64]:
        """Take one value per table row to one per alternative, the inverse of :meth:`to_rows`."""
        flat = np.asarray(values, dtype=np.float64)
        if flat.shape != (self.n_rows,):
            raise InputError(f"expected one value for each of the {self.n_rows} table rows, got shape {flat.shape}.")
        return flat[self.rows]

    def subset(self, index: ArrayLike) -> ChoiceData:
        """Take some sets, by position or by a mask, in the order given.

        The result behaves as the table that holds only the rows of those sets, in their order.
        """
        return replace(self, **take_sets(self, set_positions(np.asarray(index), len(self))))

    def without_contents(self) -> ChoiceData:
        """Leave out the columns that are neither numbers nor categories."""
        features = {name: column for name, column in self.features.items() if not isinstance(column, Contents)}
        individual = {name: column for name, column in self.individual.items() if not isinstance(column, Contents)}
        plain = replace(self.schema, features=tuple(features), individual=tuple(individual), kinds=self.schema.curves)
        return replace(self, schema=plain, features=features, individual=individual)

    def with_positive_weight(self) -> ChoiceData:
        """Take the sets with a weight above 0: mostly all of them, which need no copy."""
        counts = self.weights > 0
        return self if counts.all() else self.subset(counts)

    def parts(self) -> Iterator[ChoiceData]:
        """Yield the one part that a table in memory is."""
        yield self

    def each(self, function: Callable[[ChoiceData], U]) -> Iterator[U]:
        """Yield what a function makes of each part."""
        return map(function, self.parts())

    def concat(self, other: ChoiceData) -> ChoiceData:
        """Append the sets of another table with the same schema; its rows follow those of this one."""
        return replace(self, **join(self, other))

    def split(
        self, parts: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0, by: str | ArrayLike | None = None
    ) -> tuple[ChoiceData, ...]:
        """Cut into random parts of the given shares, keeping the groups of ``by`` together.

        Parameters
        ----------
        parts
            Shares that add up to 1.
        seed
            Where the random order comes from.
        by
            Name of an individual or kept column, or one value per set: sets with equal values stay in one part. None
            keeps the sets of each person together, where persons are declared. The name of the choice-set column cuts
            by choice set even then.

        Returns
        -------
        tuple of ChoiceData
        """
        return tuple(self.subset(part) for part in split_parts(self.groups(by), parts, generator(seed)))

    def folds(
        self, k: int = 5, *, seed: int = 0, by: str | ArrayLike | None = None
    ) -> list[tuple[ChoiceData, ChoiceData]]:
        """Cut into k (rest, fold) pairs, keeping the groups of ``by`` together; see :meth:`split`."""
        parts = fold_parts(self.groups(by), k, generator(seed))
        everything = np.arange(len(self))
        return [(self.subset(np.setdiff1d(everything, part)), self.subset(part)) for part in parts]

    def groups(self, by: str | ArrayLike | None = None) -> Ints:
        """(S,) a number for each set, equal for sets of one group; see :meth:`split` for what ``by`` may be."""
        by = self.schema.together if by is None else by
        if by is None or (isinstance(by, str) and by == self.schema.choice_set and self.schema.rank is None):
            return np.arange(len(self))
        if isinstance(by, str):
            columns = {**self.individual, **self.keep}
            if by not in columns:
                raise SchemaError(
                    f"column {by!r} is neither an individual nor a kept one, so it cannot group choice sets: "
                    f"read the table with keep=[{by!r}]." + did_you_mean(by, columns)
                )
            return number_groups(stored_values(columns[by]))
        values = np.asarray(by)
        if values.shape != (len(self),):
            raise InputError(f"by: expected one value per choice set ({len(self)}), got shape {values.shape}.")
        return number_groups(values)

    def fingerprint(self) -> str:
        """Return a SHA-256 of what models see: equal for equal tables, whatever file they came from."""
        return fingerprint(self)

    def describe(self) -> dict[str, Any]:
        """Return what a fitted model keeps of the table: ranges of columns, and some sets; see :func:`describe`."""
        return describe(self)
