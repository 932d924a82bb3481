import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet import MNL, Ensemble, PCMCNet, load, submarkets
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight import elasticity
from pcmcnet.insight.submarkets import FactorProfile, Submarkets, two_steps
from pcmcnet.layers import factored_distribution, stationary_distribution

QUICK: dict[str, Any] = {"hidden": (4,), "epochs": 2, "batch_size": 16, "weight_decay": 0.01}


def random_factors(seed: int, n: int, r: int, spread: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    log_u, log_v = rng.normal(0, spread, (2, 1, n, r))
    return torch.from_numpy(log_u), torch.from_numpy(log_v)


@pytest.fixture(scope="module")
def network(driven: ChoiceData) -> PCMCNet:
    """One network with three factors."""
    return PCMCNet(rank=3, members=1, **QUICK).fit(driven, progress=False)


@pytest.fixture(scope="module")
def average(driven: ChoiceData) -> PCMCNet:
    """An average of two networks with three factors each."""
    return PCMCNet(rank=3, members=2, **QUICK).fit(driven, progress=False)


@pytest.fixture(scope="module")
def mixture(driven: ChoiceData) -> PCMCNet:
    """Two latent classes with two factors each."""
    return PCMCNet(rank=2, classes=2, by="set", **QUICK).fit(driven, progress=False)


@pytest.fixture(scope="module")
def result(network: PCMCNet, driven: ChoiceData) -> Submarkets:
    return submarkets(network, driven)


# -- One chain ---------------------------------------------------------------------------------------------------------


def test_two_steps_match_values_by_hand() -> None:
    """u = (1 1; 1 3), v = (1 1; 1 3): V = (2, 4), d = (6, 14), w = (1/3 2/3; 1/7 6/7), a = (1/2 1/4; 1/2 3/4).

    P_12 = 1/2 2/3 + 1/2 6/7 = 16/21 and P_21 = 1/4 1/3 + 3/4 1/7 = 4/21, so b = (1/5, 4/5). e = (3/10, 7/10), and
    p is proportional to (3/60, 7/140): 1/2 each, as q_12 = q_21 = 4.
    """
    x = torch.tensor([[[1.0, 1.0], [1.0, 3.0]]]).double().log()
    steps = two_steps(x, x, torch.ones(1, 2, dtype=torch.bool))
    np.testing.assert_allclose(steps.shares[0], [1 / 5, 4 / 5], rtol=1e-12)
    np.testing.assert_allclose(steps.entered[0], [[1 / 2, 1 / 4], [1 / 2, 3 / 4]], rtol=1e-12)
    np.testing.assert_allclose(steps.exits[0], [[1 / 3, 2 / 3], [1 / 7, 6 / 7]], rtol=1e-12)
    np.testing.assert_allclose(steps.probabilities[0], [1 / 2, 1 / 2], rtol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 5))
def test_flows_are_those_of_the_chain(seed: int, n: int, r: int) -> None:
    log_u, log_v = random_factors(seed, n, r)
    b, a, w, p = (x[0].numpy() for x in two_steps(log_u, log_v, torch.ones(1, n, dtype=torch.bool)))
    u, v = log_u[0].exp().numpy(), log_v[0].exp().numpy()
    rates = u @ v.T
    np.testing.assert_allclose(p, factored_distribution(log_u, log_v)[0], rtol=1e-10)
    np.testing.assert_allclose(p, stationary_distribution(torch.from_numpy(rates)), rtol=1e-10)
    flows = np.einsum("i,ik,jk->ikj", a @ b, w, a)
    by_rates = np.einsum("i,ik,jk->ikj", p, u, v)
    np.testing.assert_allclose(flows, by_rates / by_rates.sum(), rtol=1e-9)
    np.testing.assert_allclose(flows.sum((0, 2)), b, rtol=1e-9)
    np.testing.assert_allclose(flows.sum((0, 1)), flows.sum((1, 2)), rtol=1e-9)


def test_the_scale_of_a_factor_changes_nothing() -> None:
    log_u, log_v = random_factors(0, 6, 3)
    scale = torch.tensor([0.0, 50.0, -80.0]).double()
    mask = torch.ones(1, 6, dtype=torch.bool)
    for x, scaled in zip(
        two_steps(log_u, log_v, mask), two_steps(log_u - scale, log_v + scale + 3.0, mask), strict=True
    ):
        np.testing.assert_allclose(scaled, x, rtol=1e-10)


