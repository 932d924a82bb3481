"""History of a person's choices as features: state dependence (Guadagni and Little, 1983).

Person p makes the choices y_1, y_2, ... in the order of a column. Before the choice in set s, the person has made n
choices. Alternative i with label a then has the features

    last_choice     1 if y_n = a, otherwise 0
    loyalty         L_n(a), where L_k(a) = d L_{k-1}(a) + (1 - d) [y_k = a] and L_0(a) = 1 / |S|
    time_since      time from the person's last choice of a to this set; 0 if the person has not chosen a before
    never_chosen    1 if the person has not chosen a before (comes with time_since)
    times_chosen    number of earlier choices of a
    first_choice    1 if y_1 = a and n > 0

where d is the decay and |S| is the size of the set, so that a person without history is equally loyal to all
alternatives. If all sets contain the same alternatives, the loyalties of a set sum to 1. Only choices before the set
enter its features, and nothing is learnt from the table, so features of held-out sets contain no later choices and no
choices of other persons.

Shapes: N alternatives of S sets, E earlier choices. The features are computed in O((N + E) log E): choices are sorted
by (person, label, number), and the choices that precede a row are found by binary search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.data.columns.ragged import spread
from pcmcnet.data.outside import with_blank_outside_features
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean

HISTORY_COLUMNS = ("last_choice", "loyalty", "time_since", "times_chosen", "first_choice")
_DEFAULT_COLUMNS = ("last_choice", "loyalty", "time_since", "times_chosen")
_NEVER = "never_chosen"
_DAY = np.timedelta64(1, "D")

Past = ChoiceData | Sequence[ChoiceData] | None


@dataclass(frozen=True, kw_only=True)
class ChoiceHistory:
    """Options of the features that describe the earlier choices of a person.

    Parameters
    ----------
    order
        Column with the time of the choice, constant within a set: an individual-level or kept column of numbers or of
        dates such as "2024-03-01". A person's values must be distinct. Default None: the order of the choice sets in
        the table.
    columns
        Names of the features to add: "last_choice", "loyalty", "time_since" (with "never_chosen"), "times_chosen" and
        "first_choice". Default: all but "first_choice".
    decay
        Decay d of the loyalty, from 0 to 1 (exclusive). Default 0.875, the estimate of Guadagni and Little (1983) for
        brands of coffee.
    burn_in
        Number of first choices of each person that only start the history and are left out of the result. Default 0.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2, 3, 3], "mode": ["car", "bus"] * 3, "took": [1, 0, 1, 0, 0, 1], "who": [7] * 6}
    >>> roles = {"choice_set": "trip", "chosen": "took", "alternative": "mode", "person": "who"}
    >>> data = ChoiceData.from_long(table, **roles)
    >>> ChoiceHistory(columns=("last_choice", "loyalty"), decay=0.5).features(data).to_frame()[
    ...     ["last_choice", "loyalty"]
    ... ]
       last_choice  loyalty
    0          0.0    0.500
    1          0.0    0.500
    2          1.0    0.750
    3          0.0    0.250
    4          1.0    0.875
    5          0.0    0.125
    """

    order: str | None = None
    columns: Sequence[str] = _DEFAULT_COLUMNS
    decay: float = 0.875
    burn_in: int = 0

    def __post_init__(self) -> None:
        if not (self.order is None or isinstance(self.order, str)):
            raise ConfigError(f"order: expected the name of a column, got {self.order!r}.")
        if isinstance(self.columns, str) or not list(self.columns):
            raise ConfigError(f"columns: expected a list of names such as ['loyalty'], got {self.columns!r}.")
        for name in self.columns:
            if name not in HISTORY_COLUMNS:
                raise ConfigError(f"columns: unknown feature {name!r}." + did_you_mean(name, HISTORY_COLUMNS))
        require_number("decay", self.decay, low=0, high=1, open_high=True)
        require_number("burn_in", self.burn_in, whole=True, low=0)
        object.__setattr__(self, "columns", tuple(dict.fromkeys(self.columns)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features that are added."""
        pairs = [(name, _NEVER) if name == "time_since" else (name,) for name in self.columns]
        return tuple(name for pair in pairs for name in pair)

    def features(self, data: ChoiceData, past: Past = None) -> ChoiceData:
        """Return the choice sets with features of the person's earlier choices.

        Parameters
        ----------
        data
            Choice sets of persons, with labels. If their choices are unknown, only the choices in ``past`` are used.
        past
            Earlier choices of the same persons, such as those of the training part. Default None: there are none.

        Returns
        -------
        ChoiceData
            The same choice sets with further features, without the first ``burn_in`` choices of each person.

        Raises
        ------
        SchemaError
            If the table declares no persons or no labels, if the order column is missing or cannot be ordered, if a
            person has two choices at the same time, or if a feature of the same name exists.
        InputError
            If the data is not ``ChoiceData``, or if no set remains after ``burn_in``.
        """
        _require_panel(data, "data")
        earlier = [past] if isinstance(past, ChoiceData) else list(past or ())
        for part in earlier:
            _require_panel(part, "past")
            part.require_chosen("past: a history")
        if clash := [name for name in self.names if name in (*data.schema.features, *data.schema.individual)]:
            raise SchemaError(
                f"the table already has a column {clash[0]!r}: rename it, or leave it out of columns=[...]."
            )
        timeline = Timeline.of([*earlier, data], self.order)
        columns = timeline.features(self)
        schema = replace(data.schema, features=(*data.schema.features, *self.names))
        added = {name: Numeric(columns[name].astype(np.float32)) for name in self.names}
        result = with_blank_outside_features(replace(data, schema=schema, features={**data.features, **added}))
        if not self.burn_in:
            return result
        remaining = timeline.n_earlier >= self.burn_in
        if not remaining.any():
            raise InputError(
                f"burn_in: expected persons with more than {self.burn_in} choices, but no person has them: lower it."
            )
        return result.subset(remaining)


