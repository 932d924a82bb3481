"""Test of Swait and Louviere (1993), whether groups of choice sets differ in tastes or only in the scale of utility.

A logit with scales by group (``models/logit/scale_groups.py``) is compared with a logit for each group, and then with a
logit without scales. With the maxima L_s of the logit with scales, L_g of that of group g, and L_0 of that without
scales,

    H_A  equal coefficients, up to scale   2 (sum_g L_g - L_s)  ~  chi-squared
    H_B  equal scales, given H_A           2 (L_s - L_0)        ~  chi-squared

whose degrees of freedom are the differences in the numbers of estimated parameters. If H_A is rejected, the groups
differ in more than their scale, and H_B is not meaningful.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcmcnet.checks import suggests_arguments
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, chi_squared_p, require_significance
from pcmcnet.evaluation.predictions import require_training_sets
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.models.logit.parameter_bounds import listed
from pcmcnet.models.logit.standard_errors import WEIGHTS_AS_COUNTS, Estimates
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.frames import FrameMixin

_ROUNDING = 1e-6  # relative difference up to which two maxima count as equal


@dataclass(frozen=True)
class SwaitLouviere(ToDictMixin, FrameMixin):
    """The two tests of Swait and Louviere, which print as two sentences.

    Attributes
    ----------
    coefficients
        Test of equal coefficients in all groups, up to the scale of each group.
    scales
        Test of equal scales, given equal coefficients.
    """

    coefficients: Outcome
    scales: Outcome

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [*self.coefficients._frame_rows(), *self.scales._frame_rows()]

    def __str__(self) -> str:
        return f"{self.coefficients}\n{self.scales}"

    __repr__ = __str__


@suggests_arguments()
def swait_louviere(model: ChoiceModel, data: Any, *, significance: float = 0.05) -> SwaitLouviere:
    """Test whether groups of choice sets have the same coefficients up to scale, and then whether scales are equal.

    The logit is fitted once more without scales, and once to each group.

    Parameters
    ----------
    model
        A fitted logit with the option ``scale``.
    data
        The choice sets that the model was fitted to: ``ChoiceData``, or a table that its schema can read.
    significance
        Significance level of each test. Default 0.05.

    Returns
    -------
    SwaitLouviere
        The outcomes ``coefficients`` and ``scales``.

    Raises
    ------
    InputError
        If the model has no scales or was fitted to another table, or a coefficient is not identified in a group.

    Examples
    --------
    >>> import numpy as np
    >>> from pcmcnet import MNL, ChoiceData
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 400, 2))
    >>> took = (x - y + rng.gumbel(size=(400, 2))).argmax(1)[:, None] == [0, 1]
    >>> table = {"trip": np.repeat(np.arange(400), 2), "x": x.ravel(), "y": y.ravel(), "took": took.ravel()}
    >>> table["wave"] = np.repeat(np.arange(400) % 2, 2)
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x", "y"], individual=["wave"])
    >>> test = swait_louviere(MNL(scale="wave").fit(data), data)
    >>> test.scales.degrees_of_freedom, test.scales.rejected
    (1, False)
    """
    require_significance(significance)
    if not isinstance(model, LogitModel) or model.design_.scale is None:
        raise InputError(
            f"the test of Swait and Louviere needs a logit with scales, as in MNL(scale='survey'); got "
            f"{type(model).__name__} without scales."
        )
    require_estimated(model, "the test")
    scale, config = model.design_.scale, model.config
    controlled = [name for name in scale.names if name in {*config.fixed, *(config.bounds or {}), *config.start}]
    if controlled:
        raise InputError(f"the test needs free scales: remove {listed(controlled)} from fixed, bounds and start.")
    sets = require_training_sets(model, data).with_positive_weight()
    # 1. The logit without scales, and the logit of each group, with the columns of the model.
    design, seed = replace(model.design_, scale=None), model.table_.seed
    without = model.refit(sets, design, seed)
    by_group: dict[str, Estimates] = {}
    codes = scale.codes(sets)
    for k, group in enumerate((scale.reference, *scale.levels)):
        try:
            by_group[group] = model.refit(sets.subset(np.flatnonzero(codes == k)), design, seed)
        except InputError as error:
            raise InputError(f"group {group!r} of column {scale.column!r}: {error}") from error
    # 2. Two likelihood-ratio tests.
    estimates, notes = model.estimates_, _notes(model)
    separate = sum(each.log_likelihood for each in by_group.values())
    n_separate = sum(each.n_parameters for each in by_group.values())
    if n_separate <= estimates.n_parameters:
        raise InputError(
            f"the model with scales has {estimates.n_parameters} parameters, not fewer than the {n_separate} of the "
            f"logits of the groups: there is nothing to test."
        )
    coefficients = _outcome(
        "Swait-Louviere test of coefficients",
        2 * (separate - estimates.log_likelihood),
        n_separate - estimates.n_parameters,
        f"equality of the coefficients of {listed([*by_group])} up to scale",
        ("the groups differ in more than their scale", "the groups may have the same coefficients"),
        significance,
        {"log_likelihoods": {group: each.log_likelihood for group, each in by_group.items()}, "separate": separate},
        [*notes, *_unbounded(by_group)],
    )
    scales = _outcome(
        "Swait-Louviere test of scales",
        2 * (estimates.log_likelihood - without.log_likelihood),
        estimates.n_parameters - without.n_parameters,
        "equality of the scales, given equal coefficients,",
        ("the noise of the choices differs between the groups", "the scales do not differ significantly"),
        significance,
        {"without_scales": without.log_likelihood, "with_scales": estimates.log_likelihood},
        [*notes, *(["equal coefficients are rejected, so this test is not meaningful"] * coefficients.rejected)],
    )
    return SwaitLouviere(coefficients, scales)


def _outcome(
    test: str,
    statistic: float,
    degrees: int,
    hypothesis: str,
    decisions: tuple[str, str],
    significance: float,
    details: dict[str, Any],
    notes: list[str],
) -> Outcome:
    """Return the outcome of a likelihood-ratio test."""
    if statistic < -_ROUNDING * max(map(abs, _numbers(details))):
        raise InputError(
            f"{test}: the larger model has the lower log-likelihood, so a search ended at a local maximum. Fit the "
            f"model again with another seed or start."
        )
    statistic = max(statistic, 0.0)
    p = chi_squared_p(statistic, degrees)
    return Outcome(
        test=test,
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=p,
        hypothesis=hypothesis,
        significance=significance,
        decision=decisions[0] if p < significance else decisions[1],
        details=details,
        notes=tuple(notes),
    )


def _numbers(details: dict[str, Any]) -> list[float]:
    """Return the log-likelihoods in the details of a test."""
    return [value for value in details.values() if isinstance(value, float)]


def _notes(model: LogitModel) -> list[str]:
    """Return notes on weights and on dependent choices."""
    notes = []
    if model.estimates_.weighted:
        notes.append(f"the likelihoods are weighted: the p-value is {WEIGHTS_AS_COUNTS}")
    if model.schema.person is not None:
        notes.append("choices of the same person may depend on each other; the p-value is then too small")
    return notes


def _unbounded(by_group: dict[str, Estimates]) -> list[str]:
    """Return a note on coefficients without a finite estimate in a group."""
    names = [f"{name} in {group}" for group, each in by_group.items() for name in each.unbounded]
    return [f"there is no finite estimate for {listed(names)}: the p-value is approximate"] if names else []
