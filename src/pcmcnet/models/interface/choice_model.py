"""The interface of every choice model: fit a table's choice sets, give probabilities, save, sum up.

A model class names its options by a frozen dataclass (``config_class``) and implements ``_fit``, ``_log_proba``,
``_files`` and ``_restore``; the rest is here. A model holds its options and, once fitted, one immutable record,
``fitted_`` (:mod:`pcmcnet.models.interface.fitted`): ``_fit`` and ``_restore`` return its state and change nothing.
Results are given one value per row of the table, in its order.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.concurrency import submit_or_run
from pcmcnet.data import ChoiceData, ScannedData, Schema, Sets
from pcmcnet.data.chunks import Chunk, ChunkProblem
from pcmcnet.data.columns.ragged import argmax_by_set
from pcmcnet.errors import ConfigError, InputError, NotFittedError
from pcmcnet.models.interface.encoders import without_contents
from pcmcnet.models.interface.fitted import FitRecord, FittedModel, FittedState, TrainingTable
from pcmcnet.models.interface.options import make_config
from pcmcnet.models.interface.prediction import chunks_log_proba, in_row_order, log_proba, require_probabilities
from pcmcnet.progress import EpochCallback
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import as_path, sole_writer
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import default_torch_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- Scikit learn ------------------------------------------------------------------------------------------------------
# Models as the tools of scikit-learn take them: options by name, unfitted copies, and whether a model is fitted.
#
# With these, `clone`, `cross_val_score`, `GridSearchCV` and others work on a model and its `ChoiceData`, which is
# indexed by choice sets. No class of scikit-learn is a base of models: its tools ask for methods.


class Estimator:
    """Options that can be read, changed and handed on; a model's ``config`` and ``extras`` hold them."""

    config: Any
    extras: Any
    fitted_: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options, and what no option can hold, by name: all that another model of the kind is made from.

        Parameters
        ----------
        deep
            Whether to list the options of a model inside, too, as ``options__name``.
        """
        options = {field.name: getattr(self.config, field.name) for field in fields(self.config)}
        return {**options, **self.extras}

    def set_params(self, **params: Any) -> Self:
        """Change options by name; the model is then not fitted. An unknown name is refused."""
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


# -- Fit settings ------------------------------------------------------------------------------------------------------
# How a fit runs: the arguments of `ChoiceModel.fit` except the data, checked, for the model's own `_fit`.


@dataclass(frozen=True, kw_only=True)
class FitRun:
    """How a fit runs, in addition to the model's options: see :meth:`ChoiceModel.fit`."""

    seed: int = 0
    device: str = "auto"
    progress: bool = True
    run_folder: Path | None = None
    resume: bool = False
    on_epoch: EpochCallback | None = None
    init: Any = None  # what to start from, as ``_start`` returned it
    fingerprint: str = ""  # of the training part, which takes a while to hash
    warn: bool = True  # whether to log warnings about the validation part

    @property
    def inner_arguments(self) -> dict[str, Any]:
        """The arguments for the ``fit`` of a model inside this one."""
        names = ("seed", "device", "progress", "run_folder", "resume", "on_epoch", "init")
        return {name: getattr(self, name) for name in names}


def require_part(part: Any, what: str) -> None:
    """Refuse what is no table of choices, or has none that counts; ``what`` names the argument."""
    if not isinstance(part, ChoiceData | ScannedData):
        raise InputError(f"{what}: expected ChoiceData, got {type(part).__name__}: see ChoiceData.from_long.")
    part.require_chosen("fitting")
    if not (part.weights.any() if isinstance(part, ChoiceData) else len(part.with_positive_weight())):
        raise InputError(f"{what}: expected a choice set with a weight above 0, got none in {len(part)}.")


# -- The history of a fit: one entry per epoch, of models that train in epochs, and its picture ------------------------


