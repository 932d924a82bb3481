"""What the logit models share: design, estimates with their errors, summary, willingness to pay, the saved form.

Every fit has four steps. ``_prepare`` takes the choice sets that count, ``_learn_design`` the columns of the utility;
then the model finds the maximum of its log-likelihood, and ``infer`` makes estimates with standard errors of it.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FitRecord, FittedState
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.factor_coding import LevelCode
from pcmcnet.models.logit.formula import parse_formula, quoted
from pcmcnet.models.logit.logit_effects import willingness_to_pay
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import single_threaded_blas
from pcmcnet.models.logit.parameter_bounds import Bounds, Parameters, checked_control, listed
from pcmcnet.models.logit.standard_errors import Errors, Estimates, Ratio, estimate_frame, estimate_rows, interval_ends
from pcmcnet.reports.formats import Summary
from pcmcnet.storage import json_bytes
from pcmcnet.training.device import default_torch_settings

log = logging.getLogger("pcmcnet")

# -- Options of the logit models: the utility, parameters that are given, and the kind of standard errors --------------


@dataclass(frozen=True, kw_only=True)
class LogitConfig:
    """Options of the logit models.

    Parameters
    ----------
    formula
        The utility: "cost + log(time) + cost:income | income | wait", or "." for all features and, where
        alternatives have labels, a constant for each.
    reference
        Label of the alternative whose constant is 0; if not given, the outside option or the one chosen most often.
    min_chosen
        Levels of categorical features chosen fewer times than this are pooled in one.
    base
        Levels of categorical columns without a coefficient, {"comfort": "low"}; those chosen most often if not given.
    offset
        Feature that is part of the utility as it is, with a coefficient of 1, such as a correction for the sampling of
        alternatives. The formula must not name it, and "." leaves it out.
    wtp_space
        Coefficient of a cost in whose units all others are estimated: as willingnesses to pay, b = -b_cost wtp.
    errors
        Standard errors that the summary shows: classical, robust or clustered; "auto" for clustered ones where a
        cluster is named or the table declares persons, and classical ones elsewhere.
    cluster
        Column, individual or kept, whose groups have dependent choices; the persons of the table if not given.
    max_iter
        Steps of the maximisation, at most.
    fixed
        Values of coefficients that are not estimated, by their names in the summary: {"price": -1.0}.
    bounds
        The least and the largest value that coefficients may have, None for no bound: {"price": (None, 0)}.
    start
        Values of coefficients to begin the maximisation with; others begin at 0.
    """

    formula: str = "."
    reference: str | None = None
    min_chosen: int = 10
    base: Mapping[str, str] = field(default_factory=dict)
    offset: str | None = None
    wtp_space: str | None = None
    errors: Errors | Literal["auto"] = "auto"
    cluster: str | None = None
    max_iter: int = 200
    fixed: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] | None = field(default_factory=dict)
    start: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_formula(self.formula)
        require_number("min_chosen", self.min_chosen, whole=True, low=0)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_word("errors", self.errors, ("auto", *get_args(Errors)))
        control = checked_control(self.fixed, self.bounds, self.start)
        for name, value in zip(("fixed", "bounds", "start"), control, strict=True):
            object.__setattr__(self, name, value)
        if isinstance(self.reference, int) and not isinstance(self.reference, bool):
            object.__setattr__(self, "reference", str(self.reference))  # labels that are numbers have these names
        for name in ("reference", "cluster", "offset", "wtp_space"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)):
                raise ConfigError(f"{name} must be a name, got {value!r}.")
        if not isinstance(self.base, Mapping):
            raise ConfigError(f"base must map columns to levels, got {self.base!r}.")
        object.__setattr__(self, "base", {str(column): str(level) for column, level in self.base.items()})
        if self.offset is not None and {*self.fixed, *(self.bounds or {}), *self.start} & {quoted(self.offset)}:
            raise ConfigError(f"the offset {self.offset!r} has a coefficient of 1: leave it out of the other options.")


@dataclass(frozen=True, kw_only=True)
class LogitRecord(FitRecord):
    """Facts about a logit beside its estimates."""

    known_shares: Mapping[str, float] | None = None  # by label, to which the constants were moved after the fit


@dataclass(frozen=True, kw_only=True)
class FittedLogit(FittedState):
    """Columns of the utility, and estimates of what they are multiplied by."""

    design: Design
    estimates: Estimates
    record: LogitRecord = field(default_factory=LogitRecord)


class LogitModel(ChoiceModel):
    """A model with a design, coefficients and their errors."""

    config: LogitConfig
    _state: FittedLogit
    record_class: ClassVar[type[FitRecord]] = LogitRecord
    advice: ClassVar[str] = (  # what to do about a coefficient without a finite estimate
        "the data push it to infinity, as when a level is never or always chosen. Leave it out, or raise min_chosen"
    )

    @abstractmethod
    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedLogit:
        """Return design and estimates; the design is learnt from the training part if none is given."""

    @single_threaded_blas()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedLogit:
        return self._estimate(train, run)

    @default_torch_settings()
    @torch.enable_grad()
    @single_threaded_blas()
    def refit(self, train: ChoiceData, design: Design, seed: int) -> Estimates:
        """Return the estimates that other choice sets lead to, for the columns of a known design.

        The model stays as it is, and need not be fitted.
        """
        if train.schema.contents:
            train = train.without_contents()
        return self._estimate(train, FitRun(seed=seed, progress=False), design).estimates

    @property
    def design_(self) -> Design:
        """The columns of the utility."""
        return self._state.design

    @property
    def estimates_(self) -> Estimates:
        """The estimates, their covariances and the figures of fit."""
        return self._state.estimates

    def with_values(self, values: Floats, known_shares: Mapping[str, float] | None = None) -> Self:
        """Return a fitted model that differs in the values of its coefficients alone.

        ``known_shares`` are those to which they moved the constants, if they did.
        """
        fitted, state = self.require_fitted(), self._state
        record = state.record if known_shares is None else replace(state.record, known_shares=dict(known_shares))
        state = replace(state, estimates=replace(state.estimates, values=values), record=record)
        other = type(self)(**self.get_params(deep=False))
        other.fitted_ = replace(fitted, state=state)
        return other

    @property
    def coefficients(self) -> dict[str, float]:
        """The estimates by name."""
        return dict(zip(self.estimates_.names, self.estimates_.values.tolist(), strict=True))

    @property
    def num_parameters(self) -> int:
        """Number of estimated parameters."""
        return self.estimates_.n_parameters

    @property
    def default_errors(self) -> Errors:
        """The kind of standard errors that is meant where none is named."""
        if self.config.errors != "auto":
            return self.config.errors
        return "classical" if self.estimates_.clusters is None else "clustered"

    @property
    def calibrated_constants(self) -> tuple[str, ...]:
        """The constants that were moved to known shares after the fit, and so are no estimates any more."""
        moved = {f"constant[{label}]" for label in self._state.record.known_shares or ()}
        return tuple(n for n in self.estimates_.names if n in moved or n.partition(": ")[2] in moved)  # of a class

    @property
    def _one_person(self) -> bool:
        """Whether the table declares persons, but has a single one, so that there are no clusters."""
        return self.config.cluster is None and self.schema.person is not None and self.estimates_.clusters is None

    def _kind(self, errors: Errors | None) -> Errors:
        """Return the kind of errors that is meant; refuses clustered ones of a single person."""
        if errors == "clustered" and self._one_person:
            raise InputError(
                f"clustered errors need at least two persons, and column {self.schema.person!r} has one: ask for "
                f"'robust' ones."
            )
        return errors or self.default_errors

    def standard_errors(self, errors: Errors | None = None) -> dict[str, float]:
        """Return the standard errors by name; of the kind in the options, if none is named."""
        return self.estimates_.standard_errors(self._kind(errors))

    def covariance(self, errors: Errors | None = None) -> Floats:
        """Return the covariance of the estimates, in their order."""
        return self.estimates_.covariance(self._kind(errors))

    def estimates(self, errors: Errors | None = None, level: float = 0.95) -> Any:
        """Return a pandas data frame: a row for each coefficient, with error, z, p and the ends of its interval.

        Parameters
        ----------
        errors
            Kind of standard errors; that of the options, if not given.
        level
            Of the intervals.
        """
        return estimate_frame(self.estimates_, self._kind(errors), level, self.calibrated_constants)

    def summary(self, errors: Errors | None = None, level: float | None = None) -> Summary:
        """Print as econometricians know it: fit, then estimate, standard error, z and p of each coefficient.

        With a ``level``, such as 0.95, the ends of each coefficient's interval stand beside them.
        """
        kind = self._kind(errors)
        facts = self._facts()
        facts["standard errors"] = kind
        if kind == "clustered":
            by = self.config.cluster or self.schema.together
            facts["standard errors"] += f", {self.estimates_.clusters:,} clusters by {by}"
        elif errors is None and self.config.errors == "auto" and self._one_person:
            facts["standard errors"] += ": the table has one person"
        if self.schema.weight is not None:
            facts["weights"] = self.schema.weight
        header: tuple[str, ...] = ("coefficient", "estimate", "std err", "z", "p")
        moved = self.calibrated_constants
        rows = self.estimates_.rows(kind, moved)
        if level is not None:
            ends = [(row.lower, row.upper) for row in estimate_rows(self.estimates_, kind, level, moved)]
            header = (*header, *(f"{end:.3g}" for end in ((1 - level) / 2, (1 + level) / 2)))
            rows = tuple((*row, *interval_ends(*end)) for row, end in zip(rows, ends, strict=True))
        return Summary(type(self).__name__, facts, header, rows)

    def _facts(self) -> dict[str, str]:
        """Return what the summary says above its table."""
        facts = {"formula": self.config.formula, **self.estimates_.facts()}
        if self.design_.cost is not None:
            facts["wtp in units of"] = self.design_.cost
        if self.design_.form.curves:
            facts["lambdas tested against"] = "1"
        if self.design_.labels is not None:
            facts["reference"] = self.design_.labels.reference
        if known_shares := self._state.record.known_shares:
            shown = ", ".join(f"{label} {share:.4g}" for label, share in known_shares.items())
            facts["constants"] = f"moved to the shares {shown}; the figures of fit are those before the move"
        pooled = {name: code.pooling for name, code in self.design_.codes.items() if isinstance(code, LevelCode)}
        if any(pooled.values()):
            least = f" (chosen fewer than {self.config.min_chosen} times)"
            facts["pooled levels"] = "; ".join(f"{name}: {text}" for name, text in pooled.items() if text) + least
        return facts

    def _prepare(self, train: ChoiceData) -> tuple[ChoiceData, Ints, Ints | None]:
        """Take the sets that count, with their choices and, perhaps, clusters."""
        sets = train if (train.weights > 0).all() else train.subset(train.weights > 0)
        if (sets.sizes < 2).all():
            raise InputError("every choice set has a single alternative: there is nothing to learn.")
        return sets, sets.require_chosen("fitting"), self._clusters(sets)

    def _clusters(self, sets: ChoiceData) -> Ints | None:
        """Number the cluster of each set, where there are some: those asked for, or the persons if there are two."""
        if self.config.cluster is not None:
            return sets.groups(self.config.cluster)
        persons = None if sets.schema.together is None else sets.groups()
        if self.config.errors == "clustered" and persons is None:
            raise ConfigError("errors='clustered' needs the clusters: cluster=<column>, or a table with persons.")
        alone = persons is not None and persons.max(initial=0) == 0
        if alone and self.config.errors == "clustered":
            raise InputError(
                f"errors='clustered' needs at least two persons, and column {sets.schema.together!r} has one: take "
                f"errors='robust', or name another cluster=<column>."
            )
        return None if alone else persons

    def _learn_design(
        self, sets: ChoiceData, *, wtp_space: str | None, leave_out: frozenset[str] = frozenset()
    ) -> Design:
        """Learn the columns of the utility; with ``wtp_space``, its parameters are in units of that cost."""
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
            leave_out=leave_out,
        )

    def _require_linear(self, design: Design) -> Design:
        """Return a design whose utility is linear in its parameters; refuse another one."""
        if not design.form.is_linear:
            what = "wtp_space=" if design.cost else "exponents to be estimated"
            remedy = "willingness_to_pay() gives the ratios" if design.cost else "give them, as in boxcox(time, 0.5)"
            raise ConfigError(f"{type(self).__name__} takes no {what}, which mnl does: {remedy}.")
        return design

    def _require_cost(self, name: str) -> None:
        """Refuse a cost without effect in a space of willingness to pay."""
        if self.config.fixed.get(name) == 0:
            raise ConfigError(
                f"wtp_space={name!r}: its coefficient is fixed at 0, so that nothing can be expressed in its units. "
                f"Leave it out of fixed, or fix it at another value."
            )

    def _parameters(
        self, names: Sequence[str], begin: Floats | None = None, bounds: Mapping[str, Bounds] | None = None
    ) -> Parameters:
        """Return the parameters of these names, free, fixed or bounded as the options say; an offset is fixed at 1.

        ``bounds`` go before those of the options.
        """
        config, fixed = self.config, dict(self.config.fixed)
        if config.offset is not None:
            own = quoted(config.offset)
            fixed |= {name: 1.0 for name in names if name == own or name.endswith(f": {own}")}  # that of a class
        limits = {**(config.bounds or {}), **(bounds or {})}
        return Parameters.of(names, fixed=fixed, bounds=limits, start=config.start, begin=begin)

    def _constants_log_likelihood(self, design: Design, problem: LogitLikelihood, weights: Floats) -> float | None:
        """Return the log-likelihood of a multinomial logit with the constants alone; None if there are none.

        ``problem`` has the columns of the design, ``weights`` those of its sets.
        """
        if design.labels is None or not design.terms.constants:
            return None
        columns = [design.columns.index(f"constant[{level}]") for level in design.labels.levels]
        alone = replace(problem, z=problem.z[:, columns])
        b, _, _ = alone.maximise(weights, max_iter=self.config.max_iter)
        return float(weights @ alone.log_likelihoods(b))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Name the coefficients without a finite estimate."""
        if not (lost := self.estimates_.unbounded):
            return ()
        return (f"no finite estimate for {listed(lost)}, so the figures depend on where the search ended",)

    def _warn_unbounded(self, estimates: Estimates) -> None:
        """Warn about coefficients without a finite estimate."""
        if estimates.unbounded:
            log.warning("no finite estimate for %s: %s", listed(estimates.unbounded), self.advice)

    def willingness_to_pay(self, name: str, cost: str, errors: Errors | None = None) -> Ratio:
        """Return what one more unit of something is worth in units of a cost: -b_name / b_cost, with its error.

        It is positive for what attracts, as costs repel: so much would be paid for it. It is negative for what repels,
        such as a minute: so much would be paid to be spared it, and minus this is the value of time. Units are those of
        the table, whatever the formula divides a column by; a level or a constant is worth so much beside its
        reference. Both names are those of coefficients, as the summary shows them.

        Raises
        ------
        InputError
            When a coefficient is not what a unit is worth, such as that of log(cost) or of a product.
        """
        return willingness_to_pay(self, name, cost, self._kind(errors))

    def _files(self) -> dict[str, bytes]:
        estimates = self.estimates_
        arrays = {"values": estimates.values, "null": estimates.null}
        arrays |= {f"covariance/{kind}": np.ascontiguousarray(c) for kind, c in estimates.covariances.items()}
        return {
            "design.json": json_bytes(self.design_.to_dict()),
            "estimates.json": json_bytes(estimates_to_dict(estimates)),
            "estimates.safetensors": save_arrays(arrays),
        }