def test_padding_changes_nothing() -> None:
    log_u, log_v = random_factors(1, 5, 3)
    whole = two_steps(log_u[:, :3], log_v[:, :3], torch.ones(1, 3, dtype=torch.bool))
    padded = two_steps(log_u, log_v, torch.tensor([[True, True, True, False, False]]))
    np.testing.assert_allclose(padded.shares, whole.shares, rtol=1e-12)
    for name in ("entered", "exits", "probabilities"):
        values, without = getattr(padded, name), getattr(whole, name)
        np.testing.assert_allclose(values[:, :3], without, rtol=1e-12)
        assert not values[:, 3:].any()


def test_probabilities_far_apart_stay_positive() -> None:
    """With one factor, p is proportional to v / u, here over 200 orders of magnitude."""
    log_v = torch.tensor([[[0.0], [-460.0]]]).double()
    p = two_steps(torch.zeros_like(log_v), log_v, torch.ones(1, 2, dtype=torch.bool)).probabilities
    np.testing.assert_allclose(p[0].log(), [0.0, -460.0], atol=1e-10)


# -- Tables ------------------------------------------------------------------------------------------------------------


def test_shares_sum_to_one(result: Submarkets) -> None:
    for values in (result.choices, result.moves, result.probabilities, result.entries, result.flows):
        assert values is not None
        assert values.sum() == pytest.approx(1, rel=1e-10)
    for rows in (result.reached.sum(1), result.entered.sum(1), result.left.sum(1), result.exits.sum(0)):
        np.testing.assert_allclose(rows, 1, rtol=1e-10)
    assert ((result.switches > 0) & (result.switches < 1)).all()


def test_choices_divide_the_predicted_probabilities(result: Submarkets, network: PCMCNet, driven: ChoiceData) -> None:
    assert driven.labels is not None
    weights = np.repeat(driven.weights, driven.sizes) / driven.weights.sum()
    sums = np.bincount(driven.labels.codes, weights * network.predict_proba(driven))
    assert result.alternatives == driven.labels.categories
    # The network computes its factors in float32.
    np.testing.assert_allclose(result.probabilities, sums, rtol=1e-6)
    np.testing.assert_allclose(result.choices @ result.reached, result.probabilities, rtol=1e-10)
    assert result.sets == (driven.weights > 0).sum()


def test_flows_agree_with_entries_and_exits(result: Submarkets) -> None:
    assert result.flows is not None
    np.testing.assert_allclose(result.flows.sum((1, 2)), result.moves, rtol=1e-10)
    np.testing.assert_allclose(result.flows.sum(1), result.moves[:, None] * result.entered, rtol=1e-10)
    np.testing.assert_allclose(result.flows.sum(2), result.moves[:, None] * result.left, rtol=1e-10)
    np.testing.assert_allclose(result.flows.sum((0, 1)), result.entries, rtol=1e-10)
    exchanged = result.exchanged
    np.testing.assert_array_equal(exchanged, exchanged.transpose(0, 2, 1))
    assert exchanged[1, 0, 2] == result.flows[1, 0, 2] + result.flows[1, 2, 0]
    assert not np.diagonal(exchanged, axis1=1, axis2=2).any()
    # No label occurs twice in a set, so the switches are the moves to another label.
    np.testing.assert_allclose(exchanged.sum((1, 2)) / 2, result.switches * result.moves, rtol=1e-10)


