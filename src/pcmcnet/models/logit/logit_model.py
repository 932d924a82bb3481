"""Base class of the logit models: options, estimates with standard errors, summary, willingness to pay, and saving.

Every fit has four steps: ``_prepare`` selects the choice sets, ``_learn_design`` learns the columns of the utility, the
model maximises its log-likelihood, and ``infer`` computes estimates with standard errors.
"""

from __future__ import annotations

import json
import logging
import re
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.columns.arrays import Categorical
from pcmcnet.data.columns.connected import sizes_text
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.data.outside import outside_rows
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FitRecord, FittedState
from pcmcnet.models.interface.sign_check import SignCheck
from pcmcnet.models.logit.column_sketch import SKETCH_ROWS, sketch_columns
from pcmcnet.models.logit.convergence import ConvergenceRecord, ConvergenceReport, weakness
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.factor_coding import LevelCode
from pcmcnet.models.logit.formula import backquoted, parse_formula
from pcmcnet.models.logit.individual_design import IndividualDesign
from pcmcnet.models.logit.logit_effects import Elasticities, share_elasticities, willingness_to_pay
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import single_threaded_blas
from pcmcnet.models.logit.parameter_bounds import (
    Bounds,
    Equality,
    Parameters,
    checked_control,
    checked_equalities,
    listed,
    numeric_bounds,
)
from pcmcnet.models.logit.standard_errors import Errors, Estimates, Ratio, estimate_frame, estimate_rows, interval_ends
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes
from pcmcnet.training.torch_settings import default_torch_settings

log = logging.getLogger("pcmcnet")

_ARRAYS = ("values", "null", "covariances", "sketch")  # fields of the estimates that are saved as arrays
_POSITIVE: Bounds = (0.0, None)  # bounds of a scale
_CONVENTION = "fixed at 0 by convention, and probabilities of alternatives from several groups follow this convention"
_WEIGHT_ROUNDING = 1e-3  # relative rounding error of the sum of weights that were scaled to a mean of 1

