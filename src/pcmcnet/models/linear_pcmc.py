"""Linear PCMC: a Markov chain with log-rates linear in the features (Ragain & Ugander, 2016, appendix).

Item i has a weight vector w_i. The rate of leaving i for an alternative j with features x_j is log-linear:

    log q_ij = w_i . [1, x_j].

Numeric features are standardised and categories become 0/1 columns. With d columns in total, a universe of n items has
n (1 + d) weights. In the published form, the rate itself is linear in the features. Here, the exponential keeps every
rate positive. Some weights are not identified: adding a constant to all biases changes nothing, because the stationary
distribution does not depend on the time scale. Adding a constant to all items' weights of a column changes nothing if
the column is constant within sets. If features predict the choices of an item perfectly, the weights of this item
diverge. The fit therefore minimises a penalised objective:

    - log-likelihood  +  l2 / 2 sum of w^2  +  ridge / 2 sum_i |u_i - mean u|^2,

Here u_i is w_i without its bias b_i. If all u_i equal the same vector u, the model is a logit: log q_ij = b_i + u . x_j
satisfies detailed balance with P(j) proportional to exp(u . x_j - b_j). An infinite ridge thus gives the multinomial
logit of the features with a constant for each item. The ridge, learnt from held-out sets, controls the departure from
that logit. Shapes: items (B, J), x (B, J, 1 + d), weights (n, 1 + d) -> log-rates (B, J, J).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save as save_arrays
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.errors import InputError
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.threads import one_thread_if_small
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.items.pcmc_estimation import chain_log_p
from pcmcnet.models.items.strengths import (
    COARSE_PENALTY_LADDER,
    INFINITE_PENALTY,
    TRIAL_TOLERANCE,
    HeldOutLosses,
    Minimum,
    Penalty,
    PenaltyRecord,
    SearchRecord,
    choice_folds,
    fallback_penalty,
    lbfgs,
    require_penalty,
    search_penalty,
)
from pcmcnet.models.items.universe import (
    Universe,
    padded_batches,
    read_arrays,
    require_informative_sets,
    require_shapes,
)
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes

MAX_LISTED_WEIGHTS = 200  # rows of a summary
FOLDS_PER_TRIAL = 2  # folds to which a trial of the ridge is fitted


@dataclass(frozen=True, kw_only=True)
class LinearPCMCConfig:
    """Options of linear PCMC.

    Parameters
    ----------
    l2
        Precision of a normal prior that shrinks all weights towards 0. The prior identifies weights that the likelihood
        does not identify, and keeps all weights finite.
    ridge
        Precision of a normal prior that shrinks the weights of each item, except its bias, towards their mean over
        items. Equal weights give a logit. A ridge of 0 means no shrinkage. "auto" chooses a value on held-out choice
        sets; the value may be infinite, which gives the logit itself.
    max_iter
        Maximum number of iterations of the search.
    tolerance
        The search ends when an iteration improves the mean objective by less than this value.
    """

    l2: float = 0.1
    ridge: Penalty = "auto"
    max_iter: int = 500
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        require_number("l2", self.l2, low=0)
        require_penalty("ridge", self.ridge)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)


@dataclass(frozen=True, kw_only=True)
class FittedLinearPCMC(FittedState):
    """Fitted state of linear PCMC: the items, the encoder of the features, and the weights."""

    universe: Universe
    encoder: Encoder
    weights: Floats  # (n, 1 + d)
    record: SearchRecord


class LinearPCMC(ChainModel):
    """Pairwise choice Markov chain whose log-rates are linear in the features of the destination alternative.

    Each item, identified by its label, has its own weights for the rates of leaving it.

    Examples
    --------
    >>> LinearPCMC(l2=1.0).config.l2
    1.0
    """

    name = "pcmc-linear"
    config_class = LinearPCMCConfig
    config: LinearPCMCConfig
    _state: FittedLinearPCMC
    record_class = SearchRecord

    @takes(LinearPCMCConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedLinearPCMC:
        if not train.features:
            raise InputError(
                "linear PCMC needs features: declare features, or use PCMC (pcmc), which only needs labels."
            )
        # 1. Learn the items and the encoding of the features.
        part, config = require_informative_sets(train), self.config
        universe, encoder = Universe.learn(part), Encoder.learn(part)
        sample = PaddedChoices.of(part, universe, encoder)
        # 2. Choose the ridge on held-out sets, unless it is given.
        penalty = None if config.ridge != "auto" else self._learn_ridge(part, universe, encoder, run.seed)
        ridge = penalty.penalty if penalty else float(config.ridge)
        # 3. Fit the weights along the same path of ridges as in the trials.
        with one_thread_if_small(sample.work):
            weights = np.zeros(sample.shape)
            for stronger in penalty.stronger if penalty else ():
                weights, _ = sample.fit(weights, stronger, config, TRIAL_TOLERANCE)
            weights, minimum = sample.fit(weights, ridge, config, config.tolerance)
        record = SearchRecord(
            converged=minimum.converged,
            iterations=minimum.iterations,
            nll=float(sample.mean_loss(torch.from_numpy(weights))),
            penalty=penalty,
        )
        return FittedLinearPCMC(universe=universe, encoder=encoder, weights=weights, record=record)

    def _learn_ridge(self, part: ChoiceData, universe: Universe, encoder: Encoder, seed: int) -> PenaltyRecord:
        """Choose the ridge on two folds, which are enough because choice sets with features are rarely identical."""
        folds = choice_folds(part, seed)[:FOLDS_PER_TRIAL]
        if not folds:
            return fallback_penalty(part)
        samples = [
            [PaddedChoices.of(sets, universe, encoder) for sets in (fold.train, *fold.held_out)] for fold in folds
        ]
        with one_thread_if_small(samples[0][0].work):
            return PenaltyRecord.of(
                search_penalty(folds, [self._path(*pair) for pair in samples], COARSE_PENALTY_LADDER)
            )

    def _path(self, train: PaddedChoices, held_out: PaddedChoices) -> HeldOutLosses:
        """Return a function that maps a ridge to held-out losses; each fit starts at the previous weights."""
        weights = np.zeros(train.shape)

        def losses(ridge: float) -> Floats:
            nonlocal weights
            weights, _ = train.fit(weights, ridge, self.config, TRIAL_TOLERANCE)
            return held_out.losses(weights)

        return losses

    @property
    def universe_(self) -> Universe:
        """The items."""
        return self._state.universe

    @property
    def encoder_(self) -> Encoder:
        """The encoder of the features."""
        return self._state.encoder

    @property
    def weights_(self) -> Floats:
        """Weights of the bias and the columns in the log-rate of leaving each item, (n, 1 + d)."""
        return self._state.weights

    @torch.no_grad()
    def _log_proba(self, data: ChoiceData) -> Floats:
        out, weights = np.zeros(len(data.rows)), torch.from_numpy(self.weights_)
        items, x = _inputs(data, self.universe_, self.encoder_)
        for flat, mask in padded_batches(data.offsets):
            real = torch.from_numpy(mask)
            out[flat[mask]] = linear_log_p(weights, items[flat], x[flat], real)[real].numpy()
        return out

    @torch.no_grad()
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        weights = torch.from_numpy(self.weights_)
        items, x = _inputs(data, self.universe_, self.encoder_)
        for flat, mask in padded_batches(data.offsets):
            scores = weights[items[flat]] @ x[flat].mT
            rates = rates_of_scores(scores, torch.from_numpy(mask), rate="exp", epsilon=0.0)
            yield data.set_of_alternative[flat[:, 0]], rates

    @property
    def num_parameters(self) -> int:
        """Number of weights: one per item and column, including the bias."""
        return int(self.weights_.size)

    def summary(self) -> Summary:
        """Return a table of the weights: the effects of the destination's columns on each log-rate."""
        columns, record = column_names(self.encoder_.features), self._state.record
        facts = {
            **self._common_facts(),
            **record.facts,
            **record.penalty_facts,
            "individual": "not used: a rate depends on the item left and on the features of the item entered",
            "parameters": f"{self.num_parameters:,}",
        }
        if self.weights_.size > MAX_LISTED_WEIGHTS:
            facts["listed"] = f"the first {MAX_LISTED_WEIGHTS} weights"
        rows = [
            (item, column, f"{weight:.4f}")
            for item, row in zip(self.universe_.items, self.weights_, strict=True)
            for column, weight in zip(columns, row, strict=True)
        ]
        header = ("item left", "column of the alternative entered", "weight")
        return Summary(type(self).__name__, facts, header, tuple(rows[:MAX_LISTED_WEIGHTS]), self.caveats)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        entries = {"items.json": self.universe_.to_dict(), "encoder.json": self.encoder_.to_dict()}
        plain = {name: json_bytes(value) for name, value in entries.items()}
        return {**plain, "weights.safetensors": save_arrays({"weights": self.weights_})}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedLinearPCMC:
        universe = Universe.from_dict(json.loads(files["items.json"]))
        encoder = Encoder.from_dict(json.loads(files["encoder.json"]))
        arrays = read_arrays(files["weights.safetensors"])
        require_shapes(arrays, {"weights": (universe.size, len(column_names(encoder.features)))}, "items and columns")
        weights = arrays["weights"].astype(np.float64)
        return FittedLinearPCMC(universe=universe, encoder=encoder, weights=weights, record=record)


