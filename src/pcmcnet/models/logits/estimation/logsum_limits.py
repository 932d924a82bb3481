"""Log-sums without a finite estimate, and the coefficients that go with them.

The choices within a nest may hold no surprise, and its log-sum l then goes to 0; or be blind to what differs, and l
grows without limit. The search ends somewhere, and what it ended with is no estimate. Nor are coefficients b that go on
with l. To first order, with the Hessian H of the log-likelihood, they follow a change dl by

    db = -H_bb^-1 H_bl dl        with dl = l or -l, by the end, for all such log-sums together,

and those that change nearly in proportion are pushed to infinity or 0 as well.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.models.logits.estimation.standard_errors import Estimates

# Of a log-sum that has no other bounds: there the correlation within a nest is 1 - l^2 > .997, which makes it one
# alternative; or alternatives are chosen blindly.
LEAST, MOST = 0.05, 100.0
_NEAR_END = 1.5  # factor: where the likelihood is flat, the search stops short of an end
_FOLLOWS = 0.5  # change of a coefficient with a log-sum, both relative; 1 where it is proportional


def at_end(logsum: float) -> bool:
    """Tell whether a log-sum runs as far as it may."""
    return not _NEAR_END * LEAST < logsum < MOST / _NEAR_END


def without_limit(found: Estimates, bend: Floats, logsums: Collection[str]) -> Estimates:
    """Say of log-sums at the ends of the search, and of all that goes with them, that they have no finite estimate.

    Parameters
    ----------
    found
        What the search ended with.
    bend
        (K, K) Hessian of the log-likelihood there.
    logsums
        Names of the log-sums whose ends are those of the search, not bounds that somebody gave.
    """
    ended = [k for k, name in enumerate(found.names) if name in logsums and at_end(found.values[k])]
    ended = [k for k in ended if found.names[k] not in found.fixed]
    if not ended:
        return found
    given = {*found.fixed, *found.at_bound, *(found.names[k] for k in ended)}
    free = [k for k, name in enumerate(found.names) if name not in given]
    onward = found.values[ended] * np.where(found.values[ended] > 1, 1, -1)
    follow = np.linalg.pinv(bend[np.ix_(free, free)]) @ (bend[np.ix_(free, ended)] @ onward)
    moved = np.abs(follow) > _FOLLOWS * np.abs(found.values[free])
    lost = {found.names[k] for k in (*ended, *np.array(free, int)[moved])}
    return replace(
        found,
        at_bound=tuple(name for name in found.at_bound if name not in lost),
        unbounded=tuple(name for name in found.names if name in lost or name in found.unbounded),
    )