# -- Options of the logit models ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LogitConfig:
    """Options of the logit models.

    Parameters
    ----------
    formula
        Formula of the utility, such as "cost + log(time) + cost:income | income | wait". A formula has up to three
        parts: generic terms, individual-level terms with a coefficient for each alternative except the reference, and
        alternative-specific terms. Default ".": all features and, if alternatives have labels, alternative-specific
        constants.
    reference
        Label of the alternative whose constant is 0. Default: the outside option if there is one, else the alternative
        chosen most often. Alternatives that no chain of choice sets connects form groups. Each group other than that
        of the reference has its own reference, the alternative chosen most often, whose constant is fixed at 0.
    min_chosen
        Levels of categorical features that are chosen fewer times than this are pooled into one level. Default 10.
    base
        Reference levels of categorical columns, as in {"comfort": "low"}. Default: the level chosen most often.
    offset
        Numeric feature that enters the utility with a coefficient of 1, such as a correction for the sampling of
        alternatives. The formula must not contain this feature, and "." does not include it. Default: none.
    wtp_space
        Name of the cost coefficient in whose units the model is estimated (willingness-to-pay space). Each other
        coefficient is then -b_cost times a willingness to pay, and the willingness to pay is the parameter. Default:
        preference space.
    scale
        Individual-level column whose groups, such as surveys, have their own scale of utility: the error variance may
        differ between groups. The scale of the largest group is 1, or that of a group in ``base``, as in
        {"survey": "RP"}. Default: one scale for all choice sets.
    exponents
        Whether all terms boxcox(x) with the same "column" share an exponent (default), or each "term" has its own. The
        parameters of terms defined by users are treated alike: those of equal factors are the same, or not.
    errors
        Standard errors in the summary: "classical" (inverse Hessian), "robust" (sandwich) or "clustered" (sandwich with
        scores summed within clusters). Default "auto": clustered if ``cluster`` is given or the table declares persons,
        else robust if a choice set has a weight other than 1, else classical.
    cluster
        Column whose groups have dependent choices: an individual-level column, or a column read with ``keep=[...]``.
        Default: the persons of the table.
    max_iter
        Maximum number of iterations of the maximisation. Default 200.
    fixed
        Values of coefficients that are not estimated, by their names in the summary, as in {"price": -1.0}. Default:
        none.
    bounds
        Lower and upper bounds of coefficients, with None for no bound, as in {"price": (None, 0)}. Default: none.
    start
        Starting values of coefficients, by name. Default: 0, or values near the estimates of the multinomial logit in
        models that extend it.
    equal
        Coefficients that are constrained to be equal, as equations of names such as "time[car] = time[bus]", or as
        tuples of names. Options for one of these coefficients apply to all of them. Default: none.
    """

    formula: str = "."
    reference: str | None = None
    min_chosen: int = 10
    base: Mapping[str, str] = field(default_factory=dict)
    offset: str | None = None
    wtp_space: str | None = None
    scale: str | None = None
    exponents: Literal["column", "term"] = "column"
    errors: Errors | Literal["auto"] = "auto"
    cluster: str | None = None
    max_iter: int = 200
    fixed: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] | None = field(default_factory=dict)
    start: Mapping[str, float] = field(default_factory=dict)
    equal: tuple[str | Equality, ...] = ()

    def __post_init__(self) -> None:
        parse_formula(self.formula)
        require_number("min_chosen", self.min_chosen, whole=True, low=0)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_word("exponents", self.exponents, ("column", "term"))
        require_word("errors", self.errors, ("auto", *get_args(Errors)))
        control = checked_control(self.fixed, self.bounds, self.start)
        for name, value in zip(("fixed", "bounds", "start"), control, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "equal", checked_equalities(self.equal))
        if isinstance(self.reference, int) and not isinstance(self.reference, bool):
            object.__setattr__(self, "reference", str(self.reference))  # labels that are integers are stored as text
        for name in ("reference", "cluster", "offset", "wtp_space", "scale"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)):
                raise ConfigError(f"{name} must be a string, got {value!r}.")
        if not isinstance(self.base, Mapping):
            raise ConfigError(f"base must map columns to levels, got {self.base!r}.")
        object.__setattr__(self, "base", {str(column): str(level) for column, level in self.base.items()})
        named = {*self.fixed, *(self.bounds or {}), *self.start, *(name for names in self.equalities for name in names)}
        if self.offset is not None and backquoted(self.offset) in named:
            raise ConfigError(
                f"the offset {self.offset!r} has a coefficient of 1: remove it from fixed, bounds, start and equal."
            )

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """The names of each group of equal coefficients."""
        return checked_equalities(self.equal)


@dataclass(frozen=True, kw_only=True)
class LogitRecord(FitRecord):
    """Record of the fit of a logit, apart from its estimates."""

    known_shares: Mapping[str, float] | None = None  # shares by label to which the constants were calibrated


@dataclass(frozen=True, kw_only=True)
class FittedLogit(FittedState):
    """A fitted logit: the columns of the utility and the estimates."""

    design: Design
    estimates: Estimates
    record: LogitRecord = field(default_factory=LogitRecord)
    seconds: float | None = field(default=None, compare=False)  # duration of the fit; not saved


