"""Averages of responses, worked out by hand for a set of two alternatives and a set of one."""

import numpy as np
import pytest

from pcmcnet.models.interface.responses import cross_means, other_means, own_responses, step_sizes, weighted_mean_by

OFFSETS = np.array([0, 2, 3])
VALUES = np.array([-1.0, 2.0, 3.0, -4.0, -5.0])  # (0, 0), (0, 1), (1, 0), (1, 1), (2, 2)
MASS = np.array([1.0, 3.0, 2.0])
CODES = np.array([0, 1, 0])


def test_averages_count_weights() -> None:
    """Group 0: (1 * 2 + 3 * 4) / (1 + 3) = 3.5; group 2 has no weight."""
    values, weights, codes = np.array([2.0, 4.0, 7.0, 9.0]), np.array([1.0, 3.0, 2.0, 0.0]), np.array([0, 0, 1, 2])
    assert weighted_mean_by(values, weights, codes, 3).tolist() == [3.5, 7.0, 0.0]


def test_own_responses_are_the_diagonals() -> None:
    assert own_responses(VALUES, OFFSETS).tolist() == [-1.0, -4.0, -5.0]


def test_rivals_count_by_their_mass() -> None:
    """The value of 0 changes: r_10 = 3; that of 1: r_01 = 2. In one group: (3 * 3 + 1 * 2) / (3 + 1)."""
    assert other_means(VALUES, MASS, OFFSETS, CODES, 2).tolist() == [3.0, 2.0]
    assert other_means(VALUES, MASS, OFFSETS, np.zeros(3, int), 1).tolist() == [11 / 4]


def test_groups_are_averaged_over_all_sets_that_offer_the_one_that_responds() -> None:
    """Group 0 to itself: (1 * -1 + 2 * -5) / 3; to group 1, which the second set has not: 1 * 2 / (1 + 2)."""
    expected = [[-11 / 3, 2 / 3], [3.0, -4.0]]
    np.testing.assert_allclose(cross_means(VALUES, MASS, OFFSETS, CODES, 2), expected, rtol=1e-15)
    assert cross_means(VALUES, MASS, OFFSETS, np.array([0, 0, 1]), 2)[0, 1] == 0  # they never meet


def test_a_step_is_relative_to_the_value_or_to_the_mean_size() -> None:
    assert step_sizes(np.array([-2.0, 0.0, np.nan, 6.0])).tolist() == pytest.approx([2.0, 2.0, 2.0, 6.0])
    assert step_sizes(np.zeros(2)).tolist() == [1.0, 1.0]
