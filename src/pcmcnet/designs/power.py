"""Number of respondents that a design needs: power and width of intervals, by simulation and by expected information.

Respondents choose from the chain of ``context_terms.py``, with known coefficients b and context effects g. For each
simulated survey, the parameters t = (b, g) are estimated by maximum likelihood with Fisher scoring,

    t <- t + M(t)^-1 s(t),    s = sum_t sum_j n_tj d log p_tj / d t,    M = sum_t n_t sum_j p_tj g_tj g_tj',

where n_tj is the number of respondents who choose j in task t: the choices of a survey are these counts. All surveys of
a number of respondents are estimated at once. The target is a parameter, or a ratio of two coefficients such as the
willingness to pay, whose error follows from the delta method. An effect is detected if its interval excludes 0.

The expected figures follow from M at the true values: with z = |target| / error, the power is

    Phi(z - c) + Phi(-z - c),    c = the quantile of the normal distribution for the level,

and errors fall with the square root of the number of respondents. In small surveys, the simulated power is lower, as
estimates are biased and errors vary. With simulated power f from n respondents, power g needs about

    n ((c + Phi^-1(g)) / (c + Phi^-1(f)))^2,    with f minus its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.designs.choice_design import ChoiceDesign
from pcmcnet.designs.context_terms import chain_probabilities, context_terms
from pcmcnet.designs.model_scores import ModelScores
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.reports.formats import FormatsMixin, ResultContent
from pcmcnet.reports.tables import number, percent

FISHER_STEPS = 40
CONVERGED = 1e-6  # change of a parameter in units of its standard error, below which a fit has converged
MAX_STEP = 5.0  # length of a step in standard deviations of utility; longer ones are shortened
MAX_DISTANCE = 40.0  # of an estimate from the true value; the likelihood is flat there if no estimate is finite
RIDGE = 1e-8  # relative to the trace; bounds the step in a direction that a survey hardly identifies
MAX_ERROR_RATIO = 20.0  # an error above this multiple of the expected one means that the estimate is not finite
MIN_SURVEYS, MIN_POWER, MAX_POWER = 100, 0.3, 0.99  # of a row from which power is extrapolated
SURVEYS_AT_ONCE = 200  # in one batch of fits


@dataclass(frozen=True)
class PowerRow:
    """Figures for a number of respondents.

    Attributes
    ----------
    respondents
        Number of respondents.
    power
        Share of the simulated surveys whose interval of the target excludes 0.
    expected_power
        Power expected from the information of the design.
    width
        Median width of the interval over the simulated surveys.
    expected_width
        Width expected from the information of the design.
    coverage
        Share of the intervals that contain the true value.
    mean
        Mean estimate.
    failed
        Number of surveys without a finite estimate, which count as not detected.
    """

    respondents: int
    power: float
    expected_power: float
    width: float
    expected_width: float
    coverage: float
    mean: float
    failed: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DesignPower(FormatsMixin):
    """Result of :func:`design_power`: power and width of intervals for several numbers of respondents.

    Attributes
    ----------
    target
        The parameter or ratio that is estimated.
    truth
        Its true value.
    error
        Its expected standard error with one respondent.
    level
        Level of the intervals.
    surveys
        Number of simulated surveys for each number of respondents.
    rows
        Figures for each number of respondents.
    """

    target: str
    truth: float
    error: float
    level: float
    surveys: int
    rows: tuple[PowerRow, ...]

    def respondents_for_power(self, power: float = 0.8) -> int:
        """Return the number of respondents at which the target is detected with a given power.

        The number is that of the row whose simulated power is closest, times the squared ratio of the z values of the
        two powers. The standard error is subtracted from the simulated power, since too few respondents are worse than
        a few too many. If no row has a power between 30% and 99% from at least 100 surveys, the number follows from the
        expected information. It may then be a few per cent too small.

        Parameters
        ----------
        power
            Probability that the interval excludes 0. Default 0.8.

        Raises
        ------
        InputError
            If the true value is 0, which cannot be detected.
        """
        require_number("power", power, low=0.5, high=1, open_high=True)
        if self.truth == 0:
            raise InputError(f"the true value of {self.target!r} is 0, so there is nothing to detect. Pass effects.")
        critical, needed = _critical(self.level), float(ndtri(power))
        if not (informative := self._informative_rows()):
            return math.ceil(((critical + needed) * self.error / self.truth) ** 2)
        row = min(informative, key=lambda row: abs(float(ndtri(row.power)) - needed))
        simulated = row.power - math.sqrt(row.power * (1 - row.power) / self.surveys)
        return math.ceil(row.respondents * ((critical + needed) / (critical + float(ndtri(simulated)))) ** 2)

    def _informative_rows(self) -> list[PowerRow]:
        """Return the rows from which the power for other numbers of respondents is extrapolated."""
        if self.surveys < MIN_SURVEYS:
            return []
        return [row for row in self.rows if MIN_POWER <= row.power <= MAX_POWER]

    def respondents_for_width(self, width: float) -> int:
        """Return the expected number of respondents at which the interval has a given width, from end to end.

        Parameters
        ----------
        width
            Width of the interval, in units of the target.
        """
        require_number("width", width, low=0, open_low=True)
        return math.ceil((2 * _critical(self.level) * self.error / width) ** 2)

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]

    def _content(self) -> ResultContent:
        facts = {
            "target": f"{self.target}, true value {number(self.truth)}",
            "interval": f"{self.level:.0%}, from {self.surveys:,} simulated surveys",
        }
        if self.truth:
            source = "from the simulated surveys" if self._informative_rows() else "as expected from the information"
            facts["for 80% power"] = f"{self.respondents_for_power():,} respondents, {source}"
        header = ["respondents", "power", "expected", "width", "expected width", "coverage", "mean estimate", "failed"]
        rows = [
            [
                *(f"{row.respondents:,}", percent(row.power), percent(row.expected_power)),
                *(number(row.width), number(row.expected_width), percent(row.coverage), number(row.mean)),
                f"{row.failed:,}",
            ]
            for row in self.rows
        ]
        return ResultContent(title="Power of a design", cells=[header, *rows], facts=facts)

    def __repr__(self) -> str:
        return f"DesignPower({self.target}, {len(self.rows)} numbers of respondents; print it to see the table)"


@suggests_arguments()
def design_power(
    plan: ChoiceDesign,
    target: str,
    *,
    effects: Mapping[str, float] | None = None,
    coefficients: Mapping[str, float] | None = None,
    respondents: Sequence[int] = (50, 100, 200, 400),
    surveys: int = 400,
    level: float = 0.95,
    seed: int = 0,
) -> DesignPower:
    """Simulate surveys with a design, and return how often an effect is detected and how wide its interval is.

    Parameters
    ----------
    plan
        The design, with any criterion.
    target
        What is estimated: a context effect such as "dominance", a coefficient such as "price", or a ratio of two
        coefficients such as "hours / price", which is minus the willingness to pay.
    effects
        True context effects of the chain that makes the choices, as in ``{"dominance": 1.0}``. They are estimated along
        with the coefficients, and with a utility of dominated alternatives, "dominated", which is 0 by default.
        Default: none, so the choices follow a logit.
    coefficients
        True coefficients that differ from the means of the prior, by name. Default: none differ. If the prior is a
        fitted model other than a multinomial logit, pass the coefficients; those that are not named are 0.
    respondents
        Numbers of respondents. Default 50, 100, 200 and 400.
    surveys
        Number of simulated surveys for each number of respondents. Default 400.
    level
        Level of the intervals. Default 0.95.
    seed
        Seed of the random number generator. Default 0.

    Returns
    -------
    DesignPower
        A table of power, widths, coverage and mean estimates.

    Raises
    ------
    InputError
        If a name is unknown, if the design does not identify the parameters, or if neither the prior nor
        ``coefficients`` has coefficients.

    Examples
    --------
    >>> import pcmcnet as pn
    >>> attributes, prior = {"price": [1, 2, 3], "quality": [1, 2, 3]}, {"price": -0.5, "quality": 0.5}
    >>> plan = pn.design(attributes, prior=prior, tasks=8, criterion="context", starts=2)
    >>> power = pn.design_power(plan, "dominance", effects={"dominance": 2.0}, respondents=[100], surveys=50)
    >>> power.rows[0].expected_power > 0.9
    True
    """
    require_number("surveys", surveys, whole=True, low=1)
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    require_number("seed", seed, whole=True, low=0)
    if isinstance(respondents, str | int | float) or not len(respondents):
        raise InputError(f"respondents: expected a list of numbers, as in [50, 100], got {respondents!r}.")
    for count in respondents:
        require_number("respondents", count, whole=True, low=1)
    # 1. The chain that makes the choices, and its information.
    model = _SurveyModel.of(plan, effects or {}, coefficients or {})
    goal = _Target.of(target, model)
    information = _information(model, plan)
    error = math.sqrt(float(goal.variance(model.truth[None], np.asarray(np.linalg.inv(information))[None])[0]))
    # 2. Simulate and estimate surveys.
    rng, critical = np.random.default_rng(seed), _critical(level)
    truth = float(goal.value(model.truth[None])[0])
    rows = []
    for count in respondents:
        estimates, errors, is_finite = _simulated_estimates(model, goal, plan, count, surveys, error, rng)
        half = critical * errors
        z = abs(truth) / (error / math.sqrt(count))
        rows.append(
            PowerRow(
                respondents=int(count),
                power=float((is_finite & (np.abs(estimates) > half)).mean()),
                expected_power=float(ndtr(z - critical) + ndtr(-z - critical)),
                width=float(np.median(2 * half[is_finite])) if is_finite.any() else math.nan,
                expected_width=2 * critical * error / math.sqrt(count),
                coverage=float((np.abs(estimates - truth) <= half)[is_finite].mean()) if is_finite.any() else math.nan,
                mean=float(estimates[is_finite].mean()) if is_finite.any() else math.nan,
                failed=int((~is_finite).sum()),
            )
        )
    return DesignPower(target=target, truth=truth, error=error, level=level, surveys=surveys, rows=tuple(rows))


def _critical(level: float) -> float:
    return float(ndtri((1 + level) / 2))


@dataclass(frozen=True, eq=False)
class _SurveyModel:
    """The chain of a survey: columns and terms of the tasks, names and true values of the parameters."""

    x: Floats  # (T, J, P), in units of ``scales``
    terms: Floats  # (T, J, J, G)
    names: tuple[str, ...]
    truth: Floats  # (P + G,), in units of ``scales``
    scales: Floats  # (P + G,)

    @classmethod
    def of(cls, plan: ChoiceDesign, effects: Mapping[str, float], coefficients: Mapping[str, float]) -> _SurveyModel:
        """Return the chain of a design with the given true values."""
        space = plan.space
        if isinstance(plan.scores, ModelScores) and not coefficients:
            example = f"coefficients={{{space.names[0]!r}: -0.5}}"
            raise InputError(
                f"the prior of the design is a fitted model without coefficients: pass those of the simulated choices, "
                f"as in {example}. Coefficients that are not named are 0."
            )
        for name in coefficients:
            if name not in space.names:
                raise InputError(f"coefficients: unknown coefficient {name!r}." + did_you_mean(name, space.names))
        values = dict(zip(space.names, plan.prior_mean.tolist(), strict=True)) | dict(coefficients)
        if effects:
            known = context_terms(space, plan.directions, effects)
            terms, names, departures = known(plan.levels), known.names, known.values
        else:
            size = len(plan.labels)
            terms, names = np.zeros((len(plan.levels), size, size, 0)), ()
            departures = np.zeros(0)
        scales = np.concatenate([space.scales(), np.ones(len(names))])
        truth = np.array([*values.values(), *departures])
        x = space.encode(plan.levels) / space.scales()
        return cls(x, terms, (*space.names, *names), truth * scales, scales)

    def probabilities(self, parameters: Floats) -> tuple[Floats, Floats]:  # (R, P + G)
        """Return the probabilities (R, T, J) of chains and the gradients of their logarithms (R, T, J, P + G)."""
        n = self.x.shape[-1]
        return chain_probabilities(self.x, self.terms, parameters[:, :n], parameters[:, n:])


@dataclass(frozen=True)
class _Target:
    """A parameter, or the ratio of two parameters, by their positions."""

    top: int
    bottom: int | None
    scale: float

    @classmethod
    def of(cls, text: str, model: _SurveyModel) -> _Target:
        """Return the target with the given name, or raise InputError if a name is unknown."""
        places = []
        parts = [text] if text in model.names else [part.strip() for part in text.split(" / ")]
        for part in parts:
            if part not in model.names:
                raise InputError(
                    f"target: unknown parameter {part!r}.{did_you_mean(part, model.names)} A context effect needs a "
                    "true value, as in effects={'dominance': 1.0}; a ratio is written as in 'hours / price'."
                )
            places.append(model.names.index(part))
        if len(places) > 2:
            raise InputError(f"target: expected a parameter or a ratio of two, got {text!r}.")
        if len(places) == 1:
            return cls(places[0], None, 1 / float(model.scales[places[0]]))
        if model.truth[places[1]] == 0:
            raise InputError(
                f"target: {text!r} is not defined, because the true value of {parts[1]!r} is 0. Design with a prior of "
                f"{parts[1]!r}, or pass coefficients={{{parts[1]!r}: ...}}."
            )
        return cls(places[0], places[1], float(model.scales[places[1]] / model.scales[places[0]]))

    def value(self, parameters: Floats) -> Floats:  # (R, P) -> (R,)
        """Return the target in its own units."""
        top: Floats = parameters[:, self.top]
        return self.scale * (top if self.bottom is None else top / parameters[:, self.bottom])

    def variance(self, parameters: Floats, covariance: Floats) -> Floats:  # (R, P), (R, P, P) -> (R,)
        """Return the variance of the target by the delta method."""
        gradient = np.zeros_like(parameters)
        if self.bottom is None:
            gradient[:, self.top] = 1
        else:
            bottom = parameters[:, self.bottom]
            gradient[:, self.top] = 1 / bottom
            gradient[:, self.bottom] = -parameters[:, self.top] / bottom**2
        variance: Floats = np.einsum("rp,rpq,rq->r", gradient, covariance, gradient)
        return self.scale**2 * variance


def _information(model: _SurveyModel, plan: ChoiceDesign) -> Floats:  # -> (P + G, P + G)
    """Return the information of one respondent at the true values."""
    p, gradients = model.probabilities(model.truth[None])
    information: Floats = np.einsum("tj,tjp,tjq->pq", p[0], gradients[0], gradients[0]) / plan.versions
    values, vectors = np.linalg.eigh(information)
    if values[0] <= RIDGE * values[-1]:
        lost = np.abs(vectors[:, values <= RIDGE * values[-1]]).max(axis=1)
        unknown = [model.names[k] for k in np.flatnonzero(lost > 0.1)]
        raise InputError(
            f"the design does not identify {', '.join(unknown)}: no number of respondents is enough. Design with "
            "criterion='context', or leave the effect out."
        )
    return information


def _simulated_estimates(
    model: _SurveyModel,
    goal: _Target,
    plan: ChoiceDesign,
    respondents: int,
    surveys: int,
    error: float,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Bools]:
    """Return the estimate of the target and its standard error in each survey, and whether both are finite."""
    answers = np.bincount(np.arange(respondents) % plan.versions, minlength=plan.versions)[plan.version - 1]  # (T,)
    p, _ = model.probabilities(model.truth[None])
    estimates, errors = [], []
    for start in range(0, surveys, SURVEYS_AT_ONCE):
        n = min(SURVEYS_AT_ONCE, surveys - start)
        counts = rng.multinomial(np.broadcast_to(answers, (n, len(answers))), np.broadcast_to(p, (n, *p.shape[1:])))
        parameters, covariance = _maximum_likelihood(model, counts)
        estimates.append(goal.value(parameters))
        errors.append(np.sqrt(np.maximum(goal.variance(parameters, covariance), 0)))
    values, spread = np.concatenate(estimates), np.concatenate(errors)
    is_finite = np.isfinite(values) & (spread < MAX_ERROR_RATIO * error / math.sqrt(respondents)) & (spread > 0)
    return values, spread, is_finite


def _maximum_likelihood(model: _SurveyModel, counts: Ints) -> tuple[Floats, Floats]:  # (R, T, J)
    """Estimate the parameters (R, P) of each survey by Fisher scoring, from the true values; return covariances too."""
    answers = counts.sum(axis=-1)
    parameters = np.repeat(model.truth[None], len(counts), axis=0)
    identity = np.eye(parameters.shape[1])
    for _ in range(FISHER_STEPS):
        p, gradients = model.probabilities(parameters)
        score = np.einsum("rtj,rtjp->rp", counts, gradients)
        weighted = (np.sqrt(answers[..., None] * p)[..., None] * gradients).reshape(len(counts), -1, len(identity))
        information = weighted.swapaxes(-1, -2) @ weighted
        ridge = RIDGE * np.trace(information, axis1=-2, axis2=-1)[:, None, None] * identity
        covariance = np.linalg.inv(information + ridge)
        step = np.einsum("rpq,rq->rp", covariance, score)
        length = np.linalg.norm(step, axis=1, keepdims=True)
        parameters = parameters + step * np.minimum(1, MAX_STEP / np.maximum(length, 1e-300))
        parameters = np.clip(parameters, model.truth - MAX_DISTANCE, model.truth + MAX_DISTANCE)
        if (np.abs(step) < CONVERGED * np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))).all():
            break
    return parameters, covariance
