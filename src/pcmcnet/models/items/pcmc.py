"""PCMC: the pairwise choice Markov chain of items (Ragain & Ugander, 2016).

Every ordered pair of items has a rate q_ij of leaving i for j, and the choice probabilities of a set S are the
stationary law of the chain on S with those rates. A universe of n items has n (n - 1) rates, whatever the sets. With
the counts C_iS of the distinct sets, the smoothing a and log-rates t = log q, the fit minimises

    - sum_S sum_{i in S} (C_iS + a) log P(i | S)  +  ridge / 2 sum_ij (t_ij - t0_ij)^2,

t0 being the chain that gives Bradley-Terry's law of the same counts, q0_ij = e^{s_j} / (e^{s_i} + e^{s_j}). The
likelihood alone fixes neither the scale of the rates nor, where a few sets hold a pair, both of its rates, and it is
not concave: the ridge settles the first two and calms the third. Rates of pairs that no training set holds keep q0,
with s = 0, the mean, for items in no training set; so a set of any items of the universe has a law.

With K classes of people each has a chain of its own, and P(i | S) = sum_c pi_c P_c(i | S). Copies of an item share its
probability in each class, and so in the mixture (uniform expansion). Contractibility does not survive in general: what
a group of items has together depends on their number alone if they are alike in every class, not if in some.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import spread, sum_by_set
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.threads import threads_for
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.latent_classes import LatentClasses
from pcmcnet.models.interface.options import takes
from pcmcnet.models.items.binning import Grid
from pcmcnet.models.items.newton import centring_ridge, newton
from pcmcnet.models.items.pcmc_class_search import ClassSearch, class_facts, mixed_log_p
from pcmcnet.models.items.pcmc_classes import Chains
from pcmcnet.models.items.pcmc_config import PCMCConfig
from pcmcnet.models.items.pcmc_search import PATH_TOLERANCE, SLSQP_ITEMS, Found, Problem, item_log_p, search
from pcmcnet.models.items.penalty_search import (
    CountedFold,
    Losses,
    PenaltySearch,
    learn_of_items,
    penalty_facts,
)
from pcmcnet.models.items.strength_ridge import Base
from pcmcnet.models.items.strengths import item_facts
from pcmcnet.models.items.universe import DistinctSets, Universe, informative, padded
from pcmcnet.reports.formats import Summary
from pcmcnet.storage.files import json_bytes

log = logging.getLogger("pcmcnet")

MOST_ITEMS = 2000  # 4 million rates
_ROUNDING = 1e-6  # of saved shares


class PCMC(LatentClasses, ChainModel):
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
    log_rates_: Floats  # (n, n), or (K, n, n) of several classes; the diagonal is 0 and means nothing
    shares_: Floats  # (K,) of the classes, the largest first
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
        with threads_for(0):
            self.training_ = self._fit_chains(part, universe, seen, settings.seed)
        if not self.training_["converged"]:
            log.warning("the search for rates was stopped by max_iter=%d before it converged", config.max_iter)
        self.universe_ = universe
        offered = spread(sum_by_set(seen.counts, seen.offsets), seen.offsets)
        self.offered_, self.chosen_ = (
            np.bincount(seen.items, weights=weight, minlength=n).astype(np.float64) for weight in (offered, seen.counts)
        )
        self.training_["distinct_sets"] = len(seen.sizes)
        self.training_["nll"] = float(-(seen.counts @ mixed_log_p(seen, self._chains)) / seen.counts.sum())

    def _fit_chains(self, part: ChoiceData, universe: Universe | Grid, seen: DistinctSets, seed: int) -> dict[str, Any]:
        """Fit the rates, of as many classes as are asked for or found; returns how that went."""
        search, classes, tried = ClassSearch(part, universe, self.config, seed), self.config.classes, {}
        if classes == "auto":
            classes, trials = search.number()
            tried = {"class_trials": [trial.to_dict() for trial in trials]}
        if classes > 1:
            chains, best, found_ridge = search.chains(classes)
            learnt = {} if found_ridge is None else {"penalty": found_ridge.to_dict()}
            self.log_rates_, self.shares_ = chains
            informed, objectives = classes * len(Problem.of(seen, chains.log_rates[0]).pairs), [best.value]
        else:
            found, learnt = self._fit_one(part, universe, seen, seed)
            self.log_rates_, self.shares_, best = found.log_rates, np.ones(1), found.best
            informed, objectives = found.informed, found.objectives
        return {
            "informed_rates": informed,
            "iterations": best.iterations,
            "converged": best.converged,
            "objectives": objectives,
            **tried,
            **learnt,
        }

    def _fit_one(
        self, part: ChoiceData, universe: Universe | Grid, seen: DistinctSets, seed: int
    ) -> tuple[Found, dict[str, Any]]:
        """Fit a single chain; returns what was learnt of its penalty as well."""
        config, base = self.config, Base(self.config.smoothing)
        if config.ridge == "auto" and config.method != "slsqp":
            base = Base.learn(part, universe, smoothing=config.smoothing, seed=seed)
        sets, learnt = seen.smoothed(base.smoothing), self._learn_ridge(part, universe, base, seed)
        ridge = learnt.penalty if learnt else float(config.ridge) if config.ridge != "auto" else 0.0
        path = [trial.penalty for trial in learnt.trials if trial.penalty > ridge] if learnt else []
        start = bradley_terry_chain(sets, universe.size, base.ridge)
        found = search(sets, start, ridge, config, np.random.default_rng(seed), path)
        return found, base.told(learnt) if learnt else {}

    def _learn_ridge(self, part: ChoiceData, universe: Universe | Grid, base: Base, seed: int) -> PenaltySearch | None:
        """Learn the ridge from held-out sets, unless it is given or of no use."""
        if self.config.ridge != "auto" or self.config.method == "slsqp":
            return None
        path = partial(self._path, universe.size, base)
        return learn_of_items(part, universe, path, smoothing=base.smoothing, seed=seed)

    def _path(self, n: int, base: Base, fold: CountedFold) -> Losses:
        """Begin a path of fits down the ladder of ridges, each from where the one before ended."""
        problem = Problem.of(fold.known, bradley_terry_chain(fold.known, n, base.ridge))
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
        if len(self.shares_) == 1:
            return self._class_log_p(data)[:, 0]
        return self._mixed(data, self._log_membership(data)) if len(data) else np.zeros(0)

    # -- classes ----------------------------------------------------------------------------------------------

    @property
    def _chains(self) -> Chains:
        n = self.log_rates_.shape[-1]
        return Chains(self.log_rates_.reshape(-1, n, n), self.shares_)

    @property
    def n_classes_(self) -> int:
        """Number of classes of people, each with a chain of its own."""
        _ = self.schema
        return len(self.shares_)

    @property
    def n_chains(self) -> int:
        """As many as classes."""
        return self.n_classes_

    def _log_membership(self, sets: ChoiceData) -> Floats:
        return np.tile(np.log(self.shares_), (len(sets), 1))

    def _class_log_p(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return np.column_stack([sets.to_alternatives(item_log_p(sets, t)) for t in self._chains.log_rates])

    @torch.no_grad()
    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        """Copies of an item share the rates into it, and leave for each other as fast as anything in the set."""
        index = self.universe_.index(data)
        items, copies = torch.from_numpy(index), torch.from_numpy(DistinctSets.of(data, index).copies).double()
        chains = torch.from_numpy(self._chains.log_rates)
        for flat, mask in padded(data.offsets):
            left, entered = items[flat].unsqueeze(2), items[flat].unsqueeze(1)  # (B, J, 1), (B, 1, J)
            each = []
            for log_rates in chains:
                scores = log_rates[left, entered] - copies[flat].log().unsqueeze(1)
                scores = scores.masked_fill(left == entered, -torch.inf)
                rates = rates_of_scores(scores, torch.from_numpy(mask), rate="exp", epsilon=0.0)
                each.append(rates.masked_fill(left == entered, 1.0))
            yield data.set_of_alternative[flat[:, 0]], torch.stack(each, dim=1)

    @property
    def rates_(self) -> Floats:
        """(n, n) rates q_ij of leaving item i for j, or (K, n, n) of several classes; 0 on the diagonal."""
        _ = self.schema
        return np.exp(self.log_rates_) * (1 - np.eye(self.log_rates_.shape[-1]))

    @property
    def num_parameters(self) -> int:
        """One rate per ordered pair of items, seen together or not, in each class, and the shares but one."""
        K, n = self.n_classes_, self.universe_.size
        return K * n * (n - 1) + K - 1

    def summary(self) -> Summary:
        """List the items with how often each was offered and chosen in training."""
        _ = self.schema
        found = self.training_
        gains = ", ".join(f"{value:.6f}" for value in found["objectives"])
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **item_facts(found),
            **penalty_facts(found),
            **class_facts(found),
            "objective of each start": gains,
            "parameters": f"{self.num_parameters:,} ({found['informed_rates']:,} of pairs seen in training)",
        }
        if self.n_classes_ > 1:
            facts["shares of classes"] = ", ".join(f"{share:.1%}" for share in self.shares_)
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
        arrays |= {"shares": self.shares_} if self.n_classes_ > 1 else {}
        return {"items.json": json_bytes(self.universe_.to_dict()), "weights.safetensors": save_arrays(arrays)}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        entries = json.loads(files["items.json"])
        self.universe_ = Grid.from_dict(entries) if self.config.bins else Universe.from_dict(entries)
        try:
            arrays = load_arrays(files["weights.safetensors"])
        except SafetensorError as error:
            raise ArtifactError(f"the saved rates cannot be read ({error}): save the model again.") from error
        n = self.universe_.size
        shares = arrays.setdefault("shares", np.ones(1))
        if not (shares > 0).all() or abs(shares.sum() - 1) > _ROUNDING:
            raise ArtifactError("the saved shares of classes do not add up to 1: save the model again.")
        of_rates = (n, n) if len(shares) == 1 else (len(shares), n, n)
        for name, shape in {"log_rates": of_rates, "offered": (n,), "chosen": (n,)}.items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise ArtifactError(f"the saved {name} do not fit the saved items: save the model again.")
        self.log_rates_ = arrays["log_rates"].astype(np.float64)
        self.offered_, self.chosen_, self.shares_ = arrays["offered"], arrays["chosen"], shares


def bradley_terry_chain(sets: DistinctSets, n: int, ridge: float = 0.0) -> Floats:  # -> (n, n)
    """Log-rates, q_ij + q_ji = 1, of the chain whose law on every set is Bradley-Terry's for the counts."""
    s = newton(sets, n, ridge=centring_ridge(sets, ridge)).strengths
    log_rates: Floats = -np.logaddexp(0.0, s[:, None] - s[None, :])
    np.fill_diagonal(log_rates, 0.0)
    return log_rates
