"""Tables -> choice data: the ways in, for long tables, wide ones, those of a schema, and those larger than memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pcmcnet.data import long, wide
from pcmcnet.data.schema import Conflict, Missing, Schema
from pcmcnet.data.tabular import folder_of

if TYPE_CHECKING:
    from pcmcnet.data.scan import ScannedData


class Constructors:
    """How :class:`ChoiceData` is made of a table."""

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
        >>> table = {
        ...     "trip": [1, 1, 2, 2, 2],
        ...     "mode": ["car", "bus", "car", "bus", "bike"],
        ...     "took": [1, 0, 0, 0, 1],
        ... }
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
        return cls(**long.read(table if woven is None else woven, schema, folder=folder_of(table)))

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
        return cls(**long.read(table_, schema, folder=folder_of(table)))

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
