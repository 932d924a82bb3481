"""Samples of the alternatives of large choice sets, for fits, with the expansion factors that correct the likelihood.

If a sample D of a choice set C contains the choice, the choice among D has the probability (McFadden, 1978)

    P(i | D) = P_i(C) h(D | i) / sum_{j in D} P_j(C) h(D | j),        h(D | j) probability of the sample if j is chosen.

In all protocols here, the choice counts as one of n draws. Then h(D | j) is proportional to the expansion factor W_j,
the number of alternatives of C that j stands for:

    uniform       n - 1 others without replacement                          W_j = N / n
    stratified    the same within each stratum h of N_h, with n_h draws     W_j = N_h / n_h
    popularity    n - 1 draws with replacement, with probabilities g_j      W_j = m_j / (n g_j), if j is drawn m_j times

A logit adds log W_j to the utility, which makes its estimates consistent. A chain counts j as W_j copies of itself.
Copies share the probability of their alternative, so the chain of the sample approximates the chain of the full set.

The probabilities g_j depend on the choices of all other sets, but not on that of the set itself: otherwise the
sample would reveal the choice. Half of the draws are uniform, so no W_j exceeds 2 N / n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data.columns.arrays import Categorical, Column
from pcmcnet.data.subsets import generator
from pcmcnet.errors import InputError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData

DEFAULT_SAMPLE = 100  # alternatives of a set. docs/performance.md shows the bias of smaller samples


@dataclass(frozen=True)
class AlternativeSample:
    """Sampled alternatives of S sets: M in all."""

    offsets: Ints  # (S + 1,) start of each set
    positions: Ints  # (M,) positions within the full set, ascending in each set
    chosen: Ints  # (S,) position of the choice within the sample
    expansion: Floats  # (M,) expansion factors


@dataclass(frozen=True)
class SamplingProtocol:
    """How the alternatives of a set are drawn: uniformly, unless one of the two functions is given.

    Parameters
    ----------
    n
        Number of alternatives of a sample.
    strata
        Function that returns the stratum of each alternative of the set at a position.
    popularity
        Function that returns how often each alternative of the set at a position is chosen, in all sets.
    """

    n: int
    strata: Callable[[int], Ints] | None = None
    popularity: Callable[[int], Floats] | None = None

    def draw(self, at: int, size: int, chosen: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Return the positions (m,) that are sampled from a set, ascending, and their expansion factors (m,)."""
        if size <= self.n:
            return np.arange(size), np.ones(size)
        if self.popularity is not None:
            return draw_popular(self.popularity(at), chosen, self.n, rng)
        if self.strata is not None:
            return draw_strata(self.strata(at), chosen, self.n, rng)
        return draw_uniform(size, chosen, self.n, rng)


def draw_samples(sizes: Ints, chosen: Ints, protocol: SamplingProtocol, seed: int) -> AlternativeSample:
    """Draw alternatives of all sets: sizes (S,), chosen (S,)."""
    require_number("n", protocol.n, whole=True, low=2)
    rng = generator(seed)
    positions, expansion = [np.empty(0, np.int64)], [np.empty(0)]
    places = np.empty(len(sizes), np.int64)
    for at, (size, choice) in enumerate(zip(sizes.tolist(), chosen.tolist(), strict=True)):
        drawn, factors = protocol.draw(at, size, choice, rng)
        positions.append(drawn)
        expansion.append(factors)
        places[at] = np.searchsorted(drawn, choice)
    lengths = [len(drawn) for drawn in positions]  # the first is 0
    return AlternativeSample(np.cumsum(lengths), np.concatenate(positions), places, np.concatenate(expansion))


def draw_uniform(size: int, chosen: int, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Draw ``n`` of ``size`` alternatives, one of which is the choice. The factors are all ``size / n``."""
    drawn = rng.choice(size - 1, n - 1, replace=False, shuffle=False)
    positions = np.append(drawn + (drawn >= chosen), chosen)  # positions after the choice move up by one
    return np.sort(positions), np.full(n, size / n)


def draw_strata(strata: Ints, chosen: int, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Draw about ``n`` alternatives, as many in each stratum: at least one, and all of a small stratum."""
    numbers = np.unique(strata)
    share = max(n // len(numbers), 1)
    positions, expansion = [], []
    for number in numbers:
        members = np.flatnonzero(strata == number)
        size, m = len(members), min(share, len(members))
        if strata[chosen] == number:
            drawn = members[draw_uniform(size, int(np.searchsorted(members, chosen)), m, rng)[0]]
        else:
            drawn = members[rng.choice(size, m, replace=False, shuffle=False)]
        positions.append(drawn)
        expansion.append(np.full(m, size / m))
    joined = np.concatenate(positions)
    order = np.argsort(joined)
    return joined[order], np.concatenate(expansion)[order]


def draw_popular(counts: Floats, chosen: int, n: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Draw ``n - 1`` alternatives with replacement, half of them by popularity, and add the choice.

    ``counts`` contains the number of times that each alternative is chosen, including the choice of this set.
    """
    # 1. The mass of each alternative: its choices in other sets, and a constant with the same sum over alternatives.
    choices = counts.sum() - 1
    constant = max(choices / len(counts), 1 / len(counts))
    mass = counts + constant
    mass[chosen] -= 1
    # 2. Draw with replacement, and count how often each alternative is drawn.
    below = np.cumsum(mass)
    draws = np.searchsorted(below, rng.random(n - 1) * below[-1], side="right")
    positions, times = np.unique(np.append(np.minimum(draws, len(mass) - 1), chosen), return_counts=True)
    return positions, times * below[-1] / (n * mass[positions])


# -- Choice data -------------------------------------------------------------------------------------------------------


def sampling_protocol(data: ChoiceData, n: int, by: str) -> SamplingProtocol:
    """Return the protocol for sampling the alternatives of choice data."""
    offsets = data.offsets
    if by == "uniform":
        return SamplingProtocol(n)
    if by == "popularity":
        if data.labels is None:
            raise SchemaError(
                "by='popularity' needs to know which alternatives are the same: read the table with "
                "alternative=<column>, or use by='uniform'."
            )
        codes = data.labels.codes
        chosen = codes[offsets[:-1] + data.require_chosen("sampling alternatives")]
        counts = np.bincount(chosen, minlength=len(data.labels.categories)).astype(np.float64)
        return SamplingProtocol(n, popularity=lambda at: counts[codes[offsets[at] : offsets[at + 1]]])
    strata = strata_of(by, data.features)
    return SamplingProtocol(n, strata=lambda at: strata[offsets[at] : offsets[at + 1]])


def strata_of(by: str, features: Mapping[str, Column]) -> Ints:
    """Return the codes of a categorical feature, or raise SchemaError if there is none of this name."""
    column = features.get(by)
    if isinstance(column, Categorical):
        return column.codes.astype(np.int64)
    categories = [name for name, other in features.items() if isinstance(other, Categorical)]
    problem = "is not a feature of the table" if column is None else f"is {column.kind}"
    raise SchemaError(
        f"by: expected 'uniform', 'popularity' or a categorical feature, but {by!r} {problem}."
        + did_you_mean(str(by), ["uniform", "popularity", *categories])
    )


def require_full_sets(data: ChoiceData, purpose: str) -> None:
    """Raise InputError if the alternatives are a sample."""
    if data.expansion is not None:
        raise InputError(
            f"{purpose} needs choice sets with all alternatives, but these were drawn by sample_alternatives: use the "
            f"data that the sample was drawn from."
        )
