"""Linear PCMC: rates between items that are linear in features, on a log scale (Ragain & Ugander, 2016, appendix).

Item i has a weight vector w_i, and the rate of leaving i for an alternative j with features x_j is

    log q_ij = w_i . [1, x_j].

Numbers are standardised and categories are 0/1 columns, d in all, so that a universe of n items has n (1 + d)
weights. The published form is linear in the rate itself; the exponential keeps every rate positive whatever the
weights. One constant added to all biases changes nothing (time has no scale), nor does the weight of a column that is
constant within sets, and where an item's choices can be foretold from features its weights would grow without end:
so the fit minimises - log-likelihood + l2 / 2 sum of w^2.
Shapes: items (B, J), x (B, J, 1 + d), weights (n, 1 + d) -> log-rates (B, J, J).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.threads import threads_for
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.summary import Summary
from pcmcnet.models.items.lbfgs import lbfgs
from pcmcnet.models.items.pcmc_search import chain_log_p
from pcmcnet.models.items.universe import Universe, informative, padded
from pcmcnet.storage.files import json_bytes

SHOWN = 200  # weights that a summary lists


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearPCMCConfig:
    """Options of linear PCMC.

    Parameters
    ----------
    l2
        Pull of the weights towards 0, as if by a normal law of variance 1 / l2: it fixes what the likelihood leaves
        open and keeps weights finite.
    max_iter, tolerance
        Iterations at most, and the gain in the mean objective below which the search ends.
    """

    l2: float = 0.1
    max_iter: int = 500
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        require_number("l2", self.l2, low=0)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)


class LinearPCMC(ChainModel):
    """Pairwise choice Markov chain whose rates of leaving an item are log-linear in the features of the one entered.

    Options are those of :class:`LinearPCMCConfig`.

    Examples
    --------
    >>> LinearPCMC(l2=1.0).config.l2
    1.0
    """

    name = "pcmc-linear"
    config_class = LinearPCMCConfig
    config: LinearPCMCConfig
    universe_: Universe
    encoder_: Encoder
    weights_: Floats  # (n, 1 + d)

    @takes(LinearPCMCConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        if not train.features:
            raise InputError(
                "linear PCMC needs features: declare some in features, or use PCMC (pcmc), of items alone."
            )
        part = informative(train)
        universe, encoder = Universe.learn(part), Encoder.learn(part)
        shape = (len(universe.items), len(column_names(encoder.features)))
        flat_chosen, weight = torch.zeros(len(part.rows)).double(), torch.from_numpy(part.weights)
        flat_chosen[part.offsets[:-1] + part.require_chosen("fitting")] = weight
        items, x = _inputs(part, universe, encoder)
        batches = [
            (items[flat], x[flat], torch.from_numpy(mask), flat_chosen[flat] * torch.from_numpy(mask))
            for flat, mask in padded(part.offsets)
        ]
        total = float(weight.sum())

        def objective(weights: Tensor) -> Tensor:
            w = weights.reshape(shape)
            terms = [(c * linear_log_p(w, i, z, mask).masked_fill(~mask, 0)).sum() for i, z, mask, c in batches]
            return (self.config.l2 / 2 * weights.square().sum() - torch.stack(terms).sum()) / total

        with threads_for(sum(mask.numel() * mask.shape[1] * shape[1] for _, _, mask, _ in batches)):
            start = np.zeros(shape[0] * shape[1])
            found = lbfgs(objective, start, max_iter=self.config.max_iter, tolerance=self.config.tolerance)
        self.universe_, self.encoder_, self.weights_ = universe, encoder, found.at.reshape(shape)
        self.training_ = {
            "iterations": found.iterations,
            "converged": found.converged,
            "nll": found.value - self.config.l2 / 2 * float(found.at @ found.at) / total,
        }

    @torch.no_grad()
    def _log_proba(self, data: ChoiceData) -> Floats:
        out, weights = np.zeros(len(data.rows)), torch.from_numpy(self.weights_)
        items, x = _inputs(data, self.universe_, self.encoder_)
        for flat, mask in padded(data.offsets):
            real = torch.from_numpy(mask)
            out[flat[mask]] = linear_log_p(weights, items[flat], x[flat], real)[real].numpy()
        return out

    @torch.no_grad()
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        weights = torch.from_numpy(self.weights_)
        items, x = _inputs(data, self.universe_, self.encoder_)
        for flat, mask in padded(data.offsets):
            scores = weights[items[flat]] @ x[flat].mT
            rates = rates_of_scores(scores, torch.from_numpy(mask), rate="exp", epsilon=0.0)
            yield data.set_of_alternative[flat[:, 0]], rates

    @property
    def num_parameters(self) -> int:
        """One weight per item and column, with a bias."""
        _ = self.schema
        return int(self.weights_.size)

    def summary(self) -> Summary:
        """List the weights: how the rate of leaving an item grows with each column of the alternative entered."""
        _ = self.schema
        columns, found = column_names(self.encoder_.features), self.training_
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            "trained on": "{choice_sets:,} choice sets, {alternatives:,} alternatives".format(**found),
            "training NLL": f"{found['nll']:.4f}",
            "search": f"{found['iterations']} iterations, "
            + ("converged" if found["converged"] else "stopped by max_iter"),
            "individual": "not used: rates depend on the item left and on the features of the one entered",
            "parameters": f"{self.num_parameters:,}",
        }
        if self.weights_.size > SHOWN:
            facts["listed"] = f"the first {SHOWN} weights"
        rows = [
            (item, column, f"{weight:.4f}")
            for item, row in zip(self.universe_.items, self.weights_, strict=True)
            for column, weight in zip(columns, row, strict=True)
        ]
        return Summary(
            type(self).__name__, facts, ("item left", "column of the one entered", "weight"), tuple(rows[:SHOWN])
        )

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        entries = {"items.json": self.universe_.to_dict(), "encoder.json": self.encoder_.to_dict()}
        plain = {name: json_bytes(value) for name, value in entries.items()}
        return {**plain, "weights.safetensors": save_arrays({"weights": self.weights_})}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        self.universe_ = Universe.from_dict(json.loads(files["items.json"]))
        self.encoder_ = Encoder.from_dict(json.loads(files["encoder.json"]))
        try:
            weights = load_arrays(files["weights.safetensors"])["weights"].astype(np.float64)
        except SafetensorError as error:
            raise ArtifactError(f"the saved weights cannot be read ({error}): save the model again.") from error
        expected = (len(self.universe_.items), len(column_names(self.encoder_.features)))
        if weights.shape != expected or not np.isfinite(weights).all():
            raise ArtifactError("the saved weights do not fit the saved items and columns: save the model again.")
        self.weights_ = weights


def linear_log_p(weights: Tensor, items: Tensor, x: Tensor, mask: Tensor) -> Tensor:  # -> (B, J)
    """Log-probabilities of sets; padding gets -inf."""
    return chain_log_p(weights[items] @ x.mT, mask)


def column_names(side: SideEncoder) -> list[str]:
    """Name the columns of x: the bias, numbers, indicators of missing ones, and categories."""
    numbers = [code.name for code in side.numeric] + [f"{c.name} [missing]" for c in side.numeric if c.indicator]
    return ["bias", *numbers, *(f"{code.name} [{c}]" for code in side.categorical for c in code.categories)]


def _inputs(data: ChoiceData, universe: Universe, encoder: Encoder) -> tuple[Tensor, Tensor]:
    """(N,) items and (N, 1 + d) columns; a category never seen is 0 in all of its columns."""
    side, n = encoder.features, len(data.rows)
    blocks: list[NDArray[Any]] = [np.ones((n, 1)), side.numbers(data.features, n)]
    index = side.indices(data.features, n)
    blocks += [index[:, [k]] == np.arange(1, size + 1) for k, size in enumerate(side.cardinalities)]
    x = np.concatenate(blocks, axis=1, dtype=np.float64)
    return torch.from_numpy(universe.index(data)), torch.from_numpy(x)
