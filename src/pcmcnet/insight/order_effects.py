"""Context effects by order: the log-odds of two alternatives, decomposed by how many others act on them jointly.

    log P(i | S) / P(k | S)  =  preference of the pair alone                    order 1: the whole log-odds of a logit
                              + effect of each single other alternative         order 2: the last order of a CDM
                              + joint effect of two others beyond single ones   order 3
                              + ...

The decomposition needs only the choice probabilities that the model predicts for subsets of a set.
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
from pcmcnet.checks import require_number, require_word, suggests_arguments
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
from pcmcnet.reports.formats import FormatsMixin, ResultContent, ToDictMixin
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import Cells, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- Order terms -------------------------------------------------------------------------------------------------------
# Log-odds of two alternatives -> the contribution of each group of others, by Möbius inversion over subsets.
#
# For two alternatives i and k of a set S, offered with others A out of S - {i, k}:
#
#     v(A)  = log P(i | A + {i, k}) - log P(k | A + {i, k})
#     mu(T) = sum over A within T of (-1)^(|T| - |A|) v(A)            so that  v(S - {i, k}) = sum over all T of mu(T)
#
# mu of the empty set is the preference of the pair alone, the term of first order. mu(T) for one other alternative is
# its effect, of second order; for two it is their joint effect beyond the two single ones, and so on: the order is
# |T| + 1. A set of n alternatives has orders up to n - 1, and 2^(n - 2) terms for each pair.
#
# All terms of small sets are computed. In larger sets pairs are sampled, and also terms if an order has too many: the
# mean of the sampled terms times the number of terms estimates their sum, and their standard deviation gives its
# standard error. Orders above the highest one requested are not distinguished. Shapes: P pairs, K orders, m = n - 2
# others.

MAX_EXACT_ALTERNATIVES = 10  # in a larger set, terms are sampled; all subsets of a set of 10 are 1,013 predictions
PAIRS_PER_LARGE_SET = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class SetTerms:
    """Terms of the decomposition of one choice set, summed by order."""

    pairs: Ints  # (P, 2) places of i and k
    log_odds: Floats  # (P,) in the whole set
    sums: Floats  # (P, K) sum of the terms of each order
    errors: Floats  # (P, K) standard errors of these sums; 0 if all terms were computed
    sizes: Floats  # (K,) sum of |mu| over the computed terms
    counts: Ints  # (K,) number of computed terms
    largest: tuple[tuple[float, int, tuple[int, ...]], ...]  # largest of order 2 and above: mu, pair index, places of T
    exact: bool  # True if all terms were computed
    questions: int  # number of choice sets predicted


def moebius(values: Floats) -> Floats:  # (P, 2^m) -> (P, 2^m)
    """Compute the Möbius transform mu of v for every subset.

    Bit b of a column index is set if the subset contains alternative b.
    """
    terms = values.copy()
    width = 1
    while width < values.shape[1]:
        halves = terms.reshape(len(terms), -1, 2, width)  # a view: assignments change terms
        halves[:, :, 1] -= halves[:, :, 0]
        width *= 2
    return terms


def exact_terms(model: Predictor, data: ChoiceData, position: int, pairs: Ints, top: int) -> SetTerms:
    """Compute all terms of a set of up to MAX_EXACT_ALTERNATIVES alternatives."""
    # 1. Predict every subset of at least two alternatives; bit b of its index is set if it contains b.
    inside = places_in_set(data, position)
    n, low = len(inside), int(inside[0])
    subsets = np.arange(2**n)
    holds = (subsets[:, None] >> np.arange(n)) & 1 == 1  # (2^n, n)
    predicted = subsets[holds.sum(1) >= 2]
    log_p: Floats = np.full((2**n, n), np.nan)
    log_p[holds & (holds.sum(1) >= 2)[:, None]] = predict_sets(
        model, data, [inside[holds[subset]] for subset in predicted], np.full(len(predicted), position)
    )
    # 2. Compute v of each pair with every subset of the others, then mu.
    others = np.array([[j for j in range(n) if j not in pair] for pair in (pairs - low).tolist()], np.int64)
    bits = (np.arange(2 ** (n - 2))[:, None] >> np.arange(n - 2)) & 1  # (2^m, m)
    i, k = (pairs - low).T[:, :, None]
    subset = (1 << others) @ bits.T + (1 << i) + (1 << k)  # (P, 2^m)
    with np.errstate(invalid="ignore"):  # require_finite_odds raises if a value is infinite
        odds = require_finite_odds(log_p[subset, i] - log_p[subset, k], model, data, low)
    terms, order = moebius(odds), bits.sum(1)
    # 3. Sum by order, and find the largest terms of second order and above.
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
        questions=len(predicted),
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
    """Estimate the terms of a large set from up to ``draws`` groups T for each of the first ``orders`` orders."""
    # 1. Draw the groups T of each pair and order.
    inside = places_in_set(data, position)
    drawn: list[tuple[int, tuple[int, ...]]] = []  # index of the pair, T
    for p, pair in enumerate(pairs):
        others = inside[~np.isin(inside, pair)]
        drawn += [(p, group) for t in range(orders) for group in _groups(others, t, draws, rng)]
    # 2. Predict the whole set, and every pair with each subset of its groups, once.
    index = {tuple(inside.tolist()): 0}
    for p, group in drawn:
        for subset in _subsets(group):
            index.setdefault((*pairs[p].tolist(), *subset), len(index))
    sets = list(index)
    log_p = predict_sets(model, data, [np.sort(places) for places in sets], np.full(len(sets), position))
    starts = np.cumsum([0, *map(len, sets)])

    def odds(places: tuple[int, ...], pair: Ints) -> float:
        i, k = starts[index[places]] + np.searchsorted(np.sort(places), pair)
        return float(log_p[i]) - float(log_p[k])  # Python floats: inf - inf gives no numpy warning

    # 3. Compute mu(T) of each group by its definition.
    whole = np.array([odds(sets[0], pair) for pair in pairs])
    terms = np.array([
        sum((-1) ** (len(group) - len(part)) * odds((*pairs[p].tolist(), *part), pairs[p]) for part in _subsets(group))
        for p, group in drawn
    ])  # fmt: skip
    require_finite_odds(np.append(terms, whole), model, data, int(inside[0]))
    # 4. Estimate the sum of each pair and order: the mean of the sampled terms times the number of terms.
    owner, order = np.array([p for p, _ in drawn]), np.array([len(group) for _, group in drawn])
    sums, errors = np.zeros((2, len(pairs), orders))
    for p in range(len(pairs)):
        for t in range(orders):
            sample, number = terms[(owner == p) & (order == t)], math.comb(len(inside) - 2, t)
            sums[p, t] = number * sample.mean()
            if len(sample) < number:
                errors[p, t] = number * sample.std(ddof=1) / math.sqrt(len(sample))
    # 5. Find the largest terms of second order and above.
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
        questions=len(sets),
    )


def require_finite_odds(odds: Floats, model: Predictor, data: ChoiceData, place: int) -> Floats:
    """Return the log-odds, or raise InputError if a probability of 0 makes the log-odds infinite."""
    if not np.isfinite(odds).all():
        raise InputError(
            f"choice set {set_id_of(data, place)}: {type(model).__name__} gives an alternative probability 0 in a "
            f"subset of the set, so the log-odds are infinite: use a model with positive probabilities."
        )
    return odds


def _groups(others: Ints, size: int, draws: int, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """Yield all groups of the given size, or ``draws`` random groups if there are more than ``draws`` groups."""
    if math.comb(len(others), size) <= draws:
        yield from combinations(others.tolist(), size)
        return
    for _ in range(draws):
        yield tuple(np.sort(rng.choice(others, size, replace=False)).tolist())


def _subsets(group: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all subsets of a group, starting with the empty set."""
    for size in range(len(group) + 1):
        yield from combinations(group, size)


