"""A model whose shares are moved to known ones, by a constant for each label.

    P_d(i | S) = P(i | S) exp(d_l(i)) / sum_{j in S} P(j | S) exp(d_l(j)),        l(i) the label of i

is the model of a market in which the labels are chosen more often by exp(d_l) than in the sample it was fitted to.
Where the sample was drawn by choices, so that users of l are in it too often by exp(-d_l), this is Bayes' rule,
whatever the model (Manski & Lerman, 1977); in a multinomial logit it moves the constants.

The shares are the gradient of a convex function of d, so there is one solution up to a common constant. Newton's steps
with the derivatives of a logit find it, halved where they lead too far: so they serve the other logits, too.
Shapes: N alternatives of S sets, L labels.
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
_STEPS = 200  # at most
_EXACT, _NEAR = 1e-12, 1e-7  # largest difference of a share that ends the search, and that its end may have
_FURTHEST = 5.0  # that a constant moves in a step
_SUM = 1e-6  # by which shares may miss 1


@dataclass(frozen=True, kw_only=True)
class WithConstantsConfig:
    """Options of a model with constants.

    Parameters
    ----------
    model, options
        Name of the model inside, and its options. ``WithConstants`` also takes a model object in place of both.
    shares
        The known share of each label; they sum to 1.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inner = build_model(self.model, self.options)
        if inner.gives == "ranking":
            raise ConfigError(f"{self.model} gives a ranking, whose probabilities of 0 and 1 no constant moves.")
        object.__setattr__(self, "options", asdict(inner.config))
        object.__setattr__(self, "shares", require_shares(self.shares))


@dataclass(frozen=True, kw_only=True)
class FittedConstants(FittedWrapper):
    """A fitted model and the constant of each label."""

    constants: Mapping[str, float]


class WithConstants(SingleModelWrapper):
    """A model with a constant for each label, so that its shares on a table are known ones.

    ``WithConstants(model, shares).fit(train)`` fits the model and finds the constants on the training part;
    :func:`pcmcnet.calibrate_constants` finds them for a fitted model on any table.

    Parameters
    ----------
    model
        A model, or the name of one with its ``options``.
    shares
        The known share of each label.
    constants
        Where the model is fitted: the constant of each label.

    Attributes
    ----------
    model_
        The fitted model inside.
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
                raise ConfigError("constants are for a fitted model: leave them out, and fit finds them.")
            self._wrap(model, _state(model, constants))

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedConstants:
        model = self._fit_inner(train, valid, run)
        return _state(model, find_constants(model, train, self.config.shares))

    @property
    def constants_(self) -> dict[str, float]:
        """The constant of each label."""
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
        """D log P_d(i) = d log P(i) - sum_j P_d(j) d log P(j)."""
        slopes = self.model_._slopes(data, column)
        return None if slopes is None else centred_slopes(slopes, self._log_proba(data), data, column)

    @property
    def num_parameters(self) -> int:
        """Those of the model inside, and the constants but one."""
        return self.model_.num_parameters + len(self.constants_) - 1

    def summary(self) -> Summary:
        """Sum up the model inside, with the constants."""
        inside = self.model_.summary()
        facts = {"constants": ", ".join(f"{name} {value:.4g}" for name, value in self.constants_.items())}
        facts["known shares"] = ", ".join(f"{name} {share:.4g}" for name, share in self.config.shares.items())
        return Summary(f"{inside.title} with constants", {**facts, **inside.facts}, inside.header, inside.rows)

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
    """Return the constants that move the shares of a model on a table to known ones; that of the first label is 0."""
    log_p = model._log_proba(data)
    codes, target = require_target(data, shares)
    constants = solve_constants(lambda d: log_softmax_by_set(log_p + d[codes], data.offsets), data, codes, target)
    return dict(zip(shares, constants.tolist(), strict=True))


def require_shares(shares: Any) -> dict[str, float]:
    """Refuse shares that are none."""
    if not isinstance(shares, Mapping) or not shares:
        raise ConfigError(f"shares: expected the known share of each label, as in {{'car': 0.6, ...}}, got {shares!r}.")
    for label, share in shares.items():
        require_number(f"the share of {label!r}", share, low=0, high=1, open_low=True)
    total = sum(shares.values())
    if abs(total - 1) > _SUM:
        raise ConfigError(f"shares: expected a sum of 1, got {total:.6g}. Divide each of them by it.")
    return {str(label): float(share) for label, share in shares.items()}


def require_target(data: ChoiceData, shares: Mapping[str, float]) -> tuple[Ints, Floats]:
    """(N,), (L,) number each alternative's label in the order of the shares, and see that they can be reached."""
    # 1. One share for each label of the table.
    labels, order = _require_labels(data), {label: k for k, label in enumerate(shares)}
    used = [labels.categories[k] for k in np.unique(labels.codes)]
    for label in order:
        if label not in used:
            raise InputError(f"shares name {label!r}, which is no label of the table." + did_you_mean(label, used))
    lost = [label for label in used if label not in order]
    if lost:
        raise InputError(
            f"shares: expected one for each label of the table, got none for {', '.join(map(repr, lost))}."
        )
    # 2. No share above that of the sets that offer the label.
    codes = np.array([order.get(label, -1) for label in labels.categories], np.int64)[labels.codes]
    offered = np.bincount(codes, spread(data.weights, data.offsets), len(order)) / data.weights.sum()
    for label, share in shares.items():
        if share > offered[order[label]] + _NEAR:
            raise InputError(
                f"a share of {share:.4g} for {label!r} cannot be: {offered[order[label]]:.4g} of the choice sets, by "
                f"weight, have it on offer."
            )
    target = np.array(list(shares.values()))
    return codes, target / target.sum()


