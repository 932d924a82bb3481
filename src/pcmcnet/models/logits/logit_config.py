"""Options of the logit models: the utility, parameters that are given, and the kind of standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError
from pcmcnet.models.logits.design import parse_formula
from pcmcnet.models.logits.design.formula import quoted
from pcmcnet.models.logits.estimation import Errors
from pcmcnet.models.logits.estimation.parameter_bounds import Bounds, checked_control


@dataclass(frozen=True, kw_only=True)
class LogitConfig:
    """Options of the logit models.

    Parameters
    ----------
    formula
        The utility: "cost + log(time) + cost:income | income | wait", or "." for all features and, where
        alternatives have labels, a constant for each.
    reference
        Label of the alternative whose constant is 0; if not given, the outside option or the one chosen most often.
    min_chosen
        Levels of categorical features chosen fewer times than this are pooled in one.
    base
        Levels of categorical columns without a coefficient, {"comfort": "low"}; those chosen most often if not given.
    offset
        Feature that is part of the utility as it is, with a coefficient of 1, such as a correction for the sampling of
        alternatives. The formula must not name it, and "." leaves it out.
    wtp_space
        Coefficient of a cost in whose units all others are estimated: as willingnesses to pay, b = -b_cost wtp.
    errors
        Standard errors that the summary shows: classical, robust or clustered; "auto" for clustered ones where a
        cluster is named or the table declares persons, and classical ones elsewhere.
    cluster
        Column, individual or kept, whose groups have dependent choices; the persons of the table if not given.
    max_iter
        Steps of the maximisation, at most.
    fixed
        Values of coefficients that are not estimated, by their names in the summary: {"price": -1.0}.
    bounds
        The least and the largest value that coefficients may have, None for no bound: {"price": (None, 0)}.
    start
        Values of coefficients to begin the maximisation with; others begin at 0.
    """

    formula: str = "."
    reference: str | None = None
    min_chosen: int = 10
    base: Mapping[str, str] = field(default_factory=dict)
    offset: str | None = None
    wtp_space: str | None = None
    errors: Errors | Literal["auto"] = "auto"
    cluster: str | None = None
    max_iter: int = 200
    fixed: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] | None = field(default_factory=dict)
    start: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_formula(self.formula)
        require_number("min_chosen", self.min_chosen, whole=True, low=0)
        require_number("max_iter", self.max_iter, whole=True, low=1)
        require_word("errors", self.errors, ("auto", *get_args(Errors)))
        control = checked_control(self.fixed, self.bounds, self.start)
        for name, value in zip(("fixed", "bounds", "start"), control, strict=True):
            object.__setattr__(self, name, value)
        if isinstance(self.reference, int) and not isinstance(self.reference, bool):
            object.__setattr__(self, "reference", str(self.reference))  # labels that are numbers have these names
        for name in ("reference", "cluster", "offset", "wtp_space"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)):
                raise ConfigError(f"{name} must be a name, got {value!r}.")
        if not isinstance(self.base, Mapping):
            raise ConfigError(f"base must map columns to levels, got {self.base!r}.")
        object.__setattr__(self, "base", {str(column): str(level) for column, level in self.base.items()})
        if self.offset is not None and {*self.fixed, *(self.bounds or {}), *self.start} & {quoted(self.offset)}:
            raise ConfigError(f"the offset {self.offset!r} has a coefficient of 1: leave it out of the other options.")
