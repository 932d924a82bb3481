"""Nests of a nested logit: the option ``nests``, the nests above each alternative, and the fit of models with nests.

The option ``nests`` maps each label to its nest, as in ``{"car": "road", "bus": "road", "train": "rail"}``, or is a
tree, as in ``{"land": {"road": ["car", "bus"], "rail": ["train"]}, "air": ["plane"]}``. ``nests`` may also be the path
of a TOML file with such a mapping or tree, or the name of a feature whose values are the nests. Shapes: R leaves, where
an alternative is one leaf, or several leaves if several nests share it.
"""

from __future__ import annotations

import logging
import tomllib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.choice_based import sampling_strata
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.data.columns.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.logit.box_cox import LinearisedUtility
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood, NonlinearNestedLikelihood, nonlinear_maximum
from pcmcnet.models.logit.logit_model import (
    FittedLogit,
    LogitConfig,
    LogitModel,
    LogitRecord,
    read_design,
    read_estimates,
)
from pcmcnet.models.logit.maximum_likelihood import Maximum, maximise, numerical_hessian
from pcmcnet.models.logit.nested_likelihood import (
    Allocation,
    NestedLikelihood,
    NestedRows,
    logsum_warnings,
    mark_diverging_logsums,
    nest_bounds,
    require_within,
)
from pcmcnet.models.logit.parameter_bounds import Parameters, listed, require_identified
from pcmcnet.models.logit.standard_errors import infer

log = logging.getLogger("pcmcnet")

NestPath = tuple[str, ...]  # names of nests, from the top down


class NestLeaves(NamedTuple):
    """Leaves of the tree: the alternatives of a table with their paths."""

    alternative: Ints  # (R,) row of the table of each leaf, in order
    code: Ints  # (R,) index of the path of each leaf
    paths: Sequence[NestPath]


class NestTree(NamedTuple):
    """The nests of a table, with parents before their children."""

    names: tuple[str, ...]  # (M,)
    parents: tuple[int, ...]  # (M,) index of the parent; -1 at the top

    @classmethod
    def of(cls, leaves: NestLeaves) -> NestTree:
        """Return the tree of the nests above the leaves."""
        present = [leaves.paths[code] for code in np.unique(leaves.code)]
        nodes = sorted({path[:depth] for path in present for depth in range(1, len(path) + 1)})
        index = {node: k for k, node in enumerate(nodes)}
        return cls(tuple(node[-1] for node in nodes), tuple(index.get(node[:-1], -1) for node in nodes))

    def nests(self, leaves: NestLeaves, offsets: Ints) -> NestedRows:
        """Return the leaves sorted by the tree, or raise InputError if the tree lacks one of their nests."""
        index = {name: k for k, name in enumerate(self.names)}
        for code in np.unique(leaves.code):
            for name in leaves.paths[code]:
                if name not in index:
                    raise InputError(
                        f"nest {name!r} was not in the training data, so it has no log-sum parameter: "
                        f"expected one of {', '.join(map(str, self.names))}."
                    )
        nodes = np.full((len(leaves.paths), max(map(len, leaves.paths))), -1)
        for code, path in enumerate(leaves.paths):
            nodes[code, : len(path)] = [index.get(name, -1) for name in path]
        return NestedRows.find(nodes[leaves.code], np.searchsorted(leaves.alternative, offsets))

    def counts(self, parameter: Sequence[int], n_parameters: int) -> Floats:  # (M,) -> (M, F)
        """Return how many times each parameter occurs on the path from the root to each nest.

        ``parameter`` contains the index of each nest's parameter, or -1 for a nest without a parameter.
        """
        counts = np.zeros((len(self.names), n_parameters))
        for node, (parent, index) in enumerate(zip(self.parents, parameter, strict=True)):
            counts[node] = counts[parent] if parent >= 0 else 0.0
            if index >= 0:
                counts[node, index] += 1
        return counts


def require_nests(nests: NestedRows, n_nodes: int) -> Bools:
    """Return True for each nest with a log-sum to estimate, or raise InputError if the nests have no effect."""
    free = nests.has_two_children(n_nodes)
    if not free.any():
        raise InputError("no nest has two alternatives in any choice set, so no log-sum is identified.")
    if (np.diff(nests.levels[-1].offsets) == 1).all():
        raise InputError(
            "in every choice set, all alternatives belong to the same nest: nests must separate the alternatives "
            "within a choice set."
        )
    return free


