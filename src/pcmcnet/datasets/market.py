"""Simulated markets in which sellers set prices by a quality that is not in the table.

``simulate`` draws purchases of households: each chooses one of three products a, b and c. Product i of a purchase has a
cost c_i, an advertisement a_i and a quality q_i, which sellers and households know. The quality affects
price and utility, but has no role in the table:

    price_i = 3 + 0.6 c_i + 0.3 a_i + 0.5 q_i,
    U_i     = constant_i + PRICE price_i + ADVERTISING a_i + q_i + e_i,       e_i: standard Gumbel.

Without the quality, the price coefficient of a logit is about half of PRICE = -2: the price stands for quality too. The
cost is an instrument: it changes the price, but households do not see it. The residual of the price given cost and
advertisement is 0.5 q_i, so a logit with the residual is the true model, and the coefficient of the residual is 2.
Half of the variance of the quality is the same for all purchases of a household, which always sees the same shops.

``simulate_shares`` draws the sales of products in markets, such as cities in a month, for the same utility and prices,
where cost, advertisement and quality belong to product and market. Customers may also buy nothing, with utility e_0.

Shapes: long tables with one row per product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import softmax

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.datasets.truth import require_seed, require_sets

__all__ = ["ADVERTISING", "CONSTANTS", "PRICE", "RESIDUAL", "ROLES", "simulate", "simulate_shares"]

PRICE = -2.0
"""True price coefficient."""
ADVERTISING = 0.5
"""True coefficient of the advertisement."""
RESIDUAL = 2.0
"""Coefficient of the residual of the first stage in the true utility."""
CONSTANTS = {"a": 0.0, "b": 0.5, "c": 1.0}
"""True constants of the products."""
ROLES: dict[str, Any] = {
    "choice_set": "purchase",
    "chosen": "bought",
    "alternative": "product",
    "person": "household",
    "features": ["price", "advertising", "cost"],
}
"""Keyword arguments of ``ChoiceData.from_long`` for the table of purchases."""

PURCHASES = 5  # purchases of a household
_BASE, _COST, _ADVERTISING, _QUALITY = 3.0, 0.6, 0.3, 0.5  # coefficients of the price
_MARKET_UTILITY = 5.0  # of the products, so that about a quarter of the customers of a market buy nothing


def simulate(sets: int, *, seed: int) -> pa.Table:
    """Simulate purchases of households with endogenous prices.

    Parameters
    ----------
    sets : int
        Number of purchases, at least 1. Each household makes five.
    seed : int
        Seed of the random number generator, at least 0.

    Returns
    -------
    pyarrow.Table
        Long table with a row per product: purchase, household, product, price, advertising, cost, quality and bought.
        ``ROLES`` are the roles of its columns; quality has no role, because sellers know it but analysts do not.

    Raises
    ------
    ConfigError
        If ``sets`` or ``seed`` is not an integer in the valid range.

    Examples
    --------
    >>> simulate(2, seed=0).select(["purchase", "product", "bought"]).to_pydict()["product"]
    ['a', 'b', 'c', 'a', 'b', 'c']
    """
    n, rng = require_sets(sets), np.random.default_rng(require_seed(seed))
    shape = (n, len(CONSTANTS))
    households = np.arange(n) // PURCHASES
    cost, advertising, noise = rng.standard_normal((3, *shape))
    # Half of the variance of the quality belongs to the household's shops, and half to the purchase.
    shops = rng.standard_normal((households[-1] + 1, shape[1]))[households]
    quality = np.sqrt(0.5) * (shops + noise)
    price = _prices(cost, advertising, quality)
    utility = _utilities(price, advertising, quality) + rng.gumbel(size=shape)
    columns = {
        "purchase": np.repeat(np.arange(1, n + 1), shape[1]),
        "household": np.repeat(households + 1, shape[1]),
        "product": np.tile(list(CONSTANTS), n),
        "price": price.ravel(),
        "advertising": advertising.ravel(),
        "cost": cost.ravel(),
        "quality": quality.ravel(),
        "bought": (utility.argmax(axis=1)[:, None] == np.arange(shape[1])).ravel().astype(np.int8),
    }
    return pa.table(columns)


def simulate_shares(markets: int, *, customers: int = 10_000, seed: int) -> pa.Table:
    """Simulate the sales of products in markets with endogenous prices.

    Parameters
    ----------
    markets : int
        Number of markets, at least 1.
    customers : int
        Number of customers of each market, at least 1. Default 10,000.
    seed : int
        Seed of the random number generator, at least 0.

    Returns
    -------
    pyarrow.Table
        Long table with a row per market and product, and a row "none" for customers who buy nothing: market, product,
        price, advertising, cost, quality and sales. The columns of "none" are 0.

    Raises
    ------
    ConfigError
        If an argument is not an integer in the valid range.

    Examples
    --------
    >>> table = simulate_shares(3, customers=100, seed=0)
    >>> sum(table["sales"].to_pylist())
    300
    """
    n, rng = require_sets(markets), np.random.default_rng(require_seed(seed))
    require_number("customers", customers, whole=True, low=1)
    shape = (n, len(CONSTANTS))
    cost, advertising, quality = rng.standard_normal((3, *shape))
    price = _prices(cost, advertising, quality)
    utility = _MARKET_UTILITY + _utilities(price, advertising, quality)
    p = softmax(np.column_stack([utility, np.zeros(n)]), axis=1)
    columns = {
        "market": np.repeat(np.arange(1, n + 1), shape[1] + 1),
        "product": np.tile([*CONSTANTS, "none"], n),
        "price": _with_none(price),
        "advertising": _with_none(advertising),
        "cost": _with_none(cost),
        "quality": _with_none(quality),
        "sales": rng.multinomial(customers, p).ravel(),
    }
    return pa.table(columns)


def _prices(cost: Floats, advertising: Floats, quality: Floats) -> Floats:
    return _BASE + _COST * cost + _ADVERTISING * advertising + _QUALITY * quality


def _utilities(price: Floats, advertising: Floats, quality: Floats) -> Floats:  # (n, 3) each
    """Return the utility of the products, apart from the Gumbel part."""
    return np.array(list(CONSTANTS.values())) + PRICE * price + ADVERTISING * advertising + quality


def _with_none(values: Floats) -> Floats:  # (n, 3) -> (4 n,)
    """Append a zero to each market, for buying nothing."""
    return np.column_stack([values, np.zeros(len(values))]).ravel()
