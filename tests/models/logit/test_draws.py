"""Draws of persons, blocks of persons, and probabilities over draws."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

from pcmcnet.models.logit import draws
from pcmcnet.models.logit.draws import PersonBlock, PersonDraws, Population, _sums, hash_ids, person_blocks
from pcmcnet.models.logit.random_coefficients import Distribution, MixingDistribution, RandomCoefficient

SEQUENCES = ("sobol", "halton", "mlhs", "random")


@pytest.mark.parametrize("sequence", SEQUENCES)
@given(seed=st.integers(0, 2**63 - 1), order=st.permutations(range(6)))
def test_the_draws_of_a_person_do_not_depend_on_other_persons(sequence: str, seed: int, order: list[int]) -> None:
    draws, keys = PersonDraws(sequence, 3, 20, seed), hash_ids(["ann", "bob", 7, 7.5, "", "née"])  # type: ignore[arg-type]
    everyone = draws.of(keys)
    assert everyone.shape == (6, 3, 20)
    assert torch.equal(draws.of(keys[order]), everyone[list(order)])
    assert torch.equal(draws.of(keys[2:3])[0], everyone[2])


@pytest.mark.parametrize("sequence", ["sobol", "mlhs"])
def test_each_of_the_equal_intervals_has_one_draw(sequence: str) -> None:
    """64 draws and 64 intervals: the digital shift and the shuffle permute them."""
    t = PersonDraws(sequence, 4, 64, seed=3).of(hash_ids(range(5))).double()  # type: ignore[arg-type]
    cells = ((t + 1) * 32).floor().long()
    assert torch.equal(cells.sort(-1).values, torch.arange(64).expand(5, 4, 64))


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_draws_are_uniform_and_independent(sequence: str) -> None:
    """With 200 persons x 50 draws, means and correlations are within 4 standard errors."""
    t = PersonDraws(sequence, 3, 50, seed=0).of(hash_ids(range(200))).double()  # type: ignore[arg-type]
    assert float(t.abs().max()) < 1
    assert float(t.mean().abs()) < 4 * (1 / 3) ** 0.5 / (200 * 50 * 3) ** 0.5
    assert float((t**2).mean()) == pytest.approx(1 / 3, abs=0.01)
    flat = t.transpose(0, 1).reshape(3, -1).numpy()
    assert np.abs(np.corrcoef(flat) - np.eye(3)).max() < 0.05
    first = t[:, :, 0].numpy()
    assert np.abs(np.corrcoef(first[:-1].ravel(), first[1:].ravel())[0, 1]) < 0.2


def test_antithetic_draws_mirror_each_other() -> None:
    t = dataclasses.replace(PersonDraws("sobol", 2, 10, seed=0), antithetic=True).of(hash_ids(["a"])).double()
    torch.testing.assert_close(t[:, :, 5:], -t[:, :, :5], rtol=0, atol=2.0**-23)  # to the rounding of float32


def test_draws_depend_on_the_seed_and_the_person_id() -> None:
    draws = PersonDraws("sobol", 2, 16, seed=0)
    a, b = hash_ids(["a", "b"])
    assert not torch.equal(draws.of(np.array([a])), draws.of(np.array([b])))
    assert not torch.equal(draws.of(np.array([a])), PersonDraws("sobol", 2, 16, seed=1).of(np.array([a])))
    assert hash_ids([12])[0] == hash_ids(["12"])[0]
    assert torch.equal(draws.common(), PersonDraws("sobol", 2, 16, seed=0).common())


# -- Blocks ------------------------------------------------------------------------------------------------------------
# Persons in blocks.


CPU = torch.device("cpu")


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    most=st.integers(1, 30),
    data=st.data(),
)
def test_every_row_is_in_one_block_with_its_set_and_person(sizes: list[int], most: int, data: st.DataObject) -> None:
    person = np.array(data.draw(st.lists(st.integers(0, 4), min_size=len(sizes), max_size=len(sizes))))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    z = np.arange(1.0, offsets[-1] + 1)[:, None]  # no row is 0, unlike padding
    sums = np.add.reduceat(z[:, 0], offsets[:-1])
    seen: list[int] = []
    for block in person_blocks(z, offsets, person, most, CPU):
        N, m, _ = block.z.shape
        assert N == 1 or N * m <= most
        seen += block.rows.tolist()
        flat = block.z.view(N * m, 1)
        assert (flat[block.empty_rows] == 0).all()
        assert len(block.empty_rows) == N * m - len(block.rows)
        by_set = block.sum_rows(flat)
        mine = [s for n in block.persons for s in np.flatnonzero(person == n)]
        np.testing.assert_array_equal(by_set[:, 0].numpy(), sums[mine])
        by_person = [sums[person == n].sum() for n in block.persons]
        np.testing.assert_array_equal(block.sum_sets(by_set)[:, 0].numpy(), by_person)
        largest = [z[offsets[s] : offsets[s + 1]].max() for s in mine]
        np.testing.assert_array_equal(block.largest(flat)[:, 0].numpy(), largest)
    assert sorted(seen) == list(range(len(z)))


def test_sums_by_index_agree_with_segment_reduce() -> None:
    values = torch.rand(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    owner, counts = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([2, 1, 3])
    flat = values.movedim(-2, 0).contiguous()
    expected = torch.segment_reduce(flat, "sum", lengths=counts, axis=0).movedim(0, -2)
    torch.testing.assert_close(_sums(values, owner, counts), expected)


def test_persons_with_similar_numbers_of_rows_share_a_block() -> None:
    """Persons with 1, 1, 4 and 4 rows in blocks of 8 need no padding rows."""
    offsets = np.array([0, 4, 5, 9, 10])
    result: list[PersonBlock] = list(person_blocks(np.ones((10, 2)), offsets, np.array([0, 1, 2, 3]), 8, CPU))
    assert [block.persons.tolist() for block in result] == [[1, 3], [0, 2]]
    assert not sum(len(block.empty_rows) for block in result)


@pytest.mark.gpu
def test_sums_on_a_gpu_agree_with_a_cpu() -> None:
    values = torch.rand(3, 6, 4, dtype=torch.float64)
    owner, counts = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([2, 1, 3])
    there = _sums(values.cuda(), owner.cuda(), counts.cuda())
    torch.testing.assert_close(there.cpu(), _sums(values, owner, counts))


# -- Population --------------------------------------------------------------------------------------------------------
# Probabilities over draws that all choice sets share.


PLAIN = MixingDistribution(("a", "b"), 2, (RandomCoefficient(1, Distribution("normal")),))
BY_WHO = MixingDistribution(
    ("a", "b"), 2, (RandomCoefficient(1, Distribution("lognormal")),), means=((0, 0),), who=("h",)
)


@pytest.mark.parametrize("mixing", [PLAIN, BY_WHO])
def test_probabilities_are_means_over_draws(mixing: MixingDistribution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "_UTILITIES_AT_ONCE", 100)
    rng = np.random.default_rng(0)
    sizes = np.array([3, 1, 2, 5])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x, h = rng.standard_normal((11, 2)), rng.standard_normal((4, len(mixing.who)))
    parameters = rng.uniform(0.2, 0.5, len(mixing.names))
    people = Population(mixing, parameters, PersonDraws("sobol", 1, 20, 0))
    result, sums = people.log_probabilities(x, offsets, h), people.log_sums(x, offsets, h)
    for s in range(4):
        inside = slice(offsets[s], offsets[s + 1])
        v = x[inside] @ people.coefficients(h[s : s + 1])[0].numpy()
        np.testing.assert_allclose(result[inside], np.log(np.exp(log_softmax(v, axis=0)).mean(axis=1)), rtol=1e-10)
        np.testing.assert_allclose(sums[s], logsumexp(v, axis=0), rtol=1e-12)


def test_a_standard_deviation_of_0_is_the_multinomial_logit() -> None:
    people = Population(PLAIN, np.array([0.3, -0.2, 0.0]), PersonDraws("halton", 1, 10, 0))
    x = np.random.default_rng(0).standard_normal((3, 2))
    result = people.log_probabilities(x, np.array([0, 3]), np.zeros((1, 0)))
    np.testing.assert_allclose(result, log_softmax(x @ [0.3, -0.2]))
