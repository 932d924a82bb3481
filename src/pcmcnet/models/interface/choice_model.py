"""The interface of every choice model: fit the model to choice sets, predict probabilities, save and summarise it.

A model class declares its options as a frozen dataclass (``config_class``) and implements ``_fit``, ``_log_proba``,
``_files`` and ``_restore``. The base class in this module provides everything else. A model holds its options and, once
fitted, one immutable record, ``fitted_`` (:mod:`pcmcnet.models.interface.fitted`). ``_fit`` and ``_restore`` return the
state of that record and do not change the model. Predictions have one value per row of the table, in the order of the
rows.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_device_name, require_number, suggests_arguments
from pcmcnet.concurrency import submit_or_run
from pcmcnet.data import CatalogueData, ChoiceData, ChunkedData, ScannedData, Schema, Sets
from pcmcnet.data.alternative_sampling import require_full_sets
from pcmcnet.data.chunks import Chunk, ChunkProblem
from pcmcnet.data.columns.ragged import argmax_by_set
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.errors import ConfigError, InputError, NotFittedError
from pcmcnet.models.interface.attribute_names import missing_attribute
from pcmcnet.models.interface.encoders import without_contents
from pcmcnet.models.interface.fitted import FitRecord, FittedModel, FittedState, TrainingTable
from pcmcnet.models.interface.options import changed_options, make_config, with_parameters
from pcmcnet.models.interface.prediction import chunks_log_proba, in_row_order, log_proba, require_probabilities
from pcmcnet.models.interface.sign_check import SignCheck, check_signs, declared_signs_text
from pcmcnet.progress import EpochCallback
from pcmcnet.reports.formats import Summary, to_fragment
from pcmcnet.reports.sections import Block, Facts, Table, note
from pcmcnet.storage import as_path, sole_writer
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.torch_settings import default_torch_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- scikit-learn -----------------------------------------------------------------------------------------------------
# The methods that tools of scikit-learn call: options by name, unfitted copies, and whether a model is fitted.
#
# With them, `clone`, `cross_val_score`, `GridSearchCV` and other tools accept a model and `ChoiceData`, which is
# indexed by choice set. Models need no base class of scikit-learn, since its tools only call these methods.


class EstimatorMixin:
    """Mixin that reads, changes and copies the options of a model, which are stored in ``config`` and ``extras``."""

    config: Any
    extras: Any
    fitted_: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all constructor arguments by name.

        Parameters
        ----------
        deep
            Whether a model that wraps another model also lists the inner model's options, as ``options__name`` (default
            True).

        Returns
        -------
        dict
            The options, and arguments that are not options, such as ``encoders``.
        """
        options = {field.name: getattr(self.config, field.name) for field in fields(self.config)}
        return {**options, **self.extras}

    def set_params(self, **params: Any) -> Self:
        """Change options, and discard the fit.

        Parameters
        ----------
        params
            New values of options, by name.

        Returns
        -------
        The model itself.

        Raises
        ------
        ConfigError
            If an option is unknown or a value is not allowed.
        """
        if params:
            fresh = type(self)(**{**self.get_params(deep=False), **params})
            self.__dict__.clear()
            self.__dict__.update(fresh.__dict__)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return self.fitted_ is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))


# -- Settings of a fit ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FitRun:
    """The checked arguments of :meth:`ChoiceModel.fit`, apart from the data."""

    seed: int = 0
    device: str = "auto"
    progress: bool = True
    run_folder: Path | None = None
    resume: bool = False
    on_epoch: EpochCallback | None = None
    init: Any = None  # the value that ``_start`` returned
    fingerprint: str = ""  # hash of the training part, computed once
    warn: bool = True  # whether to log warnings about the validation part

    @property
    def inner_arguments(self) -> dict[str, Any]:
        """Arguments that are passed on to the ``fit`` of an inner model."""
        names = ("seed", "device", "progress", "run_folder", "resume", "on_epoch", "init")
        return {name: getattr(self, name) for name in names}


