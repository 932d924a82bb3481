"""What the logits with nests share: the fit, the log-sums of nests, and predictions.

A nest's log-sum is the product of the coefficients ``logsum[NEST]`` from the top of the tree to it, so each of them is
the nest's scale relative to that of its parent. ``estimation/logsum_bounds.py`` says within which bounds they are
searched, and which of them are no estimates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import log_softmax_by_set, log_sum_exp_by_set
from pcmcnet.errors import ConfigError
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.logits.design.box_cox_and_wtp_space import Linearised
from pcmcnet.models.logits.estimation import LogitSets, hessian, infer, maximise
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.logsum_bounds import logsum_problems, require_within, usual_bounds, without_limit
from pcmcnet.models.logits.estimation.nested_likelihood import Allocation, NestedSets, Nests
from pcmcnet.models.logits.estimation.nonlinear_likelihood import CurvedNestedSets, curved_maximum
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters
from pcmcnet.models.logits.logit_model import LogitConfig, LogitModel, log
from pcmcnet.models.logits.nests import Leaves, Tree, note_unknown, require_nests


@dataclass(frozen=True, kw_only=True, slots=True)
class NestConfig(LogitConfig):
    """Options of the logits with nests: those of the logit models, and the log-sums.

    Parameters
    ----------
    common_logsum
        Whether all nests have the same log-sum; in a tree, the same relative to the nest above.
    """

    common_logsum: bool = False

    def __post_init__(self) -> None:
        super(NestConfig, self).__post_init__()  # slots make a new class, which super() misses
        if not isinstance(self.common_logsum, bool):
            raise ConfigError(f"common_logsum must be true or false, got {self.common_logsum!r}.")


class NestModel(LogitModel):
    """A logit with nests."""

    control = curved = True
    config: NestConfig
    starts = (1.0, 0.37)  # log-sums that the search begins with: the likelihood may have two maxima

    @abstractmethod
    def _leaves(self, data: ChoiceData) -> Leaves:
        """Find the paths to the alternatives."""

    @abstractmethod
    def _labels(self) -> Iterable[str]:
        """Return the labels that the nests name."""

    def _learn_shares(self, leaves: Leaves) -> None:
        """Note which alternatives are shared out."""

    def _shares(self) -> tuple[str, ...]:
        """Return the names of the coefficients that share alternatives out."""
        return ()

    def _allocation(self, leaves: Leaves) -> Allocation | None:
        """Say how alternatives are shared out."""
        return None

    def _leave_out(self) -> frozenset[str]:
        """Return the features that "." in the formula leaves out."""
        return frozenset()

    @products_in_one_thread()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        sets, chosen, clusters = self._prepare(train)
        leaves, nests = self._learn_nests(sets)
        self.design_ = self._learn_design(sets, self._leave_out())
        within = self._parameters_of_nests()
        x = self.design_.given(within.start[: len(self.design_.names)]).matrix(sets)
        plain = LogitSets.from_matrix(x, sets.offsets, chosen)
        within, spread = self._begin(plain, within, sets)
        likelihood = self._likelihood(sets, chosen, leaves, nests, x)
        values, steps = self._maximum(likelihood, within, spread, sets.weights)
        ll, scores = likelihood.evaluate(values)
        size = np.concatenate([spread, 1 / values[likelihood.logsums], np.ones(len(self._shares()))])
        bend = hessian(likelihood.evaluate, values, sets.weights, scale=1 / size)
        null = np.zeros(len(values))
        null[: likelihood.K], null[likelihood.logsums] = self.design_.form.begin, 1.0
        found = infer(
            within.names,
            values,
            log_likelihood=float(sets.weights @ ll),
            hessian=bend,
            scores=scores,
            weights=sets.weights,
            sizes=sets.sizes,
            steps=steps,
            clusters=clusters,
            null=null,
            spread=size,
            constants_log_likelihood=self._constants_alone(plain, sets.weights),
            within=within,
        )
        self.estimates_ = without_limit(found, bend, set(self._own()) - {*(self.config.bounds or {})})
        self._note()
        for problem in logsum_problems(self.estimates_, self._own()):
            log.warning("%s", problem)

    def _learn_nests(self, sets: ChoiceData) -> tuple[Leaves, Nests]:
        """Place the alternatives in the tree; note its nests and the names of their log-sums."""
        leaves = self._leaves(sets)
        note_unknown(self._labels(), sets)
        tree = Tree.of(leaves)
        nests = tree.nests(leaves, sets.offsets)
        free = require_nests(nests, len(tree.names))
        self.training_["nests"], self.training_["parents"] = list(tree.names), list(tree.parents)
        self.training_["logsums"] = [
            ("logsum" if self.config.common_logsum else f"logsum[{name}]") if own else None
            for name, own in zip(tree.names, free, strict=True)
        ]
        self._learn_shares(leaves)
        return leaves, nests

    def _likelihood(self, sets: ChoiceData, chosen: Ints, leaves: Leaves, nests: Nests, x: Floats) -> NestedSets:
        """Return the likelihood of the choices, for a utility that is linear in its parameters or one that is not."""
        picked = np.zeros(len(sets.rows), bool)
        picked[sets.offsets[:-1] + chosen] = True
        placed = nests, picked[leaves.alternative], self._counts(), self._allocation(leaves)
        if self.design_.form.is_linear:
            return NestedSets(x[leaves.alternative], *placed)
        near = partial(self._linearised, sets, leaves)
        return CurvedNestedSets(near, len(self.design_.names), *placed)

    def _parameters_of_nests(self) -> Parameters:
        """Return all parameters with their bounds."""
        config, own, shares = self.config, self._own(), self._shares()
        names, usual = (*self.design_.names, *own, *shares), usual_bounds(own, shares, config.bounds)
        require_within(usual, own, fixed=config.fixed, start=config.start)
        first = self.design_.form.begin
        begin = np.concatenate([first, np.ones(len(own)), np.full(len(shares), 0.5)])
        return self._parameters(names, begin, usual)

    def _begin(self, plain: LogitSets, within: Parameters, sets: ChoiceData) -> tuple[Parameters, Floats]:
        """Let coefficients begin where the multinomial logit is best; returns the size of what they multiply, too."""
        config, form, K = self.config, self.design_.form, len(self.design_.names)
        alone = Parameters(within.names[:K], within.start[:K], within.low[:K], within.high[:K])
        require_identified(plain.z, form.columns, alone)
        if form.is_linear:
            b, spread = plain.maximise(sets.weights, within=alone, max_iter=config.max_iter)[0], plain.spread
        else:
            found = curved_maximum(self.design_, sets, plain, alone, config.start, config.max_iter)
            b, spread = found.values, found.spread
        named = [name in config.start for name in alone.names]
        start = np.concatenate([np.where(named, alone.start, b), within.start[K:]])
        return replace(within, start=start), spread

    def _linearised(self, sets: ChoiceData, leaves: Leaves, values: Floats) -> Linearised:
        """Return the utility near some parameters, by leaf."""
        near = self.design_.linearised(sets, values)
        return near._replace(matrix=near.matrix[leaves.alternative])

    def _maximum(
        self, likelihood: NestedSets, within: Parameters, spread: Floats, weights: Floats
    ) -> tuple[Floats, int]:
        """Climb from several values of the log-sums, but for those whose start is given."""
        starts, logs = np.stack([within.start] * len(self.starts)), likelihood.logsums
        free = [name not in self.config.start for name in within.names[logs]]
        starts[:, logs][:, free] = np.array(self.starts)[:, None]
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

    def _own(self) -> tuple[str, ...]:
        """Return the names of the coefficients that are log-sums."""
        return tuple(dict.fromkeys(name for name in self.training_["logsums"] if name is not None))

    def _counts(self) -> Floats:
        """(M, F) how often each of them occurs from the top to each nest."""
        tree, own = Tree(self.training_["nests"], self.training_["parents"]), self._own()
        return tree.counts([-1 if name is None else own.index(name) for name in self.training_["logsums"]], len(own))

    @property
    def logsums(self) -> dict[str, float]:
        """The log-sum parameter of each nest, on the scale of the utilities: 1 / mu of other packages.

        That of a nest which never has two alternatives in a set is that of the nest above; 1 at the top.
        """
        _ = self.schema
        return dict(zip(self.training_["nests"], self._logsums().tolist(), strict=True))

    def _logsums(self) -> Floats:  # (M,)
        K, own = len(self.design_.names), len(self._own())
        logsums: Floats = np.prod(self.estimates_.values[K : K + own] ** self._counts(), axis=1)
        return logsums

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        leaves, nests, v = self._placed(data)
        log_p = nests.log_probabilities(v, self._logsums())
        if len(leaves.alternative) == data.offsets[-1]:
            return log_p
        copies = np.searchsorted(leaves.alternative, np.arange(data.offsets[-1] + 1))
        return log_softmax_by_set(log_sum_exp_by_set(log_p, copies), data.offsets)  # for the rounding of the sums

    def _log_sums(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """(S, 1), (S, 1) expected largest utility of each set, for people of one class."""
        _, nests, v = self._placed(data)
        sums = nests.inclusive_values(v, self._logsums())[:, None]
        return sums, np.ones_like(sums)

    def _placed(self, data: ChoiceData) -> tuple[Leaves, Nests, Floats]:
        """Return the leaves of a table, where they lie, and their utilities."""
        leaves, values = self._leaves(data), self.estimates_.values
        K, own = len(self.design_.names), len(self._own())
        v = self.design_.utilities(data, values[:K])[leaves.alternative]
        if (allocation := self._allocation(leaves)) is not None:
            v = v + allocation.logs(values[K + own :])[allocation.pair]
        return leaves, Tree(self.training_["nests"], self.training_["parents"]).nests(leaves, data.offsets), v

    # -- what is said of them ---------------------------------------------------------------------------------------

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        facts["nests"] = ", ".join(self._nest_names())
        facts["log-sums tested against"] = "1"
        if problems := logsum_problems(self.estimates_, self._own()):
            facts["warning"] = ". ".join(problems)
        return facts

    def _nest_names(self) -> list[str]:
        """Return the nests, each after the one above it; with its log-sum, if that is not the coefficient."""
        names, parents = self.training_["nests"], self.training_["parents"]
        shown = []
        for name, parent, value in zip(names, parents, self._logsums(), strict=True):
            shown.append(f"{name}" if parent < 0 else f"{names[parent]} > {name} ({value:.4g} in all)")
        return shown

    @property
    def _advice(self) -> str:
        return (
            "the data do not tell it, as when a level is never or always chosen, a log-sum goes to an end, or "
            "nothing but constants differs within a nest. Leave it out, fix it, or try other nests"
        )

    def _restore(self, files: Mapping[str, bytes]) -> None:
        super()._restore(files)
        names, K = self.training_["nests"], len(self.design_.names)
        single = [f"logsum[{name}]" for name in names]
        self.training_.setdefault("parents", [-1] * len(names))  # folders from before there were trees
        self.training_.setdefault("logsums", [name if name in self.estimates_.names else None for name in single])
        parents, own = self.training_["parents"], self._own()
        logsums, shares = np.split(self.estimates_.values[K:], [len(own)])
        if not (
            own
            and set(own) <= {"logsum", *single}
            and len(parents) == len(self.training_["logsums"]) == len(names)
            and all(isinstance(parent, int) and -1 <= parent < k for k, parent in enumerate(parents))
            and self.estimates_.names == (*self.design_.names, *own, *self._shares())
            and (logsums > 0).all()
            and ((shares >= 0) & (shares <= 1)).all()
        ):
            raise ValueError("the nests and their log-sums do not fit each other")
