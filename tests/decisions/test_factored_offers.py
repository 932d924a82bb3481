"""Offers for chains with factored rates: moves, search and bounds, compared with values by hand and with all offers."""

import tracemalloc
from itertools import count, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcmcnet as pn
from choice_tables import read, trips
from pcmcnet.arrays import Bools
from pcmcnet.decisions import factored_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.factored_offers import (
    MoveRevenue,
    attraction_bound,
    best_factored_offer,
    factored_starts,
    improve_offer,
    relative_attractions,
    search_from_starts,
)
from pcmcnet.decisions.offer_value import FactoredChains, Logits, expected_revenue
from pcmcnet.decisions.optimise_offer import structure_of
from pcmcnet.errors import InputError

U = np.array([[1.0, 1.0], [1.0, 3.0], [2.0, 1.0]])
V = np.array([[1.0, 1.0], [1.0, 2.0], [3.0, 1.0]])


def chains(n: int, r: int, rng: np.random.Generator, members: int = 1, sigma: float = 1.5) -> FactoredChains:
    """Draw chains of n alternatives and an outside option with revenue 0."""
    log_u, log_v = sigma * rng.standard_normal((2, 1, members, n + 1, r))
    return FactoredChains(rng.dirichlet(np.ones(members))[None], log_u, log_v, np.append(0.0, rng.random(n)))


def by_hand() -> FactoredChains:
    """Return three alternatives of rank 2 with the rates q_01 = 3, q_02 = 4, q_10 = 4, q_12 = 6, q_20 = 3, q_21 = 4."""
    log_u, log_v = np.log(U)[None, None], np.log(V)[None, None]
    return FactoredChains(np.ones((1, 1)), log_u, log_v, np.array([0.0, 7.0, 14.0]))


def outside_first(n: int) -> ConstraintRows:
    return ConstraintRows.unconstrained(np.arange(n + 1) == 0)


def at_most(n: int, size: int) -> ConstraintRows:
    """Return a limit on the number of alternatives shown, after an outside option."""
    shown = (np.arange(n + 1) > 0).astype(np.float64)[None]
    return outside_first(n)._replace(matrix=shown, upper=np.array([float(size)]), names=("size",))


def neighbours(offer: Bools, rows: ConstraintRows) -> Bools:
    """Return all feasible offers that differ from an offer by an addition, a removal or an exchange."""
    toggled = offer ^ np.eye(len(offer), dtype=np.bool_)
    shown, hidden = np.flatnonzero(offer), np.flatnonzero(~offer)
    exchanged = [offer ^ (np.isin(np.arange(len(offer)), pair)) for pair in product(shown, hidden)]
    every = np.array([*toggled, *exchanged])
    return every[rows.allow(every) & every.any(axis=1)]


# -- Moves -------------------------------------------------------------------------------------------------------------


def test_three_alternatives_match_values_by_hand() -> None:
    """{0, 1}: p = (4, 3) / 7 earns 3. {0, 2}: p = (3, 4) / 7 earns 8. {1, 2}: p = (4, 6) / 10 earns 11.2.

    {0, 1, 2} by spanning trees: p_0 is proportional to q_10 q_20 + q_12 q_20 + q_21 q_10 = 12 + 18 + 16 = 46,
    p_1 to 12 + 16 + 9 = 37, p_2 to 24 + 18 + 16 = 58. It earns (7 37 + 14 58) / 141 = 1071 / 141.
    """
    revenue = MoveRevenue(by_hand())
    assert revenue.of(np.array([0, 1, 2])) == pytest.approx(1071 / 141, rel=1e-14)
    np.testing.assert_allclose(revenue.with_each(np.array([0]), np.array([1, 2])), [3.0, 8.0], rtol=1e-14)
    np.testing.assert_allclose(revenue.with_each(np.array([], np.int64), np.arange(3)), [0.0, 7.0, 14.0], rtol=1e-14)
    np.testing.assert_allclose(revenue.without_each(np.arange(3)), [11.2, 8.0, 3.0], rtol=1e-14)
    a, earned = revenue.attractions(np.array([0, 1, 2]))
    np.testing.assert_allclose(a, [[46 / 141, 37 / 141, 58 / 141]], rtol=1e-14)
    np.testing.assert_allclose(earned, [1071 / 141], rtol=1e-14)


