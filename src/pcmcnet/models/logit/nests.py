"""Nests as people write them -> the path of nests that leads to each alternative.

A nest for each label, ``{"car": "road", "bus": "road", "train": "rail"}``; a tree, ``{"land": {"road": ["car", "bus"],
"rail": ["train"]}, "air": ["plane"]}``; the path of a TOML file with either; or the name of a feature whose values are
the nests. Shapes: R leaves, of which each alternative is one, or several where nests share it.
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
from pcmcnet.models.logit.maximum_likelihood import Maximum, hessian, maximise
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

NestPath = tuple[str, ...]  # nests from the top down


class NestLeaves(NamedTuple):
    """The ends of paths that a table's alternatives are."""

    alternative: Ints  # (R,) which row of the table each is of, in order
    code: Ints  # (R,) which path leads to it
    paths: Sequence[NestPath]  # by code


class NestTree(NamedTuple):
    """The nests of a table, parents first."""

    names: tuple[str, ...]  # (M,)
    parents: tuple[int, ...]  # (M,) -1 at the top

    @classmethod
    def of(cls, leaves: NestLeaves) -> NestTree:
        """Find the nests above some leaves."""
        present = [leaves.paths[code] for code in np.unique(leaves.code)]
        nodes = sorted({path[:depth] for path in present for depth in range(1, len(path) + 1)})
        place = {node: k for k, node in enumerate(nodes)}
        return cls(tuple(node[-1] for node in nodes), tuple(place.get(node[:-1], -1) for node in nodes))

    def nests(self, leaves: NestLeaves, offsets: Ints) -> NestedRows:
        """Place leaves of sets in the tree; refuses nests that it does not have."""
        place = {name: k for k, name in enumerate(self.names)}
        for code in np.unique(leaves.code):
            for name in leaves.paths[code]:
                if name not in place:
                    raise InputError(
                        f"nest {name!r} was not in training, so it has no log-sum parameter; "
                        f"known: {', '.join(map(str, self.names))}."
                    )
        nodes = np.full((len(leaves.paths), max(map(len, leaves.paths))), -1)
        for code, path in enumerate(leaves.paths):
            nodes[code, : len(path)] = [place.get(name, -1) for name in path]
        return NestedRows.find(nodes[leaves.code], np.searchsorted(leaves.alternative, offsets))

    def counts(self, parameter: Sequence[int], n_parameters: int) -> Floats:  # (M,) -> (M, F)
        """Count how often each parameter occurs from the top to each nest, by the parameter of each, -1 for none."""
        counts = np.zeros((len(self.names), n_parameters))
        for node, (parent, own) in enumerate(zip(self.parents, parameter, strict=True)):
            counts[node] = counts[parent] if parent >= 0 else 0.0
            if own >= 0:
                counts[node, own] += 1
        return counts


def require_nests(nests: NestedRows, n_nodes: int) -> Bools:
    """Tell which nests have a log-sum to estimate; refuse nests that are none."""
    free = nests.with_two(n_nodes)
    if not free.any():
        raise InputError("no nest has two alternatives in any choice set: there is no log-sum to estimate.")
    if (np.diff(nests.levels[-1].offsets) == 1).all():
        raise InputError("every choice set lies in a single nest: nests are to part the alternatives of a set.")
    return free


