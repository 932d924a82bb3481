"""How well a fitted model fits, in the figures of a paper's table: likelihoods, rho-squared, criteria, sizes.

Those of a logit come from its estimates. Another model is asked about choice sets that are given; it was not estimated
by maximum likelihood alone, so that AIC and BIC mean nothing for it.
"""

from __future__ import annotations

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.evaluation.predictions import gives_of
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logits.logit_model import LogitModel

ROWS = {  # with the form of their numbers
    "log-likelihood": ".3f",
    "null log-likelihood": ".3f",
    "constants-only log-likelihood": ".3f",
    "rho-squared": ".4f",
    "adjusted rho-squared": ".4f",
    "AIC": ".2f",
    "BIC": ".2f",
    "choice sets": ",.0f",
    "persons": ",.0f",
    "parameters": ",.0f",
}


def fit_figures(model: ChoiceModel, data: ChoiceData | None = None) -> dict[str, float | None]:
    """Return the figures by their names in ``ROWS``; None where there is none."""
    facts = model.require_fitted().facts
    found: dict[str, float | None] = dict.fromkeys(ROWS)
    found |= {"choice sets": facts["choice_sets"], "persons": facts.get("persons")}
    found["parameters"] = model.num_parameters
    if isinstance(model, LogitModel):
        estimates = model.estimates_
        return found | {
            "log-likelihood": estimates.log_likelihood,
            "null log-likelihood": estimates.null_log_likelihood,
            "constants-only log-likelihood": estimates.constants_log_likelihood,
            "rho-squared": estimates.rho_squared,
            "adjusted rho-squared": estimates.adjusted_rho_squared,
            "AIC": estimates.aic,
            "BIC": estimates.bic,
            "choice sets": estimates.n_sets,
        }
    if data is not None and gives_of(model) == "probabilities":
        value = model.score(data) * float(data.weights.sum())
        null = -float(data.weights @ np.log(data.sizes))
        found |= {"log-likelihood": value, "null log-likelihood": null}
        found["rho-squared"] = round(1 - value / null, 9) + 0.0 if null else 0.0  # no negative zero
    return found
