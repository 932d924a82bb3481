import numpy as np
import pytest

from pcmcnet.errors import InputError
from pcmcnet.models.logits.estimation.identification import require_identified

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(200, 3))


def test_columns_of_their_own_pass_whatever_their_scale() -> None:
    require_identified(Z, "abc")
    require_identified(Z * [1e-6, 1, 1e6], "abc")
    near = Z.copy()
    near[:, 2] = near[:, 0] + 1e-3 * near[:, 1]
    near[:, 1] = RNG.normal(size=200)
    require_identified(near, "abc")


def test_columns_without_differences_are_named() -> None:
    z = np.column_stack([Z[:, 0], np.zeros(200), Z[:, 1], np.zeros(200)])
    problem = "'b' does not differ between the alternatives of any choice set, .* 2 such columns: 'b', 'd'. Leave them"
    with pytest.raises(InputError, match=problem):
        require_identified(z, "abcd")
    with pytest.raises(InputError, match=r"1 such column: 'b'. Leave it out"):
        require_identified(z[:, :3], "abc")


def test_a_column_that_is_there_twice_is_named_with_its_double() -> None:
    with pytest.raises(InputError, match=r"'d' is a linear combination of 'b', so .*; 1 such column: 'd'. Leave one"):
        require_identified(np.column_stack([Z, -7 * Z[:, 1]]), "abcd")


def test_a_combination_is_named_with_its_parts_alone() -> None:
    z = np.column_stack([Z, Z[:, 0] + 2 * Z[:, 2]])
    with pytest.raises(InputError, match="'d' is a linear combination of 'a', 'c', so"):
        require_identified(z, "abcd")
    with pytest.raises(InputError, match="'d' is a linear combination of 'a', 'c', so"):
        require_identified(z * [1e-6, 1, 1e6, 1e3], "abcd")


@pytest.mark.parametrize("offset", [0, 10_000])
def test_a_combination_of_rounded_numbers_is_noticed(offset: float) -> None:
    """Columns hold float32 numbers: 300 rounds by up to 1.5e-5, 10,000 by 5e-4."""
    parts = (offset + RNG.uniform(50, 500, size=(400, 2))).astype(np.float32)
    total = (parts.sum(1)).astype(np.float32)
    x = np.column_stack([parts, total]).astype(np.float64)
    with pytest.raises(InputError, match="'total' is a linear combination of 'fare', 'tax'"):
        require_identified(x[::2] - x[1::2], ("fare", "tax", "total"))


def test_many_names_are_counted() -> None:
    z = np.zeros((5, 12))
    with pytest.raises(InputError, match=r"12 such columns: 'a', 'b', .*'h' and 4 more"):
        require_identified(z, "abcdefghijkl")
