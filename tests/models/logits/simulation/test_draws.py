"""Draws that belong to a person."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.models.logits.simulation.draws import Draws, keys_of

SEQUENCES = ("sobol", "halton", "mlhs", "random")


@pytest.mark.parametrize("sequence", SEQUENCES)
@given(seed=st.integers(0, 2**63 - 1), order=st.permutations(range(6)))
def test_a_persons_draws_depend_on_nobody_else(sequence: str, seed: int, order: list[int]) -> None:
    draws, keys = Draws(sequence, 3, 20, seed), keys_of(["ann", "bob", 7, 7.5, "", "née"])  # type: ignore[arg-type]
    everyone = draws.of(keys)
    assert everyone.shape == (6, 3, 20)
    assert torch.equal(draws.of(keys[order]), everyone[list(order)])
    assert torch.equal(draws.of(keys[2:3])[0], everyone[2])


@pytest.mark.parametrize("sequence", ["sobol", "mlhs"])
def test_one_draw_falls_into_each_of_equal_intervals(sequence: str) -> None:
    """64 draws and 64 intervals: the digital shift, and the shuffle, move them about one for one."""
    t = Draws(sequence, 4, 64, seed=3).of(keys_of(range(5))).double()  # type: ignore[arg-type]
    cells = ((t + 1) * 32).floor().long()
    assert torch.equal(cells.sort(-1).values, torch.arange(64).expand(5, 4, 64))


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_draws_are_uniform_and_independent_across_persons_and_dimensions(sequence: str) -> None:
    """Of 200 persons x 50 draws: means within 4 of their standard errors, and so the correlations."""
    t = Draws(sequence, 3, 50, seed=0).of(keys_of(range(200))).double()  # type: ignore[arg-type]
    assert float(t.abs().max()) < 1
    assert float(t.mean().abs()) < 4 * (1 / 3) ** 0.5 / (200 * 50 * 3) ** 0.5
    assert float((t**2).mean()) == pytest.approx(1 / 3, abs=0.01)
    flat = t.transpose(0, 1).reshape(3, -1).numpy()
    assert np.abs(np.corrcoef(flat) - np.eye(3)).max() < 0.05
    first = t[:, :, 0].numpy()
    assert np.abs(np.corrcoef(first[:-1].ravel(), first[1:].ravel())[0, 1]) < 0.2


def test_antithetic_draws_mirror_each_other() -> None:
    t = dataclasses.replace(Draws("sobol", 2, 10, seed=0), antithetic=True).of(keys_of(["a"])).double()
    torch.testing.assert_close(t[:, :, 5:], -t[:, :, :5], rtol=0, atol=2.0**-23)  # to the rounding of float32


def test_seeds_and_ids_give_other_draws_and_equal_ids_the_same() -> None:
    draws = Draws("sobol", 2, 16, seed=0)
    a, b = keys_of(["a", "b"])
    assert not torch.equal(draws.of(np.array([a])), draws.of(np.array([b])))
    assert not torch.equal(draws.of(np.array([a])), Draws("sobol", 2, 16, seed=1).of(np.array([a])))
    assert keys_of([12])[0] == keys_of(["12"])[0]
    assert torch.equal(draws.common(), Draws("sobol", 2, 16, seed=0).common())
