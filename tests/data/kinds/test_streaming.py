import numpy as np

from pcmcnet.data.kinds.streaming import Moments


def test_moments_of_parts_are_those_of_the_whole() -> None:
    rows = np.random.default_rng(0).normal(size=(90, 3)) * [1.0, 10.0, 0.1] + np.arange(90)[:, None]
    found = Moments()
    for part in (rows[:20], rows[:0], rows[20:21], rows[21:]):
        found.add(part)
    assert found.count == 90
    np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.spread, rows.std(0), rtol=1e-12)


def test_the_spread_of_no_rows_is_0() -> None:
    assert Moments().spread.tolist() == [0.0]
