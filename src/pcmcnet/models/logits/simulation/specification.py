"""Options of a mixed logit and a training table -> which coefficients are random, and how.

Names are those of coefficients, as the summary shows them, or of a term of the formula for all coefficients that it
has. Error components are columns that mark the alternatives of a nest: their random coefficient has mean 0, so that
alternatives of one nest go together (Brownstone & Train, 1999).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.design.factor_coding import NumberCode
from pcmcnet.models.logits.simulation.coefficients import Mixing, Random
from pcmcnet.models.logits.simulation.distributions import NORMAL_BASED, Distribution


def specify(
    design: Design,
    sources: Sequence[str],
    random: Mapping[str, str] | None,
    correlated: bool | Sequence[str],
    *,
    nests: Sequence[str] = (),
    means: Mapping[str, Sequence[str]] | None = None,
    offset: str | None = None,
    cost: str | None = None,
) -> Mixing:
    """Find the coefficients that options name.

    Parameters
    ----------
    design, sources
        Columns of the utility, and the term that each comes from.
    random
        Distribution by name; None for normal coefficients of all numeric features, or of all columns where there are
        none.
    correlated
        Whether all random coefficients that a normal distribution lies behind are correlated, or which ones.
    nests
        Names of the nests that error components are for.
    means
        Names of the individual's numbers that the mean of a coefficient depends on, by its name.
    offset
        Name of the column whose coefficient is 1.
    cost
        Name of the column in whose units the others are worth something, in willingness-to-pay space.

    Raises
    ------
    ConfigError
        For a name that no coefficient has, or a distribution that cannot be correlated.
    """
    # 1. Distributions by column; a name stands for one coefficient, or for all of a term.
    named = dict.fromkeys(_numeric(design, sources, offset), "normal") if random is None else random
    found: dict[int, Distribution] = {}
    for name, text in named.items():
        for column in columns_of(name, design.names, sources, "random"):
            if design.names[column] == offset:
                raise ConfigError(f"random names {name!r}, the offset, whose coefficient is 1: leave it out of one.")
            found[column] = Distribution.parse(name, text)
    # 2. Error components come after the columns of the design.
    parts = [Random(column, found[column]) for column in sorted(found)]
    parts += [Random(len(design.names) + k, Distribution("normal")) for k in range(len(nests))]
    if not parts:
        raise ConfigError("random names no coefficient: a mixed logit needs one, or nests; else use mnl.")
    columns = (*design.names, *(f"component[{nest}]" for nest in nests))
    # 3. Means that depend on individuals: pairs of a random coefficient and a number, which several may share.
    place = {part.column: d for d, part in enumerate(parts)}
    who: dict[str, int] = {}
    pairs = []
    for name, numbers in (means or {}).items():
        for column in columns_of(name, design.names, sources, "means"):
            if column not in place:
                raise ConfigError(f"means names {name!r}, which is not random: put {name}:COLUMN into the formula.")
            pairs += [(place[column], who.setdefault(number, len(who))) for number in numbers]
    group = _group(correlated, parts, design.names, sources)
    unit = None if cost is None else _cost(cost, design.names, sources, offset)
    return Mixing(columns, len(design.names), tuple(parts), group, tuple(pairs), tuple(who), cost=unit)


def columns_of(name: str, names: Sequence[str], sources: Sequence[str], option: str) -> list[int]:
    """Return the columns of a coefficient, or of a term."""
    found = [k for k, each in enumerate(names) if each == name] or [k for k, term in enumerate(sources) if term == name]
    if not found:
        known = [*names, *(term for term in sources if term != "1")]
        raise ConfigError(
            f"{option} names {name!r}, which is no coefficient of this model." + did_you_mean(name, known)
        )
    return found


def _numeric(design: Design, sources: Sequence[str], offset: str | None) -> list[str]:
    """Return the coefficients of numeric features; all, where there are none. An offset has none."""
    numeric = {
        str(term)
        for term in design.terms.generic
        if all(isinstance(design.codes[f.column], NumberCode) for f in term.factors)
    }
    names = [(name, term) for name, term in zip(design.names, sources, strict=True) if name != offset]
    return [name for name, term in names if term in numeric] or [name for name, _ in names]


def _cost(name: str, names: Sequence[str], sources: Sequence[str], offset: str | None) -> int:
    """Return the column of the cost."""
    found = columns_of(name, names, sources, "wtp_space")
    if len(found) > 1:
        raise ConfigError(f"wtp_space names {name!r}, which has {len(found)} coefficients: name a single one.")
    if offset is not None:
        raise ConfigError("wtp_space makes worths of all coefficients, and that of an offset is 1: leave one out.")
    return found[0]


def _group(
    correlated: bool | Sequence[str], parts: Sequence[Random], names: Sequence[str], sources: Sequence[str]
) -> tuple[int, ...]:
    """Return the random coefficients that are correlated: none, or at least two."""
    if correlated is False:
        return ()
    own = {part.column: d for d, part in enumerate(parts) if part.column < len(names)}
    if correlated is True:
        group = [d for d in own.values() if parts[d].distribution.name in NORMAL_BASED]
    else:
        group = []
        for name in correlated:
            for column in columns_of(name, names, sources, "correlated"):
                if column not in own:
                    raise ConfigError(f"correlated names {name!r}, which is not random: name it in random, too.")
                if parts[own[column]].distribution.name not in NORMAL_BASED:
                    kind = parts[own[column]].distribution.name
                    raise ConfigError(
                        f"correlated names {name!r}, which is {kind}: only {', '.join(NORMAL_BASED)} can be correlated."
                    )
                group.append(own[column])
    if len(group) < 2:
        raise ConfigError(f"correlated needs two random coefficients with a normal distribution, found {len(group)}.")
    return tuple(sorted(set(group)))


def require_moving(z: np.ndarray, mixing: Mixing) -> None:  # (M, K) differences within sets
    """Refuse a random coefficient of a column that never differs within a set: it has no effect on any choice."""
    still = np.flatnonzero(~np.any(z, axis=0))
    lost = [mixing.columns[r.column] for r in mixing.random if r.column in still]
    if lost:
        raise InputError(
            f"the random coefficient of {lost[0]!r} has no effect: within every choice set the column is the same for "
            f"all alternatives; {len(lost)} such. Leave it out of random, or choose other nests."
        )
