"""The best offer for a logit, and for a mixture of logits, proven.

One logit. The revenue is a ratio, sum r_j a_j x_j / sum a_j x_j. It reaches v if and only if sum (r_j - v) a_j x_j
reaches 0 for some offer (Dinkelbach, 1967), a linear problem: without constraints the offer is ordered by revenue, with
them it is an integer program for HiGHS. Each offer found gives the next v, a few of which lead to the best.

A mixture. With y_c = 1 / sum_j a^c_j x_j and z_cj = y_c x_j the revenue sum_c w_c sum_j r_j a^c_j z_cj is linear, as in

    sum_j a^c_j z_cj = 1,    z_cj <= y_c,    l_c x_j <= z_cj <= u_cj x_j,    z_cj >= y_c - u_c (1 - x_j)

with l_c and u_c the smallest and the largest y_c, and u_cj the largest one when j is shown (Bront, Mendez-Diaz &
Vulcano, 2009): a mixed integer program.
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Bools
from pcmcnet.decisions.constraints import Rows
from pcmcnet.decisions.integer_program import solve_integer_program
from pcmcnet.decisions.offer_value import Logits, earned
from pcmcnet.decisions.search import Search

_ROUNDS = 100  # of Dinkelbach's method, which needs a handful
_PROVEN = 1e-9  # relative gap at which an offer counts as proven


def best_logit_offer(value: Logits, rows: Rows, start: Bools) -> Search:
    """Find the best offer for a single logit."""
    a, r = value.attraction[0, 0], value.revenue
    offer, best = start, float(earned(value, start[None])[0])
    for rounds in range(1, _ROUNDS + 1):
        worth = (r - best) * a
        found = rows.best(worth)
        assert found is not None  # start fulfils the constraints
        gain = float(worth @ found)
        least = float(a[rows.always].sum()) or float(a[~rows.never].min())  # no offer attracts less
        if gain <= _PROVEN * abs(best) * float(a @ found):
            return Search(offer, best, best + max(gain, 0.0) / least, rounds)
        offer, best = found, float(earned(value, found[None])[0])
    return Search(offer, best, float(r.max()), _ROUNDS)


def best_logit_mixture_offer(value: Logits, rows: Rows, start: Bools, *, seconds: float) -> Search:
    """Find the best offer for a mixture of logits by HiGHS, within a time limit."""
    from scipy.optimize import Bounds, LinearConstraint
    from scipy.sparse import bmat, csr_array, diags_array, eye_array, kron

    w, a, r = value.weights[0], value.attraction[0], value.revenue
    a = a / a.max(axis=1, keepdims=True)
    (C, n), N = a.shape, a.size
    base = a[:, rows.always].sum(axis=1)  # what is always shown attracts
    shown_too = base[:, None] + np.where(rows.always, 0.0, a)  # ... and with j
    highest = 1 / np.where(base > 0, base, a[:, ~rows.never].min(axis=1))  # (C,) of y
    lowest = 1 / a[:, ~rows.never].sum(axis=1)
    each, every = kron(eye_array(C), np.ones((n, 1))), kron(np.ones((C, 1)), eye_array(n))  # y and x, for each z
    ones = eye_array(N)
    blocks = [  # columns x, y, z; rows of the form A (x, y, z) <= b
        ([every.multiply(lowest.repeat(n)[:, None]), None, -ones], np.zeros(N)),
        ([-every.multiply(1 / shown_too.reshape(N, 1)), None, ones], np.zeros(N)),
        ([None, -each, ones], np.zeros(N)),
        ([every.multiply(highest.repeat(n)[:, None]), each, -ones], highest.repeat(n)),
    ]
    if len(rows.upper):
        blocks.append(([csr_array(rows.matrix), csr_array((len(rows.upper), C)), None], rows.upper))
    matrix = bmat([columns for columns, _ in blocks], format="csr")
    sums = bmat([[csr_array((C, n)), csr_array((C, C)), kron(eye_array(C), np.ones((1, n))) @ diags_array(a.ravel())]])
    objective = np.concatenate([np.zeros(n + C), -(w[:, None] * a * r).ravel()])
    found = solve_integer_program(
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
        options={"time_limit": seconds, "mip_rel_gap": _PROVEN},
    )
    offers = [start] if found.x is None else [start, found.x[:n] > 0.5]
    allowed = np.array([offer for offer in offers if rows.allow(offer[None])[0]])
    values = earned(value, allowed)
    best = float(values.max())
    bound = float(r.max()) if found.mip_dual_bound is None else -float(found.mip_dual_bound)
    return Search(allowed[values.argmax()], best, max(bound, best), int(found.mip_node_count or 0))
