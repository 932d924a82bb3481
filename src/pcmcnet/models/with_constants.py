"""Calibration of alternative-specific constants: a model is adjusted to known market shares by one constant per label.

    P_d(i | S) = P(i | S) exp(d_l(i)) / sum_{j in S} P(j | S) exp(d_l(j)),        l(i) the label of i

The probabilities P_d describe a market in which the odds of label l against label m are exp(d_l - d_m) times those in
the estimation sample. In a choice-based sample, in which users of l are overrepresented by a factor exp(-d_l), this
formula is Bayes' rule for any model (Manski & Lerman, 1977). In a multinomial logit, this calibration only changes the
alternative-specific constants.

The shares are the gradient of a convex function of d, so the solution is unique up to a common constant. The solution
is found by Newton steps with the derivatives of a logit. A step is halved until it reduces the error, so the method
also works for models that are not logits. Shapes: N alternatives of S sets, L labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Never

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import log_softmax_by_set, spread
from pcmcnet.errors import ArtifactError, ConfigError, InputError, TrainingError, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.wrapper import (
    FittedWrapper,
    SingleModelWrapper,
    build_model,
    centred_slopes,
    member_files,
    restore_member,
)
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes

_FILE = "constants.json"
_MAX_STEPS = 200
_CONVERGED, _ACCEPTED = 1e-12, 1e-7  # largest errors of a share at which the search ends, and succeeds
_MAX_STEP = 5.0  # largest change of a constant in one step
_SUM_TOLERANCE = 1e-6  # largest deviation from 1 of the sum of the known shares


@dataclass(frozen=True, kw_only=True)
class WithConstantsConfig:
    """Options of a model with calibrated constants.

    Parameters
    ----------
    model
        Registry name of the inner model. ``WithConstants`` also accepts a model object instead of a name and options.
    options
        Options of the inner model.
    shares
        Known market share of each label; the shares sum to 1.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inner = build_model(self.model, self.options)
        if inner.gives == "ranking":
            raise ConfigError(f"calibrated constants need probabilities, but {self.model} gives a ranking.")
        object.__setattr__(self, "options", asdict(inner.config))
        object.__setattr__(self, "shares", require_shares(self.shares))


@dataclass(frozen=True, kw_only=True)
class FittedConstants(FittedWrapper):
    """A fitted model and the constant of each label."""

    constants: Mapping[str, float]


