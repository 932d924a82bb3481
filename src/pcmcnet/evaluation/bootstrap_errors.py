"""Standard errors by the bootstrap: a logit is fitted again to persons, or choice sets, drawn with replacement.

A draw takes n of the n units with replacement (Efron, 1979). It weighs each set by how often its unit was drawn, times
the weight that it had, so that a person drawn twice stays one person. The covariance of the estimates over draws is
that of the estimates; their percentiles are the ends of intervals. The columns of the utility stay those of the model:
levels and scales are not learnt anew, and latent classes are numbered as in the model. Draws depend on the seed and on
their own number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, TrainingError
from pcmcnet.evaluation.in_sample import require_training_sets
from pcmcnet.models import LatentClassMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logits.logit_model import LogitModel, require_estimated
from pcmcnet.progress import show_steps
from pcmcnet.reports.data_frames import data_frame
from pcmcnet.reports.formats import InEveryFormat, Printed

_ENOUGH = 0.5  # share of the draws that must lead to estimates


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BootstrapErrors(InEveryFormat):
    """Estimates over draws; prints as a table. Made by :func:`bootstrap_errors`.

    Attributes
    ----------
    names, values
        The coefficients and their estimates from the table itself.
    samples
        (D, K) their estimates from the draws.
    unit, n_units
        What was drawn, and how many there are.
    failed
        Draws without estimates, which are left out.
    level
        Of the intervals.
    """

    names: tuple[str, ...]
    values: Floats  # (K,)
    samples: Floats  # (D, K)
    unit: str
    n_units: int
    failed: int
    level: float

    @property
    def covariance(self) -> Floats:
        """(K, K) covariance of the estimates."""
        found: Floats = np.atleast_2d(np.cov(self.samples, rowvar=False))
        return found

    @property
    def standard_errors(self) -> dict[str, float]:
        """The standard error of each coefficient."""
        return dict(zip(self.names, self.samples.std(axis=0, ddof=1).tolist(), strict=True))

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The percentile interval of each coefficient."""
        low, high = np.quantile(self.samples, [(1 - self.level) / 2, (1 + self.level) / 2], axis=0).tolist()
        return dict(zip(self.names, zip(low, high, strict=True), strict=True))

    def to_frame(self) -> Any:
        """Return a pandas data frame, indexed by name: estimate, std_error, lower, upper."""
        ends = self.intervals
        columns = {
            "name": list(self.names),
            "estimate": self.values,
            "std_error": list(self.standard_errors.values()),
            "lower": [ends[name][0] for name in self.names],
            "upper": [ends[name][1] for name in self.names],
        }
        return data_frame(pa.table(columns), index="name", instead="standard_errors and intervals")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        return {
            "unit": self.unit,
            "n_units": self.n_units,
            "draws": len(self.samples),
            "failed": self.failed,
            "level": self.level,
            "estimates": dict(zip(self.names, self.values.tolist(), strict=True)),
            "standard_errors": self.standard_errors,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
        }

    def _printed(self) -> Printed:
        facts = {"draws": f"{len(self.samples):,} of {self.n_units:,} {self.unit}"}
        if self.failed:
            facts["draws without estimates"] = f"{self.failed:,}, left out"
        ends, errors = self.intervals, self.standard_errors
        levels = ((1 - self.level) / 2, (1 + self.level) / 2)
        head = ["coefficient", "estimate", "std err", *(f"{end:.3g}" for end in levels)]
        rows = [
            [name, f"{value:.4g}", f"{errors[name]:.3g}", *(f"{end:.4g}" for end in ends[name])]
            for name, value in zip(self.names, self.values, strict=True)
        ]
        return Printed(title="Bootstrap errors", facts=facts, cells=[head, *rows])

    def __repr__(self) -> str:
        return str(self)


