"""Learning MNL (Sifringer, Lurkin & Alahi, 2020): an interpretable linear part, and a network for the other columns.

    u_i = sum over the linear columns k of  b_k x_ik  +  r(q_i),        p = softmax(u) over the set
    r(q_i) = constants and slopes of q_i, as in a logit  +  a network of q_i

q_i contains all columns outside the linear part: the individual's columns, and the alternative's label and remaining
features. Each column is in only one of the two parts, because a network that also used a linear column could absorb the
column's effect. If the network is 0, the model is a multinomial logit. Standard errors are computed as in a logit with
fixed r, from the information matrix of b:

    sum over sets of w_s sum_i p_i (x_i - m_s) (x_i - m_s)',   m_s = sum_i p_i x_i

These standard errors ignore that r was learnt from the same choices and is shrunk by weight decay. Shapes: numeric (B,
J, F), I (B, D0), S (B, J, D) -> u (B, J).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.data import Batch, ChoiceData, Encoder, Sets
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.fitting import FittedNetwork
from pcmcnet.models.networks.network_config import EncoderArguments, Tails
from pcmcnet.models.networks.set_network import (
    SetModel,
    SetNetwork,
    SetNetworkConfig,
    log_softmax_of_sets,
    perceptron_of,
    with_individual,
)
from pcmcnet.models.networks.trainer import network_log_proba
from pcmcnet.reports.formats import Summary
from pcmcnet.selection import MAX_SEARCHED_SETS, sample_sets


@dataclass(frozen=True, kw_only=True)
class LearningMNLConfig(SetNetworkConfig):
    """Options of the learning MNL: the linear part, the network, then the training loop.

    Parameters
    ----------
    linear
        Numeric features that enter the utility linearly, each with a coefficient; all other columns are inputs of the
        network. "auto" means all numeric features except those of kind "piecewise" or "spline".
    """

    hidden: tuple[int, ...] = (64, 64)
    tails: Tails = "keep"  # so that coefficients are per unit of the column
    linear: tuple[str, ...] | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.utility != "linear":
            raise ConfigError("LearningMNL needs utility='linear'.")
        object.__setattr__(self, "linear", _linear_columns(self.linear))


def _linear_columns(linear: Any) -> tuple[str, ...] | Literal["auto"]:
    """Return the checked option ``linear``; the command line passes "auto" as a list of one word."""
    if linear == "auto" or list(linear if isinstance(linear, Sequence) else ()) == ["auto"]:
        return "auto"
    if isinstance(linear, str) or not isinstance(linear, Sequence) or not all(isinstance(n, str) for n in linear):
        raise ConfigError(f"linear must be 'auto' or a list of features such as ('price',), got {linear!r}.")
    return tuple(dict.fromkeys(linear))


@dataclass(frozen=True, kw_only=True)
class LearningMNLArguments(LearningMNLConfig, EncoderArguments):
    """Constructor arguments of the learning MNL: the options and ``encoders``."""


class LearningNetwork(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    rest: Tensor
    information: Tensor

    def __init__(self, encoder: Encoder, config: LearningMNLConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        n_numeric = encoder.features.n_numeric
        custom = [name for name, _ in self.alternative.custom.values()]  # columns with custom encoders
        self.utility = LinearUtility(encoder.features, 0, 0, custom)  # without tastes of individuals
        linear = linear_inputs(config.linear, encoder)
        n_other = self.alternative.width - n_numeric  # numeric inputs come last in a representation
        rest = [*range(n_other), *(n_other + k for k in range(n_numeric) if k not in linear)]
        self.register_buffer("rest", torch.tensor(rest, dtype=torch.int64), persistent=False)
        self.register_buffer("information", torch.zeros(len(linear), len(linear), dtype=torch.float64))
        width = self.individual.width + len(rest)
        self.net = perceptron_of(config, width) if width else None

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        assert self.utility is not None
        u = self.utility.plain(batch.numeric, batch.categorical, batch.contents)
        if self.net is not None:
            individual, alternatives = self.represent(batch)
            u = u + self.net(with_individual(alternatives[..., self.rest], individual)).squeeze(-1)
        return log_softmax_of_sets(u, batch.mask)


def linear_inputs(linear: tuple[str, ...] | Literal["auto"], encoder: Encoder) -> list[int]:
    """Return the positions of the linear numeric inputs: the columns in their order, then missing-value indicators."""
    codes = encoder.features.numeric
    numeric = [code.name for code in codes if code.curve is None]
    for name in () if linear == "auto" else linear:
        if name not in numeric:
            is_individual = name in encoder.schema.individual
            reason = "an individual-level column" if is_individual else "which is not a numeric feature or has a curve"
            raise ConfigError(f"linear includes {name!r}, {reason}." + did_you_mean(name, numeric))
    names = numeric if linear == "auto" else linear
    columns = [k for k, code in enumerate(codes) if code.name in names]
    indicators = [code.name for code in codes if code.indicator]
    return columns + [len(codes) + k for k, name in enumerate(indicators) if name in names]


class LearningMNL(SetModel):
    """Learning MNL: a logit with interpretable coefficients, and a network for the other columns.

    Examples
    --------
    >>> LearningMNL(linear=["price", "time"]).config.linear
    ('price', 'time')
    """

    name = "lmnl"
    is_logit = True
    config_class = LearningMNLConfig
    config: LearningMNLConfig
    network_class = LearningNetwork

    @takes(LearningMNLArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: Sets, valid: Sets | None, run: FitRun) -> FittedNetwork:
        state = super()._fit(train, valid, run)
        assert isinstance(state.network, LearningNetwork)
        # Store the information of the training sets on the linear part; a sample represents a large table.
        sets = train.with_positive_weight()
        sample = sample_sets(sets, MAX_SEARCHED_SETS, run.seed)
        information = self._information(state, sample) * len(sets) / len(sample)
        state.network.information.copy_(torch.from_numpy(information))
        return state

    def _information(self, state: FittedNetwork, data: ChoiceData) -> Floats:
        """Return the information matrix of the linear coefficients, for standardised columns."""
        linear = linear_inputs(self.config.linear, state.encoder)
        x = state.encoder.encode(data, warn=False).numeric.numpy()[:, linear].astype(np.float64)
        p = np.exp(network_log_proba(state.network, state.encoder, data, self.config.pair_budget))[:, None]
        centred = x - spread(sum_by_set(p * x, data.offsets), data.offsets)
        information: Floats = (p * spread(data.weights, data.offsets)[:, None] * centred).T @ centred
        return information

    @property
    def coefficients(self) -> dict[str, float]:
        """Coefficients of the linear columns, per unit of each column.

        With tails="bend", the coefficient of a long-tailed column is per standard deviation of its transformed values.
        """
        network = self.network_
        assert isinstance(network, LearningNetwork)
        assert network.utility is not None
        slopes = network.utility.slopes.detach().double().cpu().numpy()
        return {name: float(slopes[k]) / unit for name, (_, k, unit) in self._linear().items()}

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors of the coefficients, with the network held fixed. Infinite if the columns are collinear."""
        assert isinstance(self.network_, LearningNetwork)
        information = self.network_.information.cpu().numpy()
        linear = self._linear()
        positions = [position for position, _, _ in linear.values()]  # without constant columns
        information = information[np.ix_(positions, positions)]
        if np.linalg.matrix_rank(information, hermitian=True) < len(positions):
            return dict.fromkeys(linear, np.inf)
        errors = np.sqrt(np.diag(np.linalg.inv(information)))
        return {name: float(e) / unit for (name, (_, _, unit)), e in zip(linear.items(), errors, strict=True)}

    def summary(self) -> Summary:
        """Return a summary with the linear coefficients, their standard errors, and details of the training."""
        facts = super().summary().facts
        errors = self.standard_errors
        rows = tuple(
            (name, f"{b:.4g}", f"{errors[name]:.4g}", f"{b / errors[name]:.2f}")
            for name, b in self.coefficients.items()
        )
        facts["standard errors"] = "with the network held fixed"
        return Summary(type(self).__name__, facts, ("coefficient", "estimate", "std err", "z"), rows, self.caveats)

    def _linear(self) -> dict[str, tuple[int, int, float]]:
        """Return each linear column's position among the linear inputs and among all numeric inputs, and its unit."""
        codes = self.encoder_.features.numeric
        inputs = enumerate(linear_inputs(self.config.linear, self.encoder_))
        columns = [(position, k, codes[k]) for position, k in inputs if k < len(codes)]
        return {
            code.name: (position, k, code.scale if code.bend == 0 else 1.0)
            for position, k, code in columns
            if code.scale > 0
        }
