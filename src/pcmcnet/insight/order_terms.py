"""Log-odds of two alternatives -> what each group of others adds to them, by Möbius inversion over subsets.

For two alternatives i and k of a set S, offered with others A out of S - {i, k}:

    v(A)  = log P(i | A + {i, k}) - log P(k | A + {i, k})
    mu(T) = sum over A within T of (-1)^(|T| - |A|) v(A)            so that  v(S - {i, k}) = sum over all T of mu(T)

mu of no others is the preference of the pair alone, of first order. mu(T) with one other is what this one adds, of
second order; with two it is what they add together and neither does alone, and so on: the order is |T| + 1. A set of n
alternatives has orders up to n - 1, and 2^(n - 2) terms for each pair.

Small sets have all their terms. In larger ones pairs are drawn, and, of every order that has too many terms, terms: the
mean of those drawn times their number estimates the sum, and their spread its standard error. Orders above the last one
that was asked for are not told apart. Shapes: P pairs, K orders, m = n - 2 others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor
from pcmcnet.insight.questions import ask, id_of, members

EXACT = 10  # alternatives of the largest set of which all subsets are asked about: 1,013 questions
PAIRS = 20  # drawn of a larger one


@dataclass(frozen=True, kw_only=True, eq=False)
class SetTerms:
    """The terms of one choice set, its largest ones of second order or above in detail."""

    pairs: Ints  # (P, 2) places of i and k
    log_odds: Floats  # (P,) in the whole set
    sums: Floats  # (P, K) of the terms of each order
    errors: Floats  # (P, K) standard errors of these sums, 0 where no term was left out
    sizes: Floats  # (K,) sum of |mu| over the terms that were computed
    counts: Ints  # (K,) their number
    largest: tuple[tuple[float, int, tuple[int, ...]], ...]  # mu, number of the pair, places of T
    exact: bool
    questions: int  # choice sets that the model was asked about


def moebius(values: Floats) -> Floats:  # (P, 2^m) -> (P, 2^m)
    """Turn v of every subset into mu of every subset; bit b of a column's number says whether the b-th other is in."""
    terms = values.copy()
    width = 1
    while width < values.shape[1]:
        halves = terms.reshape(len(terms), -1, 2, width)  # a view
        halves[:, :, 1] -= halves[:, :, 0]
        width *= 2
    return terms


def exact_terms(model: Predictor, data: ChoiceData, position: int, pairs: Ints, top: int) -> SetTerms:
    """Ask about all subsets of a set of up to EXACT alternatives."""
    inside = members(data, position)
    n, low = len(inside), int(inside[0])
    subsets = np.arange(2**n)
    holds = (subsets[:, None] >> np.arange(n)) & 1 == 1  # (2^n, n)
    asked = subsets[holds.sum(1) >= 2]
    log_p: Floats = np.full((2**n, n), np.nan)
    log_p[holds & (holds.sum(1) >= 2)[:, None]] = ask(
        model, data, [inside[holds[subset]] for subset in asked], np.full(len(asked), position)
    )
    others = np.array([[j for j in range(n) if j not in pair] for pair in (pairs - low).tolist()], np.int64)
    bits = (np.arange(2 ** (n - 2))[:, None] >> np.arange(n - 2)) & 1  # (2^m, m)
    i, k = (pairs - low).T[:, :, None]
    subset = (1 << others) @ bits.T + (1 << i) + (1 << k)  # (P, 2^m)
    with np.errstate(invalid="ignore"):  # infinite ones are refused next
        odds = require_odds(log_p[subset, i] - log_p[subset, k], model, data, low)
    terms, order = moebius(odds), bits.sum(1)
    by_order = (order[:, None] == np.arange(n - 1)).astype(np.float64)  # (2^m, K)
    size = np.where(order > 0, np.abs(terms), -1.0)
    first = np.argsort(-size, axis=None, kind="stable")[: top if n > 2 else 0]
    where = zip(*np.unravel_index(first, terms.shape), strict=True)
    return SetTerms(
        pairs=pairs,
        log_odds=odds[:, -1],
        sums=terms @ by_order,
        errors=np.zeros((len(pairs), n - 1)),
        sizes=(np.abs(terms) @ by_order).sum(0),
        counts=(len(pairs) * by_order.sum(0)).astype(np.int64),
        largest=tuple(
            (float(terms[p, t]), int(p), tuple((low + others[p, bits[t] == 1]).tolist()))
            for p, t in where
            if size[p, t] >= 0
        ),
        exact=True,
        questions=len(asked),
    )