def bootstrap_errors(
    model: ChoiceModel,
    data: Any,
    draws: int = 200,
    seed: int = 0,
    *,
    by: str | None = None,
    level: float = 0.95,
    progress: bool = True,
) -> BootstrapErrors:
    """Fit a logit again to draws of persons, or of choice sets, for errors that assume little.

    Parameters
    ----------
    model
        A fitted logit.
    data
        The choice sets that it was fitted to.
    draws
        Number of fits; 200 are enough for standard errors, intervals want 1,000.
    seed
        Where the draws come from.
    by
        Column whose groups are drawn; persons where the table declares them, and choice sets otherwise, if not given.
    level
        Of the percentile intervals.
    progress
        Show a bar on a terminal, or log a line per draw elsewhere.

    Returns
    -------
    BootstrapErrors

    Raises
    ------
    InputError
        When the model is no logit, its constants were moved to known shares, the table is another one, or most draws
        lead to no estimates.
    """
    require_number("draws", draws, whole=True, low=2)
    require_number("seed", seed, whole=True, low=0)
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    if not isinstance(model, LogitModel):
        raise InputError(f"bootstrap errors are those of the coefficients of a logit; got {type(model).__name__}.")
    require_estimated(model, "the bootstrap")
    sets = require_training_sets(model, data)
    groups = sets.groups(by)
    samples, failed = [], 0
    with show_steps(draws, show=progress) as steps:
        for k, part in enumerate(_draws(sets, groups, draws, seed), start=1):
            steps.begin(f"draw {k}")
            values = _refitted(model, part)
            failed += values is None
            samples += [] if values is None else [values]
            steps.end(f"draw {k}", "no estimates" if values is None else "done")
    if len(samples) < max(2, _ENOUGH * draws):
        raise InputError(
            f"{failed} of {draws} draws lead to no finite estimates of all coefficients: the table has too few choices "
            f"for the model. Leave columns out, or raise min_chosen."
        )
    column = by or sets.schema.person
    return BootstrapErrors(
        names=model.estimates_.names,
        values=model.estimates_.values,
        samples=np.stack(samples),
        unit="choice sets" if column in (None, sets.schema.choice_set) else f"groups by {column}" if by else "persons",
        n_units=len(np.unique(groups)),
        failed=failed,
        level=level,
    )


def _draws(sets: ChoiceData, groups: Ints, draws: int, seed: int) -> Iterator[ChoiceData]:
    """Yield the sets of each draw, weighed by how often their groups were drawn."""
    n = len(np.unique(groups))
    for source in np.random.SeedSequence(seed).spawn(draws):
        times = np.bincount(np.random.default_rng(source).integers(n, size=n), minlength=n)[groups]
        part = replace(sets, weights=sets.weights * times)
        yield part.subset(part.weights > 0)


def _refitted(model: LogitModel, part: ChoiceData) -> Floats | None:
    """Return the estimates from a draw; None where there are none, or not of the same coefficients."""
    # The search starts at the estimates from the table itself, which are near those from a draw.
    options, estimates = asdict(model.config), model.estimates_
    options["start"] = {name: value for name, value in model.coefficients.items() if name not in estimates.fixed}
    if isinstance(model, LatentClassMNL):
        options["classes"] = model.n_classes_
    try:
        again = type(model)(**options).refit(part, model.design_, model.table_.seed)
    except (InputError, TrainingError):
        return None
    if again.unbounded or again.names != estimates.names:
        return None
    return relabelled(model, again.values) if isinstance(model, LatentClassMNL) else again.values


def relabelled(model: LatentClassMNL, values: Floats) -> Floats:  # (P,) -> (P,)
    """Number the classes of a draw as those of the model, by their coefficients: the order of shares may differ."""
    if model.n_classes_ == 1 or model.config.fixed or model.config.bounds:  # which name classes by their numbers
        return values
    C, K = model.n_classes_, len(model.design_.names)
    b = values[: C * K].reshape(C, K)
    g = np.concatenate([np.zeros((1, len(model.who_.names))), values[C * K :].reshape(C - 1, -1)])
    spread = np.array(list(model.standard_errors().values()))[: C * K]
    sizes = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
    orders = [list(order) for order in permutations(range(C))]
    far = [np.square((b[order].ravel() - model.estimates_.values[: C * K]) / sizes).sum() for order in orders]
    best = orders[int(np.argmin(far))]
    return np.concatenate([b[best].ravel(), (g[best][1:] - g[best][0]).ravel()])
