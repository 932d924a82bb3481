"""Bradley-Terry: the multinomial logit over items (Bradley & Terry, 1952, and Luce, 1959).

    P(i | S) = exp s_i / sum_{j in S} exp s_j

The log-strengths s are estimated by Newton's method (:mod:`pcmcnet.models.items.strengths`).
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.models.items.strengths import StrengthEstimate, StrengthModel, fit_log_strengths
from pcmcnet.models.items.universe import DistinctSets


class BradleyTerry(StrengthModel):
    """Bradley-Terry model: a logit with one log-strength per item.

    Items are identified by the labels of the alternatives; features are not used.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> table = {"game": [1, 1, 2, 2, 3, 3, 4, 4], "team": ["a", "b"] * 4, "won": [1, 0, 1, 0, 1, 0, 0, 1]}
    >>> data = ChoiceData.from_long(table, choice_set="game", chosen="won", alternative="team")
    >>> BradleyTerry(smoothing=0).fit(data).predict_proba(data)[:2].round(6)
    array([0.75, 0.25])
    """

    name = "bradley-terry"
    is_logit = True

    def _estimate(self, sets: DistinctSets, n: int, fixed: Ints, ridge: float) -> StrengthEstimate:
        estimate = fit_log_strengths(
            sets,
            n,
            fixed=None if ridge else fixed,
            ridge=ridge,
            max_iter=self.config.max_iter,
            tolerance=self.config.tolerance,
        )
        strengths = estimate.strengths - estimate.strengths[fixed[0]]
        # The ridge of the model is on deviations from the mean: sum_i (s_i - mean s)^2 has the Hessian I - 1/n.
        return estimate._replace(strengths=strengths, hessian=estimate.hessian - ridge / n)

    def _item_log_p(self, sets: DistinctSets, strengths: Floats) -> Floats:
        if not len(sets.sizes):
            return np.empty(0)
        return log_softmax_by_set(strengths[sets.items], sets.offsets)
