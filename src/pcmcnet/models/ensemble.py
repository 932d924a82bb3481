"""Deep ensembles: one model fitted n times with different seeds (Lakshminarayanan, Pritzel & Blundell, 2017).

The probabilities are means over the members, P(i | S) = 1/n sum_k P_k(i | S). The variation between members measures
the uncertainty of the fit and is reported as intervals.

The seed changes the initial weights and the order in which choice sets are used in training. If a model does not depend
on the seed, all members are equal. With ``resample``, each member also has random weights for the persons, or for the
choice sets of a table without persons (:mod:`pcmcnet.data.resampling`). The members then differ as if they were fitted
to different samples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, Sets
from pcmcnet.data.columns.ragged import ordered_pairs
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.data.resampling import fit_seed, resample
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FitRecord, FittedState, TrainingTable
from pcmcnet.models.networks.mixture_model import one_network
from pcmcnet.models.wrapper import Wrapper, build_model, instance_property, member_files, restore_member
from pcmcnet.reports.formats import Summary
from pcmcnet.training.run_folder import member_folder, open_run_folder

log = logging.getLogger("pcmcnet")

# -- Values of the members of an ensemble -> their mean and an interval ------------------------------------------------
#
#     m +- t sd sqrt(1 + 1/n),        t the Student quantile at n - 1 degrees of freedom,
#
# is the prediction interval for one more member, from the mean m and standard deviation sd of n members: with
# probability `level` it contains the value of that member, if the values are normal. Quantiles of the members would be
# too narrow: the range of five members contains a sixth with probability 2/3 only. Intervals of probabilities are
# computed from log-odds, which are closer to normal, and so stay between 0 and 1.

MIN_LOG_ODDS, MAX_LOG_ODDS = -745.0, 37.0  # log-odds of the smallest probability above 0, and of the largest below 1


class Spread(NamedTuple):
    """Values of a function for all members of an ensemble, with the mean and an interval."""

    values: Floats  # (n, ...) of each member
    mean: Floats  # (...)
    low: Floats  # (...) lower end of the interval
    high: Floats  # (...) upper end of the interval


def log_mean_exp(logs: Floats) -> Floats:  # (n, N) -> (N,)
    """Return log(mean(exp(logs))). The result is exact if all values are equal, and -inf if all are -inf."""
    top = logs.max(axis=0)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        mean: Floats = shift + np.log(np.exp(logs - shift).mean(axis=0))
    return mean


def log_odds(log_p: Floats) -> Floats:
    """Return the logit, log(p / (1 - p)), clipped to finite values."""
    with np.errstate(divide="ignore"):
        odds: Floats = log_p - np.log(-np.expm1(np.minimum(log_p, 0.0)))
    return odds.clip(MIN_LOG_ODDS, MAX_LOG_ODDS)


def prediction_interval(values: Floats, level: float) -> tuple[Floats, Floats]:  # (n, ...) -> (...), (...)
    """Return the prediction interval that contains a new value with probability ``level``."""
    from scipy.special import stdtrit

    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    n, is_equal = len(values), (values == values[0]).all(axis=0)
    finite = np.where(is_equal, 0.0, values)
    if not np.isfinite(finite).all():
        raise InputError(f"expected finite numbers from every member, got {finite[~np.isfinite(finite)][0]}.")
    half_width = stdtrit(n - 1, (1 + level) / 2) * finite.std(axis=0, ddof=1) * np.sqrt(1 + 1 / n)
    mean = np.where(is_equal, values[0], finite.mean(axis=0))
    return mean - half_width, mean + half_width


@dataclass(frozen=True, kw_only=True)
class EnsembleConfig:
    """Options of an ensemble.

    Parameters
    ----------
    model
        Registry name of the members' model. ``Ensemble`` also accepts a model object instead of a name and options.
    options
        Options of each member. For a network, ``members="auto"`` means one network per member, because the ensemble
        already averages its members.
    n
        Number of members, at least 2.
    resample
        Whether each member weights the persons at random, or the choice sets of a table without persons (Bayesian
        bootstrap), so that intervals include the sampling error of the table.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int = 5
    resample: bool = False

    def __post_init__(self) -> None:
        require_number("n", self.n, whole=True, low=2)
        if not isinstance(self.resample, bool):
            raise ConfigError(f"resample must be true or false, got {self.resample!r}.")
        member = build_model(self.model, self.options)
        if isinstance(member, Ensemble):
            raise ConfigError("the members of an ensemble cannot be ensembles: use a larger n instead.")
        object.__setattr__(self, "options", {**asdict(member.config), **one_network(member.config)})


@dataclass(frozen=True, kw_only=True)
class EnsembleRecord(FitRecord):
    """Record of a fit: the seeds of the members."""

    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FittedEnsemble(FittedState):
    """The fitted members."""

    members: tuple[ChoiceModel, ...]
    record: EnsembleRecord


