"""Nested logit (Williams, 1977; McFadden, 1978): alternatives of one nest are closer substitutes than others.

With v the utilities, nests m and log-sum parameters l_m, for an alternative i of nest m

    P(i | S) = exp(v_i / l_m - L_m) exp(l_m L_m) / sum_k exp(l_k L_k)        L_m = log sum_{j in m} exp(v_j / l_m)

l_m = 1 for all m is the multinomial logit; the nearer to 0, the closer the alternatives of the nest. Within (0, 1] the
model follows from random utilities. 1 / l_m is the scale that some packages report as mu. The likelihood and its
gradient are those of ``estimation/nested_likelihood.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns import Categorical, Numeric
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logits.estimation import LogitSets, hessian, infer, maximise
from pcmcnet.models.logits.estimation.identification import listed, require_identified
from pcmcnet.models.logits.estimation.nested_likelihood import NestedSets, Nests, at_bound
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread
from pcmcnet.models.logits.logit_model import LogitConfig, LogitModel, log


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedMNLConfig(LogitConfig):
    """Options of the nested logit: those of the logit models, and the nests.

    Parameters
    ----------
    nests
        The feature whose values are the nests, which "." in the formula then leaves out; or a mapping from each
        alternative's label to the name of its nest.
    """

    nests: Mapping[str, str] | str = ""

    def __post_init__(self) -> None:
        super(NestedMNLConfig, self).__post_init__()  # slots make a new class, which super() misses
        if not isinstance(self.nests, str | Mapping):
            raise ConfigError(f"nests must be a feature's name, or map labels to nests; got {self.nests!r}.")
        if isinstance(self.nests, Mapping):
            object.__setattr__(self, "nests", {str(k): str(v) for k, v in self.nests.items()})


class NestedMNL(LogitModel):
    """Nested logit with one level of nests.

    Options are those of :class:`NestedMNLConfig`; ``nests`` is needed. The coefficient ``logsum[NEST]`` is the
    log-sum parameter of a nest, tested against 1; a nest that never has two alternatives in a set has none.
    """

    name = "nested-mnl"
    config_class = NestedMNLConfig
    config: NestedMNLConfig

    @takes(NestedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @products_in_one_thread()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        sets, chosen, clusters = self._prepare(train)
        nest, names = self._nests(sets)
        nests = Nests.find(nest, sets.offsets)
        free = _free(nests, len(names))
        by = self.config.nests
        self.design_ = self._learn_design(sets, frozenset([by] if isinstance(by, str) else []))
        x = self.design_.matrix(sets)
        plain = LogitSets.from_matrix(x, sets.offsets, chosen)
        require_identified(plain.z, self.design_.names)
        likelihood = NestedSets(x, nests, sets.offsets[:-1] + chosen, free)
        values, steps = self._maximum(plain, likelihood, sets.weights)
        K, own = len(self.design_.names), tuple(f"logsum[{n}]" for n, f in zip(names, free, strict=True) if f)
        ll, scores = likelihood.evaluate(values)
        size = np.concatenate([plain.spread, 1 / values[K:]])
        bend = hessian(likelihood.evaluate, values, sets.weights, scale=1 / size)
        held = [K + k for k, value in enumerate(values[K:]) if at_bound(value)]
        bend[held], bend[:, held] = 0.0, 0.0  # no finite estimate; the others' errors take it as given
        self.estimates_ = infer(
            (*self.design_.names, *own),
            values,
            log_likelihood=float(sets.weights @ ll),
            hessian=bend,
            scores=scores,
            weights=sets.weights,
            sizes=sets.sizes,
            steps=steps,
            clusters=clusters,
            null=np.concatenate([np.zeros(K), np.ones(len(own))]),
            spread=size,
        )
        self._note()
        self.training_["nests"] = list(names)
        for problem in self._problems():
            log.warning("%s", problem)

    def _maximum(self, plain: LogitSets, likelihood: NestedSets, weights: Floats) -> tuple[Floats, int]:
        """Climb from the multinomial logit, with log-sums of 1 and of less: the likelihood may have two maxima."""
        b, _, _ = plain.maximise(weights, max_iter=self.config.max_iter)
        free = int(likelihood.free.sum())
        starts = np.stack([np.concatenate([b, np.full(free, at)]) for at in (0.0, -1.0)])
        scale = np.concatenate([1 / plain.spread, np.ones(free)])
        theta, steps = maximise(likelihood.objective, starts, weights, scale=scale, max_iter=self.config.max_iter)
        return likelihood.values(theta), steps

    @property
    def logsums(self) -> dict[str, float]:
        """The log-sum parameter of each nest; 1 for those that never have two alternatives in a set."""
        _ = self.schema
        return self._logsums()

    def _logsums(self) -> dict[str, float]:
        found = dict(zip(self.estimates_.names, self.estimates_.values.tolist(), strict=True))
        return {nest: found.get(f"logsum[{nest}]", 1.0) for nest in self.training_["nests"]}

    def _problems(self) -> list[str]:
        """Say which log-sums are no estimates, and which are no log-sums of random utilities."""
        problems = []
        for nest, value in self._logsums().items():
            if at_bound(value):
                like = "were one" if value < 1 else "were all the same, however they differ"
                problems.append(f"logsum[{nest}] has no limit: the nest's alternatives are chosen as if they {like}")
            elif value > 1:
                problems.append(f"logsum[{nest}] = {value:.3g} is above 1: no random utilities lie behind the model")
        return [f"{problem}; try other nests" for problem in problems]

    def _facts(self) -> dict[str, str]:
        facts, nests = super()._facts(), self.config.nests
        facts["nests"] = ", ".join(self.training_["nests"]) + (f" (by {nests})" if isinstance(nests, str) else "")
        facts["log-sums tested against"] = "1"
        if problems := self._problems():
            facts["warning"] = ". ".join(problems)
        return facts

    def _log_proba(self, data: ChoiceData) -> Floats:
        if not len(data):
            return np.zeros(0)
        nest, _ = self._nests(data, self.training_["nests"])
        v = self.design_.matrix(data) @ self.estimates_.values[: len(self.design_.names)]
        return Nests.find(nest, data.offsets).log_probabilities(v, np.array(list(self._logsums().values())))

    def _restore(self, files: Mapping[str, bytes]) -> None:
        super()._restore(files)
        K, named = len(self.design_.names), [f"logsum[{nest}]" for nest in self.training_["nests"]]
        free = self.estimates_.names[K:]
        if not (free and set(free) <= set(named) and (self.estimates_.values[K:] > 0).all()):
            raise ValueError("the nests and their log-sums do not fit each other")

    def _nests(self, data: ChoiceData, known: Sequence[str] | None = None) -> tuple[Ints, Sequence[str]]:
        """Number each alternative's nest; ``known`` names those of the training part."""
        by = self.config.nests
        if not by:
            raise ConfigError(
                "say what the nests are: nests=<feature>, or a nest for each label (on the command line, "
                "nests=car:road,bus:road,train:rail)."
            )
        codes, names = _by_feature(by, data) if isinstance(by, str) else _by_label(by, data)
        present = [names[k] for k in np.unique(codes)]
        known = sorted(set(present)) if known is None else known
        unseen = [name for name in present if name not in known]
        if unseen:
            raise InputError(
                f"nest {unseen[0]!r} was not in training, so it has no log-sum parameter; known: {', '.join(known)}."
            )
        place = {name: k for k, name in enumerate(known)}
        return np.array([place.get(name, -1) for name in names], np.int64)[codes], known


