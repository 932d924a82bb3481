"""Trees on binned inputs: splits by hand, bins, and the same trees in C and in numpy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.models import tree_growth
from pcmcnet.models.tree_growth import LEAF, Tree, as_bins, bin_edges, grow_tree, sum_trees

needs_compiled = pytest.mark.skipif(
    tree_growth.compiled_library() is None, reason="the package was built without a compiler"
)


def all_inputs(inputs: int, leaves: int) -> np.ndarray[Any, Any]:
    """Return every input for every node."""
    return np.tile(np.arange(inputs), (2 * leaves - 1, 1))


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compiled library and without it."""
    if request.param == "numpy":
        monkeypatch.setattr(tree_growth, "compiled_library", lambda: None)
    elif tree_growth.compiled_library() is None:
        pytest.skip("the package was built without a compiler")
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_the_split_with_the_largest_gain_by_hand() -> None:
    """Gradients -1, -1, 2, 2 with Hessians of 1 and l2 = 1, at x = 1, 2, 3, 4.

    Cut after 2: (-2)² / 3 + 4² / 3 - 2² / 5 = 4/3 + 16/3 - 4/5 = 88/15. After 1: 1/2 + 9/4 - 4/5 = 1.95; after 3:
    0 + 4/2 - 4/5 = 1.2. The halves have equal gradients, so a second cut gains 1/2 + 1/2 - 4/3 < 0 and
    4/2 + 4/2 - 16/3 < 0.
    """
    x = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    edges = bin_edges(x)
    assert [edge.tolist() for edge in edges] == [[1.5, 2.5, 3.5]]
    bins = as_bins(x, edges)
    g, h = np.array([-1.0, -1.0, 2.0, 2.0]), np.ones(4)
    tree = grow_tree(bins, np.arange(4), g, h, all_inputs(1, 4), leaves=4, min_rows=1, l2=1.0)
    assert tree.feature.tolist() == [0, LEAF, LEAF]
    assert tree.cut[0] == 1
    assert tree.gain[0] == pytest.approx(88 / 15)
    assert tree.leaves(bins).tolist() == [1, 1, 2, 2]


@pytest.mark.usefixtures("way")
def test_rows_that_are_not_used_and_small_leaves_do_not_count() -> None:
    x = np.arange(6, dtype=np.float32)[:, None]
    bins = as_bins(x, bin_edges(x))
    g, h = np.array([5.0, -1.0, -1.0, 1.0, 1.0, 1.0]), np.ones(6)
    used = np.arange(1, 6)  # without the row of the large gradient
    tree = grow_tree(bins, used, g, h, all_inputs(1, 2), leaves=2, min_rows=1, l2=0.5)
    assert tree.cut[0] == 2
    wide = grow_tree(bins, used, g, h, all_inputs(1, 2), leaves=2, min_rows=3, l2=0.5)
    assert wide.feature.tolist() == [LEAF]  # five rows have no two leaves of three rows


def test_values_between_and_beyond_the_edges_have_a_bin() -> None:
    edges = [np.array([1.0, 2.0])]
    x = np.array([[-9.0], [1.0], [1.5], [2.0], [2.1], [np.inf]], np.float32)
    assert as_bins(x, edges).tolist() == [[0, 0, 1, 1, 2, 2]]


def test_many_values_share_bins() -> None:
    x = np.random.default_rng(0).normal(size=(5_000, 1)).astype(np.float32)
    (edges,) = bin_edges(x)
    assert 200 < len(edges) <= 255
    counts = np.bincount(as_bins(x, [edges])[0], minlength=256)
    assert counts.max() < 5 * 5_000 / 256