# -- Order effects -----------------------------------------------------------------------------------------------------

OrderView = Literal["orders", "terms"]


@dataclass(frozen=True, slots=True)
class OrderRow(ToDictMixin):
    """Contribution of one order to the log-odds, averaged over pairs. Every set has the same weight.

    Attributes
    ----------
    order
        Name of the order: "1", "2", and so on, or for example "above 3" for all higher orders combined.
    terms
        Number of terms that were computed.
    term_size
        Mean absolute value of the computed terms.
    contribution
        Mean absolute value of the sum of the terms of this order.
    share
        Contribution of this order as a share of the sum over all orders.
    explained
        Share of the variance of the log-odds explained by this order and all lower orders.
    error
        Root mean square of the sampling error of the sum of the terms (0 if all terms were computed).
    """

    order: str
    terms: int
    term_size: float
    contribution: float
    share: float
    explained: float
    error: float


@dataclass(frozen=True, slots=True)
class ContextTerm(ToDictMixin):
    """Joint effect of a group of other alternatives on log P(i) / P(k), beyond the effects of its subgroups.

    Attributes
    ----------
    choice_set
        Id of the choice set.
    i, k
        Names of the two alternatives that are compared.
    others
        Names of the other alternatives, which act jointly on i and k.
    value
        The term mu.
    """

    choice_set: Any
    i: str
    k: str
    others: tuple[str, ...]
    value: float
    _derived = ("order",)

    @property
    def order(self) -> int:
        """Order of the term: the number of other alternatives plus one."""
        return len(self.others) + 1

    def __str__(self) -> str:
        verb = "jointly add" if len(self.others) > 1 else "adds"
        effect = f"{' and '.join(self.others)} {verb} {self.value:+.3f} to log P({self.i}) / P({self.k})"
        return f"choice set {self.choice_set}: {effect}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OrderEffects(ToDictMixin, FormatsMixin):
    """Result of :func:`order_effects`. ``print(effects)`` shows a table, and ``effects[2]`` is the row of order 2.

    Attributes
    ----------
    model
        Name of the model class.
    orders
        One row per order.
    terms
        The largest terms of second and higher order, in descending order of size.
    sets
        Number of choice sets examined.
    sampled
        Number of sets whose terms were sampled.
    pairs
        Number of pairs of alternatives examined.
    questions
        Number of choice sets predicted.
    seed
        Seed for the draws.
    notes
        Notes on the interpretation of the figures.
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
        return (
            f"OrderEffects({self.model}, first-order terms explain {percent(self.orders[0].explained)} of the variance)"
        )

    def __getitem__(self, order: int) -> OrderRow:
        """Return the row of an order, counted from 1."""
        for row in self.orders:
            if row.order == str(order):
                return row
        raise InputError(f"order: expected one of {', '.join(row.order for row in self.orders)}, got {order!r}.")

    def to_frame(self, what: OrderView = "orders") -> Any:
        """Return a pandas data frame.

        Parameters
        ----------
        what
            "orders" (the default) for one row per order, or "terms" for one row for each of the largest terms.
        """
        require_word("what", what, ("orders", "terms"))
        return data_frame(pa.Table.from_pylist(self.to_dict()[what]), instead="to_dict()")

    def plot(self, what: OrderView = "orders", *, ax: Axes | None = None) -> Axes:
        """Draw the contributions of the orders, or the largest terms.

        Parameters
        ----------
        what
            What to draw: "orders" (the default) or "terms".
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.

        Returns
        -------
        Axes
            The matplotlib Axes.
        """
        from pcmcnet.plots.context import plot_order_effects

        require_word("what", what, ("orders", "terms"))
        return plot_order_effects(self, ax, what=what)

    @property
    def cells(self) -> Cells:
        """Cells of the table of orders, including the header row."""
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
            "examined": f"{self.sets:,} choice sets, {self.pairs:,} pairs of alternatives",
            "predicted": f"{self.questions:,} choice sets, seed {self.seed}",
        }
        title, largest = f"Order of context effects: {self.model}", [f"Largest: {term}." for term in self.terms[:3]]
        return ResultContent(title=title, cells=self.cells, facts=facts, notes=(*largest, *self.notes))


@suggests_arguments()
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
    """Decompose the log-odds of pairs of alternatives by the number of others that act on them jointly.

    All terms are computed in sets of up to 10 alternatives. In larger sets, 20 pairs are sampled, and so are the terms
    of every order with more than ``draws`` terms. Figures from sampled terms have standard errors.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    sets
        Maximum number of choice sets to draw (20 by default).
    seed
        Seed for all draws (0 by default).
    orders
        Highest order to distinguish in sets with more than 10 alternatives, from 1 to 6 (3 by default). Higher orders
        are combined in one row.
    draws
        Maximum number of terms to sample per pair and order in sets with more than 10 alternatives (50 by default).
    top
        Number of the largest terms of second and higher order to return (10 by default).
    least
        Minimum probability of the alternatives in a pair (0.01 by default). Less probable alternatives still act on
        others. The log-odds of two alternatives that are hardly ever chosen can change a lot without any practical
        meaning.

    Returns
    -------
    OrderEffects
        Contributions by order, and the largest terms.

    Raises
    ------
    InputError
        If no set has two alternatives with a probability of at least ``least``, or the model predicts probabilities of
        0.
    ConfigError
        If a number is out of range.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 1, 2, 2, 2], "took": [1, 0, 0, 0, 1, 0], "cost": [2, 4, 3, 5, 3, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> effects = order_effects(MNL().fit(data), data)
    >>> effects[1].share, bool(effects[2].contribution < 1e-10)
    (1.0, True)
    """
    require_sampling(sets=sets, seed=seed, draws=draws, top=top)
    require_number("orders", orders, whole=True, low=1, high=6)
    require_number("draws", draws, whole=True, low=2)
    require_number("least", least, low=0, high=1, open_high=True)
    data = require_data(model, data)
    rng = np.random.default_rng(seed)
    set_terms = []
    for position in draw_sets(data, least=2, most=sets, rng=rng).tolist():
        pairs = _pairs(model, data, position, least, rng)
        if not len(pairs):
            continue
        if data.sizes[position] <= MAX_EXACT_ALTERNATIVES:
            set_terms.append(exact_terms(model, data, position, pairs, top))
        else:
            set_terms.append(sampled_terms(model, data, position, pairs, top, orders=orders, draws=draws, rng=rng))
    if not set_terms:
        raise InputError(
            f"expected a choice set with a positive weight and two alternatives with probabilities of at least "
            f"{least:g}, found none among {min(sets, len(data))} sets: lower least, or draw more sets."
        )
    sampled = sum(not terms.exact for terms in set_terms)
    notes = [] if (warning := extrapolation_warning(model, data)) is None else [warning]
    if sampled:
        notes.insert(
            0,
            f"In {sampled} sets with more than {MAX_EXACT_ALTERNATIVES} alternatives, {PAIRS_PER_LARGE_SET} pairs per "
            f"set and up to {draws} terms per pair and order were sampled. Sampling errors are for a single pair.",
        )
    return OrderEffects(
        model=type(model).__name__,
        orders=_orders(set_terms, orders if sampled else max(terms.sums.shape[1] for terms in set_terms)),
        terms=_largest(data, set_terms, top),
        sets=len(set_terms),
        sampled=sampled,
        pairs=sum(len(terms.pairs) for terms in set_terms),
        questions=sum(terms.questions for terms in set_terms),
        seed=seed,
        notes=tuple(notes),
    )


def _pairs(model: Predictor, data: ChoiceData, position: int, least: float, rng: np.random.Generator) -> Ints:
    """Return the flat indices (P, 2) of pairs of sufficiently probable alternatives, sampled if the set is large."""
    p = np.exp(predicted_log_p(model, data.subset([position])))
    probable = places_in_set(data, position)[p >= least]
    pairs = np.stack(np.triu_indices(len(probable), 1), 1)
    if data.sizes[position] > MAX_EXACT_ALTERNATIVES:
        pairs = pairs[np.sort(rng.permutation(len(pairs))[:PAIRS_PER_LARGE_SET])]
    places: Ints = probable[pairs]
    return places


def _orders(set_terms: Sequence[SetTerms], last: int) -> tuple[OrderRow, ...]:
    """Summarise the terms by order, up to ``last``. If terms were sampled, one more row combines all higher orders."""
    # 1. Collect the sums of all pairs; every set has the same total weight.
    weight = np.concatenate([np.full(len(terms.pairs), 1 / len(terms.pairs)) for terms in set_terms]) / len(
        set_terms
    )  # (P,)
    log_odds = np.concatenate([terms.log_odds for terms in set_terms])
    sums, errors = (
        np.concatenate([_wide(getattr(terms, name), last) for terms in set_terms]) for name in ("sums", "errors")
    )
    sizes, counts = (
        sum(_wide(getattr(terms, name)[None], last)[0] for terms in set_terms) for name in ("sizes", "counts")
    )
    names = [str(order) for order in range(1, last + 1)]
    # 2. With sampled terms, the remainder of the log-odds belongs to the higher orders.
    if not all(terms.exact for terms in set_terms):
        sums = np.column_stack([sums, log_odds - sums.sum(1)])
        errors = np.column_stack([errors, np.sqrt((errors**2).sum(1))])
        sizes, counts, names = np.append(sizes, 0.0), np.append(counts, 0), [*names, f"above {last}"]
    # 3. Contribution of each order, and the variance explained up to it.
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
    """Truncate or pad an array (., K) of orders to a common width."""
    return np.pad(values[:, :width], ((0, 0), (0, max(width - values.shape[1], 0))))


def _largest(data: ChoiceData, set_terms: Sequence[SetTerms], top: int) -> tuple[ContextTerm, ...]:
    """Return the largest terms of all sets."""
    terms = [(value, each.pairs[p], group) for each in set_terms for value, p, group in each.largest]
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
