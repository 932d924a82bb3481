"""Models and a table -> a fair comparison: every model on identical folds, with paired differences.

    fold k:  training part -> fit a fresh copy of each model -> metrics of each set of the test part

The folds together test every set once, so values are means over all sets. Intervals come from the bootstrap over
sets, or over the persons or other groups that are kept whole, since the sets of one depend on each other. All models
see the same resamples, so the difference of two models is compared set by set: what makes a set hard for both cancels.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.schema import Schema
from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.cross_validation import Cell, Failure, Fold, fresh, machine, measure, model_identity, plan_folds
from pcmcnet.evaluation.per_set import mean_metrics
from pcmcnet.evaluation.pooling import Outcomes, tally
from pcmcnet.evaluation.predictions import require_sets
from pcmcnet.evaluation.report import check_options
from pcmcnet.evaluation.store import CellStore
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.progress import log, show_steps
from pcmcnet.storage.files import as_path
from pcmcnet.storage.lock import sole_writer
from pcmcnet.storage.versions import package_version


def compare(
    models: Mapping[str, ChoiceModel],
    data: ChoiceData,
    folds: int | None = None,
    seed: int = 0,
    *,
    split: Sequence[float] | None = None,
    by: str | ArrayLike | None = None,
    valid: float = 0.0,
    top: Sequence[int] = (1, 5),
    resamples: int = 1000,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: bool = True,
) -> Comparison:
    """Fit and test models on identical parts of a table.

    Parameters
    ----------
    models
        Label -> model. The models themselves stay as they are: a fresh copy is fitted for each fold.
    data
        Choice sets with choices.
    folds
        Number of folds of a cross-validation, at least 2; 5 where neither this nor ``split`` is given.
    seed
        Where the folds, the fits and the resamples come from. Folds are those of ``data.folds(folds, seed=seed)``.
    split
        Instead of folds, one cut: the shares to fit on and to test on, such as (.8, .2).
    by
        Name of an individual or kept column, or one value per set: sets with equal values stay in one part, and are
        resampled together. None does so with the sets of each person, where persons are declared; the name of the
        choice-set column takes each set by itself even then.
    valid
        Share of each training part that is held out for models that stop early; 0 for none.
    top
        For which n the accuracy within the first n alternatives is wanted.
    resamples
        Resamples for intervals and p-values; 0 for neither.
    device
        Where networks are trained: "auto", "cpu", "cuda", ...
    folder
        Where to keep each cell once it is measured, and the result as comparison.json and comparison.md. A second
        call with the same table and options goes on with what is missing; models may be added or removed.
    progress
        Show a bar on a terminal, or log a line per model and fold elsewhere.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        When the models or the table cannot be compared at all. A model that fails on its own, whatever it raises,
        is reported in its row, and the others go on.
    ConfigError
        When an option has an impossible value.
    ArtifactError
        When the folder holds something else, or another comparison.

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
    models = _require_models(models)
    if not isinstance(data, ChoiceData):
        raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
    check_options(top, resamples, seed)
    data.require_chosen("a comparison")
    require_sets(data)
    groups, by = data.groups(by), _kept_whole(by, data.schema)
    plan = plan_folds(groups, folds=folds, split=split, valid=valid, seed=seed)
    common = _identity(data, None if by is None else groups, by, len(plan), split, valid, seed, top)
    store = None if folder is None else CellStore(as_path(folder), common)
    with nullcontext() if store is None else sole_writer(store.folder):
        if store is not None:
            store.open()
        outcomes = _measure_all(models, data, plan, store, top=top, seed=int(seed), device=device, progress=progress)
        comparison = tally(
            models,
            outcomes,
            data,
            plan,
            groups=None if by is None else groups,
            top=tuple(int(n) for n in top),
            seed=int(seed),
            resamples=int(resamples),
            design={**common, "resamples": int(resamples), "device": device, **surroundings()},
        )
        if store is not None:
            store.write_file("comparison.json", json.dumps(comparison.to_dict(), indent=1, ensure_ascii=False) + "\n")
            store.write_file("comparison.md", f"# Comparison\n\n{comparison.to_markdown()}\n")
    return comparison


def _measure_all(
    models: Mapping[str, ChoiceModel],
    data: ChoiceData,
    plan: Sequence[Fold],
    store: CellStore | None,
    *,
    top: Sequence[int],
    seed: int,
    device: str,
    progress: bool,
) -> Outcomes:
    """Fold after fold, measure every model; one that has failed is left alone from then on."""
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
                found = None if store is None else store.read(identity, k)
                if found is not None:
                    report.end(name, "already measured")
                    outcomes[label].append(found)
                    continue
                parts = parts or fold.cut(data)
                outcome: Cell | Failure
                try:
                    outcome = measure(model, parts, top=top, seed=seed, device=device)
                except Exception as error:  # noqa: BLE001 - one model's trouble is a row, not the end of the others
                    log.debug("%s failed", name, exc_info=True)
                    outcome = Failure.of(error)
                outcomes[label].append(outcome)
                if store is not None and isinstance(outcome, Cell):
                    store.write(identity, k, outcome)
                report.end(name, _in_words(outcome, data.weights[fold.test]))
    return outcomes


def _in_words(outcome: Cell | Failure, weights: Floats) -> str:
    if isinstance(outcome, Failure):
        return f"failed: {outcome.message}"
    means = mean_metrics(outcome.metrics, weights) if weights.any() else {}
    shown = [f"{name.upper().replace('_', ' ')} {value:.4f}" for name, value in means.items()]
    return ", ".join([*shown[:1], f"{outcome.fit_seconds:.1f} s to fit"])


def _require_models(models: Any) -> dict[str, ChoiceModel]:
    """Refuse what cannot be fitted, before any work is done."""
    if not isinstance(models, Mapping) or not models:
        raise InputError(f"models: expected a mapping from labels to models, such as {{'MNL': MNL()}}, got {models!r}.")
    for label, model in models.items():
        if not isinstance(label, str) or not label.strip() or not label.isprintable():
            raise InputError(f"models: expected a name in one line for each model, got {label!r}.")
        if not isinstance(model, ChoiceModel):
            kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
            raise InputError(f"models, {label!r}: expected a model such as PCMCNet(), got {kind}.")
        fresh(model)
    return dict(models)


def _kept_whole(by: str | ArrayLike | None, schema: Schema) -> str | ArrayLike | None:
    """Return what keeps several sets together; None where each is cut and resampled by itself."""
    by = schema.together if by is None else by
    alone = isinstance(by, str) and by == schema.choice_set and schema.rank is None
    return None if alone else by


def _identity(
    data: ChoiceData,
    groups: Ints | None,
    by: str | ArrayLike | None,
    folds: int,
    split: Sequence[float] | None,
    valid: float,
    seed: int,
    top: Sequence[int],
) -> dict[str, Any]:
    """What every cell depends on beside its model."""
    return {
        "table": data.fingerprint(),
        "folds": folds,
        "split": None if split is None else [float(share) for share in split],
        "seed": int(seed),
        "by": by if isinstance(by, str) or by is None else "given values",
        "groups": None if groups is None else hashlib.sha256(groups.tobytes()).hexdigest(),
        "valid": float(valid),
        "top": [int(n) for n in top],
        "version": package_version("pcmcnet"),
    }


def surroundings() -> dict[str, Any]:
    """Where it was measured: seconds mean nothing without it."""
    versions = {name: package_version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"machine": machine(), "versions": {"python": platform.python_version(), **versions}}