def test_the_best_of_three_alternatives_is_found_and_proven() -> None:
    best = best_factored_offer(by_hand(), outside_first(2), np.array([True, True, False]))
    assert best.offer.tolist() == [True, False, True]
    assert (best.value, best.bound) == (pytest.approx(8.0, rel=1e-14), pytest.approx(8.0, rel=1e-8))
    assert best.is_local_optimum is True


@given(st.integers(0, 10**6))
def test_moves_earn_as_much_as_offers_evaluated_from_scratch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, r, members = (int(rng.integers(low, high)) for low, high in ((1, 9), (1, 5), (1, 4)))
    value = chains(n, r, rng, members, sigma=float(rng.choice([0.5, 2.0, 8.0])))
    revenue, offer = MoveRevenue(value), rng.random(n + 1) < 0.5
    offer[rng.integers(n + 1)] = True
    shown, hidden = np.flatnonzero(offer), np.flatnonzero(~offer)
    dense = value.with_all_pairs()

    def from_scratch(positions: Any) -> Any:
        offers = offer ^ np.eye(n + 1, dtype=np.bool_)[positions]
        np.testing.assert_allclose(expected_revenue(value, offers), expected_revenue(dense, offers), rtol=1e-9)
        return expected_revenue(dense, offers)

    assert revenue.of(shown) == pytest.approx(expected_revenue(dense, offer[None])[0], rel=1e-9)
    np.testing.assert_allclose(revenue.with_each(shown, hidden), from_scratch(hidden), rtol=1e-9)
    if len(shown) > 1:
        np.testing.assert_allclose(revenue.without_each(shown), from_scratch(shown), rtol=1e-9)
    a, earned = revenue.attractions(shown)
    np.testing.assert_allclose(
        value.weights[0] @ a[:, shown], dense.probabilities(offer[None], np.zeros(1, int))[0, shown]
    )
    assert value.weights[0] @ earned == pytest.approx(revenue.of(shown), rel=1e-9)


def test_rates_far_apart_give_finite_revenues() -> None:
    """Logarithms of the factors spread over thousands: rates of exp(+-4000) underflow and overflow."""
    rng = np.random.default_rng(0)
    value = chains(20, 4, rng, sigma=1000.0)
    revenue = MoveRevenue(value)
    values = revenue.with_each(np.array([0, 3]), np.arange(4, 21))
    assert np.isfinite(values).all()
    assert ((values >= 0) & (values <= 1)).all()
    assert attraction_bound(revenue, outside_first(20), np.arange(21) < 3) <= 1


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    value, rows = chains(30, 3, np.random.default_rng(0), members=2), at_most(30, 12)
    shown, offer = np.arange(0, 30, 3), np.arange(31) % 3 == 0

    def results() -> list[Any]:
        revenue = MoveRevenue(value)
        moves = revenue.with_each(shown, np.arange(1, 30, 3)), revenue.without_each(shown)
        return [*moves, *revenue.attractions(shown), *relative_attractions(revenue, rows)]  # type: ignore[misc]

    at_once = results()
    monkeypatch.setattr(factored_offers, "_NUMBERS_PER_CHUNK", 50)
    monkeypatch.setattr(factored_offers, "_RATIOS_PER_CHUNK", 50)
    for chunked, whole in zip(results(), at_once, strict=True):
        np.testing.assert_allclose(chunked, whole, rtol=1e-12)
    assert offer.any()


