"""Choice sets in memory, stored by column in ragged arrays.

The alternatives of all sets are stored in flat arrays of length sum(n_S), one set after another. ``offsets`` marks
where each set begins. Nothing is padded. The only values stored per set are offsets, ids, individual-level columns and
choices. ``rows`` holds the table row of each alternative, so that results can be returned in the order of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import suggests_arguments
from pcmcnet.data import read_long, read_wide
from pcmcnet.data.alternative_sampling import DEFAULT_SAMPLE, draw_samples, require_full_sets, sampling_protocol
from pcmcnet.data.columns.arrays import Categorical, Columns, Contents, stored_values
from pcmcnet.data.describe import describe, to_html
from pcmcnet.data.files.tabular import folder_of
from pcmcnet.data.long_table import long_table
from pcmcnet.data.outside import outside_rows
from pcmcnet.data.schema import Conflict, Missing, Schema, Sign
from pcmcnet.data.subsets import (
    fingerprint,
    fold_parts,
    generator,
    join,
    number_groups,
    set_positions,
    split_parts,
    take_alternatives,
    take_sets,
)
from pcmcnet.errors import ArgumentError, InputError, SchemaError, did_you_mean
from pcmcnet.reports.frames import data_frame

if TYPE_CHECKING:
    from pcmcnet.data.catalogue_data import CatalogueData
    from pcmcnet.data.pair_features import PairFeature
    from pcmcnet.data.scan import ScannedData

U = TypeVar("U")

# What other packages call the roles of columns, and the arguments of a split.
_OTHER_ROLES = {
    **dict.fromkeys(
        ["id", "ids", "choice_sets", "set_id", "obs_id_col", "obs_id", "choice_id", "case", "group", "groups"],
        "Name the column with the ids of the choice sets: choice_set='COLUMN'",
    ),
    **dict.fromkeys(
        ["choice", "choices", "choice_col", "target", "y", "response", "choice_column"],
        "Name the column that is 1 for the chosen alternative: chosen='COLUMN'",
    ),
    **dict.fromkeys(
        ["alt", "alts", "alternative_col", "alt_id_col", "label", "labels", "item"],
        "Name the column with the labels of the alternatives: alternative='COLUMN'",
    ),
    **dict.fromkeys(
        ["X", "varnames", "variables", "attributes", "covariates", "feature_columns"],
        "List the columns that describe alternatives: features=['COLUMN', ...]",
    ),
    **dict.fromkeys(
        ["shared_features", "isvars", "customer_features"],
        "List the columns that are constant within a choice set: individual=['COLUMN', ...]",
    ),
    **dict.fromkeys(
        ["panel", "panels", "person_id", "user"], "Name the column with the ids of persons: person='COLUMN'"
    ),
    **dict.fromkeys(["weights", "sample_weight"], "Name the column with the weights: weight='COLUMN'"),
    **dict.fromkeys(["avail", "availability"], "Name the column of 0 and 1: available='COLUMN'"),
}
_OTHER_SPLIT = {
    **dict.fromkeys(
        ["test_size", "train_size", "shares", "ratio"], "Write the shares of the parts, as in split((0.8, 0.2))"
    ),
    **dict.fromkeys(["random_state", "random_seed"], "Write seed=0"),
    **dict.fromkeys(["stratify", "groups"], "Name a column whose groups stay together: by='COLUMN'"),
}
_FRAME = "data.to_frame(), a data frame with the rows of the table"
_OTHER_ATTRIBUTES = {
    **dict.fromkeys(["columns", "dtypes", "info", "iloc", "loc", "head", "tail", "values", "groupby", "query"], _FRAME),
    **dict.fromkeys(["drop", "merge", "rename", "to_numpy", "to_csv", "to_pandas", "sample", "plot", "data"], _FRAME),
    **dict.fromkeys(["y", "target", "choice", "choices"], "data.chosen, the position of the choice in each set"),
    **dict.fromkeys(["X", "x", "inputs"], "data.features and data.individual, which map names to columns"),
    **dict.fromkeys(["alternatives", "classes_", "classes"], "data.labels.categories, the labels of the alternatives"),
    **dict.fromkeys(["train_test_split", "random_split"], "train, test = data.split((0.8, 0.2))"),
    **dict.fromkeys(["fit", "evaluate"], "model.fit(data), or pn.evaluate(model, data)"),
}


def _refuses_tables(kind: type[U]) -> type[U]:
    """Make a class raise an error with a remedy if a table is passed to it: classmethods such as from_long read tables.

    The other arguments of the class do not change.
    """
    set_fields = kind.__init__

    @wraps(set_fields)
    def initialise(self: U, *tables: Any, **values: Any) -> None:
        if tables:
            name = kind.__name__
            raise ArgumentError(
                f"{name}(table) does not read a table: write {name}.from_long(table, choice_set=..., chosen=..., "
                f"features=[...]), or {name}.from_wide for a table with one row per choice set."
            )
        set_fields(self, **values)

    setattr(kind, "__init__", initialise)  # noqa: B010 - an assignment does not pass the type checker
    return kind


@_refuses_tables
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChoiceData:
    """Choice sets with their alternatives, individuals and choices.

    Use :meth:`from_long` or :meth:`from_wide` to read choice data from a table. ``S`` is the number of sets, and ``N``
    is the number of available alternatives over all sets.

    Attributes
    ----------
    schema : Schema
        Roles of the table's columns, with the categorical columns resolved.
    offsets : array of int, (S + 1,)
        Start of each set in the flat arrays, followed by N.
    set_ids : array, (S,)
        Ids of the choice sets, ordered by their first row in the table.
    chosen : array of int, (S,), or None
        Position of the chosen alternative within its set, or None if the choices are unknown.
    weights : array of float, (S,)
        Weights of the sets, all 1 if no weight column is declared.
    features : dict of columns
        Columns of length N that describe the alternatives.
    labels : Categorical or None
        Labels of the alternatives, of length N, or None if no alternative column is declared.
    individual : dict of columns
        Columns of length S that describe the individual.
    keep : dict of columns
        Columns of length S that models do not use: the ``keep`` columns, the persons, and the ids of rankings or
        markets.
    rows : array of int, (N,)
        Table row of each available alternative.
    hidden_rows, hidden_sets : array of int
        Table row and choice set of each unavailable alternative.
    added : int
        Number of outside options without a row in the table. Rows added for outside options follow the rows of the
        table.
    expansion : array of float, (N,), or None
        Expansion factors of sampled alternatives: the number of alternatives of the full set that each one stands for.
        None (default) if all alternatives are present. :meth:`sample_alternatives` sets the factors.
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
    expansion: Floats | None = None

    # Tables -> choice data

    @classmethod
    @suggests_arguments(_OTHER_ROLES)
    def from_long(
        cls,
        table: Any,
        *,
        choice_set: str,
        chosen: str | None = None,
        rank: str | None = None,
        counts: str | None = None,
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
        signs: Mapping[str, Sign] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read a long table, which has one row per alternative, in any order.

        Parameters
        ----------
        table : path, mapping of arrays, or data frame
            A path (.csv, .csv.gz, .parquet, .arrow, or a folder of Parquet files), a mapping from column names to
            arrays, or any data frame that narwhals supports (pandas, polars, pyarrow, ...).
        choice_set : str
            Column with the id of the choice set.
        chosen : str, optional
            Column of 0/1 or booleans that marks the chosen alternative, exactly one per set. If None (default), the
            choices are unknown, as in a table for prediction.
        rank : str, optional
            Column with the rank of the alternative, used instead of ``chosen``. The best alternative has rank 1, and
            the worst may have rank -1. Alternatives with an empty rank are between the best and the worst. A ranking is
            read as a sequence of choices. If None (default), the table has no rankings.
        counts : str, optional
            Column with the number of choices of the alternative, used instead of ``chosen`` in tables of markets. Each
            set is read as one choice set for each chosen alternative, with the count as its weight. If None (default),
            the table has no counts.
        alternative : str, optional
            Column with the label of the alternative, unique within a set. If None (default), alternatives have no
            labels.
        individual : list of str, optional
            Columns that are constant within a set, such as features of the chooser (none by default).
        features : list of str, optional
            Columns that describe the alternative (none by default).
        categorical : list of str, optional
            Columns among ``individual`` and ``features`` that are categories. If None (default), the column type
            decides: text, boolean and dictionary-encoded columns are categories.
        available : str, optional
            Column of 0/1 or booleans. Rows with 0 are left out of their set and get probability 0. If None (default),
            all rows are available.
        weight : str, optional
            Column with the weight of the set, constant within a set. If None (default), all weights are 1.
        person : str, optional
            Column with the id of the person who chose, constant within a set. The sets of a person stay together in
            splits, folds and bootstrap samples. Models do not use the id as an input. If None (default), each set is
            independent.
        keep : list of str, optional
            Further columns, constant within a set, to keep for grouping (none by default). Models do not use kept
            columns.
        outside : str, optional
            Name of an outside option, such as "none" for buying nothing: an alternative that is in every set, has no
            features and needs no rows. In a set without a chosen row, the outside option counts as chosen. Without
            ``alternative``, a feature of this name is 1 for the outside option and 0 for the other alternatives. If
            None (default), there is no outside option.
        conflict : {"error", "first"}
            What to do if an individual-level column varies within a set: raise an error (default), or use the value of
            the first row.
        missing : {"error", "indicator"}
            How to treat missing values. "error" (default) raises an error. "indicator" replaces missing numbers with
            the training mean and marks them with a 0/1 feature, and treats missing categories as a separate category.
        kinds : dict, optional
            Kind of each column among ``individual`` and ``features`` that is neither a plain number nor a category:
            "vector", "datetime", "multi", "text", "image" or "id". The kinds "piecewise" and "spline" are for numbers
            to which networks also apply a curve. If None (default), all columns are plain numbers or categories.
        signs : dict, optional
            Expected signs of numeric features, as in ``{"price": "-", "comfort": "+"}``: whether the probability of an
            alternative falls or rises with its value. PCMC-Net, TasteNet, boosted utilities and default stacks obey the
            signs. All models are checked when they are fitted. If None (default), no signs are declared.
        columns : dict, optional
            Display names and units of columns for reports and the served page, as in
            ``{"price": {"name": "Price", "unit": "EUR"}}``. If None (default), the column names are shown.

        Returns
        -------
        ChoiceData
            The choice sets, ordered by their first row in the table.

        Raises
        ------
        SchemaError
            If the table does not fit the declared roles. The message names the column, row and choice set, and says how
            to correct the table.

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
            counts=counts,
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
            signs=signs or {},
            named=columns or {},
        )
        return cls.from_schema(table, schema)

    @classmethod
    def from_schema(cls, table: Any, schema: Schema) -> Self:
        """Read a table according to a schema, for example one from a fitted model or a TOML file.

        Parameters
        ----------
        table : path, mapping of arrays, or data frame
            A long table, or a wide table if the schema was made by :meth:`from_wide`.
        schema : Schema
            Roles of the columns.

        Returns
        -------
        ChoiceData
            The choice sets, ordered by their first row in the table.

        Raises
        ------
        SchemaError
            If the table does not fit the schema. The message names the column, row and choice set, and says how to
            correct the table.
        """
        converted = read_wide.long_form(table, schema)
        return cls(**read_long.read_long(table if converted is None else converted, schema, folder=folder_of(table)))

    @classmethod
    @suggests_arguments(_OTHER_ROLES)
    def from_wide(
        cls,
        table: Any,
        *,
        chosen: str | None = None,
        worst: str | None = None,
        rank: str | Mapping[Any, str | float] | None = None,
        counts: str | Mapping[Any, str | float] | None = None,
        alternatives: Sequence[str | int] | Mapping[Any, Any],
        features: Mapping[str, str | Mapping[Any, str | float]] | None = None,
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
        signs: Mapping[str, Sign] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read a wide table, which has one row per choice and one group of columns per alternative.

        Parameters
        ----------
        table : path, mapping of arrays, or data frame
            A path (.csv, .csv.gz, .parquet, .arrow, or a folder of Parquet files), a mapping from column names to
            arrays, or any data frame that narwhals supports (pandas, polars, pyarrow, ...).
        chosen : str, optional
            Column that names the chosen alternative. If None (default), the choices are unknown or given by ``rank``.
        rank : str or dict, optional
            Columns with the rank of each alternative, given in the same form as ``features``. The best alternative has
            rank 1, and the worst may have rank -1. Alternatives with an empty rank are between the best and the worst.
            If None (default), the table has no rankings.
        worst : str, optional
            Column that names the worst alternative, if ``chosen`` names the best one. If None (default), the worst
            alternative is unknown.
        counts : str or dict, optional
            Columns with the number of choices of each alternative in a market, given in the same form as ``features``
            and used instead of ``chosen``. If None (default), each row is a single choice.
        alternatives : list or dict
            Labels of the alternatives as they are written in ``chosen``, such as ``["car", "bus"]`` or ``[1, 2]``, or a
            mapping from each label to its value in ``chosen``.
        features : dict, optional
            Columns of each feature: a template such as ``"{alternative}_TT"``, or a mapping from each label to a
            column name or to a number that applies to every row. If None (default), alternatives have labels only, like
            the items of a best-worst question.
        individual : list of str, optional
            Columns that apply to all alternatives of a row, such as features of the chooser (none by default).
        available : str or dict, optional
            Columns with the 0/1 availability of each alternative, given in the same form as ``features``. If None
            (default), all alternatives are available in every row.
        weight : str, optional
            Column with the weight of the set. If None (default), all weights are 1.
        choice_set : str, optional
            Column with the id of the choice set. If None (default), the row numbers are used as ids.
        categorical : list of str, optional
            Names among ``individual`` and ``features`` that are categories. If None (default), the column type decides:
            text, boolean and dictionary-encoded columns are categories.
        person : str, optional
            Column with the id of the person who chose. The sets of a person stay together in splits, folds and
            bootstrap samples. Models do not use the id as an input. If None (default), each set is independent.
        keep : list of str, optional
            Further columns to keep for grouping (none by default). Models do not use kept columns.
        outside : str, optional
            Name of an outside option, such as "none" for buying nothing: an alternative that is in every set, has no
            features and needs no columns. In a row with an empty ``chosen``, the outside option counts as chosen. If
            None (default), there is no outside option.
        missing : {"error", "indicator"}
            How to treat missing values. "error" (default) raises an error. "indicator" replaces missing numbers with
            the training mean and marks them with a 0/1 feature, and treats missing categories as a separate category.
        kinds : dict, optional
            Kind of each name among ``individual`` and ``features`` that is neither a plain number nor a category:
            "vector", "datetime", "multi", "text", "image" or "id". The kinds "piecewise" and "spline" are for numbers
            to which networks also apply a curve. If None (default), all columns are plain numbers or categories.
        signs : dict, optional
            Expected signs of numeric features, as in ``{"price": "-", "comfort": "+"}``: whether the probability of an
            alternative falls or rises with its value. PCMC-Net, TasteNet, boosted utilities and default stacks obey the
            signs. All models are checked when they are fitted. If None (default), no signs are declared.
        columns : dict, optional
            Display names and units for reports and the served page, as in ``{"price": {"name": "Price", "unit":
            "EUR"}}``. If None (default), the names of the features and columns are shown.

        Returns
        -------
        ChoiceData
            The choice sets. Row r * len(alternatives) + k of the long form is alternative k of table row r.

        Raises
        ------
        SchemaError
            If the table does not fit the declared roles. The message names the column and row, and says how to correct
            the table.

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
        table_, schema = read_wide.to_long(
            table,
            chosen=chosen,
            worst=worst,
            rank=rank,
            counts=counts,
            alternatives=alternatives,
            features={} if features is None else features,
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
            signs=signs or {},
            columns=columns,
        )
        return cls(**read_long.read_long(table_, schema, folder=folder_of(table)))

    @classmethod
    @suggests_arguments(call="from_catalogue(choosers, catalogue, item='COLUMN', chosen='COLUMN')")
    def from_catalogue(
        cls,
        choosers: Any,
        catalogue: Any,
        *,
        item: str,
        chosen: str | None = None,
        individual: Sequence[str] = (),
        features: Sequence[str] = (),
        pair_features: Mapping[str, PairFeature] | None = None,
        offered: str | None = None,
        labels: bool = False,
        categorical: Sequence[str] | None = None,
        weight: str | None = None,
        person: str | None = None,
        keep: Sequence[str] = (),
        choice_set: str | None = None,
        missing: Missing = "error",
        kinds: Mapping[str, str] | None = None,
        signs: Mapping[str, Sign] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> CatalogueData:
        """Read a table of choosers and a catalogue of items that they choose from.

        The product of the two tables is not written out: choosers and items are stored once, and choice sets are formed
        when they are needed.

        Parameters
        ----------
        choosers : path, mapping of arrays, or data frame
            Table with one row per choice, in any form that :meth:`from_long` accepts.
        catalogue : path, mapping of arrays, or data frame
            Table with one row per item.
        item : str
            Column of the catalogue with the id of the item, which is unique.
        chosen : str, optional
            Column of the choosers with the id of the chosen item. If None (default), the choices are unknown, as in
            tables for prediction.
        individual : list of str, optional
            Columns of the choosers that models use (none by default).
        features : list of str, optional
            Columns of the catalogue that describe the items (none by default).
        pair_features : dict, optional
            Features of pairs of a chooser and an item, such as ``{"distance": distance}``: each is a function of two
            mappings, of the choosers' and of the items' columns, with one value per pair. The function returns an array
            of numbers. A :class:`pcmcnet.PairTable` looks the values up in a table. Default: none.
        offered : str, optional
            Column of the choosers with the list of the ids of the items on offer. If None (default), every chooser
            chooses from all items.
        labels : bool
            Whether the ids of the items are the labels of the alternatives, which most models use: logits have a
            constant for each item, and networks learn an embedding. If False (default), models know an item only by its
            features, and so can predict the choice of new items.
        categorical : list of str, optional
            Columns among ``individual`` and ``features`` that are categories. If None (default), the column type
            decides: text, boolean and dictionary-encoded columns are categories.
        weight : str, optional
            Column of the choosers with their weights. If None (default), all weights are 1.
        person : str, optional
            Column of the choosers with the id of the person who chose, if persons have several rows. The rows of a
            person stay together in splits, folds and bootstrap samples. If None (default), each row is independent.
        keep : list of str, optional
            Further columns of the choosers to keep for grouping (none by default). Models do not use kept columns.
        choice_set : str, optional
            Column of the choosers with a unique id of the row. If None (default), the row numbers are used as ids.
        missing : {"error", "indicator"}
            How to treat missing values, as in :meth:`from_long`.
        kinds, signs, columns : dict, optional
            Kinds, expected signs and display names of columns, as in :meth:`from_long`. Pair features can have signs.

        Returns
        -------
        CatalogueData
            The choice sets. Every model predicts from them. A model is fitted to a sample of the alternatives, drawn by
            :meth:`CatalogueData.sample_alternatives`, unless the product is small.

        Raises
        ------
        SchemaError
            If a table does not fit the declared roles: for example, if an item has two rows, a chooser has no choice,
            or a chosen item is not in the catalogue or not on offer.

        Examples
        --------
        >>> from pcmcnet.data import ChoiceData
        >>> shops = {"shop": ["a", "b", "c"], "size": [1.0, 2.0, 4.0], "km": [0.0, 3.0, 9.0]}
        >>> people = {"went_to": ["b", "a"], "home": [1.0, 8.0]}
        >>> data = ChoiceData.from_catalogue(
        ...     people,
        ...     shops,
        ...     chosen="went_to",
        ...     item="shop",
        ...     features=["size"],
        ...     pair_features={"distance": lambda people, shops: abs(people["home"] - shops["km"])},
        ... )
        >>> len(data), data.n_items, data.n_alternatives
        (2, 3, 6)
        >>> data.read().features["distance"].values.tolist()
        [1.0, 2.0, 8.0, 8.0, 5.0, 1.0]
        """
        from pcmcnet.data.catalogue_data import CatalogueData  # it imports this module
        from pcmcnet.data.read_catalogue import read_catalogue

        return CatalogueData(
            **read_catalogue(
                choosers,
                catalogue,
                item=item,
                chosen=chosen,
                offered=offered,
                features=features,
                pair_features={} if pair_features is None else pair_features,
                choice_set=choice_set,
                labels=labels,
                individual=individual,
                categorical=categorical,
                weight=weight,
                person=person,
                keep=keep,
                missing=missing,
                kinds=kinds or {},
                signs=signs or {},
                named=columns or {},
            )
        )

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
        """Scan a long table that may be larger than memory. The choice sets stay on disk.

        The first scan checks the table and converts it into shards. A second scan of the same files reuses the shards.

        Parameters
        ----------
        table : path
            A file (.parquet, .arrow, .csv, .csv.gz) or a folder of Parquet files. The rows of a set may be in
            different files.
        cache : path, optional
            Folder for the shards. The default is a folder next to the table, with the suffix .pcmcnet.
        memory : str or int
            Memory for choice sets during scanning and training, as a string such as "512 MiB" or a number of bytes ("1
            GiB" by default).
        workers : int, optional
            Number of processes that convert the table, each with up to two fifths of ``memory``. The shards do not
            depend on the number of processes. If None (default), two processes convert a large table, unless the
            machine has only one core.
        **roles
            Roles of the columns, given with the keywords of :meth:`from_long`: ``choice_set`` (required), ``chosen``,
            ``rank``, ``counts``, ``alternative``, ``individual``, ``features``, ``categorical``, ``available``,
            ``weight``, ``person``, ``keep``, ``outside``, ``conflict``, ``missing``, ``kinds``, ``signs`` and
            ``columns``, with the same defaults. Scans do not support ``rank``, ``counts`` and ``outside``.

        Returns
        -------
        ScannedData
            The choice sets on disk. Models are fitted to scanned data in the same way as to ChoiceData.

        Raises
        ------
        SchemaError
            If the table does not fit the declared roles. The message names the column, row and choice set, and says how
            to correct the table.
        """
        from pcmcnet.data.scan import ScannedData  # it imports this module

        return ScannedData.of(table, Schema.from_dict(roles), cache=cache, memory=memory, workers=workers)

    # Sizes and display

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def shape(self) -> tuple[int]:
        """Shape (S,), which makes scikit-learn treat choice data as an array of choice sets."""
        return (len(self),)

    def __getitem__(self, index: Any) -> ChoiceData:
        """Return the sets selected by a slice, a list of positions or a mask, as :meth:`subset` does."""
        first = index[0] if isinstance(index, tuple) and index[1:] == (Ellipsis,) else index  # NumPy-style data[i, ...]
        return self.subset(np.arange(len(self))[first] if isinstance(first, slice) else first)

    if not TYPE_CHECKING:  # type checkers report unknown attributes

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property raised AttributeError: raise it again
                return object.__getattribute__(self, name)
            remedy = ""
            if not name.startswith("_"):
                columns = [vars(self).get(role, ()) for role in ("features", "individual", "keep")]
                if any(name in names for names in columns):
                    remedy = f" Write data.to_frame()[{name!r}] for the values of a column."
                elif name in _OTHER_ATTRIBUTES:
                    remedy = f" Write {_OTHER_ATTRIBUTES[name]}."
            raise AttributeError(f"'ChoiceData' has no attribute {name!r}.{remedy}")

    __iter__ = None  # not iterable: there is no object for a single set

    @property
    def sizes(self) -> Ints:
        """Number of available alternatives in each set, (S,)."""
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
        """Number of rows, including unavailable alternatives and added outside options."""
        return len(self.rows) + len(self.hidden_rows)

    @property
    def outside(self) -> Bools | None:
        """Mask (N,) of outside options, or None if the table declares no outside option."""
        return outside_rows(self)

    @property
    def set_of_alternative(self) -> Ints:
        """Position of the set that each alternative belongs to, (N,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def __repr__(self) -> str:
        sizes = self.sizes
        span = " to ".join(str(size) for size in sorted({sizes.min(), sizes.max()})) if len(self) else "0"
        choices = "choices known" if self.chosen is not None else "choices unknown"
        sampled = "" if self.expansion is None else "sampled "
        return (
            f"ChoiceData({len(self):,} choice sets of {span} {sampled}alternatives, {len(self.rows):,} in all; "
            f"{len(self.features)} features, {len(self.individual)} individual-level columns; {choices})"
        )

    def _repr_html_(self) -> str:
        return to_html(self)

    def require_chosen(self, purpose: str) -> Ints:
        """Return the position of the chosen alternative in each set, (S,).

        Parameters
        ----------
        purpose : str
            Subject of the error message, such as "fit".

        Raises
        ------
        InputError
            If the choices are unknown.
        """
        if self.chosen is None:
            raise InputError(f"{purpose} needs the choices: read the table with chosen=<column>, or rank=<column>.")
        return self.chosen

    def to_rows(self, values: ArrayLike, fill: float = 0.0) -> NDArray[Any]:
        """Arrange values of the alternatives in the order of the table's rows.

        Parameters
        ----------
        values : array, (N,)
            One value per available alternative.
        fill : float
            Value for unavailable rows, 0 by default.

        Returns
        -------
        array, (n_rows,)

        Raises
        ------
        InputError
            If ``values`` is not of shape (N,).
        """
        flat = np.asarray(values)
        if flat.shape != (len(self.rows),):
            raise InputError(
                f"expected one value for each of the {len(self.rows)} alternatives, got shape {flat.shape}."
            )
        out = np.full(self.n_rows, fill, dtype=flat.dtype)
        out[self.rows] = flat
        return out

    def from_rows(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the values of the available alternatives, as the inverse of :meth:`to_rows`.

        Parameters
        ----------
        values : array, (n_rows,)
            One value per table row.

        Returns
        -------
        array of float, (N,)

        Raises
        ------
        InputError
            If ``values`` is not of shape (n_rows,).
        """
        flat = np.asarray(values, dtype=np.float64)
        if flat.shape != (self.n_rows,):
            raise InputError(f"expected one value for each of the {self.n_rows} table rows, got shape {flat.shape}.")
        return flat[self.rows]

    def to_frame(self) -> Any:
        """Return the choice sets as a pandas data frame in long form.

        Returns
        -------
        pandas.DataFrame
            A row for each alternative, in the order of the table that was read, with the column names of the schema.
            Labels, persons and kept columns are text. Labels and features of unavailable alternatives are missing.
            Outside options without labels have no rows. A ranking has one row for each alternative. Sampled
            alternatives have a further column, ``expansion``, which :meth:`from_schema` does not read. Unless
            :meth:`subset` changed the order of the sets, ``ChoiceData.from_schema(data.to_frame(), data.schema)`` is
            the same data.

        Raises
        ------
        InputError
            If two choice sets have the same id, if earlier choices of a ranking are not in the data, or if pandas is
            not installed.

        Examples
        --------
        >>> table = {"trip": [1, 1, 2, 2], "took": [0, 1, 1, 0], "cost": [2.0, 3.0, 1.5, 2.5]}
        >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
        >>> data.subset([1]).to_frame()
           trip  took  cost
        0     2     1   1.5
        1     2     0   2.5
        """
        return data_frame(long_table(self), integer_objects=True)

    @suggests_arguments(call="data.subset([0, 1])")
    def subset(self, index: ArrayLike) -> ChoiceData:
        """Return the selected sets, as if the table had only the rows of these sets.

        Parameters
        ----------
        index : array
            Positions of the sets, in the order of the result, or a boolean mask of shape (S,). Negative positions count
            from the end.

        Returns
        -------
        ChoiceData

        Raises
        ------
        InputError
            If a position is out of range or repeated, or if the mask has the wrong shape.
        """
        return replace(self, **take_sets(self, set_positions(np.asarray(index), len(self))))

    def sample_alternatives(self, n: int = DEFAULT_SAMPLE, *, by: str = "uniform", seed: int = 0) -> ChoiceData:
        """Draw ``n`` alternatives of each choice set, one of which is the choice, to fit a model to large sets.

        The result contains the expansion factor of each alternative: the number of alternatives of the full set that it
        stands for. With the factors, fits of PCMC-Net and of most logits correct for the sampling
        (:mod:`pcmcnet.data.alternative_sampling`). Evaluations and predictions need the full sets.

        Parameters
        ----------
        n : int
            Number of alternatives to draw from each set, including the choice. Default 100. Sets of at most ``n``
            alternatives keep all of them.
        by : str
            How alternatives are drawn. "uniform" (default): all alternatives are equally likely. "popularity": half of
            the draws are proportional to the number of times that an alternative is chosen in other sets, which needs
            labels; an alternative may be drawn several times, and sets have up to ``n`` alternatives. The name of a
            categorical feature: as many alternatives of each category.
        seed : int
            Seed of the draws, 0 by default.

        Returns
        -------
        ChoiceData
            The same choice sets with fewer alternatives.

        Raises
        ------
        InputError
            If the choices are unknown, or if the alternatives are already a sample.
        SchemaError
            If ``by`` is "popularity" and there are no labels, or if ``by`` is not a categorical feature.
        ConfigError
            If ``n`` is below 2.

        Examples
        --------
        >>> table = {"trip": [1] * 9, "took": [1] + [0] * 8, "cost": [float(k) for k in range(9)]}
        >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
        >>> sample = data.sample_alternatives(3)
        >>> sample.sizes.tolist(), sample.chosen.tolist(), sample.expansion.tolist()
        ([3], [0], [3.0, 3.0, 3.0])
        """
        chosen = self.require_chosen("sampling alternatives")
        require_full_sets(self, "sampling alternatives")
        sample = draw_samples(self.sizes, chosen, sampling_protocol(self, n, by), seed)
        flat = sample.positions + np.repeat(self.offsets[:-1], np.diff(sample.offsets))
        fields = take_alternatives(self, flat, sample.offsets, sample.chosen)
        return replace(self, **{**fields, "expansion": sample.expansion})

    def without_contents(self) -> ChoiceData:
        """Return the data without content columns, such as texts or images. Only numbers and categories remain."""
        features = {name: column for name, column in self.features.items() if not isinstance(column, Contents)}
        individual = {name: column for name, column in self.individual.items() if not isinstance(column, Contents)}
        plain = replace(self.schema, features=tuple(features), individual=tuple(individual), kinds=self.schema.curves)
        return replace(self, schema=plain, features=features, individual=individual)

    def with_positive_weight(self) -> ChoiceData:
        """Return the sets with a weight above 0. If all weights are above 0, the data itself is returned."""
        positive = self.weights > 0
        return self if positive.all() else self.subset(positive)

    def parts(self) -> Iterator[ChoiceData]:
        """Yield the data as a single part. A scanned table yields one part per shard."""
        yield self

    def each(self, function: Callable[[ChoiceData], U]) -> Iterator[U]:
        """Yield ``function(part)`` for each part in :meth:`parts`.

        Parameters
        ----------
        function
            Function of one argument, a ChoiceData.
        """
        return map(function, self.parts())

    def concat(self, other: ChoiceData) -> ChoiceData:
        """Append the sets of another table with the same schema.

        Parameters
        ----------
        other : ChoiceData
            Sets to append. The appended rows follow the rows of this table.

        Returns
        -------
        ChoiceData

        Raises
        ------
        SchemaError
            If the schemas differ.
        """
        return replace(self, **join(self, other))

    @suggests_arguments(_OTHER_SPLIT)
    def split(
        self, parts: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0, by: str | ArrayLike | None = None
    ) -> tuple[ChoiceData, ...]:
        """Split the choice sets at random into parts of the given shares.

        Parameters
        ----------
        parts : sequence of float
            Shares of the parts, which add up to 1. The default is (0.8, 0.1, 0.1).
        seed : int
            Seed of the random order, 0 by default.
        by : str or array, optional
            Name of an individual-level or kept column, or an array of one value per set. Sets with equal values stay in
            the same part. If ``by`` is None (default) and persons are declared, the sets of each person stay together.
            If ``by`` is the name of the choice-set column, the sets of a person may be separated.

        Returns
        -------
        tuple of ChoiceData
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
    ) -> list[tuple[ChoiceData, ChoiceData]]:
        """Split the choice sets into k folds for cross-validation.

        Parameters
        ----------
        k : int
            Number of folds, 5 by default.
        seed : int
            Seed of the random order, 0 by default.
        by : str or array, optional
            Name of an individual-level or kept column, or an array of one value per set. Sets with equal values stay in
            the same fold. If ``by`` is None (default) and persons are declared, the sets of each person stay together.
            If ``by`` is the name of the choice-set column, the sets of a person may be separated.

        Returns
        -------
        list of (ChoiceData, ChoiceData)
            A pair for each fold: the sets outside the fold, and the sets of the fold.

        Raises
        ------
        InputError
            If ``k`` is below 2 or above the number of groups.
        SchemaError
            If ``by`` is neither an individual-level nor a kept column.
        """
        folds = fold_parts(self.groups(by), k, generator(seed))
        everything = np.arange(len(self))
        return [(self.subset(np.setdiff1d(everything, fold)), self.subset(fold)) for fold in folds]

    def groups(self, by: str | ArrayLike | None = None) -> Ints:
        """Return the group number of each set, (S,).

        Parameters
        ----------
        by : str or array, optional
            Name of an individual-level or kept column, or an array of one value per set. Sets with equal values form a
            group. If ``by`` is None (default) and persons are declared, the sets of a person form a group. If ``by`` is
            the name of the choice-set column, or if ``by`` is None and there are no persons, each set is a separate
            group.

        Raises
        ------
        InputError
            If ``by`` is an array that does not have one value per set.
        SchemaError
            If ``by`` is neither an individual-level nor a kept column.
        """
        by = self.schema.group_column if by is None else by
        if by is None or (isinstance(by, str) and by == self.schema.choice_set and not self.schema.has_several_choices):
            return np.arange(len(self))
        if isinstance(by, str):
            columns = {**self.individual, **self.keep}
            if by not in columns:
                raise SchemaError(
                    f"column {by!r} is neither an individual-level nor a kept column, so it cannot group choice sets: "
                    f"read the table with keep=[{by!r}]." + did_you_mean(by, columns)
                )
            return number_groups(stored_values(columns[by]))
        values = np.asarray(by)
        if values.shape != (len(self),):
            raise InputError(f"by: expected one value per choice set ({len(self)}), got shape {values.shape}.")
        return number_groups(values)

    def fingerprint(self) -> str:
        """Return a SHA-256 hash of the model inputs and choices, which does not depend on the file or its format."""
        return fingerprint(self)

    def describe(self) -> dict[str, Any]:
        """Return the summary that a fitted model saves: ranges of columns and example sets, from :func:`describe`."""
        return describe(self)
