"""Several models side by side, as papers print them: coefficients with their errors below, then how well each fits.

A coefficient is a row, a model a column; a latent class logit has a column for each class, so that its coefficients
stand beside those of other models. Models without coefficients, such as networks, have the rows of the fit alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.bootstrap import BootstrapErrors
from pcmcnet.evaluation.report import FIT_STATISTICS, fit_statistics
from pcmcnet.models import LatentClassMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.models.logit.standard_errors import Errors, EstimateRow, estimate_rows
from pcmcnet.reports.formats import FormatsMixin, ResultContent, data_frame

ErrorKind = Errors | BootstrapErrors | None

_STARS = ((0.01, "***"), (0.05, "**"), (0.1, "*"))


class ModelColumn(NamedTuple):
    """A column of the table: a model, or one class of it."""

    model: str
    part: str  # name of the class; "" for a model as a whole
    rows: Mapping[str, EstimateRow]
    fit: Mapping[str, float | None]  # rows below the coefficients; none for the second class of a model and later ones


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ModelTable(FormatsMixin):
    """Models side by side; prints as text. Made by :func:`table`."""

    columns: tuple[ModelColumn, ...]
    stars: bool
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The coefficients of all models, in the order in which they appear first."""
        return list(dict.fromkeys(name for column in self.columns for name in column.rows))

    def to_frame(self) -> Any:
        """Return the numbers as a pandas data frame, a row for each coefficient and figure of each column.

        Its columns are ``model``, ``part`` (the class, where a model has several), ``name``, ``estimate``,
        ``std_error``, ``z``, ``p``, ``lower``, ``upper`` and ``state``; figures of the fit stand in ``estimate``.
        """
        entries = []
        for column in self.columns:
            where = {"model": column.model, "part": column.part}
            entries += [{**where, **row._asdict(), "name": name} for name, row in column.rows.items()]
            entries += [{**where, "name": n, "estimate": v} for n, v in column.fit.items() if v is not None]
        schema = pa.schema(
            [(name, pa.string() if name in ("model", "part", "name", "state") else pa.float64()) for name in _FRAME]
        )
        return data_frame(pa.Table.from_pylist(entries, schema), instead="columns")

    def _content(self) -> ResultContent:
        head = ["", *(f"{column.model}: {column.part}" if column.part else column.model for column in self.columns)]
        rows: list[list[str]] = []
        for name in self.names:  # the estimates, and their errors below
            found = [column.rows.get(name) for column in self.columns]
            rows.append([name, *("" if row is None else self._estimate(row) for row in found)])
            errors = ("" if row is None else row.state or f"{row.std_error:.3g}" for row in found)
            rows.append(["", *(error and f"({error})" for error in errors)])
        shown = [name for name in FIT_STATISTICS if any(column.fit.get(name) is not None for column in self.columns)]
        fits = [[name, *(_format_statistic(name, column.fit.get(name)) for column in self.columns)] for name in shown]
        legend = [", ".join(f"{mark} p < {level:g}" for level, mark in reversed(_STARS))] if self.stars and rows else []
        rules = frozenset({len(rows)} if rows and fits else ())
        return ResultContent(title="Models", cells=[head, *rows, *fits], rules=rules, notes=(*legend, *self.notes))

    def _estimate(self, row: EstimateRow) -> str:
        mark = next((mark for level, mark in _STARS if row.p < level), "") if self.stars else ""
        return f"{row.estimate:.4g}{mark}"

    def __repr__(self) -> str:
        return str(self)


_FRAME = ("model", "part", *EstimateRow._fields)


def table(
    models: ChoiceModel | Sequence[ChoiceModel] | Mapping[str, ChoiceModel],
    names: Sequence[str] | None = None,
    errors: ErrorKind | Sequence[ErrorKind] = None,
    *,
    stars: bool = True,
    data: ChoiceData | None = None,
) -> ModelTable:
    """Put fitted models side by side.

    Parameters
    ----------
    models
        Fitted models, in the order of the columns; or a mapping from names to them; or a single one.
    names
        Heads of the columns; the kinds of the models, if not given.
    errors
        Kind of standard errors for all logits, or one for each model: a kind, what :func:`bootstrap_errors` gave, or
        None for the kind of the model's options, which is what all have if not given.
    stars
        Whether stars tell small p-values.
    data
        Choice sets on which models that are no logits, such as networks, are asked for their log-likelihood.

    Returns
    -------
    ModelTable
        ``.to_latex()``, ``.to_html()``, ``.to_markdown()``, ``.to_frame()``.

    Raises
    ------
    InputError
        When there are no models, one is not fitted, or there are not as many names or kinds of errors.
    """
    if isinstance(models, ChoiceModel):
        models = [models]
    if isinstance(models, Mapping):
        names = list(models) if names is None else names
        models = list(models.values())
    if not models or not all(isinstance(model, ChoiceModel) for model in models):
        raise InputError(f"expected a list of fitted models, got {models!r}.")
    heads = _heads(models) if names is None else list(map(str, names))
    kinds: list[Any] = (
        [errors] * len(models) if errors is None or isinstance(errors, str | BootstrapErrors) else list(errors)
    )
    for what, given in (("names", heads), ("errors", kinds)):
        if len(given) != len(models):
            raise InputError(f"{what}: expected one for each of {len(models)} models, got {len(given)}.")
    columns: list[ModelColumn] = []
    for head, model, kind in zip(heads, models, kinds, strict=True):
        columns += _columns(head, model, kind, data)
    return ModelTable(columns=tuple(columns), stars=stars, notes=tuple(_notes(heads, models, kinds, data)))


