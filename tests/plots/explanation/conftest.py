"""Explanations of small models, to draw; names of columns and labels are as hostile as a table's may be."""

from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, Explanation, PCMCNet, RankBy, explain
from pcmcnet.insight.explanation import PARTS

EVIL = "<a href='http://evil.example/'>&\"|</script>"


def trips(*, labels: bool = True, **roles: Any) -> ChoiceData:
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 6, 40)
    s = np.repeat(np.arange(40), sizes)
    price, time = rng.gamma(2.0, 2.0, len(s)) + 0.5, rng.uniform(10, 60, len(s))
    value = -0.8 * price - 0.03 * time + rng.gumbel(size=len(s))
    best = np.lexsort((-value, s))[np.cumsum(sizes) - sizes]
    names = np.array(["bike", "bus", "car", "train", EVIL])
    table = {
        "trip": s,
        "took": np.isin(np.arange(len(s)), best),
        "mode": names[np.concatenate([rng.permutation(5)[:n] for n in sizes])],
        "price": price,
        f"time {EVIL}": time,
        "purpose": np.array([EVIL, "leisure"])[rng.integers(2, size=40)][s],
    }
    given: dict[str, Any] = {
        "choice_set": "trip",
        "chosen": "took",
        "alternative": "mode" if labels else None,
        "features": ["price", f"time {EVIL}"],
        "individual": ["purpose"],
    }
    return ChoiceData.from_long(table, **{**given, **roles})


@pytest.fixture(scope="session")
def explained() -> dict[str, Explanation]:
    """By name: a chain with labels, a logit without, a ranking, a table without choices, and next to nothing."""
    data, plain = trips(), trips(labels=False)
    net = PCMCNet(hidden=(8,), epochs=3, batch_size=8).fit(data, progress=False)
    return {
        "chain": explain(net, data, sets=20, title=EVIL, progress=False),
        "logit": explain(MNL().fit(plain), plain, sets=20, progress=False),
        "ranking": explain(RankBy(column="price").fit(data), data, sets=20, progress=False),
        "unknown": explain(net, trips(chosen=None), sets=20, progress=False),
        "table": explain(net, data, skip=PARTS[1:], progress=False),
    }


@pytest.fixture(scope="session")
def evil() -> str:
    return EVIL
