"""Names of attributes in scikit-learn, statsmodels, Biogeme and R, with what to write for a model of this package."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

_TABLE = "model.estimates(), a table with estimate, std_error, z, p, lower and upper"
_FIT = "Write model.estimates_.{}; model.summary() has all facts about the fit"

_COEFFICIENTS = (
    *("coef_", "coefs_", "coef", "coefs", "params", "params_", "param", "parameters", "beta", "betas", "betas_"),
    *("intercept_", "intercept", "theta", "get_beta_values"),
)
_ERRORS = ("bse", "std_err", "std_errors", "stderr", "se", "get_estimated_parameters")
_TESTS = ("pvalues", "p_values", "pvalues_", "tvalues", "t_values", "zvalues", "z_values", "conf_int", "tstats")
OF_LOGITS = {
    **dict.fromkeys(_COEFFICIENTS, f"Write model.coefficients, which includes the constants, or {_TABLE}"),
    **dict.fromkeys(_ERRORS, f"Write model.standard_errors(), or {_TABLE}"),
    **dict.fromkeys(_TESTS, f"Write {_TABLE}"),
    **dict.fromkeys(("cov_params", "vcov", "cov", "cov_", "covariance_"), "Write model.covariance()"),
    **dict.fromkeys(("llf", "loglik", "loglike", "log_lik", "logLik", "ll"), _FIT.format("log_likelihood")),
    **dict.fromkeys(("log_likelihood", "loglikelihood"), _FIT.format("log_likelihood")),
    **dict.fromkeys(("aic", "aic_", "AIC"), _FIT.format("aic")),
    **dict.fromkeys(("bic", "bic_", "BIC"), _FIT.format("bic")),
    **dict.fromkeys(("prsquared", "rsquared", "rho_squared", "rho2"), _FIT.format("rho_squared")),
}
_WITHOUT_COEFFICIENTS = (
    "{} has no coefficients with standard errors: pn.explain(model, data) shows the effect of each column, and "
    "pn.elasticity(model, data, 'price') that of a price. A logit such as pn.MNL() has coefficients"
)
_OF_SCORES = "Write model.score(data), the mean log-likelihood per choice set, or pn.evaluate(model, data)"
_OF_POSTERIORS = (
    "{} has a posterior distribution: model.chains() lists the means and standard deviations over people, and "
    "model.part_worths() the part-worths of each person"
)
_ESTIMATES = frozenset(("coefficients", "standard_errors", "estimates", "estimates_", "covariance"))  # of logits
_FIT_NAMES = frozenset(name for name, remedy in OF_LOGITS.items() if "model.estimates_." in remedy)
_OF_ALL_MODELS = {
    **dict.fromkeys(("evaluate", "accuracy", "loss", "log_loss", "nll", "metrics"), "Write pn.evaluate(model, data)"),
    **dict.fromkeys(("explain", "feature_importances_", "feature_importance"), "Write pn.explain(model, data)"),
    **dict.fromkeys(("scenario", "simulate", "what_if"), "Write pn.scenario(model, data, 'price *= 1.1')"),
    **dict.fromkeys(("elasticity", "get_margeff", "marginal_effects"), "Write pn.elasticity(model, data, 'price')"),
    **dict.fromkeys(("plot", "show"), "Write pn.explain(model, data).plot(), or model.plot_history() for the losses"),
    **dict.fromkeys(("loss_", "loss_curve_", "history_", "n_iter_"), "Write model.history"),
    **dict.fromkeys(("classes_", "labels_"), "The labels of the alternatives are data.labels.categories"),
    **dict.fromkeys(
        ("feature_names_in_", "n_features_in_", "features", "feature_names", "get_feature_names_out"),
        "Write model.schema.features and model.schema.individual",
    ),
    **dict.fromkeys(("decision_function", "transform", "forward"), "Write model.predict_scores(data)"),
    **dict.fromkeys(("compile", "train", "fit_predict", "fit_transform"), "Write model.fit(train)"),
    **dict.fromkeys(("partial_fit", "warm_start"), "Write model.fit(train, init=fitted_model), for networks"),
    **dict.fromkeys(("load", "load_model", "from_pretrained"), "Write pn.load('model')"),
    **dict.fromkeys(("save_model", "dump", "to_pickle", "save_pretrained"), "Write model.save('model')"),
    **dict.fromkeys(("get_config", "options", "hyperparameters"), "Write model.get_params()"),
    "wtp": "Write pn.willingness_to_pay(model, data, 'time', 'price')",
}


def missing_attribute(model: Any, name: str) -> AttributeError:
    """Return the error for a name that a model does not have, with the remedy for names of other packages.

    Parameters
    ----------
    model
        The model.
    name
        Name of the attribute.

    Examples
    --------
    >>> from pcmcnet import PCMCNet
    >>> print(missing_attribute(PCMCNet(), "evaluate"))
    'PCMCNet' has no attribute 'evaluate'. Write pn.evaluate(model, data).
    """
    kind = type(model).__name__
    remedy = ""
    has_estimates = hasattr(type(model), "estimates")
    if not has_estimates and (name in OF_LOGITS or name in _ESTIMATES):
        remedy = _without_estimates(model, name).format(kind)
    elif name in OF_LOGITS:
        remedy = OF_LOGITS[name]
    elif name in _OF_ALL_MODELS:
        remedy = _OF_ALL_MODELS[name]
    elif near := get_close_matches(name, [word for word in dir(type(model)) if not word.startswith("_")], n=1):
        remedy = f"Did you mean {near[0]!r}?"
    end = "" if not remedy or remedy.endswith("?") else "."
    return AttributeError(f"{kind!r} has no attribute {name!r}. {remedy}{end}".rstrip())


def _without_estimates(model: Any, name: str) -> str:
    """Return the remedy for a name of an estimate, for a model without standard errors."""
    if name in _FIT_NAMES:
        return _OF_SCORES
    return _OF_POSTERIORS if hasattr(type(model), "chains") else _WITHOUT_COEFFICIENTS