def read_nests(path: Path) -> dict[str, Any]:
    """Read nests from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"nests: cannot read {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"nests: {path} is not a valid TOML file: {error}.") from error


def checked_tree(nests: Any) -> dict[str, Any]:
    """Return nests by label, or a tree of nests, with names as text, or raise ConfigError if they are not valid."""
    if not isinstance(nests, Mapping):
        raise ConfigError(f"nests must be the name of a feature, or a mapping from labels to nests; got {nests!r}.")
    if all(isinstance(value, str | int | float) for value in nests.values()):
        return {str(label): str(nest) for label, nest in nests.items()}
    tree = _checked_node(nests, "nests")
    nest_of: dict[str, str] = {}
    above: dict[str, NestPath] = {}
    for path, label in _labels_with_paths(tree):
        if label in nest_of:
            raise ConfigError(
                f"nests: {label!r} is in two nests, {nest_of[label]!r} and {path[-1]!r}: remove it from one, or use "
                f"cross-nested-mnl."
            )
        nest_of[label] = path[-1]
        for depth, name in enumerate(path):
            if above.setdefault(name, path[:depth]) != path[:depth]:
                raise ConfigError(f"nests: two nests are called {name!r}: rename one of them.")
    return tree


def _checked_node(node: Any, where: str) -> dict[str, Any]:
    """Return a node of the tree with all names converted to text."""
    checked: dict[str, Any] = {}
    for name, below in node.items():
        here = f"{where}[{str(name)!r}]"
        if isinstance(below, Mapping) and below:
            checked[str(name)] = _checked_node(below, here)
        elif isinstance(below, list | tuple) and below and not any(isinstance(v, list | tuple | dict) for v in below):
            checked[str(name)] = nest_labels(below, here)
        else:
            raise ConfigError(f"{here}: expected labels, such as ['car', 'bus'], or named nests; got {below!r}.")
    return checked


def nest_labels(labels: Sequence[Any], where: str) -> list[str]:
    """Return the labels of a nest as text, or raise ConfigError if a label occurs twice."""
    names = [str(label) for label in labels]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise ConfigError(f"{where} contains {duplicate!r} twice: remove one.")
    return names


def _labels_with_paths(tree: Mapping[str, Any], above: NestPath = ()) -> Iterator[tuple[NestPath, str]]:
    """Yield each label with the path of nests above it."""
    for name, below in tree.items():
        if isinstance(below, Mapping):
            yield from _labels_with_paths(below, (*above, name))
        else:
            yield from (((*above, name), label) for label in below)


def paths_by_label(nests: Mapping[str, Any]) -> dict[str, NestPath]:
    """Return the path of nests above each label."""
    if all(isinstance(value, str) for value in nests.values()):
        return {label: (nest,) for label, nest in nests.items()}
    return {label: path for path, label in _labels_with_paths(nests)}


def leaves_by_feature(name: str, data: ChoiceData) -> NestLeaves:
    """Return leaves whose nests are the values of a feature."""
    if name not in data.features:
        raise SchemaError(f"nests: {name!r} is not a feature." + did_you_mean(name, data.features))
    column, rows = data.features[name], np.arange(data.offsets[-1])
    if isinstance(column, Categorical):
        return NestLeaves(rows, column.codes.astype(np.int64), [(category,) for category in column.categories])
    assert isinstance(column, Numeric)  # content columns (text, images) were dropped before the fit
    values, codes = np.unique(column.values, return_inverse=True)
    if np.isnan(values).any():
        missing = int(np.isnan(column.values).sum())
        raise InputError(f"nests: column {name!r} has {missing} missing values: every alternative needs a nest.")
    return NestLeaves(rows, codes, [(f"{value:.9g}",) for value in values])  # all digits of a float32


def leaves_by_label(paths: Mapping[str, NestPath], data: ChoiceData) -> NestLeaves:
    """Return leaves with the path of each alternative's label."""
    labels = require_nest_labels(paths, data)
    rows = np.arange(data.offsets[-1])
    return NestLeaves(rows, labels.codes.astype(np.int64), [paths.get(label, ()) for label in labels.categories])


def warn_unknown_labels(labels: Iterable[str], data: ChoiceData) -> None:
    """Log a warning about labels in the nests that no alternative of the table has."""
    unknown = [] if data.labels is None else [label for label in labels if label not in data.labels.categories]
    if unknown and data.labels is not None:
        hint = did_you_mean(unknown[0], data.labels.categories)
        log.warning("nests contains labels that are not in the table: %s.%s", listed(unknown), hint)


