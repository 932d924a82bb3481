"""What each column of a table is: the roles, declared once, checked, saved and read back.

A :class:`Schema` holds the same words as the arguments of ``ChoiceData.from_long``. It travels with
a fitted model, so that a new table is read the way the training table was.
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
# Where a wide table holds what the roles of its long form name; kept with the schema, so that others are read alike: a
# mapping with the arguments of `ChoiceData.from_wide` that the long form has no words for. Values are plain, for JSON.

Label = str | int
LONG_FORM_COLUMNS = ("choice_set", "chosen", "rank", "alternative", "available")  # columns of the long form

_ENTRIES = ("alternatives", "features", "chosen", "rank", "available", "choice_set")


def wide_roles(value: Any) -> dict[str, Any]:
    """Take such a mapping with plain values, refusing anything else; {} for a long table.

    Examples
    --------
    >>> wide_roles({"alternatives": ["car", "bus"], "features": {"time": "{alternative}_time"}, "chosen": "mode"})
    {'alternatives': {'car': 'car', 'bus': 'bus'}, 'features': {'time': '{alternative}_time'}, 'chosen': 'mode'}
    """
    if not isinstance(value, Mapping):
        raise SchemaError(f"wide must say where the columns of each alternative are, got {value!r}.")
    for key in value:
        if key not in _ENTRIES:
            raise SchemaError(f"wide: unknown entry {key!r}." + did_you_mean(str(key), _ENTRIES))
    given = {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if not given:
        return {}
    for key in ("alternatives", "features"):
        if key not in given:
            raise SchemaError(f"wide: {key} is missing, which says where the columns of a wide table are.")
    if not isinstance(given["features"], Mapping):
        raise SchemaError(f"wide: features must map names to templates or columns, got {given['features']!r}.")
    return {**given, "alternatives": _plain(labels_of(given["alternatives"]))}


def long_roles(wide: Mapping[str, Any]) -> dict[str, Any]:
    """Return the roles that follow for the long form: its own columns, and the features."""
    own = {role: role for role in ("chosen", "rank", "available") if role in wide}
    return {"choice_set": "choice_set", "alternative": "alternative", "features": list(wide["features"]), **own}


def labels_of(alternatives: Sequence[Label] | Mapping[Any, Any]) -> dict[str, Any]:
    """Label -> its value in the chosen column; a whole number is a label as it is written."""
    given = [] if isinstance(alternatives, str) or not hasattr(alternatives, "__iter__") else list(alternatives)
    labels = [label_of(label) for label in given]
    if not labels or not all(isinstance(label, str) for label in labels) or len(set(labels)) < len(labels):
        raise SchemaError(
            f"alternatives must be a list of distinct labels or a mapping from labels, got {alternatives!r}."
        )
    codes = alternatives.values() if isinstance(alternatives, Mapping) else given
    return dict(zip(labels, codes, strict=True))


def label_of(label: Any) -> Any:
    """Take whole numbers, such as the codes of a survey, for names."""
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

_SINGLE = ("choice_set", "chosen", "rank", "alternative", "available", "weight", "person")
_LISTS = ("individual", "features", "categorical", "keep")
# Not written where empty: what was saved before they came compares as equal.
_LATER = ("rank", "person", "outside", "kinds", "columns", "wide")


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """The roles of a long table's columns.

    Parameters
    ----------
    choice_set
        Column with the id of the choice set.
    chosen
        Column 0/1 or bool, exactly one per set; None for a table that is only to be predicted.
    rank
        In place of ``chosen``, column with the place of the alternative in a ranking: 1 for the best, empty for those
        below all ranked ones. A ranking is read as a sequence of choices, which stay together.
    alternative
        Column with the label of the alternative, unique within a set.
    individual
        Columns constant within a set.
    features
        Columns of the alternative.
    categorical
        Which of ``individual`` and ``features`` are categorical; None decides by dtype.
    available
        Column 0/1 or bool; rows with 0 are outside their set.
    weight
        Column with the weight of the set.
    person
        Column with the id of the person who chooses, constant within a set, read as names. A person's sets stay
        together in splits, folds and resamples. Models do not see it.
    keep
        Columns constant within a set that are carried along for grouping, not for models.
    outside
        Name of an alternative of every set that has no features, such as "none" for buying nothing. It needs no rows:
        a set without a chosen row is one in which it was chosen. Without ``alternative``, it is a feature of this name,
        1 for the option and 0 for others.
    conflict
        What to do when an individual column varies within a set: "error", or take the "first" row's.
    missing
        What to do with missing values: "error", or "indicator" (the training mean plus a 0/1 feature).
    kinds
        Which of ``individual`` and ``features`` are neither numbers nor categories, with the kind of each: "vector",
        "datetime", "multi", "text", "image" or "id". Also which numbers networks see by a curve: "piecewise" or
        "spline"; to other models they are numbers like any others.
    named
        What people call columns, with their units: ``{"price": {"name": "Price", "unit": "EUR"}}``. In files, and in
        ``ChoiceData.from_long``, it is called ``columns``. It changes no model and no comparison of schemas.
    wide
        Of a wide table, where the columns of each alternative are, by the arguments of ``ChoiceData.from_wide``:
        ``alternatives``, ``features``, ``chosen``, ``available``. The other roles are those of its long form.
    """

    choice_set: str
    chosen: str | None = None
    rank: str | None = None
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
    named: Mapping[str, ColumnName] = field(default_factory=dict, compare=False)
    wide: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for name in _LISTS:
            object.__setattr__(self, name, _names(getattr(self, name), role=name))
        for name in _SINGLE:
            value = getattr(self, name)
            if not (isinstance(value, str) or (value is None and name != "choice_set")):
                raise SchemaError(f"{name} must be the name of a column, got {value!r}.")
        if self.outside is not None and not (isinstance(self.outside, str) and self.outside.strip()):
            raise SchemaError(f"outside must be the name of an alternative, got {self.outside!r}.")
        if self.outside_feature is not None and self.outside_feature not in self.features:
            object.__setattr__(self, "features", (*self.features, self.outside_feature))
        _require_word("conflict", self.conflict, get_args(Conflict))
        _require_word("missing", self.missing, get_args(Missing))
        object.__setattr__(self, "kinds", _kinds(self.kinds))
        object.__setattr__(self, "wide", wide_roles(self.wide))
        self._require_apart()
        object.__setattr__(self, "named", column_names(self.named, self.columns))

    def _require_apart(self) -> None:
        """Refuse a column with two roles that contradict or leak into each other."""
        require_distinct({role: getattr(self, role) for role in _SINGLE})
        inputs = [*self.individual, *self.features]
        for name, times in Counter(inputs).items():
            if times > 1:
                raise SchemaError(f"column {name!r} is listed twice among individual and features: keep one.")
        if self.chosen is not None and self.rank is not None:
            raise SchemaError(f"chosen ({self.chosen!r}) and rank ({self.rank!r}) both say what was chosen: keep one.")
        for role in ("chosen", "rank", "available", "weight", "person"):
            if (name := getattr(self, role)) in inputs:
                why = ", a model would learn the persons by heart" if role == "person" else ""
                raise SchemaError(
                    f"column {name!r} is declared as {role} and also as a model input: "
                    f"take it out of individual and features{why}."
                )
        known = frozenset(inputs)
        for role, named in (("categorical", self.categorical or ()), ("kinds", self.kinds)):
            unknown = [c for c in named if c not in known]
            if unknown:
                raise SchemaError(
                    f"{role} names {unknown[0]!r}, which is neither in individual nor in features."
                    + did_you_mean(unknown[0], inputs)
                )
        for name in self.kinds:
            if name in (self.categorical or ()):
                raise SchemaError(
                    f"column {name!r} is declared as categorical and as {self.kinds[name]}: keep one of them."
                )
            if name in (self.choice_set, self.alternative, *self.keep):
                raise SchemaError(f"column {name!r} is declared as {self.kinds[name]}: it cannot be a name as well.")

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column named by some role, once, in a stable order."""
        names = [getattr(self, role) for role in _SINGLE if getattr(self, role) is not None]
        return tuple(dict.fromkeys([*names, *self.individual, *self.table_features, *self.keep]))

    @property
    def outside_feature(self) -> str | None:
        """Feature that marks the outside option, where there are no labels; it is no column of the table."""
        return self.outside if self.alternative is None else None

    @property
    def table_features(self) -> tuple[str, ...]:
        """Features that are columns of the table."""
        return tuple(name for name in self.features if name != self.outside_feature)

    @property
    def can_have_missing_values(self) -> bool:
        """Whether features may be missing: where the table may have gaps, or there is an outside option."""
        return self.missing == "indicator" or self.outside is not None

    @property
    def names(self) -> ColumnNames:
        """What people call the columns."""
        return ColumnNames(self.named)

    @property
    def unnamed(self) -> Schema:
        """The roles alone, which say what a table is: words for columns change none."""
        return replace(self, named={}, wide={})

    def has_choices_in(self, names: Collection[str]) -> bool:
        """Tell whether columns of these names hold what was chosen, in the long form or in a wide one."""
        return self.choices in names or self.wide.get("chosen") in names

    @property
    def choices(self) -> str | None:
        """Column that tells what was chosen: ``chosen`` or ``rank``."""
        return self.rank if self.chosen is None else self.chosen

    @property
    def together(self) -> str | None:
        """Column whose sets go together: those of a person, or the choices of a ranking."""
        return self.choice_set if self.person is None and self.rank is not None else self.person

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """Columns of the set that are carried along and not shown to models, each once.

        ``keep``, then ``person``, then the ids of rankings.
        """
        ranking = None if self.rank is None else self.choice_set
        return tuple(dict.fromkeys([*self.keep, *(name for name in (self.person, ranking) if name is not None)]))

    @property
    def contents(self) -> dict[str, str]:
        """Kinds of the columns that are neither numbers nor categories."""
        return {name: kind for name, kind in self.kinds.items() if kind in KINDS}

    @property
    def curves(self) -> dict[str, Curve]:
        """Kinds of the numbers that networks see by a curve."""
        return {name: cast("Curve", kind) for name, kind in self.kinds.items() if kind in CURVES}

    @property
    def text_columns(self) -> frozenset[str]:
        """Columns whose values are known to be names, even where they look like numbers."""
        carried = [name for name in self.kept_columns if name not in (*self.individual, *self.features)]
        label = [] if self.alternative is None else [self.alternative]
        names = [*(self.categorical or ()), *carried, *label, *self.contents]
        return frozenset(names) - self.id_columns

    @property
    def number_columns(self) -> frozenset[str]:
        """Columns that are read as numbers, once the kinds of all columns are resolved."""
        names = {*(self.categorical or ()), *self.contents}
        flags = {self.chosen, self.rank, self.available, self.weight} - {None}
        return frozenset({*self.individual, *self.features} - names) | cast("set[str]", flags)

    @property
    def id_columns(self) -> frozenset[str]:
        """Columns of ids: numbers where they are written as whole ones, and names otherwise."""
        whole = [name for name, kind in self.contents.items() if KINDS[kind].is_whole_number]
        return frozenset([self.choice_set, *whole])

    @property
    def name_columns(self) -> frozenset[str]:
        """Columns of names and ids, which are copied as they are written."""
        return self.text_columns | self.id_columns

    def for_prediction(self) -> Schema:
        """Return the roles that a prediction needs: no choices, weights, persons or kept columns."""
        gone = {self.chosen, self.rank, self.weight, *self.kept_columns}
        gone -= {*self.individual, *self.features, self.alternative, self.choice_set}
        named = {name: words for name, words in self.named.items() if name not in gone}
        return replace(self, chosen=None, rank=None, weight=None, person=None, keep=(), named=named)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and strings, for JSON; without kinds, person or names where there are none to tell."""
        entries: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        words = entries.pop("named")
        entries["columns"] = {k: {entry: text for entry, text in v.items() if text} for k, v in words.items()}
        return {k: v for k, v in entries.items() if k not in _LATER or v not in (None, {})}

    @classmethod
    def from_dict(cls, entries: dict[str, Any]) -> Schema:
        """Build from plain values; an unknown key is refused."""
        known = ["columns" if f.name == "named" else f.name for f in fields(cls)]
        for key in entries:
            if key not in known:
                raise SchemaError(f"unknown schema entry {key!r}." + did_you_mean(key, known))
        if entries.get("wide"):
            entries = {**long_roles(wide_roles(entries["wide"])), **entries}
        if "choice_set" not in entries:
            raise SchemaError("the schema names no choice_set: say which column holds the ids of the choice sets.")
        return cls(**{"named" if key == "columns" else key: value for key, value in entries.items()})

    def to_toml(self) -> str:
        """Return the text of a TOML file that :meth:`from_toml` reads back."""
        entries = {k: v for k, v in self.to_dict().items() if v is not None}
        tables = {"kinds": entries.pop("kinds", {}), "wide": entries.pop("wide", {})}
        tables |= {f"columns.{_toml(k)}": v for k, v in entries.pop("columns", {}).items()}
        lines = [f"{k} = {_toml(v)}\n" for k, v in entries.items()]
        for head, table in tables.items():
            lines += [f"\n[{head}]\n", *(f"{_toml(k)} = {_toml(v)}\n" for k, v in table.items())] if table else []
        return "".join(lines).replace("\x7f", "\\u007f")  # the one character that JSON leaves bare and TOML refuses

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read the roles from a TOML file whose keys are the names of this class's fields."""
        try:
            entries = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SchemaError(f"schema file {path}: {error.strerror or error}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SchemaError(f"schema file {path} is not valid TOML: {error}.") from error
        except RecursionError:
            raise SchemaError(f"schema file {path} is nested too deeply: expected names and lists of names.") from None
        return cls.from_dict(entries)


def require_distinct(columns: Mapping[str, str | None]) -> None:
    """Refuse a column with two of the roles that name one column each."""
    roles: dict[str, str] = {}
    for role, name in columns.items():
        if name is not None and (twin := roles.setdefault(name, role)) != role:
            raise SchemaError(f"column {name!r} is declared as {twin} and also as {role}: each needs its own.")


def _toml(value: Any) -> str:
    """Write texts, numbers, lists and mappings as TOML, whose strings are those of JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(entry)}" for name, entry in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _names(value: Any, *, role: str) -> tuple[str, ...] | None:
    """Turn a list of column names into a tuple, refusing a bare string and anything unnamed."""
    if value is None:
        return None if role == "categorical" else ()
    if isinstance(value, str):
        raise SchemaError(f"{role} must be a list of column names, got the text {value!r}: write [{value!r}].")
    unordered = isinstance(value, Set) and not isinstance(value, KeysView)
    names = tuple(value) if isinstance(value, Iterable) and not unordered else (None,)
    if not all(isinstance(n, str) for n in names):
        raise SchemaError(f"{role} must be a list of column names, got {value!r}.")
    return tuple(dict.fromkeys(names)) if role in ("categorical", "keep") else names


def _kinds(value: Any) -> dict[str, str]:
    """Take a mapping from columns to kinds."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise SchemaError(f"kinds must name the kind of each column, as in {{'column': 'vector'}}, got {value!r}.")
    known = (*KINDS, *CURVES)
    for name, kind in value.items():
        if kind not in known:
            hint = did_you_mean(kind, known) if isinstance(kind, str) else ""
            raise SchemaError(
                f"column {name!r}: the kind must be one of {', '.join(map(repr, known))}, got {kind!r}. "
                f"Numbers need none, and categories are listed in categorical.{hint}"
            )
    return dict(value)


def _require_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise SchemaError(f"{name} must be one of {', '.join(map(repr, words))}, got {value!r}.")
