"""A market of people: every person of a hierarchical logit answers every choice set.

    p_ir = 1/N sum_n P(i | S, b_nr)                         logit
    p_ir = 1/N sum_n 1{u_nir is the largest of the set}     first choice, shared among equal utilities

in draw r of the part-worths b_nr, with the utility u_nir = b_nr . x_i. The mean over draws is the estimate, and
quantiles over draws are its interval. For a single choice set, the shares are those of :func:`pcmcnet.market_shares`.
Shapes: N people with R draws each, M alternatives, K columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import max_by_set, spread, sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.insight.market_shares import Rule, require_known_levels
from pcmcnet.models import ChoiceModel, HierarchicalMNL
from pcmcnet.models.logit.draws import softmax_by_draw

_UTILITIES_AT_ONCE = 2**22  # computed together; limits the memory
_MAX_UTILITIES = 40_000_000  # of a table, computed in about two seconds; larger tables use fewer draws
MIN_DRAWS = 20  # for 90% and 95% intervals


@dataclass(frozen=True, eq=False)
class PeoplePredictor:
    """Predicts how the people of the training table would choose.

    Parameters
    ----------
    model
        The hierarchical logit.
    rule
        "logit" (probabilities) or "first-choice".
    coefficients
        Draws of the coefficients of each person, (N, K, R).
    columns
        Columns of the design, in the order of the coefficients.
    """

    model: HierarchicalMNL
    rule: Rule
    coefficients: NDArray[np.float32]
    columns: tuple[int, ...]

    @classmethod
    def of(cls, model: ChoiceModel, rule: Rule, data: ChoiceData) -> PeoplePredictor:
        """Return the predictor for tables of the size of ``data``, with as many draws as take a few seconds."""
        if not isinstance(model, HierarchicalMNL):
            raise InputError(
                f"rule={rule!r} needs the part-worths of a hierarchical logit (hb-mnl), got {type(model).__name__}."
            )
        worths = model.part_worths()
        n_people, _, n_draws = worths.draws.shape
        draws = min(_MAX_UTILITIES // (n_people * len(data.rows)), n_draws)
        if draws < min(MIN_DRAWS, n_draws):
            most = _MAX_UTILITIES // (n_people * MIN_DRAWS)
            raise InputError(
                f"rule={rule!r}: {n_people:,} people can answer choice sets with at most {most:,} alternatives in "
                f"total, got {len(data.rows):,}: use fewer choice sets, or the model's own prediction."
            )
        columns = tuple(model.design_.columns.index(name) for name in worths.names)
        return cls(model, rule, worths.draws[..., np.linspace(0, n_draws - 1, draws).astype(np.int64)], columns)

    @property
    def n_people(self) -> int:
        """Number of people, N."""
        return len(self.coefficients)

    @property
    def n_draws(self) -> int:
        """Number of draws, R."""
        return int(self.coefficients.shape[2])

    def predict_log_proba(self, data: ChoiceData) -> Floats:  # -> (M, R)
        """Return the logarithm of the share of each alternative in its choice set, in each draw."""
        require_known_levels(self.model.design_.codes, data)
        x = self.model.design_.matrix(data)[:, list(self.columns)]
        total = np.zeros((len(x), self.n_draws))
        step = max(_UTILITIES_AT_ONCE // max(len(x) * self.n_draws, 1), 1)
        for begin in range(0, self.n_people, step):
            b = self.coefficients[begin : begin + step].transpose(1, 0, 2)  # (K, n, R)
            shares = self._shares(x @ b.reshape(x.shape[1], -1), data.offsets)
            total += shares.reshape(len(x), -1, self.n_draws).sum(axis=1)
        with np.errstate(divide="ignore"):  # log(0) if an alternative is nobody's first choice
            logs: Floats = np.log(total / self.n_people)
        return logs

    def _shares(self, utilities: Floats, offsets: Ints) -> Floats:  # (M, n R) -> (M, n R)
        """Return the probabilities, or 1 for the first choice."""
        if self.rule == "logit":
            return softmax_by_draw(utilities, offsets)
        first = (utilities == spread(max_by_set(utilities, offsets), offsets)).astype(np.float64)
        shares: Floats = first / spread(sum_by_set(first, offsets), offsets)
        return shares
