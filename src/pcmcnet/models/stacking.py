"""Stacking (Wolpert, 1992; Breiman, 1996): a weighted average of models, with weights from out-of-fold predictions.

    P(i | S) = sum_m a_m P_m(i | S),        a_m >= 0,  sum_m a_m = 1

A fit has three steps:

    1. every model predicts every choice set by a fit that has not seen it, in K folds of whole persons
    2. the weights a maximise the likelihood of the choices under these predictions
    3. the models with a weight are fitted to all choice sets

The weights have a Dirichlet prior with one additional choice for each model, so equal weights are the answer without
data. The log-likelihood is concave in the weights, and EM climbs it: with the responsibilities r_ms of model m for the
choice in set s, and the weights w_s of the choice sets,

    r_ms = a_m p_ms / sum_l a_l p_ls,        a_m = (sum_s w_s r_ms + 1) / (sum_s w_s + M).

A stack stays in the family of Markov chains: an average of chains is the stationary distribution of a chain, with the
rates q_ij = sum_m a_m p^m_i q^m_ij / sum_m a_m p^m_i, and any model is a chain with the rates q_ij = P(j).

Shapes: S choice sets, N alternatives, M models.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.concurrency import map_tasks
from pcmcnet.data import ChoiceData, Schema, Sets
from pcmcnet.data.columns.ragged import ordered_pairs
from pcmcnet.data.kinds.category import UnseenCounts, collect_unseen
from pcmcnet.errors import ArtifactError, ConfigError, InputError, PcmcNetError
from pcmcnet.layers import stationary_distribution
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FitRecord, FittedState, TrainingTable
from pcmcnet.models.interface.known_people import KnownPeople
from pcmcnet.models.interface.sign_check import SignCheck
from pcmcnet.models.logit.formula import backquoted
from pcmcnet.models.wrapper import build_model, instance_property, member_files, restore_member
from pcmcnet.progress import StepReporter, log_line, show_steps, without_warnings
from pcmcnet.reports.formats import Summary
from pcmcnet.selection import Fold, TrialLog, cross_folds, held_out_weights, without_new_values
from pcmcnet.training.device import resolve_device
from pcmcnet.training.run_folder import SEARCH, member_folder, open_run_folder

log = logging.getLogger("pcmcnet")

T = TypeVar("T")

# By default: the chain, which has context effects; trees, which find thresholds and interactions; latent classes, since
# people differ; and the logit, which loses least if there are few choices. On 20 simulated logits of 200 to 800 sets,
# the stack without the logit was .0023 NLL behind the true model's MNL on average, and .0014 with it. If people choose
# repeatedly, tastes may also vary continuously: the mixed logit reduced the NLL of a simulated panel with normal tastes
# from .655 to .648, and of electricity from 1.132 to 1.131. If there are no features, models of labels replace trees.
DEFAULT_MODELS = ("pcmcnet", "boosted", "lc-mnl", "mnl")
PANEL_MODELS = (*DEFAULT_MODELS, "mixed-mnl")
BOUNDED_LOGITS = ("lc-mnl", "mnl")  # models whose coefficients are bounded if the table declares signs
LABEL_MODELS = ("pcmcnet", "lc-mnl", "mnl", "pcmc", "cdm")
MAX_PANEL_SETS = 10_000  # choice sets of a panel for which the mixed logit joins the stack; it is slow on larger ones
HELD_OUT_SETS = 10_000  # held-out choice sets that are enough to learn a few weights
MIN_WEIGHT = 0.01  # a model below it is not fitted to all choice sets: it would cost time and change nothing
# Additional choices for each model in the Dirichlet prior. On 49 samples of 200 to 1,000 sets from development and
# simulated tables, the mean NLL is higher by .0007 with 0 additional choices, .0004 with 3, .0018 with 10, and .0052
# with equal weights. With the mean of bootstrapped weights, or the posterior mean, the NLL differs by less than its
# standard error. With weighted log-probabilities, the NLL is higher by .003. With LCL as a member, the NLL is lower by
# .0006 (standard error .0005), but a fit takes twice as long.
PRIOR_CHOICES = 1.0
MAX_LOSS = 700.0  # of a choice that a model gives probability 0: JSON has no infinity, and exp(-700) is above 0
EM_STEPS, EM_TOLERANCE = 10_000, 1e-9  # steps at most; change of the weights at which EM ends


@dataclass(frozen=True, kw_only=True)
class StackingConfig:
    """Options of a stack.

    Parameters
    ----------
    models
        Models, or names of models as ``pcmcnet models`` lists them. Models that you pass are not changed. By default,
        the models are PCMC-Net, boosted utilities, the latent class logit and the multinomial logit. The mixed logit is
        added if people choose repeatedly (``person``) in at most 10,000 choice sets. If labels are the only features,
        PCMC and CDM replace the trees. If the table declares signs, the logits have bounds on these coefficients, and
        the mixed logit is left out. Models that you pass get no bounds.
    options
        Options of each model that is given by name, in the same order. Default: the default options of each model.
    folds
        Number of folds of the out-of-fold predictions, 3 by default. Each model is fitted once per fold, and once more
        to all choice sets. On a table of more than 15,000 choice sets, only as many folds are fitted as together hold
        out 10,000 choice sets.
    """

    models: tuple[str, ...] | None = None
    options: tuple[Mapping[str, Any], ...] = ()
    folds: int = 3

    def __post_init__(self) -> None:
        require_number("folds", self.folds, whole=True, low=2)
        if self.models is None:
            if self.options:
                raise ConfigError("options belong to models: name the models, too.")
            return
        names = (self.models,) if isinstance(self.models, str) else tuple(self.models)
        options = tuple(dict(entry) for entry in self.options) or ({},) * len(names)
        if not names or len(options) != len(names):
            raise ConfigError(f"expected options for each of the {len(names)} models of the stack, got {len(options)}.")
        models = [build_model(name, entry) for name, entry in zip(names, options, strict=True)]
        for model in models:
            if model.gives == "ranking":
                raise ConfigError(f"{type(model).__name__} gives a ranking, not probabilities: leave it out.")
        object.__setattr__(self, "models", names)
        object.__setattr__(self, "options", tuple(asdict(model.config) for model in models))


@dataclass(frozen=True, kw_only=True)
class StackMember:
    """A model of the stack: its weight, and the NLL of its out-of-fold predictions."""

    label: str
    model: str
    weight: float
    out_of_fold_nll: float | None


@dataclass(frozen=True, kw_only=True)
class StackingRecord(FitRecord):
    """How the weights were learnt.

    Parameters
    ----------
    members
        All models with out-of-fold predictions, also those whose weight is 0.
    out_of_fold_nll
        NLL of the stack: each fold is predicted with weights learnt from the other folds.
    folds
        Number of folds; 0 if the table was too small, and the weights are equal.
    left_out
        Models that could not be fitted, with the reason.
    """

    members: tuple[StackMember, ...]
    out_of_fold_nll: float | None = None
    folds: int
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FittedStack(FittedState):
    """The fitted models with a weight, and their weights (M,)."""

    record: StackingRecord
    models: tuple[ChoiceModel, ...]
    weights: Floats


class Stacking(ChainModel):
    """Weighted average of several models, for the best prediction.

    The weights maximise the likelihood of out-of-fold predictions. A model that cannot be fitted to the table is left
    out, and ``summary()`` reports it. A fit takes about as long as three fits of each model. On a table of more than
    30,000 choice sets it takes less than two.

    Attributes
    ----------
    members_
        The fitted models with a weight of at least 1%.
    weights_
        Their weights, which sum to 1.

    Examples
    --------
    >>> Stacking(["mnl", "boosted"]).config.models
    ('mnl', 'boosted')
    """

    name = "stacking"
    uses_device = True
    config_class = StackingConfig
    config: StackingConfig
    reads_contents = True
    resumes = True
    shares_tasks = True
    obeys_signs = True  # with the default models; a stack of other models is only checked
    record_class = StackingRecord
    order_matters = instance_property(
        lambda stack: any(
            build_model(name, options).order_matters
            for name, options in zip(stack.config.models or (), stack.config.options, strict=True)
        )
    )
    _state: FittedStack

    def __init__(
        self,
        models: Sequence[ChoiceModel | str] | None = None,
        *,
        options: Sequence[Mapping[str, Any]] = (),
        folds: int = 3,
        **unknown: Any,
    ) -> None:
        names, entries = _names_and_options(models, options)
        super().__init__(models=names, options=entries, folds=folds, **unknown)

    def set_params(self, **params: Any) -> Self:
        """Change options, and discard the fit.

        Parameters
        ----------
        params
            New values by name. New ``models`` have their default options unless ``options`` is given, too.

        Returns
        -------
        Self
            The model itself, unfitted.
        """
        return super().set_params(**({"options": ()} if "models" in params else {}) | params)

    # -- fit --------------------------------------------------------------------------------------------------

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedStack:
        resolve_device(run.device)  # raises if there is no such device; otherwise networks would only be left out
        # 1. A single model needs no weights, and so no folds. It gets the validation part as if it were fitted alone.
        #    The weights of several models are learnt from folds, so the validation part adds to the data.
        is_single = self.config.models is not None and len(self.config.models) == 1
        data = train if valid is None or is_single else train.concat(valid)
        models, folds = self._unfitted(data), [] if is_single else weight_folds(data, run.seed, self.config.folds)
        # 2. Say what the fit will do, and do it.
        plan = describe_plan(list(models), len(folds), len(data))
        if run.progress:
            log_line(plan)
        else:
            log.info("%s", plan)
        if data is not train:
            run = replace(run, fingerprint=data.fingerprint())
        with (
            open_run_folder(run.run_folder, resume=run.resume),
            show_steps(len(models) * (len(folds) + 1), show=run.progress) as steps,
        ):
            stack_fit = _StackFit(models, data, valid if is_single else None, run, steps)
            return stack_fit.fit(folds, self.identity)

    def _training_table(self, train: Sets, valid: Sets | None, run: FitRun, description: Any) -> TrainingTable:
        """Return information about the choice sets, with the validation part if the models are fitted to it."""
        if valid is None:
            return super()._training_table(train, valid, run, description)
        assert isinstance(train, ChoiceData)
        assert isinstance(valid, ChoiceData)
        if self.config.models is not None and len(self.config.models) == 1:
            (model,) = self._unfitted(train).values()
            return model._training_table(train, valid if model.stops_early else None, run, description)
        both = train.concat(valid)
        return TrainingTable.of(both, both.fingerprint(), run.seed, description)

    def _refit(self, train: ChoiceData, run: FitRun) -> FittedStack:
        models = [model._replicate(train, run.seed) for model in self.members_]
        return replace(self._state, models=tuple(models))

    def _unfitted(self, data: ChoiceData) -> dict[str, ChoiceModel]:
        """Return the models by label; a name that is used twice gets a number."""
        names, options = self.config.models, self.config.options
        if names is None:
            names = default_models(data)
            options = tuple(default_options(name, data.schema) for name in names)
        models: dict[str, ChoiceModel] = {}
        for name, entries in zip(names, options, strict=True):
            number = sum(label.partition(" ")[0] == name for label in models) + 1
            models[name if number == 1 else f"{name} {number}"] = build_model(name, entries)
        return models

    @property
    def members_(self) -> tuple[ChoiceModel, ...]:
        """The fitted models with a weight."""
        return self._state.models

    @property
    def weights_(self) -> Floats:
        """(M,) weights of :attr:`members_`; they sum to 1."""
        return self._state.weights

    # -- prediction -------------------------------------------------------------------------------------------

    def _log_proba(self, data: ChoiceData) -> Floats:
        return log_weighted_mean(self._member_log_p(data), self.weights_)

    def _member_log_p(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities (M, N) of the members, and report each unseen category once."""

        def log_p(member: ChoiceModel) -> Floats:
            member._unseen_categories(data).report()
            return member._log_proba(data)

        return np.stack(self._by_member(log_p))

    def _by_member(self, predict: Callable[[ChoiceModel], Floats]) -> list[Floats]:
        """Return the prediction of each member, and report each unseen category once."""
        unseen, predictions = UnseenCounts(), []
        for member in self.members_:
            with collect_unseen() as counts:
                predictions.append(predict(member))
            unseen.merge(counts)
        unseen.report()
        return predictions

    def predict_proba_given(self, data: Any, history: ChoiceData) -> Floats:
        """Return probabilities of people whose earlier choices are known, one per row of the table in its order.

        Parameters
        ----------
        data
            Choice sets to predict, as for ``predict_proba``.
        history
            Earlier choice sets of the same persons, with their choices.

        Returns
        -------
        numpy.ndarray
            The weighted average over the members. Members for which people do not differ ignore the history.
        """

        def probabilities(member: ChoiceModel) -> Floats:
            if isinstance(member, KnownPeople | Stacking):
                return member.predict_proba_given(data, history)
            return member.predict_proba(data)

        mean: Floats = self.weights_ @ np.stack(self._by_member(probabilities))
        return mean

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """D log P_i = sum_m a_m P_mi d log P_mi / P_i."""
        slopes = _all_or_none(member._slopes(data, column) for member in self.members_)
        if slopes is None:
            return None
        logs = self._member_log_p(data)
        share = np.exp(logs - log_weighted_mean(logs, self.weights_)) * self.weights_[:, None]  # (M, N)
        at = ordered_pairs(data.offsets)[0] if column in data.features else np.arange(len(data.rows))
        mean: Floats = np.einsum("mp,mp->p", share[:, at], np.stack(slopes))
        return mean

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """Return the expected largest utility and the share of each class of each member, if all members have them."""
        sums = _all_or_none(member._log_sums(data) for member in self.members_)
        if sums is None:
            return None
        shares = [weight * share for weight, (_, share) in zip(self.weights_, sums, strict=True)]
        return np.concatenate([largest for largest, _ in sums], 1), np.concatenate(shares, 1)

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """Return the stack as a mixture of logits, or None if a member is not one: see :meth:`ChoiceModel.as_logits`.

        Parameters
        ----------
        data
            Choice sets.
        """
        logits = _all_or_none(member.as_logits(data) for member in self.members_)
        if logits is None:
            return None
        shares = [weight * share for weight, (share, _) in zip(self.weights_, logits, strict=True)]
        return np.concatenate(shares, 1), np.concatenate([log_p for _, log_p in logits], 1)

    # -- the chain --------------------------------------------------------------------------------------------

    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        """Yield the rates of the averaged chain, one choice set at a time."""
        shares, chains = self.fixed_chains(data)
        for s, rates in enumerate(chains):
            q = torch.from_numpy(rates)  # (K, n, n)
            p = stationary_distribution(q)  # (K, n)
            flow = torch.einsum("k,ki,kij->ij", torch.from_numpy(shares[s]), p, q)
            mean = torch.einsum("k,ki->i", torch.from_numpy(shares[s]), p)
            yield np.array([s]), (flow / mean[:, None]).unsqueeze(0)

    def fixed_chains(self, data: ChoiceData) -> tuple[Floats, list[Floats]]:
        """Return the chains of all members, and the shares with which their stationary distributions are averaged.

        A member that is a mixture of logits has a chain for each, with the rates q_ij = exp(u_j). Any other member has
        the rates q_ij = P(j | S) in the set as it is.

        Parameters
        ----------
        data
            Choice sets.

        Returns
        -------
        tuple
            Shares (S, K), and rates (K, n, n) of each choice set.
        """
        shares, rates = [], []
        for member, weight in zip(self.members_, self.weights_, strict=True):
            if isinstance(member, ChainModel):
                member_shares, member_rates = member.fixed_chains(data)
            else:
                logits = member.as_logits(data)
                member_shares, log_p = logits or (np.ones((len(data), 1)), member._log_proba(data)[:, None])
                parts = np.split(log_p, data.offsets[1:-1]) if len(data) else []
                member_rates = [_logit_chains(part) for part in parts]
            shares.append(weight * member_shares)
            rates.append(member_rates)
        return np.concatenate(shares, 1), [np.concatenate(parts) for parts in zip(*rates, strict=True)]

    # -- about the model --------------------------------------------------------------------------------------

    @property
    def num_parameters(self) -> int:
        """Number of parameters of all members, and their weights."""
        return sum(member.num_parameters for member in self.members_) + len(self.members_) - 1

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Caveats of the members, and models that could not be fitted."""
        of_members = dict.fromkeys(caveat for member in self.members_ for caveat in member.fit_caveats)
        left_out = (f"{label} was left out: {reason}" for label, reason in self._state.record.left_out.items())
        return (*of_members, *left_out)

    def _sign_remedy(self, check: SignCheck) -> str:
        """Return what to do if the sign of a column is wrong."""
        if self.config.models is None:
            return super()._sign_remedy(check)
        declare = "" if check.declared else f"declare signs={{{check.column!r}: {check.sign!r}}} and "
        return f"{declare}use members that obey signs, such as pcmcnet, boosted and logits with bounds"

    def summary(self) -> Summary:
        """Return a table of the members: weight, out-of-fold NLL, parameters and seconds.

        Returns
        -------
        Summary
            The table, which can also be formatted as LaTeX, HTML or Markdown.
        """
        record = self._state.record
        labels = [member.label for member in record.members if member.weight > 0]
        fitted = dict(zip(labels, self.members_, strict=True))
        facts = {
            "trained on": f"{self.table_.choice_sets:,} choice sets, {self.table_.alternatives:,} alternatives",
            **self._sign_facts(),
            "parameters": f"{self.num_parameters:,} in all",
        }
        if record.out_of_fold_nll is not None:
            folds = "1 fold" if record.folds == 1 else f"{record.folds} folds"
            facts["out-of-fold NLL"] = f"{record.out_of_fold_nll:.4f} ({folds})"
        if record.left_out:
            facts["left out"] = "; ".join(f"{label} ({reason})" for label, reason in record.left_out.items())
        rows = [
            (
                member.label,
                f"{member.weight:.3f}",
                "-" if member.out_of_fold_nll is None else f"{member.out_of_fold_nll:.4f}",
                f"{fitted[member.label].num_parameters:,}" if member.label in fitted else "-",
                f"{fitted[member.label].table_.seconds or 0.0:.1f}" if member.label in fitted else "-",
            )
            for member in record.members
        ]
        head = ("model", "weight", "out-of-fold NLL", "parameters", "seconds")
        models = "1 model" if len(self.members_) == 1 else f"{len(self.members_)} models"
        return Summary(f"Stack of {models}", facts, head, tuple(rows), self.caveats)

    # -- saved form -------------------------------------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for k, member in enumerate(self.members_, start=1):
            files |= member_files(member, k)
        return files

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedStack:
        weights = np.array([member.weight for member in record.members if member.weight > 0])
        models = tuple(restore_member(files, k) for k in range(1, len(weights) + 1))
        return FittedStack(record=record, models=models, weights=weights)


def default_models(data: ChoiceData) -> tuple[str, ...]:
    """Return the names of the models that a stack averages by default."""
    if set(data.schema.features) <= {data.schema.alternative}:
        return LABEL_MODELS
    is_panel = data.schema.person is not None and len(np.unique(data.groups())) < len(data) <= MAX_PANEL_SETS
    if is_panel and data.schema.signs:
        log.info("stacking: mixed-mnl is left out, because its normal coefficients do not obey the declared signs")
    return PANEL_MODELS if is_panel and not data.schema.signs else DEFAULT_MODELS


def default_options(name: str, schema: Schema) -> dict[str, Any]:
    """Return the options of a default model of the stack: a logit has bounds, so that it obeys the declared signs."""
    if name not in BOUNDED_LOGITS or not schema.signs:
        return {}
    pairs = {"-": (None, 0.0), "+": (0.0, None)}
    return {"bounds": {backquoted(column): pairs[sign] for column, sign in schema.signs.items()}}


@dataclass(frozen=True)
class HeldOutStep:
    """A function that fits a model to the training part of a fold, and predicts the held-out part.

    It runs in this process or on a worker, and returns the label of the model, the number of the fold, and the losses,
    or the message of the error if the model cannot be fitted.
    """

    models: Mapping[str, ChoiceModel]
    folds: Sequence[Fold]
    seed: int
    device: str

    def __call__(self, step: tuple[str, int]) -> tuple[str, int, list[float] | str]:
        """Return the outcome of the step of a model, given by its label, and a fold."""
        label, k = step
        model, fold = self.models[label].__sklearn_clone__(), self.folds[k]
        try:
            with without_warnings():
                model._fit_unchecked(fold.train, seed=self.seed, device=self.device, progress=False)
                log_p = [model._log_p_of_choices(sets) for sets in fold.held_out]
        except PcmcNetError as error:
            return label, k, str(error)
        return label, k, [min(-float(value), MAX_LOSS) for value in np.concatenate(log_p)]


@dataclass(frozen=True)
class _StackFit:
    """One fit of a stack: its unfitted models by label, the choice sets, and how the fit runs.

    Only a single model has a validation part.
    """

    models: Mapping[str, ChoiceModel]
    data: ChoiceData
    valid: ChoiceData | None
    run: FitRun
    steps: StepReporter

    def fit(self, folds: Sequence[Fold], identity: Mapping[str, Any]) -> FittedStack:
        """Return the fitted stack; ``identity`` names the options in the log of an interrupted run."""
        # 1. Predict every choice set by fits that have not seen it.
        losses, left_out = self._out_of_fold_losses(folds, identity)
        set_weights = held_out_weights(folds) if folds else np.ones(0)
        fitted: dict[str, ChoiceModel] = {}
        while losses:
            # 2. Maximise the likelihood of these predictions.
            values = np.stack(list(losses.values()))
            weights = dict(zip(losses, without_negligible(stacking_weights(values, set_weights)), strict=True))
            used = [label for label, weight in weights.items() if weight > 0]
            # 3. Fit the models with a weight to all choice sets. If one fails, learn the weights of the others again.
            try:
                for label in used:
                    if label not in fitted:
                        fitted[label] = self._fit_to_all(label)
            except ArtifactError:
                raise  # a file cannot be read or written: the model itself may be fine
            except PcmcNetError as error:
                left_out[label] = _reason(str(error))
                del losses[label]
                continue
            return FittedStack(
                record=stacking_record(self.models, weights, losses, folds, left_out),
                models=tuple(fitted[label] for label in used),
                weights=np.array([weights[label] for label in used]),
            )
        reasons = "; ".join(f"{label}: {reason}" for label, reason in left_out.items())
        raise InputError(f"no model of the stack can be fitted to this table: {reasons}")

    def _out_of_fold_losses(
        self, folds: Sequence[Fold], identity: Mapping[str, Any]
    ) -> tuple[dict[str, Floats], dict[str, str]]:
        """Return the losses (S,) of each model's out-of-fold predictions, and why other models could not be fitted."""
        folder = self.run.run_folder
        run_identity = {"stack": identity, "table": self.run.fingerprint, "seed": self.run.seed}
        trials = TrialLog.open(None if folder is None else folder / SEARCH, run_identity, resume=self.run.resume)
        n = len(folds)
        names = {(label, k): f"{label}, fold {k + 1} of {n}" for k in range(n) for label in self.models}
        left_out: dict[str, str] = {}

        def missing_steps() -> Iterator[tuple[str, int]]:
            """Yield the label and the fold of each step that is not in the log, until a model turns out to fail."""
            for (label, k), name in names.items():
                if label not in left_out:
                    self.steps.begin(name)
                    if name in trials.losses:
                        self.steps.end(name, "already computed")
                    else:
                        yield label, k

        run_step = HeldOutStep(self.models, folds, self.run.seed, self.run.device)
        for label, k, outcome in map_tasks(run_step, missing_steps()):
            name = names[label, k]
            if isinstance(outcome, str):
                log.info("stacking: %s is left out: %s", label, outcome)
                self.steps.end(name, f"failed: {outcome}")
                left_out.setdefault(label, _reason(outcome))
            else:
                trials.record(name, outcome)
                self.steps.end(name, f"NLL {np.average(outcome, weights=folds[k].weights):.4f}")
        losses = {
            label: np.concatenate([np.empty(0), *(trials.losses[names[label, k]] for k in range(n))])
            for label in self.models
            if label not in left_out
        }
        return losses, left_out

    def _fit_to_all(self, label: str) -> ChoiceModel:
        """Return a model fitted to all choice sets; its ``table_.seconds`` is the duration of this fit."""
        folder = self.run.run_folder
        number = list(self.models).index(label) + 1
        self.steps.begin(label)
        began = time.perf_counter()
        arguments = {
            **self.run.inner_arguments,
            "progress": False,
            "run_folder": None if folder is None else member_folder(folder, number),
            "on_epoch": self.steps.epochs(self.run.on_epoch, member=number),
        }
        model = self.models[label].__sklearn_clone__()
        fitted = model._fit_unchecked(self.data, self.valid if model.stops_early else None, **arguments)
        fitted.add_table_facts(seconds=time.perf_counter() - began)
        self.steps.end(label, f"fitted to all choice sets, {fitted.table_.seconds:.1f} s")
        return fitted