@dataclass(frozen=True)
class PaddedChoices:
    """Choice sets as padded batches: items, columns, mask, weight of each choice, and indices of the sets."""

    batches: list[tuple[Tensor, Tensor, Tensor, Tensor, Ints]]
    shape: tuple[int, int]  # of the weights
    sets: int

    @classmethod
    def of(cls, data: ChoiceData, universe: Universe, encoder: Encoder) -> PaddedChoices:
        """Encode and pad the choice sets."""
        chosen = torch.zeros(len(data.rows)).double()
        chosen[data.offsets[:-1] + data.require_chosen("fitting")] = torch.from_numpy(data.weights)
        items, x = _inputs(data, universe, encoder)
        batches = []
        for flat, mask in padded_batches(data.offsets):
            real = torch.from_numpy(mask)
            batches.append((items[flat], x[flat], real, chosen[flat] * real, data.set_of_alternative[flat[:, 0]]))
        return cls(batches, (len(universe.items), x.shape[1]), len(data))

    @property
    def work(self) -> int:
        """Approximate number of multiplications per pass."""
        return sum(mask.numel() * mask.shape[1] * self.shape[1] for _, _, mask, _, _ in self.batches)

    @property
    def total(self) -> float:
        """Total weight of the choices."""
        return sum(float(chosen.sum()) for *_, chosen, _ in self.batches)

    def mean_loss(self, weights: Tensor) -> Tensor:  # (n, 1 + d) -> ()
        """Return the negative mean log-likelihood."""
        terms = [(c * linear_log_p(weights, i, x, m).masked_fill(~m, 0)).sum() for i, x, m, c, _ in self.batches]
        return -torch.stack(terms).sum() / self.total

    @torch.no_grad()
    def losses(self, weights: Floats) -> Floats:  # -> (S,)
        """Return the negative log-probability of each choice."""
        out = np.zeros(self.sets)
        for items, x, mask, chosen, sets in self.batches:
            log_p = linear_log_p(torch.from_numpy(weights), items, x, mask)
            out[sets] = -log_p.masked_fill(chosen == 0, 0).sum(1).numpy()
        return out

    def fit(self, begin: Floats, ridge: float, config: LinearPCMCConfig, tolerance: float) -> tuple[Floats, Minimum]:
        """Minimise the objective from weights (n, 1 + d). With an infinite ridge, all items have the same slopes."""
        n, columns = self.shape

        # 1. Define the weights as a function of the parameter vector, and the objective.
        def weights(x: Tensor) -> Tensor:  # -> (n, 1 + d)
            shared = ridge == INFINITE_PENALTY
            return torch.cat([x[:n, None], x[n:].expand(n, -1)], dim=1) if shared else x.reshape(n, columns)

        def objective(x: Tensor) -> Tensor:
            w = weights(x)
            penalty = config.l2 / 2 * w.square().sum()
            if ridge < INFINITE_PENALTY:
                penalty = penalty + ridge / 2 * (w[:, 1:] - w[:, 1:].mean(0)).square().sum()
            return self.mean_loss(w) + penalty / self.total

        # 2. Minimise from the given weights; shared slopes start at their mean over items.
        x = np.concatenate([begin[:, 0], begin[:, 1:].mean(0)]) if ridge == INFINITE_PENALTY else begin.ravel()
        minimum = lbfgs(objective, x, max_iter=config.max_iter, tolerance=tolerance)
        return weights(torch.from_numpy(minimum.x)).numpy().copy(), minimum


