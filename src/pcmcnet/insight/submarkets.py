r"""Submarkets: the factors of a chain with factored rates, and which alternatives exchange choices through them.

The rates of a chain with r factors are q_ij = sum_k u_ik v_jk (:mod:`pcmcnet.layers.factored`). So every move has two
steps: alternative i is left through a factor k, and the factor leads to an alternative j. With V_k = sum_j v_jk and
d_i = sum_k u_ik V_k,

    w_ik = u_ik V_k / d_i                   share of factor k among the exits from i
    a_ik = v_ik / V_k                       share of alternative i among the entries through k
    b    = b P,  P_lk = sum_i a_il w_ik     share of each factor in all moves: a chain with r states
    e_i  = sum_k b_k a_ik                   share of alternative i among all entries, and among all exits
    p_i  = (e_i / d_i) / sum_j (e_j / d_j)  probability: 1 / d_i is the mean stay in i

The share of the moves that leave i, pass factor k and enter j is the *flow* f_ikj = e_i w_ik a_jk. Flows sum to 1. A
move may return to the alternative that was left; only the share 1 - sum_i e_i w_ik a_ik / b_k of the moves through k is
a switch.

A person who has chosen i has reached i through one factor and will leave it through one factor. The stay does not
depend on either, so the choices divide into

    p_i = sum_k p_i r_ik,  r_ik = b_k a_ik / e_i      by the factor through which i was reached
    p_i = sum_k p_i w_ik                              by the factor through which i will be left

sum_i p_i r_ik is the share of the choices that are reached through factor k. Choices are a better measure of a
submarket than moves: an alternative that is entered often and left at once has a large share of the moves, and a small
probability.

**What is identified.** If all u_ik of one factor are divided by a number s_k > 0 and all v_jk are multiplied by it, the
rates do not change, and neither do w, a, b, e, r and the flows: u_ik V_k and v_ik / V_k are invariant. The order of the
factors is arbitrary. But different non-negative factors may have the same product, and different rates may have the
same probabilities. So two fits, and the averaged networks of one fit, divide the same market in different ways. The
output units of one network are the same functions of the features in all choice sets, so its factors can be compared
and averaged over sets. Factors of different networks cannot: they are reported one network at a time. ``agreement``
states how similar the most similar factor of each other network is. It is the correlation of log r_ik within choice
sets, weighted by p.

**Features.** For a feature x, the mean difference between the choices that are reached through k and all choices from
the same sets is

    sum_S m_S sum_i (p_i r_ik - p_i c_Sk) x_i / sum_S m_S c_Sk,      c_Sk = sum_i p_i r_ik,  m_S the weight of set S,

in units of the standard deviation of x within sets (weighted by p). The same with w instead of r describes the choices
that are left through k. Differences of all factors, weighted by their shares of the choices, sum to 0. A feature that
is constant within sets cannot distinguish alternatives. Individual-level columns are compared between sets: the mean
over the choices that are reached through k, minus the mean over all sets.

All sums take time and memory proportional to the number of alternatives times r. Shapes: S sets, N alternatives in all
sets, A named alternatives, C columns, r factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word, suggests_arguments
from pcmcnet.data import ChoiceData, read_chunked
from pcmcnet.data.columns.arrays import Categorical, Columns, Numeric
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import require_sets
from pcmcnet.insight.elasticity import chunk_positions
from pcmcnet.insight.queries import alternative_name
from pcmcnet.layers import stationary_distribution
from pcmcnet.models import PCMCNet
from pcmcnet.models.interface.chain_model import require_class
from pcmcnet.reports.formats import FormatsMixin, ResultContent, ToDictMixin
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_FLOW_ALTERNATIVES = 100  # with 16 factors, their flows take 1.3 MB; of 20,000 alternatives, they would take 51 GB
MAX_CATEGORIES = 20  # categories of a column in a profile, the most frequent first
MAX_NAMED = 100  # names of alternatives without labels compare all alternatives of a set, so long sets get numbers
MIN_DIFFERENCE = 0.2  # standard deviations from which a feature names a factor: a small effect (Cohen, 1988)
MAX_NAME_FEATURES = 2
TINY = float(np.finfo(float).tiny)  # floor of divisors and of shares whose logarithm is taken

SubmarketView = Literal["factors", "features", "alternatives", "flows"]
SubmarketPlot = Literal["features", "alternatives", "flows"]


# -- One chain ---------------------------------------------------------------------------------------------------------


class TwoSteps(NamedTuple):
    """The two steps of the moves in B chains with r factors, of up to J alternatives each."""

    shares: Tensor  # (B, r) share b of each factor in all moves
    entered: Tensor  # (B, J, r) share a of each alternative among the entries through a factor
    exits: Tensor  # (B, J, r) share w of each factor among the exits from an alternative
    probabilities: Tensor  # (B, J)


def two_steps(log_u: Tensor, log_v: Tensor, mask: Tensor) -> TwoSteps:
    """Compute shares of factors and alternatives in float64, with 0 for padding.

    Parameters
    ----------
    log_u, log_v
        Logarithms of the factors of the rates, (B, J, r).
    mask
        Mask (B, J), True for real alternatives.

    Returns
    -------
    TwoSteps
        Shares and probabilities.
    """
    real = mask.unsqueeze(2)
    log_u, log_v = (x.double().masked_fill(~real, -torch.inf) for x in (log_u, log_v))
    # 1. Shares of the alternatives among entries, and of the factors among exits.
    log_total = log_v.logsumexp(1, keepdim=True)  # log V (B, 1, r)
    entered, log_exits = (log_v - log_total).exp(), log_u + log_total
    log_d = log_exits.logsumexp(2)
    exits = (log_exits - log_d.unsqueeze(2)).exp().where(real, 0.0)
    # 2. The chain of the factors. The smallest float keeps it irreducible if two factors never follow each other.
    shares = stationary_distribution(entered.mT @ exits + torch.finfo(torch.float64).tiny)
    # 3. Entries times mean stays.
    log_entries = (log_v - log_total + shares.log().unsqueeze(1)).logsumexp(2)
    return TwoSteps(shares, entered, exits, (log_entries - log_d).masked_fill(~mask, -torch.inf).softmax(1))


# -- Results -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class FactorProfile(ToDictMixin):
    """Columns and categories that distinguish the alternatives, or the decision makers, of r factors.

    Attributes
    ----------
    columns
        Display names of C numeric columns, or of categories such as "carrier AA".
    is_category
        Whether each column is a category, whose average is its share, (C,).
    averages
        Mean of each column over all choices, or over all choice sets, (C,).
    spreads
        Standard deviation of each column within choice sets, or between choice sets for individual-level columns. (C,)
    differences
        Mean of each factor minus the average, in standard deviations, (r, C).
    """

    columns: tuple[str, ...]
    is_category: tuple[bool, ...]
    averages: Floats
    spreads: Floats
    differences: Floats

    def words(self, factor: int, *, most: int = MAX_NAME_FEATURES) -> str:
        """Describe a factor (counted from 1) by the columns that distinguish it most, such as "low price, carrier AA".

        Columns that differ by less than 0.2 standard deviations are left out, and so are categories below average.
        """
        values = self.differences[factor - 1]
        candidates = [
            k
            for k in np.argsort(-np.abs(values), kind="stable").tolist()
            if abs(values[k]) >= MIN_DIFFERENCE and (values[k] > 0 or not self.is_category[k])
        ]
        return ", ".join(self._word(k, values[k] > 0) for k in candidates[:most])

    def _word(self, k: int, is_high: bool) -> str:
        name = self.columns[k]
        return name if self.is_category[k] else f"{'high' if is_high else 'low'} {name}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Submarkets(ToDictMixin, FormatsMixin):
    """Result of :func:`submarkets`: the r factors of a chain, averaged over choice sets.

    Factors are counted from 1, in the order of the network's outputs, so that results for different choice sets can be
    compared. ``print(result)`` shows one row per factor, the largest share of the choices first.

    Attributes
    ----------
    model
        Name of the model class.
    member, members
        Number of the network that is described, counted from 1, and the number of averaged networks.
    of_class
        For a mixture of chains, the number of the class that is described, counted from 1.
    sets
        Number of choice sets.
    choices
        Share of the choices that are reached through each factor, (r,).
    moves
        Share of each factor in all moves of the chain, (r,).
    switches
        Share of the moves through each factor that lead to another alternative, (r,).
    features_reached, features_left
        Features of the choices that are reached, and of those that are left, through each factor.
    users
        Individual-level columns of the decision makers whose choices are reached through each factor.
    alternatives
        Names of A alternatives: the labels of the table or, in a table without labels, the alternatives of a single
        choice set. Empty for several choice sets without labels.
    probabilities
        Mean probability of each alternative in the chain, (A,).
    reached
        Share of each alternative among the choices that are reached through a factor, (r, A). Each row sums to 1.
    entries
        Share of each alternative among all entries, and among all exits, (A,).
    entered
        Share of each alternative among the entries through a factor, (r, A). Each row sums to 1.
    exits
        Share of each factor among the exits from an alternative, (r, A). Each column sums to 1.
    flows
        Share of all moves that leave alternative i through factor k and enter j, (r, A, A), or None if there are more
        than 100 alternatives.
    agreement
        Correlation of each factor with the most similar factor of another averaged network, as a mean over these
        networks, (r,), or None if there is one network or one factor.
    """

    model: str
    member: int
    members: int
    of_class: int | None
    sets: int
    choices: Floats
    moves: Floats
    switches: Floats
    features_reached: FactorProfile
    features_left: FactorProfile
    users: FactorProfile
    alternatives: tuple[str, ...]
    probabilities: Floats
    reached: Floats
    entries: Floats
    entered: Floats
    exits: Floats
    flows: Floats | None
    agreement: Floats | None
    _derived = ("names",)

    def __repr__(self) -> str:
        largest = int(self.order[0])
        return (
            f"Submarkets({self.model}, {self.rank} factors; factor {largest + 1}, {self.names[largest]}, has "
            f"{percent(float(self.choices[largest]))} of the choices)"
        )

    @property
    def rank(self) -> int:
        """Number of factors."""
        return len(self.choices)

    @property
    def order(self) -> Ints:
        """Indices of the factors, counted from 0, in descending order of their shares of the choices."""
        order: Ints = np.argsort(-self.choices, kind="stable")
        return order

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the factors: the features that distinguish the choices reached through each factor."""
        if self.rank == 1:
            return ("all alternatives",)
        return tuple(self.features_reached.words(k) or "like the average" for k in range(1, self.rank + 1))

    @property
    def left(self) -> Floats:
        """Share of each alternative among the exits through a factor, (r, A). Each row sums to 1."""
        left: Floats = self.exits * self.entries / self.moves[:, None]
        return left

    @property
    def exchanged(self) -> Floats:
        """Share of all moves through each factor between two alternatives, in either direction: (r, A, A), symmetric.

        The diagonal is 0, since moves that return to the same alternative exchange nothing.
        """
        if self.flows is None:
            raise InputError(
                f"flows between {len(self.alternatives):,} alternatives would take "
                f"{_gigabytes(8 * self.rank * len(self.alternatives) ** 2)}, and are computed for up to "
                f"{MAX_FLOW_ALTERNATIVES}: in one choice set, the flows of factor k are "
                f"moves[k] * np.outer(left[k], entered[k]), for any selection of alternatives."
            )
        both = self.flows + self.flows.transpose(0, 2, 1)
        both[:, np.arange(both.shape[1]), np.arange(both.shape[1])] = 0.0
        return both

    def to_frame(self, what: SubmarketView = "factors") -> Any:
        """Return a pandas data frame.

        Parameters
        ----------
        what
            "factors" (the default) for one row per factor, the largest share first; "features" for one row per factor,
            side and column; "alternatives" for one row per factor and alternative; "flows" for one row per factor and
            ordered pair of different alternatives.

        Returns
        -------
        pandas.DataFrame
            The rows.
        """
        require_word("what", what, ("factors", "features", "alternatives", "flows"))
        table = getattr(self, f"_{what}_table")()
        return data_frame(table, instead="to_dict()")

    def plot(self, what: SubmarketPlot = "features", *, ax: Axes | None = None, most: int = 12) -> Axes:
        """Draw a heat map of the factors.

        Parameters
        ----------
        what
            "features" (the default) for the features of the choices that are reached through each factor,
            "alternatives" for the shares of the alternatives in these choices, or "flows" for the moves between pairs
            of alternatives through each factor.
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        most
            Maximum number of rows and of columns (12 by default): the factors with the largest shares, the columns that
            differ most, the most probable alternatives, or the pairs that exchange most.

        Returns
        -------
        Axes
            The matplotlib Axes.
        """
        from pcmcnet.plots.submarkets import plot_submarkets

        return plot_submarkets(self, ax, what=what, most=most)

    # -- tables -----------------------------------------------------------------------------------------------

    def _factors_table(self) -> pa.Table:
        columns: dict[str, Any] = {
            "factor": self.order + 1,
            "name": [self.names[k] for k in self.order],
            **{name: getattr(self, name)[self.order] for name in ("choices", "moves", "switches")},
        }
        if self.agreement is not None:
            columns["agreement"] = self.agreement[self.order]
        return pa.table(columns)

    def _features_table(self) -> pa.Table:
        sides = {"reached": self.features_reached, "left": self.features_left, "users": self.users}
        parts = [
            pa.table({
                "factor": np.repeat(np.arange(1, self.rank + 1), len(profile.columns)),
                "side": pa.array([side] * self.rank * len(profile.columns), pa.string()),
                "column": pa.array(list(profile.columns) * self.rank, pa.string()),
                "mean": (profile.averages + profile.differences * profile.spreads).ravel(),
                "average": np.tile(profile.averages, self.rank),
                "difference": profile.differences.ravel(),
            })
            for side, profile in sides.items()
        ]  # fmt: skip
        return pa.concat_tables(parts)

    def _alternatives_table(self) -> pa.Table:
        n = len(self.alternatives)
        return pa.table({
            "factor": np.repeat(np.arange(1, self.rank + 1), n),
            "alternative": pa.array(list(self.alternatives) * self.rank, pa.string()),
            "probability": np.tile(self.probabilities, self.rank),
            **{name: getattr(self, name).ravel() for name in ("reached", "entered", "left", "exits")},
        })  # fmt: skip

    def _flows_table(self) -> pa.Table:
        both = self.exchanged  # raises if there are too many alternatives
        assert self.flows is not None
        k, i, j = np.nonzero(np.broadcast_to(~np.eye(both.shape[1], dtype=bool), both.shape))
        names = np.array(self.alternatives, dtype=object)
        return pa.table({
            "factor": k + 1,
            "from": pa.array(names[i], pa.string()),
            "to": pa.array(names[j], pa.string()),
            "flow": self.flows[k, i, j],
            "exchanged": both[k, i, j],
        })  # fmt: skip

    def _content(self) -> ResultContent:
        agreement = self.agreement
        heads = ["factor", "choices", "moves", "switches", "reached choices", "left choices"]
        heads += ["decision makers"] if self.users.columns else []
        heads += ["agreement"] if self.members > 1 else []
        rows = [
            [
                *(str(k + 1), *(percent(float(x[k])) for x in (self.choices, self.moves, self.switches))),
                *(self.names[k], self.features_left.words(k + 1) or "like the average"),
                *([self.users.words(k + 1) or "like the average"] if self.users.columns else []),
                *([] if self.members == 1 else ["-" if agreement is None else f"{agreement[k]:.2f}"]),
            ]
            for k in self.order.tolist()
        ]
        facts = {"choice sets": f"{self.sets:,}"}
        notes = ["Another fit may divide the same market into different factors."]
        if self.members > 1:
            facts["network"] = f"{self.member} of {self.members}"
            notes.append(
                "The predictions average all networks. Each has factors of its own: see member, and trust what several "
                "networks have in common. Agreement is the correlation with their most similar factors."
            )
        if self.of_class is not None:
            facts["class"] = str(self.of_class)
        return ResultContent(
            title=f"Submarkets: {self.model}", cells=[heads, *rows], facts=facts, notes=(*self._flow_notes(), *notes)
        )

    def _flow_notes(self) -> list[str]:
        """Return a sentence about the largest exchange between two alternatives."""
        if self.flows is None or len(self.alternatives) < 2:
            return []
        both = self.exchanged
        k, i, j = np.unravel_index(int(both.argmax()), both.shape)
        one, all_factors = (percent(float(share)) for share in (both[k, i, j], both[:, i, j].sum()))
        pair = f"{self.alternatives[i]} and {self.alternatives[j]}"
        return [f"Largest exchange: {pair} through factor {k + 1}, {one} of all moves ({all_factors} in all factors)."]


