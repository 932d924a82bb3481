"""Nested logit (Williams, 1977, and McFadden, 1978): alternatives in the same nest are closer substitutes.

The choice probability of an alternative i in nest m depends on the utilities v and the log-sum parameters l_m:

    P(i | S) = exp(v_i / l_m - L_m) exp(l_m L_m) / sum_k exp(l_k L_k)        L_m = log sum_{j in m} exp(v_j / l_m)

L_m is the inclusive value of nest m. Nests may contain nests: the formula then applies at each node of the tree. With
l_m = 1 for all m the model is the multinomial logit; as l_m goes to 0, the alternatives of nest m become perfect
substitutes. Some packages report the scale mu_m = 1 / l_m. ``models/logit/nested_likelihood.py`` contains the
likelihood and its gradient.
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
    """Options of the nested logit: the options of all logit models, the log-sums, and the nests.

    Parameters
    ----------
    nests
        Required. A mapping from each label to its nest, as in {"car": "road", "bus": "road", "train": "rail"}.
        Alternatively, a tree of nests that contain nests or lists of labels, as in {"land": {"road": ["car", "bus"],
        "rail": ["train"]}, "air": ["plane"]}, or the path of a TOML file with one of these mappings. The option may
        also be the name of a feature whose values are the nests. In this case, "." in the formula does not include this
        feature.
    """

    nests: Path | Mapping[str, Any] | str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        nests = read_nests(self.nests) if isinstance(self.nests, Path) else self.nests
        if not isinstance(nests, str):
            object.__setattr__(self, "nests", checked_tree(nests))
        elif nests.endswith(".toml"):
            raise ConfigError(f"nests: a file must be given as a path: use nests=pathlib.Path({nests!r}).")


class NestedMNL(NestModel):
    """Nested logit, with one level of nests or a tree of nests.

    For the options, see :class:`NestedMNLConfig`; ``nests`` is required. The coefficient ``logsum[NEST]`` is the
    log-sum parameter of a nest, relative to the parameter of its parent nest. The null hypothesis is ``logsum[NEST]`` =
    1. A nest that never has two alternatives in a choice set has no log-sum parameter.
    """

    name = "nested-mnl"
    config_class = NestedMNLConfig
    config: NestedMNLConfig

    @takes(NestedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _labels(self) -> Iterable[str]:
        nests = self.config.nests
        return paths_by_label(nests) if isinstance(nests, Mapping) else ()

    def _leaves(self, data: ChoiceData) -> NestLeaves:
        nests = self.config.nests
        if not nests:
            raise ConfigError(
                "nests is required: pass the name of a feature, or a nest for each label (on the command line, "
                "nests=car:road,bus:road,train:rail, or nests=FILE.toml)."
            )
        assert not isinstance(nests, Path)  # NestedMNLConfig has read the file
        if isinstance(nests, str):
            return leaves_by_feature(nests, data)
        return leaves_by_label(paths_by_label(nests), data)

    def as_nests(self, data: ChoiceData) -> tuple[Floats, Ints, Floats] | None:
        """Return utilities (N,) and nests (N,) of the alternatives, and log-sum parameters (M,).

        Return None if nests contain other nests.

        Parameters
        ----------
        data
            Choice sets.
        """
        record = self._state.record
        if any(parent >= 0 for parent in record.parents):
            return None
        leaves, _, v = self._utilities_in_tree(data)
        index = {name: k for k, name in enumerate(record.nests)}
        nests: Ints = np.array([index.get(path[0], -1) for path in leaves.paths])[leaves.code]
        return v, nests, self._state.logsums

    def _leave_out(self) -> frozenset[str]:
        nests = self.config.nests
        return frozenset([nests] if isinstance(nests, str) else [])

    def _facts(self) -> dict[str, str]:
        facts = super()._facts()
        if isinstance(self.config.nests, str):
            facts["nests"] += f" (by {self.config.nests})"
        return facts