def require_part(part: Any, argument: str) -> None:
    """Raise InputError unless the argument is choice data with known choices and at least one positive weight."""
    if not isinstance(part, ChoiceData | ChunkedData):
        if argument == "valid":
            raise InputError(
                f"valid: expected choice sets (ChoiceData), got {type(part).__name__}. The choices are a column of the "
                f"table, so fit needs no y: write fit(train), or fit(train, valid) with held-out choice sets."
            )
        raise InputError(
            f"{argument}: expected choice sets (ChoiceData), got {type(part).__name__}. Declare the columns first: "
            f"data = pn.ChoiceData.from_long(table, choice_set=..., chosen=..., features=[...]), then fit(data)."
        )
    part.require_chosen("fitting")
    if not (part.weights.any() if isinstance(part, ChoiceData) else len(part.with_positive_weight())):
        raise InputError(
            f"{argument}: expected a choice set with a weight above 0, but none of the {len(part)} choice sets has one."
        )


# -- History of a fit -------------------------------------------------------------------------------------------------


class HistoryMixin:
    """Mixin that plots the losses of a model that trains in epochs, or of its averaged members."""

    @property
    def members_(self) -> Sequence[Any]:
        """The fitted models whose probabilities are averaged. Most models have no members."""
        return ()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per epoch of the fit."""
        raise NotImplementedError

    def plot_history(self, ax: Axes | None = None) -> Axes:
        """Plot the training and validation losses in ``history`` by epoch.

        Parameters
        ----------
        ax
            Axes to draw on. If None (default), a new figure is created.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        InputError
            If the model is not fitted, or does not train in epochs.
        """
        members = {f"member {k}": m.history for k, m in enumerate(self.members_, start=1) if m.history}
        if not self.history and not members:
            raise InputError(f"{type(self).__name__} has no history: it is not fitted, or does not train in epochs.")
        from pcmcnet.plots.quality import plot_learning_curve

        return plot_learning_curve(members or self.history, ax)


# Arguments of ``fit`` in other packages.
_OTHER_FIT_ARGUMENTS = {
    **dict.fromkeys(["random_state", "random_seed"], "Write seed=0"),
    **dict.fromkeys(["verbose", "disp", "verbosity"], "Write progress=False to hide the progress bar"),
    **dict.fromkeys(["validation_data", "eval_set", "validation"], "Write valid=DATA, with held-out choice sets"),
    **dict.fromkeys(["y", "choices", "X"], "The choices are a column of the table: write fit(train)"),
    **dict.fromkeys(
        ["sample_weight", "weights"], "Declare the column with the weights: from_long(..., weight='COLUMN')"
    ),
    **dict.fromkeys(["callbacks", "callback"], "Write on_epoch=FUNCTION, which is called after each epoch"),
    **dict.fromkeys(
        ["epochs", "n_epochs", "batch_size", "lr", "learning_rate", "max_iter", "hidden", "weight_decay", "formula"],
        "Options belong to the model: write them in its constructor, as in PCMCNet(epochs=10) or MNL(formula='price')",
    ),
}

Gives = Literal["probabilities", "scores", "ranking"]
Samples = Literal["none", "uniform", "all"]


class ChoiceModel(EstimatorMixin, HistoryMixin, ABC):
    """Base class of all models.

    The attribute ``gives`` describes what the model predicts. "probabilities" are fitted to the choices. "scores" are
    only scaled to sum to 1 within a choice set, and are marked as scores in reports. A "ranking" has no likelihood, so
    reports show no likelihood for it.

    Parameters
    ----------
    options
        Options of the model: the fields of ``config_class``.
    """

    name: ClassVar[str]
    config_class: ClassVar[type]
    gives: ClassVar[Gives] = "probabilities"
    stops_early: ClassVar[bool] = False  # whether a fit uses a validation part
    resumes: ClassVar[bool] = False  # whether a fit without epochs can be resumed after an interruption
    streams: ClassVar[bool] = False  # whether the model can be fitted to a table larger than memory
    shares_batches: ClassVar[bool] = False  # whether several processes can share the batches of a fit
    shares_tasks: ClassVar[bool] = False  # whether a fit has independent tasks that several processes can share
    uses_device: ClassVar[bool] = False  # whether a fit can use a GPU; otherwise it uses the CPU on every machine
    reads_contents: ClassVar[bool] = False  # whether the model uses columns such as texts, images and vectors
    is_logit: ClassVar[bool] = False  # whether IIA holds: the odds of two alternatives are the same in every set
    obeys_signs: ClassVar[bool] = False  # whether a fit obeys the expected signs that the table declares
    order_matters: ClassVar[bool] = False  # whether the order of a set's rows changes its probabilities
    corrects_samples: ClassVar[Samples] = "none"  # samples of alternatives for which a fit corrects
    record_class: ClassVar[type[FitRecord]] = FitRecord  # facts about a fit that are saved with the model

    def __init__(self, **options: Any) -> None:
        self.config: Any = make_config(self.config_class, options)
        self.fitted_: FittedModel | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the options in the signature of the class, and describe each option in its docstring."""
        super().__init_subclass__(**kwargs)
        if "config_class" in cls.__dict__:
            cls.__signature__ = inspect.signature(cls.config_class)  # type: ignore[attr-defined]
        if cls.__dict__.get("__doc__") and hasattr(cls, "config_class"):
            arguments = getattr(cls.__init__, "arguments_class", cls.config_class)
            cls.__doc__ = with_parameters(cls.__doc__ or "", arguments)

    @property
    def extras(self) -> dict[str, Any]:
        """Constructor arguments that are not options, such as ``encoders`` (none for most models)."""
        return {}

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that a fit depends on except the data and the seed, as JSON-compatible values."""
        return {"options": asdict(self.config)}

    def __repr__(self) -> str:
        options = {**changed_options(self.config), **self.extras}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in options.items())})"

    if not TYPE_CHECKING:  # type checkers report unknown attributes

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property raised AttributeError, such as NotFittedError: raise it again
                return object.__getattribute__(self, name)
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}.")
            raise missing_attribute(self, name)

    def _repr_html_(self) -> str:
        """Return the state of the model and its options, those that differ from the defaults first."""
        facts = {"state": "not fitted"}
        if self.fitted_ is not None:
            table = self.fitted_.table
            facts["state"] = f"fitted to {table.choice_sets:,} choice sets, {self.num_parameters:,} parameters"
        changed = {**changed_options(self.config), **self.extras}
        facts |= {name: repr(value) for name, value in changed.items()}
        rest = {f.name: getattr(self.config, f.name) for f in fields(self.config) if f.name not in changed}
        blocks: list[Block] = [Facts(facts)]
        if rest:
            rows = [[name, repr(value)] for name, value in rest.items()]
            blocks.append(Table(cells=[["option", "default"], *rows], folded="Options with their defaults"))
        if self.fitted_ is not None:
            blocks += [note(f"Caveat: {caveat}.") for caveat in self.caveats]
        return to_fragment(type(self).__name__, blocks)

    # -- for subclasses to implement --------------------------------------------------------------------------

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Number of estimated parameters."""

    @abstractmethod
    def _fit(self, train: Any, valid: Any, run: FitRun) -> FittedState:
        """Fit to checked data and return the fitted state, without changing the model.

        The data are ``ChoiceData`` or, if ``streams`` is True, possibly ``ScannedData``.
        """

    @abstractmethod
    def _log_proba(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities (N,) of the alternatives, in the order of the choice sets."""

    def _start(self, init: Any, schema: Schema) -> Any:
        """Return the part of a fitted model that a new fit starts from, which only networks support."""
        if init is not None:
            raise ConfigError(
                f"init is not supported by {type(self).__name__}: only networks can start from a fitted model."
            )

    def _scores(self, data: ChoiceData) -> Floats:
        """Return scores (N,) that rank the alternatives of a set, where the largest score is the best."""
        return self._checked_log_proba(data)

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """Return derivatives of the log-probabilities with respect to a numeric column, or None if not available.

        For a feature, the derivatives are d log p_i / d x_j for all ordered pairs of a set, in the order of
        ``ragged.ordered_pairs``. For an individual-level column, they are d log p_i / d x (N,).
        """
        return None

    def _has_kinks(self, column: str) -> bool:
        """Return True if the derivatives jump at values of this numeric column that are frequent in the table.

        At such a kink, ``_slopes`` returns the derivative on one side.
        """
        return any(member._has_kinks(column) for member in self.members_)

    @property
    def _is_stepwise(self) -> bool:
        """Whether predictions are step functions of numeric columns, at least in part, as those of trees."""
        return any(member._is_stepwise for member in self.members_)

    def elasticities(self, data: ChoiceData, column: str, errors: Any = None) -> Any:
        """Raise InputError, because only logits have elasticities with standard errors by the delta method.

        Parameters
        ----------
        data, column, errors
            See :meth:`pcmcnet.models.logit.logit_model.LogitModel.elasticities`.

        Raises
        ------
        InputError
            If the model is not a logit.
        """
        raise InputError(
            f"{type(self).__name__} has no standard errors: use pn.elasticity(model, data, {column!r}) for "
            f"elasticities, and pn.bootstrap for their intervals."
        )

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """Return the model as a mixture of C logits, or None if it is not a mixture of logits.

        Parameters
        ----------
        data
            Choice sets to predict.

        Returns
        -------
        Shares (S, C) of the logits in each set, and log-probabilities (N, C) of the alternatives in each logit.
        """
        return (np.ones((len(data), 1)), self._log_proba(data)[:, None]) if self.is_logit else None

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """Return the log-sums (S, C) and class shares (S, C) of all sets, or None if the model has no log-sums."""
        return None

    @abstractmethod
    def _files(self) -> dict[str, bytes]:
        """Return the content of the files that store the fitted state, by name."""

    @abstractmethod
    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedState:
        """Build the fitted state from the output of ``_files`` and the records of the fit and the training table."""

    @abstractmethod
    def summary(self) -> Summary:
        """Return a summary of the fitted model, which prints as a table."""

    # -- shared by all models ---------------------------------------------------------------------------------

    @default_torch_settings()
    def _checked_log_proba(self, data: ChoiceData) -> Floats:
        """Return the log-probabilities (N,), or raise InputError if the probabilities of a set do not sum to 1."""
        self._unseen_categories(data).report()
        log_p = self._log_proba(data)
        require_probabilities(log_p, data)
        return log_p

    def _unseen_categories(self, data: ChoiceData) -> UnseenCounts:
        """Return the counts of unseen categories, or no counts for a model whose encoder reports them."""
        return UnseenCounts()

    @property
    def _encodes_chunks(self) -> bool:
        """Whether chunks of a table are encoded on the model's device while other chunks are predicted."""
        return False

    @property
    def _parallel_chunks(self) -> int:
        """Number of chunks that are predicted at the same time, each in a separate thread."""
        return 1

    def _log_proba_of_chunks(self, chunks: Iterable[Chunk | ChunkProblem]) -> Iterator[Floats | ChunkProblem]:
        """Yield the log-probabilities of the rows of each chunk, and stop at the first problem."""
        return chunks_log_proba(self, chunks)

    def require_fitted(self) -> FittedModel:
        """Return the fitted record, or raise NotFittedError if the model is not fitted."""
        if self.fitted_ is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit, or load a saved model.")
        return self.fitted_

    @property
    def _state(self) -> Any:
        """The state that ``_fit`` returned, whose type each subclass declares, as in ``_state: FittedNetwork``."""
        return self.require_fitted().state

    @property
    def schema(self) -> Schema:
        """The roles of the columns of the training table."""
        return self.require_fitted().schema

    @property
    def table_(self) -> TrainingTable:
        """Facts about the table that the model was fitted to."""
        return self.require_fitted().table

    @property
    def record_(self) -> Any:
        """Facts about the fit, an instance of ``record_class``."""
        return self.require_fitted().state.record

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per epoch. The list is empty before a fit and for models that do not train in epochs."""
        return [] if self.fitted_ is None else [dict(entry) for entry in self.fitted_.state.history]

    def _common_facts(self) -> dict[str, str]:
        """Return the first entries of most summaries: the options, and the size of the training table."""
        table = self.table_
        alternatives = f"{table.alternatives:,} {'sampled ' if table.sampled else ''}alternatives"
        return {
            "options": ", ".join(f"{name}={value}" for name, value in asdict(self.config).items()),
            "trained on": f"{table.choice_sets:,} choice sets, {alternatives}",
            **self._sign_facts(),
        }

    def _sign_facts(self) -> dict[str, str]:
        """Return the entry of a summary on the declared signs, if there are any."""
        signs = self.schema.signs
        return {"expected signs": declared_signs_text(signs, self.table_.signs)} if signs else {}

    def add_table_facts(self, **facts: Any) -> None:
        """Replace the fitted record by one with more information about the training table.

        Parameters
        ----------
        facts
            Fields of :class:`TrainingTable` by name, such as ``drawn_from``.
        """
        fitted = self.require_fitted()
        self.fitted_ = replace(fitted, table=replace(fitted.table, **facts))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Warnings about the fitted model, which are shown in summaries and reports (none for most models)."""
        return (*self.fit_caveats, *self.sign_caveats.values())

    @property
    def sign_caveats(self) -> dict[str, str]:
        """A sentence for each column whose effect is against its expected sign or held at 0, without a final stop."""
        sentences = {}
        for check in self.table_.signs:
            if check.is_wrong:
                sentences[check.column] = check.sentence(self._sign_remedy(check))
            elif check.is_held_at_zero and self.obeys_signs:
                sentences[check.column] = check.sentence_without_effect()
        return sentences

    def _sign_remedy(self, check: SignCheck) -> str:
        """Return what to do if the sign of a column is wrong."""
        declare = "" if check.declared else f"declare signs={{{check.column!r}: {check.sign!r}}} and "
        if not self.obeys_signs:
            return f"{declare}use a model that obeys signs, such as pcmcnet, boosted or stacking"
        return f"{declare}fit again" if declare else f"remove {check.column!r} from the option monotone, and fit again"

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Warnings about the fit, such as a search that did not converge."""
        stopped = self.record_.converged is False
        return ("the search was stopped before it converged",) if stopped else ()

    @suggests_arguments(_OTHER_FIT_ARGUMENTS, call="model.fit(train), with choice sets from ChoiceData.from_long")
    def fit(
        self,
        train: Sets,
        valid: Sets | None = None,
        seed: int = 0,
        device: str = "auto",
        progress: bool = True,
        *,
        run_folder: str | Path | None = None,
        resume: bool = False,
        on_epoch: EpochCallback | None = None,
        init: ChoiceModel | None = None,
    ) -> Self:
        """Fit the model to choice sets with known choices.

        Parameters
        ----------
        train
            Choice sets to fit. Scanned data is read into memory if it fits within its memory limit. Otherwise, models
            that train in epochs read the data in chunks, and other models raise ConfigError.
        valid
            Validation part (default None), which is used for early stopping by models that support it.
        seed
            Seed of all random numbers (default 0).
        device
            Device to use: "auto" (default), "cpu", "cuda", "cuda:1", ... "auto" selects a GPU if there is one.
        progress
            Whether to show a progress bar on a terminal, or log a line per epoch elsewhere (default True).
        run_folder
            Folder for checkpoints, so that an interrupted fit can be resumed. If None (default), no checkpoints are
            written.
        resume
            Whether to continue from the checkpoint in ``run_folder`` (default False).
        on_epoch
            Function that is called with the history entry of each epoch, by models that train in epochs (default None).
            If several networks are averaged, the entries of the second and later networks also contain the number of
            the network, with the key ``network``. An exception raised by the function ends the fit and leaves the model
            unchanged, but :class:`pcmcnet.StopFit` ends the fit and keeps the weights learnt so far.
        init
            Fitted network of the same class to start from (default None), for a new table with the same columns or for
            more epochs. The encoder of this network is reused.

        Returns
        -------
        The model itself.

        Raises
        ------
        InputError
            If the data are not choice data, or no choice set has a known choice and a positive weight.
        ConfigError
            If the model does not support ``init``, or does not support tables larger than memory.
        TrainingError
            If the fit diverges.
        """
        self.fitted_ = self._fitted_record(
            train,
            valid,
            signs=True,
            seed=seed,
            device=device,
            progress=progress,
            run_folder=run_folder,
            resume=resume,
            on_epoch=on_epoch,
            init=init,
        )
        return self

    def _fit_unchecked(self, train: Sets, valid: Sets | None = None, **arguments: Any) -> Self:
        """Fit the model like :meth:`fit`, without the check of expected signs, for trials and inner models."""
        self.fitted_ = self._fitted_record(train, valid, signs=False, **arguments)
        return self

    @default_torch_settings(gradients=True)
    def _fitted_record(
        self,
        train: Sets,
        valid: Sets | None,
        *,
        signs: bool,
        seed: int = 0,
        device: str = "auto",
        progress: bool = True,
        run_folder: str | Path | None = None,
        resume: bool = False,
        on_epoch: EpochCallback | None = None,
        init: ChoiceModel | None = None,
    ) -> FittedModel:
        """Return the record of a fit, with the check of expected signs if ``signs``; the model does not change."""
        require_part(train, "train")
        if valid is not None:
            require_part(valid, "valid")
        require_device_name(device)
        if device not in ("auto", "cpu") and not self.uses_device:
            from pcmcnet.training.device import resolve_device

            resolve_device(device)  # raises if there is no such device, as in a model that uses it
        train, valid = self._in_memory(train, valid)
        self._require_corrected_samples(train, valid)
        if not self.reads_contents:
            train, valid = without_contents(type(self).__name__, train, valid)
        seed = int(seed) if isinstance(seed, np.integer) else seed
        require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
        if resume and run_folder is None:
            raise InputError("resume=True needs the run_folder of the run to continue.")
        folder = None if run_folder is None else as_path(run_folder)
        run = FitRun(
            seed=seed,
            device=device,
            progress=progress,
            run_folder=folder,
            resume=resume,
            on_epoch=on_epoch,
            init=self._start(init, train.schema),
            fingerprint=train.fingerprint(),
        )
        # A thread describes the table during the fit, unless the table is on disk: its chunks would take memory that
        # the fit may need. Processes of a group return no model, so they need no description.
        alone, thread = current_group().size == 1, ThreadPoolExecutor(1)
        try:
            in_memory = alone and isinstance(train, ChoiceData)
            describe = submit_or_run(thread, train.describe).result if in_memory else train.describe
            with nullcontext() if folder is None else sole_writer(folder):
                state = self._fit(train, valid, run)
            table = self._training_table(train, valid, run, describe() if alone else {})
        finally:
            thread.shutdown(wait=False)
        fitted = FittedModel(schema=train.schema, table=table, state=state)
        if signs and alone:
            # The check predicts, so it needs a fitted model. This one stays unfitted until its record is complete.
            unchecked = copy(self)
            unchecked.fitted_ = fitted
            fitted = replace(fitted, table=replace(table, signs=check_signs(unchecked, train)))
        return fitted

    # -- replicates for the bootstrap -------------------------------------------------------------------------

    def _learnt_options(self) -> dict[str, Any]:
        """Return the options that the fit chose on held-out sets, or by other models, with the chosen values."""
        return {}

    def _refit(self, train: ChoiceData, run: FitRun) -> FittedState:
        """Return the state of a fit to a resample of the training part, with all choices of the first fit fixed."""
        fresh = type(self)(**{**self.get_params(deep=False), **self._learnt_options()})
        state: FittedState = fresh._fit(train, None, run)
        return state

    @default_torch_settings(gradients=True)
    def _replicate(self, train: ChoiceData, seed: int) -> Self:
        """Return the model fitted to a resample of its training part.

        Everything that the first fit chose on held-out sets is fixed: weight decay, epochs, classes, trees, the weights
        of a stack. The model itself does not change.
        """
        fitted = self.require_fitted()
        if not self.reads_contents:
            train, _ = without_contents(type(self).__name__, train, None)
        run = FitRun(seed=seed, progress=False, warn=False)
        replicate = type(self)(**self.get_params(deep=False))
        replicate.fitted_ = replace(fitted, state=self._refit(train, run))
        return replicate

    def _training_table(self, train: Sets, valid: Sets | None, run: FitRun, description: Any) -> TrainingTable:
        """Return information about the choice sets that the model was fitted to."""
        return TrainingTable.of(train, run.fingerprint, run.seed, description)

    def survey(self, train: Sets, valid: Sets | None) -> None:
        """Learn the encoders of a scanned table, so that several processes that fit models to it can share encoders.

        For models without encoders, this method does nothing.

        Parameters
        ----------
        train, valid
            Training part, and validation part or None.
        """

    @suggests_arguments(call="model.predict_log_proba(data)")
    def predict_log_proba(self, data: Any) -> Floats:
        """Return log-probabilities, one per row of the table.

        Parameters
        ----------
        data
            ``ChoiceData``, a scanned table (read in chunks), or a table that ``ChoiceData.from_long`` accepts, which is
            read with the model's schema. A model fitted to a wide table also accepts wide tables: the values for the
            alternatives of the first row come first, in the order of ``alternatives``, followed by those of the second
            row, and so on.

        Returns
        -------
        Log-probabilities (n_rows,) in the order of the rows, with -inf for unavailable rows.
        """
        return log_proba(self, data)

    @suggests_arguments(call="model.predict_proba(data)")
    def predict_proba(self, data: Any) -> Floats:
        """Return probabilities, one per row of the table.

        Parameters
        ----------
        data
            Choice sets or a table: see :meth:`predict_log_proba`.

        Returns
        -------
        Probabilities (n_rows,) in the order of the rows, with 0 for unavailable rows.
        """
        probabilities: Floats = np.exp(self.predict_log_proba(data))
        return probabilities

    def predict_scores(self, data: Any) -> Floats:
        """Return scores that rank the alternatives of each set, one per row of the table.

        Parameters
        ----------
        data
            Choice sets or a table: see :meth:`predict_log_proba`.

        Returns
        -------
        Scores (n_rows,) in the order of the rows, with -inf for unavailable rows. The best alternative of a set has the
        largest score. The scores are log-probabilities, except for models that give only a ranking.
        """
        if isinstance(data, ChunkedData):
            chunks = data.chunks()
            return data.by_row((c.table_rows, in_row_order(c.data, self._scores(c.data), c.data)) for c in chunks)
        sets = self._read(data)
        return in_row_order(sets, self._scores(sets), data)

    @suggests_arguments(call="model.predict(data)")
    def predict(self, data: Any) -> NDArray[Any]:
        """Return the best alternative of each choice set.

        Parameters
        ----------
        data
            Choice sets or a table: see :meth:`predict_log_proba`.

        Returns
        -------
        Labels (S,), or row numbers (S,) if the table has no labels. An outside option without a row is returned as -1.
        For a catalogue, the ids of the items (S,).
        """
        if isinstance(data, CatalogueData):
            rows = [c.table_rows[argmax_by_set(self._scores(c.data), c.data.offsets)] for c in data.chunks()]
            return data.ids_of_rows(np.concatenate([np.empty(0, np.int64), *rows]))
        sets = self._read(data)
        best = argmax_by_set(self._scores(sets), sets.offsets)
        if sets.labels is not None:
            return sets.labels.take(best).plain()
        return np.where(sets.rows[best] < sets.n_rows - sets.added, sets.rows[best], -1)

    @suggests_arguments(call="model.chosen_probabilities(data)")
    def chosen_probabilities(self, data: Any) -> Floats:
        """Return the probability of the chosen alternative of each choice set.

        A ranking in the table is a sequence of choice sets, with one probability for each of them. A model that
        predicts only a ranking gives equal probabilities to the alternatives that it ranks first.

        Parameters
        ----------
        data
            Choice sets or a table with known choices: see :meth:`predict_log_proba`.

        Returns
        -------
        (S,) probabilities in the order of the choice sets, which is that of their first rows in the table.

        Raises
        ------
        InputError
            If choices are not known.
        """
        if isinstance(data, ChunkedData):
            data.require_chosen("chosen_probabilities")
            return np.exp(data.by_set((chunk.first, self._log_p_of_choices(chunk.data)) for chunk in data.chunks()))
        sets = self._read(data, chosen=True)
        sets.require_chosen("chosen_probabilities")
        return np.exp(self._log_p_of_choices(sets))

    def _log_p_of_choices(self, sets: ChoiceData) -> Floats:  # -> (S,)
        """Return the log-probability of the chosen alternative of each choice set in memory."""
        log_p: Floats = self._checked_log_proba(sets)[sets.offsets[:-1] + sets.require_chosen("a prediction")]
        return log_p

    @suggests_arguments({"y": "The choices are a column of the table: write score(data)"}, call="model.score(data)")
    def score(self, data: Any) -> float:
        """Return the weighted mean log-likelihood per choice set.

        Parameters
        ----------
        data
            Choice sets or a table with known choices: see :meth:`predict_log_proba`.

        Returns
        -------
        float
            The mean log-likelihood, where higher is better.

        Raises
        ------
        InputError
            If choices are not known, or all weights are 0.
        """
        sets = data if isinstance(data, ChunkedData) else self._read(data, chosen=True)
        sets.require_chosen("score")
        total = weight = 0.0
        for part in sets.parts():
            counted = part.weights > 0  # sets of weight 0 are ignored, even if their log-probability is -inf
            weights = part.weights[counted]
            total += float((self._log_p_of_choices(part)[counted] * weights).sum())
            weight += float(weights.sum())
        if not weight:
            raise InputError(
                f"score: expected a choice set with a weight above 0, but none of the {len(sets)} choice sets has one."
            )
        return total / weight

    @suggests_arguments(call="model.save('model')")
    def save(self, folder: str | Path) -> Path:
        """Write the fitted model to a new folder, which ``pcmcnet.load`` reads.

        Parameters
        ----------
        folder
            Path of the folder. If the folder exists, it must be empty or be the run folder of this fit.

        Returns
        -------
        The folder.

        Raises
        ------
        ArtifactError
            If the folder is already in use or cannot be written.
        """
        from pcmcnet.models.interface.saving import save_artifact

        return save_artifact(self, as_path(folder))

    def export(self, path: str | Path) -> Path:
        """Export the fitted model to ONNX or ``torch.export``, which only PCMC-Net supports.

        Parameters
        ----------
        path
            File to write: see :meth:`PCMCNet.export`.

        Raises
        ------
        ConfigError
            If the model is not a PCMC-Net.
        """
        self.require_fitted()
        raise ConfigError(
            f"export is not supported by {type(self).__name__}, only by PCMCNet: save the model and use "
            f"`pcmcnet serve`."
        )

    def _in_memory(self, *parts: Sets | CatalogueData | None) -> tuple[Any, ...]:
        """Return the parts, with catalogues and scanned data read into memory if all parts fit in memory.

        Raise ConfigError if a catalogue does not fit, or if other parts do not fit and the model needs all data in
        memory.
        """
        for part in parts:
            if isinstance(part, CatalogueData) and not part.fits:
                raise ConfigError(
                    f"a fit needs all choice sets in memory, but {len(part):,} choosers and {part.n_items:,} items "
                    f"have {part.n_rows:,} alternatives: use data.sample_alternatives(n=100), for example. Validation "
                    f"needs only some of the choosers: data.subset(...)."
                )
        parts = tuple(part.read() if isinstance(part, CatalogueData) else part for part in parts)
        scanned = [part for part in parts if isinstance(part, ScannedData)]
        if all(part.fits for part in scanned):
            return tuple(part.read() if isinstance(part, ScannedData) else part for part in parts)
        if not self.streams:
            raise ConfigError(
                f"{type(self).__name__} needs all choice sets in memory, but the scanned table is too large: fit the "
                f"model to data.sample(n_sets), or scan with more memory."
            )
        return parts

    def _require_corrected_samples(self, *parts: Sets | None) -> None:
        """Raise ConfigError if alternatives are a sample for which the fit does not correct."""
        for part in parts:
            expansion = part.expansion if isinstance(part, ChoiceData) else None
            if expansion is None or self.corrects_samples == "all":
                continue
            assert isinstance(part, ChoiceData)
            is_equal = bool((expansion == np.repeat(expansion[part.offsets[:-1]], part.sizes)).all())
            if self.corrects_samples == "none":
                raise ConfigError(
                    f"{type(self).__name__} does not correct for sampled alternatives: fit it to the full sets, or fit "
                    f"PCMCNet, MNL or LatentClassMNL to the sample."
                )
            if not is_equal:
                raise ConfigError(
                    f"{type(self).__name__} corrects for sampled alternatives only if all alternatives of a set have "
                    f"the same expansion factor: draw them with by='uniform'."
                )

    def _read(self, data: Any, *, chosen: bool = False) -> ChoiceData:
        """Return choice data unchanged, and read other tables with the schema of the training table."""
        schema = self.schema
        if isinstance(data, ChoiceData):
            require_full_sets(data, "a prediction")
            return data
        if isinstance(data, ChunkedData):
            return data.read_if_fits()
        return ChoiceData.from_schema(data, schema if chosen else schema.for_prediction())