def read_nests(path: Path) -> dict[str, Any]:
    """Read nests from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"nests: cannot read {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"nests: {path} is no TOML file: {error}.") from error


def checked_tree(nests: Any) -> dict[str, Any]:
    """Check nests by label, or a tree of them, and write all names as text; nothing may be there twice."""
    if not isinstance(nests, Mapping):
        raise ConfigError(f"nests must be a feature's name, or map labels to nests; got {nests!r}.")
    if all(isinstance(value, str | int | float) for value in nests.values()):
        return {str(label): str(nest) for label, nest in nests.items()}
    tree = _checked_node(nests, "nests")
    nest_of: dict[str, str] = {}
    above: dict[str, NestPath] = {}
    for path, label in _walk(tree):
        if label in nest_of:
            raise ConfigError(
                f"nests: {label!r} is in two nests, {nest_of[label]!r} and {path[-1]!r}: take one out, or let "
                f"cross-nested-mnl share it between them."
            )
        nest_of[label] = path[-1]
        for depth, name in enumerate(path):
            if above.setdefault(name, path[:depth]) != path[:depth]:
                raise ConfigError(f"nests: two nests are called {name!r}: give each a name of its own.")
    return tree


def _checked_node(node: Any, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, below in node.items():
        here = f"{where}[{str(name)!r}]"
        if isinstance(below, Mapping) and below:
            found[str(name)] = _checked_node(below, here)
        elif isinstance(below, list | tuple) and below and not any(isinstance(v, list | tuple | dict) for v in below):
            found[str(name)] = labels_of_nest(below, here)
        else:
            raise ConfigError(f"{here} must hold labels, such as ['car', 'bus'], or nests by name; got {below!r}.")
    return found


def labels_of_nest(labels: Sequence[Any], where: str) -> list[str]:
    """Write the labels of a nest as text; refuses one that is there twice."""
    names = [str(label) for label in labels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where} names {twice!r} twice: take one out.")
    return names


def _walk(tree: Mapping[str, Any], above: NestPath = ()) -> Iterator[tuple[NestPath, str]]:
    """Yield the path of nests above each label."""
    for name, below in tree.items():
        if isinstance(below, Mapping):
            yield from _walk(below, (*above, name))
        else:
            yield from (((*above, name), label) for label in below)


def paths_by_label(nests: Mapping[str, Any]) -> dict[str, NestPath]:
    """Return the path to each label of checked nests."""
    if all(isinstance(value, str) for value in nests.values()):
        return {label: (nest,) for label, nest in nests.items()}
    return {label: path for path, label in _walk(nests)}


def leaves_by_feature(name: str, data: ChoiceData) -> NestLeaves:
    """Take the values of a feature for nests."""
    if name not in data.features:
        raise SchemaError(f"nests names {name!r}, which is no feature." + did_you_mean(name, data.features))
    column, every = data.features[name], np.arange(data.offsets[-1])
    if isinstance(column, Categorical):
        return NestLeaves(every, column.codes.astype(np.int64), [(category,) for category in column.categories])
    assert isinstance(column, Numeric)  # contents are left out
    values, codes = np.unique(column.values, return_inverse=True)
    if np.isnan(values).any():
        gaps = int(np.isnan(column.values).sum())
        raise InputError(f"nests: column {name!r} has {gaps} missing values: every alternative needs a nest.")
    return NestLeaves(every, codes, [(f"{value:.9g}",) for value in values])  # all digits of a float32


def leaves_by_label(paths: Mapping[str, NestPath], data: ChoiceData) -> NestLeaves:
    """Look up the path of each alternative's label."""
    labels = require_nest_labels(paths, data)
    every = np.arange(data.offsets[-1])
    return NestLeaves(every, labels.codes.astype(np.int64), [paths.get(label, ()) for label in labels.categories])


def warn_unknown_labels(known: Iterable[str], data: ChoiceData) -> None:
    """Warn of labels in nests that no alternative of a table has."""
    lost = [] if data.labels is None else [label for label in known if label not in data.labels.categories]
    if lost and data.labels is not None:
        hint = did_you_mean(lost[0], data.labels.categories)
        log.warning("nests names %s, which no alternative of the table is.%s", listed(lost), hint)


def require_nest_labels(known: Mapping[str, Any], data: ChoiceData) -> Categorical:
    """Return the labels of a table's alternatives, all of which must have a nest."""
    if data.labels is None:
        raise InputError("nests by label need labels: read the table with alternative=<column>.")
    labels = data.labels
    lost = [labels.categories[k] for k in np.unique(labels.codes) if labels.categories[k] not in known]
    if lost:
        raise InputError(
            f"nests names no nest for {len(lost)} alternative{'s' * (len(lost) > 1)}: {listed(lost)}. "
            f"Give each label a nest; a nest of one alternative is allowed."
        )
    return labels


# -- What the logits with nests share: the fit, the log-sums of nests, and predictions ---------------------------------
# A nest's log-sum is the product of the coefficients `logsum[NEST]` from the top of the tree to it, so each of them is
# the nest's scale relative to that of its parent. `models/logit/nested_likelihood.py` says within which bounds they are
# searched, and which of them are no estimates.


@dataclass(frozen=True, kw_only=True)
class NestConfig(LogitConfig):
    """Options of the logits with nests: those of the logit models, and the log-sums.

    Parameters
    ----------
    common_logsum
        Whether all nests have the same log-sum; in a tree, the same relative to the nest above.
    """

    common_logsum: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.common_logsum, bool):
            raise ConfigError(f"common_logsum must be true or false, got {self.common_logsum!r}.")


