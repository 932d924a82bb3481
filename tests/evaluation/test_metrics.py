import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import pcmcnet as pn
from choice_tables import trips
from pcmcnet.errors import InputError
from pcmcnet.evaluation.metrics import brier, kl, nll, places_of_chosen, rank_of_chosen, top_hits, uniform_log_p
from pcmcnet.evaluation.predictions import training_overlap

OFFSETS, CHOSEN = np.array([0, 2, 5]), np.array([1, 0])
LOG_P = np.log([0.75, 0.25, 0.5, 0.25, 0.25])  # two sets, of 2 and 3 alternatives


def log(p: list[float]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(p)


@st.composite
def choice_sets(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Flat log-probabilities with many ties and some zeros, offsets and choices."""
    sets = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5).filter(any), min_size=1, max_size=6))
    chosen = [draw(st.integers(0, len(s) - 1)) for s in sets]
    p = [v / sum(s) for s in sets for v in s]
    return log(p), np.cumsum([0, *map(len, sets)]), np.array(chosen)


def split(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    return np.split(values, offsets[1:-1])


def test_nll_is_minus_the_log_of_the_chosen_probability() -> None:
    """-log 1/4 = 2 log 2 and -log 1/2 = log 2."""
    np.testing.assert_allclose(nll(LOG_P, OFFSETS, CHOSEN), [2 * np.log(2), np.log(2)], rtol=1e-15)


def test_nll_is_zero_for_a_certain_choice_and_inf_for_an_impossible() -> None:
    loss = nll(np.array([0.0, -np.inf, 0.0]), np.array([0, 1, 3]), np.array([0, 0]))
    assert loss.tolist() == [0.0, np.inf]
    assert not np.signbit(loss[0])


def test_brier_sums_squared_errors_over_all_alternatives() -> None:
    """(3/4)^2 + (1/4 - 1)^2 = 18/16; (1/2 - 1)^2 + 2 (1/4)^2 = 6/16."""
    np.testing.assert_allclose(brier(LOG_P, OFFSETS, CHOSEN), [18 / 16, 6 / 16], rtol=1e-15)


def test_brier_does_not_change_its_input() -> None:
    before = LOG_P.copy()
    brier(LOG_P, OFFSETS, CHOSEN)
    np.testing.assert_array_equal(LOG_P, before)


def test_kl_skips_zero_truth_and_is_inf_for_impossible_predictions() -> None:
    """Set 1: 1 log(1 / (1/4)) with a term 0 log(0 / 0). Set 2: 1/2 log(1/2 / 0) = inf. Set 3: equal distributions."""
    true = np.array([1.0, 0.0, 0.0, 0.5, 0.5, 0.3, 0.7])
    result = kl(true, log([0.25, 0.75, 0.0, 1.0, 0.0, 0.3, 0.7]), np.array([0, 3, 5, 7]))
    np.testing.assert_allclose(result, [2 * np.log(2), np.inf, 0.0], rtol=1e-15)


def test_kl_keeps_probabilities_that_underflow() -> None:
    """log p = -1000 has p = 0 in floating point; 1/2 (log 1/2 + 1000) + 1/2 (log 1/2 - 0)."""
    result = kl(np.array([0.5, 0.5]), np.array([-1000.0, 0.0]), np.array([0, 2]))
    np.testing.assert_allclose(result, [500 - np.log(2)], rtol=1e-15)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, [0.0, 1.0, 1 / 4, 0.0]), (2, [1 / 2, 1.0, 1 / 2, 0.0]), (3, [1.0, 1.0, 3 / 4, 1.0])],
)
def test_tied_alternatives_share_their_ranks(n: int, expected: list[float]) -> None:
    """Ranks of the choices: 2nd or 3rd (a = 1, t = 2); 1st; any of 1st to 4th; 3rd of 3."""
    log_p = log([0.5, 0.25, 0.25, *[0.6, 0.4], *[0.25] * 4, *[0.5, 0.4, 0.1]])
    result = top_hits(log_p, np.array([0, 3, 5, 9, 12]), np.array([2, 0, 1, 2]), n)
    np.testing.assert_allclose(result, expected, rtol=1e-15, atol=0)


def test_impossible_alternatives_are_tied() -> None:
    """One alternative is better and three are tied at probability 0: inf - inf gives no NaN."""
    better, tied = rank_of_chosen(log([1.0, 0.0, 0.0, 0.0]), np.array([0, 4]), np.array([2]))
    assert (better.tolist(), tied.tolist()) == ([1], [3])


def test_float32_rounding_is_a_tie_but_a_real_difference_is_not() -> None:
    """Rounding favours one of two equal alternatives. Each still has a chance of 1/2."""
    offsets, chosen = np.array([0, 2, 4, 6]), np.array([0, 0, 0])
    ulp = float(np.spacing(np.float32(64)))  # float32 is no finer for log p below -64
    log_p = np.array([-64.0, -64 + ulp, -64.0, -64 - ulp, -1.0, -1 + 1e-4])
    assert top_hits(log_p, offsets, chosen, 1).tolist() == [0.5, 0.5, 0.0]
    assert top_hits(log_p, offsets, chosen, 1, tie=0.0).tolist() == [0.0, 1.0, 0.0]


@given(choice_sets(), st.integers(1, 6))
def test_top_is_the_mean_over_all_orders_of_tied_alternatives(
    sets: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]], n: int
) -> None:
    log_p, offsets, chosen = sets
    expected = []
    for scores, c in zip(split(log_p, offsets), chosen, strict=True):
        orders = itertools.permutations(range(len(scores)))  # the rank of each alternative among tied ones
        ranked = [sorted(range(len(scores)), key=lambda i: (-scores[i], order[i])) for order in orders]
        expected.append(np.mean([ranking.index(c) < n for ranking in ranked]))
    np.testing.assert_allclose(top_hits(log_p, offsets, chosen, n), expected, rtol=1e-12)


@given(choice_sets())
def test_metrics_agree_with_a_loop_over_sets(
    sets: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]],
) -> None:
    log_p, offsets, chosen = sets
    uniform = np.exp(uniform_log_p(offsets))
    for k, (scores, true) in enumerate(zip(split(log_p, offsets), split(uniform, offsets), strict=True)):
        p, y = np.exp(scores), np.eye(len(scores))[chosen[k]]
        np.testing.assert_allclose(true, 1 / len(scores), rtol=1e-12)
        assert nll(log_p, offsets, chosen)[k] == -scores[chosen[k]]
        np.testing.assert_allclose(brier(log_p, offsets, chosen)[k], ((p - y) ** 2).sum(), rtol=1e-12, atol=1e-15)
        with np.errstate(divide="ignore"):
            terms = [t * np.log(t / q) for t, q in zip(true, p, strict=True)]
        np.testing.assert_allclose(kl(uniform, log_p, offsets)[k], sum(terms), rtol=1e-12, atol=1e-15)


def test_random_ranks_are_uniform_over_ties_and_follow_the_seed() -> None:
    """One alternative is better and three are tied: ranks 1, 2 and 3 each occur in a third of 30,000 sets."""
    sets = 30_000
    log_p, offsets = np.tile(log([0.4, 0.2, 0.2, 0.2]), sets), np.arange(0, 4 * sets + 1, 4)
    result = places_of_chosen(log_p, offsets, np.full(sets, 2), np.random.default_rng(0))
    shares = np.bincount(result, minlength=4) / sets
    assert shares[0] == 0
    np.testing.assert_allclose(shares[1:], 1 / 3, rtol=0, atol=0.0136)  # five standard errors
    again = places_of_chosen(log_p, offsets, np.full(sets, 2), np.random.default_rng(0))
    np.testing.assert_array_equal(result, again)
    assert (result != places_of_chosen(log_p, offsets, np.full(sets, 2), np.random.default_rng(1))).any()


@given(choice_sets(), st.integers(0, 2**16))
def test_random_ranks_are_among_the_tied_ranks(
    sets: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]], seed: int
) -> None:
    better, tied = rank_of_chosen(*sets)
    result = places_of_chosen(*sets, np.random.default_rng(seed))
    assert ((better <= result) & (result < better + tied)).all()


# -- Per set -----------------------------------------------------------------------------------------------------------
# A scanned table is evaluated shard by shard. The report is the same as in memory.


ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "features": ["price", "minutes"],
    "available": "open",
    "weight": "weight",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 300 sets of 2 to 6 alternatives. Some alternatives are unavailable, and some sets have weight 0."""
    rows = trips(300, sizes=(2, 6), slope=-0.1, mixed=True)
    rows["weight"] = (rows["trip"] % 4).astype(float)
    path = tmp_path_factory.mktemp("table") / "trips.parquet"
    pq.write_table(pa.table(rows), path)
    return path


@pytest.fixture(scope="module")
def in_memory(table: Path) -> pn.ChoiceData:
    return pn.ChoiceData.from_long(table, **ROLES)


@pytest.fixture(scope="module")
def scanned(table: Path) -> pn.ScannedData:
    result = pn.ChoiceData.scan(table, memory="1 MiB", **ROLES)
    assert len(result.manifest.shards) > 2
    return result


@pytest.mark.parametrize("model", [pn.MNL(), pn.RankBy(column="price")], ids=["mnl", "ranking"])
def test_the_report_equals_that_of_the_table_in_memory(
    model: Any, scanned: pn.ScannedData, in_memory: pn.ChoiceData
) -> None:
    model.fit(in_memory)
    result, expected = (pn.evaluate(model, data, (1, 2), resamples=50) for data in (scanned, in_memory))
    assert result.to_dict() == expected.to_dict()
    assert result.n_sets == 300


def test_a_part_of_a_split_can_be_evaluated(scanned: pn.ScannedData, in_memory: pn.ChoiceData) -> None:
    model = pn.MNL().fit(in_memory)
    part, _ = scanned.split((0.5, 0.5))
    assert pn.evaluate(model, part, resamples=20) == pn.evaluate(model, part.read(), resamples=20)


def test_true_probabilities_need_a_table_in_memory(scanned: pn.ScannedData, in_memory: pn.ChoiceData) -> None:
    with pytest.raises(InputError, match=r"truth is not supported for a scanned table: evaluate data.sample"):
        pn.evaluate(pn.MNL().fit(in_memory), scanned, truth=np.ones(scanned.n_rows))


def test_a_scanned_training_table_is_recognised(scanned: pn.ScannedData, in_memory: pn.ChoiceData) -> None:
    model = pn.MNL().fit(in_memory)
    assert (
        training_overlap(model, scanned) == "some"
    )  # by a common set, because the fingerprints are of different kinds
    model.add_table_facts(fingerprint=scanned.fingerprint())
    assert training_overlap(model, scanned) == "all"
