"""The roles of a table's columns, which are declared once, checked, and saved with a model.

The fields of a :class:`Schema` are the arguments of ``ChoiceData.from_long``. A fitted model saves its schema, so that
new tables are read like the training table.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from pcmcnet.data.columns.arrays import CURVES, Curve
from pcmcnet.data.columns.names import ColumnName, ColumnNames, column_names
from pcmcnet.data.kinds import KINDS
from pcmcnet.errors import SchemaError, did_you_mean

# -- Wide roles --------------------------------------------------------------------------------------------------------
# Where a wide table holds the columns of its long form: the arguments of `ChoiceData.from_wide` that the long form does
# not have, as a mapping of plain JSON values. The schema saves it, so that further wide tables are read alike.

Label = str | int
LONG_FORM_COLUMNS = ("choice_set", "chosen", "rank", "counts", "alternative", "available")

_WIDE_ENTRIES = ("alternatives", "features", "chosen", "worst", "rank", "counts", "available", "choice_set")


def wide_roles(value: Any) -> dict[str, Any]:
    """Return the roles of a wide table as plain values, or {} for a long table. Invalid roles raise SchemaError.

    Examples
    --------
    >>> wide_roles({"alternatives": ["car", "bus"], "features": {"time": "{alternative}_time"}, "chosen": "mode"})
    {'alternatives': {'car': 'car', 'bus': 'bus'}, 'features': {'time': '{alternative}_time'}, 'chosen': 'mode'}
    """
    if not isinstance(value, Mapping):
        raise SchemaError(f"wide must map alternatives, features and other roles to columns, got {value!r}.")
    for key in value:
        if key not in _WIDE_ENTRIES:
            raise SchemaError(f"wide: unknown entry {key!r}." + did_you_mean(str(key), _WIDE_ENTRIES))
    roles = {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if not roles:
        return {}
    for key in ("alternatives", "features"):
        if key not in roles:
            raise SchemaError(f"wide: {key} is missing: a wide table needs alternatives and features.")
    if not isinstance(roles["features"], Mapping):
        raise SchemaError(f"wide: features must map names to templates or columns, got {roles['features']!r}.")
    return {**roles, "alternatives": _plain(labels_of(roles["alternatives"]))}


def long_roles(wide: Mapping[str, Any]) -> dict[str, Any]:
    """Return the roles of the long form, derived from the roles of a wide table."""
    choice = "rank" if "worst" in wide else "chosen"  # the best and the worst are ranks of the long form
    optional = {role: role for role in ("rank", "counts", "available") if role in wide}
    optional |= {choice: choice} if "chosen" in wide else {}
    return {"choice_set": "choice_set", "alternative": "alternative", "features": list(wide["features"]), **optional}


def labels_of(alternatives: Sequence[Label] | Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping from each label, as text, to its value in the chosen column."""
    values = [] if isinstance(alternatives, str) or not hasattr(alternatives, "__iter__") else list(alternatives)
    labels = [label_of(label) for label in values]
    if not labels or not all(isinstance(label, str) for label in labels) or len(set(labels)) < len(labels):
        raise SchemaError(
            f"alternatives must be a list of distinct labels or a mapping from labels to values, got {alternatives!r}."
        )
    codes = alternatives.values() if isinstance(alternatives, Mapping) else values
    return dict(zip(labels, codes, strict=True))


