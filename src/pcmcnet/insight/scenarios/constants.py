"""Calibrate alternative-specific constants (ASCs) so that the predicted shares on a table match known market shares.

In a logit, the ASCs are shifted, while the other coefficients and the standard errors stay the same. For other models,
a constant per label is added to the log-probabilities. The algorithm is described in
:mod:`pcmcnet.models.with_constants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import suggests_arguments
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import require_sets
from pcmcnet.insight.scenarios.scenario import read_sets
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.models.with_constants import WithConstants, find_constants, require_shares, require_target, solve_constants


@suggests_arguments()
def calibrate_constants(model: ChoiceModel, data: Any, shares: Mapping[str, float]) -> ChoiceModel:
    """Return the model with constants (ASCs) that reproduce known market shares on a table.

    Parameters
    ----------
    model
        A fitted model, which is not changed. A logit must have constants.
    data
        Choice sets that represent the market, with weights if the table has them. Choices are not needed.
    shares
        Mapping from each label of the table to its market share. The shares must sum to 1.

    Returns
    -------
    ChoiceModel
        A logit of the same class, or a :class:`WithConstants` that wraps any other model. The result can be saved and
        used like any fitted model.

    Raises
    ------
    InputError
        If the shares do not match the labels or cannot be reached, or the model has no constants to shift.

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
            raise InputError(f"{type(model).__name__} returns a ranking, which constants cannot change.")
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
    """Return the positions of each label's constants among the coefficients, and the index of the fixed label."""
    names, code = model.estimates_.names, model.design_.labels
    if code is None or not model.design_.terms.constants:
        raise InputError(
            f"the formula {model.design_.formula!r} has no constants to shift: fit a formula with '| 1' to a table "
            f"with labels."
        )
    if model.config.wtp_space is not None:
        raise InputError(
            f"in willingness-to-pay space, constants are multiplied by the coefficient of {model.config.wtp_space!r} "
            f"and cannot be shifted separately: fit the model without wtp_space."
        )
    endings = [f"constant[{label}]" for label in labels]
    places = [
        np.array([k for k, name in enumerate(names) if name == ending or name.endswith(f": {ending}")], np.int64)
        for ending in endings
    ]
    without = [label for label, positions in zip(labels, places, strict=True) if not len(positions)]
    if without not in ([code.reference], []):
        unknown = next(label for label in without if label != code.reference)
        raise InputError(f"the model has no constant for {unknown!r}, which is not in the training table.")
    return places, labels.index(code.reference) if without else 0
