"""Nested logit (Williams, 1977; McFadden, 1978): alternatives of one nest are closer substitutes than others.

With v the utilities, nests m and log-sum parameters l_m, for an alternative i of nest m

    P(i | S) = exp(v_i / l_m - L_m) exp(l_m L_m) / sum_k exp(l_k L_k)        L_m = log sum_{j in m} exp(v_j / l_m)

Nests may lie within nests, and the formula then applies at each node of the tree. l_m = 1 for all m is the multinomial
logit; the nearer to 0, the closer the alternatives of the nest. 1 / l_m is the scale that some packages report as mu.
The likelihood and its gradient are those of ``models/logit/nested_likelihood.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logit.nests import (
    NestConfig,
    NestLeaves,
    NestModel,
    checked_tree,
    leaves_by_feature,
    leaves_by_label,
    paths_by_label,
    read_nests,
)


@dataclass(frozen=True, kw_only=True)
class NestedMNLConfig(NestConfig):
    """Options of the nested logit: those of the logit models, the log-sums, and the nests.

    Parameters
    ----------
    nests
        The feature whose values are the nests, which "." in the formula then leaves out; a mapping from each
        alternative's label to the name of its nest; a tree, whose nests hold nests or lists of labels; or the path of a
        TOML file with one of the last two.
    """

    nests: Path | Mapping[str, Any] | str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        nests = read_nests(self.nests) if isinstance(self.nests, Path) else self.nests
        if not isinstance(nests, str):
            object.__setattr__(self, "nests", checked_tree(nests))
        elif nests.endswith(".toml"):
            raise ConfigError(f"nests: give a file as a path, nests=pathlib.Path({nests!r}).")


class NestedMNL(NestModel):
    """Nested logit, with one level of nests or a tree of them.

    Options are those of :class:`NestedMNLConfig`; ``nests`` is needed. The coefficient ``logsum[NEST]`` is the
    log-sum parameter of a nest relative to that of the nest above it, tested against 1; a nest that never has two
    alternatives in a set has none.
    """

    name = "nested-mnl"
    config_class = NestedMNLConfig
    config: NestedMNLConfig

    @takes(NestedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _labels(self) -> Iterable[str]:
        by = self.config.nests
        return paths_by_label(by) if isinstance(by, Mapping) else ()

    def _leaves(self, data: ChoiceData) -> NestLeaves:
        by = self.config.nests
        if not by:
            raise ConfigError(
                "say what the nests are: nests=<feature>, or a nest for each label (on the command line, "
                "nests=car:road,bus:road,train:rail, or nests=FILE.toml)."
            )
        assert not isinstance(by, Path)  # read
        return leaves_by_feature(by, data) if isinstance(by, str) else leaves_by_label(paths_by_label(by), data)

    def as_nests(self, data: ChoiceData) -> tuple[Floats, Ints, Floats] | None:
        """Return the utilities (N,) and nests (N,) of alternatives, and the log-sums (M,); None for a tree of nests."""
        record = self._state.record
        if any(parent >= 0 for parent in record.parents):
            return None
        leaves, _, v = self._placed(data)
        place = {name: k for k, name in enumerate(record.nests)}
        nests: Ints = np.array([place.get(path[0], -1) for path in leaves.paths])[leaves.code]
        return v, nests, self._state.logsums

    def _leave_out(self) -> frozenset[str]:
        by = self.config.nests
        return frozenset([by] if isinstance(by, str) else [])

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        if isinstance(self.config.nests, str):
            facts["nests"] += f" (by {self.config.nests})"
        return facts