def label_of(label: Any) -> Any:
    """Return integer labels, such as survey codes, as text, and other labels unchanged."""
    return str(label) if isinstance(label, Integral) and not isinstance(label, bool) else label


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {label_of(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


# -- Schema ------------------------------------------------------------------------------------------------------------

Conflict = Literal["error", "first"]
Missing = Literal["error", "indicator"]
Sign = Literal["+", "-"]

_SINGLE = ("choice_set", "chosen", "rank", "counts", "alternative", "available", "weight", "person")
_LISTS = ("individual", "features", "categorical", "keep")
# Fields added in later releases, written only if they are set: dicts of tables without them stay the same.
_LATER_FIELDS = ("rank", "counts", "person", "outside", "kinds", "columns", "wide", "signs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """The roles of a long table's columns.

    Parameters
    ----------
    choice_set : str
        Column with the id of the choice set.
    chosen : str, optional
        Column of 0/1 or booleans that marks the chosen alternative, exactly one per set. If None (default), the choices
        are unknown, as in a table for prediction.
    rank : str, optional
        Column with the rank of the alternative, used instead of ``chosen``. The best alternative has rank 1, and the
        worst may have rank -1. Alternatives with an empty rank are between the best and the worst. A ranking is read as
        a sequence of choices, which stay together in splits. If None (default), the table has no rankings.
    counts : str, optional
        Column with the number of choices of the alternative, used instead of ``chosen`` in tables of markets. Each set
        is read as one choice set for each chosen alternative, with the count as its weight. These sets stay together in
        splits. If None (default), the table has no counts.
    alternative : str, optional
        Column with the label of the alternative, unique within a set. If None (default), alternatives have no labels.
    individual : list of str
        Columns that are constant within a set (none by default).
    features : list of str
        Columns that describe the alternative (none by default).
    categorical : list of str, optional
        Columns among ``individual`` and ``features`` that are categories. If None (default), the column type decides:
        text, boolean and dictionary-encoded columns are categories.
    available : str, optional
        Column of 0/1 or booleans. Rows with 0 are left out of their set. If None (default), all rows are available.
    weight : str, optional
        Column with the weight of the set, constant within a set. If None (default), all weights are 1.
    person : str, optional
        Column with the id of the person who chose, constant within a set. The sets of a person stay together in splits,
        folds and bootstrap samples. Models do not use the id as an input. If None (default), each set is independent.
    keep : list of str
        Further columns, constant within a set, to keep for grouping (none by default). Models do not use kept columns.
    outside : str, optional
        Name of an outside option, such as "none" for buying nothing: an alternative that is in every set, has no
        features and needs no rows. In a set without a chosen row, the outside option counts as chosen. Without
        ``alternative``, a feature of this name is 1 for the outside option and 0 for the other alternatives. If None
        (default), there is no outside option.
    conflict : {"error", "first"}
        What to do if an individual-level column varies within a set: raise an error (default), or use the value of the
        first row.
    missing : {"error", "indicator"}
        How to treat missing values. "error" (default) raises an error. "indicator" replaces missing numbers with the
        training mean and marks them with a 0/1 feature, and treats missing categories as a separate category.
    kinds : dict
        Kind of each column among ``individual`` and ``features`` that is neither a plain number nor a category:
        "vector", "datetime", "multi", "text", "image" or "id". The kinds "piecewise" and "spline" are for numbers to
        which networks also apply a curve. Models other than networks ignore the curve. By default, all columns are
        plain numbers or categories.
    signs : dict
        Expected signs of numeric features, as in ``{"price": "-", "comfort": "+"}``: whether the probability of an
        alternative falls or rises with its value. PCMC-Net, TasteNet, boosted utilities and default stacks obey the
        signs. All models are checked when they are fitted. By default, no signs are declared.
    named : dict
        Display names and units of columns, as in ``{"price": {"name": "Price", "unit": "EUR"}}``. In files and in
        ``ChoiceData.from_long``, this argument is called ``columns``. Models and the operator ``==`` ignore display
        names and units. By default, no names or units are declared.
    wide : dict
        Roles of a wide table, given as arguments of ``ChoiceData.from_wide``: ``alternatives``, ``features``,
        ``chosen``, ``worst``, ``rank``, ``available``, ``choice_set``. The other fields of the schema are the roles of
        the long form. For a long table, ``wide`` is empty (default).

    Raises
    ------
    SchemaError
        If a role is not a column name, if roles contradict each other, or if an option has an unknown value.
    """

    choice_set: str
    chosen: str | None = None
    rank: str | None = None
    counts: str | None = None
    alternative: str | None = None
    individual: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    categorical: tuple[str, ...] | None = None
    available: str | None = None
    weight: str | None = None
    person: str | None = None
    keep: tuple[str, ...] = ()
    outside: str | None = None
    conflict: Conflict = "error"
    missing: Missing = "error"
    kinds: Mapping[str, str] = field(default_factory=dict, hash=False)
    signs: Mapping[str, Sign] = field(default_factory=dict, hash=False)
    named: Mapping[str, ColumnName] = field(default_factory=dict, compare=False)
    wide: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for name in _LISTS:
            object.__setattr__(self, name, _names(getattr(self, name), role=name))
        for name in _SINGLE:
            value = getattr(self, name)
            if not (isinstance(value, str) or (value is None and name != "choice_set")):
                got = repr(value) if isinstance(value, list | tuple | int | float | None) else type(value).__name__
                raise SchemaError(f"{name} must be the name of a column, got {got}. Write {name}='COLUMN'.")
        if self.outside is not None and not (isinstance(self.outside, str) and self.outside.strip()):
            raise SchemaError(f"outside must be the name of an alternative, got {self.outside!r}.")
        if self.outside_feature is not None and self.outside_feature not in self.features:
            object.__setattr__(self, "features", (*self.features, self.outside_feature))
        _require_word("conflict", self.conflict, get_args(Conflict))
        _require_word("missing", self.missing, get_args(Missing))
        object.__setattr__(self, "kinds", _kinds(self.kinds))
        object.__setattr__(self, "signs", _signs(self.signs))
        object.__setattr__(self, "wide", wide_roles(self.wide))
        self._require_apart()
        object.__setattr__(self, "named", column_names(self.named, self.columns))

    def _require_apart(self) -> None:
        """Raise SchemaError if the roles of a column contradict each other or would reveal the choice to the model."""
        require_distinct({role: getattr(self, role) for role in _SINGLE})
        inputs = [*self.individual, *self.features]
        for name, times in Counter(inputs).items():
            if times > 1:
                raise SchemaError(f"column {name!r} is listed twice among individual and features: keep one.")
        if self.chosen is not None and self.rank is not None:
            raise SchemaError(f"chosen ({self.chosen!r}) and rank ({self.rank!r}) are mutually exclusive: keep one.")
        for role in ("chosen", "rank", "outside"):
            if self.counts is not None and getattr(self, role) is not None:
                remedy = "keep one" if role != "outside" else "add a row for the outside option, with its count"
                raise SchemaError(
                    f"counts ({self.counts!r}) and {role} ({getattr(self, role)!r}) are mutually exclusive: {remedy}."
                )
        for role in ("chosen", "rank", "counts", "available", "weight", "person"):
            if (name := getattr(self, role)) in inputs:
                why = ", or a model would memorise the persons" if role == "person" else ""
                raise SchemaError(
                    f"column {name!r} is declared as {role} and also as a model input: "
                    f"remove it from individual and features{why}."
                )
        input_names = frozenset(inputs)
        for role, columns in (("categorical", self.categorical or ()), ("kinds", self.kinds)):
            unknown = [column for column in columns if column not in input_names]
            if unknown:
                raise SchemaError(
                    f"{role} includes {unknown[0]!r}, which is in neither individual nor features."
                    + did_you_mean(unknown[0], inputs)
                )
        for name in self.kinds:
            if name in (self.categorical or ()):
                raise SchemaError(
                    f"column {name!r} is declared as categorical and as {self.kinds[name]}: keep one of them."
                )
            if name in (self.choice_set, self.alternative, *self.keep):
                raise SchemaError(
                    f"column {name!r} is declared as {self.kinds[name]}: it cannot also be the choice set, the label "
                    f"or a kept column."
                )

        for name in self.signs:
            self._require_signed(name)

    def _require_signed(self, name: str) -> None:
        """Raise SchemaError if a column cannot have a sign: only plain numeric features can."""
        numeric = [column for column in self.features if column not in (*(self.categorical or ()), *self.kinds)]
        if name in self.individual:
            reason = "which is an individual-level column: all alternatives of a set have the same value."
        elif name in (self.categorical or ()):
            reason = "which is categorical: categories have no order."
        elif name in self.kinds:
            reason = f"which has kind {self.kinds[name]}: remove it from kinds or from signs."
        elif name not in self.features:
            reason = "which is not in features." + did_you_mean(name, numeric)
        else:
            return
        raise SchemaError(f"signs includes {name!r}, {reason}")

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that have a role, without duplicates, in a fixed order."""
        names = [getattr(self, role) for role in _SINGLE if getattr(self, role) is not None]
        return tuple(dict.fromkeys([*names, *self.individual, *self.table_features, *self.keep]))

    @property
    def outside_feature(self) -> str | None:
        """Feature that marks the outside option if there are no labels. The table does not hold this feature."""
        return self.outside if self.alternative is None else None

    @property
    def table_features(self) -> tuple[str, ...]:
        """Features that are columns of the table."""
        return tuple(name for name in self.features if name != self.outside_feature)

    @property
    def can_have_missing_values(self) -> bool:
        """Whether features may be missing, because ``missing`` is "indicator" or there is an outside option."""
        return self.missing == "indicator" or self.outside is not None

    @property
    def names(self) -> ColumnNames:
        """Display names and units of the columns."""
        return ColumnNames(self.named)

    @property
    def without_names(self) -> Schema:
        """The schema without display names and without the roles of a wide table."""
        return replace(self, named={}, wide={})

    def has_choices_in(self, names: Collection[str]) -> bool:
        """Return True if a long or wide table with the given columns holds the choices.

        Parameters
        ----------
        names
            Columns of the table.
        """
        return self.choices in names or self.wide.get("chosen") in names

    @property
    def choices(self) -> str | None:
        """Column with the choices (``chosen``, ``rank`` or ``counts``), or None if the choices are unknown."""
        columns = (self.chosen, self.rank, self.counts)
        return next((column for column in columns if column is not None), None)

    @property
    def has_several_choices(self) -> bool:
        """Whether a set of the table is read as several choice sets, as a ranking or a market is."""
        return self.rank is not None or self.counts is not None

    @property
    def group_column(self) -> str | None:
        """Column that keeps sets together in splits: the person column, the id of a ranking or market, or None."""
        return self.choice_set if self.person is None and self.has_several_choices else self.person

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """Set-level columns that models do not use: ``keep``, ``person``, and the ids of rankings or markets."""
        ranking = self.choice_set if self.has_several_choices else None
        return tuple(dict.fromkeys([*self.keep, *(name for name in (self.person, ranking) if name is not None)]))

    @property
    def contents(self) -> dict[str, str]:
        """Kind of each content column, such as "text" or "image"."""
        return {name: kind for name, kind in self.kinds.items() if kind in KINDS}

    @property
    def curves(self) -> dict[str, Curve]:
        """Kind of curve for each numeric column to which networks also apply a curve."""
        return {name: cast("Curve", kind) for name, kind in self.kinds.items() if kind in CURVES}

    @property
    def text_columns(self) -> frozenset[str]:
        """Columns whose values are names, even if they look like numbers."""
        not_inputs = [name for name in self.kept_columns if name not in (*self.individual, *self.features)]
        label = [] if self.alternative is None else [self.alternative]
        names = [*(self.categorical or ()), *not_inputs, *label, *self.contents]
        return frozenset(names) - self.id_columns

    @property
    def number_columns(self) -> frozenset[str]:
        """Columns that are read as numbers. The categorical columns of the schema must already be resolved."""
        names = {*(self.categorical or ()), *self.contents}
        flags = {self.chosen, self.rank, self.counts, self.available, self.weight} - {None}
        return frozenset({*self.individual, *self.features} - names) | cast("set[str]", flags)

    @property
    def id_columns(self) -> frozenset[str]:
        """Columns of ids, which are read as integers if all values are written as integers, otherwise as names."""
        whole = [name for name, kind in self.contents.items() if KINDS[kind].is_whole_number]
        return frozenset([self.choice_set, *whole])

    @property
    def name_columns(self) -> frozenset[str]:
        """Columns of names and ids, whose values stay as written in a copy of the table."""
        return self.text_columns | self.id_columns

    def for_prediction(self) -> Schema:
        """Return the schema of a table for prediction, which has no choices, weights, persons or kept columns."""
        removed = {self.chosen, self.rank, self.counts, self.weight, *self.kept_columns}
        removed -= {*self.individual, *self.features, self.alternative, self.choice_set}
        named = {name: words for name, words in self.named.items() if name not in removed}
        return replace(self, chosen=None, rank=None, counts=None, weight=None, person=None, keep=(), named=named)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values. Fields added in later releases are left out unless they are set."""
        entries: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        words = entries.pop("named")
        entries["columns"] = {k: {entry: text for entry, text in v.items() if text} for k, v in words.items()}
        return {k: v for k, v in entries.items() if k not in _LATER_FIELDS or v not in (None, {})}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Schema:
        """Build a schema from the result of :meth:`to_dict`.

        Parameters
        ----------
        entries : dict
            The fields of a schema, with the key ``columns`` in place of ``named``.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            If a key is unknown, if ``choice_set`` is missing, or if an entry is invalid.
        """
        names = ["columns" if f.name == "named" else f.name for f in fields(cls)]
        for key in entries:
            if key not in names:
                raise SchemaError(f"unknown schema entry {key!r}." + did_you_mean(key, names))
        if entries.get("wide"):
            entries = {**long_roles(wide_roles(entries["wide"])), **entries}
        if "choice_set" not in entries:
            raise SchemaError("choice_set is missing: name the column with the ids of the choice sets.")
        return cls(**{"named" if key == "columns" else key: value for key, value in entries.items()})

    def to_toml(self) -> str:
        """Return the text of a TOML file that :meth:`from_toml` reads back."""
        entries = {k: v for k, v in self.to_dict().items() if v is not None}
        tables = {name: entries.pop(name, {}) for name in ("kinds", "signs", "wide")}
        tables |= {f"columns.{_toml(k)}": v for k, v in entries.pop("columns", {}).items()}
        lines = [f"{k} = {_toml(v)}\n" for k, v in entries.items()]
        for head, table in tables.items():
            lines += [f"\n[{head}]\n", *(f"{_toml(k)} = {_toml(v)}\n" for k, v in table.items())] if table else []
        return "".join(lines).replace("\x7f", "\\u007f")  # the only character that JSON allows and TOML does not

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema from a TOML file.

        Parameters
        ----------
        path : path
            A TOML file whose keys are the fields of a schema, with ``columns`` in place of ``named``.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            If the file cannot be read, is not valid TOML, or has an invalid entry.
        """
        try:
            entries = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            remedy = " The command 'pcmcnet check TABLE -o roles.toml' writes one." if not Path(path).exists() else ""
            raise SchemaError(f"schema file {path}: {error.strerror or error}.{remedy}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SchemaError(
                f"schema file {path} is not valid TOML: {error}. Expected column roles, such as "
                f"choice_set = \"trip\". The command 'pcmcnet check TABLE -o roles.toml' writes such a file."
            ) from error
        except RecursionError:
            raise SchemaError(f"schema file {path} is nested too deeply: expected names and lists of names.") from None
        return cls.from_dict(entries)


def require_distinct(columns: Mapping[str, str | None]) -> None:
    """Raise SchemaError if two roles have the same column. ``columns`` maps roles to columns."""
    roles: dict[str, str] = {}
    for role, name in columns.items():
        if name is not None and (first := roles.setdefault(name, role)) != role:
            raise SchemaError(f"column {name!r} is declared as {first} and also as {role}: each needs its own column.")


def _toml(value: Any) -> str:
    """Return a string, number, list or mapping as TOML. Strings are written as in JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(entry)}" for name, entry in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _names(value: Any, *, role: str) -> tuple[str, ...] | None:
    """Return a list of column names as a tuple, or raise SchemaError if the value is a single string or not a list."""
    if value is None:
        return None if role == "categorical" else ()
    if isinstance(value, str):
        raise SchemaError(f"{role} must be a list of column names, got the string {value!r}: write [{value!r}].")
    unordered = isinstance(value, Set) and not isinstance(value, KeysView)
    names = tuple(value) if isinstance(value, Iterable) and not unordered else (None,)
    if not all(isinstance(n, str) for n in names):
        raise SchemaError(f"{role} must be a list of column names, got {value!r}.")
    return tuple(dict.fromkeys(names)) if role in ("categorical", "keep") else names


def _kinds(value: Any) -> dict[str, str]:
    """Return a mapping from columns to kinds, or raise SchemaError if a kind is unknown."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise SchemaError(f"kinds must map columns to kinds, as in {{'column': 'vector'}}, got {value!r}.")
    kinds = (*KINDS, *CURVES)
    for name, kind in value.items():
        if kind not in kinds:
            hint = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
            raise SchemaError(
                f"column {name!r}: the kind must be one of {', '.join(map(repr, kinds))}, got {kind!r}. "
                f"Numeric columns need no kind; list categorical columns in categorical.{hint}"
            )
    return dict(value)


def _signs(value: Any) -> dict[str, Sign]:
    """Return a mapping from columns to signs, or raise SchemaError if a sign is neither "+" nor "-"."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise SchemaError(f"signs must map columns to '+' or '-', as in {{'price': '-'}}, got {value!r}.")
    for name, sign in value.items():
        if sign not in get_args(Sign):
            raise SchemaError(f"signs: expected '+' or '-' for column {name!r}, got {sign!r}.")
    return dict(value)


def _require_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise SchemaError(f"{name} must be one of {', '.join(map(repr, words))}, got {value!r}.")
