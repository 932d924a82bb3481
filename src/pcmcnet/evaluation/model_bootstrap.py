"""The bootstrap of a fitted model: standard errors and intervals for any number that is computed from the model.

A replicate is the model fitted to a resample of its training part (:mod:`pcmcnet.data.resampling`). Let t be the
statistic of the model, and t*_1, ..., t*_R those of R replicates. Their standard deviation estimates the standard error
of t, and their quantiles give intervals:

    percentile    q(a) to q(1 - a)                        q: quantiles of t*
    basic         2 t - q(1 - a) to 2 t - q(a)            the percentile interval, reflected at t
    normal        t -+ z s                                s: standard deviation of t*

The quantile q(a) is the one at the rank a (R + 1), and a is smaller than (1 - level) / 2 if few units are resampled
(:func:`pcmcnet.evaluation.bootstrap.expanded_tail`).

By default, all choices of the first fit are fixed: the columns of a logit, and everything that other models choose on
held-out sets. So a replicate takes one training run, and intervals do not include the variation of these choices. With
``repeat_search``, a replicate is a fit like the first one, which makes its own choices. Logits with fixed choices start
from their estimates. Networks are trained from new random weights, since the seed is part of their variation, and a
fitted average of six networks has replicates of six networks.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word, suggests_arguments
from pcmcnet.concurrency import raise_if_interrupted
from pcmcnet.data import ChoiceData
from pcmcnet.data.control_function import ControlFunction
from pcmcnet.data.resampling import fit_seed, resample
from pcmcnet.errors import ArtifactError, ConfigError, InputError, PcmcNetError, did_you_mean
from pcmcnet.evaluation.bootstrap import expanded_tail, relabel_classes, resampled_units
from pcmcnet.evaluation.predictions import require_training_sets
from pcmcnet.layers.threads import iterate_in_parallel, threads
from pcmcnet.models import LatentClassMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.saving import state_files
from pcmcnet.models.logit.standard_errors import FEW_CLUSTERS
from pcmcnet.progress import show_steps, without_warnings
from pcmcnet.reports.formats import ResultContent, Summary
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import number
from pcmcnet.storage import as_path, differences, json_bytes, parse_json, sole_writer, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger("pcmcnet")

Statistic = Callable[[Any], Any]
IntervalKind = Literal["percentile", "basic", "normal"]

_MIN_SUCCESS = 0.5  # share of the replicates that must have a statistic
_PLAN = "bootstrap.json"  # file of a run folder: what the replicates depend on

# -- Statistics --------------------------------------------------------------------------------------------------------


class StatisticValues(NamedTuple):
    """The numbers of a statistic with a label for each of them."""

    labels: tuple[str, ...]
    values: Floats  # (M,)


def statistic_values(result: Any) -> StatisticValues:
    """Return the numbers in the result of a statistic with their labels.

    The result is a number, an array or list of numbers, a mapping from names to results, a pandas series or data frame,
    or an object with the method ``to_frame``.

    Examples
    --------
    >>> statistic_values({"car": 0.5, "bus": [0.2, 0.3]}).labels
    ('car', 'bus [0]', 'bus [1]')
    """
    entries = list(_entries(result, ""))
    labels = tuple(label or "value" for label, _ in entries)
    if not entries or len(set(labels)) < len(labels):
        raise InputError(f"statistic: expected numbers with distinct names, got {repr(result)[:100]}.")
    return StatisticValues(labels, np.array([value for _, value in entries], np.float64))


def _entries(result: Any, name: str) -> Any:
    """Yield the label and value of each number."""
    if isinstance(result, Real | np.bool_):
        yield name, float(result)
    elif isinstance(result, Mapping):
        for key, value in result.items():
            words = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            yield from _entries(value, f"{name} {words}".strip())
    elif hasattr(result, "items") and hasattr(result, "select_dtypes"):  # a data frame
        for column, values in result.select_dtypes("number").items():
            yield from ((f"{name} {row} {column}".strip(), float(value)) for row, value in values.items())
    elif hasattr(result, "items") and hasattr(result, "to_numpy"):  # a series
        yield from _entries(dict(result.items()), name)
    elif hasattr(result, "to_frame"):
        yield from _entries(result.to_frame(), name)
    else:
        try:
            values = np.asarray(result).astype(np.float64, casting="same_kind")
        except (TypeError, ValueError) as error:
            raise InputError(
                f"statistic: expected a number, an array, a mapping or a data frame, got {type(result).__name__}."
            ) from error
        for at in np.ndindex(values.shape):
            place = f"[{', '.join(map(str, at))}]" if at else ""
            yield f"{name} {place}".strip(), float(values[at])


# -- Result ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BootstrapResult:
    """Result of :func:`bootstrap`: a statistic with standard errors and intervals, printed as a table.

    Attributes
    ----------
    labels
        Names of the M numbers of the statistic.
    values
        The statistic of the fitted model, (M,).
    draws
        The statistic of D replicates, (D, M).
    failures
        Number of replicates without a statistic, by error message.
    unit
        The resampled units: "persons", "rankings", "choice sets", or the groups defined by a column.
    n_units
        Number of resampled units with a positive weight.
    level
        Level of the intervals.
    kind
        Kind of the intervals: "percentile", "basic" or "normal".
    seed
        Seed of the replicates.
    repeat_search
        Whether each replicate repeated the search for options of the first fit.
    caveats
        Caveats of the model. Statistics that depend on coefficients without a finite estimate have no valid standard
        errors. Statistics may also depend on a column with an effect against its expected sign.
    """

    labels: tuple[str, ...]
    values: Floats  # (M,)
    draws: Floats  # (D, M)
    failures: Mapping[str, int]
    unit: str
    n_units: int
    level: float
    kind: IntervalKind
    seed: int
    repeat_search: bool = False
    caveats: tuple[str, ...] = ()

    @property
    def failed(self) -> int:
        """Number of replicates without a statistic."""
        return sum(self.failures.values())

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard error of each number: the standard deviation over the replicates."""
        return dict(zip(self.labels, self.draws.std(axis=0, ddof=1).tolist(), strict=True))

    @property
    def covariance(self) -> Floats:
        """Covariance matrix of the statistic, (M, M)."""
        covariance: Floats = np.atleast_2d(np.cov(self.draws, rowvar=False))
        return covariance

    @property
    def bias(self) -> dict[str, float]:
        """Mean of the replicates minus the statistic of the fitted model."""
        return dict(zip(self.labels, (self.draws.mean(axis=0) - self.values).tolist(), strict=True))

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Interval of each number, with the level and kind of the result."""
        return self.intervals_of()

    def intervals_of(
        self, kind: IntervalKind | None = None, level: float | None = None
    ) -> dict[str, tuple[float, float]]:
        """Return the interval of each number.

        Parameters
        ----------
        kind
            Kind of the intervals: "percentile", "basic" or "normal". Default: the kind of the result.
        level
            Level of the intervals. Default: the level of the result.

        Returns
        -------
        dict
            Lower and upper end by label.

        Raises
        ------
        ConfigError
            If the kind is unknown or the level is not between 0 and 1.
        """
        kind, level = self.kind if kind is None else kind, self.level if level is None else level
        require_word("kind", kind, get_args(IntervalKind))
        require_number("level", level, low=0, high=1, open_low=True, open_high=True)
        if kind == "normal":
            from scipy.special import ndtri

            half = float(ndtri((1 + level) / 2)) * self.draws.std(axis=0, ddof=1)
            low, high = self.values - half, self.values + half
        else:
            tail = expanded_tail(level, self.n_units)
            low, high = np.quantile(self.draws, [tail, 1 - tail], axis=0, method="weibull")
            if kind == "basic":
                low, high = 2 * self.values - high, 2 * self.values - low
        return dict(zip(self.labels, zip(low.tolist(), high.tolist(), strict=True), strict=True))

    def __getitem__(self, label: str) -> Floats:
        """Return the values of one number in all replicates, (D,)."""
        if label not in self.labels:
            raise InputError(f"no statistic {label!r}." + did_you_mean(label, self.labels))
        values: Floats = self.draws[:, self.labels.index(label)]
        return values

    def to_frame(self) -> Any:
        """Return a pandas data frame indexed by name, with columns value, std_error, lower, upper and bias."""
        lower, upper = zip(*self.intervals.values(), strict=True)
        columns: dict[str, Any] = {
            "name": self.labels,
            "value": self.values,
            "std_error": self.standard_errors.values(),
        }
        columns |= {"lower": lower, "upper": upper, "bias": self.bias.values()}
        table = pa.table({name: list(values) for name, values in columns.items()})
        return data_frame(table, index="name", instead="standard_errors and intervals")

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "unit": self.unit,
            "n_units": self.n_units,
            "replicates": len(self.draws),
            "failures": dict(self.failures),
            "level": self.level,
            "kind": self.kind,
            "seed": self.seed,
            "repeat_search": self.repeat_search,
            "values": dict(zip(self.labels, self.values.tolist(), strict=True)),
            "standard_errors": self.standard_errors,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "bias": self.bias,
            "caveats": list(self.caveats),
        }

    def summary(self) -> Summary:
        """Return the table of values, standard errors and intervals, with the number of replicates and failures."""
        facts = {"replicates": f"{len(self.draws):,}, by {self.n_units:,} {self.unit}", "intervals": self.kind}
        if self.repeat_search:
            facts["search"] = "repeated in each replicate"
        errors, ends = self.standard_errors, self.intervals
        levels = [f"{end:.3g}" for end in ((1 - self.level) / 2, (1 + self.level) / 2)]
        rows = [
            (name, number(value), f"{errors[name]:.3g}", *(number(end) for end in ends[name]))
            for name, value in zip(self.labels, self.values.tolist(), strict=True)
        ]
        failures = [f"{count:,} failed replicates are left out: {message}" for message, count in self.failures.items()]
        notes = [*failures, *self.caveats]
        enough = math.ceil(1 / expanded_tail(self.level, self.n_units) - 1e-6) - 1  # 1e-6: rounding
        if self.kind != "normal" and len(self.draws) < enough:
            notes.append(
                f"with fewer than {enough:,} replicates, the intervals end at the smallest and largest replicate, and "
                f"are too short"
            )
        if self.n_units < FEW_CLUSTERS:
            notes.append(
                f"standard errors tend to be too small with fewer than about {FEW_CLUSTERS} {self.unit}; this table "
                f"has {self.n_units}"
            )
        return Summary("Bootstrap", facts, ("statistic", "value", "std err", *levels), tuple(rows), tuple(notes))

    def _content(self) -> ResultContent:
        return self.summary()._content()

    def __str__(self) -> str:
        return str(self.summary())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.summary().to_html()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the values with their intervals, one row per number.

        Parameters
        ----------
        ax
            Axes to draw on. If None (default), a new figure is created.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from pcmcnet.plots.comparison import plot_bootstrap

        return plot_bootstrap(self, ax)


# -- Bootstrap ---------------------------------------------------------------------------------------------------------


class Draw(NamedTuple):
    """The statistic of a replicate, or the message of its error."""

    values: Floats | None
    error: str | None = None


def fit_replicate(
    model: ChoiceModel,
    data: ChoiceData,
    source: np.random.SeedSequence,
    groups: ArrayLike,
    first_stage: ControlFunction | None = None,
    repeat_search: bool = False,
) -> ChoiceModel:
    """Return the model fitted to a resample of the groups, with its classes numbered as in the model.

    If there is a first stage, it is estimated on the resample too. With ``repeat_search``, nothing that the model chose
    on held-out sets is fixed.
    """
    train = resample(data, source, groups)
    if first_stage is not None:
        train = first_stage.refit(train.weights).data
    if repeat_search:
        unfitted = type(model)(**model.get_params(deep=False))
        replicate = unfitted._fit_unchecked(train, seed=fit_seed(source), progress=False)
    else:
        replicate = model._replicate(train, fit_seed(source))
    if isinstance(model, LatentClassMNL) and isinstance(replicate, LatentClassMNL):
        values = replicate.estimates_.values
        relabelled = relabel_classes(model, values)
        if not np.array_equal(relabelled, values):
            return replicate.with_values(relabelled)
    return replicate


@suggests_arguments(call="bootstrap(model, data, lambda model: model.coefficients['time'])")
def bootstrap(
    model: ChoiceModel,
    data: Any,
    statistic: Statistic,
    *,
    by: str | ArrayLike = "person",
    first_stage: ControlFunction | None = None,
    replicates: int = 100,
    level: float = 0.95,
    kind: IntervalKind = "percentile",
    seed: int = 0,
    repeat_search: bool = False,
    workers: int | None = None,
    run_folder: str | Path | None = None,
    progress: bool = True,
) -> BootstrapResult:
    """Compute standard errors and intervals of any statistic of a fitted model by the Bayesian bootstrap.

    The model is fitted again to the table with random weights for the persons. Options that the first fit chose on
    held-out sets, such as the weight decay of a network, are fixed unless ``repeat_search`` is set.

    Parameters
    ----------
    model
        A fitted model. It is not changed.
    data
        The choice sets that the model was fitted to: ``ChoiceData``, or a table that its schema can read.
    statistic
        Function of a fitted model, such as ``lambda m: pn.scenario(m, data, "price *= 1.1").shares["car"].change``. It
        returns a number, an array, a mapping from names to numbers, or a data frame, of the same form for every
        replicate. Several threads may call it at the same time.
    by
        Units to resample: "person" (default) for persons if the table declares them, and otherwise rankings or choice
        sets; the name of the choice-set column for choice sets; another column; or an array with one value per choice
        set.
    first_stage
        First stage of a control function, if the model was fitted to ``first_stage.data``. It is estimated again in
        each replicate. Default None: the model has no first stage.
    replicates
        Number of replicates, each of which is a fit. Default 100, which is enough for standard errors and rough
        intervals; use 1,000 for precise intervals.
    level
        Level of the intervals. Default 0.95.
    kind
        Kind of the intervals: "percentile" (default), "basic" or "normal". ``result.intervals_of(kind)`` computes the
        others.
    seed
        Seed of the replicates. Replicate k does not depend on the number of replicates. Default 0.
    repeat_search
        Whether each replicate repeats the choices that the first fit made on held-out sets. Replicates then take as
        long as the first fit, and standard errors include the variation of these choices, which matters for networks on
        small tables. Default False: the choices are fixed.
    workers
        Number of replicates that are fitted at the same time, each by one thread. Default: the number of threads that
        PyTorch may use.
    run_folder
        Folder to which each replicate is written. A second call with the same arguments reads the replicates that are
        already in the folder, so that an interrupted run continues. Default None: nothing is written.
    progress
        Whether to report progress: a progress bar on a terminal, otherwise one log line per replicate. Default True.

    Returns
    -------
    BootstrapResult
        The statistic of the model, its standard errors and intervals, and the statistics of all replicates. Replicates
        whose fit or statistic fails are left out and counted by error message.

    Raises
    ------
    InputError
        If the model was fitted to other choice sets, the statistic has no finite numbers, or most replicates fail.
    ArtifactError
        If the run folder contains something else, such as replicates of another model.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> rng = np.random.default_rng(0)
    >>> table = {"trip": np.repeat(np.arange(50), 2), "cost": rng.random(100), "took": np.tile([1, 0], 50)}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> model = MNL().fit(data)
    >>> result = bootstrap(model, data, lambda m: m.coefficients, replicates=20, progress=False)
    >>> result.labels, result.draws.shape
    (('cost',), (20, 1))
    """
    # 1. Check the arguments, and compute the statistic of the model itself.
    require_number("replicates", replicates, whole=True, low=2)
    require_number("seed", seed, whole=True, low=0)
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    require_word("kind", kind, get_args(IntervalKind))
    if not isinstance(repeat_search, bool):
        raise ConfigError(f"repeat_search must be true or false, got {repeat_search!r}.")
    if workers is not None:
        require_number("workers", workers, whole=True, low=1)
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a fitted model, got {type(model).__name__}.")
    if not callable(statistic):
        raise InputError(
            f"statistic: expected a function of a model, such as lambda model: model.coefficients['time'], "
            f"got {type(statistic).__name__}."
        )
    sets = require_training_sets(model, data)
    _require_first_stage(first_stage, sets)
    groups, unit, n_units = resampled_units(sets, by)
    labels, values = statistic_values(statistic(model))
    if not np.isfinite(values).all():
        unknown = [name for name, value in zip(labels, values, strict=True) if not np.isfinite(value)]
        raise InputError(f"statistic: expected finite numbers for the model, but {unknown[0]!r} is not finite.")
    # 2. Fit the replicates that are not yet in the run folder.
    sources = np.random.SeedSequence(seed).spawn(replicates)
    compute = partial(
        _draw, model, sets, statistic, labels, groups, first_stage=first_stage, repeat_search=repeat_search
    )
    store = (
        None
        if run_folder is None
        else _DrawStore.of(as_path(run_folder), model, sets, groups, seed, labels, values, first_stage, repeat_search)
    )
    with nullcontext() if store is None else sole_writer(store.folder):
        draws = _compute_draws(compute, sources, store, threads() if workers is None else workers, progress)
    # 3. Leave out failed replicates, and count them by message.
    successes = [draw.values for draw in draws if draw.values is not None]
    failures = Counter(draw.error for draw in draws if draw.error is not None)
    if len(successes) < max(2, _MIN_SUCCESS * replicates):
        message, count = failures.most_common(1)[0]
        raise InputError(f"{sum(failures.values())} of {replicates} replicates failed, {count} of them with: {message}")
    for message, count in failures.items():
        log.warning("%d of %d replicates failed and are left out: %s", count, replicates, message)
    return BootstrapResult(
        labels=labels,
        values=values,
        draws=np.stack(successes),
        failures=dict(failures),
        unit=unit,
        n_units=n_units,
        level=level,
        kind=kind,
        seed=seed,
        repeat_search=repeat_search,
        caveats=model.caveats,
    )


def _require_first_stage(first_stage: ControlFunction | None, sets: ChoiceData) -> None:
    """Raise InputError unless the choice sets are those of the first stage, if there is one."""
    if first_stage is None:
        return
    if not isinstance(first_stage, ControlFunction):
        raise InputError(f"first_stage: expected a ControlFunction, got {type(first_stage).__name__}.")
    if first_stage.data.fingerprint() != sets.fingerprint():
        raise InputError("first_stage: the model was fitted to other choice sets: fit it to first_stage.data.")


def _draw(
    model: ChoiceModel,
    sets: ChoiceData,
    statistic: Statistic,
    labels: Sequence[str],
    groups: ArrayLike,
    source: np.random.SeedSequence,
    first_stage: ControlFunction | None = None,
    repeat_search: bool = False,
) -> Draw:
    """Return the statistic of a replicate, or the message of the error that its fit or its statistic raised."""
    raise_if_interrupted()
    try:
        with without_warnings():  # the warnings of the first fit apply
            replicate = fit_replicate(model, sets, source, groups, first_stage, repeat_search)
            result = statistic_values(statistic(replicate))
    except StopIteration as error:  # it would end the iteration over the replicates
        raise RuntimeError("the statistic raised StopIteration") from error
    except (PcmcNetError, ArithmeticError, np.linalg.LinAlgError) as error:
        return Draw(None, f"{type(error).__name__}: {error}")
    if result.labels != tuple(labels):
        return Draw(None, "the statistic has other names or another shape than for the model")
    if not np.isfinite(result.values).all():
        return Draw(None, "the statistic is not finite")
    return Draw(result.values)


def _compute_draws(
    compute: Callable[[np.random.SeedSequence], Draw],
    sources: Sequence[np.random.SeedSequence],
    store: _DrawStore | None,
    workers: int,
    progress: bool,
) -> list[Draw]:
    """Return the draws of all replicates: those in the folder, and new ones, which are written to the folder."""
    draws: dict[int, Draw] = {} if store is None else store.open(len(sources))
    missing = [k for k in range(len(sources)) if k not in draws]
    new_draws = iterate_in_parallel(lambda k: compute(sources[k]), missing, max_workers=workers, on_abort=lambda: None)
    with show_steps(len(sources), show=progress) as steps, closing(new_draws):
        for k in draws:
            steps.end(f"replicate {k + 1}", "already computed")
        for k, draw in zip(missing, new_draws, strict=True):
            draws[k] = draw
            if store is not None:
                store.write(k, draw)
            steps.end(f"replicate {k + 1}", draw.error or "done")
    return [draws[k] for k in range(len(sources))]


# -- Run folder --------------------------------------------------------------------------------------------------------
# bootstrap.json contains everything that the replicates depend on, and replicate-1.json, ... the statistic of each. The
# statistic itself is a function, so it is identified by its names and by its values for the model.


@dataclass(frozen=True)
class _DrawStore:
    """Folder that stores the statistic of each replicate."""

    folder: Path
    plan: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        folder: Path,
        model: ChoiceModel,
        sets: ChoiceData,
        groups: Any,
        seed: int,
        labels: Sequence[str],
        values: Floats,
        first_stage: ControlFunction | None = None,
        repeat_search: bool = False,
    ) -> _DrawStore:
        """Return the store of a bootstrap with these arguments."""
        plan = {
            "model": model.name,
            "fitted model": _model_digest(model),
            "table": sets.fingerprint(),
            "groups": hashlib.sha256(np.ascontiguousarray(groups).tobytes()).hexdigest(),
            "seed": int(seed),
            "statistic": dict(zip(labels, values.tolist(), strict=True)),
        }
        if first_stage is not None:
            plan["first stage"] = first_stage.source.fingerprint()
        if repeat_search:
            plan["repeat_search"] = True
        return cls(folder, parse_json(json.dumps(plan)))

    def open(self, replicates: int) -> dict[int, Draw]:
        """Create the folder, or return the draws of a folder with the same plan; a damaged file counts as missing."""
        path = self.folder / _PLAN
        if not path.exists():
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
                raise ArtifactError(f"{self.folder} exists but contains no bootstrap: choose another folder.")
            write_bytes(path, json_bytes(self.plan))
            return {}
        try:
            saved = dict(parse_json(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise ArtifactError(f"{path} is damaged ({error}): choose another folder, or remove this one.") from error
        if saved != self.plan:
            raise ArtifactError(
                f"{self.folder} contains a bootstrap with other arguments: {', '.join(differences(saved, self.plan))}. "
                f"Use the same model, table, statistic and seed, or choose another folder."
            )
        draws = {k: self._read(k) for k in range(replicates) if self._path(k).exists()}
        return {k: draw for k, draw in draws.items() if draw is not None}

    def write(self, k: int, draw: Draw) -> None:
        """Write the draw of replicate k."""
        entries = {"values": None if draw.values is None else draw.values.tolist(), "error": draw.error}
        write_bytes(self._path(k), json_bytes(entries))

    def _read(self, k: int) -> Draw | None:
        """Return the stored draw of replicate k, or None if the file is damaged."""
        try:
            entries = parse_json(self._path(k).read_bytes())
            if entries["error"] is not None:
                return Draw(None, str(entries["error"]))
            values = np.array(entries["values"], np.float64)
            if values.shape != (len(self.plan["statistic"]),) or not np.isfinite(values).all():
                raise ValueError("other values")
        except (OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s is damaged (%s): computing this replicate again", self._path(k), error)
            return None
        return Draw(values)

    def _path(self, k: int) -> Path:
        return self.folder / f"replicate-{k + 1}.json"


def _model_digest(model: ChoiceModel) -> str:
    """Return a hash of the state of a model. Two identical fits have the same hash, although their durations differ."""
    digest = hashlib.sha256()
    for name, content in sorted(state_files(model).items()):
        is_json = name.endswith(".json")
        digest.update(name.encode() + (json_bytes(_without_durations(parse_json(content))) if is_json else content))
    return digest.hexdigest()


def _without_durations(entries: Any) -> Any:
    """Return JSON values without the durations of a fit, which differ between identical fits."""
    if isinstance(entries, Mapping):
        return {name: _without_durations(value) for name, value in entries.items() if name != "seconds"}
    return [_without_durations(value) for value in entries] if isinstance(entries, list) else entries
