"""Comparison of models on one table: all models use the same folds, and differences are paired by choice set.

    fold k:  training part -> fit an unfitted copy of each model -> metrics of each set of the test part

In cross-validation every set is held out once, so metrics are means over all sets. Bootstrap intervals resample choice
sets, or persons or other groups if the sets of a group are dependent. The sets of a group are never divided between
training and test parts. All models use the same resamples, and the difference between two models is computed set by
set, so that the difficulty of a set cancels out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunked_data import ChunkedData, read_chunked
from pcmcnet.data.schema import Schema
from pcmcnet.data.subsets import fold_parts, generator, split_parts
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.evaluation.comparison import GIVEN_TEST_PART, Comparison
from pcmcnet.evaluation.metrics import mean_metrics, model_metrics
from pcmcnet.evaluation.paired_differences import CELL_COSTS, Cell, Failure, Outcomes, build_comparison
from pcmcnet.evaluation.predictions import require_predictor, require_sets
from pcmcnet.evaluation.report import require_evaluation_options
from pcmcnet.models import model_class
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.options import changed_options
from pcmcnet.progress import show_steps
from pcmcnet.storage import as_path, differences, package_version, parse_json, sole_writer, write_bytes

log = logging.getLogger("pcmcnet")

# -- Cross-validation --------------------------------------------------------------------------------------------------
# A cell of a comparison is one model, fitted to one training part and tested on one test part.
#
# A fold has three parts: training sets, validation sets for early stopping, and test sets. A model is trained on the
# first two parts, from which it also learns scales and categories. It predicts the third part with the choices removed.


class FoldData(NamedTuple):
    """Choice sets of the training, validation and test parts of a fold."""

    train: ChoiceData
    valid: ChoiceData | None
    test: ChoiceData


@dataclass(frozen=True)
class FoldIndices:
    """Sorted indices of the choice sets in each part of a fold."""

    train: Ints
    valid: Ints | None
    test: Ints

    def select(self, data: ChoiceData) -> FoldData:
        """Return the training, validation and test parts of a table."""
        valid = None if self.valid is None else data.subset(self.valid)
        return FoldData(data.subset(self.train), valid, data.subset(self.test))


def plan_folds(
    groups: Ints,
    *,
    folds: int | None,
    split: Sequence[float] | None,
    valid: float,
    seed: int,
    test: Ints | None = None,
) -> list[FoldIndices]:
    """Divide choice sets into folds or a single split, given the group of each set (S,), or use a given test part."""
    if sum(option is not None for option in (folds, split, test)) > 1:
        raise ConfigError(
            "expected one of folds, split and test, got several: give a number of folds, two shares such as (.8, .2), "
            "or the choice sets of the test part."
        )
    require_number("valid", valid, low=0, high=1, open_high=True)
    if test is not None:
        tests = [test]
    elif split is None:
        tests = fold_parts(groups, 5 if folds is None else folds, generator(seed))
    elif not isinstance(split, Sequence) or isinstance(split, str) or len(split) != 2:
        raise ConfigError(f"split must be the shares of the training and test parts, such as (.8, .2), got {split!r}.")
    else:
        tests = split_parts(groups, split, generator(seed))[1:]
    return [_fold(groups, test, valid, seed) for test in tests]


def _fold(groups: Ints, test: Ints, valid: float, seed: int) -> FoldIndices:
    """Return the fold with the given test part, in which a share ``valid`` of the other sets is the validation part."""
    train = np.setdiff1d(np.arange(len(groups)), test)
    if not valid:
        return FoldIndices(train, None, test)
    kept, held_out = split_parts(groups[train], (1 - valid, valid), generator(seed))
    return FoldIndices(train[kept], train[held_out], test)


def unfitted_copy(model: ChoiceModel) -> ChoiceModel:
    """Return an unfitted model of the same class with the same options."""
    return type(model)(**asdict(model.config), **model.extras)


def model_identity(model: ChoiceModel) -> dict[str, Any]:
    """Return the class, options and other inputs that identify a model, without data and seed, as JSON values."""
    kind = type(model)
    return {"model": model.name, "class": f"{kind.__module__}.{kind.__qualname__}", **model.identity}


def fit_and_test(model: ChoiceModel, parts: FoldData, *, top: Sequence[int], seed: int, device: str) -> Cell:
    """Fit a copy of the model to the training part, and compute its metrics on the test part."""
    fitted = unfitted_copy(model)
    start = time.perf_counter()
    train, valid = parts.train, parts.valid
    if valid is not None and not fitted.stops_early:
        train, valid = train.concat(valid), None  # a model without early stopping trains on the validation part too
    fitted.fit(train, valid, seed=seed, device=device, progress=False)
    seconds = time.perf_counter() - start
    where = f"{describe_machine()}, torch {package_version('torch')}; device {device}"
    return replace(test_fitted(fitted, parts, top=top), fit_seconds=seconds, where=where)


def test_fitted(model: ChoiceModel, parts: FoldData, *, top: Sequence[int]) -> Cell:
    """Compute the metrics of a fitted model on the test part."""
    chosen = parts.test.require_chosen("a comparison")
    start = time.perf_counter()
    per_set = model_metrics(model, replace(parts.test, chosen=None), chosen, top)  # no model can use the choices
    return Cell(per_set, 0.0, time.perf_counter() - start, int(model.num_parameters), caveats=model.fit_caveats)


def describe_machine() -> str:
    """Return the operating system, processor and number of cores, because run times depend on the machine."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