class LogitModel(ChoiceModel):
    """Base class of the logit models: a design, coefficients and standard errors."""

    config: LogitConfig
    _state: FittedLogit
    record_class: ClassVar[type[FitRecord]] = LogitRecord
    advice: ClassVar[str] = (  # about a coefficient without a finite estimate
        "the likelihood has no maximum, for example because a level is never or always chosen. Leave it out, or raise "
        "min_chosen"
    )

    @abstractmethod
    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedLogit:
        """Return the design and the estimates. By default, the design is learnt from the training part."""

    @single_threaded_blas()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedLogit:
        _report_sum_of_weights(train)
        began = time.perf_counter()
        state = self._estimate(train, run)
        if state.estimates.lacks_clusters and self.config.errors in ("auto", "clustered"):
            log.warning("%s", state.estimates.error_caveats("clustered")[0])
        if references := self._group_references(state.design):
            log.warning(
                "%d groups of alternatives are never offered together (sizes %s): %s %s",
                *(len(state.design.groups) + 1, sizes_text(state.design.group_sizes), listed(references), _CONVENTION),
            )
        sketch = sketch_columns(state.design, train.with_positive_weight())
        seconds = time.perf_counter() - began
        return replace(state, estimates=replace(state.estimates, sketch=sketch), seconds=seconds)

    @default_torch_settings(gradients=True)
    @single_threaded_blas()
    def refit(self, train: ChoiceData, design: Design, seed: int) -> Estimates:
        """Estimate the coefficients of a given design from other choice sets.

        The model itself is not changed and need not be fitted.

        Parameters
        ----------
        train
            Choice sets with known choices.
        design
            The columns of the utility, such as ``model.design_``.
        seed
            Seed of random starts and draws.
        """
        if train.schema.contents:
            train = train.without_contents()
        return self._estimate(train, FitRun(seed=seed, progress=False), design).estimates

    @single_threaded_blas()
    def _refit(self, train: ChoiceData, run: FitRun) -> FittedLogit:
        # The search starts at the estimates, which are close to those of a resample. The random draws are the same.
        require_estimated(self, "the bootstrap")
        start = {name: value for name, value in self.coefficients.items() if name not in self.estimates_.fixed}
        fresh = type(self)(**{**self.get_params(deep=False), **self._learnt_options(), "start": start})
        return fresh._estimate(train, replace(run, seed=self.table_.seed), self.design_)

    @property
    def design_(self) -> Design:
        """The columns of the utility, with their coding."""
        return self._state.design

    @property
    def estimates_(self) -> Estimates:
        """The estimates, their covariance matrices and measures of fit."""
        return self._state.estimates

    def with_values(self, values: Floats, known_shares: Mapping[str, float] | None = None) -> Self:
        """Return a copy of the fitted model with different coefficients.

        Parameters
        ----------
        values
            Coefficients (K,).
        known_shares
            Market shares by label to which the constants were calibrated. If None (default), the constants were not
            calibrated.
        """
        fitted, state = self.require_fitted(), self._state
        record = state.record if known_shares is None else replace(state.record, known_shares=dict(known_shares))
        state = replace(state, estimates=replace(state.estimates, values=values), record=record)
        other = type(self)(**self.get_params(deep=False))
        other.fitted_ = replace(fitted, state=state)
        return other

    @property
    def coefficients(self) -> dict[str, float]:
        """The estimated coefficients by name."""
        return dict(zip(self.estimates_.names, self.estimates_.values.tolist(), strict=True))

    @property
    def num_parameters(self) -> int:
        """Number of estimated parameters."""
        return self.estimates_.n_parameters

    @property
    def default_errors(self) -> Errors:
        """The kind of standard errors that methods use by default."""
        if self.config.errors != "auto":
            return self.config.errors
        return self.estimates_.default_errors

    @property
    def calibrated_constants(self) -> tuple[str, ...]:
        """The constants that were calibrated to known shares after the fit and so are not estimates."""
        constants = {f"constant[{label}]" for label in self._state.record.known_shares or ()}
        # In a latent class model the constants are called "class 1: constant[car]".
        return tuple(n for n in self.estimates_.names if n in constants or n.partition(": ")[2] in constants)

    @property
    def _has_one_person(self) -> bool:
        """Whether the table declares persons but has only one, so that there are no clusters."""
        return self.config.cluster is None and self.schema.person is not None and self.estimates_.clusters is None

    def _error_kind(self, errors: Errors | None) -> Errors:
        """Return ``errors`` or its default, or raise InputError for clustered errors with a single person."""
        if errors == "clustered" and self._has_one_person:
            raise InputError(
                f"clustered errors need at least two persons, but column {self.schema.person!r} has one: use "
                f"errors='robust'."
            )
        return errors or self.default_errors

    def standard_errors(self, errors: Errors | None = None) -> dict[str, float]:
        """Return the standard errors by name.

        Parameters
        ----------
        errors
            Kind of standard errors: "classical", "robust" or "clustered". The default is set by the option ``errors``.

        Returns
        -------
        Standard errors, which are inf for coefficients without a finite estimate, and nan if fixed or on a bound.

        Raises
        ------
        InputError
            If clustered errors are requested, but there are fewer than two clusters.
        """
        return self.estimates_.standard_errors(self._error_kind(errors))

    def covariance(self, errors: Errors | None = None) -> Floats:
        """Return the covariance matrix (K, K) of the estimates, in the order of ``coefficients``.

        Parameters
        ----------
        errors
            Kind of standard errors: "classical", "robust" or "clustered". The default is set by the option ``errors``.

        Raises
        ------
        InputError
            If clustered errors are requested, but there are fewer than two clusters.
        """
        return self.estimates_.covariance(self._error_kind(errors))

    def estimates(self, errors: Errors | None = None, level: float = 0.95) -> Any:
        """Return the table of coefficients as a pandas data frame.

        Parameters
        ----------
        errors
            Kind of standard errors: "classical", "robust" or "clustered". The default is set by the option ``errors``.
        level
            Level of the confidence intervals. Default 0.95.

        Returns
        -------
        pandas.DataFrame
            A row for each coefficient: estimate, std_error, z, p, lower and upper bound of the interval, and state.
        """
        return estimate_frame(self.estimates_, self._error_kind(errors), level, self.calibrated_constants)

    def summary(self, errors: Errors | None = None, level: float | None = None) -> Summary:
        """Return a summary: measures of fit, then estimate, standard error, z and p-value of each coefficient.

        Parameters
        ----------
        errors
            Kind of standard errors: "classical", "robust" or "clustered". The default is set by the option ``errors``.
        level
            Level of confidence intervals to add, such as 0.95. By default, no intervals are shown.
        """
        kind = self._error_kind(errors)
        facts = {**self._facts(), **self._sign_facts()}
        facts["standard errors"] = kind
        if kind == "clustered":
            by = self.config.cluster or self.schema.group_column
            facts["standard errors"] += f", {self.estimates_.clusters:,} clusters by {by}"
        elif errors is None and self.config.errors == "auto" and self._has_one_person:
            facts["standard errors"] += ": the table has one person"
        if self.schema.weight is not None:
            facts["weights"] = self.schema.weight
            if self.estimates_.weight is not None:
                facts["weights"] += f", sum {self.estimates_.weight:,.10g}"
        header: tuple[str, ...] = ("coefficient", "estimate", "std err", "z", "p")
        calibrated = self.calibrated_constants
        rows = self.estimates_.rows(kind, calibrated)
        if level is not None:
            ends = [(row.lower, row.upper) for row in estimate_rows(self.estimates_, kind, level, calibrated)]
            header = (*header, *(f"{end:.3g}" for end in ((1 - level) / 2, (1 + level) / 2)))
            rows = tuple((*row, *interval_ends(*end)) for row, end in zip(rows, ends, strict=True))
        caveats = (*self.caveats, *self.estimates_.error_caveats(kind), *self.estimates_.fit_caveats)
        return Summary(type(self).__name__, facts, header, rows, caveats)

    def convergence(self) -> ConvergenceReport:
        """Return a report on the convergence of the fit, which prints as a table.

        The report contains the norm of the gradient at the end of the search and the smallest eigenvalue of the
        Hessian, both in units that change a utility by about 1, the parameters of this eigenvalue, the largest
        correlation of two estimates, the number of iterations, and the duration of the fit in seconds, which is not
        saved with the model. Parameters that are fixed, at a bound or without a finite estimate are left out.

        Raises
        ------
        InputError
            If the model has no free parameter, or was saved without this information.
        """
        estimates, starts = self.estimates_, getattr(self._state.record, "starts", None)
        if estimates.convergence is None:
            raise InputError(
                "no report on convergence is available: the model has no free coefficient, or was saved by an earlier "
                "version. In the latter case, fit it again."
            )
        return ConvergenceReport(
            estimates.convergence,
            estimates.log_likelihood,
            estimates.steps,
            self._state.seconds,
            None if starts is None else str(starts),
        )

    def _facts(self) -> dict[str, str]:
        """Return the entries that the summary shows above its table."""
        facts = {"formula": self.config.formula, **self.estimates_.facts()}
        if self.estimates_.convergence is not None:
            facts["convergence"] = str(self.estimates_.convergence)
        if self.design_.cost is not None:
            facts["wtp in units of"] = self.design_.cost
        if any(name.startswith("lambda[") for name in self.design_.form.curves):
            facts["lambdas tested against"] = "1"
        if (groups := self.design_.scale) is not None:
            facts["scales"] = f"by {groups.column}, 1 for {groups.reference}; tested against 1"
        if self.design_.labels is not None:
            facts["reference"] = self.design_.labels.reference
        calibrated = {f"constant[{label}]" for label in self._state.record.known_shares or ()}
        if references := [name for name in self._group_references(self.design_) if name not in calibrated]:
            sizes = sizes_text(self.design_.group_sizes)
            facts["unconnected groups"] = (
                f"{len(self.design_.groups) + 1} (of {sizes} alternatives): {listed(references)} {_CONVENTION}"
            )
        if known_shares := self._state.record.known_shares:
            shown = ", ".join(f"{label} {share:.4g}" for label, share in known_shares.items())
            facts["constants"] = f"calibrated to the shares {shown}; measures of fit are those before calibration"
        pooled = {name: code.pooling for name, code in self.design_.codes.items() if isinstance(code, LevelCode)}
        if any(pooled.values()):
            least = f" (chosen fewer than {self.config.min_chosen} times)"
            facts["pooled levels"] = "; ".join(f"{name}: {text}" for name, text in pooled.items() if text) + least
        return facts

    def _prepare(self, train: ChoiceData) -> tuple[ChoiceData, Ints, Ints | None]:
        """Return the choice sets with positive weight, the choices, and the clusters (None without clusters)."""
        sets = train if (train.weights > 0).all() else train.subset(train.weights > 0)
        if (sets.sizes < 2).all():
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        return sets, sets.require_chosen("fitting"), self._clusters(sets)

    def _clusters(self, sets: ChoiceData) -> Ints | None:
        """Return the cluster of each choice set, by ``cluster`` or else by person, or None without clusters."""
        if self.config.cluster is not None:
            return sets.groups(self.config.cluster)
        persons = None if sets.schema.group_column is None else sets.groups()
        if self.config.errors == "clustered" and persons is None:
            raise ConfigError(
                "errors='clustered' needs clusters: set cluster=<column>, or read the table with person=<column>."
            )
        has_one = persons is not None and persons.max(initial=0) == 0
        if has_one and self.config.errors == "clustered":
            raise InputError(
                f"errors='clustered' needs at least two persons, but column {sets.schema.group_column!r} has one: use "
                f"errors='robust', or another cluster=<column>."
            )
        return None if has_one else persons

    def _learn_design(
        self, sets: ChoiceData, *, wtp_space: str | None, leave_out: frozenset[str] = frozenset()
    ) -> Design:
        """Learn the columns of the utility, with parameters in units of the cost ``wtp_space`` if it is given."""
        config = self.config
        if wtp_space is not None:
            self._require_cost(wtp_space)
        return Design.learn(
            config.formula,
            sets,
            reference=config.reference,
            least=config.min_chosen,
            base=config.base,
            offset=config.offset,
            cost=wtp_space,
            scale=config.scale,
            leave_out=leave_out,
            by_term=config.exponents == "term",
        )

    def _require_linear(self, design: Design) -> Design:
        """Return the design, or raise ConfigError if its utility is not linear in the parameters."""
        name = type(self).__name__
        if design.scale is not None:
            raise ConfigError(f"scale is not supported by {name}: use mnl, nested-mnl or mixed-mnl.")
        if not design.form.is_linear:
            option = "wtp_space" if design.cost else f"estimating {design.form.curves[0]!r}"
            remedy = "use willingness_to_pay()" if design.cost else "fix an exponent, as in boxcox(time, 0.5)"
            raise ConfigError(f"{option} is not supported by {name}: {remedy}, or use mnl.")
        return design

    def _require_cost(self, name: str) -> None:
        """Raise ConfigError if the cost coefficient is fixed at 0 in WTP space."""
        if self.config.fixed.get(name) == 0:
            raise ConfigError(
                f"wtp_space={name!r}: this coefficient is fixed at 0, so willingness to pay is not defined. Remove it "
                f"from fixed, or fix it at another value."
            )

    def _group_references(self, design: Design) -> tuple[str, ...]:
        """Return the columns whose coefficients are fixed at 0 because their label is the reference of a group.

        A group needs no reference if an option fixes the coefficient of one of its labels.
        """
        fixed = {column for column in design.columns if {column, f"wtp[{column}]"} & {*self.config.fixed}}
        return tuple(row[0] for group in design.groups for row in group.columns if not fixed & {*row})

    def _fixed_values(self, design: Design, names: Sequence[str]) -> dict[str, float]:
        """Return the fixed values by name: those of the options, 1 for an offset, and 0 for references of groups.

        ``names`` are the parameters of the columns. Raise ConfigError if an option excludes 0 for such a reference.
        """
        config, fixed = self.config, dict(self.config.fixed)
        if config.offset is not None:
            fixed[backquoted(config.offset)] = 1.0
        for column in self._group_references(design):
            name = column if column in names else f"wtp[{column}]"
            low, high = numeric_bounds((config.bounds or {}).get(name, (None, None)))
            if not low <= 0 <= high or config.start.get(name, 0):
                raise ConfigError(
                    f"{'start' if low <= 0 <= high else 'bounds'}: {name!r} is 0 by convention, because its label is "
                    f"the reference of a group of alternatives that are never offered with the others: remove it, or "
                    f"fix the coefficient of another label of this group."
                )
            fixed[name] = 0.0
        return fixed

    def _parameters(
        self,
        design: Design,
        names: Sequence[str],
        begin: Floats | None = None,
        bounds: Mapping[str, Bounds] | None = None,
    ) -> Parameters:
        """Return parameters with the fixed values, bounds and starting values of the options.

        An offset is fixed at 1, and the references of unconnected groups of labels at 0. Scales are positive. ``begin``
        contains the default starting values. ``bounds`` overrides the bounds in the options.
        """
        config, fixed = self.config, self._fixed_values(design, names)
        limits = {**dict.fromkeys(design.form.scales, _POSITIVE), **(config.bounds or {}), **(bounds or {})}
        for name in design.form.scales:
            value = fixed.get(name, config.start.get(name, 1.0))
            if value <= 0 or numeric_bounds(limits[name])[0] < 0:
                raise ConfigError(f"{name!r} is the scale of a utility: expected positive values and bounds.")
        return Parameters.of(
            names, fixed=fixed, bounds=limits, start=config.start, begin=begin, equal=config.equalities
        )

    def _constants_log_likelihood(self, design: Design, problem: LogitLikelihood, weights: Floats) -> float | None:
        """Return the log-likelihood of a logit with constants only, or None if the model has no constants.

        ``problem`` is the likelihood with all columns of the design, and ``weights`` (S,) are the choice-set weights.
        """
        if design.labels is None or not design.terms.constants:
            return None
        references = {group.labels[0] for group in design.groups}  # whose constants are 0
        levels = [level for level in design.labels.levels if level not in references]
        columns = [design.columns.index(f"constant[{level}]") for level in levels]
        constants_only = replace(problem, z=problem.z[:, columns])
        b, _, _ = constants_only.maximise(weights, max_iter=self.config.max_iter)
        return float(weights @ constants_only.log_likelihoods(b))

    @property
    def _individual_designs(self) -> tuple[IndividualDesign, ...]:
        """Columns of the individual that are not in the utility, such as covariates of class shares."""
        return ()

    def _unseen_categories(self, data: ChoiceData) -> UnseenCounts:
        counts, outside = UnseenCounts(), outside_rows(data)
        codes = {name: code for design in self._individual_designs for name, code in design.codes.items()}
        for name, code in (codes | dict(self.design_.codes)).items():
            column = data.features.get(name, data.individual.get(name))
            if not (isinstance(code, LevelCode) and isinstance(column, Categorical)):
                continue
            if outside is not None and name in data.features:  # the outside option has no features
                column = column.take(np.flatnonzero(~outside))
            code.count_unseen(name, column, counts)
        return counts

    @property
    def fit_caveats(self) -> tuple[str, ...]:
        """Warnings about the fitted model: coefficients without a finite estimate, or hardly identified."""
        caveats, convergence = [], self.estimates_.convergence
        if unbounded := self.estimates_.unbounded:
            caveats.append(
                f"no finite estimate for {listed(unbounded)}, so results depend on where the maximisation stopped"
            )
        if convergence is not None and (problem := weakness(convergence)):
            caveats.append(problem)
        return tuple(caveats)

    def _sign_remedy(self, check: SignCheck) -> str:
        """Return the bound of a coefficient of the column."""
        names = names_with(check.column, self.design_.names)
        pair = (None, 0) if check.sign == "-" else (0, None)
        return f"bound its coefficients, as in bounds={{{names[0] if names else check.column!r}: {pair}}}"

    def _warn_unbounded(self, estimates: Estimates) -> None:
        """Log a warning about coefficients without a finite estimate."""
        if estimates.unbounded:
            log.warning("no finite estimate for %s: %s", listed(estimates.unbounded), self.advice)

    def willingness_to_pay(self, name: str, cost: str, errors: Errors | None = None) -> Ratio:
        """Return the willingness to pay for one more unit, -b_name / b_cost, with its standard error (delta method).

        Willingness to pay is positive for an attractive attribute, and negative for an unattractive one such as travel
        time: the value of time is minus the willingness to pay for one more minute. Units are those of the table, even
        if the formula divides a column by a number. For a level or a constant, willingness to pay is relative to the
        reference.

        Parameters
        ----------
        name
            Coefficient of the attribute, as the summary shows it.
        cost
            Coefficient of the cost, as the summary shows it.
        errors
            Kind of standard errors: "classical", "robust" or "clustered". The default is set by the option ``errors``.

        Returns
        -------
        Ratio
            Name, value and standard error of the ratio.

        Raises
        ------
        InputError
            If a coefficient is not a constant marginal utility, such as the coefficient of log(cost) or of a product.
        """
        return willingness_to_pay(self, name, cost, self._error_kind(errors))

    @default_torch_settings()
    def elasticities(self, data: Any, column: str, errors: Errors | None = None) -> Elasticities:
        """Return own and cross elasticities of the choice probabilities, with standard errors (delta method).

        Elasticities are averaged over the choice sets, weighted by predicted probabilities (sample enumeration).

        Parameters
        ----------
        data
            Choice sets to average over, or a table that the schema of the model can read.
        column
            Numeric feature that changes.
        errors
            Kind of standard errors: "classical", "robust" or "clustered". The option ``errors`` sets the default.

        Returns
        -------
        Elasticities
            Percentage change in a probability when the feature rises by one per cent, for each pair of labels. Without
            labels, there is one own elasticity and one cross elasticity. The result prints as a table.

        Raises
        ------
        InputError
            If ``column`` is not a numeric feature of the utility, or ``data`` has no choice sets.
        """
        kind = self._error_kind(errors)
        sets = self._read(data)
        self._unseen_categories(sets).report()
        return self._elasticities(sets, column, kind)

    def _elasticities(self, data: ChoiceData, column: str, errors: Errors) -> Elasticities:
        """Return the elasticities with standard errors of a kind."""
        return share_elasticities(self, data, column, errors)

    def _files(self) -> dict[str, bytes]:
        estimates = self.estimates_
        arrays = {"values": estimates.values, "null": estimates.null}
        if estimates.sketch is not None:
            arrays["sketch"] = estimates.sketch
        arrays |= {f"covariance/{kind}": np.ascontiguousarray(c) for kind, c in estimates.covariances.items()}
        return {
            "design.json": json_bytes(self.design_.to_dict()),
            "estimates.json": json_bytes(estimates_to_dict(estimates)),
            "estimates.safetensors": save_arrays(arrays),
        }