def linear_log_p(weights: Tensor, items: Tensor, x: Tensor, mask: Tensor) -> Tensor:  # -> (B, J)
    """Return the log-probabilities of the alternatives of padded sets, with -inf for padding."""
    return chain_log_p(weights[items] @ x.mT, mask)


def column_names(side: SideEncoder) -> list[str]:
    """Return the names of the columns of x: bias, numeric features, missing-value indicators, and categories."""
    numeric = [code.name for code in side.numeric] + [f"{c.name} [missing]" for c in side.numeric if c.indicator]
    return ["bias", *numeric, *(f"{code.name} [{c}]" for code in side.categorical for c in code.categories)]


def _inputs(data: ChoiceData, universe: Universe, encoder: Encoder) -> tuple[Tensor, Tensor]:
    """Return the items (N,) and columns (N, 1 + d). An unseen category has 0 in all its columns."""
    side, n = encoder.features, len(data.rows)
    blocks: list[NDArray[Any]] = [np.ones((n, 1)), side.numbers(data.features, n)]
    index = side.indices(data.features, n)
    blocks += [index[:, [k]] == np.arange(1, size + 1) for k, size in enumerate(side.cardinalities)]
    x = np.concatenate(blocks, axis=1, dtype=np.float64)
    return torch.from_numpy(universe.index(data)), torch.from_numpy(x)