def _gigabytes(size: float) -> str:
    return f"{number(round(size / 1e9, 1))} GB"


# -- Columns -----------------------------------------------------------------------------------------------------------


class _ColumnChoice(NamedTuple):
    """A numeric column, or one category of a column, as a number for each alternative or choice set."""

    column: str
    code: int | None  # of the category
    name: str


def _profile_columns(data: ChoiceData, columns: Columns) -> list[_ColumnChoice]:
    """Return the numbers that describe columns: numeric columns themselves, and indicators of frequent categories."""
    chosen = []
    for name, column in columns.items():
        if isinstance(column, Numeric):
            chosen.append(_ColumnChoice(name, None, data.schema.names[name]))
        elif isinstance(column, Categorical):
            counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
            frequent = np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]
            prefix = "" if column is data.labels else f"{data.schema.names[name]} "  # a label needs no column name
            chosen += [
                _ColumnChoice(name, int(code), f"{prefix}{column.categories[code]}")
                for code in frequent
                if counts[code]
            ]
    return chosen


def _alternative_columns(data: ChoiceData) -> Columns:
    """Return the features, and the labels of a table with few labels."""
    label = data.schema.alternative
    if data.labels is None or label is None or len(data.labels.categories) > MAX_CATEGORIES or label in data.features:
        return data.features
    return {**data.features, label: data.labels}


