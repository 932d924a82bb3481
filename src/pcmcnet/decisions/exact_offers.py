"""Find provably best offers for a logit, a mixture of logits, a nested logit and a Markov chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.decisions.branch_and_bound import CLOSED_GAP, BranchAndBound, NodeBounds, Nodes, SearchResult
from pcmcnet.decisions.constraints import ConstraintRows, solve_integer_program
from pcmcnet.decisions.offer_value import Chains, Logits, expected_revenue
from pcmcnet.models.logit.maximum_likelihood import map_in_threads, single_threaded_blas

# -- Logit offers ------------------------------------------------------------------------------------------------------
# The best offer for a logit and for a small mixture of logits.
#
# One logit. The revenue is a ratio, sum r_j a_j x_j / sum a_j x_j. It reaches v if and only if sum (r_j - v) a_j x_j
# reaches 0 for some offer (Dinkelbach, 1967). This problem is linear: without constraints the best offer is ordered by
# revenue; with constraints it is an integer program for HiGHS. Each offer gives the next v; a few iterations suffice.
#
# A mixture. With y_c = 1 / sum_j a^c_j x_j and z_cj = y_c x_j the revenue sum_c w_c sum_j r_j a^c_j z_cj is linear:
#
#     sum_j a^c_j z_cj = 1,    z_cj <= y_c,    l_c x_j <= z_cj <= u_cj x_j,    z_cj >= y_c - u_c (1 - x_j)
#
# where l_c and u_c are the smallest and the largest y_c, and u_cj is the largest y_c if j is shown (Bront,
# Mendez-Diaz & Vulcano, 2009): a mixed-integer program.

_MAX_DINKELBACH_STEPS = 100  # usually fewer than ten are needed


def best_logit_offer(value: Logits, rows: ConstraintRows, start: Bools) -> SearchResult:
    """Find the best offer for a single logit by Dinkelbach's method."""
    a, r = value.attraction[0, 0], value.revenue
    offer, best = start, float(expected_revenue(value, start[None])[0])
    for step in range(1, _MAX_DINKELBACH_STEPS + 1):
        worth = (r - best) * a
        candidate = rows.best(worth)
        assert candidate is not None  # because start is feasible
        gain = float(worth @ candidate)
        least = float(a[rows.always].sum()) or float(a[~rows.never].min())  # smallest total attraction of an offer
        if gain <= CLOSED_GAP * abs(best) * float(a @ candidate):
            return SearchResult(offer, best, best + max(gain, 0.0) / least, step)
        offer, best = candidate, float(expected_revenue(value, candidate[None])[0])
    return SearchResult(offer, best, float(r.max()), _MAX_DINKELBACH_STEPS)


