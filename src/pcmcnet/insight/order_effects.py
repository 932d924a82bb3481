"""How far context goes in a fitted model: log-odds of two alternatives by how many others act on them together.

    log P(i | S) / P(k | S)  =  preference of the pair alone              order 1: all there is in a logit
                              + what each single other adds               order 2: all there is in a CDM
                              + what two others add only together         order 3
                              + ...

See ``order_terms`` for how terms are computed. All that is asked of a model are its probabilities in subsets of a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, predicted_log_p, require_data
from pcmcnet.insight.alternative_names import name_of
from pcmcnet.insight.availability import extrapolation
from pcmcnet.insight.order_terms import EXACT, PAIRS, SetTerms, exact_terms, sampled_terms
from pcmcnet.insight.questions import id_of, members, require_sampling, some_sets
from pcmcnet.reports.data_frames import data_frame
from pcmcnet.reports.formats import InEveryFormat, Printed
from pcmcnet.reports.tables import Cells, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

What = Literal["orders", "terms"]


@dataclass(frozen=True, slots=True)
class Order:
    """What the terms of one order make of the log-odds, on average over pairs; sets count alike."""

    order: str  # "1", "2", ..., or "above 3" where terms above were not told apart
    terms: int  # that were computed
    term_size: float  # mean |mu| of these
    contribution: float  # mean |sum of the order's terms|
    share: float  # of the contributions of all orders
    explained: float  # share of the variance of log-odds that this order and those below give
    error: float  # standard error of a sum, by sampling (root of the mean square); 0 where no term was left out


@dataclass(frozen=True, slots=True)
class Term:
    """One term: what a group of others does to log P(i) / P(k), beyond what smaller groups of them do."""

    choice_set: Any  # its id
    i: str
    k: str
    others: tuple[str, ...]
    value: float

    @property
    def order(self) -> int:
        """Number of the others, plus one."""
        return len(self.others) + 1

    def __str__(self) -> str:
        together = " together" if len(self.others) > 1 else ""
        return (
            f"choice set {self.choice_set}: {' and '.join(self.others)}{together} {_verb(self.others)} "
            f"{self.value:+.3f} to log P({self.i}) / P({self.k})"
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OrderEffects(InEveryFormat):
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
    orders: tuple[Order, ...]
    terms: tuple[Term, ...]
    sets: int
    sampled: int
    pairs: int
    questions: int
    seed: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        first = self.orders[0]
        return f"OrderEffects({self.model}, {percent(first.explained)} of the variance by the first order)"

    def __getitem__(self, order: int) -> Order:
        """Return the row of an order, from 1 on."""
        for row in self.orders:
            if row.order == str(order):
                return row
        raise InputError(f"no order {order!r}: there are {', '.join(row.order for row in self.orders)}.")

    def to_frame(self, what: What = "orders") -> Any:
        """Return a pandas data frame with a row for each of the "orders", or of the largest "terms"."""
        require_word("what", what, ("orders", "terms"))
        if what == "terms":
            rows = [{**asdict(term), "others": list(term.others), "order": term.order} for term in self.terms]
        else:
            rows = [asdict(row) for row in self.orders]
        return data_frame(pa.Table.from_pylist(rows), instead="to_dict()")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        names = ("model", "sets", "sampled", "pairs", "questions", "seed")
        return {
            **{name: getattr(self, name) for name in names},
            "orders": [asdict(row) for row in self.orders],
            "terms": [{**asdict(term), "others": list(term.others), "order": term.order} for term in self.terms],
            "notes": list(self.notes),
        }

    def plot(self, what: What = "orders", *, ax: Axes | None = None) -> Axes:
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

    def _printed(self) -> Printed:
        facts = {
            "looked at": f"{self.sets:,} choice sets, {self.pairs:,} pairs of alternatives",
            "asked about": f"{self.questions:,} choice sets, seed {self.seed}",
        }
        largest = [f"Largest: {term}." for term in self.terms[:3]]
        return Printed(
            title=f"Order of context effects: {self.model}",
            cells=self.cells,
            facts=facts,
            notes=(*largest, *self.notes),
        )


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
    model
        Any fitted model; also an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that the model's schema reads; choices are not needed.
    sets
        Choice sets to draw, at most.
    seed
        Where all draws come from.
    orders
        Of sets of more than 10 alternatives, the highest order; what is above it is one figure.
    draws
        Of such sets, the terms of an order to draw for a pair, where it has more.
    top
        Terms of second order and above to return, the largest first.
    least
        Probability in the whole set below which an alternative is in no pair: the log-odds of two that nobody chooses
        may change much and mean nothing. It still acts on others.

    Returns
    -------
    OrderEffects

    Raises
    ------
    InputError
        When no set has two alternatives that are probable enough, or the model gives probabilities of 0.
    ConfigError
        When a number is out of its range.

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
    for position in some_sets(data, least=2, most=sets, rng=rng).tolist():
        pairs = _pairs(model, data, position, least, rng)
        if not len(pairs):
            continue
        if data.sizes[position] <= EXACT:
            found.append(exact_terms(model, data, position, pairs, top))
        else:
            found.append(sampled_terms(model, data, position, pairs, top, orders=orders, draws=draws, rng=rng))
    if not found:
        raise InputError(
            f"expected a choice set of a weight above 0 with two alternatives whose probabilities are at least "
            f"{least:g}, got none among {min(sets, len(data))} sets: lower least, or draw more sets."
        )
    sampled = sum(not each.exact for each in found)
    notes = [] if (unseen := extrapolation(model, data)) is None else [unseen]
    if sampled:
        notes.insert(
            0,
            f"{sampled} of the sets have more than {EXACT} alternatives: {PAIRS} pairs of each, and {draws} terms of "
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
    fit = members(data, position)[p >= least]
    pairs = np.stack(np.triu_indices(len(fit), 1), 1)
    if data.sizes[position] > EXACT:
        pairs = pairs[np.sort(rng.permutation(len(pairs))[:PAIRS])]
    found: Ints = fit[pairs]
    return found


def _orders(found: Sequence[SetTerms], last: int) -> tuple[Order, ...]:
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
        Order(
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


def _largest(data: ChoiceData, found: Sequence[SetTerms], top: int) -> tuple[Term, ...]:
    terms = [(value, each.pairs[p], group) for each in found for value, p, group in each.largest]
    terms.sort(key=lambda term: -abs(term[0]))
    return tuple(
        Term(
            choice_set=id_of(data, int(i)),
            i=name_of(data, int(i)),
            k=name_of(data, int(k)),
            others=tuple(name_of(data, place) for place in group),
            value=value,
        )
        for value, (i, k), group in terms[:top]
    )


def _verb(others: Sequence[str]) -> str:
    return "add" if len(others) > 1 else "adds"
