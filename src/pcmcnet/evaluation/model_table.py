"""A table of several models, as in a paper: coefficients and standard errors, then goodness-of-fit statistics.

Each coefficient is a row and each model a column. A latent class logit has one column per class, so that its
coefficients can be compared with those of other models. Models without coefficients, such as networks, have only the
goodness-of-fit rows. Rows can be renamed, ordered and left out. In these options, the name of several coefficients with
labels, such as ``constant`` for ``constant[car]`` and ``constant[bus]``, stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from pcmcnet.checks import suggests_arguments
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.bootstrap import BootstrapErrors
from pcmcnet.evaluation.report import FIT_STATISTICS, TRAINING_STATISTICS, fit_statistics
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.models.logit.standard_errors import Errors, EstimateRow, estimate_rows
from pcmcnet.reports.formats import FormatsMixin, ResultContent
from pcmcnet.reports.frames import data_frame

ErrorKind = Errors | BootstrapErrors | None
FitStatistics = Mapping[str, float | None]

_STARS = ((0.01, "***"), (0.05, "**"), (0.1, "*"))


class ModelColumn(NamedTuple):
    """A column of the table: a model, or one class of a latent class model."""

    model: str
    part: str  # name of the class; "" for a model without classes
    rows: Mapping[str, EstimateRow]
    fit: FitStatistics  # goodness of fit; empty for all classes of a model but the first


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ModelTable(FormatsMixin):
    """A table of several models, returned by :func:`table` and printed as text.

    Attributes
    ----------
    columns
        One column per model, or per class of a latent class logit.
    stars
        Whether stars mark small p-values.
    notes
        Notes printed below the table.
    order
        Names of the rows of coefficients, in their order.
    labels
        New names of goodness-of-fit statistics.
    """

    columns: tuple[ModelColumn, ...]
    stars: bool
    notes: tuple[str, ...]
    order: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """Names of the coefficients of all models, in the order of the rows."""
        return list(self.order)

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per coefficient and goodness-of-fit statistic of each column.

        The frame has the columns ``model``, ``part`` (the class of a latent class model), ``name``, ``estimate``,
        ``std_error``, ``z``, ``p``, ``lower``, ``upper`` and ``state``; goodness-of-fit statistics are in ``estimate``.
        """
        entries = []
        for column in self.columns:
            keys = {"model": column.model, "part": column.part}
            rows = [(name, column.rows[name]) for name in self.order if name in column.rows]
            entries += [{**keys, **row._asdict(), "name": name} for name, row in rows]
            fits = [(self.labels.get(name, name), value) for name, value in column.fit.items() if value is not None]
            entries += [{**keys, "name": name, "estimate": value} for name, value in fits]
        schema = pa.schema(
            [(name, pa.string() if name in ("model", "part", "name", "state") else pa.float64()) for name in _FRAME]
        )
        return data_frame(pa.Table.from_pylist(entries, schema), instead="columns")

    def _content(self) -> ResultContent:
        head = ["", *(f"{column.model}: {column.part}" if column.part else column.model for column in self.columns)]
        rows: list[list[str]] = []
        for name in self.names:  # the estimates, and their standard errors below
            estimates = [column.rows.get(name) for column in self.columns]
            rows.append([name, *("" if row is None else self._estimate(row) for row in estimates)])
            errors = ("" if row is None else row.state or f"{row.std_error:.3g}" for row in estimates)
            rows.append(["", *(error and f"({error})" for error in errors)])
        shown = [name for name in FIT_STATISTICS if any(column.fit.get(name) is not None for column in self.columns)]
        fits = [
            [self.labels.get(name, name), *(_format_statistic(name, column.fit.get(name)) for column in self.columns)]
            for name in shown
        ]
        legend = [", ".join(f"{mark} p < {level:g}" for level, mark in reversed(_STARS))] if self.stars and rows else []
        rules = frozenset({len(rows)} if rows and fits else ())
        return ResultContent(title="Models", cells=[head, *rows, *fits], rules=rules, notes=(*legend, *self.notes))

    def _estimate(self, row: EstimateRow) -> str:
        mark = next((mark for level, mark in _STARS if row.p < level), "") if self.stars else ""
        return f"{row.estimate:.4g}{mark}"

    def __repr__(self) -> str:
        return str(self)


