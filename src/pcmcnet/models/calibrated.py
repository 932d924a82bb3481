"""Probabilities made less, or more, sure of themselves by a temperature (Guo, Pleiss, Sun & Weinberger, 2017).

    P_T(i | S) = P(i | S)^(1/T) / sum_{j in S} P(j | S)^(1/T)

T > 1 draws the probabilities of a set together, T < 1 apart, and their order stays. The T that minimises the mean NLL
of choices that the model was not fitted to is its calibration. As a function of b = 1/T the loss of a choice c,
- b log P(c) + log sum_j exp(b log P(j)), is convex: there is one minimum.
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

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0  # temperatures that are searched
_ROUNDING = 1e-12  # gains below it are none
_FILE = "temperature.json"


class Temperature(NamedTuple):
    """A temperature, and the mean NLL of the choices it was found by, without it and with it."""

    value: float
    nll_before: float | None = None
    nll_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class CalibratedConfig:
    """Options of a calibrated model.

    Parameters
    ----------
    model, options
        Name of the model inside, and its options. ``Calibrated`` also takes a model object in place of both.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inner = build_model(self.model, self.options)
        if inner.gives == "ranking":
            raise ConfigError(f"{self.model} gives a ranking, and a temperature is for probabilities.")
        object.__setattr__(self, "options", asdict(inner.config))


@dataclass(frozen=True, kw_only=True)
class FittedCalibrated(FittedWrapper):
    """A fitted model and its temperature."""

    temperature: Temperature


class Calibrated(SingleModelWrapper):
    """A model whose probabilities are taken to the power 1/T.

    ``Calibrated(fitted, T)`` is ready for use. ``Calibrated(model).fit(train, valid)`` fits a model of the same kind
    and finds T by the validation part; so it can be compared with others.
    :func:`pcmcnet.insight.calibration.calibrate` finds T for a model that is fitted already.

    Parameters
    ----------
    model
        A model, or the name of one with its ``options``.
    encoders
        Of a model given by its name: see :class:`NeuralModel`.
    temperature
        Where the model is fitted: T > 0; 1 changes nothing.

    Attributes
    ----------
    model_
        The fitted model inside.
    temperature_
        T, and the NLL before and after.
    """

    name = "calibrated"
    config_class = CalibratedConfig
    stops_early = True  # the temperature is found by the validation part
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
                raise ConfigError("a temperature is for a fitted model: leave it out, and fit finds one.")
            value = temperature if isinstance(temperature, Temperature) else Temperature(temperature)
            require_number("temperature", value.value, low=0, open_low=True)
            self._wrap(model, _state(model, value))

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedCalibrated:
        if valid is None:
            raise InputError("a temperature is found by choices that were not fitted: give a validation part.")
        model = self._fit_inner(train, valid, run)
        return _state(model, find_temperature(model, valid))

    @property
    def temperature_(self) -> Temperature:
        """The temperature, and the NLL without it and with it."""
        return self._state.temperature

    def _log_proba(self, data: ChoiceData) -> Floats:
        return apply_temperature(self.model_._log_proba(data), data, self.temperature_.value)

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """T d log P_T(i) = d log P(i) - sum_j P_T(j) d log P(j)."""
        slopes = self.model_._slopes(data, column)
        if slopes is None or self.temperature_.value == 1:
            return slopes
        return centred_slopes(slopes, self._log_proba(data), data, column) / self.temperature_.value

    @property
    def num_parameters(self) -> int:
        """Those of the model inside and the temperature."""
        return self.model_.num_parameters + 1

    @property
    def caveats(self) -> tuple[str, ...]:
        """Those of the model inside, and whether the temperature is at an end of the range searched."""
        at_end = any(
            math.isclose(self.temperature_.value, end, rel_tol=1e-3) for end in (MIN_TEMPERATURE, MAX_TEMPERATURE)
        )
        return (*super().caveats, *(["the temperature is at an end of the range searched"] if at_end else []))

    def summary(self) -> Summary:
        """Sum up the model inside, with the temperature."""
        inside, (value, before, after) = self.model_.summary(), self.temperature_
        facts = {"temperature": f"{value:.4f}"}
        if before is not None and after is not None:
            facts["NLL of the calibration part"] = f"{before:.4f} before, {after:.4f} after"
        return Summary(f"Calibrated {inside.title}", {**facts, **inside.facts}, inside.header, inside.rows)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        return {_FILE: json_bytes(self.temperature_._asdict()), **member_files(self.model_, 1)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedCalibrated:
        temperature = Temperature(**json.loads(files[_FILE]))
        value = temperature.value
        if not isinstance(value, float | int) or not 0 < value < math.inf:
            raise ArtifactError(f"the saved temperature is {value!r}, not a number above 0: save the model again.")
        return _state(restore_member(files, 1, self.extras), temperature)


def _state(model: ChoiceModel, temperature: Temperature) -> FittedCalibrated:
    return FittedCalibrated(model=model, temperature=temperature, record=model.record_, history=model.history)


def find_temperature(model: ChoiceModel, data: ChoiceData) -> Temperature:
    """Return the T that minimises the weighted mean NLL of the choices; 1 where none is better."""
    from scipy.optimize import minimize_scalar

    # 1. The log-probabilities of the choices that count; no temperature changes a probability of 0.
    picked = data.offsets[:-1] + data.require_chosen("a calibration")
    with_positive_weight = data.weights > 0
    if not with_positive_weight.any():
        raise InputError(f"expected a choice set with a weight above 0, got none in {len(data)}.")
    weights = data.weights[with_positive_weight]
    log_p = model._log_proba(data)
    impossible = int(np.isneginf(log_p[picked][with_positive_weight]).sum())
    if impossible:
        raise InputError(f"{impossible} of the choices got probability 0, which no temperature changes.")

    def nll(t: float) -> float:
        return float(-np.average(apply_temperature(log_p, data, t)[picked][with_positive_weight], weights=weights))

    # 2. The minimum over b = 1/T, in which the loss is convex.
    best = minimize_scalar(
        lambda b: nll(1 / b),
        bounds=(1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE),
        method="bounded",
        options={"xatol": 1e-7},
    )
    # 3. No temperature at all, unless it gains.
    before, after = nll(1.0), nll(1 / best.x)
    gained = before - after > _ROUNDING * max(before, 1.0)
    return Temperature(float(1 / best.x), before, after) if gained else Temperature(1.0, before, before)


def apply_temperature(log_p: Floats, data: ChoiceData, t: float) -> Floats:
    """(N,) log-probabilities at a temperature; at 1 they are what they were, to the bit."""
    return log_p if t == 1 else log_softmax_by_set(log_p / t, data.offsets)