def solve_constants(
    log_p_at: Callable[[Floats], Floats], data: ChoiceData, codes: Ints, target: Floats, fixed: int = 0
) -> Floats:  # -> (L,)
    """Find the constants at which the shares of the labels are the target.

    Parameters
    ----------
    log_p_at
        Log-probabilities (N,) at constants (L,).
    data, codes, target
        Choice sets, the label of each alternative (N,), and the shares (L,).
    fixed
        The label whose constant stays 0.
    """
    from scipy.sparse import csr_array

    # 1. The shares of the labels at constants, and the probability of each label in each set.
    L, w = len(target), data.weights / data.weights.sum()
    free = np.delete(np.arange(L), fixed)
    where = (data.set_of_alternative, codes)

    def at(d: Floats) -> tuple[Floats, Any]:
        p = csr_array((np.exp(log_p_at(d)), where), shape=(len(data), L))
        return np.asarray(w @ p), p

    # 2. Newton's steps.
    d = np.zeros(L)
    shares, p = at(d)
    for _ in range(_STEPS):
        miss = float(np.abs(shares - target).max())
        if miss < _EXACT:
            break
        # The derivatives of the shares, as a logit has them.
        hessian = np.diag(shares) - (p.T @ (p * w[:, None])).toarray()
        step = np.zeros(L)
        step[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], (target - shares)[free])[0]
        step *= min(1.0, _FURTHEST / max(float(np.abs(step).max()), 1e-300))
        # Halve the step until it comes nearer.
        for half in range(30):
            ahead, q = at(d + step / 2**half)
            if np.abs(ahead - target).max() < miss:
                d, shares, p = d + step / 2**half, ahead, q
                break
        else:
            break
    miss = float(np.abs(shares - target).max())
    if miss > _NEAR:
        raise TrainingError(
            f"no constants give the model these shares: the nearest found miss one of them by {miss:.3g}. Are they "
            f"possible, given which choice sets offer what?"
        )
    return d


def _require_labels(data: ChoiceData) -> Any:
    if data.labels is None:
        raise InputError("constants are by label: read the table with alternative=<column>.")
    return data.labels