class History:
    """A model with one entry per epoch of its fit, and of the fits of its members if it has some."""

    @property
    def members_(self) -> Sequence[Any]:
        """The fitted models whose probabilities are averaged, if there are some."""
        return ()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per epoch."""
        raise NotImplementedError

    def plot_history(self, ax: Axes | None = None) -> Axes:
        """Draw the loss by epoch; ``history`` has the numbers.

        Parameters
        ----------
        ax
            Where to draw; a new figure if None.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        InputError
            When the model is not fitted, or does not train in epochs.
        """
        members = {f"member {k}": m.history for k, m in enumerate(self.members_, start=1) if m.history}
        if not self.history and not members:
            raise InputError(f"{type(self).__name__} has no history: it is not fitted, or does not train in epochs.")
        from pcmcnet.plots.quality import plot_learning_curve

        return plot_learning_curve(members or self.history, ax)


Gives = Literal["probabilities", "scores", "ranking"]


class ChoiceModel(Estimator, History, ABC):
    """Base of all models; options are those of ``config_class``.

    ``gives`` says what a model's probabilities are worth: "probabilities" fitted as such; "scores" made to sum to 1
    within a set, which reports mark; or a "ranking" alone, for which reports show no likelihood.
    """

    name: ClassVar[str]
    config_class: ClassVar[type]
    gives: ClassVar[Gives] = "probabilities"
    stops_early: ClassVar[bool] = False  # whether a validation part is of use
    streams: ClassVar[bool] = False  # whether a table on disk that is larger than memory can be fitted
    reads_contents: ClassVar[bool] = False  # whether columns beyond numbers and categories are of use
    is_logit: ClassVar[bool] = False  # whether the odds of two alternatives are the same in every choice set
    order_matters: ClassVar[bool] = False  # whether the order of a set's rows changes its probabilities
    record_class: ClassVar[type[FitRecord]] = FitRecord  # plain facts about how a fit went

    def __init__(self, **options: Any) -> None:
        self.config: Any = make_config(self.config_class, options)
        self.fitted_: FittedModel | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the options of ``config_class`` as the signature, for help and completion."""
        super().__init_subclass__(**kwargs)
        if "config_class" in cls.__dict__:
            cls.__signature__ = inspect.signature(cls.config_class)  # type: ignore[attr-defined]

    @property
    def extras(self) -> dict[str, Any]:
        """What a model of the same kind is to be given beside its options; mostly nothing."""
        return {}

    @property
    def identity(self) -> dict[str, Any]:
        """What a fit depends on beside the data and the seed; survives JSON."""
        return {"options": asdict(self.config)}

    def __repr__(self) -> str:
        state = "fitted" if self.fitted_ is not None else "not fitted"
        return f"{type(self).__name__}({state}; {self.config})"

    # -- to be implemented ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Number of parameters estimated."""

    @abstractmethod
    def _fit(self, train: Any, valid: Any, run: FitRun) -> FittedState:
        """Return what the model learns from checked data, and leave the model as it is.

        The data are ``ChoiceData``, or, if the model ``streams``, also ``ScannedData``.
        """

    @abstractmethod
    def _log_proba(self, data: ChoiceData) -> Floats:
        """(N,) log-probabilities of the alternatives, set after set."""

    def _start(self, init: Any, schema: Schema) -> Any:
        """Take from a fitted model what a fit that starts from it needs; most models start from nothing."""
        if init is not None:
            raise ConfigError(f"{type(self).__name__} has no use for init, which is for networks: leave it out.")

    def _scores(self, data: ChoiceData) -> Floats:
        """(N,) values that rank the alternatives of a set, the best first."""
        return self._checked_log_proba(data)

    def _slopes(self, data: ChoiceData, column: str) -> Floats | None:
        """Derivatives of log-probabilities in a numeric column, or None where the model has no formula for them.

        For a feature d log p_i / d x_j of all ordered pairs of a set, as ``ragged.ordered_pairs`` lists them; for a
        column of the individual (N,) d log p_i / d x.
        """
        return None

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """Return the model as a mixture of logits, or None where it is none.

        Returns
        -------
        (S, C) shares of the C logits in each set, and (N, C) log-probabilities of the alternatives in each.
        """
        return (np.ones((len(data), 1)), self._log_proba(data)[:, None]) if self.is_logit else None

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats] | None:
        """(S, C), (S, C) expected largest utility by set and class of people, and the classes' shares; None if none."""
        return None

    @abstractmethod
    def _files(self) -> dict[str, bytes]:
        """Return the fitted state as files by name."""

    @abstractmethod
    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedState:
        """Return the fitted state from such files, its record and the facts of the training table."""

    @abstractmethod
    def summary(self) -> Summary:
        """Sum up the fitted model; prints as a table."""

    # -- common to all ----------------------------------------------------------------------------------------

    @default_torch_settings()
    def _checked_log_proba(self, data: ChoiceData) -> Floats:
        """(N,) log-probabilities of the alternatives, set after set; refused where some set's do not sum to 1."""
        log_p = self._log_proba(data)
        require_probabilities(log_p, data)
        return log_p

    @property
    def _encodes_chunks(self) -> bool:
        """Whether rows of a table are encoded on the model's device while others are predicted; only networks do so."""
        return False

    @property
    def _parallel_chunks(self) -> int:
        """How many chunks of a table are predicted at a time; several in threads, which an interrupt waits for."""
        return 1

    def _log_proba_of_chunks(self, chunks: Iterable[Chunk | ChunkProblem]) -> Iterator[Floats | ChunkProblem]:
        """Yield log-probabilities of the rows of one chunk of a table after the other; a problem ends it."""
        return chunks_log_proba(self, chunks)

    def require_fitted(self) -> FittedModel:
        """Return the fitted record; raise NotFittedError if there is none."""
        if self.fitted_ is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit, or load a saved model.")
        return self.fitted_

    @property
    def _state(self) -> Any:
        """What the fit learnt. A subclass declares the class that its ``_fit`` returns: ``_state: FittedNetwork``."""
        return self.require_fitted().state

    @property
    def schema(self) -> Schema:
        """The roles of the training table's columns."""
        return self.require_fitted().schema

    @property
    def table_(self) -> TrainingTable:
        """What the model was fitted to."""
        return self.require_fitted().table

    @property
    def record_(self) -> Any:
        """Plain facts about how the fit went, of the class ``record_class``."""
        return self.require_fitted().state.record

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per epoch, of models that train in epochs; empty for others and before a fit."""
        return [] if self.fitted_ is None else [dict(entry) for entry in self.fitted_.state.history]

    def _common_facts(self) -> dict[str, str]:
        """Return what most summaries begin with: the options, and what the model was fitted to."""
        return {
            "options": ", ".join(f"{name}={value}" for name, value in asdict(self.config).items()),
            "trained on": f"{self.table_.choice_sets:,} choice sets, {self.table_.alternatives:,} alternatives",
        }

    def add_table_facts(self, **facts: Any) -> None:
        """Add facts to those of the training table, such as ``drawn_from``, in a new fitted record."""
        fitted = self.require_fitted()
        self.fitted_ = replace(fitted, table=replace(fitted.table, **facts))

    @property
    def caveats(self) -> tuple[str, ...]:
        """What to know before trusting the fitted model's numbers; mostly nothing. Reports show it."""
        stopped = self.record_.converged is False
        return ("the search was stopped before it converged",) if stopped else ()

    @default_torch_settings()
    @torch.enable_grad()
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
        """Fit to choice sets with known choices.

        Parameters
        ----------
        train, valid
            Choice data; a validation part lets models stop early. Scanned data is read whole where it fits its memory;
            where not, models that train in epochs take it part by part, and others refuse it.
        seed
            Where all randomness comes from.
        device
            "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
        progress
            Show a bar on a terminal, or log a line per epoch elsewhere.
        run_folder, resume
            Folder for the checkpoint written after epochs, and whether to go on from the one there.
        on_epoch
            Called with each epoch's entry of the history, by models that train in epochs; entries of networks that are
            averaged with a first one have their number as ``network``. What it raises ends the fit, and leaves the
            model as it was; :class:`pcmcnet.StopFit` ends it with what was learnt so far.
        init
            A fitted network of the same kind to start from, with its encoder, for a new table of the same columns or
            for more epochs; see :mod:`pcmcnet.models.networks.trainer`.

        Returns
        -------
        The model itself.
        """
        require_part(train, "train")
        if valid is not None:
            require_part(valid, "valid")
        train, valid = self._in_memory(train, valid)
        if not self.reads_contents:
            train, valid = without_contents(type(self).__name__, train, valid)
        seed = int(seed) if isinstance(seed, np.integer) else seed
        require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
        if resume and run_folder is None:
            raise InputError("resume=True needs the run_folder of the run to go on with.")
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
        # the fit may need. Processes of a group return no model, so they have no use for a description.
        alone, thread = current_group().size == 1, ThreadPoolExecutor(1)
        try:
            in_memory = alone and isinstance(train, ChoiceData)
            describe = submit_or_run(thread, train.describe).result if in_memory else train.describe
            with nullcontext() if folder is None else sole_writer(folder):
                state = self._fit(train, valid, run)
            table = self._training_table(train, valid, run, describe() if alone else {})
        finally:
            thread.shutdown(wait=False)
        self.fitted_ = FittedModel(schema=train.schema, table=table, state=state)
        return self

    def _training_table(self, train: Sets, valid: Sets | None, run: FitRun, description: Any) -> TrainingTable:
        """Return the facts of the sets that the fitted state was learnt from."""
        return TrainingTable.of(train, run.fingerprint, run.seed, description)

    def survey(self, train: Sets, valid: Sets | None) -> None:
        """Look through a table before several processes fit to it, so that none of them has to."""

    def predict_log_proba(self, data: Any) -> Floats:
        """Return log-probabilities, one per row of the table in its order; -inf for unavailable rows.

        ``data`` is a ``ChoiceData``, a scanned table, which is asked part by part, or a table as
        ``ChoiceData.from_long`` takes, read by the model's own schema. A model fitted to a wide table reads wide ones,
        too: the values are then those of the first row's alternatives, in the order of ``alternatives``, then of the
        second row's, and so on.
        """
        return log_proba(self, data)

    def predict_proba(self, data: Any) -> Floats:
        """Return probabilities, one per row of the table in its order; 0 for unavailable rows."""
        probabilities: Floats = np.exp(self.predict_log_proba(data))
        return probabilities

    def predict_scores(self, data: Any) -> Floats:
        """Return what ranks the alternatives within a set, the largest first; -inf for unavailable rows.

        Log-probabilities, for all models but those that give a ranking alone.
        """
        sets = self._read(data)
        return in_row_order(sets, self._scores(sets), data)

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the first alternative of each set's ranking: its label, or its row in a table without labels.

        An outside option that has no row is -1.
        """
        sets = self._read(data)
        best = argmax_by_set(self._scores(sets), sets.offsets)
        if sets.labels is not None:
            return sets.labels.take(best).plain()
        return np.where(sets.rows[best] < sets.n_rows - sets.added, sets.rows[best], -1)

    def score(self, data: Any) -> float:
        """Return the weighted mean log-likelihood of the choices."""
        sets = data if isinstance(data, ScannedData) else self._read(data, chosen=True)
        sets.require_chosen("score")
        total = weight = 0.0
        for part in sets.parts():
            with_positive_weight = part.weights > 0  # a set of weight 0 takes no part, not even where its value is -inf
            weights, picked = part.weights[with_positive_weight], part.offsets[:-1] + part.require_chosen("score")
            total += float((self._checked_log_proba(part)[picked][with_positive_weight] * weights).sum())
            weight += float(weights.sum())
        if not weight:
            raise InputError(f"score: expected a choice set with a weight above 0, got none in {len(sets)}.")
        return total / weight

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model to a new folder; read it back by ``pcmcnet.load``."""
        from pcmcnet.models.interface.saving import save_artifact

        return save_artifact(self, as_path(folder))

    def export(self, path: str | Path) -> Path:
        """Write the fitted model as a graph for programs without this library: see :meth:`PCMCNet.export`.

        Other models than PCMC-Net refuse.
        """
        self.require_fitted()
        raise ConfigError(
            f"{type(self).__name__} cannot be exported, only PCMCNet can: save it, and serve it by `pcmcnet serve`."
        )

    def _in_memory(self, *parts: Sets | None) -> tuple[Any, ...]:
        """Read scanned parts whole where all of them fit their memory; refuse them where the model needs that."""
        scanned = [part for part in parts if isinstance(part, ScannedData)]
        if all(part.fits for part in scanned):
            return tuple(part.read() if isinstance(part, ScannedData) else part for part in parts)
        if not self.streams:
            raise ConfigError(
                f"{type(self).__name__} needs all choice sets in memory, for which the scanned table is too large: fit "
                f"it to data.sample(n_sets), or scan with more memory."
            )
        return parts

    def _read(self, data: Any, *, chosen: bool = False) -> ChoiceData:
        """Pass choice data on; read a table by the schema of the training table."""
        schema = self.schema
        if isinstance(data, ChoiceData):
            return data
        if isinstance(data, ScannedData):
            return data.read_if_fits()
        return ChoiceData.from_schema(data, schema if chosen else schema.for_prediction())
