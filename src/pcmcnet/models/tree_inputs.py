"""Base class of tree models, and their inputs (N, K): numeric columns, categories and relative features.

The individual's columns come first, then the alternative's columns, then relative features. A category is encoded as
its index in the alphabetical list of training categories, and an unseen category as 0.

A relative feature is an alternative's value divided by the smallest value of its set, x_i / min_j x_j. The relative
feature is 1 for the smallest value of every set, so a model that scores each alternative separately takes the other
alternatives into account. Ratios are meaningful for positive values only. If the value is missing, or the smallest
value of the set is not positive, the relative feature is 0. A value of 0 is unambiguous, because no ratio is below 1.

If trees are monotone in a column, they are also monotone in its relative form r_i. The probability of i is then
monotone in x_i, although x_i may change the r_j of others: let the utility fall with x and r, and let x_i rise. If i is
not the smallest, r_i rises and no r_j changes. If i is the smallest, r_i = 1 stays as long as i is the smallest, and
all r_j fall. So u_i never rises, no u_j falls, and P(i) never rises. For this to hold where the smallest value m is not
positive, too, r is 1 for the smallest values there, and the largest number for the others, which is the limit of r as m
falls to 0.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.columns.ragged import min_by_set, spread
from pcmcnet.errors import ConfigError, SchemaError, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.directions import Direction, positions_of
from pcmcnet.models.interface.fitted import FittedState
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes

Relative = tuple[str, ...] | Literal["auto"]

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class FittedTrees(FittedState):
    """Fitted state of a tree model: the encoding of the inputs. Subclasses add the trees."""

    encoder: Encoder
    relative: tuple[str, ...]


class TreeModel(ChoiceModel):
    """Base class of tree models."""

    _state: FittedTrees

    @property
    def encoder_(self) -> Encoder:
        """The encoder of the columns."""
        return self._state.encoder

    @property
    def relative_(self) -> tuple[str, ...]:
        """Features that are also used in relative form, divided by the smallest value of the choice set."""
        return self._state.relative

    @property
    def _is_stepwise(self) -> bool:
        return True

    def _inputs(self, data: ChoiceData) -> NDArray[np.float32]:  # (N, K)
        return tree_inputs(self.encoder_, self.relative_, data)

    def _summary(self, importance: Sequence[float], facts: Mapping[str, str]) -> Summary:
        """Return a table of the K inputs, sorted by importance."""
        importances = zip(input_names(self.encoder_, self.relative_), importance, strict=True)
        rows = tuple((name, f"{value:.4f}") for name, value in sorted(importances, key=lambda entry: -entry[1]))
        return Summary(
            type(self).__name__, {**self._common_facts(), **facts}, ("input", "importance"), rows, self.caveats
        )

    def _inputs_file(self) -> dict[str, bytes]:
        entries = {"encoder": self.encoder_.to_dict(), "relative": list(self.relative_)}
        return {"inputs.json": json_bytes(entries)}


def read_inputs(files: Mapping[str, bytes]) -> tuple[Encoder, tuple[str, ...], int]:
    """Read the encoder, the relative features and the number of inputs of a saved model."""
    entries = json.loads(files["inputs.json"])
    encoder, relative = Encoder.from_dict(entries["encoder"]), tuple(map(str, entries["relative"]))
    return encoder, relative, len(input_names(encoder, relative))


def tree_inputs(
    encoder: Encoder, relative: Sequence[str], data: ChoiceData, monotone: Collection[str] = ()
) -> NDArray[np.float32]:  # (N, K)
    """Return the inputs of the trees for each alternative; the trees are monotone in some columns."""
    coded = encoder.encode(data)
    individual = (
        spread(part.numpy(), data.offsets) for part in (coded.individual_numeric, coded.individual_categorical)
    )
    parts = [*individual, coded.numeric.numpy(), coded.categorical.numpy()]
    parts.append(relative_columns(data, relative, monotone))
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def input_names(encoder: Encoder, relative: Sequence[str]) -> list[str]:
    """Return the names of the K inputs, in order."""
    names: list[str] = []
    for side in (encoder.individual, encoder.features):
        names += [code.name for code in side.numeric]
        names += [f"{code.name} missing" for code in side.numeric if code.indicator]
        names += [code.name for code in side.categorical]
    return [*names, *(f"{name} / smallest in the set" for name in relative)]


def input_signs(encoder: Encoder, relative: Sequence[str], directions: Mapping[str, Direction]) -> Ints:  # (K,)
    """Return 1, -1 or 0 for inputs in which the trees rise, fall, or are not monotone.

    Raises
    ------
    ConfigError
        If a column with a direction is not a numeric feature.
    """
    first = encoder.individual.n_numeric + len(encoder.individual.categorical)
    end = len(input_names(encoder, relative)) - len(relative)
    signs = np.zeros(end + len(relative), np.int64)
    for name, direction in directions.items():
        positions = [first + k for k in positions_of(name, encoder)]
        positions += [end + k for k, each in enumerate(relative) if each == name]
        signs[positions] = 1 if direction == "increasing" else -1
    return signs


def as_relative(value: Any) -> Relative:
    """Return the option ``relative`` in its normal form; the command line passes "auto" as a list."""
    if value == "auto" or list(value if isinstance(value, Sequence) else ()) == ["auto"]:
        return "auto"
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(n, str) for n in value):
        raise ConfigError(f"relative must be 'auto' or a list of features such as ('price',), got {value!r}.")
    return tuple(value)


def relative_names(option: Relative, data: ChoiceData) -> tuple[str, ...]:
    """Return the features that the option ``relative`` selects; "auto" selects all positive numeric features."""
    return positive_features(data) if option == "auto" else option


# -- Relative features --------------------------------------------------------------------------------------------


def positive_features(data: ChoiceData) -> tuple[str, ...]:
    """Return the numeric features whose values are all positive."""
    numeric = {name: column.values for name, column in data.features.items() if isinstance(column, Numeric)}
    return tuple(name for name, values in numeric.items() if not (values <= 0).any())


def relative_columns(data: ChoiceData, names: Sequence[str], monotone: Collection[str] = ()) -> NDArray[np.float32]:
    """Return the relative features (N, len(names)). Raise SchemaError if a name is not a numeric feature."""
    columns = [
        relative_to_least(_numeric_values(data, name), data.offsets, monotone=name in monotone) for name in names
    ]
    return np.stack(columns, axis=1) if columns else np.empty((len(data.rows), 0), np.float32)


def relative_to_least(values: NDArray[np.float32], offsets: Ints, *, monotone: bool = False) -> NDArray[np.float32]:
    """Divide values (N,) by the smallest value of their set.

    The result is 0 if a value is missing or the smallest value is not positive. With ``monotone``, the results in a set
    whose smallest value is not positive are 1 for the smallest value and the largest number for the others.

    Examples
    --------
    >>> relative_to_least(np.array([2.0, 3.0, np.nan, 0.0, 5.0], np.float32), np.array([0, 3, 5]))
    array([1. , 1.5, 0. , 0. , 0. ], dtype=float32)
    >>> relative_to_least(np.array([0.0, 5.0], np.float32), np.array([0, 2]), monotone=True)
    array([1.0000000e+00, 3.4028235e+38], dtype=float32)
    """
    x = values.astype(np.float64)
    missing = np.isnan(x)
    least = spread(min_by_set(np.where(missing, np.inf, x), offsets), offsets)
    ratio = np.zeros_like(x)
    np.divide(x, least, out=ratio, where=~missing & (least > 0))
    if monotone:
        ratio[~missing & (least <= 0)] = _LARGEST
        ratio[x == least] = 1.0
    return np.minimum(ratio, _LARGEST).astype(np.float32)


def _numeric_values(data: ChoiceData, name: str) -> NDArray[np.float32]:
    """Return the values (N,) of a numeric feature."""
    numeric = [n for n, column in data.features.items() if isinstance(column, Numeric)]
    if name not in data.features:
        raise SchemaError(f"relative: the table has no feature {name!r}." + did_you_mean(name, numeric))
    column = data.features[name]
    if not isinstance(column, Numeric):
        hint = did_you_mean(name, numeric)
        raise SchemaError(f"relative: expected a numeric feature, got {name!r}, which is categorical.{hint}")
    return column.values