def stacking_record(
    models: Mapping[str, ChoiceModel],
    weights: Mapping[str, float],
    losses: Mapping[str, Floats],
    folds: Sequence[Fold],
    left_out: Mapping[str, str],
) -> StackingRecord:
    """Return the record of a fit, with the NLL of each model and of the stack on held-out choice sets."""
    nll: dict[str, float | None] = dict.fromkeys(weights)
    nll_of_stack = None
    if folds:
        set_weights = held_out_weights(folds)
        nll |= {label: float(np.average(losses[label], weights=set_weights)) for label in weights}
        fold_sizes = [len(fold.weights) for fold in folds]
        nll_of_stack = cross_fitted_nll(np.stack([losses[label] for label in weights]), set_weights, fold_sizes)
    members = tuple(
        StackMember(label=label, model=models[label].name, weight=float(weight), out_of_fold_nll=nll[label])
        for label, weight in weights.items()
    )
    return StackingRecord(members=members, out_of_fold_nll=nll_of_stack, folds=len(folds), left_out=left_out)


# -- Weights ------------------------------------------------------------------------------------------------------


def stacking_weights(losses: Floats, set_weights: Floats) -> Floats:  # (M, S), (S,) -> (M,)
    """Return the weights that maximise the likelihood of out-of-fold predictions.

    Parameters
    ----------
    losses
        (M, S) negative log-probability of each choice under each model.
    set_weights
        (S,) weights of the choice sets; their mean does not matter.

    Returns
    -------
    numpy.ndarray
        (M,) weights that sum to 1; equal if there are no choice sets.
    """
    n = len(losses)
    weights = np.full(n, 1 / max(n, 1))
    if not losses.size:
        return weights
    # Probabilities are divided by the largest of each set, which changes no responsibility.
    p = np.exp(losses.min(axis=0) - losses)
    counts = set_weights / set_weights.mean()
    for _ in range(EM_STEPS):
        # 1. E step: the share of each choice that each model is responsible for.
        mixed = weights[:, None] * p
        responsibility = mixed / mixed.sum(axis=0)
        # 2. M step: the mean share, with the choices of the prior.
        update = (responsibility @ counts + PRIOR_CHOICES) / (counts.sum() + n * PRIOR_CHOICES)
        change = np.abs(update - weights).max()
        weights = update
        if change < EM_TOLERANCE:
            break
    normalised: Floats = weights / weights.sum()
    return normalised