def sampled_terms(
    model: Predictor,
    data: ChoiceData,
    position: int,
    pairs: Ints,
    top: int,
    *,
    orders: int,
    draws: int,
    rng: np.random.Generator,
) -> SetTerms:
    """Ask about small subsets of a large set: all groups T of the first orders, or so many drawn of each."""
    inside = members(data, position)
    drawn: list[tuple[int, tuple[int, ...]]] = []  # number of the pair, T
    for p, pair in enumerate(pairs):
        others = inside[~np.isin(inside, pair)]
        drawn += [(p, group) for t in range(orders) for group in _groups(others, t, draws, rng)]
    asked = {tuple(inside.tolist()): 0}
    for p, group in drawn:
        for part in _parts(group):
            asked.setdefault((*pairs[p].tolist(), *part), len(asked))
    log_p = ask(model, data, [np.sort(question) for question in asked], np.full(len(asked), position))
    starts = np.cumsum([0, *map(len, asked)])
    questions = list(asked)

    def odds(question: tuple[int, ...], pair: Ints) -> float:
        number = asked[question]
        places = np.sort(questions[number])
        i, k = starts[number] + np.searchsorted(places, pair)
        return float(log_p[i]) - float(log_p[k])  # plain numbers: infinite ones are refused below, without a warning

    whole = np.array([odds(questions[0], pair) for pair in pairs])
    terms = np.array([
        sum((-1) ** (len(group) - len(part)) * odds((*pairs[p].tolist(), *part), pairs[p]) for part in _parts(group))
        for p, group in drawn
    ])  # fmt: skip
    require_odds(np.append(terms, whole), model, data, int(inside[0]))
    owner, order = np.array([p for p, _ in drawn]), np.array([len(group) for _, group in drawn])
    sums, errors = np.zeros((2, len(pairs), orders))
    for p in range(len(pairs)):
        for t in range(orders):
            found, number = terms[(owner == p) & (order == t)], math.comb(len(inside) - 2, t)
            sums[p, t] = number * found.mean()
            if len(found) < number:
                errors[p, t] = number * found.std(ddof=1) / math.sqrt(len(found))
    context = np.flatnonzero(order > 0)
    first = context[np.argsort(-np.abs(terms[context]), kind="stable")[:top]]
    return SetTerms(
        pairs=pairs,
        log_odds=whole,
        sums=sums,
        errors=errors,
        sizes=np.bincount(order, np.abs(terms), orders).astype(np.float64),
        counts=np.bincount(order, minlength=orders),
        largest=tuple((float(terms[j]), int(owner[j]), drawn[j][1]) for j in first),
        exact=False,
        questions=len(asked),
    )


def require_odds(odds: Floats, model: Predictor, data: ChoiceData, place: int) -> Floats:
    """Refuse log-odds of a probability of 0, which have no finite terms."""
    if not np.isfinite(odds).all():
        raise InputError(
            f"choice set {id_of(data, place)}: {type(model).__name__} gives an alternative probability 0 in some part "
            f"of the set, so that log-odds are infinite. A model that gives positive probabilities is needed."
        )
    return odds


def _groups(others: Ints, size: int, draws: int, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """Return all groups of a size, or so many drawn at random where they are more."""
    if math.comb(len(others), size) <= draws:
        yield from combinations(others.tolist(), size)
        return
    for _ in range(draws):
        yield tuple(np.sort(rng.choice(others, size, replace=False)).tolist())


def _parts(group: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(group) + 1):
        yield from combinations(group, size)