def best_logit_mixture_offer(value: Logits, rows: ConstraintRows, start: Bools, *, seconds: float) -> SearchResult:
    """Find the best offer for a mixture of logits by a mixed-integer program, within a time limit."""
    from scipy.optimize import Bounds, LinearConstraint
    from scipy.sparse import bmat, csr_array, diags_array, eye_array, kron

    # 1. Bounds of y and z.
    w, a, r = value.weights[0], value.attraction[0], value.revenue
    a = a / a.max(axis=1, keepdims=True)
    (C, n), N = a.shape, a.size
    base = a[:, rows.always].sum(axis=1)  # total attraction of the alternatives that are always shown
    with_j = base[:, None] + np.where(rows.always, 0.0, a)
    highest = 1 / np.where(base > 0, base, a[:, ~rows.never].min(axis=1))  # (C,) largest y
    lowest = 1 / a[:, ~rows.never].sum(axis=1)
    # 2. The linear program over (x, y, z).
    each, every = kron(eye_array(C), np.ones((n, 1))), kron(np.ones((C, 1)), eye_array(n))  # y and x of each z
    ones = eye_array(N)
    blocks = [  # columns x, y, z; rows of the form A (x, y, z) <= b
        ([every.multiply(lowest.repeat(n)[:, None]), None, -ones], np.zeros(N)),
        ([-every.multiply(1 / with_j.reshape(N, 1)), None, ones], np.zeros(N)),
        ([None, -each, ones], np.zeros(N)),
        ([every.multiply(highest.repeat(n)[:, None]), each, -ones], highest.repeat(n)),
    ]
    if len(rows.upper):
        blocks.append(([csr_array(rows.matrix), csr_array((len(rows.upper), C)), None], rows.upper))
    matrix = bmat([columns for columns, _ in blocks], format="csr")
    sums = bmat([[csr_array((C, n)), csr_array((C, C)), kron(eye_array(C), np.ones((1, n))) @ diags_array(a.ravel())]])
    objective = np.concatenate([np.zeros(n + C), -(w[:, None] * a * r).ravel()])
    solution = solve_integer_program(
        objective,
        constraints=[
            LinearConstraint(matrix, -np.inf, np.concatenate([upper for _, upper in blocks])),
            LinearConstraint(sums, 1.0, 1.0),
        ],
        bounds=Bounds(
            np.concatenate([rows.always, lowest, np.zeros(N)]),
            np.concatenate([~rows.never, highest, np.full(N, np.inf)]),
        ),
        integrality=np.concatenate([np.ones(n), np.zeros(C + N)]),
        options={"time_limit": seconds, "mip_rel_gap": CLOSED_GAP},
    )
    # 3. The better of the start and the solution; a time limit may leave a gap to the bound.
    offers = [start] if solution.x is None else [start, solution.x[:n] > 0.5]
    allowed = np.array([offer for offer in offers if rows.allow(offer[None])[0]])
    values = expected_revenue(value, allowed)
    best = float(values.max())
    bound = float(r.max()) if solution.mip_dual_bound is None else -float(solution.mip_dual_bound)
    return SearchResult(allowed[values.argmax()], best, max(bound, best), int(solution.mip_node_count or 0))


# -- Logit mixture offers ----------------------------------------------------------------------------------------------
# The best offer for a mixture of many logits, such as the draws of a mixed logit, by branch and bound.
#
# Logit c earns sum_j r_j a^c_j x_j / sum_j a^c_j x_j. If every logit could show its own selection of the undecided
# alternatives, the weighted sum of their best revenues would bound the revenue of any single offer. The best offer of a
# logit is found by Dinkelbach's method: at revenue v it shows the alternatives with the largest (r_j - v) a_j, all
# positive ones or as many as allowed. After any number of iterations
#
#     V_c <= v_c + max_x sum_j (r_j - v_c) a^c_j x_j / sum_{j shown} a^c_j
#
# because no offer of the node attracts less than the alternatives already shown. Logits with similar tastes agree about
# most alternatives, so few nodes are needed: far fewer than the variables of the mixed-integer program.
#
# Shapes: B nodes, C logits, n alternatives.

_MAX_MIXTURE_STEPS = 20  # of Dinkelbach's method; usually fewer than ten are needed
_ATTRACTIONS_PER_BATCH = 2**21
_REVENUE_TOLERANCE = 1e-12  # relative change at which Dinkelbach's method has converged


def best_mixture_offer(
    value: Logits, rows: ConstraintRows, start: Bools, *, stop: Callable[[], bool] = lambda: False
) -> SearchResult:
    """Find the best offer to a single individual. Stop when optimality is proven or ``stop`` returns True."""
    return _MixtureSearch(value, rows, start).run(stop)


