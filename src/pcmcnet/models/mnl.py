"""Multinomial logit (McFadden, 1974): P(i | S) = exp(v_i) / sum_j exp(v_j), with v linear in its coefficients.

The ratio of the probabilities of two alternatives does not depend on the other alternatives (independence of irrelevant
alternatives, IIA). If the utility is linear in its coefficients, the log-likelihood is concave, and Newton's method
finds its maximum. The log-likelihood may not be concave if Box-Cox exponents are estimated, or if the model is
estimated in willingness-to-pay space. In these cases, the maximisation starts at the maximum for exponents of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.choice_based import sampling_strata
from pcmcnet.data.columns.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.logit_effects import Elasticities, elasticities, logit_slopes
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood, equivalent_sizes, nonlinear_maximum
from pcmcnet.models.logit.logit_model import (
    FittedLogit,
    LogitConfig,
    LogitModel,
    LogitRecord,
    read_design,
    read_estimates,
)
from pcmcnet.models.logit.parameter_bounds import require_identified
from pcmcnet.models.logit.standard_errors import Errors, infer


class MNL(LogitModel):
    """Multinomial (conditional) logit.

    For the options, see :class:`LogitConfig`.

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
    corrects_samples = "all"
    config_class = LogitConfig

    @takes(LogitConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedLogit:
        config = self.config
        # 1. Choice sets with positive weight, and the columns of the utility.
        sets, chosen, clusters = self._prepare(train)
        design = self._learn_design(sets, wtp_space=config.wtp_space) if design is None else design
        # 2. The parameters, and the likelihood at their starting values. All coefficients must be identified.
        form = design.form
        within = self._parameters(design, form.names, form.start_values)
        columns = design.at(within.start).matrix(sets)
        problem = LogitLikelihood.from_matrix(columns, sets.offsets, chosen, sets.expansion)
        require_identified(problem.z, form.columns, within)
        # 3. Maximise: by Newton's method if the utility is linear; else from the maximum with the exponents fixed.
        if form.is_linear:
            maximum = problem.maximum(sets.weights, within=within, max_iter=config.max_iter)
        else:
            maximum = nonlinear_maximum(design, sets, problem, within, config.start, config.max_iter)
        # 4. Standard errors. The null hypothesis for exponents is 1.
        constants = self._constants_log_likelihood(design, problem, sets.weights)
        rest = (clusters, form.null_values, constants, sampling_strata(sets))
        estimates = infer(maximum, within, sets.weights, equivalent_sizes(sets), *rest)
        self._warn_unbounded(estimates)
        return FittedLogit(design=design, estimates=estimates)

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_softmax_by_set(self.utilities(data), data.offsets) if len(data) else np.zeros(0)

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        sums = log_sum_exp_by_set(self.utilities(data), data.offsets)[:, None]
        return sums, np.ones_like(sums)

    def _restore(self, files: Mapping[str, bytes], record: LogitRecord, table: TrainingTable) -> FittedLogit:
        state = FittedLogit(design=read_design(files), estimates=read_estimates(files), record=record)
        if state.estimates.names != state.design.names:
            raise ValueError("the saved columns and estimates do not match")
        return state

    def _slopes(self, data: ChoiceData, column: str) -> Floats:
        return logit_slopes(self, data, column)

    def utilities(self, data: ChoiceData, coefficients: Floats | None = None) -> Floats:  # -> (N,)
        """Return the utility (N,) of each alternative.

        Parameters
        ----------
        data
            Choice sets.
        coefficients
            Coefficients (K,) at which the utility is computed. By default, the estimates are used.
        """
        return self.design_.utilities(data, self.estimates_.values if coefficients is None else coefficients)

    def _elasticities(self, data: ChoiceData, column: str, errors: Errors) -> Elasticities:
        return elasticities(self, data, column, errors)
