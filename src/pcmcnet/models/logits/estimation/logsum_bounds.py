"""Bounds of log-sums: within which they are searched, and those at an end, which are no estimates.

Random utilities need 0 < logsum <= 1, and the search stays there unless ``bounds`` say otherwise. Shares of
alternatives in nests stay between 0 and 1.

The choices within a nest may hold no surprise, and its log-sum l then goes to 0; or be blind to what differs, and l
grows without limit. The search ends somewhere, and what it ended with is no estimate. Nor are coefficients b that go on
with l. To first order, with the Hessian H of the log-likelihood, they follow a change dl by

    db = -H_bb^-1 H_bl dl        with dl = l or -l, by the end, for all such log-sums together,

and those that change nearly in proportion are pushed to infinity or 0 as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import ConfigError
from pcmcnet.models.logits.estimation.parameter_bounds import Bounds
from pcmcnet.models.logits.estimation.standard_errors import Estimates

# Of a log-sum that has no other bounds: there the correlation within a nest is 1 - l^2 > .997, which makes it one
# alternative; or alternatives are chosen blindly.
LEAST, MOST = 0.05, 100.0
_POSITIVE = 1e-3  # the least log-sum that can be given: utilities are divided by it
_NEAR_END = 1.5  # factor: where the likelihood is flat, the search stops short of an end
_FOLLOWS = 0.5  # change of a coefficient with a log-sum, both relative; 1 where it is proportional


def usual_bounds(
    logsums: Sequence[str], shares: Sequence[str], given: Mapping[str, Bounds] | None
) -> dict[str, tuple[float, float]]:
    """Return the bounds of log-sums and shares; those that are given may narrow them, or widen those of log-sums."""
    bounds = dict.fromkeys(logsums, (LEAST, MOST if given is None else 1.0)) | dict.fromkeys(shares, (0.0, 1.0))
    for name, (low, high) in (given or {}).items():
        if name in logsums:
            bounds[name] = (LEAST if low is None or low <= 0 else low, MOST if high is None else high)
        if name in shares:
            bounds[name] = (max(low or 0.0, 0.0), 1.0 if high is None else min(high, 1.0))
    for name, (least, most) in bounds.items():
        if not least < most:
            allowed = "above 0" if name in logsums else "from 0 to 1"
            raise ConfigError(f"bounds[{name!r}] leave no value between {least:g} and {most:g}: it must be {allowed}.")
    return bounds


def require_within(
    usual: Mapping[str, tuple[float, float]],
    logsums: Collection[str],
    *,
    fixed: Mapping[str, float],
    start: Mapping[str, float],
) -> None:
    """Refuse a start outside the bounds of the search, and a fixed value that no model can have."""
    widest = {name: (_POSITIVE, np.inf) if name in logsums else (0.0, 1.0) for name in usual}
    for option, values, limits in (("fixed", fixed, widest), ("start", start, usual)):
        for name in limits.keys() & values.keys():
            low, high = limits[name]
            if not low <= values[name] <= high:
                raise ConfigError(f"{option}[{name!r}] = {values[name]:g} is outside its bounds, {low:g} to {high:g}.")


def logsum_problems(found: Estimates, logsums: Sequence[str]) -> list[str]:
    """Say which log-sums are no estimates, and which are no log-sums of random utilities."""
    problems: dict[str, list[str]] = {}
    for name in logsums:
        value = float(found.values[found.position(name)])
        if name in found.fixed:
            continue
        if name in found.unbounded and at_end(value):
            problem = "without limit, as alternatives are chosen as if they were "
            problem += "one" if value < 1 else "all the same, however they differ"
        elif name in found.at_bound and value == 1:
            problem = "at the bound of 1, where a nest makes no difference (bounds=None would free it)"
        elif value > 1:
            problem = "above 1: no random utilities lie behind the model"
        else:
            continue
        problems.setdefault(problem, []).append(name)
    return [f"{', '.join(names)}: {problem}; try other nests" for problem, names in problems.items()]


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
    # 1. The log-sums at an end of the search.
    ended = [k for k, name in enumerate(found.names) if name in logsums and at_end(found.values[k])]
    ended = [k for k in ended if found.names[k] not in found.fixed]
    if not ended:
        return found
    # 2. How the other coefficients follow a log-sum that goes on, to first order: db = -H_bb^-1 H_bl dl.
    given = {*found.fixed, *found.at_bound, *(found.names[k] for k in ended)}
    free = [k for k, name in enumerate(found.names) if name not in given]
    onward = found.values[ended] * np.where(found.values[ended] > 1, 1, -1)
    follow = np.linalg.pinv(bend[np.ix_(free, free)]) @ (bend[np.ix_(free, ended)] @ onward)
    # 3. Those that change nearly in proportion go on with it.
    moved = np.abs(follow) > _FOLLOWS * np.abs(found.values[free])
    lost = {found.names[k] for k in (*ended, *np.array(free, int)[moved])}
    return replace(
        found,
        at_bound=tuple(name for name in found.at_bound if name not in lost),
        unbounded=tuple(name for name in found.names if name in lost or name in found.unbounded),
    )
