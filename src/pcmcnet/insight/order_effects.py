"""How far context goes in a fitted model: log-odds of two alternatives by how many others act on them together.

    log P(i | S) / P(k | S)  =  preference of the pair alone              order 1: all there is in a logit
                              + what each single other adds               order 2: all there is in a CDM
                              + what two others add only together         order 3
                              + ...

All that is asked of a model are its probabilities in subsets of a set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, predicted_log_p, require_data
from pcmcnet.insight.queries import (
    alternative_name,
    draw_sets,
    places_in_set,
    predict_sets,
    require_sampling,
    set_id_of,
)
from pcmcnet.insight.removals import extrapolation_warning
from pcmcnet.reports.formats import FormatsMixin, ResultContent, ToDictMixin, data_frame
from pcmcnet.reports.tables import Cells, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- Order terms -------------------------------------------------------------------------------------------------------
# Log-odds of two alternatives -> what each group of others adds to them, by Möbius inversion over subsets.
#
# For two alternatives i and k of a set S, offered with others A out of S - {i, k}:
#
#     v(A)  = log P(i | A + {i, k}) - log P(k | A + {i, k})
#     mu(T) = sum over A within T of (-1)^(|T| - |A|) v(A)            so that  v(S - {i, k}) = sum over all T of mu(T)
#
# mu of no others is the preference of the pair alone, of first order. mu(T) with one other is what this one adds, of
# second order; with two it is what they add together and neither does alone, and so on: the order is |T| + 1. A set of
# n alternatives has orders up to n - 1, and 2^(n - 2) terms for each pair.
#
# Small sets have all their terms. In larger ones pairs are drawn, and, of every order that has too many terms, terms:
# the mean of those drawn times their number estimates the sum, and their spread its standard error. Orders above the
# last one that was asked for are not told apart. Shapes: P pairs, K orders, m = n - 2 others.

MAX_EXACT_ALTERNATIVES = 10  # alternatives of the largest set of which all subsets are asked about: 1,013 questions
PAIRS_PER_LARGE_SET = 20  # drawn of a larger one


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
    # 1. Ask about every subset of two alternatives or more; bit b of its number says whether b is in it.
    inside = places_in_set(data, position)
    n, low = len(inside), int(inside[0])
    subsets = np.arange(2**n)
    holds = (subsets[:, None] >> np.arange(n)) & 1 == 1  # (2^n, n)
    asked = subsets[holds.sum(1) >= 2]
    log_p: Floats = np.full((2**n, n), np.nan)
    log_p[holds & (holds.sum(1) >= 2)[:, None]] = predict_sets(
        model, data, [inside[holds[subset]] for subset in asked], np.full(len(asked), position)
    )
    # 2. v of each pair with every subset of the others, then mu.
    others = np.array([[j for j in range(n) if j not in pair] for pair in (pairs - low).tolist()], np.int64)
    bits = (np.arange(2 ** (n - 2))[:, None] >> np.arange(n - 2)) & 1  # (2^m, m)
    i, k = (pairs - low).T[:, :, None]
    subset = (1 << others) @ bits.T + (1 << i) + (1 << k)  # (P, 2^m)
    with np.errstate(invalid="ignore"):  # infinite ones are refused next
        odds = require_finite_odds(log_p[subset, i] - log_p[subset, k], model, data, low)
    terms, order = moebius(odds), bits.sum(1)
    # 3. Add up by order, and find the largest terms that belong to context.
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
    # 1. Draw the groups T of each pair and order.
    inside = places_in_set(data, position)
    drawn: list[tuple[int, tuple[int, ...]]] = []  # number of the pair, T
    for p, pair in enumerate(pairs):
        others = inside[~np.isin(inside, pair)]
        drawn += [(p, group) for t in range(orders) for group in _groups(others, t, draws, rng)]
    # 2. Ask once about the whole set and every pair with a part of one of its groups.
    asked = {tuple(inside.tolist()): 0}
    for p, group in drawn:
        for part in _parts(group):
            asked.setdefault((*pairs[p].tolist(), *part), len(asked))
    log_p = predict_sets(model, data, [np.sort(question) for question in asked], np.full(len(asked), position))
    starts = np.cumsum([0, *map(len, asked)])
    questions = list(asked)

    def odds(question: tuple[int, ...], pair: Ints) -> float:
        number = asked[question]
        places = np.sort(questions[number])
        i, k = starts[number] + np.searchsorted(places, pair)
        return float(log_p[i]) - float(log_p[k])  # plain numbers: infinite ones are refused below, without a warning

    # 3. mu(T) of each group, by its definition.
    whole = np.array([odds(questions[0], pair) for pair in pairs])
    terms = np.array([
        sum((-1) ** (len(group) - len(part)) * odds((*pairs[p].tolist(), *part), pairs[p]) for part in _parts(group))
        for p, group in drawn
    ])  # fmt: skip
    require_finite_odds(np.append(terms, whole), model, data, int(inside[0]))
    # 4. Sums of each pair and order, as the mean of the terms drawn times their number.
    owner, order = np.array([p for p, _ in drawn]), np.array([len(group) for _, group in drawn])
    sums, errors = np.zeros((2, len(pairs), orders))
    for p in range(len(pairs)):
        for t in range(orders):
            found, number = terms[(owner == p) & (order == t)], math.comb(len(inside) - 2, t)
            sums[p, t] = number * found.mean()
            if len(found) < number:
                errors[p, t] = number * found.std(ddof=1) / math.sqrt(len(found))
    # 5. The largest terms that belong to context.
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


def require_finite_odds(odds: Floats, model: Predictor, data: ChoiceData, place: int) -> Floats:
    """Refuse log-odds of a probability of 0, which have no finite terms."""
    if not np.isfinite(odds).all():
        raise InputError(
            f"choice set {set_id_of(data, place)}: {type(model).__name__} gives an alternative probability 0 in some part "
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


# -- Order effects -----------------------------------------------------------------------------------------------------

OrderView = Literal["orders", "terms"]


@dataclass(frozen=True, slots=True)
class OrderRow(ToDictMixin):
    """What the terms of one order make of the log-odds, on average over pairs; sets count alike."""

    order: str  # "1", "2", ..., or "above 3" where terms above were not told apart
    terms: int  # that were computed
    term_size: float  # mean |mu| of these
    contribution: float  # mean |sum of the order's terms|
    share: float  # of the contributions of all orders
    explained: float  # share of the variance of log-odds that this order and those below give
    error: float  # standard error of a sum, by sampling (root of the mean square); 0 where no term was left out


@dataclass(frozen=True, slots=True)
class ContextTerm(ToDictMixin):
    """One term: what a group of others does to log P(i) / P(k), beyond what smaller groups of them do."""

    choice_set: Any  # its id
    i: str
    k: str
    others: tuple[str, ...]
    value: float
    _derived = ("order",)

    @property
    def order(self) -> int:
        """Number of the others, plus one."""
        return len(self.others) + 1

    def __str__(self) -> str:
        verb = "together add" if len(self.others) > 1 else "adds"
        what = f"{' and '.join(self.others)} {verb} {self.value:+.3f} to log P({self.i}) / P({self.k})"
        return f"choice set {self.choice_set}: {what}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OrderEffects(ToDictMixin, FormatsMixin):
    """Log-odds by the order of their terms. Prints as a table, and a notebook shows it as one.

    Attributes
    ----------
    model
        Name of the model's class.
    orders
        A row for each order.
    terms
        The largest terms of second order and above, the largest first.
    sets, sampled, pairs, questions, seed
        Sets looked at, those of them whose terms were sampled, pairs of alternatives, sets asked about, and the seed.
    notes
        What to know before reading the figures.
    """

    model: str
    orders: tuple[OrderRow, ...]
    terms: tuple[ContextTerm, ...]
    sets: int
    sampled: int
    pairs: int
    questions: int
    seed: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"OrderEffects({self.model}, {percent(self.orders[0].explained)} of the variance by the first order)"

    def __getitem__(self, order: int) -> OrderRow:
        """Return the row of an order, from 1 on."""
        for row in self.orders:
            if row.order == str(order):
                return row
        raise InputError(f"no order {order!r}: there are {', '.join(row.order for row in self.orders)}.")

    def to_frame(self, what: OrderView = "orders") -> Any:
        """Return a pandas data frame with a row for each of the "orders", or of the largest "terms"."""
        require_word("what", what, ("orders", "terms"))
        return data_frame(pa.Table.from_pylist(self.to_dict()[what]), instead="to_dict()")

    def plot(self, what: OrderView = "orders", *, ax: Axes | None = None) -> Axes:
        """Draw the contributions of the "orders", or the largest "terms"; returns matplotlib's Axes."""
        from pcmcnet.plots.context import plot_order_effects

        require_word("what", what, ("orders", "terms"))
        return plot_order_effects(self, ax, what=what)

    @property
    def cells(self) -> Cells:
        """The table of orders, as text."""
        heads = ["order", "terms", "mean size", "contribution", "share", "explained", "sampling error"]
        rows = [
            [
                *(row.order, f"{row.terms:,}", f"{row.term_size:.3g}", f"{row.contribution:.3g}"),
                *(percent(row.share), percent(row.explained), f"{row.error:.2g}" if self.sampled else "-"),
            ]
            for row in self.orders
        ]
        return [heads, *rows]

    def _content(self) -> ResultContent:
        facts = {
            "looked at": f"{self.sets:,} choice sets, {self.pairs:,} pairs of alternatives",
            "asked about": f"{self.questions:,} choice sets, seed {self.seed}",
        }
        title, largest = f"Order of context effects: {self.model}", [f"Largest: {term}." for term in self.terms[:3]]
        return ResultContent(title=title, cells=self.cells, facts=facts, notes=(*largest, *self.notes))


