"""What trees see of each alternative: (N, K) numbers, categories by their index in the training vocabulary, ratios.

Columns of the individual come first, then those of the alternative, then relative features (``relative_features``). An
index of 0 is a category never seen. Trees take any order of indices for what it is worth: alphabetical here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.ragged import spread
from pcmcnet.errors import ConfigError
from pcmcnet.models.forests.relative_features import positive_features, relative_columns

Relative = tuple[str, ...] | Literal["auto"]


def tree_inputs(encoder: Encoder, relative: Sequence[str], data: ChoiceData) -> NDArray[np.float32]:  # (N, K)
    """Return what trees see of each alternative."""
    coded = encoder.encode(data)
    who = (spread(part.numpy(), data.offsets) for part in (coded.individual_numeric, coded.individual_categorical))
    parts = [*who, coded.numeric.numpy(), coded.categorical.numpy(), relative_columns(data, relative)]
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def input_names(encoder: Encoder, relative: Sequence[str]) -> list[str]:
    """Name the K inputs, in their order."""
    names: list[str] = []
    for side in (encoder.individual, encoder.features):
        names += [code.name for code in side.numeric]
        names += [f"{code.name} missing" for code in side.numeric if code.indicator]
        names += [code.name for code in side.categorical]
    return [*names, *(f"{name} / least of the set" for name in relative)]


def as_relative(given: Any) -> Relative:
    """Check the option ``relative``; a command line gives its one word as a list."""
    if given == "auto" or list(given if isinstance(given, Sequence) else ()) == ["auto"]:
        return "auto"
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(n, str) for n in given):
        raise ConfigError(f"relative must be 'auto' or a list of features such as ('price',), got {given!r}.")
    return tuple(given)


def relative_names(option: Relative, data: ChoiceData) -> tuple[str, ...]:
    """Return the features that also enter relative to the least of the set: by default all that are positive."""
    return positive_features(data) if option == "auto" else option