def test_profiles_match_sums_over_sets(result: Submarkets, network: PCMCNet, driven: ChoiceData) -> None:
    """The difference of a feature and of an individual-level column, computed one choice set at a time."""
    price = np.zeros((4, 3))  # weight, reached, left; mean and variance of all choices
    total, variance, mean_price, user, user_total = 0.0, 0.0, 0.0, np.zeros(3), np.zeros(2)
    for positions, factors in network._factors(driven, 0, 0):
        for s, x in zip(positions.tolist(), factors.double(), strict=True):
            n, weight = driven.sizes[s], float(driven.weights[s])
            steps = two_steps(x[None, 0, :n], x[None, 1, :n], torch.ones(1, n, dtype=torch.bool))
            b, a, w, p = (part[0].numpy() for part in steps)
            values = driven.features["price"].values[driven.offsets[s] : driven.offsets[s + 1]].astype(float)
            income = float(driven.individual["income"].values[s])
            reached, left = p[:, None] * a * b / (a @ b)[:, None], p[:, None] * w
            price[0] += weight * reached.sum(0)
            price[1] += weight * (reached - p[:, None] * reached.sum(0)).T @ values
            price[2] += weight * (left - p[:, None] * left.sum(0)).T @ values
            price[3] += weight * left.sum(0)
            total += weight
            mean_price += weight * (p @ values)
            variance += weight * (p @ (values - p @ values) ** 2)
            user += weight * reached.sum(0) * income
            user_total += weight * np.array([income, income**2])
    k = result.features_reached.columns.index("price")
    spread = np.sqrt(variance / total)
    assert result.features_reached.averages[k] == pytest.approx(mean_price / total, rel=1e-9)
    assert result.features_reached.spreads[k] == pytest.approx(spread, rel=1e-9)
    np.testing.assert_allclose(result.features_reached.differences[:, k], price[1] / price[0] / spread, rtol=1e-7)
    np.testing.assert_allclose(result.features_left.differences[:, k], price[2] / price[3] / spread, rtol=1e-7)
    mean, square = user_total / total
    deviation = np.sqrt(square - mean**2)
    j = result.users.columns.index("income")
    np.testing.assert_allclose(result.users.differences[:, j], (user / price[0] - mean) / deviation, rtol=1e-6)


def test_weighted_differences_cancel(result: Submarkets) -> None:
    np.testing.assert_allclose(result.choices @ result.features_reached.differences, 0, atol=1e-12)
    np.testing.assert_allclose(result.choices @ result.users.differences, 0, atol=1e-9)  # from means of raw values


def test_columns_are_numbers_categories_and_labels(result: Submarkets) -> None:
    columns = dict(zip(result.features_reached.columns, result.features_reached.is_category, strict=True))
    assert columns == {
        **dict.fromkeys(["price", "time", "noise"], False),
        **dict.fromkeys(["comfort low", "comfort high", "bike", "bus", "car", "train"], True),
    }
    assert set(result.users.columns) == {"income", "purpose work", "purpose leisure"}


def test_chunks_of_sets_give_the_same_result(
    result: Submarkets, network: PCMCNet, driven: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticity, "MAX_ROWS_PER_CALL", 100)
    in_chunks = submarkets(network, driven)
    for name in ("choices", "moves", "switches", "reached", "entered", "exits", "flows"):
        np.testing.assert_allclose(getattr(in_chunks, name), getattr(result, name), rtol=1e-6)  # batches of float32
    np.testing.assert_allclose(in_chunks.users.differences, result.users.differences, rtol=1e-4, atol=1e-6)


