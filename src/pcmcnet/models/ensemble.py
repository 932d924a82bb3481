"""Deep ensembles: one model fitted n times, from seeds of its own each (Lakshminarayanan, Pritzel & Blundell, 2017).

The probabilities are the mean of the members', and so are a law: P(i | S) = 1/n sum_k P_k(i | S). What the members do
not agree on is not known from the data, and intervals (see ``spread``) say so.

Seeds alone vary the start and the order of training: models without either have equal members. With ``resample`` each
member also weighs the choice sets by draws of an exponential law, the Bayesian bootstrap (Rubin, 1981), and the members
differ as fits to other tables of the kind would.
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
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FitRecord, FittedState, TrainingTable
from pcmcnet.models.networks.mixture_model import one_network
from pcmcnet.models.wrapper import Wrapper, build_model, instance_property, member_files, restore_member
from pcmcnet.reports.formats import Summary
from pcmcnet.training.run_folder import member_folder, open_run_folder

log = logging.getLogger("pcmcnet")

# -- Answers of the members of an ensemble -> their mean and an interval -----------------------------------------------
#
#     m +- t sd sqrt(1 + 1/n),        t the Student quantile at n - 1 degrees of freedom,
#
# with mean m and standard deviation sd of the values of n members: where one more member would come to lie, with the
# probability `level`, were the values normal. Quantiles of the members are no alternative: the range of five members
# holds a sixth two times in three. Probabilities are nearer to normal on the scale of log-odds, on which their
# intervals are taken; so they stay between 0 and 1.

LEAST, MOST = -745.0, 37.0  # log-odds of the smallest probability above 0, and of the largest below 1


class Spread(NamedTuple):
    """What the members of an ensemble make of a question."""

    values: Floats  # (n, ...) of each member
    mean: Floats  # (...)
    low: Floats  # (...) ends of the interval
    high: Floats


def log_mean_exp(logs: Floats) -> Floats:  # (n, N) -> (N,)
    """Log of the mean of exponentials; exact where all are equal, and -inf where all are."""
    top = logs.max(axis=0)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        mean: Floats = shift + np.log(np.exp(logs - shift).mean(axis=0))
    return mean


def log_odds(log_p: Floats) -> Floats:
    """Log p / (1 - p), kept finite."""
    with np.errstate(divide="ignore"):
        odds: Floats = log_p - np.log(-np.expm1(np.minimum(log_p, 0.0)))
    return odds.clip(LEAST, MOST)


def prediction_interval(values: Floats, level: float) -> tuple[Floats, Floats]:  # (n, ...) -> (...), (...)
    """Return the ends between which one more value lies with probability ``level``; a point where all are equal."""
    from scipy.special import stdtrit

    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    n, same = len(values), (values == values[0]).all(axis=0)
    finite = np.where(same, 0.0, values)
    if not np.isfinite(finite).all():
        raise InputError(f"expected finite numbers from every member, got {finite[~np.isfinite(finite)][0]}.")
    reach = stdtrit(n - 1, (1 + level) / 2) * finite.std(axis=0, ddof=1) * np.sqrt(1 + 1 / n)
    middle = np.where(same, values[0], finite.mean(axis=0))
    return middle - reach, middle + reach


@dataclass(frozen=True, kw_only=True)
class EnsembleConfig:
    """Options of an ensemble.

    Parameters
    ----------
    model, options
        Name of the members' model, and its options. ``Ensemble`` also takes a model object in place of both. A model
        that averages several networks by a rule of its own (``members="auto"``) has one here: the ensemble averages.
    n
        Number of members.
    resample
        Whether each member weighs the choice sets anew: for intervals that also tell what another table of the same
        size might have taught.
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
            raise ConfigError("the members of an ensemble cannot be ensembles: ask for more members instead.")
        object.__setattr__(self, "options", {**asdict(member.config), **one_network(member.config)})


@dataclass(frozen=True, kw_only=True)
class EnsembleRecord(FitRecord):
    """The seeds of the members."""

    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FittedEnsemble(FittedState):
    """The fitted members."""

    members: tuple[ChoiceModel, ...]
    record: EnsembleRecord


