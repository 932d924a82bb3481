from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from choice_tables import largest
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.errors import InputError, NotFittedError
from pcmcnet.insight.elasticity import elasticity, slopes
from pcmcnet.models import MNL, MODELS, LatentClassMNL, Uniform
from pcmcnet.models.logit.logit_effects import (
    mean_cross_responses,
    mean_rival_responses,
    own_responses,
    share_elasticities,
    step_sizes,
    weighted_group_means,
)

LABELS = ("bike", "bus", "car")


def trips(sets: int = 60, *, labels: bool, individual: bool = False, seed: int = 0, **roles: Any) -> ChoiceData:
    """Return sets of two or three, and one of a single alternative, with positive costs and weights of 1 to 3."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, sets)
    sizes[0] = 1
    s = np.repeat(np.arange(sets), sizes)
    n = len(s)
    mode = np.concatenate([rng.permutation(3)[:k] for k in sizes])
    cost, time = rng.uniform(1, 9, n), rng.uniform(10, 60, n)
    took = largest(-0.4 * cost - 0.03 * time + 0.3 * mode + rng.gumbel(size=n), s)
    table = {
        "s": s,
        "took": took,
        "mode": np.array(LABELS)[mode],
        "cost": cost,
        "time": time,
        "comfort": np.array(["low", "high"])[rng.integers(2, size=n)],
        "weight": rng.integers(1, 4, sets)[s],
        "income": rng.uniform(1, 3, sets)[s],
        "age": rng.uniform(1, 3, sets)[s],
    }
    return ChoiceData.from_long(
        table,
        choice_set="s",
        chosen="took",
        alternative="mode" if labels else None,
        features=["cost", "time", "comfort"],
        individual=["income", "age"] if individual else [],
        weight="weight",
        **roles,
    )


def closed_form(model: MNL, data: ChoiceData) -> dict[tuple[str, str], float]:
    """b x (1 - P) and -b x_j P_j, averaged with weights w P(i) over all sets with i, in plain loops."""
    p = data.from_rows(model.predict_proba(data))
    x = data.features["cost"].values.astype(float)  # type: ignore[union-attr]
    b, label = model.coefficients["cost"], None if data.labels is None else data.labels.plain()
    sums: dict[tuple[str, str], Any] = {}
    mass: dict[str, float] = {}
    for s in range(len(data)):
        inside = range(data.offsets[s], data.offsets[s + 1])
        for i in inside:
            if label is not None:
                mass[label[i]] = mass.get(label[i], 0.0) + data.weights[s] * p[i]
            for j in inside:
                pair = ("own" if i == j else "other", "own") if label is None else (label[i], label[j])
                value = b * x[i] * (1 - p[i]) if i == j else -b * x[j] * p[j]
                weight = data.weights[s] * p[i]
                sums[pair] = sums.get(pair, 0) + np.array([weight * value, weight])
    return {(of, when): top / mass.get(of, bottom) for (of, when), (top, bottom) in sums.items()}


@pytest.mark.parametrize("labels", [True, False])
def test_elasticities_agree_with_the_closed_form(labels: bool) -> None:
    data = trips(labels=labels)
    model = MNL(formula="cost + time/60").fit(data)
    result = model.elasticities(data, "cost")
    expected = closed_form(model, data)
    assert {(e.of, e.when) for e in result.entries} == set(expected)
    for pair, value in expected.items():
        assert result[pair].value == pytest.approx(value, rel=1e-8)
    assert all(e.error > 0 for e in result.entries)


def test_transformations_are_differentiated() -> None:
    """d log P / d log x of b log x is b (1 - P)."""
    data = trips(labels=False)
    model = MNL(formula="log(cost)").fit(data)
    p, w = data.from_rows(model.predict_proba(data)), np.repeat(data.weights, data.sizes)
    expected = model.coefficients["log(cost)"] * np.average(1 - p, weights=w * p)
    assert model.elasticities(data, "cost")["own", "own"].value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("formula", ["relative(cost) + time", "cost + cost:comfort + square(cost) + time"])
def test_elasticities_agree_with_changed_tables(formula: str) -> None:
    """The cost of the car rises slightly, and shares over all sets are predicted again."""
    data = trips(labels=True)
    model = MNL(formula=formula, reference="car").fit(data)
    car = data.labels.plain() == "car"  # type: ignore[union-attr]

    weight = np.repeat(data.weights, data.sizes)

    def log_shares(factor: float) -> Any:
        cost = data.features["cost"].values.astype(float)  # type: ignore[union-attr]
        changed = Numeric(np.where(car, cost * factor, cost))  # type: ignore[arg-type]
        moved = replace(data, features={**data.features, "cost": changed})
        p = moved.from_rows(model.predict_proba(moved))
        return np.log([weight[rows] @ p[rows] for of in LABELS for rows in [data.labels.plain() == of]])  # type: ignore[union-attr]

    h = 1e-6
    slope = (log_shares(1 + h) - log_shares(1 - h)) / (2 * h)
    result = model.elasticities(data, "cost")
    for of, expected in zip(LABELS, slope, strict=True):
        assert result[of, "car"].value == pytest.approx(expected, rel=1e-6)


def test_errors_follow_the_delta_method() -> None:
    """With one coefficient, the error is |d e / d b| times that of b."""
    data = trips(labels=False)
    model = MNL(formula="cost").fit(data)
    b, result = model.estimates_.values, model.elasticities(data, "cost", "robust")
    x, w = data.features["cost"].values.astype(float), np.repeat(data.weights, data.sizes)  # type: ignore[union-attr]

    def own(at: float) -> float:
        v = np.exp(at * x)
        p = v / np.repeat(np.add.reduceat(v, data.offsets[:-1]), data.sizes)
        return float(np.average(at * x * (1 - p), weights=w * p))

    h = 1e-5
    slope = (own(b[0] + h) - own(b[0] - h)) / (2 * h)
    assert result["own", "own"].value == pytest.approx(own(b[0]), rel=1e-8)
    error = model.standard_errors("robust")["cost"]
    assert result["own", "own"].error == pytest.approx(abs(slope) * error, rel=1e-6)


def test_own_and_cross_elasticities_cancel_within_a_set() -> None:
    """Probabilities sum to 1, so own and cross elasticities weighted by P cancel if all three are available."""
    data = trips(labels=True)
    whole = data.subset(data.sizes == 3)
    model = MNL(formula="cost + time").fit(data)
    result = model.elasticities(whole, "cost")
    p = whole.from_rows(model.predict_proba(whole)) * np.repeat(whole.weights, whole.sizes)
    share = {label: p[whole.labels.plain() == label].sum() for label in LABELS}  # type: ignore[union-attr]
    for when in LABELS:
        assert sum(share[of] * result[of, when].value for of in LABELS) == pytest.approx(0, abs=1e-9)


def test_missing_values_and_infinite_estimates_give_no_nan() -> None:
    data = trips(labels=False)
    cost = data.features["cost"].values.copy()  # type: ignore[union-attr]
    cost[::7] = np.nan
    took = np.isin(np.arange(len(cost)), data.offsets[:-1] + data.chosen)
    table = {
        "s": data.set_of_alternative,
        "took": took,
        "cost": cost,
        "never": np.where(took | (np.arange(len(cost)) % 3 > 0), "a", "b"),
    }
    gaps = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["cost", "never"], missing="indicator")
    model = MNL(formula="cost + never", min_chosen=0).fit(gaps)
    assert model.estimates_.unbounded == ("never[b]",)
    result = model.elasticities(gaps, "cost")
    assert all(np.isfinite(e.value) and not np.isnan(e.error) for e in result.entries)
    assert "nan" not in str(result)


def test_the_table_of_elasticities_is_printed() -> None:
    data = trips(labels=False)
    result = MNL(formula="cost").fit(data).elasticities(data, "cost")
    head, own, other = str(result).splitlines()
    assert head.split() == ["elasticity", "to", "cost", "of", "value", "std", "err"]
    assert own.split()[:2] == ["own", "own"]
    assert other.split()[:2] == ["own", "other"]
    assert repr(result) == str(result)
    with pytest.raises(KeyError):
        result["car", "bus"]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("costs", r"'costs' is not a feature of the table. Did you mean 'cost'\?"),
        ("comfort", "'comfort' is categorical: elasticities need a numeric feature"),
        ("time", "the utility does not depend on 'time': its formula is 'cost'"),
    ],
)
def test_a_column_without_elasticity_is_refused(column: str, problem: str) -> None:
    data = trips(labels=False)
    with pytest.raises(InputError, match=problem):
        MNL(formula="cost").fit(data).elasticities(data, column)


def test_elasticities_read_tables_with_the_schema_of_the_model() -> None:
    table = {"s": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["cost"])
    model = MNL().fit(data)
    without_choices = {name: column for name, column in table.items() if name != "took"}
    for table_read in (table, without_choices):
        assert model.elasticities(table_read, "cost").entries == model.elasticities(data, "cost").entries


def test_elasticities_need_a_fitted_model_and_a_set() -> None:
    data = trips(labels=False)
    with pytest.raises(NotFittedError):
        MNL().elasticities(data, "cost")
    with pytest.raises(InputError, match="elasticities need at least one choice set"):
        MNL(formula="cost").fit(data).elasticities(data.subset([]), "cost")


@pytest.mark.parametrize("column", ["cost", "income", "age"])
def test_slopes_of_a_mixture_agree_with_differences(column: str) -> None:
    """Slopes of a feature and of an individual column in the utility. A membership column has no formula."""
    data = trips(labels=True, individual=True)
    model = LatentClassMNL(formula="cost + cost:income + time", classes=2, membership="age", starts=1).fit(data)
    result = model._slopes(data, column)
    if column == "age":
        assert result is None
        return
    assert result is not None
    np.testing.assert_allclose(result, slopes(model, data, column, method="differences"), atol=2e-3)  # float32 columns
    assert np.abs(result).max() > 0.01
    assert not model._slopes(data, "comfort").any()  # type: ignore[union-attr]  # is not in the utility


# -- Responses ---------------------------------------------------------------------------------------------------------
# Averages of responses, computed by hand for a set of two alternatives and a set of one.


OFFSETS = np.array([0, 2, 3])
VALUES = np.array([-1.0, 2.0, 3.0, -4.0, -5.0])  # (0, 0), (0, 1), (1, 0), (1, 1), (2, 2)
MASS = np.array([1.0, 3.0, 2.0])
CODES = np.array([0, 1, 0])


def test_averages_are_weighted() -> None:
    """Group 0: (1 * 2 + 3 * 4) / (1 + 3) = 3.5; group 2 has no weight."""
    values, weights, codes = np.array([2.0, 4.0, 7.0, 9.0]), np.array([1.0, 3.0, 2.0, 0.0]), np.array([0, 0, 1, 2])
    assert weighted_group_means(values, weights, codes, 3).tolist() == [3.5, 7.0, 0.0]


def test_own_responses_are_the_diagonals() -> None:
    assert own_responses(VALUES, OFFSETS).tolist() == [-1.0, -4.0, -5.0]


def test_cross_responses_are_weighted_by_probability() -> None:
    """A change of alternative 0 gives r_10 = 3, of 1 gives r_01 = 2. As one group: (3 * 3 + 1 * 2) / (3 + 1)."""
    assert mean_rival_responses(VALUES, MASS, OFFSETS, CODES, 2).tolist() == [3.0, 2.0]
    assert mean_rival_responses(VALUES, MASS, OFFSETS, np.zeros(3, int), 1).tolist() == [11 / 4]


def test_responses_are_averaged_over_sets_with_the_responding_group() -> None:
    """Group 0 to itself: (1 * -1 + 2 * -5) / 3. To group 1, which the second set lacks: 1 * 2 / (1 + 2)."""
    expected = [[-11 / 3, 2 / 3], [3.0, -4.0]]
    np.testing.assert_allclose(mean_cross_responses(VALUES, MASS, OFFSETS, CODES, 2), expected, rtol=1e-15)
    assert mean_cross_responses(VALUES, MASS, OFFSETS, np.array([0, 0, 1]), 2)[0, 1] == 0  # never in one set


def test_a_step_is_relative_to_the_value_or_to_the_mean_size() -> None:
    assert step_sizes(np.array([-2.0, 0.0, np.nan, 6.0])).tolist() == pytest.approx([2.0, 2.0, 2.0, 6.0])
    assert step_sizes(np.zeros(2)).tolist() == [1.0, 1.0]


# -- elasticities of other logits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [True, False])
def test_differences_of_shares_agree_with_the_closed_form(labels: bool) -> None:
    """In a multinomial logit, both ways give the same elasticities and the same standard errors."""
    data = trips(labels=labels)
    model = MNL(formula="cost + time/60").fit(data)
    expected, result = model.elasticities(data, "cost"), share_elasticities(model, data, "cost", "robust")
    assert [(e.of, e.when) for e in result.entries] == [(e.of, e.when) for e in expected.entries]
    for ours, theirs in zip(result.entries, expected.entries, strict=True):
        # The difference of shares has an error of the square of its step, 1e-4.
        assert ours.value == pytest.approx(theirs.value, rel=1e-6)
        assert ours.error == pytest.approx(theirs.error, rel=1e-4)


@pytest.mark.parametrize("name", ["nested-mnl", "cross-nested-mnl", "mixed-mnl", "lc-mnl"])
def test_elasticities_of_every_logit_have_standard_errors(name: str) -> None:
    """The values are the averages of finite differences within each choice set."""
    data = trips(300, labels=True)  # in a small table, a latent class has no finite estimates
    options: dict[str, dict[str, Any]] = {
        "nested-mnl": {"nests": {"bus": "land", "car": "land", "bike": "own"}, "fixed": {"logsum[land]": 0.8}},
        "cross-nested-mnl": {
            "nests": {"a": ["bus", "car"], "b": ["car", "bike"]},
            "fixed": {"logsum[a]": 0.8, "logsum[b]": 0.7},
        },
        "mixed-mnl": {"random": {"cost": "normal"}, "draws": 20},
        "lc-mnl": {"classes": 2, "starts": 2, "prior": 0.1},
    }
    model = MODELS[name](formula="cost + time/60", **options[name]).fit(data)
    result = model.elasticities(data, "cost")
    assert len(result.entries) == 9
    expected = elasticity(model, data, "cost", method="differences", step=1e-3).between()
    for entry in result.entries:
        assert entry.value == pytest.approx(expected[entry.of, entry.when], rel=1e-3, abs=1e-5)  # float32 columns
        assert 0 < entry.error < 100


def test_other_models_are_referred_to_the_bootstrap() -> None:
    data = trips(labels=True)
    with pytest.raises(InputError, match=r"Uniform has no standard errors: .* pn\.bootstrap for their intervals"):
        Uniform().fit(data).elasticities(data, "cost")