@dataclass(frozen=True, kw_only=True)
class NestRecord(LogitRecord):
    """The tree of nests, and the coefficients that belong to it."""

    nests: tuple[str, ...]  # (M,) names, parents first
    parents: tuple[int, ...]  # (M,) place of the nest above, -1 at the top
    logsums: tuple[str | None, ...]  # (M,) coefficient of each; None for one that never has two alternatives in a set
    shares: tuple[str, ...] = ()  # (G,) coefficients that share alternatives out

    @property
    def tree(self) -> NestTree:
        """The nests and what is above each."""
        return NestTree(self.nests, self.parents)

    @property
    def logsum_names(self) -> tuple[str, ...]:
        """(F,) names of the coefficients that are log-sums, each once."""
        return tuple(dict.fromkeys(name for name in self.logsums if name is not None))

    @property
    def counts(self) -> Floats:
        """(M, F) how often each of them occurs from the top to each nest."""
        names = self.logsum_names
        return self.tree.counts([-1 if name is None else names.index(name) for name in self.logsums], len(names))


@dataclass(frozen=True, kw_only=True)
class FittedNests(FittedLogit):
    """A logit with nests: coefficients of the utility, then log-sums, then shares."""

    record: NestRecord

    def split(self) -> tuple[Floats, Floats, Floats]:
        """Return the parameters of the utility (K,), the log-sums (F,) and the shares (G,)."""
        K, F = len(self.design.names), len(self.record.logsum_names)
        utility, logsums, shares = np.split(self.estimates.values, [K, K + F])
        return utility, logsums, shares

    @property
    def logsums(self) -> Floats:
        """(M,) log-sum parameter of each nest: the product of those relative to the nest above."""
        logsums: Floats = np.prod(self.split()[1] ** self.record.counts, axis=1)
        return logsums