def without_negligible(weights: Floats) -> Floats:  # (M,) -> (M,)
    """Return the weights with those below ``MIN_WEIGHT`` set to 0, and the others scaled to sum to 1."""
    relevant = np.where(weights < MIN_WEIGHT, 0.0, weights)
    return relevant / relevant.sum() if relevant.any() else weights


def weight_folds(data: ChoiceData, seed: int, n_folds: int) -> list[Fold]:
    """Return the folds whose held-out sets the weights are learnt from, or no folds if there are too few choice sets.

    A held-out set with a label or a missing value that the training part of its fold does not contain is left out. Some
    models cannot predict it, although they can be fitted to all choice sets.
    """
    folds = enough_folds(cross_folds(data.with_positive_weight(), seed, n_folds))
    return [fold for fold in map(without_new_values, folds) if len(fold.groups)]


def describe_plan(labels: Sequence[str], n_folds: int, n_sets: int) -> str:
    """Return a sentence on what a fit will do.

    >>> describe_plan(["pcmcnet", "mnl"], 3, 1200)
    'stacking pcmcnet, mnl: 3 folds to learn the weights, then a fit of each model to all 1,200 choice sets'
    """
    folds = {0: "", 1: "1 fold to learn the weights, then "}.get(
        n_folds, f"{n_folds} folds to learn the weights, then "
    )
    return f"stacking {', '.join(labels)}: {folds}a fit of each model to all {n_sets:,} choice sets"


