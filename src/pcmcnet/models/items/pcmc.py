"""PCMC: the pairwise choice Markov chain of items (Ragain & Ugander, 2016).

Every ordered pair of items has a rate q_ij of leaving i for j, and the choice probabilities of a set S are the
stationary law of the chain on S with those rates. A universe of n items has n (n - 1) rates, whatever the sets. With
the counts C_iS of the distinct sets, the smoothing a and log-rates t = log q, the fit minimises

    - sum_S sum_{i in S} (C_iS + a) log P(i | S)  +  ridge / 2 sum_ij (t_ij - t0_ij)^2,

t0 being the chain that gives Bradley-Terry's law of the same counts, q0_ij = e^{s_j} / (e^{s_i} + e^{s_j}). The
likelihood alone fixes neither the scale of the rates nor, where a few sets hold a pair, both of its rates, and it is
not concave: the ridge settles the first two and calms the third. Rates of pairs that no training set holds keep q0,
with s = 0, the mean, for items in no training set; so a set of any items of the universe has a law.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import spread, sum_by_set
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.threads import threads_for
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.summary import Summary
from pcmcnet.models.items.binning import Grid
from pcmcnet.models.items.bradley_terry import centring_ridge, newton
from pcmcnet.models.items.pcmc_search import PATH_TOLERANCE, SLSQP_ITEMS, Problem, chain_log_p, search
from pcmcnet.models.items.penalty_search import (
    CountedFold,
    Losses,
    Penalty,
    PenaltySearch,
    learn_of_items,
    penalty_facts,
    require_penalty,
)
from pcmcnet.models.items.strengths import item_facts
from pcmcnet.models.items.universe import DistinctSets, Universe, informative, padded
from pcmcnet.storage.files import json_bytes

log = logging.getLogger("pcmcnet")

Method = Literal["lbfgs", "slsqp"]

MOST_ITEMS = 2000  # 4 million rates


@dataclass(frozen=True, kw_only=True, slots=True)
class PCMCConfig:
    """Options of PCMC.

    Parameters
    ----------
    smoothing
        Choices added for every item of every distinct choice set of the training part.
    method
        "lbfgs", on log-rates; or "slsqp", the original's, on rates with q_ij + q_ji of at least 1, without ridge,
        for up to 12 items.
    ridge
        Pull of the log-rates towards the chain of Bradley-Terry's law, as if by a normal law of variance 1 / ridge;
        0 for maximum likelihood alone. "auto" learns it from held-out choice sets, an infinite one, which is
        Bradley-Terry's law itself, included. Of no use to "slsqp".
    speeds
        Part of the ridge that pulls how fast two items are compared, q_ij q_ji; the odds q_ij / q_ji have all of it.
    restarts
        Starts of the search: Bradley-Terry's chain, then random ones around it. The best objective is kept.
    max_iter, tolerance
        Iterations of a start at most, and the gain in the mean objective below which it ends.
    bins
        Features to cut into bins, with the number of bins: the cells of the grid are the items. Empty for labels.
    identified
        With ``bins``: labels of alternatives that keep an item of their own.
    """

    smoothing: float = 0.1
    method: Method = "lbfgs"
    ridge: Penalty = "auto"
    speeds: float = 0.1
    restarts: int = 8
    max_iter: int = 500
    tolerance: float = 1e-9
    bins: Mapping[str, int] = field(default_factory=dict)
    identified: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_word("method", self.method, get_args(Method))
        require_penalty("ridge", self.ridge)
        for name in ("smoothing", "speeds"):
            require_number(name, getattr(self, name), low=0)
        for name in ("restarts", "max_iter"):
            require_number(name, getattr(self, name), whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)
        if not isinstance(self.bins, Mapping):
            raise ConfigError(f"bins must map features to numbers of bins, such as {{'price': 8}}, got {self.bins!r}.")
        for name, number in self.bins.items():
            require_number(f"bins of {name!r}", number, whole=True, low=1)
        object.__setattr__(self, "bins", dict(self.bins))
        object.__setattr__(self, "identified", _labels(self.identified))
        if self.identified and not self.bins:
            raise ConfigError("identified says which labels are not binned, and there are no bins: leave it out.")


def _labels(value: Any) -> tuple[str, ...]:
    """Take a list of distinct labels."""
    labels = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    if not all(isinstance(label, str) for label in labels) or len(set(labels)) != len(labels):
        raise ConfigError(f"identified must be a list of distinct labels such as ('a', 'b'), got {value!r}.")
    return labels


class PCMC(ChainModel):
    """Pairwise choice Markov chain with a rate for every ordered pair of items.

    Options are those of :class:`PCMCConfig`.

    Examples
    --------
    >>> PCMC(bins={"attr1": 8, "attr2": 8}, identified=["0", "1"]).config.identified
    ('0', '1')
    """

    name = "pcmc"
    config_class = PCMCConfig
    config: PCMCConfig
    universe_: Universe | Grid
    log_rates_: Floats  # (n, n); the diagonal is 0 and means nothing
    offered_: Floats  # (n,) weight of the training sets that hold an item
    chosen_: Floats  # (n,) weight of those in which it was chosen

    @takes(PCMCConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        part, config = informative(train), self.config
        universe = Grid.learn(part, config.bins, config.identified) if config.bins else Universe.learn(part)
        n = self._require_size(universe)
        seen = DistinctSets.of(part, universe.index(part))
        if (seen.sizes < 2).all():
            raise InputError("all alternatives of every choice set fall into one cell: ask for more bins.")
        sets = seen.smoothed(config.smoothing)
        start = bradley_terry_chain(sets, n)
        with threads_for(0):
            learnt = self._learn_ridge(part, universe, settings.seed)
            ridge = learnt.penalty if learnt else float(config.ridge) if config.ridge != "auto" else 0.0
            path = [trial.penalty for trial in learnt.trials if trial.penalty > ridge] if learnt else []
            found = search(sets, start, ridge, config, np.random.default_rng(settings.seed), path)
        if not found.best.converged:
            log.warning("the search for rates was stopped by max_iter=%d before it converged", config.max_iter)
        self.universe_, self.log_rates_ = universe, found.log_rates
        offered = spread(sum_by_set(seen.counts, seen.offsets), seen.offsets)
        self.offered_, self.chosen_ = (
            np.bincount(seen.items, weights=weight, minlength=n).astype(np.float64) for weight in (offered, seen.counts)
        )
        self.training_ = {
            "distinct_sets": len(seen.sizes),
            "informed_rates": found.informed,
            "iterations": found.best.iterations,
            "converged": found.best.converged,
            "objectives": found.objectives,
            "nll": float(-(seen.counts @ item_log_p(seen, self.log_rates_)) / seen.counts.sum()),
            **({} if learnt is None else {"penalty": learnt.to_dict()}),
        }

    def _learn_ridge(self, part: ChoiceData, universe: Universe | Grid, seed: int) -> PenaltySearch | None:
        """Learn the ridge from held-out sets, unless it is given or of no use."""
        if self.config.ridge != "auto" or self.config.method == "slsqp":
            return None
        path = partial(self._path, universe.size)
        return learn_of_items(part, universe, path, smoothing=self.config.smoothing, seed=seed)

    def _path(self, n: int, fold: CountedFold) -> Losses:
        """Begin a path of fits down the ladder of ridges, each from where the one before ended."""
        problem = Problem.of(fold.known, bradley_terry_chain(fold.known, n))
        at = problem.prior

        def losses(ridge: float) -> Floats:
            nonlocal at
            at = problem.fit(at, ridge, self.config, PATH_TOLERANCE).at
            return -item_log_p(fold.held_out, problem.log_rates(at))[fold.chosen]

        return losses

    def _require_size(self, universe: Universe | Grid) -> int:
        """Return the number of items, if it is one that the method can deal with."""
        n = len(universe.items)
        if self.config.method == "slsqp" and n > SLSQP_ITEMS:
            raise ConfigError(f"method='slsqp' is for up to {SLSQP_ITEMS} items, and there are {n}: use 'lbfgs'.")
        if n > MOST_ITEMS:
            raise InputError(
                f"PCMC is for up to {MOST_ITEMS:,} items, and there are {n:,}, with {n * (n - 1):,} rates: use fewer "
                f"bins, or PCMC-Net (pcmcnet), whose size does not grow with the universe."
            )
        return n

    def _log_proba(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return sets.to_alternatives(item_log_p(sets, self.log_rates_))

    @torch.no_grad()
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        """Copies of an item share the rates into it, and leave for each other as fast as anything in the set."""
        index = self.universe_.index(data)
        items, copies = torch.from_numpy(index), torch.from_numpy(DistinctSets.of(data, index).copies).double()
        log_rates = torch.from_numpy(self.log_rates_)
        for flat, mask in padded(data.offsets):
            left, entered = items[flat].unsqueeze(2), items[flat].unsqueeze(1)  # (B, J, 1), (B, 1, J)
            scores = log_rates[left, entered] - copies[flat].log().unsqueeze(1)
            scores = scores.masked_fill(left == entered, -torch.inf)
            rates = rates_of_scores(scores, torch.from_numpy(mask), rate="exp", epsilon=0.0)
            yield data.set_of_alternative[flat[:, 0]], rates.masked_fill(left == entered, 1.0)

    @property
    def rates_(self) -> Floats:
        """(n, n) rates q_ij of leaving item i for j; 0 on the diagonal."""
        _ = self.schema
        return np.exp(self.log_rates_) * (1 - np.eye(len(self.log_rates_)))

    @property
    def num_parameters(self) -> int:
        """One rate per ordered pair of items, seen together or not."""
        _ = self.schema
        return len(self.log_rates_) * (len(self.log_rates_) - 1)

    def summary(self) -> Summary:
        """List the items with how often each was offered and chosen in training."""
        _ = self.schema
        found = self.training_
        gains = ", ".join(f"{value:.6f}" for value in found["objectives"])
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **item_facts(found),
            **penalty_facts(found),
            "objective of each start": gains,
            "parameters": f"{self.num_parameters:,} ({found['informed_rates']:,} of pairs seen in training)",
        }
        if self.config.bins:
            facts["features"] = f"{', '.join(self.config.bins)}, binned; others are not used"
        rows = [
            (item, f"{offered:g}", f"{chosen:g}", f"{chosen / offered:.4f}" if offered else "never seen")
            for item, offered, chosen in zip(self.universe_.items, self.offered_, self.chosen_, strict=True)
        ]
        return Summary(type(self).__name__, facts, ("item", "offered", "chosen", "share"), tuple(rows))

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        arrays = {"log_rates": self.log_rates_, "offered": self.offered_, "chosen": self.chosen_}
        return {"items.json": json_bytes(self.universe_.to_dict()), "weights.safetensors": save_arrays(arrays)}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        entries = json.loads(files["items.json"])
        self.universe_ = Grid.from_dict(entries) if self.config.bins else Universe.from_dict(entries)
        try:
            arrays = load_arrays(files["weights.safetensors"])
        except SafetensorError as error:
            raise ArtifactError(f"the saved rates cannot be read ({error}): save the model again.") from error
        n = self.universe_.size
        for name, shape in {"log_rates": (n, n), "offered": (n,), "chosen": (n,)}.items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise ArtifactError(f"the saved {name} do not fit the saved items: save the model again.")
        self.log_rates_ = arrays["log_rates"].astype(np.float64)
        self.offered_, self.chosen_ = arrays["offered"], arrays["chosen"]


@torch.no_grad()
def item_log_p(sets: DistinctSets, log_rates: Floats) -> Floats:  # (n, n) -> (M,)
    """Log-probabilities of the items of distinct sets."""
    out, t = np.zeros(len(sets.items)), torch.from_numpy(log_rates)
    with threads_for(0):
        for batch in sets.batches():
            scores = t[batch.items.unsqueeze(2), batch.items.unsqueeze(1)]
            out[batch.flat[batch.mask.numpy()]] = chain_log_p(scores, batch.mask)[batch.mask].numpy()
    return out


def bradley_terry_chain(sets: DistinctSets, n: int) -> Floats:  # -> (n, n)
    """Log-rates, q_ij + q_ji = 1, of the chain whose law on every set is Bradley-Terry's for the counts."""
    s = newton(sets, n, ridge=centring_ridge(sets)).strengths
    log_rates: Floats = -np.logaddexp(0.0, s[:, None] - s[None, :])
    np.fill_diagonal(log_rates, 0.0)
    return log_rates