class WithConstants(SingleModelWrapper):
    """Model with calibrated constants: one constant per label, so that its market shares equal known shares.

    ``WithConstants(model, shares).fit(train)`` fits a copy of the model and finds the constants on the training part.
    :func:`pcmcnet.calibrate_constants` finds the constants of a fitted model on any table.

    Parameters
    ----------
    model
        Model to calibrate, or the registry name of a model.
    shares
        Known market share of each label, such as ``{"car": 0.6, "bus": 0.4}``; the shares sum to 1.
    constants
        The constant of each label, if the model is already fitted. If None (default), ``fit`` finds the constants.
    options
        Options of the model, if ``model`` is a name. If None (default), the model's default options are used.
    encoders
        Custom encoders of the model, if ``model`` is a name (default None). See :class:`NeuralModel`.

    Attributes
    ----------
    model_
        The fitted inner model.
    constants_
        The constant of each label.
    """

    name = "with-constants"
    config_class = WithConstantsConfig
    config: WithConstantsConfig
    _state: FittedConstants

    def __init__(
        self,
        model: ChoiceModel | str | None = None,
        shares: Mapping[str, float] | None = None,
        *,
        constants: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        encoders: Mapping[str, Any] | None = None,
        **more: Never,
    ) -> None:
        super().__init__(model, options, encoders, shares=shares or {}, **more)
        if constants is not None:
            if not isinstance(model, ChoiceModel):
                raise ConfigError("constants require a fitted model: omit constants, and fit will find them.")
            self._wrap(model, _state(model, constants))

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedConstants:
        model = self._fit_inner(train, valid, run)
        return _state(model, find_constants(model, train, self.config.shares))

    def _refit(self, train: ChoiceData, run: FitRun) -> FittedConstants:
        # The constants reproduce the known shares on the training part, whose weights are random.
        model = self.model_._replicate(train, run.seed)
        return _state(model, find_constants(model, train, self.config.shares))

    @property
    def constants_(self) -> dict[str, float]:
        """Constant of each label."""
        return dict(self._state.constants)

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_softmax_by_set(self.model_._log_proba(data) + self._of_alternatives(data), data.offsets)

    def _of_alternatives(self, data: ChoiceData) -> Floats:  # (N,)
        """Return the constant of each alternative."""
        labels, constants = _require_labels(data), self.constants_
        unseen = [labels.categories[k] for k in np.unique(labels.codes) if labels.categories[k] not in constants]
        if unseen:
            raise InputError(f"the label {unseen[0]!r} has no constant." + did_you_mean(unseen[0], constants))
        values: Floats = np.array([constants.get(name, 0.0) for name in labels.categories])[labels.codes]
        return values

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """Return the slopes d log P_d(i) = d log P(i) - sum_j P_d(j) d log P(j)."""
        slopes = self.model_._slopes(data, column)
        return None if slopes is None else centred_slopes(slopes, self._log_proba(data), data, column)

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the inner model, plus all constants but one."""
        return self.model_.num_parameters + len(self.constants_) - 1

    def summary(self) -> Summary:
        """Return the summary of the inner model, with the constants."""
        inner = self.model_.summary()
        facts = {"constants": ", ".join(f"{name} {value:.4g}" for name, value in self.constants_.items())}
        facts["known shares"] = ", ".join(f"{name} {share:.4g}" for name, share in self.config.shares.items())
        return Summary(
            f"{inner.title} with constants", {**facts, **inner.facts}, inner.header, inner.rows, self.caveats
        )

    def _files(self) -> dict[str, bytes]:
        return {_FILE: json_bytes(self.constants_), **member_files(self.model_, 1)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedConstants:
        constants = json.loads(files[_FILE])
        if not all(isinstance(value, float | int) and math.isfinite(value) for value in constants.values()):
            raise ArtifactError("the saved constants are not all finite numbers: save the model again.")
        return _state(restore_member(files, 1, self.extras), constants)


def _state(model: ChoiceModel, constants: Mapping[str, float]) -> FittedConstants:
    return FittedConstants(model=model, constants=dict(constants), record=model.record_, history=model.history)


def find_constants(model: ChoiceModel, data: ChoiceData, shares: Mapping[str, float]) -> dict[str, float]:
    """Return the constants with which a model's shares on a table equal the known shares. The first constant is 0."""
    log_p = model._log_proba(data)
    codes, target = require_target(data, shares)
    constants = solve_constants(lambda d: log_softmax_by_set(log_p + d[codes], data.offsets), data, codes, target)
    return dict(zip(shares, constants.tolist(), strict=True))


def require_shares(shares: Any) -> dict[str, float]:
    """Return the shares as floats. Raise ConfigError unless they are positive and sum to 1."""
    if not isinstance(shares, Mapping) or not shares:
        raise ConfigError(f"shares: expected the known share of each label, as in {{'car': 0.6, ...}}, got {shares!r}.")
    for label, share in shares.items():
        if isinstance(share, int | float) and 1 < share <= 100:
            raise ConfigError(
                f"the share of {label!r} must be at most 1, got {share}: write {share / 100:g} for {share}%."
            )
        require_number(f"the share of {label!r}", share, low=0, high=1, open_low=True)
    total = sum(shares.values())
    if abs(total - 1) > _SUM_TOLERANCE:
        raise ConfigError(f"shares: expected a sum of 1, got {total:.6g}. Divide each share by their sum.")
    return {str(label): float(share) for label, share in shares.items()}