def require_nest_labels(nests: Mapping[str, Any], data: ChoiceData) -> Categorical:
    """Return the labels of the alternatives, or raise InputError if a label has no nest."""
    if data.labels is None:
        raise InputError("nests are given by label, but the table has no labels: read it with alternative=<column>.")
    labels = data.labels
    lacking = [labels.categories[k] for k in np.unique(labels.codes) if labels.categories[k] not in nests]
    if lacking:
        raise InputError(
            f"nests assigns no nest to {len(lacking)} alternative{'s' * (len(lacking) > 1)}: {listed(lacking)}. "
            f"Give each label a nest; a nest of one alternative is allowed."
        )
    return labels


# -- Base class of the nested and cross-nested logit: fit, log-sums and predictions ------------------------------------
# The log-sum parameter of a nest is the product of the coefficients `logsum[NEST]` from the top of the tree to the
# nest, so each coefficient is the scale of a nest relative to its parent. `models/logit/nested_likelihood.py` describes
# their bounds, and when they have no finite estimate.


@dataclass(frozen=True, kw_only=True)
class NestConfig(LogitConfig):
    """Options of nested and cross-nested logits: the options of all logit models, and options of the log-sums.

    Parameters
    ----------
    common_logsum
        Whether all nests share one log-sum parameter, which in a tree is relative to the nest above. If False
        (default), each nest has its own parameter.
    bounds
        Lower and upper bounds of coefficients, with None for no bound, as in {"price": (None, 0)}. By default, log-sum
        parameters are at most 1, and ``bounds=None`` removes this bound.
    """

    common_logsum: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.common_logsum, bool):
            raise ConfigError(f"common_logsum must be True or False, got {self.common_logsum!r}.")


@dataclass(frozen=True, kw_only=True)
class NestRecord(LogitRecord):
    """The tree of nests and the names of its coefficients."""

    nests: tuple[str, ...]  # (M,) names, parents first
    parents: tuple[int, ...]  # (M,) index of the nest above; -1 at the top
    logsums: tuple[
        str | None, ...
    ]  # (M,) log-sum coefficient; None for a nest that never has two alternatives in a set
    shares: tuple[str, ...] = ()  # (G,) coefficients that allocate alternatives to nests

    @property
    def tree(self) -> NestTree:
        """The tree of nests."""
        return NestTree(self.nests, self.parents)

    @property
    def logsum_names(self) -> tuple[str, ...]:
        """Distinct names (F,) of the log-sum coefficients."""
        return tuple(dict.fromkeys(name for name in self.logsums if name is not None))

    @property
    def counts(self) -> Floats:
        """Number of times (M, F) that each log-sum coefficient occurs on the path from the root to each nest."""
        names = self.logsum_names
        return self.tree.counts([-1 if name is None else names.index(name) for name in self.logsums], len(names))


@dataclass(frozen=True, kw_only=True)
class FittedNests(FittedLogit):
    """A fitted logit with nests: coefficients of the utility, then log-sums, then shares."""

    record: NestRecord

    def split(self) -> tuple[Floats, Floats, Floats]:
        """Return the parameters of the utility (K,), the log-sums (F,) and the shares (G,)."""
        K, F = len(self.design.names), len(self.record.logsum_names)
        utility, logsums, shares = np.split(self.estimates.values, [K, K + F])
        return utility, logsums, shares

    @property
    def logsums(self) -> Floats:
        """Log-sum parameter (M,) of each nest: the product of the relative parameters on its path."""
        logsums: Floats = np.prod(self.split()[1] ** self.record.counts, axis=1)
        return logsums


