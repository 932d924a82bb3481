"""Fixtures for pictures: the size of a PNG file, and explanations of small models with hostile names."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import largest, picture
from pcmcnet import MNL, ChoiceData, Explanation, PCMCNet, RankBy, explain
from pcmcnet.insight.explanation import PARTS


@pytest.fixture
def png_size() -> Callable[[Path], tuple[int, int]]:
    """Return a function that reads width and height in pixels, and rejects invalid or truncated PNG files."""

    def size(path: Path) -> tuple[int, int]:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert content.endswith(b"IEND\xaeB`\x82")
        width, height = struct.unpack(">II", content[16:24])
        return width, height

    return size


EVIL = "<a href='http://evil.example/'>&\"|</script>"


def trips(*, labels: bool = True, **roles: Any) -> ChoiceData:
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 6, 40)
    s = np.repeat(np.arange(40), sizes)
    price, time = rng.gamma(2.0, 2.0, len(s)) + 0.5, rng.uniform(10, 60, len(s))
    took = largest(-0.8 * price - 0.03 * time + rng.gumbel(size=len(s)), s)
    names = np.array(["bike", "bus", "car", "train", EVIL])
    table = {
        "trip": s,
        "took": took,
        "mode": names[np.concatenate([rng.permutation(5)[:n] for n in sizes])],
        "price": price,
        f"time {EVIL}": time,
        "seat": np.array([EVIL, "aisle", "window"])[rng.integers(3, size=len(s))],
        "purpose": np.array([EVIL, "leisure"])[rng.integers(2, size=40)][s],
    }
    given: dict[str, Any] = {
        "choice_set": "trip",
        "chosen": "took",
        "alternative": "mode" if labels else None,
        "features": ["price", f"time {EVIL}", "seat"],
        "individual": ["purpose"],
        "columns": {"price": {"name": f"Price {EVIL}", "unit": "EUR"}, "seat": {"name": "Seat"}},
    }
    return ChoiceData.from_long(table, **{**given, **roles})


@pytest.fixture(scope="session")
def explained() -> dict[str, Explanation]:
    """Return explanations by name: chain with labels, logit without, ranking, table without choices, almost empty."""
    data, plain = trips(), trips(labels=False)
    net = PCMCNet(hidden=(8,), epochs=3, weight_decay=0.0, batch_size=8).fit(data, progress=False)
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


def rooms(sets: int = 12) -> ChoiceData:
    """Return rooms with pictures, texts, lists and vectors; individuals have a picture and a time."""
    rng = np.random.default_rng(0)

    n = 3 * sets
    table = {
        "search": np.repeat(np.arange(sets), 3),
        "booked": (np.arange(3) == rng.integers(3, size=sets)[:, None]).ravel().astype(int),
        "price": rng.uniform(50, 200, n),
        "photo": [picture(int(light)) for light in rng.integers(255, size=n)],
        "about": [EVIL + " and very many words of a text that goes on and on without an end in sight"] * n,
        "services": [[["wifi"], ["pool", EVIL], []][k] for k in rng.integers(3, size=n)],
        "style": rng.normal(size=(n, 5)),
        "guest": np.repeat([picture(light) for light in range(sets)], 3),
        "at": np.repeat(np.datetime64("2024-03-01", "s") + rng.integers(10**6, size=sets), 3),
    }
    kinds: dict[str, Any] = {"photo": "image", "about": "text", "services": "multi", "style": "vector"}
    return ChoiceData.from_long(
        table,
        choice_set="search",
        chosen="booked",
        features=["price", *kinds],
        individual=["guest", "at"],
        kinds={**kinds, "guest": "image", "at": "datetime"},
    )


@pytest.fixture(scope="session")
def rich() -> Explanation:
    """Return the explanation of a network that reads all kinds of columns."""
    data = rooms()
    net = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    return explain(net, data, sets=6, baselines={}, progress=False)
