import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL
from pcmcnet.models.logit.column_sketch import SKETCH_ROWS, outside_span, sketch_columns


def test_columns_outside_a_plane_are_those_found_by_hand() -> None:
    """(1, 2, 0) is a + 2 b; (0, 0, 1) is orthogonal to the plane; 0 is in every span; 1e-4 counts as rounding."""
    basis = np.array([[1.0, 0.0], [0.0, 1e-6], [0.0, 0.0]])
    columns = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1e-4], [1.0, 0.0, 1e-2]]).T
    assert outside_span(columns, basis).tolist() == [False, True, False, False, True]
    assert outside_span(columns, basis[:, :0]).tolist() == [True, True, False, True, True]


@pytest.mark.parametrize("sets", [10, 400])  # fewer and more differences than rows of the sketch
def test_a_sketch_keeps_exactly_the_combinations_of_columns(sets: int) -> None:
    data = read(logit_choices(sets, {"x": 1.0, "y": 0.5, "z": 0.0}), features=["x", "y", "z"])
    x, y, both, product = (
        sketch_columns(MNL(formula=formula).fit(data).design_, data) for formula in ("x", "y", "x + y", "x:y + z")
    )
    assert x is not None
    assert y is not None
    assert both is not None
    assert product is not None
    assert both.shape == (SKETCH_ROWS, 2)
    np.testing.assert_array_equal(both, np.column_stack([x, y]))
    assert not outside_span(np.column_stack([x, y, 2 * x - 3 * y]), both).any()
    assert outside_span(product, both).all()


def test_a_utility_that_is_not_linear_has_no_sketch() -> None:
    table = logit_choices(30, {"x": 1.0})
    data = read({**table, "w": np.exp(table["x"])}, features=["w"])
    model = MNL(formula="boxcox(w)").fit(data)
    assert model.estimates_.sketch is None
    assert sketch_columns(model.design_, data) is None
