"""Choosers and a catalogue with known choice probabilities: a chain whose rates have r factors.

Item j has a price, a quality, a style, a department and a place. Chooser I has an income, an age and a home. The chain
leaves item i for item j at the rate

    q_ij = sum_k u_ik v_jk,   log u_ik = a_k . x_i + A_k[department of i],
                              log v_jk = w_j + b_k . x_j + B_k[department of j],

where x_j = (price, quality, style) and w_j is the utility of the item for the chooser, which depends on price, income,
quality and the distance between home and place. The factors are submarkets, and at rank 1 the choices follow a
multinomial logit with utility log v - log u. The choice probabilities are the stationary distribution, computed exactly
from a chain with r states: with V_k = sum_j v_jk and d_i = sum_k u_ik V_k,

    pi_i = sum_k v_ik c_k / d_i,   c = M c,   M_kl = sum_i u_ik v_il / d_i.

Choosers may be offered only a part of the catalogue (``assortments``). Offers that differ identify context effects: if
all choosers have the same choice set, a logit with a flexible utility fits as well as a chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
from pcmcnet.datasets.truth import require_seed, require_sets

__all__ = ["ITEM_COLUMNS", "CatalogueTruth", "distance", "random_catalogue"]

DEPARTMENTS = ("books", "clothes", "food", "garden", "music", "toys")
ITEM_COLUMNS = ("price", "quality", "style", "department")
"""Columns of the catalogue that describe an item, apart from its place."""

MIN_SHARE = 0.1  # least share of a department that an assortment contains
PAIRS_PER_BLOCK = 2**20  # pairs of a chooser and an item whose probabilities are computed at a time


def distance(choosers: Mapping[str, NDArray[Any]], items: Mapping[str, NDArray[Any]]) -> Floats:
    """Return the distance between the home of each chooser and the place of each item.

    Parameters
    ----------
    choosers, items : mapping of arrays
        Columns ``east`` and ``north`` of the choosers, and ``item_east`` and ``item_north`` of the items.

    Returns
    -------
    array of float
    """
    km: Floats = np.hypot(choosers["east"] - items["item_east"], choosers["north"] - items["item_north"])
    return km


@dataclass(frozen=True, eq=False)
class CatalogueTruth:
    """A catalogue and the chain that choosers follow, with known probabilities.

    Attributes
    ----------
    catalogue : pyarrow.Table
        One row per item: ``id``, ``price``, ``quality``, ``style``, ``department``, ``item_east``, ``item_north``.
    leave, enter : array of float, (r, 3 + 6)
        Weights of log u and log v for price, quality, style and the six departments.
    """

    catalogue: pa.Table
    leave: Floats
    enter: Floats

    @property
    def rank(self) -> int:
        """Number of factors r."""
        return len(self.leave)

    def simulate(self, choosers: int, *, seed: int, assortments: int = 0) -> pa.Table:
        """Simulate choosers and their choices.

        Parameters
        ----------
        choosers : int
            Number of choosers.
        seed : int
            Seed of the random number generator, at least 0.
        assortments : int
            Number of different assortments, each of which contains a random share of each department. Each chooser is
            offered one of them. If 0 (default), every chooser is offered the whole catalogue.

        Returns
        -------
        pyarrow.Table
            One row per chooser: ``item`` (the id of the chosen item), ``income``, ``age``, ``east``, ``north`` and,
            with assortments, the list ``offered`` of the ids of the items on offer.

        Raises
        ------
        ConfigError
            If an argument is out of range.
        """
        n, rng = require_sets(choosers), np.random.default_rng(require_seed(seed))
        require_number("assortments", assortments, whole=True, low=0)
        income, age = rng.standard_normal(n), rng.standard_normal(n)
        east, north = rng.random(n), rng.random(n)
        columns: dict[str, Any] = {"income": income, "age": age, "east": east, "north": north}
        if assortments:
            offers = self._random_assortments(assortments, rng)
            lists = [np.flatnonzero(offer) for offer in offers]
            number = rng.integers(assortments, size=n)
            columns["offered"] = pa.array([lists[k] for k in number], pa.list_(pa.int64()))
        table = pa.table(columns)
        # draw from each chooser's probabilities by inversion
        draws, chosen, begin = rng.random(n), np.empty(n, np.int64), 0
        for block in self._blocks(table):
            p = self.probabilities(block)
            below = np.cumsum(p, axis=1) <= draws[begin : begin + len(p), None]
            chosen[begin : begin + len(p)] = np.minimum(below.sum(1), p.shape[1] - 1)
            begin += len(p)
        return table.add_column(0, "item", pa.array(chosen))

    def _random_assortments(self, count: int, rng: np.random.Generator) -> Bools:  # -> (count, n)
        departments = np.array([DEPARTMENTS.index(name) for name in self.catalogue["department"].to_pylist()])
        shares = rng.uniform(MIN_SHARE, 1, (count, len(DEPARTMENTS)))
        offers: Bools = rng.random((count, len(departments))) < shares[:, departments]
        offers[:, rng.integers(len(departments))] = True  # no assortment is empty
        return offers

    def _blocks(self, choosers: pa.Table) -> list[pa.Table]:
        rows = max(PAIRS_PER_BLOCK // self.catalogue.num_rows, 1)
        return [choosers.slice(begin, rows) for begin in range(0, choosers.num_rows, rows)]

    def probabilities(self, choosers: pa.Table) -> Floats:
        """Return the true choice probabilities of some choosers.

        Parameters
        ----------
        choosers : pyarrow.Table
            Choosers, as returned by :meth:`simulate`.

        Returns
        -------
        array of float, (S, n)
            Probability of each item of the catalogue, which is 0 for items that are not on offer.
        """
        if choosers.num_rows * self.catalogue.num_rows > PAIRS_PER_BLOCK and choosers.num_rows > 1:
            return np.concatenate([self.probabilities(block) for block in self._blocks(choosers)])
        utility, x = self._utility(choosers), self._inputs()
        if "offered" in choosers.column_names:
            offered = np.zeros(utility.shape, bool)
            for row, ids in enumerate(choosers["offered"].to_pylist()):
                offered[row, ids] = True
            utility = np.where(offered, utility, -np.inf)
        return chain_shares(utility, x @ self.leave.T, x @ self.enter.T)

    def log_factors(self, choosers: pa.Table) -> tuple[Floats, Floats]:
        """Return log u and log v of all pairs of a chooser and an item.

        Parameters
        ----------
        choosers : pyarrow.Table
            Choosers, as returned by :meth:`simulate`.

        Returns
        -------
        tuple of arrays, (S, n, r)
        """
        utility, x = self._utility(choosers), self._inputs()
        log_u = np.broadcast_to(x @ self.leave.T, (*utility.shape, self.rank))
        return log_u, utility[:, :, None] + x @ self.enter.T

    def _utility(self, choosers: pa.Table) -> Floats:  # -> (S, n)
        """Return the utility w of each item for each chooser."""
        items = {name: self.catalogue[name].to_numpy() for name in ("price", "quality", "item_east", "item_north")}
        person = {name: choosers[name].to_numpy()[:, None] for name in ("income", "east", "north")}
        utility: Floats = items["quality"] - np.exp(-0.5 * person["income"]) * items["price"]
        return utility - 2.0 * distance(person, items)

    def _inputs(self) -> Floats:  # -> (n, 3 + 6)
        """Return price, quality and style, and a dummy for each department."""
        numbers = np.column_stack([self.catalogue[name].to_numpy() for name in ("price", "quality", "style")])
        departments = np.array(self.catalogue["department"].to_pylist())
        return np.hstack([numbers, departments[:, None] == np.array(DEPARTMENTS)])


def random_catalogue(items: int = 10_000, *, rank: int = 4, context: float = 1.0, seed: int = 0) -> CatalogueTruth:
    """Draw a catalogue and a chain of the given rank.

    Parameters
    ----------
    items : int
        Number of items. Default 10,000.
    rank : int
        Number of factors of the rates. Default 4. With rank 1, choices follow a multinomial logit.
    context : float
        Standard deviation of the weights of the factors, which sets the strength of the context effects. Default 1.
    seed : int
        Seed of the random number generator, at least 0. Default 0.

    Returns
    -------
    CatalogueTruth

    Raises
    ------
    ConfigError
        If an argument is out of range.

    Examples
    --------
    >>> truth = random_catalogue(items=50, rank=4, seed=1)
    >>> choosers = truth.simulate(3, seed=2)
    >>> choosers.column_names
    ['item', 'income', 'age', 'east', 'north']
    >>> truth.probabilities(choosers).shape
    (3, 50)
    """
    require_number("items", items, whole=True, low=2)
    require_number("rank", rank, whole=True, low=1)
    require_number("context", context, low=0)
    rng = np.random.default_rng(require_seed(seed))
    catalogue = pa.table(
        {
            "id": np.arange(items),
            "price": rng.lognormal(0.0, 0.4, items),
            "quality": rng.standard_normal(items),
            "style": rng.standard_normal(items),
            "department": [DEPARTMENTS[k] for k in rng.integers(len(DEPARTMENTS), size=items)],
            "item_east": rng.random(items),
            "item_north": rng.random(items),
        }
    )
    width = 3 + len(DEPARTMENTS)
    leave, enter = rng.normal(0.0, context, (2, rank, width))
    return CatalogueTruth(catalogue, leave, enter)


def chain_shares(utility: Floats, log_u: Floats, log_v: Floats) -> Floats:  # (S, n), (n, r), (n, r) -> (S, n)
    """Return the stationary distributions of the chains with the rates sum_k u_ik v_jk exp(w_Sj) of each chooser S.

    The factors u and v are the same for all choosers, so the sums over items are products of matrices.

    Parameters
    ----------
    utility : array of float, (S, n)
        Utility w of each item for each chooser, or -inf if the item is not on offer.
    log_u, log_v : array of float, (n, r)
        Logarithms of the factors.

    Returns
    -------
    array of float, (S, n)
    """
    # 1. Scale the factors, which does not change the distribution.
    weight = np.exp(utility - utility.max(axis=1, keepdims=True))
    u, v = np.exp(log_u - log_u.max()), np.exp(log_v - log_v.max())
    # 2. The chain of the factors: from l to k with probability T_kl = V_k M_kl / V_l.
    total = weight @ v  # V (S, r)
    stays = weight / (total @ u.T)  # exp(w) / d (S, n)
    (n, r), products = u.shape, u[:, :, None] * v[:, None, :]
    m = (stays @ products.reshape(n, r * r)).reshape(-1, r, r)
    t = total[:, :, None] * m / total[:, None, :]
    # 3. Eliminate its states one by one, without subtractions (Grassmann, Taksar & Heyman, 1985).
    for k in range(r - 1, 0, -1):
        t[:, k, :k] /= t[:, :k, k].sum(1)[:, None]
        t[:, :k, :k] += t[:, :k, k, None] * t[:, None, k, :k]
    b = np.ones((len(t), r))
    for k in range(1, r):
        b[:, k] = np.einsum("sl,sl->s", t[:, k, :k], b[:, :k])
    # 4. The distribution over the items.
    p = stays * ((b / total) @ v.T)
    shares: Floats = p / p.sum(1, keepdims=True)
    return shares
