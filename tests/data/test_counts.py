"""Counts by market as weighted choices: by hand, against tables of single choices, and errors."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.counts import markets
from pcmcnet.errors import InputError, SchemaError

ROLES: dict[str, Any] = {"choice_set": "week", "counts": "sold", "alternative": "brand", "features": ["price"]}


def table(**columns: Any) -> dict[str, Any]:
    """Two weeks: 3 a, 0 b and 2 c are sold in the first, 1 a and 4 b in the second."""
    rows = {
        "week": [1, 1, 1, 2, 2],
        "brand": ["a", "b", "c", "a", "b"],
        "sold": [3, 0, 2, 1, 4],
        "price": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    return rows | columns


def read(rows: dict[str, Any], **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(rows, **{**ROLES, **roles})


def test_a_market_has_a_weighted_choice_for_each_chosen_alternative() -> None:
    data = read(table())
    assert data.set_ids.tolist() == ["1/1", "1/2", "2/1", "2/2"]
    assert data.sizes.tolist() == [3, 3, 2, 2]
    assert data.require_chosen("test").tolist() == [0, 2, 0, 1]
    assert data.weights.tolist() == [3, 2, 1, 4]
    assert data.features["price"].plain().tolist() == [1, 2, 3, 1, 2, 3, 4, 5, 4, 5]
    assert data.groups().tolist() == [0, 0, 1, 1]
    assert data.keep["week"].plain().tolist() == ["1", "1", "2", "2"]


def test_rows_may_be_in_any_order_and_weights_multiply_the_counts() -> None:
    order = [4, 1, 0, 3, 2]
    rows = {name: [values[k] for k in order] for name, values in table(w=[2, 2, 2, 1, 1]).items()}
    data = read(rows, weight="w")
    sold = {
        (name, brand): weight
        for name, weight, brand in zip(data.set_ids, data.weights, chosen_labels(data), strict=True)
    }
    assert {(name.split("/")[0], brand): weight for (name, brand), weight in sold.items()} == {
        ("1", "a"): 6,
        ("1", "c"): 4,
        ("2", "a"): 1,
        ("2", "b"): 4,
    }


def chosen_labels(data: ChoiceData) -> list[str]:
    assert data.labels is not None
    labels: list[str] = data.labels.plain()[data.offsets[:-1] + data.require_chosen("test")].tolist()
    return labels


def single_choices(rows: dict[str, Any]) -> ChoiceData:
    """Read the same table as one choice set per customer."""
    out: dict[str, list[Any]] = {name: [] for name in ("who", "brand", "price", "took")}
    ends = np.flatnonzero(np.diff(rows["week"])) + 1
    customer = 0
    for begin, end in pairwise([0, *ends.tolist(), len(rows["week"])]):
        for chosen in range(begin, end):
            for _ in range(int(rows["sold"][chosen])):
                customer += 1
                for row in range(begin, end):
                    values = (customer, rows["brand"][row], rows["price"][row], int(row == chosen))
                    for name, value in zip(out, values, strict=True):
                        out[name].append(value)
    return ChoiceData.from_long(out, choice_set="who", chosen="took", alternative="brand", features=["price"])


def many_weeks(weeks: int = 40, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    price = rng.uniform(1, 3, (weeks, 3))
    p = np.exp(np.array([0.0, 0.5, 1.0]) - price)
    sold = np.array([rng.multinomial(20, row / row.sum()) for row in p])
    return {
        "week": np.repeat(np.arange(weeks), 3),
        "brand": np.tile(list("abc"), weeks),
        "sold": sold.ravel(),
        "price": price.ravel(),
    }


def test_the_grouped_likelihood_is_that_of_single_choices() -> None:
    """Estimates, log-likelihood and classical errors are the same as with one choice set per customer."""
    rows = many_weeks()
    grouped = pn.MNL(reference="a").fit(read(rows))
    single = pn.MNL(reference="a").fit(single_choices(rows))
    np.testing.assert_allclose(list(grouped.coefficients.values()), list(single.coefficients.values()), rtol=1e-6)
    assert grouped.estimates_.log_likelihood == pytest.approx(single.estimates_.log_likelihood, rel=1e-9)
    errors = [list(model.standard_errors("classical").values()) for model in (grouped, single)]
    np.testing.assert_allclose(*errors, rtol=1e-6)
    assert grouped.summary().facts["standard errors"] == "clustered, 40 clusters by week"
    shares = grouped.predict_proba({name: rows[name] for name in ("week", "brand", "price")})
    np.testing.assert_allclose(shares.reshape(-1, 3).sum(axis=1), 1)


def test_shares_give_the_same_estimates_as_counts() -> None:
    rows = many_weeks()
    shares = rows | {"sold": rows["sold"] / 20}
    first, second = (pn.MNL(reference="a").fit(read(r)) for r in (rows, shares))
    np.testing.assert_allclose(list(first.coefficients.values()), list(second.coefficients.values()), rtol=1e-5)
    np.testing.assert_allclose(  # clustered errors do not depend on the scale of the weights
        *(list(model.standard_errors().values()) for model in (first, second)), rtol=1e-4
    )


def test_classes_are_those_of_customers() -> None:
    """The likelihood of latent classes is the same as with one choice set per customer."""
    rows = many_weeks()
    options: dict[str, Any] = {"classes": 2, "formula": "price", "reference": "a", "starts": 3}
    grouped = pn.LatentClassMNL(**options).fit(read(rows))
    single = pn.LatentClassMNL(**options, by="set").fit(single_choices(rows))
    assert grouped.estimates_.log_likelihood == pytest.approx(single.estimates_.log_likelihood, abs=0.01)  # of EM


@pytest.mark.parametrize("model", [pn.Boosted(trees=5), pn.PCMCNet(hidden=(4,), epochs=2, members=1, weight_decay=0.0)])
def test_other_models_are_fitted_to_counts(model: Any) -> None:
    data = read(many_weeks())
    p = model.fit(data, progress=False).predict_proba(data)
    np.testing.assert_allclose(p.reshape(-1, 3).sum(axis=1), 1, rtol=1e-4)  # float32
    assert len(pn.evaluate(model, data, resamples=5).to_dict())


def test_markets_stay_together_and_are_written_as_counts(tmp_path: Path) -> None:
    data = read(many_weeks())
    train, test = data.split((0.5, 0.5), seed=0)
    assert not set(train.keep["week"].plain()) & set(test.keep["week"].plain())
    rows = table()
    small = read(rows)
    frame = small.to_frame()
    assert frame["sold"].tolist() == rows["sold"]
    assert ChoiceData.from_schema(frame, small.schema).fingerprint() == small.fingerprint()
    firsts, counts = markets(small)
    assert (firsts.set_ids.tolist(), counts.tolist()) == (["1", "2"], [3, 0, 2, 1, 4])
    with pytest.raises(InputError, match="choice set 1/2 belongs to a market whose other choices"):
        small.subset([1]).to_frame()
    (tmp_path / "schema.toml").write_text(small.schema.to_toml())
    assert Schema.from_toml(tmp_path / "schema.toml") == small.schema
    assert small.schema.for_prediction().counts is None


def test_wide_tables_have_a_column_of_counts_for_each_alternative() -> None:
    rows = {"sold_a": [3, 1], "sold_b": [0, 4], "price_a": [1.0, 2.0], "price_b": [3.0, 4.0]}
    roles: dict[str, Any] = {"alternatives": ["a", "b"], "features": {"price": "price_{alternative}"}}
    data = ChoiceData.from_wide(rows, counts="sold_{alternative}", **roles)
    assert (data.weights.tolist(), chosen_labels(data)) == ([3, 1, 4], ["a", "a", "b"])
    assert ChoiceData.from_schema(rows, data.schema).fingerprint() == data.fingerprint()
    with pytest.raises(SchemaError, match="'price_a' is declared as counts and also as a model input"):
        ChoiceData.from_wide(rows, counts="price_{alternative}", **roles)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sold", "problem"),
    [
        ([3, -1, 2, 1, 4], r"column 'sold', row 1 .*: expected a count of at least 0, got -1; 1 such row"),
        ([3, None, 2, 1, 4], "expected a count of at least 0, got nan"),
        ([3, 0, 2, 0, 0], "choice set 2: column 'sold': all counts are 0"),
        (["3", "few", "2", "1", "4"], "expected a number, got 'few'"),
    ],
)
def test_invalid_counts_are_refused(sold: list[Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        read(table(sold=sold))


def test_counts_of_unavailable_alternatives_are_refused() -> None:
    open_ = [1, 0, 1, 1, 1]
    assert read(table(open=open_), available="open").sizes.tolist() == [2, 2, 2, 2]
    with pytest.raises(SchemaError, match="marked unavailable has a count above 0"):
        read(table(open=[0, 1, 1, 1, 1]), available="open")


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        ({"chosen": "price"}, r"counts \('sold'\) and chosen \('price'\) are mutually exclusive: keep one"),
        ({"outside": "none"}, "add a row for the outside option, with its count"),
        ({"features": ["price", "sold"]}, "'sold' is declared as counts and also as a model input"),
    ],
)
def test_contradicting_roles_are_refused(roles: dict[str, Any], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        read(table(), **roles)


def test_scans_do_not_support_counts(tmp_path: Path) -> None:
    read(table()).to_frame().to_csv(tmp_path / "sales.csv", index=False)
    with pytest.raises(SchemaError, match="scan does not support counts"):
        ChoiceData.scan(tmp_path / "sales.csv", **ROLES)
    with pytest.raises(InputError, match="read it with counts=<column>"):
        markets(read(table(), counts=None))