def test_memory_does_not_grow_with_the_number_of_moves() -> None:
    """An offer of 1,000 of 4,000 alternatives: the factors take 1 MB; a matrix of all moves would take 24 MB."""
    value = chains(4_000, 4, np.random.default_rng(0), sigma=0.5)
    revenue = MoveRevenue(value)
    tracemalloc.start()
    revenue.with_each(np.arange(1_000), np.arange(1_000, 4_000, 4))
    revenue.without_each(np.arange(1_000))
    limits = relative_attractions(revenue, at_most(4_000, 50), stop=iter([False] * 40 + [True] * 10_000).__next__)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
    assert limits is not None


# -- Local search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_no_neighbour_of_a_local_optimum_earns_more(seed: int, rows_maker: Any) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    value, rows = chains(n, int(rng.integers(1, 5)), rng, members=int(rng.integers(1, 4))), rows_maker(n, rng)
    revenue = MoveRevenue(value)
    for start in factored_starts(revenue, rows, None, rng):
        assert rows.allow(start[None])[0]
        end = improve_offer(revenue, rows, start)
        assert rows.allow(end.offer[None])[0]
        assert end.is_local_optimum is True
        assert end.value == pytest.approx(expected_revenue(value, end.offer[None])[0], rel=1e-9)
        near = neighbours(end.offer, rows)
        assert not len(near) or expected_revenue(value, near).max() <= end.value * (1 + 1e-9)


def test_an_interrupted_search_is_feasible_and_no_local_optimum() -> None:
    rng = np.random.default_rng(0)
    value, rows = chains(40, 3, rng), at_most(40, 10)
    revenue = MoveRevenue(value)
    complete = search_from_starts(revenue, rows, factored_starts(revenue, rows, None, rng), lambda: False)
    for patience in range(4):
        calls = count()
        stopped = search_from_starts(
            revenue, rows, factored_starts(revenue, rows, None, rng), lambda c=calls, p=patience: next(c) >= p
        )
        assert rows.allow(stopped.offer[None])[0]
        assert stopped.is_local_optimum is False
        assert stopped.value <= complete.value * (1 + 1e-12)
        bound = attraction_bound(revenue, rows, stopped.offer, stop=lambda: True)
        assert bound >= complete.value


def test_the_current_offer_is_a_start(rows_maker: Any) -> None:
    value, rows = chains(6, 2, np.random.default_rng(1)), at_most(6, 3)
    now = np.array([True, False, True, False, True, False, False])
    starts = list(factored_starts(MoveRevenue(value), rows, now, np.random.default_rng(0)))
    assert any((start == now).all() for start in starts)
    too_large = np.ones(7, np.bool_)
    assert not any(
        (s == too_large).all()
        for s in factored_starts(MoveRevenue(value), rows, too_large, rng=np.random.default_rng(0))
    )


# -- Bound -------------------------------------------------------------------------------------------------------------


def test_bounds_of_attractions_match_values_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """u_0 / u_1 = (1, 1/3) and v_1 / v_0 = (1, 2), so x_1 is from 1/3 to 2. For 2: (1/2, 1) and (3, 1), so 1/2 to 3.

    The true values are 3 / 4 or 37 / 46, and 4 / 3 or 58 / 46.
    """
    revenue, rows = MoveRevenue(by_hand()), outside_first(2)
    monkeypatch.setattr(factored_offers, "_PAIRS_OF_BOUND", 0)
    low, high = relative_attractions(revenue, rows)  # type: ignore[misc]
    np.testing.assert_allclose(low, [[1, 1 / 3, 1 / 2]], rtol=1e-14)
    np.testing.assert_allclose(high, [[1, 2, 3]], rtol=1e-14)


