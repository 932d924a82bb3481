"""Constants moved so that a fitted model's shares on a table are known ones, such as those of a market.

A logit has constants of its own, which are moved; all else stays, its errors, too. Other models get a constant for each
label beside their log-probabilities: see :mod:`pcmcnet.models.with_constants`, also for how they are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import require_sets
from pcmcnet.insight.scenarios.scenario import read_sets
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.models.with_constants import WithConstants, find_constants, require_shares, require_target, solve_constants


def calibrate_constants(model: ChoiceModel, data: Any, shares: Mapping[str, float]) -> ChoiceModel:
    """Return the model with constants at which its shares on a table are known ones.

    Parameters
    ----------
    model
        A fitted model; it stays as it is. A logit must have constants.
    data
        Choice sets, with weights where these count, that stand for the market; choices are not needed.
    shares
        The share of each label of the table; they sum to 1.

    Returns
    -------
    ChoiceModel
        A logit of the same kind, or a :class:`WithConstants` around another model. It can be saved, and asked like
        any other.

    Raises
    ------
    InputError
        When shares do not fit the labels or cannot be reached, or the model has no constants to move.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 4, 4, 3, 5, 2]}
    >>> table["mode"] = ["car", "bus"] * 4
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["cost"])
    >>> moved = calibrate_constants(MNL().fit(data), data, {"car": 0.9, "bus": 0.1})
    >>> round(float(moved.predict_proba(data)[::2].mean()), 6)
    0.9
    """
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a fitted model such as MNL, got {type(model).__name__}.")
    shares = require_shares(shares)
    sets = read_sets(model, data, [])
    require_sets(sets)
    if not isinstance(model, LogitModel):
        if model.gives == "ranking":
            raise InputError(f"{type(model).__name__} gives a ranking, whose probabilities no constant moves.")
        return WithConstants(model, shares, constants=find_constants(model, sets, shares))
    codes, target = require_target(sets, shares)
    positions, fixed = _constants(model, list(shares))

    def moved(d: Floats) -> LogitModel:
        values = model.estimates_.values.copy()
        for label, places in enumerate(positions):
            values[places] += d[label]
        return model.with_values(values, known_shares=shares)

    return moved(solve_constants(lambda d: moved(d)._log_proba(sets), sets, codes, target, fixed))


def _constants(model: LogitModel, labels: list[str]) -> tuple[list[Ints], int]:
    """Return where the constants of each label are among the coefficients, in each class, and the label without."""
    names, code = model.estimates_.names, model.design_.labels
    if code is None or not model.design_.terms.constants:
        raise InputError(
            f"the formula {model.design_.formula!r} has no constants to move: fit it with '| 1' and labels."
        )
    if model.config.wtp_space is not None:
        raise InputError(
            f"in willingness-to-pay space, constants are multiplied by the coefficient of {model.config.wtp_space!r}, "
            f"and cannot be moved alone: fit the model without wtp_space=."
        )
    endings = [f"constant[{label}]" for label in labels]
    places = [
        np.array([k for k, name in enumerate(names) if name == own or name.endswith(f": {own}")], np.int64)
        for own in endings
    ]
    without = [label for label, found in zip(labels, places, strict=True) if not len(found)]
    if without not in ([code.reference], []):
        strange = next(label for label in without if label != code.reference)
        raise InputError(f"the model has no constant for {strange!r}, which was not in training.")
    return places, labels.index(code.reference) if without else 0