def require_target(data: ChoiceData, shares: Mapping[str, float]) -> tuple[Ints, Floats]:
    """Return the index of each alternative's label (N,), in the order of the shares, and the target shares (L,).

    Raise InputError if the labels of the table and of the shares differ, or if a share cannot be reached.
    """
    # 1. Check that there is one share for each label of the table.
    labels, order = _require_labels(data), {label: k for k, label in enumerate(shares)}
    used = [labels.categories[k] for k in np.unique(labels.codes)]
    for label in order:
        if label not in used:
            raise InputError(f"shares: {label!r} is not a label of the table." + did_you_mean(label, used))
    missing = [label for label in used if label not in order]
    if missing:
        raise InputError(
            f"shares: expected a share for each label of the table, got none for {', '.join(map(repr, missing))}."
        )
    # 2. Check that no share exceeds the share of choice sets in which the label is available.
    codes = np.array([order.get(label, -1) for label in labels.categories], np.int64)[labels.codes]
    offered = np.bincount(codes, spread(data.weights, data.offsets), len(order)) / data.weights.sum()
    for label, share in shares.items():
        if share > offered[order[label]] + _ACCEPTED:
            raise InputError(
                f"a share of {share:.4g} for {label!r} is not possible: the alternative is available in only "
                f"{offered[order[label]]:.4g} of the choice sets, by weight."
            )
    target = np.array(list(shares.values()))
    return codes, target / target.sum()


def solve_constants(
    log_p_at: Callable[[Floats], Floats], data: ChoiceData, codes: Ints, target: Floats, fixed: int = 0
) -> Floats:  # -> (L,)
    """Find the constants with which the shares of the labels equal the target shares.

    Parameters
    ----------
    log_p_at
        Function from constants (L,) to log-probabilities (N,).
    data
        Choice sets.
    codes
        Index of each alternative's label (N,).
    target
        Target shares (L,).
    fixed
        Index of the label whose constant is fixed at 0.

    Returns
    -------
    ndarray
        Constants (L,) of the labels.

    Raises
    ------
    TrainingError
        If no constants reproduce the target shares.
    """
    from scipy.sparse import csr_array

    # 1. Define the shares of the labels, and the probability of each label in each set, at given constants.
    L, w = len(target), data.weights / data.weights.sum()
    free = np.delete(np.arange(L), fixed)
    cells = (data.set_of_alternative, codes)

    def shares_at(d: Floats) -> tuple[Floats, Any]:
        p = csr_array((np.exp(log_p_at(d)), cells), shape=(len(data), L))
        return np.asarray(w @ p), p

    # 2. Take Newton steps until the shares match.
    d = np.zeros(L)
    shares, p = shares_at(d)
    for _ in range(_MAX_STEPS):
        error = float(np.abs(shares - target).max())
        if error < _CONVERGED:
            break
        # The derivatives of the shares of a logit.
        hessian = np.diag(shares) - (p.T @ (p * w[:, None])).toarray()
        step = np.zeros(L)
        step[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], (target - shares)[free])[0]
        step *= min(1.0, _MAX_STEP / max(float(np.abs(step).max()), 1e-300))
        # Halve the step until it reduces the error.
        for halvings in range(30):
            new_shares, new_p = shares_at(d + step / 2**halvings)
            if np.abs(new_shares - target).max() < error:
                d, shares, p = d + step / 2**halvings, new_shares, new_p
                break
        else:
            break
    error = float(np.abs(shares - target).max())
    if error > _ACCEPTED:
        raise TrainingError(
            f"no constants reproduce these shares: the closest constants miss a share by {error:.3g}. Check that the "
            f"shares are possible, given the alternatives available in each choice set."
        )
    return d


def _require_labels(data: ChoiceData) -> Any:
    """Return the labels of the alternatives. Raise InputError if the table has no labels."""
    if data.labels is None:
        raise InputError("constants need labelled alternatives: read the table with alternative=<column>.")
    return data.labels