@pytest.mark.parametrize("pairs", [0, 2**28])
@pytest.mark.parametrize("seed", range(150))
def test_no_offer_earns_more_than_the_bound(
    seed: int, pairs: int, rows_maker: Any, enumerate_offers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attractions of all offers lie between their limits, and the best offer earns at most the bound."""
    monkeypatch.setattr(factored_offers, "_PAIRS_OF_BOUND", pairs)
    rng = np.random.default_rng(seed)
    n, sigma = int(rng.integers(2, 8)), float(rng.choice([0.3, 1.0, 3.0]))
    value, rows = chains(n, int(rng.integers(1, 5)), rng, int(rng.integers(1, 3)), sigma), rows_maker(n, rng)
    offers, revenue = enumerate_offers(rows), MoveRevenue(value)
    limits = relative_attractions(revenue, rows)
    assert (limits is None) == (not rows.always.any())
    if limits is not None:
        for c, (low, high) in enumerate(zip(*limits, strict=True)):
            one = FactoredChains(np.ones((1, 1)), value.log_u[:, [c]], value.log_v[:, [c]], value.revenue)
            p = one.probabilities(offers, np.zeros(len(offers), np.int64))
            x = p / p[:, [int(rows.always.argmax())]]
            assert (x <= high * (1 + 1e-9)).all()
            assert ((x >= low * (1 - 1e-9)) | ~offers).all()
    best = expected_revenue(value, offers).max()
    for offer in offers[:: max(len(offers) // 3, 1)]:
        assert attraction_bound(revenue, rows, offer) >= best * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_of_one_factor_is_the_best_revenue(seed: int, enumerate_offers: Any) -> None:
    """Rank 1 is a logit, whose attractions do not depend on the offer."""
    rng = np.random.default_rng(seed)
    value, rows = chains(8, 1, rng), at_most(8, 4)
    best = best_factored_offer(value, rows, outside_first(8).always)
    assert best.value == pytest.approx(expected_revenue(value, enumerate_offers(rows)).max(), rel=1e-12)
    assert attraction_bound(MoveRevenue(value), rows, best.offer) == pytest.approx(best.value, rel=1e-8)


def test_pairs_tighten_the_bound() -> None:
    """With a popular outside option and few alternatives shown, sums V change little."""
    rng = np.random.default_rng(0)
    value, rows = chains(60, 3, rng, sigma=0.5), at_most(60, 5)
    value.log_v[0, 0, 0] += 4.0
    revenue = MoveRevenue(value)
    loose = relative_attractions(revenue, rows, stop=lambda: True)
    tight = relative_attractions(revenue, rows)
    assert loose is not None
    assert tight is not None
    assert (tight[0] >= loose[0]).all()
    assert (tight[1] <= loose[1]).all()
    assert np.log(tight[1] / tight[0]).mean() < 0.3 * np.log(loose[1] / loose[0]).mean()


@pytest.mark.parametrize("seed", range(60))
def test_the_best_offer_of_a_small_catalogue_is_proven(seed: int, rows_maker: Any, enumerate_offers: Any) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    value, rows = chains(n, int(rng.integers(1, 5)), rng, members=int(rng.integers(1, 3))), rows_maker(n, rng)
    start = next(factored_starts(MoveRevenue(value), rows, None, rng))
    best = best_factored_offer(value, rows, start)
    assert rows.allow(best.offer[None])[0]
    assert best.value == pytest.approx(expected_revenue(value, enumerate_offers(rows)).max(), rel=1e-9)
    assert best.gap <= 1e-8


def test_search_without_a_proof_finds_nearly_all_best_offers(
    rows_maker: Any, enumerate_offers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factored_offers, "_LARGEST_PROVEN", 0)
    hits = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 9))
        value, rows = chains(n, int(rng.integers(1, 5)), rng), rows_maker(n, rng)
        revenue = MoveRevenue(value)
        local = search_from_starts(revenue, rows, factored_starts(revenue, rows, None, rng), lambda: False)
        best = best_factored_offer(value, rows, local.offer)
        truth = expected_revenue(value, enumerate_offers(rows)).max()
        assert best.value <= truth * (1 + 1e-9)
        assert best.bound >= truth * (1 - 1e-12)
        hits.append(best.value >= truth * (1 - 1e-9))
    assert np.mean(hits) >= 0.95


# -- Constraints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_constraints_say_which_alternatives_may_enter_and_leave(
    seed: int, rows_maker: Any, enumerate_offers: Any
) -> None:
    rng = np.random.default_rng(seed)
    rows = rows_maker(5, rng)
    for offer in enumerate_offers(rows):
        toggled = offer ^ np.eye(6, dtype=np.bool_)
        allowed = rows.allow(toggled)
        assert rows.entering(offer).tolist() == np.flatnonzero(allowed & ~offer).tolist()
        assert rows.leaving(offer).tolist() == np.flatnonzero(allowed & offer).tolist()


@pytest.mark.parametrize("seed", range(60))
def test_the_relaxed_best_is_an_upper_bound(seed: int, rows_maker: Any, enumerate_offers: Any) -> None:
    rng = np.random.default_rng(seed)
    rows, worth = rows_maker(6, rng), rng.standard_normal(7) * 10.0 ** rng.integers(-9, 9)
    solution = rows.relaxed_best(worth)
    assert solution is not None
    shares, bound = solution
    every = np.array(list(product([False, True], repeat=7)))
    best = (every[rows.allow(every)] @ worth).max()
    assert bound >= best - 1e-12 * np.abs(worth).sum()
    assert bound == pytest.approx(float(worth @ shares), rel=1e-6, abs=1e-6 * np.abs(worth).max())
    if not len(rows.sizes()[2].upper):
        assert bound == pytest.approx(best, rel=1e-12)


# -- Models ------------------------------------------------------------------------------------------------------------

FEATURES = ["price", "comfort"]
CATALOGUE = {
    "mode": ["walk", "car", "bus", "train", "bike"],
    "price": [9.0, 13.0, 11.0, 12.0, 8.0],
    "comfort": ["low", "high", "low", "high", "low"],
    "margin": [None, 2.0, 0.6, 1.1, 0.4],
}
INDIVIDUAL = {"income": 30.0}
NETWORK: dict[str, Any] = {"hidden": (4,), "epochs": 2, "weight_decay": 0.1, "members": 1}
REVENUE = np.array([0.0, 2.0, 0.6, 1.1, 0.4])


@pytest.fixture(scope="module")
def data() -> pn.ChoiceData:
    return read(trips(80, sizes=(3, 5), slope=-0.2), alternative="mode", individual=["income"], features=FEATURES)


MODELS = {
    "one chain": pn.PCMCNet(rank=3, **NETWORK),
    "one factor": pn.PCMCNet(rank=1, **NETWORK),
    "average": pn.PCMCNet(rank=3, **{**NETWORK, "members": 2}),
    "classes": pn.PCMCNet(rank=2, classes=2, by="set", **NETWORK),
    "ensemble": pn.Ensemble(pn.PCMCNet(rank=2, **NETWORK), n=2),
    "stack": pn.Stacking([pn.PCMCNet(rank=2, **NETWORK), pn.MNL()]),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, data: pn.ChoiceData) -> pn.models.ChoiceModel:
    return MODELS[request.param].fit(data, progress=False)


def expected_revenues(model: pn.models.ChoiceModel, income: float = 30.0) -> dict[tuple[int, ...], float]:
    """Return the revenues of all offers with the outside option, by predictions of the model."""
    values = {}
    for shown in product([False, True], repeat=4):
        rows = [0, *(k for k in range(1, 5) if shown[k - 1])]
        table = {name: [CATALOGUE[name][k] for k in rows] for name in ("mode", *FEATURES)}
        table |= {"trip": [1] * len(rows), "income": [income] * len(rows)}
        values[tuple(rows)] = float(model.predict_proba(table) @ REVENUE[rows])
    return values


def test_factored_models_have_a_structure_with_factors(model: pn.models.ChoiceModel, data: pn.ChoiceData) -> None:
    sets = data.subset(np.flatnonzero(data.sizes == 5)[:2])
    value = structure_of(model, sets, np.arange(5.0))
    assert isinstance(value, Logits if model is MODELS["one factor"] else FactoredChains)
    offers = np.array([[True, True, False, True, False], [True, True, True, True, True]])
    np.testing.assert_allclose(
        value.for_individual(1).probabilities(offers, np.zeros(2, int)), value.probabilities(offers, np.ones(2, int))
    )


def test_no_other_offer_of_a_factored_model_earns_more(model: pn.models.ChoiceModel) -> None:
    offer = pn.optimise_offer(model, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL)
    values = expected_revenues(model)
    assert offer.value == pytest.approx(max(values.values()), rel=2e-5)
    assert offer.exact
    assert "proven" in str(offer)
    by_list, by_label = (
        pn.optimise_offer(model, CATALOGUE, worth, outside="walk", individual=INDIVIDUAL)
        for worth in (REVENUE.tolist(), dict(zip(CATALOGUE["mode"], REVENUE, strict=True)))
    )
    assert by_list.labels == by_label.labels == offer.labels
    now = pn.optimise_offer(
        model, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL, current=["bus", "bike"],
        constraints=pn.Constraints(size=(2, 3), apart=[("car", "train")]),
    )  # fmt: skip
    feasible = {rows: v for rows, v in values.items() if 3 <= len(rows) <= 4 and not {1, 3} <= {*rows}}
    assert now.value == pytest.approx(max(feasible.values()), rel=2e-5)
    assert now.current_value == pytest.approx(values[0, 2, 4], rel=2e-5)


def test_offers_depend_on_the_individual(model: pn.models.ChoiceModel) -> None:
    incomes = [10.0, 30.0, 90.0]
    offers = pn.optimise_offers(model, CATALOGUE, {"income": incomes}, "margin", outside="walk")
    for income, value in zip(incomes, offers.values, strict=True):
        assert value == pytest.approx(max(expected_revenues(model, income).values()), rel=2e-5)


def test_risk_is_the_mean_over_the_worst_members(data: pn.ChoiceData) -> None:
    ensemble = pn.Ensemble(pn.PCMCNet(rank=2, **NETWORK), n=3).fit(data, progress=False)
    each = [expected_revenues(member) for member in ensemble.members_]
    worst = {rows: np.mean(sorted(values[rows] for values in each)[:2]) for rows in each[0]}
    offer = pn.optimise_offer(ensemble, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL, risk=0.5)
    assert offer.value == pytest.approx(max(worst.values()), rel=2e-5)
    assert offer.bound >= offer.value
    assert offer.best_for is not None
    with pytest.raises(InputError, match="risk needs the members"):
        pn.optimise_offer(ensemble.members_[0], CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL, risk=0.5)


def large(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a catalogue of n alternatives and an outside option."""
    names = ["walk", *(f"item {k}" for k in range(n))]
    comfort = rng.choice(["low", "high"], n + 1)
    return {"mode": names, "price": rng.uniform(5, 20, n + 1), "comfort": comfort, "margin": rng.uniform(0, 5, n + 1)}


@pytest.fixture(scope="module")
def unlabelled(data: pn.ChoiceData) -> pn.ChoiceData:
    return read(trips(80, sizes=(3, 5), slope=-0.2), individual=["income"], features=FEATURES)


def test_a_large_catalogue_is_searched_with_factors(unlabelled: pn.ChoiceData) -> None:
    catalogue = large(1_500, np.random.default_rng(0))
    worth = np.append(0.0, catalogue["margin"][1:])
    model = pn.PCMCNet(rank=2, **NETWORK).fit(unlabelled, progress=False)
    limits = pn.Constraints(size=5)
    del catalogue["mode"]
    offer = pn.optimise_offer(model, catalogue, worth, outside="0", individual=INDIVIDUAL, constraints=limits)
    assert offer.is_local_optimum
    assert "no addition, removal or exchange" in str(offer)
    assert offer.value <= offer.bound < worth.max()
    many = pn.optimise_offers(model, catalogue, {"income": [30.0, 60.0]}, worth, outside="0", constraints=limits)
    assert many.values[0] == pytest.approx(offer.value, rel=1e-6)
    # A logit of the same size is proven, and equals a revenue-ordered offer.
    logit = pn.MNL().fit(unlabelled)
    exact = pn.optimise_offer(logit, catalogue, worth, outside="0", individual=INDIVIDUAL)
    assert exact.exact
    assert min(exact.revenue) >= np.sort(worth)[-len(exact.labels)]


def test_the_time_limit_stops_the_search(unlabelled: pn.ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time, the offer is that of the first start, and the bound is still valid."""
    catalogue = large(1_100, np.random.default_rng(1))
    model = pn.PCMCNet(rank=2, **NETWORK).fit(unlabelled, progress=False)
    del catalogue["mode"]
    worth = np.append(0.0, catalogue["margin"][1:])
    options: dict[str, Any] = {"outside": "0", "individual": INDIVIDUAL, "constraints": pn.Constraints(size=3)}
    stopped = pn.optimise_offer(model, catalogue, worth, time_limit=0, **options)
    complete = pn.optimise_offer(model, catalogue, worth, **options)
    assert stopped.is_local_optimum is False
    assert "no addition" not in str(stopped)
    assert stopped.value <= complete.value * (1 + 1e-9)
    assert stopped.bound >= complete.value


def test_models_of_pairs_are_refused_for_large_catalogues(unlabelled: pn.ChoiceData) -> None:
    catalogue = large(1_100, np.random.default_rng(0))
    del catalogue["mode"]
    model = pn.PCMCNet(rank=None, **NETWORK).fit(unlabelled, progress=False)
    with pytest.raises(InputError, match=r"1,101 alternatives: .*at most 1,000.*PCMCNet\(rank=16\)"):
        pn.optimise_offer(model, catalogue, "margin", outside="0", individual=INDIVIDUAL)


def test_the_frontier_of_a_factored_model_rises(data: pn.ChoiceData) -> None:
    model = pn.PCMCNet(rank=2, **NETWORK).fit(data, progress=False)
    frontier = pn.offer_frontier(model, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL, sizes=[1, 2, 3, 4])
    values = expected_revenues(model)
    for size, offer in zip(frontier.sizes, frontier.offers, strict=True):
        best = max(value for rows, value in values.items() if len(rows) <= size + 1)
        assert offer.value == pytest.approx(best, rel=2e-5)


def test_prices_of_a_factored_model_are_optimised(data: pn.ChoiceData) -> None:
    """On a ladder, all combinations are tried by predictions of the model; without one, the margin does not fall."""
    model = pn.PCMCNet(rank=2, **NETWORK).fit(data, progress=False)
    table = {name: values[:3] for name, values in CATALOGUE.items()} | {"cost": [9.0, 5.0, 4.0]}
    steps, margins = [8.0, 11.0, 15.0], []
    options: dict[str, Any] = {"cost": "cost", "outside": "walk", "individual": INDIVIDUAL}
    for pair in product(steps, repeat=2):
        sets = {name: table[name] for name in ("mode", "comfort")} | {"price": [9.0, *pair]}
        p = model.predict_proba({**sets, "trip": [1] * 3, "income": [30.0] * 3})
        margins.append(float(p @ [0.0, pair[0] - 5.0, pair[1] - 4.0]))
    found = pn.optimise_prices(model, table, "price", ladder=steps, **options)
    assert found.exact
    assert found.value == pytest.approx(max(margins), rel=2e-5)
    free = pn.optimise_prices(model, table, "price", bounds=(8.0, 15.0), **options)
    assert free.value >= max(margins) * (1 - 2e-5)
