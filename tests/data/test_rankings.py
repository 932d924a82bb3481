"""Rankings as choices: by hand, against the formula of the exploded logit, and errors."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.rankings import first_choices
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models import MNL, BradleyTerry, ChoiceModel, LatentClassMNL, MixedMNL, PCMCNet, Uniform

UNRANKED = None


def table(*rankings: list[Any], **more: Any) -> dict[str, Any]:
    """Return a table whose sets have these ranks; alternatives are called a, b, c, ..."""
    sizes = [len(ranks) for ranks in rankings]
    return {
        "task": np.repeat(np.arange(1, len(sizes) + 1), sizes),
        "item": [chr(97 + k) for n in sizes for k in range(n)],
        "price": np.arange(float(sum(sizes))),
        "place": list(itertools.chain(*rankings)),
        **more,
    }


def read(rows: dict[str, Any], **roles: Any) -> ChoiceData:
    roles = {"choice_set": "task", "rank": "place", "alternative": "item", "features": ["price"]} | roles
    return ChoiceData.from_long(rows, **roles)


def shown(data: ChoiceData) -> list[str]:
    """Write each choice set as its alternatives, the chosen one first: "b|ac"."""
    assert data.labels is not None
    words, chosen = data.labels.plain(), data.require_chosen("test")
    sets = [words[begin:end] for begin, end in itertools.pairwise(data.offsets)]
    return [f"{s[k]}|{''.join(np.delete(s, k))}" for s, k in zip(sets, chosen, strict=True)]


@pytest.mark.parametrize(
    ("ranks", "choices"),
    [
        ([2, 1, 3], ["b|ac", "a|c"]),  # the remaining alternative is last
        ([UNRANKED, 1, UNRANKED], ["b|ac"]),
        ([UNRANKED, 1, UNRANKED, 2], ["b|acd", "d|ac"]),
        ([1, UNRANKED, 3], ["a|bc", "b|c"]),  # best and worst of three
        ([1, 2, UNRANKED], ["a|bc", "b|c"]),
        ([1, 2], ["a|b"]),
        ([1], ["a|"]),  # a set of one has no other choice
        ([4, 3, 2, 1], ["d|abc", "c|ab", "b|a"]),
    ],
)
def test_a_ranking_is_a_sequence_of_choices(ranks: list[Any], choices: list[str]) -> None:
    assert shown(read(table(ranks))) == choices


def test_choices_keep_the_columns_of_their_ranking() -> None:
    rows = table([2, 1, 3], [1, UNRANKED, UNRANKED], weight=[3.0] * 3 + [1.0] * 3, who=["x"] * 3 + ["y"] * 3)
    data = read(rows, weight="weight", individual=["who"])
    assert data.set_ids.tolist() == ["1/1", "1/2", "2/1"]
    assert data.weights.tolist() == [3, 3, 1]
    assert data.individual["who"].plain().tolist() == ["x", "x", "y"]
    assert data.keep["task"].plain().tolist() == ["1", "1", "2"]
    assert data.features["price"].plain().tolist() == [0, 1, 2, 0, 2, 3, 4, 5]
    assert data.rows.tolist() == list(range(8))


def test_first_choices_are_among_all_alternatives() -> None:
    data = read(table([2, 1, 3], [1, UNRANKED, UNRANKED]))
    assert shown(first_choices(data)) == ["b|ac", "a|bc"]
    assert first_choices(data[::-1]).set_ids.tolist() == ["2/1", "1/1"]
    plain = read(table([2, 1, 3]), rank=None)
    assert first_choices(plain) is plain


def test_ranked_rows_may_be_in_any_order_or_unavailable() -> None:
    rows = table([2, 1, UNRANKED, 3], offered=[1, 1, 0, 1])
    order = [3, 0, 2, 1]
    data = read({name: np.array(values, object)[order] for name, values in rows.items()}, available="offered")
    assert shown(data) == ["b|da", "a|d"]
    assert data.n_rows == data.n_alternatives == 5


def test_choices_of_a_ranking_or_person_stay_together() -> None:
    rankings = [[1, 2, 3, 4]] * 10
    data = read(table(*rankings))
    assert data.groups().tolist() == np.repeat(np.arange(10), 3).tolist()
    assert data.groups("task").tolist() == data.groups().tolist()
    first, second = data.split((0.5, 0.5), seed=0)
    assert not set(first.keep["task"].plain()) & set(second.keep["task"].plain())
    for rest, fold in data.folds(5, seed=0):
        assert not set(rest.keep["task"].plain()) & set(fold.keep["task"].plain())
    persons = read(table(*rankings, who=np.repeat(np.arange(10) // 2, 4)), person="who")
    assert persons.groups().tolist() == np.repeat(np.arange(5), 6).tolist()


# -- best and worst -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "choices", "weights"),
    [
        ([1, UNRANKED, -1, UNRANKED], ["a|bcd", "b|c", "d|c"], [1, 2 / 3, 2 / 3]),
        ([-1, 1, UNRANKED, UNRANKED], ["b|acd", "c|a", "d|a"], [1, 2 / 3, 2 / 3]),
        ([1, -1, 0, 0], ["a|bcd", "c|b", "d|b"], [1, 2 / 3, 2 / 3]),  # best minus worst: 0 means no rank
        (
            [1, -1, UNRANKED, -2, UNRANKED],  # the worst of b, c, d and e is b, and the worst of c, d and e is d
            ["a|bcde", "c|b", "d|b", "e|b", "c|d", "e|d"],
            [1, 1 / 2, 1 / 2, 1 / 2, 2 / 3, 2 / 3],
        ),
        ([1, 2, UNRANKED, UNRANKED, -1], ["a|bcde", "b|cde", "c|e", "d|e"], [1, 1, 2 / 3, 2 / 3]),
        ([1, UNRANKED, -1], ["a|bc", "b|c"], [1, 1]),  # the best and the worst of three give a full ranking
        ([1, -1, -2, -3], ["a|bcd", "d|bc", "c|b"], [1, 1, 1]),
        ([-1, 1], ["b|a"], [1]),
    ],
)
def test_the_worst_is_compared_with_each_remaining_alternative(
    ranks: list[Any], choices: list[str], weights: list[float]
) -> None:
    data = read(table(ranks))
    assert shown(data) == choices
    np.testing.assert_allclose(data.weights, weights, rtol=1e-12)
    assert data.set_ids.tolist() == [f"1/{k}" for k in range(1, len(choices) + 1)]
    assert shown(first_choices(data)) == choices[:1]


def test_rankings_with_the_worst_are_written_as_ranks() -> None:
    rows = table(
        [1, UNRANKED, -1, UNRANKED], [-2, 2, UNRANKED, 1, UNRANKED, -1], [2, 1, UNRANKED], [UNRANKED, 1, UNRANKED]
    )
    data = read(rows)
    frame = data.to_frame()
    assert frame["place"].fillna(0).tolist() == [r or 0 for r in rows["place"]]
    assert ChoiceData.from_schema(frame, data.schema).fingerprint() == data.fingerprint()
    with pytest.raises(InputError, match="split rankings as a whole"):
        data.subset([0, 2]).to_frame()


def test_pairs_have_the_odds_of_the_maxdiff_logit() -> None:
    """Given that the worst is j or k, P(k) = e^-v_k / (e^-v_j + e^-v_k) = e^v_j / (e^v_j + e^v_k): j chosen over k."""
    v = np.log([1.0, 2.0, 3.0, 4.0])
    data = read(table([UNRANKED, 1, UNRANKED, -1]) | {"price": v})
    model = MNL(formula="price | 0", fixed={"price": 1.0}).fit(data)
    p = np.exp(-v[[0, 2, 3]])
    pairs = [p[2] / (p[2] + p[0]), p[2] / (p[2] + p[1])]
    expected = np.log(2 / 10) + 2 / 3 * np.log(pairs).sum()
    assert model.estimates_.log_likelihood == pytest.approx(expected, abs=1e-7)  # prices are float32


@given(st.lists(st.floats(-3, 3, width=32), min_size=3, max_size=6))
def test_the_pairs_have_the_hessian_of_maxdiff_at_zero(x: list[float]) -> None:
    """At v = 0, the mean Hessian of the weighted pairs over all worst alternatives is the variance of x in the set."""
    price = np.array([0.0, *x])  # the first alternative is the best one
    m = len(x)
    total = 0.0
    for worst in range(1, m + 1):
        ranks: list[Any] = [1, *[UNRANKED] * m]
        ranks[worst] = -1
        data = read(table(ranks) | {"price": price})
        pairs = data.features["price"].plain()[m + 1 :].astype(float).reshape(-1, 2)
        total += float((data.weights[1:] * (pairs[:, 0] - pairs[:, 1]) ** 2 / 4).sum()) / m
    np.testing.assert_allclose(total, np.var(x), rtol=1e-5, atol=1e-5)  # float32


def best_worst(questions: int, seed: int) -> dict[str, Any]:
    """Five profiles with price and size; the best follows a logit, the worst of the rest a maxdiff logit."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(questions, 5, 2))
    v = x @ [-1.0, 0.5]
    best = (v + rng.gumbel(size=v.shape)).argmax(axis=1)[:, None] == np.arange(5)
    worst = np.where(best, -np.inf, -v + rng.gumbel(size=v.shape)).argmax(axis=1)[:, None] == np.arange(5)
    answers = (best.astype(int) - worst).tolist()
    return table(*answers) | {"price": x[..., 0].ravel(), "size": x[..., 1].ravel()}


