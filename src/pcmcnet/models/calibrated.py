"""Temperature scaling: calibration of probabilities with a single parameter (Guo, Pleiss, Sun & Weinberger, 2017).

    P_T(i | S) = P(i | S)^(1/T) / sum_{j in S} P(j | S)^(1/T)

T > 1 makes the probabilities within a set more equal and T < 1 makes them less equal. The order of the probabilities
does not change. T is chosen to minimise the mean NLL of choices that the model was not fitted to. As a function of b =
1/T, the loss of a choice c, - b log P(c) + log sum_j exp(b log P(j)), is convex, so the minimum is unique.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Never

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.errors import ArtifactError, ConfigError, InputError
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

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0  # range of the search
_ROUNDING = 1e-12  # smaller relative gains are rounding errors
_FILE = "temperature.json"


class Temperature(NamedTuple):
    """A temperature, and the mean NLL of the calibration choices before and after scaling."""

    value: float
    nll_before: float | None = None
    nll_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class CalibratedConfig:
    """Options of a calibrated model.

    Parameters
    ----------
    model
        Registry name of the inner model. ``Calibrated`` also accepts a model object instead of a name and options.
    options
        Options of the inner model.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inner = build_model(self.model, self.options)
        if inner.gives == "ranking":
            raise ConfigError(f"temperature scaling needs probabilities, but {self.model} gives a ranking.")
        object.__setattr__(self, "options", asdict(inner.config))


@dataclass(frozen=True, kw_only=True)
class FittedCalibrated(FittedWrapper):
    """A fitted model and its temperature."""

    temperature: Temperature


class Calibrated(SingleModelWrapper):
    """A model with temperature scaling: the model's probabilities are raised to the power 1/T and normalised.

    ``Calibrated(model).fit(train, valid)`` fits a copy of the model and chooses T on the validation part, so that the
    calibrated model can be compared with other models. ``Calibrated(fitted, temperature)`` is ready to predict.
    :func:`pcmcnet.insight.calibration.calibrate` finds T for a fitted model.

    Parameters
    ----------
    model
        Model to calibrate, or the registry name of a model.
    temperature
        Positive temperature T for a model that is already fitted. T = 1 leaves the probabilities unchanged. If None
        (default), ``fit`` chooses T.
    options
        Options of the model, if ``model`` is a name. If None (default), the model's default options are used.
    encoders
        Custom encoders of the model, if ``model`` is a name (default None). See :class:`NeuralModel`.

    Attributes
    ----------
    model_
        The fitted inner model.
    temperature_
        T, and the mean NLL of the calibration choices before and after scaling.
    """

    name = "calibrated"
    config_class = CalibratedConfig
    stops_early = True  # the temperature is chosen on the validation part
    config: CalibratedConfig
    _state: FittedCalibrated

    def __init__(
        self,
        model: ChoiceModel | str | None = None,
        temperature: float | Temperature | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        encoders: Mapping[str, Any] | None = None,
        **more: Never,
    ) -> None:
        super().__init__(model, options, encoders, **more)
        if temperature is not None:
            if not isinstance(model, ChoiceModel):
                raise ConfigError("temperature requires a fitted model: omit temperature, and fit will choose it.")
            value = temperature if isinstance(temperature, Temperature) else Temperature(temperature)
            require_number("temperature", value.value, low=0, open_low=True)
            self._wrap(model, _state(model, value))

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedCalibrated:
        if valid is None:
            raise InputError("the temperature is chosen on validation data: pass valid to fit.")
        model = self._fit_inner(train, valid, run)
        return _state(model, find_temperature(model, valid))

    @property
    def temperature_(self) -> Temperature:
        """The temperature, and the mean NLL of the calibration choices before and after scaling."""
        return self._state.temperature

    def _log_proba(self, data: ChoiceData) -> Floats:
        return apply_temperature(self.model_._log_proba(data), data, self.temperature_.value)

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """Return the slopes d log P_T, with T d log P_T(i) = d log P(i) - sum_j P_T(j) d log P(j)."""
        slopes = self.model_._slopes(data, column)
        if slopes is None or self.temperature_.value == 1:
            return slopes
        return centred_slopes(slopes, self._log_proba(data), data, column) / self.temperature_.value

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the inner model, plus the temperature."""
        return self.model_.num_parameters + 1

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Caveats of the inner model, and a caveat if the temperature is at a boundary of the search range."""
        at_end = any(
            math.isclose(self.temperature_.value, end, rel_tol=1e-3) for end in (MIN_TEMPERATURE, MAX_TEMPERATURE)
        )
        return (*super().fit_caveats, *(["the temperature is at a boundary of the search range"] if at_end else []))

    def summary(self) -> Summary:
        """Return the summary of the inner model, with the temperature."""
        inner, (value, before, after) = self.model_.summary(), self.temperature_
        facts = {"temperature": f"{value:.4f}"}
        if before is not None and after is not None:
            facts["NLL of the calibration part"] = f"{before:.4f} before, {after:.4f} after"
        return Summary(f"Calibrated {inner.title}", {**facts, **inner.facts}, inner.header, inner.rows, self.caveats)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        return {_FILE: json_bytes(self.temperature_._asdict()), **member_files(self.model_, 1)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedCalibrated:
        temperature = Temperature(**json.loads(files[_FILE]))
        value = temperature.value
        if not isinstance(value, float | int) or not 0 < value < math.inf:
            raise ArtifactError(f"expected a saved temperature above 0, got {value!r}: save the model again.")
        return _state(restore_member(files, 1, self.extras), temperature)


def _state(model: ChoiceModel, temperature: Temperature) -> FittedCalibrated:
    return FittedCalibrated(model=model, temperature=temperature, record=model.record_, history=model.history)


def find_temperature(model: ChoiceModel, data: ChoiceData) -> Temperature:
    """Return the T that minimises the weighted mean NLL of the choices, or T = 1 if no other value is better."""
    from scipy.optimize import minimize_scalar

    # 1. Predict the choices with a positive weight. Probabilities of 0 cannot be calibrated.
    picked = data.offsets[:-1] + data.require_chosen("a calibration")
    with_positive_weight = data.weights > 0
    if not with_positive_weight.any():
        raise InputError(f"expected at least one choice set with a weight above 0, got none in {len(data)}.")
    weights = data.weights[with_positive_weight]
    log_p = model._log_proba(data)
    impossible = int(np.isneginf(log_p[picked][with_positive_weight]).sum())
    if impossible:
        raise InputError(f"{impossible} of the choices have probability 0, which no temperature can change.")

    def nll(t: float) -> float:
        return float(-np.average(apply_temperature(log_p, data, t)[picked][with_positive_weight], weights=weights))

    # 2. Minimise over b = 1/T, in which the loss is convex.
    best = minimize_scalar(
        lambda b: nll(1 / b),
        bounds=(1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE),
        method="bounded",
        options={"xatol": 1e-7},
    )
    # 3. Keep T = 1 unless the gain exceeds rounding errors.
    before, after = nll(1.0), nll(1 / best.x)
    gained = before - after > _ROUNDING * max(before, 1.0)
    return Temperature(float(1 / best.x), before, after) if gained else Temperature(1.0, before, before)


def apply_temperature(log_p: Floats, data: ChoiceData, t: float) -> Floats:
    """Return the log-probabilities (N,) at temperature t; if t = 1, the input is returned unchanged, bit for bit."""
    return log_p if t == 1 else log_softmax_by_set(log_p / t, data.offsets)
