import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import InputError
from pcmcnet.evaluation.ranks import alike, critical_distance, ranks


def test_ranks_by_hand() -> None:
    """Equal losses share the mean of their places; models without a loss share the last ones."""
    losses = [[0.3, 0.1, 0.2], [0.5, 0.5, 0.1], [np.inf, 0.4, np.inf], [1.0, 1.0 + 1e-12, 1.0]]
    expected = [[3, 1, 2], [2.5, 2.5, 1], [2.5, 1, 2.5], [2, 2, 2]]
    np.testing.assert_array_equal(ranks(losses), expected)


@given(st.lists(st.lists(st.sampled_from([0.1, 0.2, 0.7, np.inf]), min_size=4, max_size=4), max_size=5))
def test_the_ranks_of_a_table_always_sum_to_the_same(losses: list[list[float]]) -> None:
    found = ranks(np.array(losses).reshape(-1, 4))
    np.testing.assert_array_equal(found.sum(axis=1), np.full(len(losses), 10.0))


@pytest.mark.parametrize("losses", [[0.1, 0.2], [[0.1, np.nan]]])
def test_what_cannot_be_ranked_is_refused(losses: list[object]) -> None:
    with pytest.raises(InputError, match=r"expected numbers \(tables, models\) without NaN"):
        ranks(losses)  # type: ignore[arg-type]


@pytest.mark.parametrize(("models", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_distance_has_the_published_quantiles(models: int, q: float) -> None:
    """Demsar (2006), table 5(a), to the three decimals given there: CD = q sqrt(k (k + 1) / 6 N)."""
    assert critical_distance(models, 14) == pytest.approx(q * np.sqrt(models * (models + 1) / (6 * 14)), rel=3e-4)


def test_one_model_has_nothing_to_differ_from() -> None:
    with pytest.raises(InputError, match="2 or more models on 1 or more tables, got 1 on 3"):
        critical_distance(1, 3)


@pytest.mark.parametrize(
    ("means", "groups"),
    [
        ([1.0, 1.5, 3.0, 3.2], [(0, 1), (2, 3)]),
        ([1.0, 1.9, 2.8, 3.7], [(0, 1), (1, 2), (2, 3)]),
        ([1.0, 1.2, 1.4, 5.0], [(0, 2)]),  # (1, 2) lies within
        ([1.0, 2.5, 4.0], []),
        ([2.0, 2.0], [(0, 1)]),
    ],
)
def test_groups_reach_as_far_as_the_distance(means: list[float], groups: list[tuple[int, int]]) -> None:
    assert alike(means, 1.0) == groups