def _free(nests: Nests, n_nests: int) -> Bools:
    """Tell which nests have a log-sum to estimate; refuse nests that are none."""
    free = nests.with_two(n_nests)
    if not free.any():
        raise InputError("no nest has two alternatives in any choice set: there is no log-sum to estimate.")
    if (np.diff(nests.pairs) == 1).all():
        raise InputError("every choice set lies in a single nest: nests are to part the alternatives of a set.")
    return free


def _by_feature(name: str, data: ChoiceData) -> tuple[Ints, Sequence[str]]:
    """Return the code of each alternative's nest, and the nests' names by code."""
    if name not in data.features:
        raise SchemaError(f"nests names {name!r}, which is no feature." + did_you_mean(name, data.features))
    column = data.features[name]
    if isinstance(column, Categorical):
        return column.codes.astype(np.int64), column.categories
    assert isinstance(column, Numeric)  # contents are left out
    values, codes = np.unique(column.values, return_inverse=True)
    if np.isnan(values).any():
        gaps = int(np.isnan(column.values).sum())
        raise InputError(f"nests: column {name!r} has {gaps} missing values: every alternative needs a nest.")
    return codes, [f"{value:.9g}" for value in values]  # all digits of a float32


def _by_label(nests: Mapping[str, str], data: ChoiceData) -> tuple[Ints, Sequence[str]]:
    """Return the code of each alternative's nest, and the nests' names by code."""
    if data.labels is None:
        raise InputError("nests by label need labels: read the table with alternative=<column>.")
    labels = data.labels
    lost = [labels.categories[k] for k in np.unique(labels.codes) if labels.categories[k] not in nests]
    if lost:
        raise InputError(
            f"nests names no nest for {len(lost)} alternative{'s' * (len(lost) > 1)}: {listed(lost)}. "
            f"Give each label a nest; a nest of one alternative is allowed."
        )
    return labels.codes.astype(np.int64), [nests.get(label, "") for label in labels.categories]
