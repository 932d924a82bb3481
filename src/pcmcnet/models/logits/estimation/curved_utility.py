"""The conditional logit of a utility that is not linear in its parameters.

At any parameters theta the utility is replaced by a linear one, M c with dc / dtheta = G, which has its value and its
derivatives: see ``design/utility_form.py``. With s the scores of the conditional logit of M c, those in theta are s G,
exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.models.logits.design.utility_form import Linearised
from pcmcnet.models.logits.estimation.logit_likelihood import LogitSets


class CurvedLogit:
    """Choices whose utilities are linearised anew at every point."""

    def __init__(self, linearise: Callable[[Floats], Linearised], offsets: Ints, chosen: Ints) -> None:
        self._linearise, self._offsets, self._chosen = linearise, offsets, chosen
        self._last: tuple[bytes, LogitSets, Linearised] | None = None

    def objective(self, theta: Floats) -> tuple[Floats, Floats]:
        """(K,) -> (S,), (S, K): log-probabilities of the choices and their scores; -inf beyond any number."""
        sets, near = self._at(theta)
        if not np.isfinite(sets.z).all():
            return np.full(sets.n_sets, -np.inf), np.zeros((sets.n_sets, len(theta)))
        ll, _, mean = sets.evaluate(near.coefficients)
        return sets.over_all_sets(ll), sets.over_all_sets(-mean) @ near.chain

    def spread(self, theta: Floats) -> Floats:  # (K,) -> (K,)
        """Return the size of what each parameter moves: root mean squares of the derivatives of utility differences."""
        sets, near = self._at(theta)
        rms = np.sqrt(np.mean((sets.z @ near.chain) ** 2, axis=0))
        return np.where(rms > 0, rms, 1.0)

    def _at(self, theta: Floats) -> tuple[LogitSets, Linearised]:
        """Linearise, once for calls at one point."""
        key = theta.tobytes()
        if self._last is None or self._last[0] != key:
            near = self._linearise(theta)
            with np.errstate(invalid="ignore"):  # inf - inf, far out
                self._last = key, LogitSets.from_matrix(near.matrix, self._offsets, self._chosen), near
        return self._last[1], self._last[2]
