"""One thread for tests that train, and a problem small enough to train in milliseconds."""

from collections.abc import Callable

import numpy as np
import pytest

from pcmcnet.data import ChoiceData, EncodedSets, Encoder

MakeSets = Callable[..., EncodedSets]


@pytest.fixture
def make_sets() -> MakeSets:
    """Choice sets of 2 to 5 alternatives with two features; the largest first feature is chosen."""

    def make(n: int = 24, *, seed: int = 0, chosen: str = "largest", weight: list[float] | None = None) -> EncodedSets:
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, 6, n)
        sets = np.repeat(np.arange(n), sizes)
        x = rng.normal(size=(len(sets), 2))
        order = np.lexsort((x[:, 0], sets))
        picked = np.cumsum(sizes) - 1 if chosen == "largest" else np.cumsum(sizes) - sizes
        table = {"set": sets, "x": x[:, 0], "y": x[:, 1], "chosen": np.isin(np.arange(len(sets)), order[picked])}
        if weight is not None:
            table["weight"] = np.repeat(np.array(weight), sizes)
        data = ChoiceData.from_long(
            table,
            choice_set="set",
            chosen="chosen",
            features=["x", "y"],
            weight=None if weight is None else "weight",
        )
        return Encoder.learn(data).encode(data)

    return make