def enough_folds(folds: Sequence[Fold]) -> Sequence[Fold]:
    """Return the first folds that together hold out ``HELD_OUT_SETS`` choice sets, or all folds of a smaller table."""
    held_out = np.cumsum([len(fold.weights) for fold in folds])
    return folds[: int(np.searchsorted(held_out, HELD_OUT_SETS)) + 1]


def cross_fitted_nll(losses: Floats, set_weights: Floats, fold_sizes: Sequence[int]) -> float:
    """Return the NLL of the stack, each fold predicted with weights learnt from the others.

    The halves of a single fold take the place of folds.
    """
    if len(fold_sizes) == 1:
        fold_sizes = [fold_sizes[0] // 2, fold_sizes[0] - fold_sizes[0] // 2]
    fold = np.repeat(np.arange(len(fold_sizes)), fold_sizes)  # (S,)
    nll = np.empty(losses.shape[1])
    for k in range(len(fold_sizes)):
        weights = stacking_weights(losses[:, fold != k], set_weights[fold != k])
        nll[fold == k] = -log_weighted_mean(-losses[:, fold == k], weights)
    return float(np.average(nll, weights=set_weights))


def log_weighted_mean(logs: Floats, weights: Floats) -> Floats:  # (M, N), (M,) -> (N,)
    """Return log sum_m a_m exp(logs_m); exact if all rows are equal, and -inf if all are."""
    top = logs.max(axis=0)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        mean = shift + np.log(weights @ np.exp(logs - shift))
    exact: Floats = np.where((logs == logs[0]).all(axis=0), logs[0], mean)
    return exact


def _all_or_none(values: Iterable[T | None]) -> list[T] | None:
    """Return the values, or None if one of them is None."""
    entries = list(values)
    present = [value for value in entries if value is not None]
    return present if len(present) == len(entries) else None


def _reason(message: str) -> str:
    """Return why a model is left out, without the final stop, since the reason is quoted within sentences."""
    return message.removesuffix(".")


def _logit_chains(log_p: Floats) -> Floats:  # (n, K) -> (K, n, n)
    """Return the chains with the rates q_ij = P(j): only the alternative that is entered matters."""
    p = np.exp(log_p - log_p.max(axis=0)).T  # (K, n)
    rates: Floats = np.repeat(p[:, None, :], p.shape[1], axis=1)
    rates[:, np.arange(p.shape[1]), np.arange(p.shape[1])] = 0.0
    return rates


# -- Options ------------------------------------------------------------------------------------------------------


def _names_and_options(models: Any, options: Any) -> tuple[tuple[str, ...] | None, tuple[Mapping[str, Any], ...]]:
    """Return the names and the options of models that are given as objects or by name."""
    if models is None:
        return None, tuple(options)
    if isinstance(models, str | ChoiceModel) or not isinstance(models, Sequence):
        raise ConfigError(f"models: expected a list of models or names, such as ['pcmcnet', 'mnl'], got {models!r}.")
    if not any(isinstance(model, ChoiceModel) for model in models):
        return tuple(models), tuple(options)
    if options:
        raise ConfigError("options belong to models given by name: model objects have their own.")
    for model in models:
        if isinstance(model, ChoiceModel) and model.extras:
            raise ConfigError(f"{type(model).__name__} with custom encoders is not supported in a stack: leave it out.")
        if isinstance(model, ChoiceModel) and type(model) is not type(build_model(model.name, asdict(model.config))):
            raise ConfigError(
                f"{type(model).__name__} is not a model of this library, and a saved stack could not be loaded without "
                f"its code: leave it out."
            )
    names = tuple(model.name if isinstance(model, ChoiceModel) else model for model in models)
    return names, tuple(asdict(model.config) if isinstance(model, ChoiceModel) else {} for model in models)
