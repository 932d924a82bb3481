"""CDM: the context-dependent random utility model of items (Seshadri, Peysakhovich & Ugander, 2019).

The other items of a set add to an item's utility one by one, each by an effect of its own:

    P(i | S) = exp v_i(S) / sum_{j in S} exp v_j(S)          v_i(S) = s_i + sum_{j in S, j != i} c_ij

The published form has u_ij = c_ij - s_j alone, with the same probabilities: -sum_{j != i} s_j is s_i, less what all
items of the set have in common. One constant added to all s_i changes nothing. Nor does one added to s_j and to column
j, c_ij for all i. So n (n - 1) - 1 parameters are identified. The penalty on c takes the smallest of all effects that
are alike, which have mean 0 in each column, and shrinks them to none: to the logit of items, Bradley-Terry's. Of rank r
the effects are products c_ij = t_i . k_j of r properties that an item has as a target and as a context.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.layers.threads import threads_for
from pcmcnet.models.context_logits.cdm_estimation import Effects, estimate, log_p, logit
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.items.penalty_search import (
    PLAIN,
    TRIAL_TOLERANCE,
    CountedFold,
    Losses,
    Penalty,
    learn_of_items,
    penalty_facts,
    require_penalty,
)
from pcmcnet.models.items.strength_ridge import Base
from pcmcnet.models.items.strengths import item_facts
from pcmcnet.models.items.universe import DistinctSets, Universe, informative
from pcmcnet.reports.formats import Summary
from pcmcnet.storage.files import json_bytes

log = logging.getLogger("pcmcnet")

MOST_ITEMS = 1000  # a million effects


@dataclass(frozen=True, kw_only=True, slots=True)
class CDMConfig:
    """Options of CDM.

    Parameters
    ----------
    smoothing
        Choices added for every item of every distinct choice set of the training part.
    ridge
        Pull of the context effects towards 0, as if by a normal law of variance 1 / ridge; 0 for maximum likelihood
        alone. "auto" learns it from held-out choice sets, an infinite one, which is the logit of items, included.
    rank
        Rank of the matrix of context effects; None for the full one.
    max_iter, tolerance
        Iterations at most, and the gain in the mean objective below which the search ends.
    """

    smoothing: float = 0.1
    ridge: Penalty = "auto"
    rank: int | None = None
    max_iter: int = 1000
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        require_number("smoothing", self.smoothing, low=0)
        require_penalty("ridge", self.ridge)
        if self.rank is not None:
            require_number("rank", self.rank, whole=True, low=1)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)


class CDM(ChoiceModel):
    """Logit of items whose utilities depend on the other items of the set, pair by pair.

    Options are those of :class:`CDMConfig`.

    Examples
    --------
    >>> CDM(rank=2).config.ridge
    'auto'
    """

    name = "cdm"
    config_class = CDMConfig
    config: CDMConfig
    universe_: Universe
    strengths_: Floats  # (n,)
    context_: Floats  # (n, n): what the column's item adds to the utility of the row's; 0 on the diagonal

    @takes(CDMConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        part = informative(_require_labels(train))
        universe = Universe.learn(part)
        n = _require_size(universe.size)
        seen = DistinctSets.of(part, universe.index(part))
        config, base, search = self.config, Base(self.config.smoothing), None
        with threads_for(0):
            if config.ridge == "auto":
                base = Base.learn(part, universe, smoothing=config.smoothing, seed=settings.seed)
                path = partial(self._path, n, base)
                search = learn_of_items(part, universe, path, smoothing=base.smoothing, seed=settings.seed)
            ridge, sets = search.penalty if search else float(config.ridge), seen.smoothed(base.smoothing)
            found = self._effects(sets, logit(sets, n, base.ridge), ridge, base.ridge, config.tolerance)
        if not found.converged:
            log.warning("the search for effects was stopped by max_iter=%d before it converged", self.config.max_iter)
        self.universe_, self.strengths_, self.context_ = universe, found.strengths, found.context
        self.training_ = {
            "distinct_sets": len(seen.sizes),
            "iterations": found.iterations,
            "converged": found.converged,
            "nll": float(-(seen.counts @ log_p(seen, found.strengths, found.context)) / seen.counts.sum()),
            **({} if search is None else base.told(search)),
        }

    def _effects(self, sets: DistinctSets, start: Effects, ridge: float, held: float, tolerance: float) -> Effects:
        """Fit with a ridge, from a start; the start is the logit, or comes from a stronger ridge."""
        if ridge == PLAIN:
            return start
        limits: dict[str, Any] = {"max_iter": self.config.max_iter, "tolerance": tolerance}
        return estimate(sets, start, ridge, held, rank=self.config.rank, **limits)

    def _path(self, n: int, base: Base, fold: CountedFold) -> Losses:
        """Begin a path of fits down the ladder of ridges, each from where the one before ended."""
        at = logit(fold.known, n, base.ridge)

        def losses(ridge: float) -> Floats:
            nonlocal at
            at = self._effects(fold.known, at, ridge, base.ridge, TRIAL_TOLERANCE)
            return -log_p(fold.held_out, at.strengths, at.context)[fold.chosen]

        return losses

    def _log_proba(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return sets.to_alternatives(log_p(sets, self.strengths_, self.context_))

    @property
    def num_parameters(self) -> int:
        """Those that probabilities identify: strengths but one, and effects up to a constant in each column."""
        _ = self.schema
        n, rank = len(self.strengths_), self.config.rank
        full = n * (n - 1) - 1
        return full if rank is None else min(full, n - 1 + rank * (2 * n - 1 - rank))

    def summary(self) -> Summary:
        """List the items with their strengths, the strongest first, and who raises and lowers them most."""
        _ = self.schema
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **item_facts(self.training_),
            **penalty_facts(self.training_),
            "parameters": f"{self.num_parameters:,}",
        }
        rows = [self._row(k) for k in np.argsort(-self.strengths_, kind="stable")]
        return Summary(
            type(self).__name__, facts, ("item", "strength", "raised most by", "lowered most by"), tuple(rows)
        )

    def _row(self, k: int) -> tuple[str, ...]:
        effects, items = self.context_[k], self.universe_.items
        found = ((j, effects[j]) for j in (int(effects.argmax()), int(effects.argmin())))
        named = [f"{items[j]} {effect:+.4f}" if effect else "none" for j, effect in found]
        return (items[k], f"{self.strengths_[k]:.4f}", *named)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        arrays = {"strengths": self.strengths_, "context": self.context_}
        return {"items.json": json_bytes(self.universe_.to_dict()), "weights.safetensors": save_arrays(arrays)}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        self.universe_ = Universe.from_dict(json.loads(files["items.json"]))
        try:
            arrays = load_arrays(files["weights.safetensors"])
        except SafetensorError as error:
            raise ArtifactError(f"the saved effects cannot be read ({error}): save the model again.") from error
        n = self.universe_.size
        for name, shape in {"strengths": (n,), "context": (n, n)}.items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise ArtifactError(f"the saved {name} do not fit the saved items: save the model again.")
        self.strengths_, self.context_ = (arrays[name].astype(np.float64) for name in ("strengths", "context"))


def _require_labels(data: ChoiceData) -> ChoiceData:
    """Refuse a table without labels, and say what has context effects without them."""
    if data.labels is None:
        raise InputError(
            "CDM knows alternatives by their labels, and the table was read without any: declare alternative=<column> "
            "(--alternative), or use the linear context logit (lcl), which has context effects of features instead."
        )
    return data


def _require_size(n: int) -> int:
    """Refuse universes whose effects would not fit."""
    if n > MOST_ITEMS:
        raise InputError(
            f"CDM is for up to {MOST_ITEMS:,} items, and there are {n:,}, with {n * (n - 1):,} context effects: leave "
            f"rare items out, or use PCMC-Net (pcmcnet), whose size does not grow with the universe."
        )
    return n