def order_effects(
    model: Predictor,
    data: Any,
    sets: int = 20,
    seed: int = 0,
    *,
    orders: int = 3,
    draws: int = 50,
    top: int = 10,
    least: float = 0.01,
) -> OrderEffects:
    """Take the log-odds of alternatives apart by the number of others that act on them together.

    Sets of up to 10 alternatives have all their terms, of every order. Of larger ones 20 pairs are drawn, and terms
    where an order has more than ``draws``: figures come with their standard error then.

    Parameters
    ----------
    model, data
        A fitted model, or another with ``predict_log_proba``; choice data, or a table that the model's schema reads.
    sets, seed
        Choice sets to draw, at most, and where all draws come from.
    orders
        Of sets of more than 10 alternatives, the highest order; what is above it is one figure.
    draws
        Of such sets, the terms of an order to draw for a pair, where it has more.
    top
        Terms of second order and above to return, the largest first.
    least
        Probability in the whole set below which an alternative is in no pair: the log-odds of two that nobody chooses
        may change much and mean nothing. It still acts on others.

    Raises
    ------
    InputError
        When no set has two alternatives that are probable enough, or the model gives probabilities of 0.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 1, 2, 2, 2], "took": [1, 0, 0, 0, 1, 0], "cost": [2, 4, 3, 5, 3, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> found = order_effects(MNL().fit(data), data)
    >>> found[1].share, bool(found[2].contribution < 1e-10)
    (1.0, True)
    """
    require_sampling(sets=sets, seed=seed, draws=draws, top=top)
    require_number("orders", orders, whole=True, low=1, high=6)
    require_number("draws", draws, whole=True, low=2)
    require_number("least", least, low=0, high=1, open_high=True)
    data = require_data(model, data)
    rng = np.random.default_rng(seed)
    found = []
    for position in draw_sets(data, least=2, most=sets, rng=rng).tolist():
        pairs = _pairs(model, data, position, least, rng)
        if not len(pairs):
            continue
        if data.sizes[position] <= MAX_EXACT_ALTERNATIVES:
            found.append(exact_terms(model, data, position, pairs, top))
        else:
            found.append(sampled_terms(model, data, position, pairs, top, orders=orders, draws=draws, rng=rng))
    if not found:
        raise InputError(
            f"expected a choice set of a weight above 0 with two alternatives whose probabilities are at least "
            f"{least:g}, got none among {min(sets, len(data))} sets: lower least, or draw more sets."
        )
    sampled = sum(not each.exact for each in found)
    notes = [] if (unseen := extrapolation_warning(model, data)) is None else [unseen]
    if sampled:
        notes.insert(
            0,
            f"{sampled} of the sets have more than {MAX_EXACT_ALTERNATIVES} alternatives: {PAIRS_PER_LARGE_SET} pairs of each, and {draws} terms of "
            f"an order that has more, were drawn. Sampling errors are those of a pair's sum.",
        )
    return OrderEffects(
        model=type(model).__name__,
        orders=_orders(found, orders if sampled else max(each.sums.shape[1] for each in found)),
        terms=_largest(data, found, top),
        sets=len(found),
        sampled=sampled,
        pairs=sum(len(each.pairs) for each in found),
        questions=sum(each.questions for each in found),
        seed=seed,
        notes=tuple(notes),
    )


