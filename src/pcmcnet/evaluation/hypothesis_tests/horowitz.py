"""Test of Horowitz (1983) of two logits that are not nested, by their adjusted rho-squared.

Let r = 1 - (L - K) / L_0 be the adjusted rho-squared of a logit with K parameters, the maximum L of the log-likelihood,
and L_0 at equal probabilities. If the logit with the lower r is true, a difference of at least z > 0 has a probability
of at most

    P(r_2 - r_1 > z)  <=  Phi(-sqrt(-2 z L_0 + K_2 - K_1)).
"""

from __future__ import annotations

import numpy as np

from pcmcnet.checks import suggests_arguments
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import has_coefficients_of, is_panel_model
from pcmcnet.evaluation.hypothesis_tests.outcome import Outcome, require_significance
from pcmcnet.models.logit.logit_model import LogitModel, require_estimated
from pcmcnet.models.logit.standard_errors import WEIGHTS_AS_COUNTS


@suggests_arguments()
def horowitz(a: LogitModel, b: LogitModel, *, significance: float = 0.05) -> Outcome:
    """Test the logit with the lower adjusted rho-squared against the other one, which does not contain it.

    Parameters
    ----------
    a, b
        Two logits fitted to the same choice sets, in any order.
    significance
        Significance level: the largest probability of rejecting the logit with the lower adjusted rho-squared if it is
        true. Default 0.05.

    Returns
    -------
    Outcome
        The statistic, an upper bound of the p-value, and the decision.

    Raises
    ------
    InputError
        If a model is not a logit, the models were fitted to different tables, or the bound is not defined because the
        model with the higher adjusted rho-squared has fewer parameters and hardly a better fit.
    """
    from scipy.special import ndtr

    require_significance(significance)
    for model in (a, b):
        if not isinstance(model, LogitModel):
            raise InputError(
                f"the Horowitz test supports logits only, and {type(model).__name__} is not a logit: use pcmcnet.vuong."
            )
        require_estimated(model, "a Horowitz test")
    if a.table_.fingerprint != b.table_.fingerprint:
        raise InputError("the two models were fitted to different tables: fit both to the same data.")
    names = [type(model).__name__ for model in (a, b)]
    names = (
        [f"the {names[0]} (first)", f"the {names[1]} (second)"] if names[0] == names[1] else [f"the {n}" for n in names]
    )
    (low, worse), (high, better) = sorted(
        zip((a, b), names, strict=True), key=lambda p: p[0].estimates_.adjusted_rho_squared
    )
    null = low.estimates_.null_log_likelihood
    difference = high.estimates_.adjusted_rho_squared - low.estimates_.adjusted_rho_squared
    square = -2 * difference * null + high.num_parameters - low.num_parameters
    if square < 0:
        raise InputError(
            f"the bound of Horowitz is not defined: {better} has fewer parameters than {worse} ({high.num_parameters} "
            f"and {low.num_parameters}), and its adjusted rho-squared is only {difference:.2g} higher. Use "
            f"pcmcnet.vuong."
        )
    statistic = -float(np.sqrt(square))
    p = float(ndtr(statistic))
    return Outcome(
        test="Horowitz test",
        statistic=statistic,
        p_value=p,
        hypothesis=worse,
        significance=significance,
        decision=f"{better} fits significantly better" if p < significance else "the difference is not significant",
        details={
            "adjusted_rho_squared": {n: m.estimates_.adjusted_rho_squared for n, m in ((worse, low), (better, high))}
        },
        notes=tuple(_notes(a, b)),
    )


def _notes(a: LogitModel, b: LogitModel) -> list[str]:
    """Return notes on what makes the bound inexact."""
    notes = ["the p-value is an upper bound"]
    if has_coefficients_of(a, b) or has_coefficients_of(b, a):
        notes.append("the models are nested: use likelihood_ratio")
    if a.estimates_.weighted:
        notes.append(f"the log-likelihoods are weighted, and the bound is {WEIGHTS_AS_COUNTS}")
    if a.schema.person is not None and not (is_panel_model(a) and is_panel_model(b)):
        notes.append("the log-likelihoods assume that the choices of a person are independent")
    return notes
