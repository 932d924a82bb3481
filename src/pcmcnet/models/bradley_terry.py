"""Bradley-Terry: the multinomial logit of items (Bradley & Terry, 1952; Luce, 1959).

    P(i | S) = exp s_i / sum_{j in S} exp s_j

Newton's method finds the log-strengths s (:mod:`pcmcnet.models.items.strengths`).
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.models.items.strengths import StrengthEstimate, StrengthModel, fit_log_strengths
from pcmcnet.models.items.universe import DistinctSets


class BradleyTerry(StrengthModel):
    """One log-strength per item; choices follow the logit of the strengths on offer.

    Options are those of :class:`StrengthConfig`.

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

    def _estimate(self, sets: DistinctSets, n: int, reference: int, ridge: float) -> StrengthEstimate:
        fixed, most, least = None if ridge else reference, self.config.max_iter, self.config.tolerance
        estimate = fit_log_strengths(sets, n, reference=fixed, ridge=ridge, max_iter=most, tolerance=least)
        apart = estimate.strengths - estimate.strengths[reference]
        return estimate._replace(strengths=apart, hessian=estimate.hessian - ridge / n)  # squares about the mean

    def _item_log_p(self, sets: DistinctSets, strengths: Floats) -> Floats:
        if not len(sets.sizes):
            return np.empty(0)
        return log_softmax_by_set(strengths[sets.items], sets.offsets)