def test_best_and_worst_recover_the_coefficients_with_smaller_errors() -> None:
    rows = best_worst(400, seed=0)
    both = MNL(formula="price + size | 0").fit(read(rows, features=["price", "size"]))
    best = [1 if answer == 1 else None for answer in rows["place"]]
    first = MNL(formula="price + size | 0").fit(read(rows | {"place": best}, features=["price", "size"]))
    for name, truth in (("price", -1.0), ("size", 0.5)):
        assert abs(both.coefficients[name] - truth) < 3 * both.standard_errors()[name]
        assert both.standard_errors()[name] < 0.85 * first.standard_errors()[name]
    assert both.summary().facts["standard errors"] == "clustered, 400 clusters by task"


@pytest.mark.slow
def test_best_and_worst_are_within_two_errors_in_most_tables() -> None:
    hits = {"price": 0, "size": 0}
    for seed in range(20):
        model = MNL(formula="price + size | 0").fit(read(best_worst(300, seed), features=["price", "size"]))
        for name, truth in (("price", -1.0), ("size", 0.5)):
            hits[name] += abs(model.coefficients[name] - truth) <= 2 * model.standard_errors()[name]
    assert min(hits.values()) >= 18


def test_wide_tables_name_the_best_and_the_worst() -> None:
    rows = {"best": ["b", "a"], "worst": ["d", "c"]} | {f"price_{c}": [1.0 + k, 2.0 * k] for k, c in enumerate("abcd")}
    roles: dict[str, Any] = {"alternatives": list("abcd"), "features": {"price": "price_{alternative}"}}
    data = ChoiceData.from_wide(rows, chosen="best", worst="worst", **roles)
    assert shown(data) == ["b|acd", "a|d", "c|d", "a|bcd", "b|c", "d|c"]
    again = ChoiceData.from_schema(rows, Schema.from_dict(data.schema.to_dict()))
    assert again.fingerprint() == data.fingerprint()
    model = MNL(formula="price | 0").fit(data)
    assert model.predict_proba({k: v for k, v in rows.items() if "price" in k}).shape == (8,)
    coded = {**rows, "best": [2, 1], "worst": [4, 3]}
    numbers = {**roles, "alternatives": dict(zip("abcd", (1, 2, 3, 4), strict=True))}
    assert shown(ChoiceData.from_wide(coded, chosen="best", worst="worst", **numbers)) == shown(data)
    with pytest.raises(SchemaError, match=r"'worst', row 1: the best alternative is also the worst; 1 such row"):
        ChoiceData.from_wide({**rows, "worst": ["d", "a"]}, chosen="best", worst="worst", **roles)
    with pytest.raises(SchemaError, match="'worst' needs chosen=<column with the best alternative>"):
        ChoiceData.from_wide(rows, worst="worst", **roles)
    with pytest.raises(SchemaError, match="'worst', row 0: expected one of a, b, c, d, got z"):
        ChoiceData.from_wide({**rows, "worst": ["z", "a"]}, chosen="best", worst="worst", **roles)
    with pytest.raises(SchemaError, match="'worst' is declared as chosen"):
        ChoiceData.from_wide(rows, chosen="best", worst="worst", individual=["worst"], **roles)


