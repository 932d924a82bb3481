"""Cross-nested logit (Vovsha, 1997; Ben-Akiva & Bierlaire, 1999): an alternative may belong to several nests.

With v the utilities, log-sum parameters l_m and the part alpha_im of alternative i in nest m,

    y_im = exp((v_i + log alpha_im) / l_m)        P(i | S) = sum_m P(m) y_im / sum_j y_jm
    P(m) = (sum_j y_jm)^l_m / sum_k (sum_j y_jk)^l_k

where alpha_im >= 0 and sum_m alpha_im = 1. It is a nested logit of copies: alternative i appears once in each of its
nests, with utility v_i + log alpha_im, and its copies are summed. With each alternative in one nest it is the nested
logit, and with l = 1 the multinomial logit. The likelihood and its gradient are those of
``models/logit/nested_likelihood.py``.
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
    labels_of_nest,
    read_nests,
    require_nest_labels,
)

_WHOLE = 1e-6  # given parts of an alternative may miss 1 by this


@dataclass(frozen=True, kw_only=True)
class CrossNestedMNLConfig(NestConfig):
    """Options of the cross-nested logit: those of the logit models, the log-sums, and the nests.

    Parameters
    ----------
    nests
        The labels of each nest: {"existing": ["train", "car"], "public": ["train", "metro"]}. The parts of an
        alternative in several nests are estimated; or given, {"existing": {"train": 0.5, "car": 1}, ...}. Or the path
        of a TOML file with such nests.
    """

    nests: Path | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        nests = read_nests(self.nests) if isinstance(self.nests, Path) else self.nests
        if nests is not None:
            object.__setattr__(self, "nests", _checked(nests))


class CrossNestedMNL(NestModel):
    """Cross-nested logit with one level of nests.

    Options are those of :class:`CrossNestedMNLConfig`; ``nests`` is needed. The coefficient ``logsum[NEST]`` is the
    log-sum parameter of a nest, tested against 1, and ``alpha[LABEL,NEST]`` the part of an alternative in the first of
    its nests. Of more than two nests, ``rest[LABEL,NEST]`` is the part of the next one in what is left.
    """

    name = "cross-nested-mnl"
    config_class = CrossNestedMNLConfig
    config: CrossNestedMNLConfig
    starts = (0.8, 0.37)  # at 1 the parts of alternatives would make no difference

    @takes(CrossNestedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @property
    def allocations(self) -> dict[str, dict[str, float]]:
        """The part of each alternative in each of its nests, by label."""
        state = self._state
        pairs = _pairs(self._nests())
        parts = np.exp(_allocation(pairs, state.record.shares).logs(state.split()[2]))
        allocations: dict[str, dict[str, float]] = {}
        for pair, part in zip(pairs, parts.tolist(), strict=True):
            allocations.setdefault(pair.label, {})[pair.nest] = part
        return allocations

    def _nests(self) -> Mapping[str, Any]:
        if not self.config.nests:
            raise ConfigError(
                "say what the nests are: nests={NEST: [LABEL, ...], ...} (on the command line, nests=FILE.toml)."
            )
        assert not isinstance(self.config.nests, Path)  # read
        return self.config.nests

    def _labels(self) -> Iterable[str]:
        return dict.fromkeys(pair.label for pair in _pairs(self._nests()))

    def _leaves(self, data: ChoiceData) -> NestLeaves:
        pairs = _pairs(self._nests())
        first: dict[str, int] = {}
        for k, pair in enumerate(pairs):
            first.setdefault(pair.label, k)
        many = Counter(pair.label for pair in pairs)
        labels = require_nest_labels(many, data)
        start, number = (np.array([of.get(label, 0) for label in labels.categories]) for of in (first, many))
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
    """An alternative in a nest."""

    label: str
    nest: str
    part: float | None  # alpha, where it is given
    share: str  # the coefficient that takes its part; "" where it is given, or all that is left
    before: tuple[str, ...]  # the coefficients that have taken theirs


def _pairs(nests: Mapping[str, Any]) -> list[_Pair]:
    """List the nests of each label, label by label."""
    found: dict[str, dict[str, float | None]] = {}
    for nest, members in nests.items():
        for label in members:
            part = float(members[label]) if isinstance(members, Mapping) else None
            if part != 0:
                found.setdefault(label, {})[nest] = part
    pairs = []
    for label, parts in found.items():
        before: tuple[str, ...] = ()
        for nest, part in parts.items():
            word = "rest" if before else "alpha"
            last = nest == [*parts][-1]
            share = "" if last or part is not None else f"{word}[{label},{nest}]"
            pairs.append(_Pair(label, nest, part, share, before))
            before += (share,) if share else ()
    return pairs


def _allocation(pairs: Sequence[_Pair], shares: Sequence[str]) -> Allocation:
    """Write the parts of alternatives by the coefficients that share them out; labels without any have none."""
    base = np.array([math.log(pair.part) if pair.part is not None else 0.0 for pair in pairs])
    own = np.array([[float(name == pair.share) for name in shares] for pair in pairs])
    rest = np.array([[float(name in pair.before) for name in shares] for pair in pairs])
    return Allocation(np.arange(len(pairs)), base, own, rest)


def _checked(nests: Any) -> dict[str, Any]:
    """Check nests and write all names as text."""
    if not isinstance(nests, Mapping):
        raise ConfigError(f"nests must map the name of each nest to its labels, got {nests!r}.")
    found: dict[str, Any] = {}
    for nest, members in nests.items():
        if isinstance(members, Mapping) and members:
            found[str(nest)] = {str(label): _part(nest, label, part) for label, part in members.items()}
        elif isinstance(members, list | tuple) and members and all(isinstance(m, str | int | float) for m in members):
            found[str(nest)] = labels_of_nest(members, f"nests[{str(nest)!r}]")
        else:
            raise ConfigError(
                f"nests[{str(nest)!r}] must hold labels, such as ['train', 'car'], or their parts, such as "
                f"{{'train': 0.5, 'car': 1}}; got {members!r}."
            )
    parts: dict[str, list[float | None]] = {}
    for members in found.values():
        for label in members:
            parts.setdefault(label, []).append(members[label] if isinstance(members, Mapping) else None)
    for label, each in parts.items():
        _require_whole(label, each)
    return found


def _part(nest: Any, label: Any, part: Any) -> float:
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part <= 1:
        raise ConfigError(f"nests[{str(nest)!r}]: the part of {str(label)!r} must be from 0 to 1, got {part!r}.")
    return float(part)


def _require_whole(label: str, parts: Sequence[float | None]) -> None:
    """See that the parts of an alternative are all given and add up to 1, or all to be estimated."""
    given = [part for part in parts if part is not None]
    if given and len(given) < len(parts):
        raise ConfigError(
            f"nests: the part of {label!r} is given in {len(given)} of {len(parts)} nests: give it in all of them, or "
            f"in none, which has it estimated."
        )
    if given and abs(sum(given) - 1) > _WHOLE:
        raise ConfigError(f"nests: the parts of {label!r} add up to {sum(given):g}; they must add up to 1.")
