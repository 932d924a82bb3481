"""Learning MNL (Sifringer, Lurkin & Alahi, 2020): a linear part to be read, and a network for all that is left.

    u_i = sum over the linear columns k of  b_k x_ik  +  r(q_i),        p = softmax(u) over the set
    r(q_i) = constants and slopes of q_i, as in a logit  +  a network of q_i

q_i is all the rest: the individual's columns, the label and the other columns of the alternative. A column is in one of
the two parts and never in both: else the network could take over what the coefficient says. With a network that adds
nothing the model is a multinomial logit. Standard errors are those of a logit with r held as it is, from

    sum over sets of w_s sum_i p_i (x_i - m_s) (x_i - m_s)',   m_s = sum_i p_i x_i,

the information on b; that r was learnt from the same choices, and weights were held back, they do not know. Shapes:
numeric (B, J, F), I (B, D0), S (B, J, D) -> u (B, J).
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
from pcmcnet.models.networks.network_config import Tails
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
    """Options of the learning MNL: the network's, then those of the training loop.

    Parameters
    ----------
    linear
        Numeric features of the alternatives that enter linearly, each with a coefficient; the network sees all other
        columns. "auto" is all numeric features that are not seen by a curve.
    """

    hidden: tuple[int, ...] = (64, 64)
    tails: Tails = "keep"  # a coefficient is then one of the number itself
    linear: tuple[str, ...] | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.utility != "linear":
            raise ConfigError("a part of this model is linear: leave utility='linear'.")
        object.__setattr__(self, "linear", _names(self.linear))


def _names(given: Any) -> tuple[str, ...] | Literal["auto"]:
    """Check the option; a command line gives its one word as a list."""
    if given == "auto" or list(given if isinstance(given, Sequence) else ()) == ["auto"]:
        return "auto"
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(n, str) for n in given):
        raise ConfigError(f"linear must be 'auto' or a list of features such as ('price',), got {given!r}.")
    return tuple(dict.fromkeys(given))


@dataclass(frozen=True, kw_only=True)
class LearningMNLArguments(LearningMNLConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class LearningNetwork(SetNetwork):
    """Batch -> log-probabilities (B, J)."""

    rest: Tensor
    information: Tensor

    def __init__(self, encoder: Encoder, config: LearningMNLConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, config, own)
        what = encoder.features
        theirs = [name for name, _ in self.alternative.own.values()]
        self.utility = LinearUtility(what, 0, 0, theirs)  # of which the plain part is used
        linear = linear_inputs(config.linear, encoder)
        others = self.alternative.width - what.n_numeric  # numbers come last in a representation
        rest = [*range(others), *(others + k for k in range(what.n_numeric) if k not in linear)]
        self.register_buffer("rest", torch.tensor(rest, dtype=torch.int64), persistent=False)
        self.register_buffer("information", torch.zeros(len(linear), len(linear), dtype=torch.float64))
        width = self.individual.width + len(rest)
        self.net = perceptron_of(config, width) if width else None

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        assert self.utility is not None
        u = self.utility.plain(batch.numeric, batch.categorical, batch.contents)
        if self.net is not None:
            who, what = self.represent(batch)
            u = u + self.net(with_individual(what[..., self.rest], who)).squeeze(-1)
        return log_softmax_of_sets(u, batch.mask)


def linear_inputs(linear: tuple[str, ...] | Literal["auto"], encoder: Encoder) -> list[int]:
    """Return which numeric inputs are linear, in the order of the columns; each brings its indicator of gaps."""
    codes = encoder.features.numeric
    known = [code.name for code in codes if code.curve is None]
    for name in () if linear == "auto" else linear:
        if name not in known:
            what = "of the individual" if name in encoder.schema.individual else "no numeric feature without a curve"
            raise ConfigError(f"linear names {name!r}, which is {what}." + did_you_mean(name, known))
    chosen = known if linear == "auto" else linear
    columns = [k for k, code in enumerate(codes) if code.name in chosen]
    indicators = [code.name for code in codes if code.indicator]
    return columns + [len(codes) + k for k, name in enumerate(indicators) if name in chosen]


class LearningMNL(SetModel):
    """A logit with a linear part to be read, and a network for the other columns.

    Options are those of :class:`LearningMNLConfig`; an unknown one is refused.

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
        # The network keeps the information of the training sets on the linear part, of a sample if they are many.
        with_positive_weight = train.with_positive_weight()
        some = sample_sets(with_positive_weight, MAX_SEARCHED_SETS, run.seed)
        information = self._information(state, some) * len(with_positive_weight) / len(some)
        state.network.information.copy_(torch.from_numpy(information))
        return state

    def _information(self, state: FittedNetwork, data: ChoiceData) -> Floats:
        """Return the information of choice sets on the linear coefficients, of standardised numbers."""
        linear = linear_inputs(self.config.linear, state.encoder)
        x = state.encoder.encode(data, warn=False).numeric.numpy()[:, linear].astype(np.float64)
        p = np.exp(network_log_proba(state.network, state.encoder, data, self.config.pair_budget))[:, None]
        away = x - spread(sum_by_set(p * x, data.offsets), data.offsets)
        found: Floats = (p * spread(data.weights, data.offsets)[:, None] * away).T @ away
        return found

    @property
    def coefficients(self) -> dict[str, float]:
        """Coefficients of the linear columns, per unit; with tails="bend", of a long-tailed one once standardised."""
        network = self.network_
        assert isinstance(network, LearningNetwork)
        assert network.utility is not None
        slopes = network.utility.slopes.detach().double().cpu().numpy()
        return {name: float(slopes[k]) / unit for name, (_, k, unit) in self._linear().items()}

    @property
    def standard_errors(self) -> dict[str, float]:
        """Their standard errors, the network held as it is; infinite where columns cannot be told apart."""
        assert isinstance(self.network_, LearningNetwork)
        information = self.network_.information.cpu().numpy()
        linear = self._linear()
        kept = [place for place, _, _ in linear.values()]  # a constant column has no information
        inside = information[np.ix_(kept, kept)]
        if np.linalg.matrix_rank(inside, hermitian=True) < len(kept):
            return dict.fromkeys(linear, np.inf)
        errors = np.sqrt(np.diag(np.linalg.inv(inside)))
        return {name: float(e) / unit for (name, (_, _, unit)), e in zip(linear.items(), errors, strict=True)}

    def summary(self) -> Summary:
        """List the coefficients of the linear part with their errors; how training went stands above."""
        facts = super().summary().facts
        errors = self.standard_errors
        rows = tuple(
            (name, f"{b:.4g}", f"{errors[name]:.4g}", f"{b / errors[name]:.2f}")
            for name, b in self.coefficients.items()
        )
        facts["standard errors"] = "the network held as it is"
        return Summary(type(self).__name__, facts, ("coefficient", "estimate", "std err", "z"), rows)

    def _linear(self) -> dict[str, tuple[int, int, float]]:
        """Name the linear columns: their places among linear and among all numeric inputs, and what a unit is."""
        codes = self.encoder_.features.numeric
        inputs = enumerate(linear_inputs(self.config.linear, self.encoder_))
        found = [(place, k, codes[k]) for place, k in inputs if k < len(codes)]
        return {
            code.name: (place, k, code.scale if code.bend == 0 else 1.0) for place, k, code in found if code.scale > 0
        }