def test_profiles_without_labels_and_items_without_features_have_a_worst() -> None:
    """Best-worst of profiles (features alone) and of items (labels alone)."""
    profiles = read(best_worst(40, 0), alternative=None, features=["price", "size"])
    assert PCMCNet(hidden=(4,), epochs=1, members=1, weight_decay=0.0).fit(profiles, progress=False).num_parameters
    items = read(table(*[[1, UNRANKED, UNRANKED, -1]] * 3, *[[-1, 1, UNRANKED, UNRANKED]] * 2), features=[])
    strengths = BradleyTerry().fit(items, progress=False).predict_proba(items)
    assert np.isfinite(strengths).all()


def test_wide_tables_of_items_need_no_features() -> None:
    rows = {"best": ["b", "a", "b"], "worst": ["d", "c", "c"]}
    data = ChoiceData.from_wide(rows, chosen="best", worst="worst", alternatives=list("abcd"))
    assert shown(data)[:3] == ["b|acd", "a|d", "c|d"]
    assert data.features == {}
    again = ChoiceData.from_schema(rows, Schema.from_dict(data.schema.to_dict()))
    assert again.fingerprint() == data.fingerprint()
    assert np.isfinite(BradleyTerry().fit(data, progress=False).predict_proba(data)).all()


def test_best_and_worst_attributes_of_a_profile_recover_the_values_of_the_levels() -> None:
    """Case 2: a profile has one of two levels of each of four attributes, and each level is an alternative.

    The difference between the best and the worst level depends on the sum of both values, so values are relative to
    the reference level.
    """
    rng = np.random.default_rng(0)
    names = [f"{attribute}: {level}" for attribute in ("price", "taste", "size", "brand") for level in ("low", "high")]
    values = dict(zip(names, (1.0, -1.0, -0.5, 0.8, 0.0, 0.3, -0.2, 0.6), strict=True))
    rows: dict[str, list[Any]] = {"task": [], "item": [], "place": []}
    for task in range(600):
        levels = [names[2 * k + rng.integers(2)] for k in range(4)]
        v = np.array([values[level] for level in levels])
        best = int((v + rng.gumbel(size=4)).argmax())
        worst = int(np.where(np.arange(4) == best, -np.inf, -v + rng.gumbel(size=4)).argmax())
        rows["task"] += [task] * 4
        rows["item"] += levels
        rows["place"] += [{best: 1, worst: -1}.get(k, UNRANKED) for k in range(4)]
    model = MNL(reference="size: low").fit(read(rows, features=[]))
    errors = model.standard_errors()
    assert len(model.coefficients) == 7
    for name, estimate in model.coefficients.items():
        truth = values[name.removeprefix("constant[").removesuffix("]")]
        assert abs(estimate - truth) < 3 * errors[name]