@suggests_arguments()
def history(
    data: ChoiceData,
    *,
    order: str | None = None,
    columns: Sequence[str] = _DEFAULT_COLUMNS,
    decay: float = 0.875,
    burn_in: int = 0,
    past: Past = None,
) -> ChoiceData:
    """Add features that describe the earlier choices of each person: last choice, loyalty, time since, counts.

    Parameters
    ----------
    data
        Choice sets with persons and labels, read with ``person=`` and ``alternative=``.
    order
        Column with the time of the choice: an individual-level or kept column of numbers or dates, in which a person's
        values are distinct. Default None: the order of the choice sets in the table.
    columns
        Names of the features to add: "last_choice", "loyalty", "time_since" (with "never_chosen"), "times_chosen" and
        "first_choice". Default: all but "first_choice".
    decay
        Decay of the loyalty, from 0 to 1 (exclusive). Default 0.875.
    burn_in
        Number of first choices of each person that only start the history and are left out of the result. Default 0.
    past
        Earlier choices of the same persons, such as those of the training part. Default None: there are none.

    Returns
    -------
    ChoiceData
        The choice sets with further numeric features. Each feature depends only on choices before its choice set.

    Raises
    ------
    ConfigError
        If an option is not valid.
    SchemaError
        If the table declares no persons or no labels, if the order column is missing or has ties, or if a feature of
        the same name exists.
    InputError
        If no choice set remains.
    """
    return ChoiceHistory(order=order, columns=columns, decay=decay, burn_in=burn_in).features(data, past)