def test_a_frequent_value_has_its_own_bin() -> None:
    """A charge that is 0 in 99.5% of the rows; the other values share 255 bins."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random(100_000) < 0.005, rng.gamma(2.0, 1.0, 100_000), 0.0).astype(np.float32)[:, None]
    (edges,) = bin_edges(x)
    positive = x[:, 0] > 0
    assert 200 < len(edges) <= 255
    assert as_bins(x, [edges])[0, positive].min() > 0
    assert (as_bins(x, [edges])[0, ~positive] == 0).all()


def test_an_unusable_library_is_logged_and_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "libtrees.so"
    broken.write_bytes(b"no library")
    try:
        tree_growth.compiled_library.cache_clear()
        monkeypatch.setattr(tree_growth, "VERSION", -1)
        assert tree_growth.compiled_library() is None
        assert ("belongs to another version of" in caplog.text) is tree_growth.LIBRARY_FILE.exists()
        tree_growth.compiled_library.cache_clear()
        monkeypatch.setattr(tree_growth, "LIBRARY_FILE", broken)
        assert tree_growth.compiled_library() is None
        assert "trees grow in numpy" in caplog.text
    finally:
        tree_growth.compiled_library.cache_clear()


def random_case(seed: int, rows: int, inputs: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, inputs)).astype(np.float32)
    x[:, 0] = np.round(x[:, 0])  # with ties
    bins = as_bins(x, bin_edges(x))
    used = np.flatnonzero(rng.random(rows) < 0.6)
    drawn = rng.permuted(all_inputs(inputs, 6), axis=1)[:, : max(inputs // 2, 1)]
    return bins, used, rng.normal(size=rows) + x[:, -1], rng.random(rows) + 0.01, drawn


@needs_compiled
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 200), inputs=st.integers(1, 6), min_rows=st.integers(1, 10))
def test_both_ways_grow_the_same_tree(seed: int, rows: int, inputs: int, min_rows: int) -> None:
    case = random_case(seed, rows, inputs)
    signs = np.random.default_rng(seed + 1).integers(-1, 2, inputs)
    options: dict[str, Any] = {"leaves": 6, "min_rows": min_rows, "l2": 1.0, "signs": signs}
    ours, theirs = tree_growth._grow_compiled(*case, **options), tree_growth._grow(*case, **options)
    for name in Tree.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


@needs_compiled
def test_both_ways_find_the_same_leaves_and_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    bins, *rest = random_case(1, 300, 4)
    tree = grow_tree(bins, *rest, leaves=6, min_rows=5, l2=1.0)
    assert len(tree.feature) == 11
    x = bins.T.astype(np.float32)
    nodes = (np.array([0]), tree.feature, tree.cut + 0.5, tree.left, tree.right, np.arange(11.0))
    compiled = tree.leaves(bins), sum_trees(x, *nodes)
    monkeypatch.setattr(tree_growth, "compiled_library", lambda: None)
    plain = tree.leaves(bins), sum_trees(x, *nodes)
    np.testing.assert_array_equal(compiled, plain)
    np.testing.assert_array_equal(compiled[1], compiled[0])  # the value of node k is k


# -- monotone inputs -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_split_against_the_sign_is_not_made(sign: int) -> None:
    """The gradients of :func:`test_the_split_with_the_largest_gain_by_hand`: the value rises from -2/3 to 4/3."""
    bins = np.arange(4, dtype=np.uint8)[None, :]
    g, h = np.array([-1.0, -1.0, 2.0, 2.0]), np.ones(4)
    options: dict[str, Any] = {"leaves": 2, "min_rows": 1, "l2": 1.0, "signs": np.array([sign])}
    tree = grow_tree(bins, np.arange(4), g, h, all_inputs(1, 2), **options)
    assert tree.feature.tolist() == ([0, LEAF, LEAF] if sign == 1 else [LEAF])


@pytest.mark.usefixtures("way")
def test_bounds_of_leaves_by_hand() -> None:
    """x = 1, 2, 3, 4 with gradients -1, -1, 2, -1, Hessians of 1, l2 = 0, and z = 0, 0, 0, 1, which marks the last row.

    With sign 1 for x, the cut after 2 has the values -1 and 1/2, so values on the right are at least -1/4. The right
    part is then cut at z: its values 2 and -1 are moved to 2 and -1/4. The gain of this cut is
    2² / 1 + (2 (-1) (-1/4) - (1/4)²) - 1² / 2 = 4 + 7/16 - 1/2 = 63/16.
    """
    bins = np.array([[0, 1, 2, 3], [0, 0, 0, 1]], np.uint8)
    g, h = np.array([-1.0, -1.0, 2.0, -1.0]), np.ones(4)
    drawn = np.array([[0], [0], [1], [0], [0]])
    options: dict[str, Any] = {"leaves": 3, "min_rows": 1, "l2": 0.0, "signs": np.array([1, 0])}
    tree = grow_tree(bins, np.arange(4), g, h, drawn, **options)
    assert tree.feature.tolist() == [0, LEAF, 1, LEAF, LEAF]
    assert tree.gain[[0, 2]] == pytest.approx([2 + 0.5 - 0.25, 63 / 16])
    assert tree.low.tolist() == [-np.inf, -np.inf, -0.25, -0.25, -0.25]
    assert tree.high.tolist() == [np.inf, -0.25, np.inf, np.inf, np.inf]


@given(seed=st.integers(0, 2**32), rows=st.integers(2, 120), inputs=st.integers(1, 4))
def test_trees_are_monotone_in_signed_inputs(seed: int, rows: int, inputs: int) -> None:
    """Two rows that differ in signed inputs reach leaves whose bounds are in the order of the signs."""
    rng = np.random.default_rng(seed)
    bins, used, g, h, _ = random_case(seed, rows, inputs)
    signs = rng.integers(-1, 2, inputs)
    tree = grow_tree(bins, used, g, h, all_inputs(inputs, 12), leaves=12, min_rows=1, l2=0.1, signs=signs)
    leaf = tree.leaves(bins)
    total_g, total_h = (np.bincount(leaf[used], v[used], len(tree.feature)) for v in (g, h))
    value = np.clip(total_g / (total_h + 0.1), tree.low, tree.high)
    lower = np.tile(bins[:, [int(rng.integers(rows))]], 50)
    higher = lower.copy()
    moved = np.sort(rng.integers(0, 256, (2, inputs, 50)), axis=0).astype(np.uint8)
    lower[signs > 0], higher[signs > 0] = moved[0][signs > 0], moved[1][signs > 0]
    lower[signs < 0], higher[signs < 0] = moved[1][signs < 0], moved[0][signs < 0]
    assert (value[tree.leaves(lower)] <= value[tree.leaves(higher)]).all()