def _numbers(columns: Columns, chosen: Sequence[_ColumnChoice], length: int) -> Floats:
    """Return the described numbers (length, C), with NaN for missing values."""
    out = np.empty((length, len(chosen)))
    for k, choice in enumerate(chosen):
        column = columns[choice.column]
        if isinstance(column, Numeric):
            out[:, k] = column.values
        elif isinstance(column, Categorical):
            out[:, k] = column.codes == choice.code
    return out


# -- Sums over choice sets ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Weighted sums over choice sets, of which all averages are quotients. Sums of disjoint sets can be added."""

    weight: Floats  # ()
    moves: Floats  # (r,)
    choices: Floats  # (r,) reached through a factor
    choices_left: Floats  # (r,) left through a factor
    returns: Floats  # (r,) moves that return to the alternative that was left
    features_reached: Floats  # (r, C) features of the choices reached through a factor, minus those of all choices
    features_left: Floats  # (r, C)
    feature_weight: Floats  # (C,) choices without missing values
    feature_sum: Floats  # (C,)
    feature_square: Floats  # (C,) around the mean of each set
    user_weight: Floats  # (D,)
    user_sum: Floats  # (D,)
    user_square: Floats  # (D,)
    user_choices: Floats  # (r, D)
    users: Floats  # (r, D)
    probabilities: Floats  # (A,)
    entries: Floats  # (A,)
    reached_at: Floats  # (r, A)
    entered_at: Floats  # (r, A)
    left_at: Floats  # (r, A)
    flows: Floats  # (r, A, A), or (r, 0, 0)
    lift_square: Floats  # (r,) squared log r_ik around the mean of each set
    other_squares: Floats  # (M - 1, r)
    lift_products: Floats  # (M - 1, r, r)

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})