def _pairs(model: Predictor, data: ChoiceData, position: int, least: float, rng: np.random.Generator) -> Ints:
    """Return pairs (P, 2) of places of alternatives that are probable enough, some of them where sets are large."""
    p = np.exp(predicted_log_p(model, data.subset([position])))
    fit = places_in_set(data, position)[p >= least]
    pairs = np.stack(np.triu_indices(len(fit), 1), 1)
    if data.sizes[position] > MAX_EXACT_ALTERNATIVES:
        pairs = pairs[np.sort(rng.permutation(len(pairs))[:PAIRS_PER_LARGE_SET])]
    found: Ints = fit[pairs]
    return found


def _orders(found: Sequence[SetTerms], last: int) -> tuple[OrderRow, ...]:
    """Sum up by order, up to the last one that all sets tell apart; what is above is one row, if there is any."""
    weight = np.concatenate([np.full(len(each.pairs), 1 / len(each.pairs)) for each in found]) / len(found)  # (P,)
    log_odds = np.concatenate([each.log_odds for each in found])
    sums, errors = (np.concatenate([_wide(getattr(each, name), last) for each in found]) for name in ("sums", "errors"))
    sizes, counts = (sum(_wide(getattr(each, name)[None], last)[0] for each in found) for name in ("sizes", "counts"))
    names = [str(order) for order in range(1, last + 1)]
    if not all(each.exact for each in found):  # the rest is what is missing
        sums = np.column_stack([sums, log_odds - sums.sum(1)])
        errors = np.column_stack([errors, np.sqrt((errors**2).sum(1))])
        sizes, counts, names = np.append(sizes, 0.0), np.append(counts, 0), [*names, f"above {last}"]
    contribution = weight @ np.abs(sums)
    whole, variance = float(contribution.sum()), float(weight @ log_odds**2)
    missing = weight @ (log_odds[:, None] - sums.cumsum(1)) ** 2
    return tuple(
        OrderRow(
            order=name,
            terms=int(counts[k]),
            term_size=float(sizes[k] / max(counts[k], 1)),
            contribution=float(contribution[k]),
            share=float(contribution[k] / whole) if whole > 0 else 0.0,
            explained=float(1 - missing[k] / variance) if variance > 0 else 1.0,
            error=float(np.sqrt(weight @ errors[:, k] ** 2)),
        )
        for k, name in enumerate(names)
    )


def _wide(values: Any, width: int) -> Any:
    """Cut or pad the orders (., K) to a common number."""
    return np.pad(values[:, :width], ((0, 0), (0, max(width - values.shape[1], 0))))


def _largest(data: ChoiceData, found: Sequence[SetTerms], top: int) -> tuple[ContextTerm, ...]:
    terms = [(value, each.pairs[p], group) for each in found for value, p, group in each.largest]
    terms.sort(key=lambda term: -abs(term[0]))
    return tuple(
        ContextTerm(
            choice_set=set_id_of(data, int(i)),
            i=alternative_name(data, int(i)),
            k=alternative_name(data, int(k)),
            others=tuple(alternative_name(data, place) for place in group),
            value=value,
        )
        for value, (i, k), group in terms[:top]
    )