# -- Store -------------------------------------------------------------------------------------------------------------
# The state of a comparison on disk, so that an interrupted comparison can continue:
#
#     cells/plan.json                           table, folds, seed, ...: the settings common to all cells
#     cells/<model>-<hash>-<fold>.safetensors   one complete cell, written atomically
#
# A cell is identified by the model's class and options, so models may be added, removed and renamed between two runs. A
# folder with another plan raises ArtifactError. A damaged cell counts as missing. Reading a cell executes no code.


@dataclass(frozen=True)
class CellStore:
    """Folder that stores the results of each model and fold; ``plan`` contains their common settings as JSON values."""

    folder: Path
    plan: Mapping[str, Any]

    def open(self) -> None:
        """Create the folder, or check that an existing folder contains a comparison with the same settings."""
        path = self.folder / "cells" / "plan.json"
        if path.exists():
            self._require_same_plan(path)
            return
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ArtifactError(f"{self.folder} exists but contains no comparison: choose another folder, or empty it.")
        self.write_file("cells/plan.json", json.dumps(self.plan, indent=1) + "\n")

    def read(self, model: Mapping[str, Any], fold: int) -> Cell | None:
        """Return the stored results of a model (given by its identity) on a fold, or None if missing or damaged."""
        path = self._path(model, fold)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                metrics = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            text = metadata["cell"]
            entries = parse_json(text)
            if metadata["sha256"] != _digest(metrics, text) or entries["identity"] != self._identity(model, fold):
                raise ValueError("altered")
            cost = {**entries["cost"], "caveats": tuple(entries["cost"]["caveats"])}
            return Cell({name: metrics[name] for name in entries["metrics"]}, **cost)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("%s is damaged (%s): computing this fold again", path, error)
            return None

    def write(self, model: Mapping[str, Any], fold: int, cell: Cell) -> None:
        """Write the results of a model on a fold."""
        cost = {name: getattr(cell, name) for name in CELL_COSTS}
        text = json.dumps({"identity": self._identity(model, fold), "metrics": list(cell.metrics), "cost": cost})
        content = save(cell.metrics, {"cell": text, "sha256": _digest(cell.metrics, text)})
        write_bytes(self._path(model, fold), content)

    def write_file(self, name: str, text: str) -> None:
        """Write a text file to the folder atomically."""
        write_bytes(self.folder / name, text.encode())

    def _path(self, model: Mapping[str, Any], fold: int) -> Path:
        digest = hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()
        return self.folder / "cells" / f"{model['model']}-{digest[:16]}-{fold + 1}.safetensors"

    def _identity(self, model: Mapping[str, Any], fold: int) -> Any:
        """Return the settings, model and fold that identify stored results, after a round trip through JSON."""
        return json.loads(json.dumps({"plan": self.plan, "model": model, "fold": fold}))

    def _require_same_plan(self, path: Path) -> None:
        """Raise ArtifactError if the folder was created with different settings."""
        try:
            saved = dict(parse_json(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise ArtifactError(f"{path} is damaged ({error}): choose another folder, or remove this one.") from error
        current = json.loads(json.dumps(self.plan))
        if saved != current:
            raise ArtifactError(
                f"{self.folder} contains a comparison with different settings: "
                f"{', '.join(differences(saved, current))}. Use the same table and options, or choose another folder."
            )


def _digest(metrics: Mapping[str, Floats], text: str) -> str:
    """Return the checksum of the results of a model on a fold."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(metrics):
        digest.update(f"{name}{metrics[name].shape}".encode())
        digest.update(metrics[name].tobytes())
    return digest.hexdigest()


# -- Compare -----------------------------------------------------------------------------------------------------------


@suggests_arguments(call="compare([MNL(), PCMCNet()], data)")
def compare(
    models: Mapping[str, ChoiceModel] | Sequence[ChoiceModel | str],
    data: ChoiceData | ChunkedData,
    folds: int | None = None,
    seed: int = 0,
    *,
    split: Sequence[float] | None = None,
    test: ChoiceData | ChunkedData | None = None,
    fitted: Mapping[str, ChoiceModel] | None = None,
    by: str | ArrayLike | None = None,
    valid: float = 0.0,
    top: Sequence[int] = (1, 5),
    resamples: int = 1000,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: bool = True,
) -> Comparison:
    """Compare models out of sample, on identical folds of a table.

    Parameters
    ----------
    models
        A list of models, or of registry names such as "mnl", or a mapping from labels to models. In a list, models are
        labelled by their registry names and, if these are the same, by their options. The models are not modified: a
        copy is fitted on each fold.
    data
        Choice sets with observed choices. Catalogues and scanned tables are read into memory.
    folds
        Number of cross-validation folds, at least 2. Default None: 5 folds, unless ``split`` or ``test`` is given.
    seed
        Seed of the folds, the fits and the resamples. The folds equal those of ``data.folds(folds, seed=seed)``.
        Default 0.
    split
        Shares of the training and test parts, such as (.8, .2), for a single split instead of cross-validation. Default
        None.
    test
        Choice sets of the test part, for a split that is given, such as a published one. ``data`` is then the training
        part. Default None.
    fitted
        Mapping from further labels to fitted models, which are tested as they are, without another fit. Their results
        are out of sample only if they were not fitted to these choice sets. Default None.
    by
        Name of an individual-level or kept column, or an array with one value per choice set, those of ``test`` last.
        Sets with equal values stay in the same part (unless ``test`` is given) and are resampled together. Default
        None: if persons are declared, the sets of a person stay together. The name of the choice-set column makes each
        set a separate group.
    valid
        Share of each training part that is held out for early stopping, for models that use it. Default 0: nothing is
        held out.
    top
        Values of n for which the top-n accuracy is computed. Default (1, 5).
    resamples
        Number of bootstrap resamples for intervals and p-values. If 0, no intervals or p-values are computed. Default
        1,000.
    device
        Device on which networks are trained: "auto" (default), "cpu", "cuda", ...
    folder
        Folder for the results of each model and fold, and for comparison.json and comparison.md. A second call with the
        same table and options computes only the missing results, so models may be added or removed. Default None:
        nothing is written.
    progress
        Whether to report progress: a progress bar on a terminal, otherwise one log line per model and fold. Default
        True.

    Returns
    -------
    Comparison
        One row per model, with metrics, intervals, costs and the paired difference from the best model.

    Raises
    ------
    InputError
        If the models or the table are not valid. If a model fails during the comparison, its row contains the error
        message, and the comparison continues.
    ArtifactError
        If the folder contains unrelated files or a different comparison.

    Examples
    --------
    >>> from pcmcnet.models import PCMCNet
    >>> table = {"trip": [k // 2 for k in range(80)], "took": [1, 0] * 40, "cost": [1.0, 2.0] * 40}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> models = {"small": PCMCNet(hidden=(4,), epochs=1), "large": PCMCNet(hidden=(8,), epochs=5)}
    >>> result = compare(models, data, folds=2, progress=False)
    >>> result.n_sets, [row.label for row in result.rows], result.best
    (40, ['small', 'large'], 'large')
    """
    # 1. Check the models, the table and the options before any work is done.
    models, fitted = _require_models(models), dict(fitted or {})
    if repeated := models.keys() & fitted.keys():
        raise InputError(f"fitted: the label {min(repeated)!r} is also in models.")
    for model in fitted.values():
        require_predictor(model)
    if not isinstance(data := read_chunked(data), ChoiceData):
        raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
    require_evaluation_options(top, resamples, seed)
    data.require_chosen("a comparison")
    require_sets(data)
    test_sets = None
    if test is not None:
        data, test_sets = _with_test_part(data, test), np.arange(len(data), len(data) + len(test))
    # 2. Divide the table into folds. ``common`` has the settings that all cells share.
    groups, by = data.groups(by), _grouping(by, data.schema)
    plan = plan_folds(groups, folds=folds, split=split, valid=valid, seed=seed, test=test_sets)
    common = {
        "table": data.fingerprint(),
        "folds": len(plan),
        "split": GIVEN_TEST_PART if test is not None else None if split is None else [float(share) for share in split],
        "seed": int(seed),
        "by": by if isinstance(by, str) or by is None else "given values",
        "groups": None if by is None else hashlib.sha256(groups.tobytes()).hexdigest(),
        "valid": float(valid),
        "top": [int(n) for n in top],
        "version": package_version("pcmcnet"),
        **({} if test is None else {"test": test.fingerprint()}),
    }
    # 3. Compute the missing cells, build the comparison, and write it if a folder is given.
    store = None if folder is None else CellStore(as_path(folder), common)
    with nullcontext() if store is None else sole_writer(store.folder):
        if store is not None:
            store.open()
        compute_cell = partial(fit_and_test, top=top, seed=int(seed), device=device)
        outcomes = _compute_cells(models, data, plan, store, compute_cell, progress)
        test_cell = partial(test_fitted, top=top)
        outcomes = {**outcomes, **_compute_cells(fitted, data, plan, None, test_cell, progress=False)}
        design = {**common, "resamples": int(resamples), "device": device, **describe_environment()}
        comparison = build_comparison(
            {**models, **fitted}, outcomes, data, [fold.test for fold in plan], None if by is None else groups, design
        )
        if store is not None:
            store.write_file("comparison.json", json.dumps(comparison.to_dict(), indent=1, ensure_ascii=False) + "\n")
            store.write_file("comparison.md", f"# Comparison\n\n{comparison.to_markdown()}\n")
    return comparison


def _compute_cells(
    models: Mapping[str, ChoiceModel],
    data: ChoiceData,
    plan: Sequence[FoldIndices],
    store: CellStore | None,
    compute_cell: Callable[[ChoiceModel, FoldData], Cell],
    progress: bool,
) -> Outcomes:
    """Fit and test every model on every fold. After a model fails, its remaining folds are skipped."""
    outcomes: dict[str, list[Cell | Failure]] = {label: [] for label in models}
    with show_steps(len(plan) * len(models), show=progress) as report:
        for k, fold in enumerate(plan):
            parts = None
            for label, model in models.items():
                if any(isinstance(outcome, Failure) for outcome in outcomes[label]):
                    continue
                name = f"fold {k + 1}/{len(plan)}, {label}"
                report.begin(name)
                identity = model_identity(model)
                saved = None if store is None else store.read(identity, k)
                if saved is not None:
                    report.end(name, "already computed")
                    outcomes[label].append(saved)
                    continue
                parts = parts or fold.select(data)
                outcome: Cell | Failure
                try:
                    outcome = compute_cell(model, parts)
                except Exception as error:
                    log.debug("%s failed", name, exc_info=True)
                    outcome = Failure.of(error)
                outcomes[label].append(outcome)
                if store is not None and isinstance(outcome, Cell):
                    store.write(identity, k, outcome)
                report.end(name, _describe(outcome, data.weights[fold.test]))
    return outcomes


def _describe(outcome: Cell | Failure, weights: Floats) -> str:
    """Describe the loss and fitting time of a model on a fold, or its error, for the progress report."""
    if isinstance(outcome, Failure):
        return f"failed: {outcome.message}"
    means = mean_metrics(outcome.metrics, weights) if weights.any() else {}
    shown = [f"{name.upper().replace('_', ' ')} {value:.4f}" for name, value in means.items()]
    return ", ".join([*shown[:1], f"{outcome.fit_seconds:.1f} s to fit"])


def _require_models(models: Any) -> dict[str, ChoiceModel]:
    """Return the models by label, or raise InputError if a label or a model is not valid."""
    if isinstance(models, Sequence) and not isinstance(models, str) and models:
        models = _label_models(models)
    if not isinstance(models, Mapping) or not models:
        raise InputError(
            f"models: expected a list of models, such as [MNL(), PCMCNet()] or ['mnl', 'pcmcnet'], or a mapping from "
            f"labels to models, got {models!r}."
        )
    models = {label: model_class(model)() if isinstance(model, str) else model for label, model in models.items()}
    for label, model in models.items():
        if not isinstance(label, str) or not label.strip() or not label.isprintable():
            raise InputError(f"models: expected a printable label for each model, got {label!r}.")
        if not isinstance(model, ChoiceModel):
            kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
            remedy = f" Write {model.__name__}()." if isinstance(model, type) else ""
            raise InputError(f"models, {label!r}: expected a model such as PCMCNet(), got {kind}.{remedy}")
        unfitted_copy(model)
    return dict(models)


def _label_models(models: Sequence[Any]) -> dict[str, Any]:
    """Return the models of a list by their registry names. Models of the same kind are told apart by their options."""
    built = [model_class(model)() if isinstance(model, str) else model for model in models]
    names = [model.name if isinstance(model, ChoiceModel) else "" for model in built]
    labels = []
    for model, name in zip(built, names, strict=True):
        options = changed_options(model.config) if names.count(name) > 1 and isinstance(model, ChoiceModel) else {}
        labels.append(" ".join([name or repr(model), *(f"{k}={v!r}" for k, v in options.items())]))
    if repeated := [label for label in labels if labels.count(label) > 1]:
        raise InputError(
            f"models: {repeated[0]!r} occurs twice in the list. Label the models, as in {{'a': MNL(), 'b': MNL()}}."
        )
    return dict(zip(labels, built, strict=True))


def _with_test_part(data: ChoiceData, test: Any) -> ChoiceData:
    """Return the choice sets of the training part, followed by those of the test part."""
    if not isinstance(test := read_chunked(test), ChoiceData):
        raise InputError(f"test: expected ChoiceData, got {type(test).__name__}: see ChoiceData.from_long.")
    test.require_chosen("a comparison")
    require_sets(test)
    return data.concat(test)


def _grouping(by: str | ArrayLike | None, schema: Schema) -> str | ArrayLike | None:
    """Return the column or values by which sets are grouped, or None if each set is a separate group."""
    by = schema.group_column if by is None else by
    is_separate = isinstance(by, str) and by == schema.choice_set and not schema.has_several_choices
    return None if is_separate else by


def describe_environment() -> dict[str, Any]:
    """Return the machine and the versions of Python and the main packages."""
    versions = {name: package_version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"machine": describe_machine(), "versions": {"python": platform.python_version(), **versions}}
