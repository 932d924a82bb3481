"""Connected components: a case by hand, and agreement with SciPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components as components_of

from pcmcnet.data.columns.connected import connected_components, strong_components


def test_components_are_numbered_by_their_first_node() -> None:
    """The edges 4-2, 2-0 and 3-1 leave node 5 alone."""
    components = connected_components(np.array([4, 2, 3]), np.array([2, 0, 1]), 6)
    assert components.tolist() == [0, 1, 0, 1, 0, 2]


def test_edges_of_a_cycle_connect_strongly() -> None:
    """0 -> 1 -> 0 is a cycle; 2 is only reached from it."""
    first, second, third = strong_components(np.array([0, 1, 1]), np.array([1, 0, 2]), 3)
    assert first == second != third


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_components_agree_with_scipy(graph: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = graph
    left, right = np.array(edges, np.int64).reshape(-1, 2).T
    expected = components_of(coo_array((np.ones(len(left)), (left, right)), shape=(n, n)), directed=False)[1]
    np.testing.assert_array_equal(connected_components(left, right, n), expected)


def test_a_long_path_in_any_order_is_one_component() -> None:
    nodes = np.random.default_rng(0).permutation(2000)
    assert not connected_components(nodes[:-1], nodes[1:], 2000).any()
