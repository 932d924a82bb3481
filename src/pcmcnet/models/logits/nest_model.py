"""What the logits with nests share: the fit, the log-sums of nests, and predictions.

A nest's log-sum is the product of the coefficients ``logsum[NEST]`` from the top of the tree to it, so each of them is
the nest's scale relative to that of its parent. ``estimation/logsum_bounds.py`` says within which bounds they are
searched, and which of them are no estimates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.errors import ConfigError
from pcmcnet.models.interface.fit_settings import FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.design.box_cox_and_wtp_space import Linearised
from pcmcnet.models.logits.estimation import LogitSets, Maximum, hessian, infer, maximise
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.logsum_bounds import logsum_problems, require_within, usual_bounds, without_limit
from pcmcnet.models.logits.estimation.nested_likelihood import Allocation, NestedSets, Nests
from pcmcnet.models.logits.estimation.nonlinear_likelihood import CurvedNestedSets, curved_maximum
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters
from pcmcnet.models.logits.logit_model import (
    FittedLogit,
    LogitConfig,
    LogitModel,
    LogitRecord,
    log,
    read_design,
    read_estimates,
)
from pcmcnet.models.logits.nests import Leaves, Tree, note_unknown, require_nests


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
    def tree(self) -> Tree:
        """The nests and what is above each."""
        return Tree(self.nests, self.parents)

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
    record_class = NestRecord
    starts: ClassVar[tuple[float, ...]] = (1.0, 0.37)  # log-sums to begin with: the likelihood may have two maxima
    advice = (
        "the data do not tell it, as when a level is never or always chosen, a log-sum goes to an end, or "
        "nothing but constants differs within a nest. Leave it out, fix it, or try other nests"
    )

    @abstractmethod
    def _leaves(self, data: ChoiceData) -> Leaves:
        """Find the paths to the alternatives."""

    @abstractmethod
    def _labels(self) -> Iterable[str]:
        """Return the labels that the nests name."""

    def _share_names(self, leaves: Leaves) -> tuple[str, ...]:
        """Return the names of the coefficients that share alternatives out."""
        return ()

    def _allocation(self, leaves: Leaves, shares: Sequence[str]) -> Allocation | None:
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
        plain = LogitSets.from_matrix(x, sets.offsets, chosen)
        within, spread = self._begin(design, plain, within, sets)
        # 3. The maximum, from several values of the log-sums, and the Hessian there.
        likelihood = self._likelihood(design, record, sets, chosen, leaves, nests, x)
        values, steps = self._climb(likelihood, within, spread, sets.weights)
        log_likelihoods, scores = likelihood.evaluate(values)
        size = np.concatenate([spread, 1 / values[likelihood.logsums], np.ones(len(record.shares))])
        curvature = hessian(likelihood.evaluate, values, sets.weights, scale=1 / size)
        maximum = Maximum(
            values=values,
            log_likelihood=float(sets.weights @ log_likelihoods),
            scores=scores,
            hessian=curvature,
            steps=steps,
            spread=size,
        )
        # 4. Standard errors. Exponents and log-sums are tested against 1.
        null = np.zeros(len(values))
        null[: likelihood.K], null[likelihood.logsums] = design.form.begin, 1.0
        estimates = infer(
            maximum,
            within,
            weights=sets.weights,
            sizes=sets.sizes,
            clusters=clusters,
            null=null,
            constants_log_likelihood=self._constants_log_likelihood(design, plain, sets.weights),
        )
        # 5. A log-sum at an end of the search is no estimate, nor is what goes there with it.
        estimates = without_limit(estimates, curvature, set(record.logsum_names) - {*(config.bounds or {})})
        self._warn_unbounded(estimates)
        for problem in logsum_problems(estimates, record.logsum_names):
            log.warning("%s", problem)
        return FittedNests(design=design, estimates=estimates, record=record)

    def _learn_nests(self, sets: ChoiceData) -> tuple[Leaves, Nests, NestRecord]:
        """Place the alternatives in the tree, and name the log-sums of its nests."""
        leaves = self._leaves(sets)
        note_unknown(self._labels(), sets)
        tree = Tree.of(leaves)
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
        leaves: Leaves,
        nests: Nests,
        x: Floats,
    ) -> NestedSets:
        """Return the likelihood of the choices, for a utility that is linear in its parameters or one that is not."""
        picked = np.zeros(len(sets.rows), bool)
        picked[sets.offsets[:-1] + chosen] = True
        placed = nests, picked[leaves.alternative], record.counts, self._allocation(leaves, record.shares)
        if design.form.is_linear:
            return NestedSets(x[leaves.alternative], *placed)

        def linearise(values: Floats) -> Linearised:
            near = design.linearised(sets, values)
            return near._replace(matrix=near.matrix[leaves.alternative])

        return CurvedNestedSets(linearise, len(design.names), *placed)

    def _parameters_of_nests(self, design: Design, record: NestRecord) -> Parameters:
        """Return all parameters with their bounds."""
        config, logsums, shares = self.config, record.logsum_names, record.shares
        usual = usual_bounds(logsums, shares, config.bounds)
        require_within(usual, logsums, fixed=config.fixed, start=config.start)
        begin = np.concatenate([design.form.begin, np.ones(len(logsums)), np.full(len(shares), 0.5)])
        return self._parameters((*design.names, *logsums, *shares), begin, usual)

    def _begin(
        self, design: Design, plain: LogitSets, within: Parameters, sets: ChoiceData
    ) -> tuple[Parameters, Floats]:
        """Let coefficients begin where the multinomial logit is best; returns the size of what they multiply, too."""
        config, form, K = self.config, design.form, len(design.names)
        alone = Parameters(within.names[:K], within.start[:K], within.low[:K], within.high[:K])
        require_identified(plain.z, form.columns, alone)
        if form.is_linear:
            b, spread = plain.maximise(sets.weights, within=alone, max_iter=config.max_iter)[0], plain.spread
        else:
            maximum = curved_maximum(design, sets, plain, alone, config.start, config.max_iter)
            assert maximum.spread is not None
            b, spread = maximum.values, maximum.spread
        named = [name in config.start for name in alone.names]
        start = np.concatenate([np.where(named, alone.start, b), within.start[K:]])
        return replace(within, start=start), spread

    def _climb(self, likelihood: NestedSets, within: Parameters, spread: Floats, weights: Floats) -> tuple[Floats, int]:
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
    def _state(self) -> FittedNests:
        return self._state_as(FittedNests)

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

    def _placed(self, data: ChoiceData) -> tuple[Leaves, Nests, Floats]:
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
        facts["nests"] = ", ".join(self._nest_names())
        facts["log-sums tested against"] = "1"
        if problems := logsum_problems(self.estimates_, self._state.record.logsum_names):
            facts["warning"] = ". ".join(problems)
        return facts

    def _nest_names(self) -> list[str]:
        """Return the nests, each after the one above it; with its log-sum, if that is not the coefficient."""
        state = self._state
        names, shown = state.record.nests, []
        for name, parent, value in zip(names, state.record.parents, state.logsums, strict=True):
            shown.append(f"{name}" if parent < 0 else f"{names[parent]} > {name} ({value:.4g} in all)")
        return shown

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