class NestModel(LogitModel):
    """Base class of the nested and cross-nested logit."""

    config: NestConfig
    _state: FittedNests
    record_class = NestRecord
    starts: ClassVar[tuple[float, ...]] = (1.0, 0.37)  # starting log-sums: the likelihood may have two maxima
    advice = (
        "it is not identified, for example because a level is never or always chosen, a log-sum diverges, or only "
        "constants vary within a nest. Leave it out, fix it, or try other nests"
    )

    @abstractmethod
    def _leaves(self, data: ChoiceData) -> NestLeaves:
        """Return the alternatives with their paths in the tree."""

    @abstractmethod
    def _labels(self) -> Iterable[str]:
        """Return the labels that occur in the nests."""

    def _share_names(self, leaves: NestLeaves) -> tuple[str, ...]:
        """Return the names of the coefficients that allocate alternatives to nests."""
        return ()

    def _allocation(self, leaves: NestLeaves, shares: Sequence[str]) -> Allocation | None:
        """Return the allocation of alternatives to nests, or None if each alternative is in one nest."""
        return None

    def _leave_out(self) -> frozenset[str]:
        """Return the features that "." in the formula does not include."""
        return frozenset()

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedNests:
        config = self.config
        # 1. Choice sets with positive weight, their alternatives in the tree, and the columns of the utility.
        sets, chosen, clusters = self._prepare(train)
        leaves, nests, record = self._learn_nests(sets)
        if design is None:
            design = self._learn_design(sets, wtp_space=config.wtp_space, leave_out=self._leave_out())
        # 2. Start the coefficients at the maximum of the multinomial logit with the same columns.
        within = self._parameters_of_nests(design, record)
        x = design.at(within.start[: len(design.names)]).matrix(sets)
        plain = LogitLikelihood.from_matrix(x, sets.offsets, chosen)
        within, spread = self._start_at_mnl(design, plain, within, sets)
        # 3. Maximise from several values of the log-sums, and compute the Hessian at the maximum.
        likelihood = self._likelihood(design, record, sets, chosen, leaves, nests, x)
        values, steps = self._maximise(likelihood, within, spread, sets.weights)
        log_likelihoods, scores = likelihood.evaluate(values)
        size = np.concatenate([spread, 1 / values[likelihood.logsums], np.ones(len(record.shares))])
        curvature = numerical_hessian(likelihood.evaluate, values, sets.weights, scale=1 / size)
        maximum = Maximum(values, float(sets.weights @ log_likelihoods), scores, curvature, steps, size)
        # 4. Standard errors. The null hypothesis for exponents and log-sums is 1.
        null = np.zeros(len(values))
        null[: likelihood.K], null[likelihood.logsums] = design.form.null_values, 1.0
        constants = self._constants_log_likelihood(design, plain, sets.weights)
        rest = (clusters, null, constants, sampling_strata(sets))
        estimates = infer(maximum, within, sets.weights, sets.sizes, *rest)
        # 5. A log-sum at a limit of the search is not an estimate, nor are coefficients that diverge with it.
        estimates = mark_diverging_logsums(estimates, curvature, set(record.logsum_names) - {*(config.bounds or {})})
        self._warn_unbounded(estimates)
        for warning in logsum_warnings(estimates, record.logsum_names):
            log.warning("%s", warning)
        return FittedNests(design=design, estimates=estimates, record=record)

    def _learn_nests(self, sets: ChoiceData) -> tuple[NestLeaves, NestedRows, NestRecord]:
        """Return the alternatives with their paths, sorted by the tree of nests, and the names of its coefficients."""
        leaves = self._leaves(sets)
        warn_unknown_labels(self._labels(), sets)
        tree = NestTree.of(leaves)
        nests = tree.nests(leaves, sets.offsets)
        has_logsum = require_nests(nests, len(tree.names))
        names = ["logsum" if self.config.common_logsum else f"logsum[{name}]" for name in tree.names]
        logsums = tuple(name if free else None for name, free in zip(names, has_logsum, strict=True))
        shares = self._share_names(leaves)
        return leaves, nests, NestRecord(nests=tree.names, parents=tree.parents, logsums=logsums, shares=shares)

    def _likelihood(
        self,
        design: Design,
        record: NestRecord,
        sets: ChoiceData,
        chosen: Ints,
        leaves: NestLeaves,
        nests: NestedRows,
        x: Floats,
    ) -> NestedLikelihood:
        """Return the likelihood of the choices, for a linear or a nonlinear utility."""
        is_chosen = np.zeros(len(sets.rows), bool)
        is_chosen[sets.offsets[:-1] + chosen] = True
        tree = nests, is_chosen[leaves.alternative], record.counts, self._allocation(leaves, record.shares)
        if design.form.is_linear:
            return NestedLikelihood(x[leaves.alternative], *tree)

        linearised = design.lineariser(sets)

        def linearise(values: Floats) -> LinearisedUtility:
            near = linearised(values)
            return near._replace(matrix=near.matrix[leaves.alternative])

        return NonlinearNestedLikelihood(linearise, len(design.names), *tree)

    def _parameters_of_nests(self, design: Design, record: NestRecord) -> Parameters:
        """Return all parameters with their bounds and starting values."""
        config, logsums, shares = self.config, record.logsum_names, record.shares
        usual = nest_bounds(logsums, shares, config.bounds)
        require_within(usual, logsums, fixed=config.fixed, start=config.start)
        start = np.concatenate([design.form.start_values, np.ones(len(logsums)), np.full(len(shares), 0.5)])
        return self._parameters(design, (*design.names, *logsums, *shares), start, usual)

    def _start_at_mnl(
        self, design: Design, plain: LogitLikelihood, within: Parameters, sets: ChoiceData
    ) -> tuple[Parameters, Floats]:
        """Return parameters that start at the maximum of the multinomial logit, and the scale of their columns."""
        config, form, K = self.config, design.form, len(design.names)
        alone = within.head(K)
        require_identified(plain.z, form.columns, alone)
        if form.is_linear:
            b, spread = plain.maximise(sets.weights, within=alone, max_iter=config.max_iter)[0], plain.spread
        else:
            maximum = nonlinear_maximum(design, sets, plain, alone, config.start, config.max_iter)
            assert maximum.spread is not None
            b, spread = maximum.values, maximum.spread
        named = [name in config.start for name in alone.names]
        start = np.concatenate([np.where(named, alone.start, b), within.start[K:]])
        return replace(within, start=start), spread

    def _maximise(
        self, likelihood: NestedLikelihood, within: Parameters, spread: Floats, weights: Floats
    ) -> tuple[Floats, int]:
        """Maximise from several values of the log-sums, except for log-sums with a value in the option ``start``."""
        # 1. One start for each value, which all log-sums share.
        starts, logs = np.stack([within.start] * len(self.starts)), likelihood.logsums
        free = [name not in self.config.start for name in within.names[logs]]
        starts[:, logs][:, free] = np.array(self.starts)[:, None]
        # 2. The search parameter is t with logsum = log(1 + exp t), which needs no bound at 0. Transform the bounds.
        low, high = (likelihood.search(bound) for bound in (within.low, within.high))
        theta, steps = maximise(
            likelihood.objective,
            likelihood.search(within.clip(starts)),
            weights,
            scale=np.concatenate([1 / spread, np.ones(len(low) - len(spread))]),
            within=replace(within, low=low, high=high),
            max_iter=self.config.max_iter,
        )
        return within.clip(likelihood.values(theta)), steps

    # -- log-sums ---------------------------------------------------------------------------------------------------

    @property
    def logsums(self) -> dict[str, float]:
        """The log-sum parameter of each nest, relative to the root of the tree. Some packages report mu = 1 / logsum.

        A nest that never has two alternatives in a choice set has the parameter of its parent nest, or 1 if it has no
        parent.
        """
        state = self._state
        return dict(zip(state.record.nests, state.logsums.tolist(), strict=True))

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        leaves, nests, v = self._utilities_in_tree(data)
        log_p = nests.log_probabilities(v, self._state.logsums)
        if len(leaves.alternative) == data.offsets[-1]:
            return log_p
        copies = np.searchsorted(leaves.alternative, np.arange(data.offsets[-1] + 1))
        return log_softmax_by_set(
            log_sum_exp_by_set(log_p, copies), data.offsets
        )  # normalise: the sums have rounding errors

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the log-sum (S, 1) of each choice set, and a share of 1 (S, 1) for the only class."""
        _, nests, v = self._utilities_in_tree(data)
        sums = nests.inclusive_values(v, self._state.logsums)[:, None]
        return sums, np.ones_like(sums)

    def _utilities_in_tree(self, data: ChoiceData) -> tuple[NestLeaves, NestedRows, Floats]:
        """Return the leaves of a table, the leaves sorted by the tree, and the utilities of the leaves."""
        leaves, state = self._leaves(data), self._state
        b, _, shares = state.split()
        v = state.design.utilities(data, b)[leaves.alternative]
        if (allocation := self._allocation(leaves, state.record.shares)) is not None:
            v = v + allocation.logs(shares)[allocation.pair]
        return leaves, state.record.tree.nests(leaves, data.offsets), v

    # -- summary and saved form -------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        state = self._state
        names, shown = state.record.nests, []
        for name, parent, value in zip(names, state.record.parents, state.logsums, strict=True):
            # A nest within a nest shows its log-sum, which is not its coefficient but a product.
            shown.append(name if parent < 0 else f"{names[parent]} > {name} (log-sum {value:.4g})")
        facts["nests"] = ", ".join(shown)
        facts["log-sums tested against"] = "1"
        if problems := logsum_warnings(self.estimates_, self._state.record.logsum_names):
            facts["warning"] = ". ".join(problems)
        return facts

    def _restore(self, files: Mapping[str, bytes], record: NestRecord, table: TrainingTable) -> FittedNests:
        state = FittedNests(design=read_design(files), estimates=read_estimates(files), record=record)
        _, logsums, shares = state.split()
        names = record.logsum_names
        if not (
            names
            and {*names} <= {"logsum", *(f"logsum[{nest}]" for nest in record.nests)}
            and len(record.parents) == len(record.logsums) == len(record.nests)
            and all(-1 <= parent < k for k, parent in enumerate(record.parents))
            and state.estimates.names == (*state.design.names, *names, *record.shares)
            and (logsums > 0).all()
            and ((shares >= 0) & (shares <= 1)).all()
        ):
            raise ValueError("the saved nests and log-sums do not match")
        return state