_FRAME = ("model", "part", *EstimateRow._fields)


@suggests_arguments(call="table([model])")
def table(
    models: ChoiceModel | Sequence[ChoiceModel] | Mapping[str, ChoiceModel],
    names: Sequence[str] | None = None,
    errors: ErrorKind | Sequence[ErrorKind] = None,
    *,
    stars: bool = True,
    data: Any | None = None,
    rename: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> ModelTable:
    """Build a table of the estimates and the goodness of fit of several models, as in a paper.

    Parameters
    ----------
    models
        A list of fitted models in the order of the columns, a mapping from column headings to models, or a single
        model.
    names
        Headings of the columns. Default None: the class names of the models.
    errors
        Kind of standard errors for all logits, or a list with one entry per model. Each entry is "classical", "robust",
        "clustered", a result of :func:`bootstrap_errors`, or None for the kind in the model's options. Default None.
    stars
        Whether stars mark small p-values. Default True.
    data
        Choice sets on which to compute the goodness of fit of all models, such as a test part: ``ChoiceData``, or a
        table that the schemas of the models can read. AIC, BIC and other statistics that belong to the fit are left out
        for models that were not fitted to these choice sets. Default None: the goodness of fit of a logit is that of
        its fit, and other models have none.
    rename
        New names of coefficients and statistics, as in {"time/100": "Time (h)"}. Coefficients of different models with
        the same new name share a row. Default None: the names of the models.
    order
        Coefficients of the first rows, by name or by new name. "constant" stands for all constants. Default: the order
        in which they first appear.
    drop
        Coefficients and statistics to leave out, by name or by new name; a note lists the coefficients. Default: none.

    Returns
    -------
    ModelTable
        The table; see its methods ``to_latex``, ``to_html``, ``to_markdown`` and ``to_frame``.

    Raises
    ------
    InputError
        If there are no models, if the number of names or errors differs from the number of models, or if ``rename``,
        ``order`` or ``drop`` contain an unknown name, or a model has two coefficients with the same new name.
    NotFittedError
        If a model is not fitted.
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
    for argument, values in (("names", heads), ("errors", kinds)):
        if len(values) != len(models):
            raise InputError(f"{argument}: expected one entry for each of {len(models)} models, got {len(values)}.")
    fits = [fit_statistics(model, data) for model in models]
    columns: list[ModelColumn] = []
    for head, model, kind, fit in zip(heads, models, kinds, fits, strict=True):
        columns += _columns(head, model, kind, fit)
    layout = _Layout.of(columns, rename or {}, order, drop)
    notes = [*_notes_on_estimates(heads, models, kinds), *_notes_on_fit(heads, models, fits, on_data=data is not None)]
    if layout.dropped:
        notes.append(f"Not shown: {', '.join(layout.dropped)}.")
    return ModelTable(
        columns=tuple(layout.arrange(column) for column in columns),
        stars=stars,
        notes=tuple(notes),
        order=layout.order,
        labels={name: layout.new_names[name] for name in FIT_STATISTICS if name in layout.new_names},
    )


class _Layout(NamedTuple):
    """New names, rows and dropped rows of a table."""

    new_names: Mapping[str, str]
    order: tuple[str, ...]  # new names of the coefficients
    dropped: tuple[str, ...]  # new names of the coefficients
    dropped_statistics: tuple[str, ...]

    @classmethod
    def of(
        cls, columns: Sequence[ModelColumn], rename: Mapping[str, str], order: Sequence[str], drop: Sequence[str]
    ) -> _Layout:
        """Return the layout that the options specify, or raise InputError for unknown names."""
        # 1. New names.
        if not (isinstance(rename, Mapping) and all(isinstance(w, str) for pair in rename.items() for w in pair)):
            raise InputError(f"rename must map names to new names, got {rename!r}.")
        for option, names in (("order", order), ("drop", drop)):
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{option} must be a list of names, got {names!r}.")
        coefficients = list(dict.fromkeys(name for column in columns for name in column.rows))
        _require_known("rename", rename, [*coefficients, *FIT_STATISTICS])
        new_names = {name: rename.get(name, name) for name in (*coefficients, *FIT_STATISTICS)}
        # 2. Rows that the options name, by old or new name; the name of several labels stands for all of them.
        rows = list(dict.fromkeys(new_names[name] for name in coefficients))

        def named(option: str, name: str) -> list[str]:
            found = [
                new_names[old]
                for old in coefficients
                if name in (old, new_names[old]) or old.startswith(f"{name}[") or new_names[old].startswith(f"{name}[")
            ]
            statistics = [s for s in FIT_STATISTICS if name in (s, new_names[s])] if option == "drop" else []
            if not found and not statistics:
                _require_known(option, [name], [*rows, *coefficients, *(FIT_STATISTICS if option == "drop" else ())])
            return found

        dropped = dict.fromkeys(row for name in drop for row in named("drop", name))
        first = dict.fromkeys(row for name in order for row in named("order", name))
        left = [row for row in dict.fromkeys([*first, *rows]) if row not in dropped]
        statistics = tuple(s for s in FIT_STATISTICS if {s, new_names[s]} & {*drop})
        return cls(new_names, tuple(left), tuple(dropped), statistics)

    def arrange(self, column: ModelColumn) -> ModelColumn:
        """Return a column with new names and without dropped rows, or raise InputError if two names become one."""
        rows: dict[str, EstimateRow] = {}
        for name, row in column.rows.items():
            new = self.new_names[name]
            if new in rows:
                raise InputError(f"rename: {column.model} has two coefficients with the new name {new!r}.")
            rows[new] = row
        return column._replace(
            rows={name: row for name, row in rows.items() if name not in self.dropped},
            fit={name: value for name, value in column.fit.items() if name not in self.dropped_statistics},
        )


def _require_known(option: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise InputError if a name is not in the table."""
    for name in names:
        if name not in known:
            raise InputError(f"{option}: {name!r} is not in the table." + did_you_mean(name, known))


def _heads(models: Sequence[ChoiceModel]) -> list[str]:
    """Return the class name of each model, numbered if several models have the same class."""
    kinds = [type(model).__name__ for model in models]
    return [f"{kind} ({kinds[:k].count(kind) + 1})" if kinds.count(kind) > 1 else kind for k, kind in enumerate(kinds)]


def _columns(head: str, model: ChoiceModel, kind: ErrorKind, fit: FitStatistics) -> list[ModelColumn]:
    """Return the table columns of a model: a single column, or one per latent class."""
    if not isinstance(model, LogitModel):
        return [ModelColumn(head, "", {}, fit)]
    if isinstance(kind, BootstrapErrors):
        rows = _bootstrap_rows(model, kind)
    else:
        rows = estimate_rows(model.estimates_, kind or model.default_errors, calibrated=model.calibrated_constants)
    from pcmcnet.models import LatentClassMNL, MixedMNL  # mixed logits load PyTorch, which other logits do not need

    if not isinstance(model, LatentClassMNL | MixedMNL) or model.n_classes_ == 1:
        return [ModelColumn(head, "", {row.name: row for row in rows}, fit)]
    columns = []
    for c in range(1, model.n_classes_ + 1):
        of_class = {}
        for row in rows:
            part, _, name = row.name.partition(": ")
            if part == f"class {c}":
                of_class[name] = row
            elif part == f"membership {c}":
                of_class[f"membership: {name}"] = row
        columns.append(ModelColumn(head, f"class {c}", of_class, fit if c == 1 else {}))
    return columns


def _bootstrap_rows(model: LogitModel, boot: BootstrapErrors) -> list[EstimateRow]:
    """Return the estimates of a model with bootstrap standard errors and intervals."""
    from pcmcnet.evaluation.hypothesis_tests.vuong import normal_p_value

    if boot.names != model.estimates_.names or (boot.values != model.estimates_.values).any():
        raise InputError(
            "errors: a bootstrap result belongs to another model: give one result per model, in the same order."
        )
    rows = []
    for row, null in zip(estimate_rows(model.estimates_, "classical"), model.estimates_.null.tolist(), strict=True):
        error, (low, high) = boot.standard_errors[row.name], boot.intervals[row.name]
        z = (row.estimate - null) / error if error else float("nan")
        new = row._replace(std_error=error, z=z, p=normal_p_value(z), lower=low, upper=high)
        rows.append(row if row.state == "fixed" else new)
    return rows


def _format_statistic(name: str, value: float | None) -> str:
    return "" if value is None else f"{value:{FIT_STATISTICS[name]}}"


def _notes_on_estimates(heads: Sequence[str], models: Sequence[ChoiceModel], kinds: Sequence[ErrorKind]) -> list[str]:
    """Return notes on the kind of standard errors and on estimates without standard errors."""
    logits = [(h, m, k) for h, m, k in zip(heads, models, kinds, strict=True) if isinstance(m, LogitModel)]
    kind_of = {
        h: f"bootstrap over {k.unit}" if isinstance(k, BootstrapErrors) else k or m.default_errors for h, m, k in logits
    }
    notes = []
    if kind_of:
        all_kinds = ", ".join(f"{kind} ({head})" for head, kind in kind_of.items())
        words = next(iter(kind_of.values())) if len(set(kind_of.values())) == 1 else all_kinds
        notes.append(f"Standard errors in parentheses: {words}.")
    of_models = (
        m.estimates_.error_caveats(k or m.default_errors) for _, m, k in logits if not isinstance(k, BootstrapErrors)
    )
    notes += _as_sentences(chain.from_iterable(of_models))
    if any(name.startswith("logsum") for _, m, _ in logits for name in m.estimates_.names):
        notes.append("Log-sums are tested against 1.")
    calibrated = [head for head, model, _ in logits if model.calibrated_constants]
    if calibrated:
        notes.append(
            f"The constants of {', '.join(calibrated)} were calibrated to known shares after the fit and have no "
            f"standard errors."
        )
    return notes


def _as_sentences(caveats: Iterable[str]) -> list[str]:
    """Return distinct caveats as sentences."""
    return [f"{caveat[:1].upper()}{caveat[1:]}." for caveat in dict.fromkeys(caveats)]


def _notes_on_fit(
    heads: Sequence[str], models: Sequence[ChoiceModel], fits: Sequence[FitStatistics], *, on_data: bool
) -> list[str]:
    """Return notes on the choice sets that the goodness of fit refers to."""
    logits = [(h, m, fit) for h, m, fit in zip(heads, models, fits, strict=True) if isinstance(m, LogitModel)]
    notes = _as_sentences(c for _, model, fit in logits if fit["AIC"] is not None for c in model.estimates_.fit_caveats)
    if any(model.estimates_.n_single and fit["BIC"] is not None for _, model, fit in logits):
        notes.append("BIC counts only the choice sets with at least two alternatives.")
    if on_data:
        notes.append("Goodness of fit: computed on data, from the probabilities of each choice set.")
        if left_out := [head for head, _, fit in logits if fit["AIC"] is None]:
            names = ", ".join(TRAINING_STATISTICS)
            notes.append(f"Left out for {', '.join(left_out)}: {names}. They belong to the maximised log-likelihood.")
        return notes
    if calibrated := [head for head, model, _ in logits if model.calibrated_constants]:
        notes.append(f"The goodness of fit of {', '.join(calibrated)} is that before calibration.")
    if len({model.table_.fingerprint for model in models}) > 1:
        notes.append("The models were fitted to different tables: their log-likelihoods are not comparable.")
    if others := [head for head, model in zip(heads, models, strict=True) if not isinstance(model, LogitModel)]:
        notes.append(f"Log-likelihood of {', '.join(others)}: not computed; pass data to compute it.")
    return notes