def _require_panel(data: object, argument: str) -> None:
    """Raise an error unless the argument is a table of choices with persons and labels."""
    if not isinstance(data, ChoiceData):
        raise InputError(f"{argument}: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
    if data.schema.rank is not None:
        raise SchemaError(
            f"{argument}: a history needs single choices, but the table has rankings: read it with chosen=<column>."
        )
    if data.schema.person is None:
        raise SchemaError(
            f"{argument}: a history needs persons, but the table declares none: read it with person=<column>."
        )
    if data.labels is None:
        raise SchemaError(
            f"{argument}: a history needs labels that identify alternatives over time, but the table declares none: "
            f"read it with alternative=<column>."
        )


# -- Timeline ----------------------------------------------------------------------------------------------------------


class Timeline(NamedTuple):
    """The choices of all persons in order, and the rows whose history is computed.

    Choices are sorted by person and time; persons, times and labels are codes.
    """

    person: Ints  # (E,)
    time: Floats  # (E,)
    label: Ints  # (E,)
    number: Ints  # (E,) number of earlier choices of the same person
    set_person: Ints  # (S,)
    set_time: Floats  # (S,)
    n_earlier: Ints  # (S,) number of earlier choices of the set's person
    row_label: Ints  # (N,)
    offsets: Ints  # (S + 1,)
    n_labels: int
    has_times: bool  # whether times are those of a column

    @classmethod
    def of(cls, parts: Sequence[ChoiceData], order: str | None) -> Timeline:
        """Order the choices of all parts. The last part holds the sets whose history is computed."""
        data = parts[-1]
        # 1. Persons, labels and times of all parts with the same codes.
        persons, names = _joint_codes([_persons(part) for part in parts])
        labels, label_names = _joint_codes([part.labels for part in parts if part.labels is not None])
        times = _times(parts, order)
        # 2. Sort the known choices by person and time. The last part may have unknown choices.
        events = [_events(*part) for part in zip(parts, persons, times, labels, strict=True)]
        person, time, label = (np.concatenate(column) for column in zip(*events, strict=True))
        order_of_choices = np.lexsort((time, person))
        person, time, label = person[order_of_choices], time[order_of_choices], label[order_of_choices]
        _require_no_ties(person, time, names, order)
        # 3. Count the choices of each person before each set.
        number = np.arange(len(person)) - np.searchsorted(person, person)
        moments, code = np.unique(np.concatenate([time, times[-1]]), return_inverse=True)
        keys = person * len(moments) + code[: len(person)]
        set_keys = persons[-1] * len(moments) + code[len(person) :]
        n_earlier = np.searchsorted(keys, set_keys) - np.searchsorted(person, persons[-1])
        return cls(
            person=person,
            time=time,
            label=label,
            number=number,
            set_person=persons[-1],
            set_time=times[-1],
            n_earlier=n_earlier,
            row_label=labels[-1],
            offsets=data.offsets,
            n_labels=len(label_names),
            has_times=order is not None,
        )

    def features(self, options: ChoiceHistory) -> dict[str, Floats]:
        """Return all features of the rows, (N,) each."""
        # 1. Sort the choices by person, label and number.
        span = int(self.number.max(initial=0)) + 2  # above every number of earlier choices
        group = self.person * self.n_labels + self.label
        order = np.lexsort((self.number, group))
        group, number = group[order], self.number[order]
        keys = group * span + number
        # 2. Find the earlier choices of each row's label by the row's person.
        n = spread(self.n_earlier, self.offsets)
        row_group = spread(self.set_person, self.offsets) * self.n_labels + self.row_label
        begin, end = np.searchsorted(keys, row_group * span), np.searchsorted(keys, row_group * span + n)
        count = end - begin
        chosen, last = count > 0, np.where(count > 0, end - 1, 0)
        numbers = np.append(number, 0)[last]  # the last entry is for tables without choices
        # 3. Compute the features from the last of these choices.
        times = np.append(self.time[order], 0.0)[last]
        since = spread(self.set_time, self.offsets) - times if self.has_times else (n - numbers).astype(np.float64)
        loyalty = np.append(_discounted_counts(group, number, options.decay), 0.0)[last]
        # A person without earlier choices is equally loyal to all alternatives.
        start = np.power(options.decay, n) / spread(np.diff(self.offsets), self.offsets)
        return {
            "last_choice": (chosen & (numbers == n - 1)).astype(np.float64),
            "loyalty": np.where(chosen, np.power(options.decay, np.maximum(n - 1 - numbers, 0)) * loyalty, 0.0) + start,
            "time_since": np.where(chosen, since, 0.0),
            _NEVER: (~chosen).astype(np.float64),
            "times_chosen": count.astype(np.float64),
            "first_choice": self._is_first(n),
        }

    def _is_first(self, n: Ints) -> Floats:
        """Return 1 for rows with the label of their person's first choice, if that choice was before the set."""
        first = np.searchsorted(self.person, self.set_person)
        label = np.append(self.label, -1)[spread(first, self.offsets)]
        is_first: Floats = ((n > 0) & (label == self.row_label)).astype(np.float64)
        return is_first


def _events(data: ChoiceData, persons: Ints, times: Floats, labels: Ints) -> tuple[Ints, Floats, Ints]:
    """Return the persons, times and labels of the known choices."""
    if data.chosen is None:
        return persons[:0], times[:0], labels[:0]
    return persons, times, labels[data.offsets[:-1] + data.chosen]


def _discounted_counts(group: Ints, number: Ints, decay: float) -> Floats:
    """Return C_j = (1 - d) + d^(k_j - k_{j-1}) C_{j-1} for the choices k_1 < k_2 < ... of each group: (E,) -> (E,)."""
    counts = np.full(len(group), 1 - decay)
    place = np.arange(len(group)) - np.searchsorted(group, group)
    # All groups advance together: first their second choices, then their third, and so on.
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=1))
    for begin, end in pairwise(ends):
        at = order[begin:end]
        counts[at] += np.power(decay, number[at] - number[at - 1]) * counts[at - 1]
    return counts


