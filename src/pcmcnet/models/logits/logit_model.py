"""What the logit models share: design, estimates with their errors, summary, willingness to pay, the saved form."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.design.factor_coding import LevelCode
from pcmcnet.models.logits.design.formula import quoted
from pcmcnet.models.logits.estimation import Errors, Estimates, LogitSets, Ratio
from pcmcnet.models.logits.estimation.estimates_frame import estimate_frame, estimate_rows, interval_ends
from pcmcnet.models.logits.estimation.identification import listed
from pcmcnet.models.logits.estimation.parameter_bounds import Bounds, Parameters
from pcmcnet.models.logits.logit_config import LogitConfig as LogitConfig
from pcmcnet.models.logits.willingness_to_pay import willingness_to_pay
from pcmcnet.reports.formats import Summary
from pcmcnet.storage.files import json_bytes

log = logging.getLogger("pcmcnet")


class LogitModel(ChoiceModel):
    """A model with a design, coefficients and their errors."""

    config: LogitConfig
    control = False  # whether parameters can be fixed, bounded and started
    given_design: Design | None = None  # columns of the utility that are known and not to be learnt
    curved = False  # whether utilities need not be linear in their parameters
    own_worths = False  # whether the model itself, and not its design, goes to willingness-to-pay space
    design_: Design
    estimates_: Estimates

    @property
    def coefficients(self) -> dict[str, float]:
        """The estimates by name."""
        _ = self.schema
        return dict(zip(self.estimates_.names, self.estimates_.values.tolist(), strict=True))

    @property
    def num_parameters(self) -> int:
        """Number of estimated parameters."""
        _ = self.schema
        return self.estimates_.n_parameters

    @property
    def usual_errors(self) -> Errors:
        """The kind of standard errors that is meant where none is named."""
        if self.config.errors != "auto":
            return self.config.errors
        return "classical" if self.estimates_.clusters is None else "clustered"

    @property
    def calibrated_constants(self) -> tuple[str, ...]:
        """The constants that were moved to known shares after the fit, and so are no estimates any more."""
        _ = self.schema
        moved = {f"constant[{label}]" for label in self.training_.get("known_shares") or ()}
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
        return errors or self.usual_errors

    def standard_errors(self, errors: Errors | None = None) -> dict[str, float]:
        """Return the standard errors by name; of the kind in the options, if none is named."""
        _ = self.schema
        return self.estimates_.standard_errors(self._kind(errors))

    def covariance(self, errors: Errors | None = None) -> Floats:
        """Return the covariance of the estimates, in their order."""
        _ = self.schema
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
        _ = self.schema
        return estimate_frame(self.estimates_, self._kind(errors), level, self.calibrated_constants)

    def summary(self, errors: Errors | None = None, level: float | None = None) -> Summary:
        """Print as econometricians know it: fit, then estimate, standard error, z and p of each coefficient.

        With a ``level``, such as 0.95, the ends of each coefficient's interval stand beside them.
        """
        _ = self.schema
        kind = self._kind(errors)
        facts = self._facts()
        facts["standard errors"] = kind
        if kind == "clustered":
            facts["standard errors"] += (
                f", {self.estimates_.clusters:,} clusters by {self.config.cluster or self.schema.together}"
            )
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
        if known := self.training_.get("known_shares"):
            shown = ", ".join(f"{label} {share:.4g}" for label, share in known.items())
            facts["constants"] = f"moved to the shares {shown}; the figures of fit are those before the move"
        pooled = {name: code.pooling for name, code in self.design_.codes.items() if isinstance(code, LevelCode)}
        if any(pooled.values()):
            least = f" (chosen fewer than {self.config.min_chosen} times)"
            facts["pooled levels"] = "; ".join(f"{name}: {text}" for name, text in pooled.items() if text) + least
        return facts

    def _prepare(self, train: ChoiceData) -> tuple[ChoiceData, Ints, Ints | None]:
        """Take the sets that count, with their choices and, perhaps, clusters."""
        for name in ("fixed", "bounds", "start", "offset"):
            if getattr(self.config, name) and not self.control:
                raise ConfigError(f"{type(self).__name__} does not take {name}=, which mnl does.")
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

    def _learn_design(self, sets: ChoiceData, leave_out: frozenset[str] = frozenset()) -> Design:
        """Learn the columns of the utility, unless they are given."""
        if self.given_design is not None:
            return self.given_design
        config = self.config
        if config.wtp_space is not None and not self.own_worths:
            self._require_cost(config.wtp_space)
        design = Design.learn(
            config.formula,
            sets,
            reference=config.reference,
            least=config.min_chosen,
            base=config.base,
            offset=config.offset,
            cost=None if self.own_worths else config.wtp_space,
            leave_out=leave_out,
        )
        if not (self.curved or design.form.is_linear):
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

    def _constants_alone(self, problem: LogitSets, weights: Floats) -> float | None:
        """Return the log-likelihood of a multinomial logit with the constants alone; None if there are none.

        ``problem`` has the columns of the design, ``weights`` those of its sets.
        """
        labels = self.design_.labels
        if labels is None or not self.design_.terms.constants:
            return None
        columns = [self.design_.columns.index(f"constant[{level}]") for level in labels.levels]
        alone = replace(problem, z=problem.z[:, columns])
        b, _, _ = alone.maximise(weights, max_iter=self.config.max_iter)
        return float(weights @ alone.log_likelihoods(b))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Name the coefficients without a finite estimate."""
        _ = self.schema
        lost = self.estimates_.unbounded
        return (
            (f"no finite estimate for {listed(lost)}, so the figures depend on where the search ended",) if lost else ()
        )

    def _note(self) -> None:
        """Warn of estimates that are none."""
        if self.estimates_.unbounded:
            log.warning("no finite estimate for %s: %s", listed(self.estimates_.unbounded), self._advice)

    @property
    def _advice(self) -> str:
        """What to do about estimates that are none."""
        return (
            "the data push it to infinity, as when a level is never or always chosen. Leave it out, or raise min_chosen"
        )

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
        _ = self.schema
        return willingness_to_pay(self, name, cost, self._kind(errors))

    def _files(self) -> dict[str, bytes]:
        arrays = {"values": self.estimates_.values, "null": self.estimates_.null}
        arrays |= {f"covariance/{kind}": np.ascontiguousarray(c) for kind, c in self.estimates_.covariances.items()}
        return {
            "design.json": json_bytes(self.design_.to_dict()),
            "estimates.json": json_bytes(estimates_to_dict(self.estimates_)),
            "estimates.safetensors": save_arrays(arrays),
        }

    def _restore(self, files: Mapping[str, bytes]) -> None:
        self.design_ = Design.from_dict(json.loads(files["design.json"]))
        self.design_.require_fit(Schema.from_dict(json.loads(files["schema.json"])))
        self.estimates_ = read_estimates(files)


