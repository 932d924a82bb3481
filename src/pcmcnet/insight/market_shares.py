"""Market simulator over people: shares of products by the coefficients of each person.

    logit          s_j = mean over people and draws of exp(v_nj) / sum_k exp(v_nk)
    first choice   s_j = share of people and draws for whom v_nj is the largest

The utility is v_nj = b_n . x_j + a_j. The constants a_j are 0, or are calibrated to known shares: a_j rises by the
logarithm of the known share over the simulated share until both agree (Berry, Levinsohn & Pakes, 1995). First choices
have no random errors; the logit rule has those of the fitted utilities. Shapes: N people with R draws
each, J products, K columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word, suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical
from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import InputError, TrainingError, did_you_mean
from pcmcnet.models import ChoiceModel, HierarchicalMNL, MixedMNL
from pcmcnet.models.logit.draws import softmax_by_draw
from pcmcnet.models.logit.factor_coding import LevelCode
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import Cells, TableMixin

Rule = Literal["logit", "first-choice"]
People = Literal["known", "new"]

_UTILITIES_AT_ONCE = 2**22  # to bound memory
_MAX_LISTED = 10  # names in a message
_MAX_STEPS = 500  # of the calibration
_TOLERANCE = {"logit": 1e-6, "first-choice": 2e-3}  # of a share; first choices change in steps
_DAMPING = {"logit": 1.0, "first-choice": 0.3}


class ProductShare(NamedTuple):
    """The simulated share of a product."""

    product: str
    share: float
    low: float | None  # 90% interval over draws of the part-worths; None for new people
    high: float | None
    revenue: float | None  # per person: share times the price


@dataclass(frozen=True, eq=False)
class MarketShares(TableMixin):
    """Simulated shares of products, for each person and over people. The object prints as a table.

    Parameters
    ----------
    rows
        Share, 90% interval and revenue per person of each product.
    persons
        Ids (N,) of the persons, or numbers of the draws for new people.
    by_person
        Shares (N, J) of each person.
    constants
        Constants by product, which are 0 without calibration to known shares.
    rule
        "logit" or "first-choice".
    simulator
        Coefficients of the people, and the products, for :meth:`sensitivity`.
    """

    rows: tuple[ProductShare, ...]
    persons: NDArray[Any]
    by_person: Floats
    constants: Mapping[str, float]
    rule: Rule
    simulator: ShareSimulator = field(repr=False)

    def __getitem__(self, product: str) -> ProductShare:
        names = [row.product for row in self.rows]
        if product not in names:
            raise InputError(f"there is no product {product!r}." + did_you_mean(product, names))
        return self.rows[names.index(product)]

    @property
    def revenue(self) -> float | None:
        """Revenue per person over all products, or None without prices."""
        values = [row.revenue for row in self.rows]
        return None if all(value is None for value in values) else sum(value or 0.0 for value in values)

    def sensitivity(self, column: str, change: float = 0.01) -> ShareSensitivity:
        """Return how shares change if a numeric column of one product rises.

        Parameters
        ----------
        column
            Numeric feature, such as the price.
        change
            Relative increase. Default 0.01, which gives elasticities.

        Raises
        ------
        InputError
            If ``column`` is not a numeric column of the products.
        """
        require_number("change", change, open_low=True, low=0)
        return self.simulator.sensitivity(column, change, np.array(list(self.constants.values())), self.rule)

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per product."""
        return pa.table({name: [getattr(row, name) for row in self.rows] for name in ProductShare._fields})

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by product."""
        return data_frame(self.to_arrow(), index="product", instead="to_arrow()")

    def _cells(self) -> Cells:
        interval = [] if self.rows[0].low is None else ["5%", "95%"]
        heads = ["product", "share", *interval, *(["revenue"] if self.revenue is not None else [])]
        return [heads, *map(self._row, self.rows)]

    def _row(self, row: ProductShare) -> list[str]:
        cells = [row.product, *(f"{value:.1%}" for value in row[1:4] if value is not None)]
        revenue = [] if self.revenue is None else ["" if row.revenue is None else f"{row.revenue:.4g}"]
        return cells + revenue


@dataclass(frozen=True, eq=False)
class ShareSensitivity(TableMixin):
    """Relative changes of all shares, divided by the relative change of a column of one product."""

    column: str
    products: tuple[str, ...]
    changed: tuple[str, ...]  # products whose column is a positive number
    values: Floats  # (changed, J)

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per changed product, and a column for the share of each product."""
        columns = {"changed": pa.array(self.changed)}
        return pa.table(columns | {name: pa.array(self.values[:, j]) for j, name in enumerate(self.products)})

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by the changed product."""
        return data_frame(self.to_arrow(), index="changed", instead="to_arrow()")

    def _cells(self) -> Cells:
        rows = ([name, *(f"{v:.3f}" for v in row)] for name, row in zip(self.changed, self.values, strict=True))
        return [[f"{self.column} of", *self.products], *rows]


@dataclass(frozen=True, eq=False)
class ShareSimulator:
    """Coefficients of people, and the products to simulate."""

    model: Any
    products: pa.Table
    names: tuple[str, ...]  # (J,) with the outside option, if there is one, last
    persons: NDArray[Any]  # (N,)
    coefficients: NDArray[Any]  # (N, K, R)
    columns: tuple[int, ...]  # of the design, in the order of the coefficients

    def utilities_of(self, products: pa.Table) -> Floats:  # -> (J, K)
        """Return the columns of the utility for the products."""
        schema = self.model.schema
        sets = ChoiceData.from_schema(_one_set(products, schema), schema.for_prediction())
        require_known_levels(self.model.design_.codes, sets)
        matrix: Floats = self.model.design_.matrix(sets)[:, list(self.columns)]
        return matrix

    def shares(self, x: Floats, constants: Floats, rule: Rule) -> NDArray[np.float32]:  # (J, K), (J,) -> (N, J, R)
        """Return the probabilities of each person in each draw, or 1 for the first choice."""
        N, _, R = self.coefficients.shape
        out = np.empty((N, len(x), R), np.float32)
        size = max(_UTILITIES_AT_ONCE // (len(x) * R), 1)
        for begin in range(0, N, size):
            b = self.coefficients[begin : begin + size]
            v = np.einsum("jk,nkr->njr", x, b) + constants[:, None]
            if rule == "first-choice":
                out[begin : begin + size] = v == v.max(axis=1, keepdims=True)
                out[begin : begin + size] /= out[begin : begin + size].sum(axis=1, keepdims=True)
            else:
                flat = v.transpose(1, 0, 2).reshape(len(x), -1)
                p = softmax_by_draw(flat, np.array([0, len(x)]))
                out[begin : begin + size] = p.reshape(len(x), len(b), R).transpose(1, 0, 2)
        return out

    def calibrated(self, x: Floats, known: Floats, rule: Rule) -> Floats:  # (J, K), (J,) -> (J,)
        """Return constants at which the shares are ``known``. The first constant is 0.

        Raise TrainingError if there are no such constants.
        """
        constants = np.zeros(len(x))
        for _ in range(_MAX_STEPS):
            share: Floats = self.shares(x, constants, rule).mean(axis=(0, 2), dtype=np.float64)
            if np.abs(share - known).max() < _TOLERANCE[rule]:
                relative: Floats = constants - constants[0]
                return relative
            constants = constants + _DAMPING[rule] * np.log(known / np.maximum(share, 1e-6))
        raise TrainingError(
            f"the shares do not reach the known shares within {_MAX_STEPS} steps: the largest difference is "
            f"{np.abs(share - known).max():.4f}. Use rule='logit', or check the products."
        )

    def sensitivity(self, column: str, change: float, constants: Floats, rule: Rule) -> ShareSensitivity:
        """Return relative changes of the shares, for each product whose column rises."""
        values = self.products[column].to_pylist() if column in self.products.column_names else []
        if not values or not all(isinstance(v, int | float) for v in values):
            numeric = [n for n in self.products.column_names if n != column]
            raise InputError(f"{column!r} is not a numeric column of the products." + did_you_mean(column, numeric))
        before = self.shares(self.utilities_of(self.products), constants, rule).mean(axis=(0, 2), dtype=np.float64)
        changed, rows = [], []
        for j, value in enumerate(values):
            if value == 0:
                continue  # 0 has no relative change
            moved = [float(v) * (1 + change * (i == j)) for i, v in enumerate(values)]
            table = self.products.set_column(self.products.column_names.index(column), column, pa.array(moved))
            after = self.shares(self.utilities_of(table), constants, rule).mean(axis=(0, 2), dtype=np.float64)
            changed.append(self.names[j])
            rows.append((after / np.maximum(before, 1e-12) - 1) / change)
        return ShareSensitivity(column, self.names, tuple(changed), np.array(rows))


@suggests_arguments()
def market_shares(
    model: ChoiceModel,
    products: Any,
    *,
    names: str | Sequence[str] | None = None,
    rule: Rule = "logit",
    people: People = "known",
    price: str | None = None,
    known_shares: Mapping[str, float] | None = None,
) -> MarketShares:
    """Simulate the shares of products over people.

    Parameters
    ----------
    model
        A fitted hierarchical or mixed logit without covariates of the means.
    products
        Table with a row for each product and the columns of the model. An outside option of the model is added.
    names
        Names of the products, or the column of ``products`` that holds them. Default: the labels of the alternatives,
        or ``product 1``, ``product 2``, ...
    rule
        "logit" (default): probabilities. "first-choice": each person takes the product with the largest utility.
    people
        "known" (default): the persons of the training table, with draws of their part-worths, which only a hierarchical
        logit has. "new": draws from the population, each of them one person.
    price
        Numeric column of ``products``, for revenue. Default: no revenue.
    known_shares
        Shares by product name that the simulation must reproduce, by constants of the products. They must be positive
        and sum to 1 over all products and the outside option. Default: no calibration.

    Returns
    -------
    MarketShares
        Shares with 90% intervals over draws, revenue per person, ``by_person``, and ``sensitivity(column)``. Shares of
        new people have no intervals, since the parameters of the population do not vary.

    Raises
    ------
    InputError
        If the products lack a column or have a level that the model does not know, or if known shares do not fit.
    TrainingError
        If no constants reproduce the known shares.
    """
    # 1. The products, and the people.
    require_word("rule", rule, get_args(Rule))
    require_word("people", people, get_args(People))
    simulator = _simulator(model, products, names, people)
    x = simulator.utilities_of(simulator.products)
    # 2. Constants, then shares of each person and draw.
    constants = np.zeros(len(x))
    if known_shares is not None:
        constants = simulator.calibrated(x, _known(known_shares, simulator.names), rule)
    shares = simulator.shares(x, constants, rule)
    # 3. Means over people, and intervals over draws of the mean. New people have one draw each, so no interval.
    mean = shares.mean(axis=(0, 2), dtype=np.float64)
    by_draw = shares.mean(axis=0, dtype=np.float64)  # (J, R)
    bounds: list[Any] = [(None, None)] * len(mean)
    if by_draw.shape[1] > 1:
        bounds = np.quantile(by_draw, [0.05, 0.95], axis=1).T.tolist()
    prices: list[Any] = [None] * len(mean)
    if price is not None:
        if price not in simulator.products.column_names:
            raise InputError(
                f"price: the products have no column {price!r}." + did_you_mean(price, simulator.products.column_names)
            )
        prices[: simulator.products.num_rows] = _prices(simulator, price)
    rows = tuple(
        ProductShare(name, float(mean[j]), bounds[j][0], bounds[j][1], None if p is None else p * float(mean[j]))
        for j, (name, p) in enumerate(zip(simulator.names, prices, strict=True))
    )
    by_person = shares.mean(axis=2, dtype=np.float64)
    by_name = dict(zip(simulator.names, constants.tolist(), strict=True))
    return MarketShares(rows, simulator.persons, by_person, by_name, rule, simulator)


def _prices(simulator: ShareSimulator, column: str) -> list[float]:
    """Return the prices of the products, or raise InputError if one of them is not a finite number."""
    prices = []
    for name, value in zip(simulator.names, simulator.products[column].to_pylist(), strict=False):
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
            raise InputError(f"price, product {name!r}: expected a finite number in column {column!r}, got {value!r}.")
        prices.append(float(value))
    return prices


def _simulator(model: ChoiceModel, products: Any, names: str | Sequence[str] | None, people: People) -> ShareSimulator:
    """Return the simulator, or raise InputError if the model or the products do not fit."""
    if not isinstance(model, HierarchicalMNL | MixedMNL):
        raise InputError(
            f"market_shares needs a hierarchical or mixed logit, got {type(model).__name__}: fit HierarchicalMNL "
            f"(hb-mnl) or MixedMNL (mixed-mnl) to a table with persons. For other models, use scenario."
        )
    model.require_fitted()
    table = read_table(products)
    if not table.num_rows:
        raise InputError("products: expected at least one row, got an empty table.")
    schema = model.schema
    # 1. Names of the products.
    if isinstance(names, str):
        if names not in table.column_names:
            raise InputError(f"names: the products have no column {names!r}." + did_you_mean(names, table.column_names))
        labels = [str(value) for value in table[names].to_pylist() if value is not None]
    elif names is not None:
        labels = [str(name) for name in names]
    elif schema.alternative is not None and schema.alternative in table.column_names:
        labels = [str(value) for value in table[schema.alternative].to_pylist()]
    else:
        labels = [f"product {k}" for k in range(1, table.num_rows + 1)]
    if len(labels) != table.num_rows or len(set(labels)) < len(labels):
        got = f"{', '.join(labels[:_MAX_LISTED])}{', ...' * (len(labels) > _MAX_LISTED)}"
        raise InputError(f"names: expected {table.num_rows} different names, one for each product; got {got}.")
    if schema.outside is not None:
        labels.append(schema.outside)
    # 2. Coefficients of the people.
    if people == "known" and isinstance(model, HierarchicalMNL):
        worths = model.part_worths()
        columns = tuple(model.design_.columns.index(name) for name in worths.names)
        return ShareSimulator(model, table, tuple(labels), worths.persons, worths.draws, columns)
    if people == "known":
        raise InputError("people='known' needs a hierarchical logit (hb-mnl): use people='new'.")
    has_covariates = (
        len(model._state.covariates.names) > 1
        if isinstance(model, HierarchicalMNL)
        else bool(model.mean_designs_) or len(model.mixing_classes_.covariates) > 1
    )
    if has_covariates:
        raise InputError(
            "people='new' is not supported if means or class shares depend on covariates: use people='known'."
        )
    draws = model.population_.sample(np.zeros((1, 0)))[0].numpy()  # (K, R)
    coefficients = np.ascontiguousarray(draws.T[:, : len(model.design_.columns), None])
    persons = np.arange(1, len(coefficients) + 1)
    return ShareSimulator(model, table, tuple(labels), persons, coefficients, tuple(range(coefficients.shape[1])))


def require_known_levels(codes: Mapping[str, Any], sets: ChoiceData) -> None:
    """Raise InputError if a product has a level that was not in the training part, so that its value is unknown."""
    products = np.ones(len(sets.rows), bool) if sets.outside is None else ~sets.outside
    for name, code in codes.items():
        column = sets.features.get(name)
        if not isinstance(code, LevelCode) or not isinstance(column, Categorical) or len(code.rare) < code.n_rare:
            continue
        known = [*code.names, *code.rare]
        used = [column.categories[k] for k in np.unique(column.codes[products]) if k >= 0]
        if unknown := [level for level in used if level not in known]:
            raise InputError(
                f"products: the model does not know the level {unknown[0]!r} of {name!r}."
                + did_you_mean(unknown[0], known)
            )


def _one_set(products: pa.Table, schema: Any) -> pa.Table:
    """Return the products as one choice set, with the id column of the schema."""
    if schema.choice_set in products.column_names:
        products = products.drop_columns([schema.choice_set])
    return products.append_column(schema.choice_set, pa.array(np.ones(products.num_rows, np.int64)))


def _known(shares: Mapping[str, float], names: Sequence[str]) -> Floats:
    """Return known shares in the order of the products, or raise InputError."""
    if set(shares) != set(names):
        raise InputError(
            f"known_shares: expected a share for each of {', '.join(names)}, got {', '.join(map(str, shares))}."
        )
    values = np.array([float(shares[name]) for name in names])
    if not ((values > 0).all() and abs(values.sum() - 1) < 1e-6):
        raise InputError(
            f"known_shares: expected positive numbers with a sum of 1, got {', '.join(f'{v:g}' for v in values)} with "
            f"a sum of {values.sum():g}."
        )
    return values