class _EnsembleOptions(TypedDict, total=False):
    """Other options, checked by :class:`EnsembleConfig`."""

    resample: bool


class Ensemble(Wrapper):
    """An ensemble: the mean of n fits of a model with different seeds, with intervals from the variation between fits.

    Parameters
    ----------
    model
        Model to fit n times: a model object, which stays unchanged, or the registry name of a model.
    n
        Number of members, at least 2. Default 5.
    options
        Options of the model, if ``model`` is a name. If None (default), the model's default options are used.
    encoders
        Custom encoders of the model, if ``model`` is a name (default None). See :class:`NeuralModel`.
    resample
        Whether each member weights the persons at random, or the choice sets of a table without persons (Bayesian
        bootstrap), so that intervals include the sampling error of the table. Default False.

    Attributes
    ----------
    members_
        The fitted members.

    Examples
    --------
    >>> Ensemble("mnl", n=3).config.n
    3
    """

    name = "ensemble"
    config_class = EnsembleConfig
    config: EnsembleConfig
    _state: FittedEnsemble
    record_class = EnsembleRecord
    streams = instance_property(lambda ensemble: ensemble._inner().streams and not ensemble.config.resample)

    def __init__(
        self,
        model: ChoiceModel | str | None = None,
        n: int = 5,
        *,
        options: Mapping[str, Any] | None = None,
        encoders: Mapping[str, Any] | None = None,
        **more: Unpack[_EnsembleOptions],
    ) -> None:
        super().__init__(model, options, encoders, n=n, **more)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedEnsemble:
        members, seeds = [], []
        with open_run_folder(run.run_folder, resume=run.resume):
            # The seeds of the first members do not depend on n, so an ensemble can be resumed with more members.
            for k, source in enumerate(np.random.SeedSequence(run.seed).spawn(self.config.n), start=1):
                seeds.append(fit_seed(source))
                log.info("member %d of %d", k, self.config.n)
                part = resample(train, source) if self.config.resample else train
                members.append(self._inner()._fit_unchecked(part, valid, **_member_arguments(run, k, seeds[-1])))
        return FittedEnsemble(members=tuple(members), record=EnsembleRecord(seeds=tuple(seeds)))

    def _refit(self, train: ChoiceData, run: FitRun) -> FittedEnsemble:
        seeds = np.random.SeedSequence(run.seed).spawn(self.config.n)
        members = [member._replicate(train, fit_seed(seed)) for member, seed in zip(self.members_, seeds, strict=True)]
        return replace(self._state, members=tuple(members))

    @property
    def members_(self) -> tuple[ChoiceModel, ...]:
        """The fitted members."""
        return self._state.members

    def survey(self, train: Sets, valid: Sets | None) -> None:
        """Learn the encoders that all members share."""
        self._inner().survey(train, valid)

    # -- predictions ------------------------------------------------------------------------------------------

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_mean_exp(self._log_p_of_members(data))

    def _scores(self, data: ChoiceData) -> Floats:
        if self.gives != "ranking":
            return self._log_proba(data)
        mean: Floats = np.mean([member._scores(data) for member in self.members_], axis=0)
        return mean

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """Return the slopes d log P_i = sum_k P_ki d log P_ki / sum_k P_ki."""
        slopes_of_members = [s for member in self.members_ if (s := member._slopes(data, column)) is not None]
        if len(slopes_of_members) < len(self.members_):
            return None
        logs = self._log_p_of_members(data)
        share = np.exp(logs - log_mean_exp(logs)) / len(logs)  # (n, N)
        of = ordered_pairs(data.offsets)[0] if column in data.features else np.arange(len(data.rows))
        mean: Floats = np.einsum("kp,kp->p", share[:, of], np.stack(slopes_of_members))
        return mean

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """Return the log-sums and class shares of all members; the shares of each member sum to 1/n."""
        log_sums = [sums for member in self.members_ if (sums := member._log_sums(data)) is not None]
        if len(log_sums) < len(self.members_):
            return None
        shares = np.concatenate([pi for _, pi in log_sums], 1) / len(log_sums)
        return np.concatenate([s for s, _ in log_sums], 1), shares

    def _log_p_of_members(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities of each member (n, N)."""
        return np.stack([member._log_proba(data) for member in self.members_])

    def predict_interval(self, data: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return an interval for each probability, based on the variation between members.

        Parameters
        ----------
        data
            Choice sets or a table, as for ``predict_proba``.
        level
            Probability that the interval contains the prediction of an additional member. Default 0.9.

        Returns
        -------
        low, high : ndarray
            Lower and upper ends of the intervals, in the row order of the table. The interval always contains the
            predicted probability. Both ends are 0 for unavailable rows.
        """
        from scipy.special import expit  # slow to import

        # 1. Compute intervals of the members' log-odds, which are closer to normal than probabilities.
        sets = self._read(data)
        logs = self._log_p_of_members(sets)
        p = np.exp(log_mean_exp(logs))
        low, high = prediction_interval(log_odds(logs), level)
        # 2. Convert the ends to probabilities, and widen the interval if the mean probability is outside.
        is_equal = (logs == logs[0]).all(axis=0)  # then the interval is a point, without rounding errors
        ends = np.where(is_equal, p, np.minimum(expit(low), p)), np.where(is_equal, p, np.maximum(expit(high), p))
        return sets.to_rows(ends[0]), sets.to_rows(ends[1])

    def over(self, function: Callable[[Any], ArrayLike], level: float = 0.9) -> Spread:
        """Evaluate a function for every member, and return the values with their mean and interval.

        Parameters
        ----------
        function
            Function that takes a fitted model and returns a number or an array of the same shape for all members.
        level
            Probability that the interval contains the value for an additional member. Default 0.9.

        Returns
        -------
        Spread
            The ``values`` (n, ...) of the members, their ``mean``, and the ends ``low`` and ``high`` of the interval.

        Raises
        ------
        InputError
            If the shapes differ between members, or a value is not finite.

        Examples
        --------
        >>> table = {"trip": [1, 1, 2, 2, 3, 3], "took": [1, 0, 0, 1, 1, 0], "cost": [1, 2, 3, 2, 2, 1]}
        >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
        >>> spread = Ensemble("mnl", n=3).fit(data).over(lambda model: model.score(data))
        >>> spread.values.shape, bool(spread.low == spread.mean == spread.high)  # a logit does not depend on the seed
        ((3,), True)
        """
        by_member = [np.asarray(function(member), dtype=np.float64) for member in self.members_]
        shapes = {value.shape for value in by_member}
        if len(shapes) > 1:
            raise InputError(f"function: expected the same shape for all members, got {sorted(shapes)}.")
        values = np.stack(by_member)
        low, high = prediction_interval(values, level)
        mean = np.where((values == values[0]).all(axis=0), values[0], values.mean(axis=0))
        return Spread(values, mean, low, high)

    # -- about the model --------------------------------------------------------------------------------------

    @property
    def num_parameters(self) -> int:
        """Total number of parameters of all members."""
        return sum(member.num_parameters for member in self.members_)

    def _unseen_categories(self, data: ChoiceData) -> UnseenCounts:
        return self.members_[0]._unseen_categories(data)  # all members are fitted to the same table

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Caveats of the members, and a caveat if all members are equal."""
        caveats = dict.fromkeys(caveat for member in self.members_ for caveat in member.fit_caveats)
        first, *rest = (member._files() for member in self.members_)
        are_equal = all(files == first for files in rest)
        note = "all members are equal, because the model does not depend on the seed: use resample=True"
        return (*caveats, *([note] if are_equal else []))

    def summary(self) -> Summary:
        """Return a table of the members with their seeds and training losses."""
        kind = type(self.members_[0]).__name__
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in self.config.options.items()),
            "trained on": f"{self.table_.choice_sets:,} choice sets, {self.table_.alternatives:,} alternatives"
            + (", with random weights for each member" if self.config.resample else ""),
            **self._sign_facts(),
            "parameters": f"{self.num_parameters:,} in total",
        }
        rows = [
            (f"{k + 1}", f"{seed}", f"{member.num_parameters:,}", _training_nll(member))
            for k, (seed, member) in enumerate(zip(self._state.record.seeds, self.members_, strict=True))
        ]
        title = f"Ensemble of {len(rows)} {kind} models"
        return Summary(title, facts, ("member", "seed", "parameters", "training NLL"), tuple(rows), self.caveats)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for k, member in enumerate(self.members_, start=1):
            files |= member_files(member, k)
        return files

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedEnsemble:
        members = tuple(restore_member(files, k, self.extras) for k in range(1, self.config.n + 1))
        return FittedEnsemble(members=members, record=record)


def _member_arguments(run: FitRun, number: int, seed: int) -> dict[str, Any]:
    """Return the arguments for fitting a member: its seed, run folder and a callback that adds the member's number."""
    folder, report = run.run_folder, run.on_epoch
    return {
        **run.inner_arguments,
        "seed": seed,
        "run_folder": None if folder is None else member_folder(folder, number),
        "on_epoch": None if report is None else lambda entry: report({**entry, "member": number}),
    }


def _training_nll(member: ChoiceModel) -> str:
    """Return the final training loss of a member, or "-" if it is unknown."""
    loss = member.history[-1]["train_loss"] if member.history else getattr(member.record_, "nll", None)
    return "-" if loss is None else f"{loss:.4f}"
