"""One strength per item: what Bradley-Terry's and Thurstone's models share.

Both give item i a strength s_i, fix that of the item chosen most often at 0, and maximise the likelihood of the
counts of the distinct sets of items, less ridge / 2 sum_i (s_i - mean s)^2. Without ridge there is a maximum, and only
one, exactly when for every division of the items into two groups someone chose an item of the first group over one of
the second, and the other way round (Ford, 1957). Additive smoothing sees to that within groups of items that share
choice sets, as every item is then chosen now and then from every set it is in. A ridge sees to it as well, and takes
the place of smoothing. Items that no chain of sets connects cannot be compared by any means.
"""

from __future__ import annotations

import json
import logging
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError, TrainingError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.fit_settings import FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.models.items.newton import Estimate
from pcmcnet.models.items.penalties import ItemRecord, Penalty, learn_strength_ridge, require_penalty
from pcmcnet.models.items.universe import DistinctSets, Universe, informative, some_names
from pcmcnet.reports.formats import Summary
from pcmcnet.storage.files import json_bytes

log = logging.getLogger("pcmcnet")


@dataclass(frozen=True, kw_only=True)
class StrengthConfig:
    """Options of a model with one strength per item.

    Parameters
    ----------
    smoothing
        Choices added for every item of every distinct choice set of the training part, where there is no ridge; 0 for
        plain maximum likelihood, which is refused where it has no finite maximum.
    ridge
        Pull of the strengths towards their mean, as if by a normal law of variance 1 / ridge, in place of smoothing; 0
        for smoothing alone. "auto" learns it from held-out choice sets (:mod:`pcmcnet.models.items.penalties`), none,
        which is smoothing alone, included.
    max_iter, tolerance
        Iterations at most, and the gain in mean log-likelihood below which the search ends.
    """

    smoothing: float = 0.1
    ridge: Penalty = "auto"
    max_iter: int = 200
    tolerance: float = 1e-12

    def __post_init__(self) -> None:
        require_number("smoothing", self.smoothing, low=0)
        require_penalty("ridge", self.ridge)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)


@dataclass(frozen=True, kw_only=True)
class FittedStrengths(FittedState):
    """Items with their strengths."""

    universe: Universe
    strengths: Floats  # (n,)
    errors: Floats  # (n,) standard errors; 0 for the reference
    reference: int  # the item whose strength is 0
    record: ItemRecord