class _MixtureSearch(BranchAndBound):
    """Branch and bound with bounds from the best offer of each logit. The warm start is the revenue of these offers."""

    def __init__(self, value: Logits, rows: ConstraintRows, start: Bools) -> None:
        super().__init__(value, rows, start)
        self.weights, a = value.weights[0], value.attraction[0]
        self.a = a / a.max(axis=1, keepdims=True)

    def guide(self, nodes: int) -> Floats:
        """Return the warm start for root nodes."""
        return np.full((nodes, len(self.weights)), self.best)

    def bound(self, nodes: Nodes) -> NodeBounds:
        """Return an upper bound for each node, computed in batches."""
        each = max(_ATTRACTIONS_PER_BATCH // self.a.size, 1)
        parts = [self._relax(nodes.take(slice(first, first + each))) for first in range(0, len(nodes), each)]
        return NodeBounds(*map(np.concatenate, zip(*parts, strict=True)))

    def _relax(self, nodes: Nodes) -> NodeBounds:
        """Return the bounds that follow from the best offer of each logit in each node."""
        # 1. Dinkelbach's method for all logits and nodes.
        a, r, v = self.a, self.value.revenue, nodes.guide
        least = nodes.shown @ a.T  # (B, C)
        for _ in range(_MAX_MIXTURE_STEPS):
            worth = (r - v[..., None]) * a  # (B, C, n)
            chosen = self._chosen(worth, nodes)
            attracted = np.where(chosen, a, 0.0).sum(axis=2)
            before, v = v, np.where(chosen, a * r, 0.0).sum(axis=2) / attracted
            if (np.abs(v - before) <= _REVENUE_TOLERANCE * np.abs(v)).all():
                break
        # 2. The bound, which is valid even without convergence.
        worth = (r - v[..., None]) * a
        gain = np.where(self._chosen(worth, nodes), worth, 0.0).sum(axis=2)
        upper = (v + np.maximum(gain, 0.0) / least) @ self.weights
        # 3. First-order loss if an alternative must be shown or hidden.
        to_show = np.where(chosen, 0.0, -worth / (attracted[..., None] + a))
        to_hide = np.where(chosen, worth / np.maximum(attracted[..., None] - a, least[..., None]), 0.0)
        to_show, to_hide = (np.einsum("c,bcn->bn", self.weights, each) for each in (to_show, to_hide))
        loss = np.minimum(to_show, to_hide) + 1e-3 * np.maximum(to_show, to_hide)
        return NodeBounds(upper, v, np.einsum("c,bcn->bn", self.weights, chosen), loss)

    def _chosen(self, worth: Floats, nodes: Nodes) -> Bools:  # (B, C, n)
        """Return a mask of the alternatives to show in each logit: those with the largest worth, up to the limit."""
        free, shown = nodes.free[:, None], nodes.shown[:, None]
        if nodes.of_any_size:
            return (free & (worth > 0)) | shown
        order = np.argsort(np.where(free, -worth, np.inf), axis=2, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(worth.shape[2])[None, None], axis=2)
        least, most = (size[:, None, None] - shown.sum(axis=2, keepdims=True) for size in nodes.sizes)
        chosen: Bools = (free & (((worth > 0) & (rank < most)) | (rank < least))) | shown
        return chosen


# -- Nested offers -----------------------------------------------------------------------------------------------------
# The best offer for a nested logit with one level of nests.
#
# With a_i = exp(v_i / l_m), A_m = sum_{i in m} a_i and W_m = A_m^{l_m}, an offer earns sum_m W_m R_m / sum_m W_m, where
# R_m = sum_{i in m} a_i r_i / A_m. It reaches z if and only if sum_m W_m (R_m - z) reaches 0, and each nest's term can
# be maximised separately. If all l_m <= 1 and the outside option is alone in its nest, the best selection of a nest
# consists of its alternatives with the largest revenues, so few selections must be tried (Davis, Gallego & Topaloglu,
# 2014). Each offer gives the next z. With further constraints the result is a bound.


@dataclass(frozen=True, eq=False)
class NestedLogits:
    """Nested logits with utilities (P, n), nests (n,) of the alternatives, log-sum parameters (M,) and revenue (n,)."""

    utilities: Floats
    nests: Ints
    logsums: Floats
    revenue: Floats

    def probabilities(self, offers: Bools, individuals: Ints) -> Floats:
        """Return choice probabilities (B, n) for offers (B, n) to individuals (B,)."""
        a = self.attraction[individuals] * offers  # (B, n)
        total = a @ (self.nests[:, None] == np.arange(len(self.logsums)))  # (B, M) A
        weight = np.where(total > 0, total, 0.0) ** self.logsums  # W
        share = weight / weight.sum(axis=1, keepdims=True)
        p: Floats = a / np.where(total > 0, total, 1.0)[:, self.nests] * share[:, self.nests]
        return p

    @property
    def attraction(self) -> Floats:
        """Attractions a (P, n), with the utilities shifted so that their maximum is 0."""
        below = self.utilities - self.utilities.max(axis=1, keepdims=True)
        attraction: Floats = np.exp(below / self.logsums[self.nests])
        return attraction

    def for_individual(self, individual: int) -> NestedLogits:
        """Return the revenue function of one individual."""
        return replace(self, utilities=self.utilities[[individual]])


def best_nested_offer(value: NestedLogits, rows: ConstraintRows, start: Bools) -> SearchResult:
    """Return the best offer, or ``start`` with an upper bound if the best offer cannot be determined."""
    best = float(expected_revenue(value, start[None])[0])
    highest = SearchResult(start, best, max(best, float(value.revenue[~rows.never].max())), 0)
    fixed = np.flatnonzero(rows.always)
    alone = len(fixed) > 0 and (value.nests == value.nests[fixed[0]]).sum() == 1
    if not alone or (value.logsums > 1).any():
        return highest
    always_only = ConstraintRows.unconstrained(np.arange(len(start)) == fixed[0])._replace(never=rows.never)
    unconstrained = _by_revenue(value, always_only, start)
    if rows.allow(unconstrained.offer[None])[0]:
        return unconstrained
    return SearchResult(start, best, max(unconstrained.value, best), unconstrained.nodes)


def _by_revenue(value: NestedLogits, rows: ConstraintRows, start: Bools) -> SearchResult:
    """Find the best offer if the constraints only state which alternatives are always or never shown."""
    z, offer = float(expected_revenue(value, start[None])[0]), start
    for step in range(1, _MAX_DINKELBACH_STEPS + 1):
        candidate = rows.always.copy()
        for nest in np.unique(value.nests[~(rows.always | rows.never)]):
            nest_alternatives = np.flatnonzero((value.nests == nest) & ~rows.never)
            nest_alternatives = nest_alternatives[np.argsort(-value.revenue[nest_alternatives], kind="stable")]
            a = value.attraction[0, nest_alternatives]
            gain = np.cumsum(a) ** (value.logsums[nest] - 1) * np.cumsum(a * (value.revenue[nest_alternatives] - z))
            if gain.max() > 0:
                candidate[nest_alternatives[: int(gain.argmax()) + 1]] = True
        reached = float(expected_revenue(value, candidate[None])[0])
        if reached <= z * (1 + 1e-12) and step > 1:
            break
        z, offer = reached, candidate
    return SearchResult(offer, z, z, step)


# -- Chain offers ------------------------------------------------------------------------------------------------------
# The best offer for a Markov chain, by branch and bound.
#
# The revenue of an offer S is the long-run average reward of the chain on S that earns r_i while in state i. Relative
# values h then solve V = r_i + sum_{j in S} q_ij (h_j - h_i) for all i in S. In the relaxation every state i selects
# which of the undecided alternatives j it can move to, as many as the node allows. This is a Markov decision process.
# An offer is a policy in which all states make the same selection, so the optimal average reward, found by policy
# iteration, is never below V of any offer of the node:
#
#     V* <= max_i [ r_i + sum_{j shown} q_ij (h_j - h_i) + max_T sum_{j in T} q_ij (h_j - h_i) ]     for any h,
#
# where T contains the undecided alternatives with the largest terms, as many as the node's range of the number shown
# allows. Without this range a state of high value would show nothing and one of low value nearly everything, so the
# number shown can tighten the bound considerably.
#
# A linear constraint a . x <= b enters with a multiplier m >= 0. In an offer j can be entered for the share x_j of the
# time, so showing j costs m a_j in every state, and m b is added to the bound. Multipliers follow Polyak's subgradient
# steps. For a mixture of chains the bounds are summed with their weights.
#
# Shapes: B nodes, C chains, n alternatives, m rows.

_NODES_PER_THREAD = 16  # so that their arrays fit into the cache of a core
_MAX_POLICY_STEPS = 30  # of policy iteration; the bound holds after any number of steps
_MIN_RELATIVE_RATE = 1e-12  # smaller rates are raised to this share of the largest, so that every state can be left
_MIN_GAIN = 1e-13  # smaller gains of a move are rounding
_ROOT_STEPS, _NODE_STEPS = 40, 2  # subgradient steps of the multipliers at the root and at other nodes


@single_threaded_blas()
def best_chain_offer(
    value: Chains, rows: ConstraintRows, start: Bools, *, stop: Callable[[], bool] = lambda: False
) -> SearchResult:
    """Find the best offer to a single individual. Stop when optimality is proven or ``stop`` returns True."""
    return _ChainSearch(value, rows, start).run(stop)


class _ChainSearch(BranchAndBound):
    """Branch and bound with bounds from Markov decision processes.

    The warm start holds relative values, followed by Lagrange multipliers.
    """

    by_size = True
    value: Chains

    def __init__(self, value: Chains, rows: ConstraintRows, start: Bools) -> None:
        super().__init__(value, rows, start)
        rates, self.weights = value.rates[0], value.weights[0]
        largest = rates.max(axis=(1, 2), keepdims=True, initial=_MIN_RELATIVE_RATE)  # a single alternative has no rates
        self.q = np.maximum(rates / largest, _MIN_RELATIVE_RATE)
        self.q[:, np.arange(len(start)), np.arange(len(start))] = 0.0

    def guide(self, nodes: int) -> Floats:
        """Return the warm start for root nodes."""
        return np.zeros((nodes, len(self.weights) * len(self.offer) + len(self.rows.upper)))

    def bound(self, nodes: Nodes) -> NodeBounds:
        """Return an upper bound for each node: the lowest bound over several multipliers if there are constraints."""
        best = current = self._relax_all(nodes)
        for _ in range((_NODE_STEPS if self.nodes else _ROOT_STEPS) if len(self.rows.upper) else 0):
            excess = current.shares @ self.rows.matrix.T - self.rows.upper  # (B, m) negative subgradient
            size = np.maximum((excess**2).sum(axis=1), 1e-12)
            step = np.maximum(current.upper - self.best, 0.0) / size
            guide = current.guide.copy()
            multipliers = guide[:, -len(self.rows.upper) :]
            multipliers[:] = np.maximum(multipliers + step[:, None] * excess, 0.0)
            current = self._relax_all(replace(nodes, guide=guide))
            better = (current.upper < best.upper)[:, None]
            best = NodeBounds(
                np.minimum(current.upper, best.upper),
                *(np.where(better, new, old) for new, old in zip(current[1:], best[1:], strict=True)),
            )
        return best

    def _relax_all(self, nodes: Nodes) -> NodeBounds:
        """Solve the Markov decision process of each node, with chunks of nodes in parallel."""
        cuts = range(0, len(nodes), _NODES_PER_THREAD)
        parts = map_in_threads(self._relax, [nodes.take(slice(first, first + _NODES_PER_THREAD)) for first in cuts])
        return NodeBounds(*map(np.concatenate, zip(*parts, strict=True)))

    def _relax(self, nodes: Nodes) -> NodeBounds:
        """Solve the Markov decision process of each node by policy iteration, given the multipliers of the node."""
        # 1. Policy iteration: improve the policy, then solve for relative values and average reward.
        B, C, n = len(nodes), len(self.weights), nodes.shown.shape[1]
        h, multipliers = nodes.guide[:, : C * n].reshape(B, C, n), nodes.guide[:, C * n :]
        cost = multipliers @ self.rows.matrix  # (B, n)
        states, at = np.arange(n), (np.arange(B)[:, None], np.arange(C)[None], slice(None), nodes.anchor[:, None])
        policy: Bools = np.empty(0, np.bool_)
        system: Floats = np.empty(0)
        for _ in range(_MAX_POLICY_STEPS):
            moves = self._moves(h, cost, nodes)
            if moves.chosen.shape == policy.shape and (moves.chosen == policy).all():
                break
            policy = moves.chosen
            system = -self.q * policy
            system[..., states, states] = -system.sum(axis=3)
            system[at] = 1.0  # the anchor's value is 0, so its column holds the average reward instead
            reward = self.value.revenue - np.einsum("bcij,bj->bci", policy, cost)  # (B, C, n)
            h = np.linalg.solve(system, reward[..., None])[..., 0]
            h[at[0], at[1], nodes.anchor[:, None]] = 0.0
        moves = self._moves(h, cost, nodes)
        # 2. The bound: the largest right-hand side of the optimality equation over states that can be entered.
        right = np.where(nodes.hidden[:, None], -np.inf, self.value.revenue + moves.total)
        upper = right.max(axis=2) @ self.weights + multipliers @ self.rows.upper
        # 3. First-order losses of showing or hiding an alternative, weighted by the stationary distribution.
        one = np.zeros((B, C, n))
        one[at[0], at[1], nodes.anchor[:, None]] = 1.0
        pi = np.linalg.solve(np.swapaxes(system, 2, 3), one[..., None])[..., 0] * self.weights[:, None]
        losses = moves.losses(float(np.ptp(self.value.revenue)))
        to_show, to_hide, shares = (np.einsum("bci,bcij->bj", pi, each) for each in (*losses, moves.chosen))
        loss = np.minimum(to_show, to_hide) + 1e-3 * np.maximum(to_show, to_hide)
        return NodeBounds(upper, np.concatenate([h.reshape(B, -1), multipliers], axis=1), shares, loss)

    def _moves(self, h: Floats, cost: Floats, nodes: Nodes) -> _Moves:
        """Return the best policy: each state shows the alternatives with the largest gains, up to the limit."""
        gain: Floats = (h[:, :, None, :] - h[:, :, :, None]) * self.q  # (B, C, n, n)
        if len(self.rows.upper):
            gain -= cost[:, None, None]  # also for the current state, which is shown
        settled = np.eye(h.shape[2], dtype=np.bool_) | nodes.shown[:, None]  # (B, n, n): the current state is shown
        free = ~(settled | nodes.hidden[:, None])[:, None]  # (B, 1, n, n)
        settled = settled[:, None]
        if nodes.of_any_size:
            chosen = (free & (gain > _MIN_GAIN)) | settled
            return _Moves(chosen, np.where(chosen, gain, 0.0).sum(axis=3), gain, free, np.zeros(1), np.zeros(1))
        least, most = (size[:, None, None, None] - settled.sum(axis=3, keepdims=True) for size in nodes.sizes)
        ranked = -np.sort(np.where(free, -gain, np.inf), axis=3)
        number = np.clip((ranked > _MIN_GAIN).sum(axis=3, keepdims=True), least, most)
        number = np.clip(number, 0, free.sum(axis=3, keepdims=True))
        total = np.where(np.arange(h.shape[2]) < number, ranked, 0.0).sum(axis=3)
        total += np.where(settled, gain, 0.0).sum(axis=3)
        last = np.where(number > 0, np.take_along_axis(ranked, np.maximum(number - 1, 0), axis=3), np.inf)
        after = np.take_along_axis(ranked, np.minimum(number, h.shape[2] - 1), axis=3)
        instead = np.where(number < most, np.minimum(last, 0.0), last)
        filled = np.where(number > least, np.maximum(after, 0.0), after)
        return _Moves((free & (gain >= last)) | settled, total, gain, free, instead, filled)


class _Moves(NamedTuple):
    """Best policy for given relative values: the alternatives (columns) to which each state (row) can move."""

    chosen: Bools  # (B, C, n, n)
    total: Floats  # (B, C, n) sum of the gains
    gain: Floats  # (B, C, n, n) gain from being able to move from i to j
    free: Bools  # (B, 1, n, n) alternatives that are not decided
    instead: Floats  # (B, C, n, 1) gain of the alternative that an additional one would replace
    filled: Floats  # (B, C, n, 1) gain of the alternative that would replace a hidden one

    def losses(self, highest: float) -> tuple[Floats, Floats]:  # (B, C, n, n) each
        """Return the losses of each state if an alternative must be shown, and if it must be hidden."""
        to_show = np.where(self.free & ~self.chosen, self.instead - self.gain, 0.0)
        to_hide = np.where(self.free & self.chosen, self.gain - self.filled, 0.0)
        return np.minimum(to_show, highest), np.minimum(to_hide, highest)