class _Market(NamedTuple):
    """What is summed: the columns and the alternatives, for any subset of the choice sets."""

    features: list[_ColumnChoice]
    individual: list[_ColumnChoice]
    names: tuple[str, ...]  # (A,)
    place: Ints  # (L,) position of each label code among the names
    has_flows: bool


def _sums(model: PCMCNet, data: ChoiceData, weights: Floats, market: _Market, member: int, of_class: int) -> _Sums:
    """Return the sums over some choice sets with weights (S,)."""
    # 1. The moves and the choices of each set, by factor.
    b, a, w, p = _flat_steps(model, data, member, of_class)  # (S, r), (N, r), (N, r), (N,)
    offsets = data.offsets
    entries_by = spread(b, offsets) * a  # b_k a_ik (N, r)
    e = entries_by.sum(1)  # (N,)
    exits_by = e[:, None] * w
    reached_by, left_by = p[:, None] * _factor_shares(b, a, offsets), p[:, None] * w  # (N, r), with sums p
    choices, choices_left = sum_by_set(reached_by, offsets), sum_by_set(left_by, offsets)  # (S, r)
    m = spread(weights, offsets)  # (N,)
    # 2. Features of the choices, around the mean of their set.
    x = _numbers(_alternative_columns(data), market.features, len(m))
    present = ~np.isnan(x)
    x = np.where(present, x, 0.0)
    mass = p[:, None] * present
    mean = sum_by_set(mass * x, offsets) / np.maximum(sum_by_set(mass, offsets), TINY)
    centred = np.where(present, x - spread(mean, offsets), 0.0)
    # 3. Individual-level columns of the sets.
    z = _numbers(data.individual, market.individual, len(data))
    has_value = ~np.isnan(z)
    z = np.where(has_value, z, 0.0)
    uses = weights[:, None] * choices  # (S, r)
    # 4. Tables of factors and named alternatives.
    codes, n_names = _codes(data, market)
    at = np.arange(b.shape[1])[:, None] * n_names + codes  # (r, N)
    flows = np.zeros((b.shape[1], *([n_names] * 2 if market.has_flows else [0, 0])))
    if market.has_flows:
        _add_flows(flows, m[:, None] * exits_by, a, codes, data)

    def by_name(values: Floats) -> Floats:  # (N, r) -> (r, A)
        return _sums_at(at.ravel(), values.T.ravel(), b.shape[1] * n_names).reshape(b.shape[1], n_names)

    def by_alternative(values: Floats) -> Floats:  # (N,) -> (A,)
        return _sums_at(codes, values, n_names)

    # 5. Agreement with the factors of the other averaged networks.
    lift = _centred_log(_factor_shares(b, a, offsets), p, offsets)
    rivals = [k for k in range(model.spec_.members) if k != member]
    squares, products = np.zeros((len(rivals), b.shape[1])), np.zeros((len(rivals), b.shape[1], b.shape[1]))
    for row, rival in enumerate(rivals):
        rival_b, rival_a, _, _ = _flat_steps(model, data, rival, of_class)
        other = _centred_log(_factor_shares(rival_b, rival_a, offsets), p, offsets)
        squares[row], products[row] = (m * p) @ other**2, lift.T @ ((m * p)[:, None] * other)
    return _Sums(
        weight=np.asarray(weights.sum()),
        moves=weights @ b,
        choices=weights @ choices,
        choices_left=weights @ choices_left,
        returns=m @ (exits_by * a),
        # The mean of the centred features over all choices of a set is 0, so nothing has to be subtracted.
        features_reached=(m[:, None] * reached_by).T @ centred,
        features_left=(m[:, None] * left_by).T @ centred,
        feature_weight=m @ mass,
        feature_sum=m @ (mass * x),
        feature_square=m @ (mass * centred**2),
        user_weight=weights @ has_value,
        user_sum=weights @ z,
        user_square=weights @ z**2,
        user_choices=uses.T @ has_value,
        users=uses.T @ z,
        probabilities=by_alternative(m * p),
        entries=by_alternative(m * e),
        reached_at=by_name(m[:, None] * reached_by),
        entered_at=by_name(m[:, None] * entries_by),
        left_at=by_name(m[:, None] * exits_by),
        flows=flows,
        lift_square=(m * p) @ lift**2,
        other_squares=squares,
        lift_products=products,
    )


