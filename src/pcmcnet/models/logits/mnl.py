"""Multinomial logit (McFadden, 1974): P(i | S) = exp(v_i) / sum_j exp(v_j), with v linear in its coefficients.

The odds of two alternatives do not depend on which others there are (independence of irrelevant alternatives). The
log-likelihood is concave; Newton's method in float64 on ragged rows finds its maximum. Where v has exponents to be
estimated, or parameters that are willingnesses to pay, it is not concave: steps uphill begin at the maximum for
exponents of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logits.estimation import Errors, LogitSets, infer
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.nonlinear_likelihood import Maximum, curved_maximum
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters
from pcmcnet.models.logits.logit_effects import Elasticities, elasticities, logit_slopes
from pcmcnet.models.logits.logit_model import LogitConfig, LogitModel


class MNL(LogitModel):
    """Multinomial, or conditional, logit.

    Options are those of :class:`LogitConfig`.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> model = MNL().fit(data)
    >>> round(model.coefficients["cost"], 3)
    -0.927
    """

    name = "mnl"
    is_logit = True
    config_class = LogitConfig
    control = curved = True

    @takes(LogitConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @products_in_one_thread()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        sets, chosen, clusters = self._prepare(train)
        self.design_ = self._learn_design(sets)
        form = self.design_.form
        within = self._parameters(form.names, form.begin)
        problem = LogitSets.from_matrix(self.design_.given(within.start).matrix(sets), sets.offsets, chosen)
        require_identified(problem.z, form.columns, within)
        if form.is_linear:
            found = self._linear(problem, within, sets)
        else:
            found = curved_maximum(self.design_, sets, problem, within, self.config.start, self.config.max_iter)
        self.estimates_ = infer(
            form.names,
            found.values,
            log_likelihood=float(sets.weights @ found.log_likelihoods),
            hessian=found.hessian,
            scores=found.scores,
            weights=sets.weights,
            sizes=sets.sizes,
            steps=found.steps,
            clusters=clusters,
            null=form.begin,
            spread=found.spread,
            constants_log_likelihood=self._constants_alone(problem, sets.weights),
            within=within,
        )
        self._note()

    def _linear(self, problem: LogitSets, within: Parameters, sets: ChoiceData) -> Maximum:
        """Find the maximum where the utility is linear in its parameters."""
        b, bend, steps = problem.maximise(sets.weights, within=within, max_iter=self.config.max_iter)
        return Maximum(b, bend, problem.log_likelihoods(b), problem.scores(b), problem.spread, steps)

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_softmax_by_set(self.utilities(data), data.offsets) if len(data) else np.zeros(0)

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        sums = log_sum_exp_by_set(self.utilities(data), data.offsets)[:, None]
        return sums, np.ones_like(sums)

    def _restore(self, files: Mapping[str, bytes]) -> None:
        super()._restore(files)
        if self.estimates_.names != self.design_.names:
            raise ValueError("the columns and the estimates do not fit each other")

    def _slopes(self, data: ChoiceData, column: str) -> Floats:
        return logit_slopes(self, data, column)

    def utilities(self, data: ChoiceData, coefficients: Floats | None = None) -> Floats:  # -> (N,)
        """Return the utility of each alternative, set after set; at other coefficients, if given."""
        _ = self.schema
        return self.design_.utilities(data, self.estimates_.values if coefficients is None else coefficients)

    def elasticities(self, data: ChoiceData, column: str, errors: Errors | None = None) -> Elasticities:
        """Return by how many per cent probabilities change when a feature rises by one per cent, with errors.

        See :func:`pcmcnet.models.logits.logit_effects.elasticities`.
        """
        _ = self.schema
        return elasticities(self, data, column, self._kind(errors))