class NestModel(LogitModel):
    """A logit with nests."""

    config: NestConfig
    _state: FittedNests
    record_class = NestRecord
    starts: ClassVar[tuple[float, ...]] = (1.0, 0.37)  # log-sums to begin with: the likelihood may have two maxima
    advice = (
        "the data do not tell it, as when a level is never or always chosen, a log-sum goes to an end, or "
        "nothing but constants differs within a nest. Leave it out, fix it, or try other nests"
    )

    @abstractmethod
    def _leaves(self, data: ChoiceData) -> NestLeaves:
        """Find the paths to the alternatives."""

    @abstractmethod
    def _labels(self) -> Iterable[str]:
        """Return the labels that the nests name."""

    def _share_names(self, leaves: NestLeaves) -> tuple[str, ...]:
        """Return the names of the coefficients that share alternatives out."""
        return ()

    def _allocation(self, leaves: NestLeaves, shares: Sequence[str]) -> Allocation | None:
        """Return how alternatives are shared out by these coefficients; None if each is in one nest."""
        return None

    def _leave_out(self) -> frozenset[str]:
        """Return the features that "." in the formula leaves out."""
        return frozenset()

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedNests:
        config = self.config
        # 1. The sets that count, their place in the tree of nests, and the columns of their utilities.
        sets, chosen, clusters = self._prepare(train)
        leaves, nests, record = self._learn_nests(sets)
        if design is None:
            design = self._learn_design(sets, wtp_space=config.wtp_space, leave_out=self._leave_out())
        # 2. Coefficients begin at the maximum of the multinomial logit, which has the same columns and no nests.
        within = self._parameters_of_nests(design, record)
        x = design.given(within.start[: len(design.names)]).matrix(sets)
        plain = LogitLikelihood.from_matrix(x, sets.offsets, chosen)
        within, spread = self._begin(design, plain, within, sets)
        # 3. The maximum, from several values of the log-sums, and the Hessian there.
        likelihood = self._likelihood(design, record, sets, chosen, leaves, nests, x)
        values, steps = self._climb(likelihood, within, spread, sets.weights)
        log_likelihoods, scores = likelihood.evaluate(values)
        size = np.concatenate([spread, 1 / values[likelihood.logsums], np.ones(len(record.shares))])
        curvature = hessian(likelihood.evaluate, values, sets.weights, scale=1 / size)
        maximum = Maximum(values, float(sets.weights @ log_likelihoods), scores, curvature, steps, size)
        # 4. Standard errors. Exponents and log-sums are tested against 1.
        null = np.zeros(len(values))
        null[: likelihood.K], null[likelihood.logsums] = design.form.begin, 1.0
        constants = self._constants_log_likelihood(design, plain, sets.weights)
        estimates = infer(maximum, within, sets.weights, sets.sizes, clusters, null, constants)
        # 5. A log-sum at an end of the search is no estimate, nor is what goes there with it.
        estimates = mark_diverging_logsums(estimates, curvature, set(record.logsum_names) - {*(config.bounds or {})})
        self._warn_unbounded(estimates)
        for problem in logsum_warnings(estimates, record.logsum_names):
            log.warning("%s", problem)
        return FittedNests(design=design, estimates=estimates, record=record)

    def _learn_nests(self, sets: ChoiceData) -> tuple[NestLeaves, NestedRows, NestRecord]:
        """Place the alternatives in the tree, and name the log-sums of its nests."""
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
        """Return the likelihood of the choices, for a utility that is linear in its parameters or one that is not."""
        picked = np.zeros(len(sets.rows), bool)
        picked[sets.offsets[:-1] + chosen] = True
        placed = nests, picked[leaves.alternative], record.counts, self._allocation(leaves, record.shares)
        if design.form.is_linear:
            return NestedLikelihood(x[leaves.alternative], *placed)

        def linearise(values: Floats) -> LinearisedUtility:
            near = design.linearised(sets, values)
            return near._replace(matrix=near.matrix[leaves.alternative])

        return NonlinearNestedLikelihood(linearise, len(design.names), *placed)

    def _parameters_of_nests(self, design: Design, record: NestRecord) -> Parameters:
        """Return all parameters with their bounds."""
        config, logsums, shares = self.config, record.logsum_names, record.shares
        usual = nest_bounds(logsums, shares, config.bounds)
        require_within(usual, logsums, fixed=config.fixed, start=config.start)
        begin = np.concatenate([design.form.begin, np.ones(len(logsums)), np.full(len(shares), 0.5)])
        return self._parameters((*design.names, *logsums, *shares), begin, usual)

    def _begin(
        self, design: Design, plain: LogitLikelihood, within: Parameters, sets: ChoiceData
    ) -> tuple[Parameters, Floats]:
        """Let coefficients begin where the multinomial logit is best; returns the size of what they multiply, too."""
        config, form, K = self.config, design.form, len(design.names)
        alone = Parameters(within.names[:K], within.start[:K], within.low[:K], within.high[:K])
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

    def _climb(
        self, likelihood: NestedLikelihood, within: Parameters, spread: Floats, weights: Floats
    ) -> tuple[Floats, int]:
        """Climb from several values of the log-sums, except for those whose start is given."""
        # 1. One start for each value; all log-sums have the same.
        starts, logs = np.stack([within.start] * len(self.starts)), likelihood.logsums
        free = [name not in self.config.start for name in within.names[logs]]
        starts[:, logs][:, free] = np.array(self.starts)[:, None]
        # 2. The search goes by t with logsum = log(1 + exp t), which needs no bound at 0; bounds go with it.
        low, high = (likelihood.search(bound) for bound in (within.low, within.high))
        theta, steps = maximise(
            likelihood.objective,
            likelihood.search(within.inside(starts)),
            weights,
            scale=np.concatenate([1 / spread, np.ones(len(low) - len(spread))]),
            within=Parameters(within.names, within.start, low, high),
            max_iter=self.config.max_iter,
        )
        return within.inside(likelihood.values(theta)), steps

    # -- log-sums ---------------------------------------------------------------------------------------------------

    @property
    def logsums(self) -> dict[str, float]:
        """The log-sum parameter of each nest, on the scale of the utilities: 1 / mu of other packages.

        That of a nest which never has two alternatives in a set is that of the nest above; 1 at the top.
        """
        state = self._state
        return dict(zip(state.record.nests, state.logsums.tolist(), strict=True))

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        leaves, nests, v = self._placed(data)
        log_p = nests.log_probabilities(v, self._state.logsums)
        if len(leaves.alternative) == data.offsets[-1]:
            return log_p
        copies = np.searchsorted(leaves.alternative, np.arange(data.offsets[-1] + 1))
        return log_softmax_by_set(log_sum_exp_by_set(log_p, copies), data.offsets)  # for the rounding of the sums

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """(S, 1), (S, 1) expected largest utility of each set, for people of one class."""
        _, nests, v = self._placed(data)
        sums = nests.inclusive_values(v, self._state.logsums)[:, None]
        return sums, np.ones_like(sums)

    def _placed(self, data: ChoiceData) -> tuple[NestLeaves, NestedRows, Floats]:
        """Return the leaves of a table, where they lie, and their utilities."""
        leaves, state = self._leaves(data), self._state
        b, _, shares = state.split()
        v = state.design.utilities(data, b)[leaves.alternative]
        if (allocation := self._allocation(leaves, state.record.shares)) is not None:
            v = v + allocation.logs(shares)[allocation.pair]
        return leaves, state.record.tree.nests(leaves, data.offsets), v

    # -- what is said of them ---------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        state = self._state
        names, shown = state.record.nests, []
        for name, parent, value in zip(names, state.record.parents, state.logsums, strict=True):
            # Each nest after the one above it; with its log-sum, if that is not the coefficient.
            shown.append(name if parent < 0 else f"{names[parent]} > {name} ({value:.4g} in all)")
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
            raise ValueError("the nests and their log-sums do not fit each other")
        return state