def require_estimated(model: LogitModel, what: str) -> None:
    """Refuse a model whose constants were moved to known shares, where maxima of the likelihood are needed."""
    if model.calibrated_constants:
        raise InputError(
            f"{what} needs estimates, and the constants of this {type(model).__name__} were moved to known shares: "
            f"take the model as it was before calibrate_constants."
        )


def read_estimates(files: Mapping[str, bytes]) -> Estimates:
    """Read estimates back, and see that they are some."""
    arrays = load_arrays(files["estimates.safetensors"])
    entries = json.loads(files["estimates.json"])
    size = len(entries["names"])
    covariances = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith("covariance/")}
    shapes = {"values": (size,), "null": (size,), **{f"covariance/{kind}": (size, size) for kind in covariances}}
    if not all(arrays[k].shape == shape and np.isfinite(arrays[k]).all() for k, shape in shapes.items()):
        raise ArtifactError("the saved estimates are not all finite numbers of one size: fit the model again.")
    entries |= {key: tuple(entries.get(key, ())) for key in ("names", "unbounded", "fixed", "at_bound")}
    return Estimates(**entries, values=arrays["values"], null=arrays["null"], covariances=covariances)


def estimates_to_dict(estimates: Estimates) -> dict[str, Any]:
    """Return all but the arrays, for JSON."""
    return {
        "names": list(estimates.names),
        "log_likelihood": estimates.log_likelihood,
        "null_log_likelihood": estimates.null_log_likelihood,
        "n_sets": estimates.n_sets,
        "steps": estimates.steps,
        "clusters": estimates.clusters,
        "constants_log_likelihood": estimates.constants_log_likelihood,
        "unbounded": list(estimates.unbounded),
        "fixed": list(estimates.fixed),
        "at_bound": list(estimates.at_bound),
        "weight": estimates.weight,
    }