def test_factors_are_named_by_their_features(
    network: PCMCNet, make_driven: Callable[..., ChoiceData], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One factor leads to cheap alternatives, one to expensive ones, and one to all alike."""
    data = make_driven(labels=False)

    def by_price(self: PCMCNet, sets: ChoiceData, *_: int) -> Iterator[Any]:
        for s in range(len(sets)):
            price = torch.from_numpy(sets.features["price"].values[sets.offsets[s] : sets.offsets[s + 1]]).double()
            log_v = torch.stack([-price, price, torch.zeros_like(price)], 1)
            log_u = -log_v.logsumexp(0).expand_as(log_v)  # all factors are used equally
            yield np.array([s]), torch.stack([log_u, log_v])[None]

    monkeypatch.setattr(PCMCNet, "_factors", by_price)
    result = submarkets(network, data)
    np.testing.assert_allclose(result.choices, 1 / 3, rtol=1e-10)
    low, high, middle = result.names
    assert low.startswith("low price")
    assert high.startswith("high price")
    assert "price" not in middle


def test_names_leave_out_small_differences_and_absent_categories() -> None:
    profile = FactorProfile(
        columns=("price", "minutes", "carrier A", "carrier B"),
        is_category=(False, False, True, True),
        averages=np.ones(4),
        spreads=np.ones(4),
        differences=np.array([[-0.5, 0.19, -0.9, 0.3], [0.1, 0.1, 0.1, 0.1], [0.3, 0.4, 0.5, 0.0]]),
    )
    assert profile.words(1) == "low price, carrier B"
    assert profile.words(2) == ""
    assert profile.words(3) == "carrier A, high minutes"


def test_missing_values_are_left_out_of_means(make_driven: Callable[..., ChoiceData]) -> None:
    table = make_driven().to_frame()
    table.loc[::3, "price"] = np.nan
    roles = {"choice_set": "trip", "chosen": "took", "features": ["price", "time"], "missing": "indicator"}
    data = ChoiceData.from_long(table, **roles)
    model = PCMCNet(rank=2, members=1, **QUICK).fit(data, progress=False)
    profile = submarkets(model, data).features_reached
    p = np.nan_to_num(model.predict_proba(data))[~np.isnan(data.features["price"].values)]
    price = data.features["price"].values[~np.isnan(data.features["price"].values)]
    assert profile.averages[profile.columns.index("price")] == pytest.approx(p @ price / p.sum(), rel=1e-6)
    assert np.isfinite(profile.differences).all()


def test_one_factor_is_a_logit(driven: ChoiceData) -> None:
    model = PCMCNet(rank=1, members=1, **QUICK).fit(driven, progress=False)
    result = submarkets(model, driven)
    assert result.names == ("all alternatives",)
    np.testing.assert_allclose(result.features_reached.differences, 0, atol=1e-12)
    np.testing.assert_allclose(result.reached[0], result.probabilities, rtol=1e-10)


# -- Networks, classes, single sets ------------------------------------------------------------------------------------


def test_each_averaged_network_has_its_own_factors(average: PCMCNet, driven: ChoiceData) -> None:
    first, second = (submarkets(average, driven, member=k) for k in (1, 2))
    mean = (first.probabilities + second.probabilities) / 2
    assert driven.labels is not None
    weights = np.repeat(driven.weights, driven.sizes) / driven.weights.sum()
    sums = np.bincount(driven.labels.codes, weights * average.predict_proba(driven))
    np.testing.assert_allclose(mean, sums, rtol=1e-6)  # the factors are float32
    assert np.abs(first.choices - second.choices).max() > 1e-4
    assert first.agreement is not None
    assert (np.abs(first.agreement) < 1).all()
    assert "1 of 2" in str(first)
    assert "2 of 2" in str(second)


def test_equal_networks_agree(driven: ChoiceData) -> None:
    model = PCMCNet(rank=3, members=2, **QUICK).fit(driven, progress=False)
    first, second = model._chains
    second.load_state_dict(first.state_dict())
    agreement = submarkets(model, driven).agreement
    assert agreement is not None
    np.testing.assert_allclose(agreement, 1, rtol=1e-10)


def test_one_network_has_no_agreement(result: Submarkets) -> None:
    assert result.agreement is None
    assert "agreement" not in str(result)


def test_classes_are_described_one_at_a_time(mixture: PCMCNet, driven: ChoiceData) -> None:
    counted = driven.subset(driven.weights > 0)
    shares = counted.weights @ mixture.class_shares(counted) / counted.weights.sum()
    results = [submarkets(mixture, driven, of_class=k) for k in (1, 2)]
    assert counted.labels is not None
    weights = np.repeat(counted.weights, counted.sizes) / counted.weights.sum()
    sums = np.bincount(counted.labels.codes, weights * mixture.predict_proba(counted))
    mean = shares @ [each.probabilities for each in results]
    np.testing.assert_allclose(mean, sums, rtol=1e-6)  # the factors are float32
    default = submarkets(mixture, driven)
    assert default.of_class == int(shares.argmax()) + 1
    np.testing.assert_array_equal(default.choices, results[int(shares.argmax())].choices)


def test_a_single_set_without_labels_names_its_alternatives(make_driven: Callable[..., ChoiceData]) -> None:
    data = make_driven(labels=False)
    model = PCMCNet(rank=2, members=1, **QUICK).fit(data, progress=False)
    assert submarkets(model, data).alternatives == ()
    one = data.subset([3])
    result = submarkets(model, one)
    assert [name.split()[0] for name in result.alternatives] == [f"#{k + 1}" for k in range(one.sizes[0])]
    np.testing.assert_allclose(result.probabilities, model.predict_proba(one), rtol=1e-6)  # float32 factors


def test_labels_that_no_set_offers_are_left_out(network: PCMCNet, driven: ChoiceData) -> None:
    one = driven.subset([np.flatnonzero((driven.sizes == 3) & (driven.weights > 0))[0]])
    assert one.labels is not None
    result = submarkets(network, one)
    assert len(result.alternatives) == 3
    np.testing.assert_allclose(result.exits.sum(0), 1, rtol=1e-10)


def test_memory_is_linear_in_the_size_of_a_set(network: PCMCNet, make_driven: Callable[..., ChoiceData]) -> None:
    """A set of 20,000 alternatives. One array of pairs would take 3.2 GB."""
    n, rng = 20_000, np.random.default_rng(0)
    data = make_driven(labels=False)
    model = PCMCNet(rank=2, members=1, **QUICK).fit(data, progress=False)
    table = {
        "trip": np.zeros(n),
        "price": rng.uniform(1, 9, n),
        "time": rng.uniform(9, 60, n),
        "noise": rng.normal(size=n),
        "comfort": rng.choice(["low", "high"], n),
        "income": np.full(n, 30.0),
        "purpose": np.full(n, "work"),
    }
    large = ChoiceData.from_schema(table, model.schema.for_prediction())
    tracemalloc.start()
    result = submarkets(model, large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40_000 * n  # bytes, of a few dozen numbers per alternative
    assert result.alternatives[-1] == "#20000"
    np.testing.assert_allclose(result.probabilities, model.predict_proba(large), rtol=1e-5)  # float32 factors
    assert result.flows is None
    with pytest.raises(InputError, match=r"20,000 alternatives would take 6\.4 GB.*np\.outer"):
        _ = result.exchanged


# -- Errors ------------------------------------------------------------------------------------------------------------


def test_models_without_factors_are_refused(driven: ChoiceData, fitted: Callable[[str], Any]) -> None:
    with pytest.raises(InputError, match=r"scores all pairs.*PCMCNet\(rank=16\)"):
        submarkets(fitted("pcmcnet"), driven)
    with pytest.raises(InputError, match=r"MNL has no factors: fit PCMCNet\(rank=16\)"):
        submarkets(MNL().fit(driven), driven)
    members = Ensemble(PCMCNet(rank=2, members=1, **QUICK), 2).fit(driven, progress=False)
    with pytest.raises(InputError, match=r"over\(\)"):
        submarkets(members, driven)


def test_members_and_classes_that_do_not_exist_are_refused(
    network: PCMCNet, mixture: PCMCNet, driven: ChoiceData
) -> None:
    with pytest.raises(InputError, match="averages 1 networks, got 2"):
        submarkets(network, driven, member=2)
    with pytest.raises(ConfigError, match="member"):
        submarkets(network, driven, member=0)
    with pytest.raises(InputError, match="class from 1 to 2, got 3"):
        submarkets(mixture, driven, of_class=3)


# -- Output ------------------------------------------------------------------------------------------------------------


def test_frames_have_the_values_of_the_result(result: Submarkets) -> None:
    factors = result.to_frame()
    assert factors["factor"].tolist() == (result.order + 1).tolist()
    assert factors["choices"].is_monotonic_decreasing
    features = result.to_frame("features")
    assert set(features["side"]) == {"reached", "left", "users"}
    row = features[(features["factor"] == 2) & (features["side"] == "left") & (features["column"] == "time")].iloc[0]
    k = result.features_left.columns.index("time")
    assert row["difference"] == result.features_left.differences[1, k]
    assert row["mean"] == pytest.approx(row["average"] + row["difference"] * result.features_left.spreads[k], rel=1e-12)
    alternatives = result.to_frame("alternatives")
    row = alternatives[(alternatives["factor"] == 3) & (alternatives["alternative"] == "car")].iloc[0]
    car = result.alternatives.index("car")
    assert (row["reached"], row["exits"]) == (result.reached[2, car], result.exits[2, car])
    flows = result.to_frame("flows")
    assert len(flows) == 3 * 4 * 3
    assert flows["flow"].sum() == pytest.approx(float(result.switches @ result.moves), rel=1e-10)
    with pytest.raises(ConfigError, match="what"):
        result.to_frame("factor")  # type: ignore[arg-type]


def test_the_result_prints_one_row_per_factor(result: Submarkets) -> None:
    text = str(result)
    assert text.startswith("Submarkets: PCMCNet\n")
    assert all(f"\n{k}  " in text for k in (1, 2, 3))
    assert "Largest exchange: " in text
    assert "<table" in result._repr_html_()
    assert repr(result).startswith("Submarkets(PCMCNet, 3 factors; factor ")
    assert json.loads(json.dumps(result.to_dict()))["names"] == list(result.names)


def test_a_saved_model_has_the_same_submarkets(average: PCMCNet, driven: ChoiceData, tmp_path: Any) -> None:
    average.save(tmp_path / "model")
    loaded = submarkets(load(tmp_path / "model"), driven, member=2)
    np.testing.assert_array_equal(loaded.flows, submarkets(average, driven, member=2).flows)