def _report_sum_of_weights(train: ChoiceData) -> None:
    """Log the sum of the weights of a table if it is not the number of choice sets."""
    weights = train.weights[train.weights > 0]
    if train.schema.weight is not None and abs(weights.sum() - len(weights)) > _WEIGHT_ROUNDING * len(weights):
        log.info(
            "the weights in column %r sum to %s for %s choice sets: the log-likelihood, AIC, BIC and likelihood-ratio "
            "tests are on the scale of the weights, robust and clustered standard errors are not",
            *(train.schema.weight, f"{weights.sum():,.10g}", f"{len(weights):,}"),
        )


def names_with(column: str, names: Sequence[str]) -> list[str]:
    """Return the names of coefficients that contain a column, such as log(price) and price:income."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(column)}(?!\w)", name)]


def require_estimated(model: LogitModel, purpose: str) -> None:
    """Raise InputError if the constants were calibrated to known shares and so do not maximise the likelihood."""
    if model.calibrated_constants:
        raise InputError(
            f"{purpose} needs estimates, but the constants of this {type(model).__name__} were calibrated to known "
            f"shares: use the model from before calibrate_constants."
        )


def read_design(files: Mapping[str, bytes]) -> Design:
    """Read a saved design, and check that it reproduces the columns stored with it."""
    design = Design.from_dict(json.loads(files["design.json"]))
    design.require_fit(read_schema(files))
    return design


def read_schema(files: Mapping[str, bytes]) -> Schema:
    """Read the roles of the columns of the training table."""
    return Schema.from_dict(json.loads(files["schema.json"]))


def read_estimates(files: Mapping[str, bytes]) -> Estimates:
    """Read estimates, or raise ArtifactError if they are not finite or their shapes do not match."""
    arrays = load_arrays(files["estimates.safetensors"])
    entries = json.loads(files["estimates.json"])
    size = len(entries["names"])
    covariances = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith("covariance/")}
    shapes = {"values": (size,), "null": (size,), **{f"covariance/{kind}": (size, size) for kind in covariances}}
    sketch = arrays.get("sketch")
    if sketch is not None:
        shapes["sketch"] = (SKETCH_ROWS, sketch.shape[-1])
    if not all(arrays[k].shape == shape and np.isfinite(arrays[k]).all() for k, shape in shapes.items()):
        raise ArtifactError("the saved estimates are not finite or their shapes do not match: fit the model again.")
    entries.setdefault("weighted", read_schema(files).weight is not None)  # models saved without this entry
    entries |= {key: tuple(entries[key]) for key in ("names", "unbounded", "fixed", "at_bound")}
    if entries.get("convergence") is not None:
        entries["convergence"] = ConvergenceRecord.from_dict(entries["convergence"])
    return Estimates(**entries, values=arrays["values"], null=arrays["null"], covariances=covariances, sketch=sketch)


def estimates_to_dict(estimates: Estimates) -> dict[str, Any]:
    """Return all fields except the arrays as JSON-compatible values."""
    names = (entry.name for entry in fields(estimates))
    entries = {name: getattr(estimates, name) for name in names if name not in _ARRAYS}
    return entries | {"convergence": None if estimates.convergence is None else asdict(estimates.convergence)}