def _flat_steps(model: PCMCNet, data: ChoiceData, member: int, of_class: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return shares of factors (S, r), shares among entries and exits (N, r), and probabilities (N,)."""
    rank = model.spec_.rank
    assert rank is not None
    b, a = np.empty((len(data), rank)), np.empty((len(data.rows), rank))
    w, p = np.empty_like(a), np.empty(len(a))
    for positions, factors in model._factors(data, member, of_class):
        log_u, log_v = factors.cpu().double().unbind(1)
        sizes = torch.from_numpy(data.sizes[positions])
        mask = torch.arange(log_u.shape[1]) < sizes[:, None]
        steps = two_steps(log_u, log_v, mask)
        rows = np.flatnonzero(mask.numpy().ravel())  # sets and alternatives of the batch in order
        starts = np.repeat(data.offsets[positions], data.sizes[positions])
        flat = starts + rows % log_u.shape[1]
        b[positions] = steps.shares.numpy()
        for out, values in ((a, steps.entered), (w, steps.exits), (p, steps.probabilities)):
            out[flat] = values.flatten(0, 1).numpy()[rows]
    return b, a, w, p


def _codes(data: ChoiceData, market: _Market) -> tuple[Ints, int]:
    """Return the position of each alternative (N,) among the names, and the number of names."""
    if not market.names:
        return np.zeros(len(data.rows), np.int64), 0
    if data.labels is None:
        return np.arange(len(data.rows)), len(market.names)
    return market.place[data.labels.codes], len(market.names)


def _add_flows(flows: Floats, exits: Floats, a: Floats, codes: Ints, data: ChoiceData) -> None:
    """Add the flows of all sets to ``flows`` (r, A, A), given weighted exits (N, r) and shares among entries (N, r)."""
    # Sets of the same size are multiplied together, one factor at a time.
    for size in np.unique(data.sizes):
        rows = data.offsets[:-1][data.sizes == size][:, None] + np.arange(size)  # (s, n)
        place = (codes[rows][:, :, None] * flows.shape[1] + codes[rows][:, None, :]).ravel()
        for k, total in enumerate(flows):
            moves = exits[rows, k][:, :, None] * a[rows, k][:, None, :]  # (s, n, n)
            total += _sums_at(place, moves.ravel(), total.size).reshape(total.shape)


def _sums_at(places: Ints, values: Floats, length: int) -> Floats:
    """Return the sums (length,) of the values at each place."""
    sums = np.zeros(length)
    if length:
        sums += np.bincount(places, values, length)
    return sums


def _factor_shares(b: Floats, a: Floats, offsets: Ints) -> Floats:
    """Return the share r of each factor among the entries into an alternative: (S, r), (N, r) -> (N, r)."""
    # Sums of the logarithms, since an alternative that is hardly ever entered may have entries of 0.
    logs = np.log(np.maximum(a, TINY)) + spread(np.log(np.maximum(b, TINY)), offsets)
    shares = np.exp(logs - logs.max(1, keepdims=True))
    normalised: Floats = shares / shares.sum(1, keepdims=True)
    return normalised


def _centred_log(shares: Floats, weights: Floats, offsets: Ints) -> Floats:
    """Return the logarithms of shares (N, r) minus their weighted mean in each set."""
    logs = np.log(np.maximum(shares, TINY))
    mean = sum_by_set(weights[:, None] * logs, offsets) / sum_by_set(weights, offsets)[:, None]
    centred: Floats = logs - spread(mean, offsets)
    return centred


# -- Submarkets --------------------------------------------------------------------------------------------------------


@suggests_arguments()
def submarkets(model: Any, data: Any, *, member: int = 1, of_class: int | None = None) -> Submarkets:
    """Describe the factors of a fitted PCMC-Net with a rank: submarkets whose alternatives exchange choices.

    Every move of the chain leaves an alternative through a factor, and the factor leads to the next alternative. The
    shares of factors and alternatives in these moves do not depend on the scale of the factors. But neither the order
    of the factors nor the division of the market is identified: another fit, and each averaged network, has different
    factors. Therefore one network is described at a time, and the result states how well the others agree. See
    :mod:`pcmcnet.insight.submarkets` for the formulas.

    Parameters
    ----------
    model
        A fitted ``PCMCNet`` with a rank, such as ``PCMCNet(rank=16)``.
    data
        Choice sets, or a table that matches the model's schema. Time and memory are proportional to the number of
        alternatives. A single choice set of a table without labels, such as ``data.subset([0])``, also gives the shares
        of its alternatives.
    member
        Number of the network to describe, counted from 1 (the default), if the model averages several networks.
    of_class
        For a mixture of chains, the number of the class to describe, counted from 1. Choice sets are weighted by its
        share. By default, the class with the largest share in the table is described.

    Returns
    -------
    Submarkets
        Shares of the factors, the features and alternatives that distinguish them, and flows between alternatives.

    Raises
    ------
    InputError
        If the model has no factors, the network or class does not exist, or no set has a positive weight.

    Examples
    --------
    >>> table = {
    ...     "trip": np.repeat(np.arange(40), 3),
    ...     "mode": ["car", "bus", "train"] * 40,
    ...     "took": [1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0] * 10,
    ...     "cost": np.random.default_rng(0).uniform(1, 9, 120),
    ... }
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["cost"])
    >>> model = PCMCNet(rank=2, hidden=(4,), epochs=2, weight_decay=0.01, members=1).fit(data, progress=False)
    >>> result = submarkets(model, data)
    >>> result.alternatives, result.entered.shape, result.flows.shape, round(float(result.choices.sum()), 12)
    (('car', 'bus', 'train'), (2, 3), (2, 3, 3), 1.0)
    """
    # 1. Check the model, and select the network and the class.
    model = _require_factors(model)
    require_number("member", member, whole=True, low=1)
    if member > model.spec_.members:
        raise InputError(f"member: the model averages {model.spec_.members} networks, got {member}.")
    data = read_chunked(data)
    sets = data if isinstance(data, ChoiceData) else ChoiceData.from_schema(data, model.schema.for_prediction())
    require_sets(sets)
    sets = sets.subset(sets.weights > 0)
    class_shares = model.class_shares(sets)  # (S, K)
    place = int((sets.weights @ class_shares).argmax()) if of_class is None else require_class(model, of_class)
    weights = sets.weights * class_shares[:, place]
    # 2. Sum over chunks of choice sets, so that memory does not grow with their number.
    market = _market(sets)
    width = max(model.spec_.rank or 1, len(market.features), 1)
    chunks = [
        _sums(model, sets.subset(chunk), weights[chunk], market, member - 1, place)
        for chunk in chunk_positions(sets.sizes * width)
    ]
    total = reduce(_Sums.__add__, chunks)
    # 3. Divide sums by weights.
    return Submarkets(
        model=type(model).__name__,
        member=member,
        members=model.spec_.members,
        of_class=place + 1 if class_shares.shape[1] > 1 else None,
        sets=len(sets),
        choices=total.choices / total.weight,
        moves=total.moves / total.weight,
        switches=1 - total.returns / total.moves,
        features_reached=_feature_profile(market, total, total.features_reached / total.choices[:, None]),
        features_left=_feature_profile(market, total, total.features_left / total.choices_left[:, None]),
        users=_user_profile(market, total),
        alternatives=market.names,
        probabilities=total.probabilities / total.weight,
        entries=total.entries / total.weight,
        reached=total.reached_at / total.choices[:, None],
        entered=total.entered_at / total.moves[:, None],
        exits=total.left_at / np.maximum(total.entries, TINY),
        flows=total.flows / total.weight if market.has_flows else None,
        agreement=_agreement(total),
    )


def _require_factors(model: Any) -> PCMCNet:
    """Return the model if it is a fitted PCMC-Net whose rates have factors, or raise InputError."""
    if not isinstance(model, PCMCNet):
        remedies = {
            "ensemble": " Use over() to apply submarkets() to its members.",
            "calibrated": " Pass the wrapped model, model_, instead.",
        }
        message = f"{type(model).__name__} has no factors: fit PCMCNet(rank=16)."
        raise InputError(message + remedies.get(getattr(model, "name", ""), ""))
    model.require_fitted()
    if model.spec_.rank is None:
        raise InputError(
            "this PCMCNet scores all pairs of alternatives, so its rates have no factors: fit PCMCNet(rank=16)."
        )
    return model


def _market(data: ChoiceData) -> _Market:
    """Select columns to describe, and alternatives to name."""
    names: tuple[str, ...] = ()
    place = np.zeros(0, np.int64)
    if data.labels is not None:
        used, place = np.unique(data.labels.codes), np.zeros(len(data.labels.categories), np.int64)
        place[used] = np.arange(len(used))
        names = tuple(str(data.labels.categories[code]) for code in used)
    elif len(data) == 1:
        rows = range(len(data.rows))
        names = tuple(alternative_name(data, k) if len(rows) <= MAX_NAMED else f"#{k + 1}" for k in rows)
    return _Market(
        features=_profile_columns(data, _alternative_columns(data)),
        individual=_profile_columns(data, data.individual),
        names=names,
        place=place,
        has_flows=0 < len(names) <= MAX_FLOW_ALTERNATIVES,
    )


def _feature_profile(market: _Market, total: _Sums, excess: Floats) -> FactorProfile:
    """Return the profile of the features, given differences (r, C) from the mean of all choices."""
    weight = np.maximum(total.feature_weight, TINY)
    averages, spreads = total.feature_sum / weight, np.sqrt(total.feature_square / weight)
    return _profile(market.features, averages, spreads, excess)


def _user_profile(market: _Market, total: _Sums) -> FactorProfile:
    """Return the profile of the individual-level columns."""
    weight = np.maximum(total.user_weight, TINY)
    averages = total.user_sum / weight
    spreads = np.sqrt(np.maximum(total.user_square / weight - averages**2, 0.0))
    means = total.users / np.maximum(total.user_choices, TINY)
    return _profile(market.individual, averages, spreads, means - averages)


def _profile(columns: Sequence[_ColumnChoice], averages: Floats, spreads: Floats, excess: Floats) -> FactorProfile:
    """Return the profile of the columns that vary, given differences (r, C) in the units of the columns."""
    # A spread from a difference of squares loses half of the digits.
    varying = np.flatnonzero(spreads > 1e-6 * np.maximum(np.abs(averages), 1e-9)).tolist()
    return FactorProfile(
        columns=tuple(columns[k].name for k in varying),
        is_category=tuple(columns[k].code is not None for k in varying),
        averages=averages[varying],
        spreads=spreads[varying],
        differences=excess[:, varying] / spreads[varying],
    )


def _agreement(total: _Sums) -> Floats | None:
    """Return the correlation of each factor with the most similar factor of the other networks, (r,)."""
    if not len(total.lift_products) or len(total.choices) == 1:
        return None
    tiny = TINY
    scale = np.sqrt(np.maximum(total.lift_square[:, None] * total.other_squares[:, None, :], tiny))
    agreement: Floats = (total.lift_products / scale).max(2).mean(0)
    return agreement