@pytest.mark.parametrize(
    "model",
    [MixedMNL(draws=10), MixedMNL(classes=2, draws=10, starts=1), LatentClassMNL(classes=2, starts=1)],
    ids=["mixed", "mixed with classes", "latent classes"],
)
def test_models_of_persons_refuse_a_worst_among_four_or_more(model: ChoiceModel) -> None:
    """Best and worst of three are a full ranking, which these models support."""
    answers = best_worst(30, 0) | {"person": np.repeat(np.arange(30) // 5, 5)}
    data = read(answers, features=["price", "size"], person="person")
    with pytest.raises(InputError, match=r"with a worst alternative among four or more.*Read the best choices only"):
        model.fit(data, progress=False)
    answers = {name: np.asarray(values, object)[np.arange(150) % 5 < 3].tolist() for name, values in answers.items()}
    answers |= {"place": [1, UNRANKED, -1] * 30, "price": [float(p) for p in answers["price"]]}
    three = read(answers, features=["price"], person="person")
    assert (three.weights == 1).all()
    assert model.fit(three, progress=False).num_parameters


# -- the likelihood -------------------------------------------------------------------------------------------------


def test_the_exploded_logit_matches_values_by_hand() -> None:
    """Utilities log 1, log 2, log 3, ranked b, a, c: 2/6 for b of all, then 1/4 for a of a and c."""
    rows = table([2, 1, 3]) | {"price": np.log([1.0, 2.0, 3.0])}
    model = MNL(formula="price | 0", fixed={"price": 1.0}).fit(read(rows))
    assert model.estimates_.log_likelihood == pytest.approx(np.log(2 / 6 * 1 / 4), abs=1e-7)  # prices are float32


@given(seed=st.integers(0, 2**16), n=st.integers(2, 6), data=st.data())
def test_the_likelihood_matches_beggs_cardell_and_hausman(seed: int, n: int, data: Any) -> None:
    """P = prod_k exp(v_k) / sum of exp(v) over k and those ranked after it; it sums to 1 over all rankings of n."""
    depth = data.draw(st.integers(1, n))
    v = np.random.default_rng(seed).normal(size=n).astype(np.float32).astype(float)
    total = 0.0
    for order in itertools.permutations(range(n), depth):
        ranks: list[Any] = [UNRANKED] * n
        for place, item in enumerate(order, start=1):
            ranks[item] = place
        left = [*order, *(k for k in range(n) if k not in order)]
        expected = sum(v[order[k]] - np.log(np.exp(v[left[k:]]).sum()) for k in range(depth))
        sets = read(table(ranks) | {"price": v})
        log_likelihood = 0.0
        for begin, end, chosen in zip(sets.offsets[:-1], sets.offsets[1:], sets.require_chosen("test"), strict=True):
            u = sets.features["price"].plain()[begin:end].astype(float)
            log_likelihood += u[chosen] - np.log(np.exp(u).sum())
        assert log_likelihood == pytest.approx(expected, abs=1e-9)
        total += np.exp(expected)
        if n > 4:
            return
    assert total == pytest.approx(1, abs=1e-9)


def simulated(tasks: int, items: int = 5, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tasks, items, 2))
    u = x @ [-1.0, 0.5] + rng.gumbel(size=(tasks, items))
    return table(*(np.argsort(np.argsort(-u)) + 1).tolist()) | {"price": x[..., 0].ravel(), "size": x[..., 1].ravel()}


def test_rankings_give_smaller_errors_than_choices() -> None:
    rows = simulated(400)
    whole = MNL(formula="price + size | 0").fit(read(rows, features=["price", "size"]))
    best = [1 if place == 1 else None for place in rows["place"]]
    first = MNL(formula="price + size | 0").fit(read(rows | {"place": best}, features=["price", "size"]))
    for model in (whole, first):
        for name, truth in (("price", -1.0), ("size", 0.5)):
            assert abs(model.coefficients[name] - truth) < 3 * model.standard_errors()[name]
    assert whole.standard_errors()["price"] < 0.8 * first.standard_errors()["price"]
    assert whole.summary().facts["standard errors"] == "clustered, 400 clusters by task"


def test_all_choices_of_a_ranking_have_one_latent_class() -> None:
    data = read(simulated(100), features=["price", "size"])
    assert LatentClassMNL(classes=2, formula="price + size | 0").fit(data).persons_ == 100


def test_a_table_for_prediction_needs_no_ranks(tmp_path: Path) -> None:
    rows = simulated(50)
    model = MNL().fit(read(rows, features=["price", "size"]))
    del rows["place"]
    p = model.predict_proba(rows)
    assert p.shape == (250,)
    np.testing.assert_allclose(p.reshape(50, 5).sum(1), 1)


# -- tables in other forms ------------------------------------------------------------------------------------------


def test_a_wide_table_has_one_rank_column_per_alternative() -> None:
    rows = {"place_a": [2, None], "place_b": [1, 1], "place_c": [3, None]} | {f"price_{c}": [1.0, 2.0] for c in "abc"}
    data = ChoiceData.from_wide(
        rows, rank="place_{alternative}", alternatives=list("abc"), features={"price": "price_{alternative}"}
    )
    assert shown(data) == ["b|ac", "a|c", "b|ac"]
    with pytest.raises(SchemaError, match="'place_a' is declared as rank and also as a model input"):
        ChoiceData.from_wide(
            rows, rank="place_{alternative}", alternatives=list("abc"), features={"x": "place_{alternative}"}
        )


def test_a_schema_stores_the_rank_column(tmp_path: Path) -> None:
    schema = Schema(choice_set="task", rank="place", features=["price"])  # type: ignore[arg-type]
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    assert Schema.from_toml(tmp_path / "schema.toml") == schema
    assert schema.for_prediction().rank is None
    assert "rank" not in Schema(choice_set="task").to_dict()


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        ([1, 1, 2], r"choice set 1: column 'place': several alternatives have the same rank. Break the ties"),
        ([1, 2, 2], "several alternatives have the same rank"),
        ([1, 2, 4], r"ranks must be 1, 2, \.\.\. without a gap, got 1, 2, 4"),
        ([2, 3, None], r"without a gap, got 2, 3"),
        (
            [1, None, None, 4],
            r"got 1, 4. Correct them. If only the best and the worst of more than three alternatives are",
        ),
        ([None, None], "no alternative has a rank"),
        ([None, None, -1], "only the worst is known. Give the best alternative rank 1"),
        ([1, None, None, -1, -1], "several alternatives have the same rank"),
        ([1, None, None, -1, -3], r"ranks must be -1, -2, ... without a gap, got -1, -3"),
        ([0, 1, 2], r"row 0 \(choice set 1\): expected a rank of 1, 2, 3 and so on, .*, got 0; 1 such row"),
        ([1.5, 1, 2], r"got 1\.5"),
        ([float("inf"), 1, 2], "got inf"),
        (["first", "1", "2"], "expected a number, got 'first'"),
    ],
)
def test_invalid_rankings_are_refused(ranks: list[Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        read(table(ranks))


def test_a_ranked_alternative_must_be_available() -> None:
    with pytest.raises(SchemaError, match=r"column 'place', row 2 .* a ranked alternative is marked unavailable"):
        read(table([1, 2, 3], offered=[1, 1, 0]), available="offered")


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        ({"chosen": "taken"}, r"chosen \('taken'\) and rank \('place'\) are mutually exclusive"),
        ({"features": ["price", "place"]}, "'place' is declared as rank and also as a model input"),
        ({"alternative": "place"}, "'place' is declared as rank and also as alternative"),
    ],
)
def test_contradicting_roles_are_refused(roles: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        read(table([1, 2]), **roles)


def test_scan_refuses_rankings(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="scan does not support rankings"):
        ChoiceData.scan(tmp_path / "table.csv", choice_set="task", rank="place")


def test_a_ranking_has_one_chosen_probability_per_choice() -> None:
    """The ranking b, a, c is the choice of b from three alternatives and of a from two."""
    rows = table([2, 1, 3], [1, UNRANKED])
    model = Uniform().fit(read(rows))
    for source in (rows, read(rows)):
        assert model.chosen_probabilities(source) == pytest.approx([1 / 3, 1 / 2, 1 / 2])
