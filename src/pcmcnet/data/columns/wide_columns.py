"""Recognise the columns of a wide table: one row per choice set, and one column of each feature for each alternative.

Names such as ``cost_car``, ``cost_train``, ``time_car`` and ``time_train`` consist of a feature and a label. A table
looks wide if at least two features have columns for the same labels, or if the labels are the values of the column with
the choices.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pcmcnet.errors import SchemaError, shortened

CHOSEN_NAMES = r"chos|choice|took|taken|book|bought|select|pick|purchas|click"
"""Pattern of names of columns with the choices."""
_SEPARATORS = "_.- "
_NUMBERED = re.compile(r"(.*[^\d_.\- ])()(\d+)")  # cost1, cost2
_MAX_SHOWN = 4  # alternatives or features in a message

AVAILABILITY_NAMES = ("available", "availability", "avail", "av")  # names of columns of 0 and 1


class WideColumns(NamedTuple):
    """The alternatives of a wide table, and the template of each feature, such as ``cost_{alternative}``."""

    alternatives: tuple[str, ...]
    features: dict[str, str]

    @property
    def examples(self) -> str:
        """Names of columns of one feature, for a message."""
        template = next(iter(self.features.values()))
        shown = [repr(template.replace("{alternative}", label)) for label in self.alternatives[:_MAX_SHOWN]]
        return ", ".join([*shown, *(["..."] if len(self.alternatives) > _MAX_SHOWN else [])])

    @property
    def availability(self) -> str | None:
        """Template of the columns with the availability of the alternatives, or None."""
        return next((template for name, template in self.features.items() if name.lower() in AVAILABILITY_NAMES), None)

    @property
    def inputs(self) -> dict[str, str]:
        """The features without the availability."""
        return {name: template for name, template in self.features.items() if template != self.availability}

    def from_wide_call(self, chosen: str | None) -> str:
        """Return the Python call that reads the table."""
        features = dict(list(self.inputs.items())[:_MAX_SHOWN])
        choices = "" if chosen is None else f", chosen={chosen!r}"
        choices += "" if self.availability is None else f", available={self.availability!r}"
        call = f"ChoiceData.from_wide(table, alternatives={list(self.alternatives)}, features={features}{choices})"
        return shortened(call, 300)

    def error(self, problem: str, names: Sequence[str]) -> SchemaError:
        """Return the error for a wide table that was read as a long table, with the call that reads it.

        Parameters
        ----------
        problem
            What went wrong, without a full stop.
        names
            Columns of the table, one of which may name the chosen alternative.
        """
        used = {template.replace("{alternative}", a) for template in self.features.values() for a in self.alternatives}
        chosen = next((name for name in names if name not in used and re.search(CHOSEN_NAMES, name.lower())), None)
        start = f"{problem}; {self.explanation()}"
        call = self.from_wide_call(chosen or "COLUMN")
        return SchemaError(
            f"{start}. Read it with {call}.",
            command_line=f"{start}. Write the roles of its columns to a file with 'pcmcnet check TABLE -o roles.toml', "
            f"and use this file with --schema roles.toml.",
        )

    def explanation(self) -> str:
        """Return the reason why the table looks wide, as a sentence without the final full stop."""
        return f"the table looks wide, with one column for each alternative ({self.examples})"


def recognise_wide(names: Sequence[str], choices: Collection[str] = ()) -> WideColumns | None:
    """Return the alternatives and features of a table that looks wide, or None.

    Parameters
    ----------
    names
        Columns of the table.
    choices
        Values of the column with the choices, if they are known.

    Examples
    --------
    >>> recognise_wide(["id", "cost_car", "cost_bus", "time_car", "time_bus"])
    WideColumns(alternatives=('car', 'bus'), features={'cost': 'cost_{alternative}', 'time': 'time_{alternative}'})
    """
    best: WideColumns | None = None
    for label_first in (False, True):
        for separator in _SEPARATORS:
            # 1. Split the names into features and labels.
            labels: dict[str, list[str]] = {}
            for name in names:
                left, mark, right = name.partition(separator) if label_first else name.rpartition(separator)
                if left and right and mark:
                    feature, label = (right, left) if label_first else (left, right)
                    labels.setdefault(feature, []).append(label)
            template = f"{{alternative}}{separator}%s" if label_first else f"%s{separator}{{alternative}}"
            best = _better(best, _shared(labels, template, choices), choices)
    numbered: dict[str, list[str]] = {}
    for match in filter(None, map(_NUMBERED.fullmatch, names)):
        numbered.setdefault(match[1], []).append(match[3])
    return _better(best, _shared(numbered, "%s{alternative}", choices), choices)


def recognise_wide_feature(feature: str, names: Sequence[str]) -> WideColumns | None:
    """Return the alternatives of a single feature that has a column for each alternative, or None.

    A single feature is weak evidence: all its columns must end in one word, and another must look like the choice.

    Examples
    --------
    >>> recognise_wide_feature("cost", ["id", "choice", "cost_car", "cost_bus"])
    WideColumns(alternatives=('car', 'bus'), features={'cost': 'cost_{alternative}'})
    >>> recognise_wide_feature("cost", ["id", "cost_car", "cost_bus"])
    """
    if not any(re.search(CHOSEN_NAMES, name.lower()) for name in names):
        return None
    for separator in _SEPARATORS:
        start = f"{feature}{separator}"
        labels = tuple(name.removeprefix(start) for name in names if name.startswith(start))
        if len(labels) > 1 and not any(mark in label for label in labels for mark in _SEPARATORS):
            return WideColumns(labels, {feature: f"{start}{{alternative}}"})
    return None


def _shared(labels: dict[str, list[str]], template: str, choices: Collection[str]) -> WideColumns | None:
    """Return the features that have columns for the same labels, at least two."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for feature, found in labels.items():
        if len(found) > 1:
            groups.setdefault(tuple(found), []).append(feature)
    candidates = [
        WideColumns(group, {feature: template % feature for feature in features})
        for group, features in groups.items()
        if len(features) > 1 or len(set(group) & set(choices)) > 1
    ]
    return max(candidates, key=lambda found: _evidence(found, choices), default=None)


def _evidence(found: WideColumns, choices: Collection[str]) -> tuple[int, int]:
    """Return how many labels are chosen, and the number of columns."""
    return len({*found.alternatives} & {*choices}), len(found.alternatives) * len(found.features)


def _better(one: WideColumns | None, other: WideColumns | None, choices: Collection[str]) -> WideColumns | None:
    candidates = [found for found in (one, other) if found]
    return max(candidates, key=lambda found: _evidence(found, choices), default=None)
