"""Options of the mixed logit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError
from pcmcnet.models.logits.design.individual_design import parse_membership
from pcmcnet.models.logits.logit_model import LogitConfig
from pcmcnet.models.logits.simulation.distributions import Distribution
from pcmcnet.models.logits.simulation.draws import Sequence

_LEAST = 10  # draws


@dataclass(frozen=True, kw_only=True)
class MixedMNLConfig(LogitConfig):
    """Options of the mixed logit: those of the logit models, and which coefficients are random.

    Parameters
    ----------
    random
        Distribution of each random coefficient by name: "normal", "lognormal", "truncated-normal", "triangular",
        "uniform" or "johnson-sb(low, high)". A lognormal or truncated normal coefficient has the sign that the
        multinomial logit finds, or the one in "+lognormal" and "-lognormal". None makes those of all numeric features
        normal.
    correlated
        Whether random coefficients with a normal distribution behind them are correlated, or the names of those that
        are.
    components
        Error components: the nest of some labels, as in {"bus": "public", "train": "public"}. The alternatives of a
        nest share a normal random utility of mean 0.
    means
        What the location of a random coefficient depends on, by its name: a sum of individual columns such as "income +
        age".
    draws
        Draws of each person's coefficients; the search begins with fewer.
    sequence
        What draws are made of: "sobol", "halton", "mlhs" or "random".
    antithetic
        Whether half of the draws mirror the others.
    by
        Whose coefficients they are: those of a "person" in all sets, of every choice "set", or "auto" for persons where
        the table declares them.
    starts
        Where the search begins: near the multinomial logit, and from so many places in all around it.
    prior
        Precision of a normal prior around 0 on each parameter, in units that change a utility by about 1: a weak pull
        that keeps estimates finite. Standard errors are those of the likelihood, without it. 0 for none.
    memory
        GiB that draws may take to be kept between steps; beyond, they are made again at each.
    """

    random: Mapping[str, str] | None = None
    correlated: bool | tuple[str, ...] = False
    components: Mapping[str, str] = field(default_factory=dict)
    means: Mapping[str, str] = field(default_factory=dict)
    draws: int = 1000
    sequence: Sequence = "sobol"
    antithetic: bool = False
    by: Literal["auto", "person", "set"] = "auto"
    starts: int = 1
    prior: float = 0.001
    memory: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("random", "components", "means"):
            named = getattr(self, option)
            if named is not None:
                object.__setattr__(self, option, _words(option, named))
        for name, text in (self.random or {}).items():
            Distribution.parse(name, text)
        for text in self.means.values():
            parse_membership(text)
        if not isinstance(self.correlated, bool):
            names = self.correlated
            if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
                raise ConfigError(f"correlated must be True, False or names of coefficients, got {names!r}.")
            object.__setattr__(self, "correlated", tuple(names))
        require_number("draws", self.draws, whole=True, low=_LEAST, high=10**7)
        require_word("sequence", self.sequence, get_args(Sequence))
        require_word("by", self.by, ("auto", "person", "set"))
        require_number("starts", self.starts, whole=True, low=1)
        require_number("prior", self.prior, low=0)
        require_number("memory", self.memory, low=0)
        if not isinstance(self.antithetic, bool):
            raise ConfigError(f"antithetic must be True or False, got {self.antithetic!r}.")
        if self.antithetic and self.draws % 2:
            raise ConfigError(f"antithetic draws come in pairs: draws must be even, got {self.draws}.")


def _words(option: str, named: Any) -> dict[str, str]:
    """Refuse anything but words by name."""
    if not (isinstance(named, Mapping) and all(isinstance(word, str) for pair in named.items() for word in pair)):
        raise ConfigError(f"{option} must map names to words, got {named!r}.")
    return dict(named)