def _heads(models: Sequence[ChoiceModel]) -> list[str]:
    """Name models by their kinds, with a number where a kind appears twice."""
    kinds = [type(model).__name__ for model in models]
    return [f"{kind} ({kinds[:k].count(kind) + 1})" if kinds.count(kind) > 1 else kind for k, kind in enumerate(kinds)]


def _columns(head: str, model: ChoiceModel, kind: ErrorKind, data: ChoiceData | None) -> list[ModelColumn]:
    """Return the column of a model, or those of its classes."""
    fit = fit_statistics(model, data)
    if not isinstance(model, LogitModel):
        return [ModelColumn(head, "", {}, fit)]
    if isinstance(kind, BootstrapErrors):
        rows = _bootstrap_rows(model, kind)
    else:
        rows = estimate_rows(model.estimates_, kind or model.default_errors, calibrated=model.calibrated_constants)
    if not isinstance(model, LatentClassMNL) or model.n_classes_ == 1:
        return [ModelColumn(head, "", {row.name: row for row in rows}, fit)]
    found = []
    for c in range(1, model.n_classes_ + 1):
        own = {}
        for row in rows:
            part, _, name = row.name.partition(": ")
            if part == f"class {c}":
                own[name] = row
            elif part == f"membership {c}":
                own[f"membership: {name}"] = row
        found.append(ModelColumn(head, f"class {c}", own, fit if c == 1 else {}))
    return found


def _bootstrap_rows(model: LogitModel, boot: BootstrapErrors) -> list[EstimateRow]:
    """Take the errors and intervals of the bootstrap for those of the likelihood."""
    from pcmcnet.evaluation.hypothesis_tests.vuong import normal_p_value

    if boot.names != model.estimates_.names or (boot.values != model.estimates_.values).any():
        raise InputError("errors: the bootstrap is of another model: expected one for each model, in their order.")
    rows = []
    for row, null in zip(estimate_rows(model.estimates_, "classical"), model.estimates_.null.tolist(), strict=True):
        error, (low, high) = boot.standard_errors[row.name], boot.intervals[row.name]
        z = (row.estimate - null) / error if error else float("nan")
        new = row._replace(std_error=error, z=z, p=normal_p_value(z), lower=low, upper=high)
        rows.append(row if row.state == "fixed" else new)
    return rows


def _format_statistic(name: str, value: float | None) -> str:
    return "" if value is None else f"{value:{FIT_STATISTICS[name]}}"


def _notes(
    heads: Sequence[str], models: Sequence[ChoiceModel], kinds: Sequence[ErrorKind], data: ChoiceData | None
) -> list[str]:
    """Say what stands in parentheses, and what does not compare."""
    logits = [(h, m, k) for h, m, k in zip(heads, models, kinds, strict=True) if isinstance(m, LogitModel)]
    named = {
        h: f"bootstrap by {k.unit}" if isinstance(k, BootstrapErrors) else k or m.default_errors for h, m, k in logits
    }
    notes = []
    if named:
        same = len(set(named.values())) == 1
        words = next(iter(named.values())) if same else ", ".join(f"{kind} ({head})" for head, kind in named.items())
        notes.append(f"Standard errors in parentheses: {words}.")
    if any(name.startswith("logsum") for _, m, _ in logits for name in m.estimates_.names):
        notes.append("Log-sums are tested against 1.")
    moved = [head for head, model, _ in logits if model.calibrated_constants]
    if moved:
        notes.append(
            f"Constants of {', '.join(moved)}: moved to known shares after the fit, so that they have no errors; the "
            f"figures of fit are those before the move."
        )
    if len({model.table_.fingerprint for model in models}) > 1:
        notes.append("The models were fitted to different tables: their likelihoods do not compare.")
    others = [h for h, m in zip(heads, models, strict=True) if not isinstance(m, LogitModel)]
    if others:
        given = "on the sets in data" if data is not None else "not asked for: give data"
        notes.append(f"Log-likelihood of {', '.join(others)}: {given}.")
    return notes
