"""Cross-nested logit (Vovsha, 1997, and Ben-Akiva & Bierlaire, 1999): an alternative may belong to several nests.

The parameters are utilities v_i, log-sum parameters l_m, and the share alpha_im of alternative i in nest m:

    y_im = exp((v_i + log alpha_im) / l_m)        P(i | S) = sum_m P(m) y_im / sum_j y_jm
    P(m) = (sum_j y_jm)^l_m / sum_k (sum_j y_jk)^l_k

The shares satisfy alpha_im >= 0 and sum_m alpha_im = 1. The model is a nested logit with copies: alternative i has a
copy in each of its nests, with utility v_i + log alpha_im, and its probability is the sum of the probabilities of its
copies. If each alternative is in only one nest, the model is the nested logit. If all l_m are 1, the model is the
multinomial logit. ``models/logit/nested_likelihood.py`` contains the likelihood and its gradient.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.errors import ConfigError
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logit.nested_likelihood import Allocation
from pcmcnet.models.logit.nests import (
    NestConfig,
    NestLeaves,
    NestModel,
    nest_labels,
    read_nests,
    require_nest_labels,
)

_SUM_TOLERANCE = 1e-6  # of given shares of an alternative, which must sum to 1


@dataclass(frozen=True, kw_only=True)
class CrossNestedMNLConfig(NestConfig):
    """Options of the cross-nested logit: the options of all logit models, the log-sums, and the nests.

    Parameters
    ----------
    nests
        Required. A mapping from each nest to its labels, as in {"existing": ["train", "car"], "public": ["train",
        "metro"]}. If an alternative is in several nests, its share in each nest is then estimated. To fix the shares,
        map each nest to labels with shares that sum to 1 for each label, as in {"existing": {"train": 0.5, "car": 1},
        "public": {"train": 0.5, "metro": 1}}. The option may also be the path of a TOML file that contains one of these
        mappings.
    """

    nests: Path | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        nests = read_nests(self.nests) if isinstance(self.nests, Path) else self.nests
        if nests is not None:
            object.__setattr__(self, "nests", _checked(nests))


class CrossNestedMNL(NestModel):
    """Cross-nested logit with one level of nests.

    For the options, see :class:`CrossNestedMNLConfig`; ``nests`` is required. The coefficient ``logsum[NEST]`` is the
    log-sum parameter of a nest, which is 1 under the null hypothesis. ``alpha[LABEL,NEST]`` is the share of an
    alternative in the first of its nests. If the alternative is in more than two nests, ``rest[LABEL,NEST]`` is the
    share of the remainder that goes to the next nest.
    """

    name = "cross-nested-mnl"
    config_class = CrossNestedMNLConfig
    config: CrossNestedMNLConfig
    starts = (0.8, 0.37)  # not 1, where the shares of alternatives have no effect

    @takes(CrossNestedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @property
    def allocations(self) -> dict[str, dict[str, float]]:
        """Share of each alternative in each of its nests: {label: {nest: share}}."""
        state = self._state
        pairs = _pairs(self._nests())
        shares = np.exp(_allocation(pairs, state.record.shares).logs(state.split()[2]))
        allocations: dict[str, dict[str, float]] = {}
        for pair, share in zip(pairs, shares.tolist(), strict=True):
            allocations.setdefault(pair.label, {})[pair.nest] = share
        return allocations

    def _nests(self) -> Mapping[str, Any]:
        if not self.config.nests:
            raise ConfigError(
                "nests is required: pass nests={NEST: [LABEL, ...], ...} (on the command line, nests=FILE.toml)."
            )
        assert not isinstance(self.config.nests, Path)  # CrossNestedMNLConfig has read the file
        return self.config.nests

    def _labels(self) -> Iterable[str]:
        return dict.fromkeys(pair.label for pair in _pairs(self._nests()))

    def _leaves(self, data: ChoiceData) -> NestLeaves:
        pairs = _pairs(self._nests())
        # The pairs of a label are adjacent: each label has a first pair and a number of pairs.
        first: dict[str, int] = {}
        for k, pair in enumerate(pairs):
            first.setdefault(pair.label, k)
        n_pairs = Counter(pair.label for pair in pairs)
        labels = require_nest_labels(n_pairs, data)
        start, number = (np.array([by.get(label, 0) for label in labels.categories]) for by in (first, n_pairs))
        counts = number[labels.codes]
        rows = np.repeat(np.arange(len(counts)), counts)
        return NestLeaves(rows, consecutive_indices(start[labels.codes], counts), [(pair.nest,) for pair in pairs])

    def _share_names(self, leaves: NestLeaves) -> tuple[str, ...]:
        pairs = _pairs(self._nests())
        present = [pairs[k] for k in np.unique(leaves.code)]
        return tuple(pair.share for pair in present if pair.share)

    def _allocation(self, leaves: NestLeaves, shares: Sequence[str]) -> Allocation:
        return _allocation(_pairs(self._nests()), shares)._replace(pair=leaves.code)


class _Pair(NamedTuple):
    """A pair of an alternative and a nest that contains it."""

    label: str
    nest: str
    alpha: float | None  # the share, if it is given
    share: str  # the coefficient of the share; "" if the share is given, or is the remainder
    before: tuple[str, ...]  # coefficients of the nests before this one


def _pairs(nests: Mapping[str, Any]) -> list[_Pair]:
    """Return the pairs of labels and nests, ordered by label."""
    alphas: dict[str, dict[str, float | None]] = {}
    for nest, labels in nests.items():
        for label in labels:
            alpha = float(labels[label]) if isinstance(labels, Mapping) else None
            if alpha != 0:
                alphas.setdefault(label, {})[nest] = alpha
    pairs = []
    for label, by_nest in alphas.items():
        before: tuple[str, ...] = ()
        for nest, alpha in by_nest.items():
            word = "rest" if before else "alpha"
            is_last = nest == [*by_nest][-1]
            share = "" if is_last or alpha is not None else f"{word}[{label},{nest}]"
            pairs.append(_Pair(label, nest, alpha, share, before))
            before += (share,) if share else ()
    return pairs


def _allocation(pairs: Sequence[_Pair], shares: Sequence[str]) -> Allocation:
    """Return the allocation of alternatives to nests as a function of the coefficients ``shares``."""
    base = np.array([math.log(pair.alpha) if pair.alpha is not None else 0.0 for pair in pairs])
    takes_share = np.array([[float(name == pair.share) for name in shares] for pair in pairs])
    takes_rest = np.array([[float(name in pair.before) for name in shares] for pair in pairs])
    return Allocation(np.arange(len(pairs)), base, takes_share, takes_rest)


def _checked(nests: Any) -> dict[str, Any]:
    """Return the nests with all names converted to text. Raise ConfigError if the nests are not valid."""
    if not isinstance(nests, Mapping):
        raise ConfigError(f"nests must map the name of each nest to its labels, got {nests!r}.")
    checked: dict[str, Any] = {}
    for nest, labels in nests.items():
        if isinstance(labels, Mapping) and labels:
            checked[str(nest)] = {str(label): _checked_share(nest, label, share) for label, share in labels.items()}
        elif isinstance(labels, list | tuple) and labels and all(isinstance(m, str | int | float) for m in labels):
            checked[str(nest)] = nest_labels(labels, f"nests[{str(nest)!r}]")
        else:
            raise ConfigError(
                f"nests[{str(nest)!r}]: expected labels, such as ['train', 'car'], or labels with shares, such as "
                f"{{'train': 0.5, 'car': 1}}; got {labels!r}."
            )
    shares: dict[str, list[float | None]] = {}
    for labels in checked.values():
        for label in labels:
            shares.setdefault(label, []).append(labels[label] if isinstance(labels, Mapping) else None)
    for label, of_label in shares.items():
        _require_complete(label, of_label)
    return checked


def _checked_share(nest: Any, label: Any, share: Any) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ConfigError(f"nests[{str(nest)!r}]: the share of {str(label)!r} must be from 0 to 1, got {share!r}.")
    return float(share)


def _require_complete(label: str, shares: Sequence[float | None]) -> None:
    """Raise ConfigError unless the shares of an alternative are all omitted, or are all given and sum to 1."""
    values = [share for share in shares if share is not None]
    if values and len(values) < len(shares):
        raise ConfigError(
            f"nests: the share of {label!r} is given in {len(values)} of {len(shares)} nests: give it in all of them, "
            f"or in none to estimate it."
        )
    if values and abs(sum(values) - 1) > _SUM_TOLERANCE:
        raise ConfigError(f"nests: the shares of {label!r} sum to {sum(values):g}, but must sum to 1.")