class _More(TypedDict, total=False):
    """Options that are checked by their config, where an unknown one is told the nearest known."""

    resample: bool


class Ensemble(Wrapper):
    """The mean of n fits of a model, with intervals.

    Parameters
    ----------
    model
        What to fit n times: a model, which stays as it is, or the name of one with its ``options``.
    n
        Number of members.
    encoders
        Of a model given by its name: see :class:`NeuralModel`.
    options
        Others of :class:`EnsembleConfig`.

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
        **more: Unpack[_More],
    ) -> None:
        super().__init__(model, options, encoders, n=n, **more)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedEnsemble:
        members, seeds = [], []
        with open_run_folder(run.run_folder, resume=run.resume):
            # The seeds of the first members do not depend on n: an ensemble can be resumed with more members.
            for k, source in enumerate(np.random.SeedSequence(run.seed).spawn(self.config.n), start=1):
                seeds.append(int(source.generate_state(1, np.uint64)[0] >> 1))
                log.info("member %d of %d", k, self.config.n)
                part = _reweighted(train, source) if self.config.resample else train
                members.append(self._inner().fit(part, valid, **_member_arguments(run, k, seeds[-1])))
        return FittedEnsemble(members=tuple(members), record=EnsembleRecord(seeds=tuple(seeds)))

    @property
    def members_(self) -> tuple[ChoiceModel, ...]:
        """The fitted members."""
        return self._state.members

    def survey(self, train: Sets, valid: Sets | None) -> None:
        """Learn what the members need: they are fitted to the same sets."""
        self._inner().survey(train, valid)

    # -- answers ----------------------------------------------------------------------------------------------

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_mean_exp(self._log_p_of_members(data))

    def _scores(self, data: ChoiceData) -> Floats:
        if self.gives != "ranking":
            return self._log_proba(data)
        mean: Floats = np.mean([member._scores(data) for member in self.members_], axis=0)
        return mean

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """D log P_i = sum_k P_ki d log P_ki / sum_k P_ki."""
        found = [slopes for member in self.members_ if (slopes := member._slopes(data, column)) is not None]
        if len(found) < len(self.members_):
            return None
        logs = self._log_p_of_members(data)
        share = np.exp(logs - log_mean_exp(logs)) / len(logs)  # (n, N)
        of = ordered_pairs(data.offsets)[0] if column in data.features else np.arange(len(data.rows))
        mean: Floats = np.einsum("kp,kp->p", share[:, of], np.stack(found))
        return mean

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """Take the classes of all members together: what is worth something to people is the mean over members."""
        found = [sums for member in self.members_ if (sums := member._log_sums(data)) is not None]
        if len(found) < len(self.members_):
            return None
        return np.concatenate([s for s, _ in found], 1), np.concatenate([pi for _, pi in found], 1) / len(found)

    def _log_p_of_members(self, data: ChoiceData) -> Floats:
        """(n, N)."""
        return np.stack([member._log_proba(data) for member in self.members_])

    def predict_interval(self, data: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return the low and the high ends of the probabilities' intervals, one per row of the table in its order.

        The probability itself lies between them; both are 0 for unavailable rows.

        Parameters
        ----------
        data
            As for ``predict_proba``.
        level
            How probably one more member would lie inside.
        """
        from scipy.special import expit  # here, since loading it takes time that few need

        # 1. The interval of the members' log-odds, which are nearer to normal than probabilities.
        sets = self._read(data)
        logs = self._log_p_of_members(sets)
        p = np.exp(log_mean_exp(logs))
        low, high = prediction_interval(log_odds(logs), level)
        # 2. Back to probabilities; the mean of probabilities may lie outside, and is let in.
        agreed = (logs == logs[0]).all(axis=0)  # no rounding on the way to log-odds and back
        ends = np.where(agreed, p, np.minimum(expit(low), p)), np.where(agreed, p, np.maximum(expit(high), p))
        return sets.to_rows(ends[0]), sets.to_rows(ends[1])

    def over(self, function: Callable[[Any], ArrayLike], level: float = 0.9) -> Spread:
        """Ask every member, and return what they answer with its mean and interval.

        Parameters
        ----------
        function
            Takes a fitted model and returns a number or an array, of one shape for all members.
        level
            How probably one more member would lie inside.

        Examples
        --------
        >>> table = {"trip": [1, 1, 2, 2, 3, 3], "took": [1, 0, 0, 1, 1, 0], "cost": [1, 2, 3, 2, 2, 1]}
        >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
        >>> spread = Ensemble("mnl", n=3).fit(data).over(lambda model: model.score(data))
        >>> spread.values.shape, bool(spread.low == spread.mean == spread.high)  # a logit has nothing to vary
        ((3,), True)
        """
        answers = [np.asarray(function(member), dtype=np.float64) for member in self.members_]
        shapes = {answer.shape for answer in answers}
        if len(shapes) > 1:
            raise InputError(f"the function gives arrays of different shapes for different members: {sorted(shapes)}.")
        values = np.stack(answers)
        low, high = prediction_interval(values, level)
        mean = np.where((values == values[0]).all(axis=0), values[0], values.mean(axis=0))
        return Spread(values, mean, low, high)

    # -- about the model --------------------------------------------------------------------------------------

    @property
    def num_parameters(self) -> int:
        """Number of parameters of all members together."""
        return sum(member.num_parameters for member in self.members_)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Those of the members, and whether the members are all the same."""
        found = dict.fromkeys(caveat for member in self.members_ for caveat in member.caveats)
        first, *others = (member._files() for member in self.members_)
        same = all(files == first for files in others)
        alike = "all members are equal: the seed does not matter to this model; see the option resample"
        return (*found, *([alike] if same else []))

    def summary(self) -> Summary:
        """List the members with their seeds and training losses."""
        kind = type(self.members_[0]).__name__
        facts = {
            "options": ", ".join(f"{k}={v}" for k, v in self.config.options.items()),
            "trained on": f"{self.table_.choice_sets:,} choice sets, {self.table_.alternatives:,} alternatives"
            + (", weighed anew for each member" if self.config.resample else ""),
            "parameters": f"{self.num_parameters:,} in all",
        }
        rows = [
            (f"{k + 1}", f"{seed}", f"{member.num_parameters:,}", _training_nll(member))
            for k, (seed, member) in enumerate(zip(self._state.record.seeds, self.members_, strict=True))
        ]
        title = f"Ensemble of {len(rows)} {kind} models"
        return Summary(title, facts, ("member", "seed", "parameters", "training NLL"), tuple(rows))

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for k, member in enumerate(self.members_, start=1):
            files |= member_files(member, k)
        return files

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedEnsemble:
        members = tuple(restore_member(files, k, self.extras) for k in range(1, self.config.n + 1))
        return FittedEnsemble(members=members, record=record)


def _reweighted(data: ChoiceData, source: np.random.SeedSequence) -> ChoiceData:
    """Multiply the weights of the sets by draws of an exponential law, of mean 1."""
    draws = np.random.default_rng(source.spawn(1)[0]).exponential(size=len(data))
    return replace(data, weights=data.weights * draws)


def _member_arguments(run: FitRun, number: int, seed: int) -> dict[str, Any]:
    """Return the arguments for the fit of a member: its own seed, folder and number in the history."""
    folder, report = run.run_folder, run.on_epoch
    return {
        **run.inner_arguments,
        "seed": seed,
        "run_folder": None if folder is None else member_folder(folder, number),
        "on_epoch": None if report is None else lambda entry: report({**entry, "member": number}),
    }


def _training_nll(member: ChoiceModel) -> str:
    """Return the loss that the member ended with, if it is known."""
    loss = member.history[-1]["train_loss"] if member.history else getattr(member.record_, "nll", None)
    return "-" if loss is None else f"{loss:.4f}"
