"""Samples of alternatives: which are drawn, and how many each one stands for."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data import ChoiceData
from pcmcnet.data.alternative_sampling import SamplingProtocol, draw_popular, draw_samples, draw_strata, draw_uniform
from pcmcnet.errors import ConfigError, InputError, SchemaError


def shops(sets: int = 40, size: int = 9) -> ChoiceData:
    """Return sets of the same labelled shops, with random choices and a category that alternates."""
    rng = np.random.default_rng(0)
    label = np.tile(np.arange(size), sets)
    chosen = rng.integers(3, size=sets)
    table = {
        "trip": np.repeat(np.arange(sets), size),
        "shop": label,
        "took": (label == np.repeat(chosen, size)).astype(int),
        "size": rng.random(sets * size),
        "kind": np.array(["food", "toys", "toys"])[label % 3],
        "income": np.repeat(rng.random(sets), size),
    }
    roles: dict[str, Any] = {"individual": ["income"], "features": ["size", "kind"], "alternative": "shop"}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", **roles)


# -- Draws -------------------------------------------------------------------------------------------------------------


def test_uniform_draws_contain_the_choice_and_stand_for_all_alternatives() -> None:
    """Four of ten alternatives: each stands for 10 / 4 = 2.5, and together they stand for ten."""
    positions, expansion = draw_uniform(10, 7, 4, np.random.default_rng(0))
    assert len(set(positions.tolist())) == 4
    assert 7 in positions
    assert (np.diff(positions) > 0).all()
    assert expansion.tolist() == [2.5] * 4


def test_every_other_alternative_is_drawn_equally_often() -> None:
    """Each of the nine others is drawn with probability 3/9. Over 3,000 draws, the standard error is .0086."""
    rng = np.random.default_rng(1)
    drawn = Counter(k for _ in range(3000) for k in draw_uniform(10, 7, 4, rng)[0].tolist())
    assert drawn.pop(7) == 3000
    assert len(drawn) == 9
    assert all(abs(count / 3000 - 1 / 3) < 0.04 for count in drawn.values())


def test_strata_are_equally_large_samples_whose_factors_sum_to_their_sizes() -> None:
    """Strata of 6, 1 and 3 alternatives with two draws each: factors 6 / 2, 1 / 1 and 3 / 2."""
    strata = np.array([0, 0, 0, 0, 0, 0, 1, 2, 2, 2])
    positions, expansion = draw_strata(strata, 8, 6, np.random.default_rng(0))
    assert 8 in positions
    assert strata[positions].tolist() == [0, 0, 1, 2, 2]
    assert expansion.tolist() == [3, 3, 1, 1.5, 1.5]


def test_popular_alternatives_stand_for_fewer() -> None:
    """Counts 9 and 1 and three zeros; alternative 0 is chosen in this set, so the other sets chose it 8 times.

    The mass is 8 + 9 / 5, 1 + 9 / 5 and 9 / 5 for the rest, 18 in all. An alternative that is drawn m times among
    three draws has the factor m * 18 / (3 mass).
    """
    mass = np.array([9.8, 2.8, 1.8, 1.8, 1.8])
    rng = np.random.default_rng(0)
    for _ in range(20):
        positions, expansion = draw_popular(np.array([9.0, 1, 0, 0, 0]), 0, 3, rng)
        times = expansion * 3 * mass[positions] / 18
        assert positions[0] == 0
        assert times == pytest.approx(times.round())
        assert times.sum() == pytest.approx(3)


def test_popular_draws_estimate_sums_over_the_full_set() -> None:
    """The weighted sum of any x over the draws estimates its sum over the set: the factors are inverse probabilities.

    With n draws and the choice as one of them, E sum_j W_j x_j = (n - 1) / n sum_j x_j + x_c / (n g_c).
    """
    x, counts, rng = np.array([3.0, -1.0, 2.0, 5.0]), np.array([5.0, 2.0, 1.0, 0.0]), np.random.default_rng(0)
    sums = []
    for _ in range(20_000):
        positions, expansion = draw_popular(counts, 1, 4, rng)
        sums.append((expansion * x[positions]).sum())
    mass = counts - [0, 1, 0, 0] + 7 / 4
    expected = 3 / 4 * x.sum() + x[1] * mass.sum() / (4 * mass[1])
    standard_error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - expected) < 4 * standard_error


def test_a_set_that_is_not_larger_than_the_sample_is_complete() -> None:
    sample = draw_samples(np.array([3, 5]), np.array([2, 0]), SamplingProtocol(3), seed=0)
    assert sample.offsets.tolist() == [0, 3, 6]
    assert sample.positions[:3].tolist() == [0, 1, 2]
    assert sample.expansion.tolist() == [1, 1, 1, 5 / 3, 5 / 3, 5 / 3]
    assert sample.chosen.tolist() == [2, 0]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    n=st.integers(2, 12),
    seed=st.integers(0, 99),
    by=st.sampled_from(["uniform", "popularity", "strata"]),
)
def test_every_sample_has_the_choice_once(sizes: list[int], n: int, seed: int, by: str) -> None:
    rng = np.random.default_rng(seed)
    chosen = np.array([rng.integers(size) for size in sizes])
    protocols = {
        "uniform": SamplingProtocol(n),
        "popularity": SamplingProtocol(
            n, popularity=lambda at: np.arange(sizes[at]) + np.bincount([chosen[at]], None, sizes[at])
        ),
        "strata": SamplingProtocol(n, strata=lambda at: np.arange(sizes[at]) % 3),
    }
    sample = draw_samples(np.array(sizes), chosen, protocols[by], seed)
    assert sample.positions[sample.offsets[:-1] + sample.chosen].tolist() == chosen.tolist()
    for k in range(len(sizes)):
        positions = sample.positions[sample.offsets[k] : sample.offsets[k + 1]]
        assert (np.diff(positions) > 0).all()
        assert positions[-1] < sizes[k]
    assert (sample.expansion > 0).all()
    if by != "popularity":
        sums = np.add.reduceat(sample.expansion, sample.offsets[:-1])
        assert sums == pytest.approx(np.array(sizes, float))


# -- Choice data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["uniform", "popularity", "kind"])
def test_a_sample_keeps_the_choices_and_the_columns_of_its_alternatives(by: str) -> None:
    data = shops()
    sample = data.sample_alternatives(4, by=by, seed=3)
    assert len(sample) == len(data)
    assert sample.largest <= 4
    assert sample.labels is not None
    assert data.labels is not None
    picked = sample.offsets[:-1] + sample.require_chosen("a test")
    assert (
        sample.labels.plain()[picked] == data.labels.plain()[data.offsets[:-1] + data.require_chosen("a test")]
    ).all()
    keys = zip(data.set_of_alternative.tolist(), data.labels.plain(), strict=True)
    size = dict(zip(keys, data.features["size"].plain().tolist(), strict=True))
    keys = zip(sample.set_of_alternative.tolist(), sample.labels.plain(), strict=True)
    assert [size[key] for key in keys] == sample.features["size"].plain().tolist()
    assert sample.individual["income"].plain().tolist() == data.individual["income"].plain().tolist()
    assert sorted(sample.rows.tolist()) == list(range(sample.n_rows))


def test_the_same_seed_gives_the_same_sample() -> None:
    data = shops()
    first, again, other = (data.sample_alternatives(4, seed=seed).fingerprint() for seed in (1, 1, 2))
    assert first == again != other


def test_factors_follow_the_alternatives() -> None:
    """Sets of three of nine, subsets of them, and joins with full sets, whose alternatives stand for themselves."""
    data = shops(6).sample_alternatives(3)
    assert data.expansion is not None
    part = data.subset([4, 1])
    assert part.expansion is not None
    assert part.expansion.tolist() == [3.0] * 6
    joined = part.concat(shops(2))
    assert joined.expansion is not None
    assert joined.expansion.tolist() == [3.0] * 6 + [1.0] * 18
    assert shops(2).concat(shops(3)).expansion is None
    assert data.with_positive_weight().expansion is not None
    assert "sampled alternatives" in repr(data)


def test_the_fingerprint_depends_on_the_factors() -> None:
    data = shops(6).sample_alternatives(3)
    assert data.expansion is not None
    other = replace(data, expansion=data.expansion * 2)
    assert data.fingerprint() != other.fingerprint()
    assert data.fingerprint() != replace(data, expansion=None).fingerprint()


def test_a_long_table_of_a_sample_has_its_factors() -> None:
    frame = shops(6).sample_alternatives(3).to_frame()
    assert frame["expansion"].tolist() == [3.0] * 18
    assert "expansion" not in shops(6).to_frame().columns


def test_unavailable_alternatives_are_not_drawn() -> None:
    table = {"trip": [1] * 8, "took": [0, 1] + [0] * 6, "open": [1, 1, 0, 1, 0, 1, 1, 1], "cost": range(8)}
    table = {name: list(values) for name, values in table.items()}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", available="open", features=["cost"])
    for seed in range(5):
        sample = data.sample_alternatives(3, seed=seed)
        assert not {2.0, 4.0} & set(sample.features["cost"].plain().tolist())
        assert sample.expansion is not None
        assert sample.expansion.tolist() == [2.0] * 3
        assert sample.n_rows == 3


def test_an_outside_option_may_be_drawn() -> None:
    table = {"trip": [1] * 5 + [2] * 5, "took": [0] * 5 + [1] + [0] * 4, "cost": [1.0, 2, 3, 4, 5] * 2}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"], outside="none")
    sample = data.sample_alternatives(3, seed=0)
    assert sample.outside is not None
    assert sample.outside[sample.offsets[0] + sample.require_chosen("a test")[0]]


# -- Bad input ---------------------------------------------------------------------------------------------------------


def test_samples_need_choices() -> None:
    data = ChoiceData.from_long({"trip": [1, 1], "cost": [1.0, 2.0]}, choice_set="trip", features=["cost"])
    with pytest.raises(InputError, match="needs the choices"):
        data.sample_alternatives(2)


@pytest.mark.parametrize("n", [1, 0, 2.5, True])
def test_a_sample_needs_two_alternatives(n: Any) -> None:
    with pytest.raises(ConfigError, match="n must be a whole number of at least 2"):
        shops().sample_alternatives(n)


def test_a_sample_is_not_sampled_again() -> None:
    with pytest.raises(InputError, match="drawn by sample_alternatives"):
        shops().sample_alternatives(5).sample_alternatives(3)


@pytest.mark.parametrize(("by", "message"), [("size", "'size' is numeric"), ("knd", "Did you mean 'kind'")])
def test_strata_need_a_categorical_feature(by: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        shops().sample_alternatives(3, by=by)


def test_popularity_needs_labels() -> None:
    data = ChoiceData.from_long(
        {"trip": [1, 1, 1], "took": [1, 0, 0], "cost": [1.0, 2.0, 3.0]},
        choice_set="trip",
        chosen="took",
        features=["cost"],
    )
    with pytest.raises(SchemaError, match="alternative=<column>"):
        data.sample_alternatives(2, by="popularity")