def require_estimated(model: LogitModel, what: str) -> None:
    """Refuse a model whose constants were moved to known shares, where maxima of the likelihood are needed."""
    if model.calibrated_constants:
        raise InputError(
            f"{what} needs estimates, and the constants of this {type(model).__name__} were moved to known shares: "
            f"take the model as it was before calibrate_constants."
        )


def read_design(files: Mapping[str, bytes]) -> Design:
    """Read a design, and check that it gives its own columns."""
    design = Design.from_dict(json.loads(files["design.json"]))
    design.require_fit(read_schema(files))
    return design


def read_schema(files: Mapping[str, bytes]) -> Schema:
    """Read the roles of the training table's columns."""
    return Schema.from_dict(json.loads(files["schema.json"]))


def read_estimates(files: Mapping[str, bytes]) -> Estimates:
    """Read estimates, and check that they are finite numbers of one size."""
    arrays = load_arrays(files["estimates.safetensors"])
    entries = json.loads(files["estimates.json"])
    size = len(entries["names"])
    covariances = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith("covariance/")}
    shapes = {"values": (size,), "null": (size,), **{f"covariance/{kind}": (size, size) for kind in covariances}}
    if not all(arrays[k].shape == shape and np.isfinite(arrays[k]).all() for k, shape in shapes.items()):
        raise ArtifactError("the saved estimates are not all finite numbers of one size: fit the model again.")
    entries |= {key: tuple(entries[key]) for key in ("names", "unbounded", "fixed", "at_bound")}
    return Estimates(**entries, values=arrays["values"], null=arrays["null"], covariances=covariances)


def estimates_to_dict(estimates: Estimates) -> dict[str, Any]:
    """Return all but the arrays, for JSON."""
    names = (entry.name for entry in fields(estimates))
    return {name: getattr(estimates, name) for name in names if name not in ("values", "null", "covariances")}