class StrengthModel(ChoiceModel):
    """A model with one strength per item; a subclass says how strengths become probabilities."""

    config_class = StrengthConfig
    config: StrengthConfig
    record_class = ItemRecord
    precision: ClassVar[float] = 1.0  # of a utility's error, as a multiple of the logit's

    @abstractmethod
    def _estimate(self, sets: DistinctSets, n: int, reference: int, ridge: float) -> Estimate:
        """Maximise the likelihood of the counts, less the ridge's part, with the reference's strength at 0."""

    @abstractmethod
    def _item_log_p(self, sets: DistinctSets, strengths: Floats) -> Floats:
        """(M,) log-probabilities of the items of distinct sets."""

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedStrengths:
        config = self.config
        # 1. The items, and the distinct sets of items with their counts; some counts have no estimate.
        part = informative(train)
        universe = Universe.learn(part)
        sets, n = DistinctSets.of(part, universe.index(part)), universe.size
        smoothed = sets.smoothed(config.smoothing)
        require_comparable(smoothed, universe.items, finite=config.ridge in ("auto", 0))
        reference = int(np.bincount(sets.items, weights=sets.counts, minlength=n).argmax())
        # 2. The ridge, from held-out sets if it is to be learnt.
        penalty = None
        if config.ridge == "auto":
            penalty = learn_strength_ridge(
                part, universe, smoothing=config.smoothing, precision=self.precision, seed=run.seed
            )
        ridge = penalty.penalty if penalty else float(config.ridge)
        # 3. The strengths and their errors; a ridge takes the place of smoothing.
        try:
            estimate = self._estimate(sets if ridge else smoothed, n, reference, ridge)
            errors = standard_errors(estimate.hessian, reference)
        except np.linalg.LinAlgError as error:
            raise TrainingError(
                f"some strengths are so far apart that the likelihood is flat ({error}): raise smoothing."
            ) from error
        if not estimate.converged:
            log.warning("the search for strengths was stopped by max_iter=%d before it converged", config.max_iter)
        record = ItemRecord(
            converged=estimate.converged,
            iterations=estimate.iterations,
            nll=float(-(sets.counts @ self._item_log_p(sets, estimate.strengths)) / sets.counts.sum()),
            penalty=penalty,
            distinct_sets=len(sets.sizes),
        )
        return FittedStrengths(
            universe=universe, strengths=estimate.strengths, errors=errors, reference=reference, record=record
        )

    @property
    def _state(self) -> FittedStrengths:
        return self._state_as(FittedStrengths)

    @property
    def universe_(self) -> Universe:
        """The items."""
        return self._state.universe

    @property
    def strengths_(self) -> Floats:
        """(n,) strengths of the items; 0 for the reference."""
        return self._state.strengths

    @property
    def errors_(self) -> Floats:
        """(n,) standard errors of the strengths; 0 for the reference."""
        return self._state.errors

    @property
    def reference_(self) -> int:
        """The item whose strength is 0: the one chosen most often."""
        return self._state.reference

    def _log_proba(self, data: ChoiceData) -> Floats:
        sets = DistinctSets.of(data, self.universe_.index(data))
        return sets.to_alternatives(self._item_log_p(sets, self.strengths_))

    @property
    def num_parameters(self) -> int:
        """One strength per item but the reference."""
        return len(self.strengths_) - 1

    def summary(self) -> Summary:
        """List the items with estimate, standard error, z and p, the strongest first."""
        items, record = self.universe_.items, self._state.record
        rows = [self._row(k) for k in np.argsort(-self.strengths_, kind="stable")]
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in asdict(self.config).items()),
            **record.item_facts(self.table_.choice_sets),
            **record.penalty_facts,
            "parameters": f"{self.num_parameters:,} (the strength of {items[self.reference_]!r} is 0)",
        }
        header = ("item", "estimate", "std err", "z", "p")
        return Summary(type(self).__name__, facts, header, tuple(rows))

    def _row(self, k: int) -> tuple[str, ...]:
        estimate, error = float(self.strengths_[k]), float(self.errors_[k])
        if k == self.reference_:
            return (self.universe_.items[k], "0 (reference)", "", "", "")
        z = estimate / error
        p = math.erfc(abs(z) / math.sqrt(2))
        return (self.universe_.items[k], f"{estimate:.4f}", f"{error:.4f}", f"{z:.2f}", f"{p:.3g}")

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        entries = {
            **self.universe_.to_dict(),
            "reference": self.reference_,
            "strengths": self.strengths_.tolist(),
            "standard_errors": self.errors_.tolist(),
        }
        return {"items.json": json_bytes(entries)}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedStrengths:
        entries = json.loads(files["items.json"])
        universe, reference = Universe.from_dict(entries), entries["reference"]
        strengths, errors = (np.array(entries[k], np.float64) for k in ("strengths", "standard_errors"))
        fits = all(x.shape == (universe.size,) and np.isfinite(x).all() for x in (strengths, errors))
        if not fits or reference not in range(universe.size):
            raise ArtifactError("the saved strengths do not fit the saved items: save the model again.")
        return FittedStrengths(
            universe=universe, strengths=strengths, errors=errors, reference=reference, record=record
        )


def standard_errors(hessian: Floats, reference: int) -> Floats:  # (n, n) -> (n,)
    """Roots of the diagonal of the inverse, without the reference, whose error is 0."""
    free = np.arange(len(hessian)) != reference
    variances = np.diag(np.linalg.inv(hessian[np.ix_(free, free)]))
    if not (np.isfinite(variances) & (variances > 0)).all():
        raise np.linalg.LinAlgError("the Hessian is not positive definite")
    errors = np.zeros(len(hessian))
    errors[free] = np.sqrt(variances)
    return errors


def require_comparable(sets: DistinctSets, items: tuple[str, ...], *, finite: bool = True) -> None:
    """Refuse counts for which strengths have no unique estimate, or, where that has to come from counts, no finite."""
    # 1. Items that some chain of sets connects can be compared.
    left, right = sets.pairs()
    beats = sets.counts[left] > 0
    groups = _groups(sets.items[left], sets.items[right], len(items), strong=False)
    if groups.max() > 0:
        raise InputError(
            f"no chain of choice sets connects {some_names(items, np.flatnonzero(groups == 0))} with "
            f"{some_names(items, np.flatnonzero(groups == 1))}: their strengths cannot be compared ({groups.max() + 1} "
            f"such groups of items). Fit a model to each group, or use PCMC-Net (pcmcnet), which compares features."
        )
    # 2. Estimates are finite if, besides, each item won and lost against any group of others (Ford, 1957).
    groups = _groups(sets.items[left[beats]], sets.items[right[beats]], len(items), strong=True)
    if finite and groups.max() > 0:
        odd = np.flatnonzero(groups == np.bincount(groups).argmin())
        raise InputError(
            f"the strengths have no finite estimate: {some_names(items, odd)} always won, or always lost, against the "
            f"other items ({groups.max() + 1} such groups; Ford, 1957). Set smoothing or ridge above 0, or leave them "
            f"out."
        )


def _groups(left: Ints, right: Ints, n: int, *, strong: bool) -> Ints:
    """(n,) number of the connected group that each item belongs to."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(n, n))
    _, groups = connected_components(graph, directed=strong, connection="strong")
    return np.asarray(groups, np.int64)