def _persons(data: ChoiceData) -> Categorical:
    column = data.keep[str(data.schema.person)]
    assert isinstance(column, Categorical)  # persons are names
    return column


def _joint_codes(columns: Sequence[Categorical]) -> tuple[list[Ints], list[str]]:
    """Return the codes of columns whose categories are matched by name, and the names of all categories."""
    place: dict[str, int] = {}
    moves = [[place.setdefault(name, len(place)) for name in column.categories] for column in columns]
    return [np.array(move, np.int64)[column.codes] for move, column in zip(moves, columns, strict=True)], list(place)


def _times(parts: Sequence[ChoiceData], order: str | None) -> list[Floats]:
    """Return the times of the sets of all parts: the values of a column, or the order of the sets."""
    if order is not None:
        return [_column_times(part, order) for part in parts]
    ends = np.cumsum([len(part) for part in parts])
    return [np.arange(end - len(part), end, dtype=np.float64) for part, end in zip(parts, ends, strict=True)]


def _column_times(data: ChoiceData, order: str) -> Floats:
    """Return the values of the order column as numbers, or as days if they are dates."""
    columns = {**data.individual, **data.keep}
    if order not in columns or order == data.schema.person:
        raise SchemaError(
            f"order: column {order!r} is neither an individual-level nor a kept column: read the table with "
            f"keep=[{order!r}]." + did_you_mean(order, [name for name in columns if name != data.schema.person])
        )
    column = columns[order]
    if isinstance(column, Numeric):
        times = column.values.astype(np.float64)
    else:  # convert each distinct value once; the last entry is for missing values
        distinct = column.categories if isinstance(column, Categorical) else column.table
        times = np.array([*map(_number, distinct), np.nan])[column.codes]
    bad = np.flatnonzero(~np.isfinite(times))
    if bad.size:
        raise SchemaError(
            f"order: column {order!r}, choice set {data.set_ids[bad[0]]}: expected a number or a date such as "
            f"2024-03-01, got {column.plain()[bad[0]]!r}; {bad.size} in all. Correct or drop them."
        )
    return times


def _number(value: Any) -> float:
    """Return a number, or the days since 1970 of a date; other values become NaN."""
    try:
        return float(str(value))
    except ValueError:
        pass
    try:
        return float((np.datetime64(str(value)) - np.datetime64("1970-01-01")) / _DAY)
    except ValueError:
        return np.nan


def _require_no_ties(person: Ints, time: Floats, names: Sequence[str], order: str | None) -> None:
    """Raise SchemaError if a person has two choices at the same time; the choices are sorted."""
    tied = np.flatnonzero((person[1:] == person[:-1]) & (time[1:] == time[:-1]))
    if tied.size:
        name, moment = names[person[tied[0]]], time[tied[0]]
        raise SchemaError(
            f"order: column {order!r}: person {name!r} has two choices at the same time ({moment:g}); {len(tied)} such "
            f"pairs in all. Give each choice of a person a different value, for example by adding the time of day, or "
            f"pass order=None if the sets of the table are in order."
        )


def choice_numbers(data: ChoiceData, order: str | None) -> Ints:  # -> (S,)
    """Return the position 0, 1, ... of each choice set among those of the same person.

    Parameters
    ----------
    data
        Choice sets with persons and labels.
    order
        Column with the time of the choice, or None for the order of the sets.
    """
    _require_panel(data, "data")
    (person,), names = _joint_codes([_persons(data)])
    (time,) = _times([data], order)
    sorted_ = np.lexsort((time, person))
    _require_no_ties(person[sorted_], time[sorted_], names, order)
    numbers = np.empty(len(data), np.int64)
    numbers[sorted_] = np.arange(len(data)) - np.searchsorted(person[sorted_], person[sorted_])
    return numbers
