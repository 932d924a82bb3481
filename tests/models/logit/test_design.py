import json
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError
from pcmcnet.models.logit.design import Design

N = 6
TABLE: dict[str, Any] = {
    "trip": [1, 1, 1, 2, 2, 3],
    "mode": ["car", "bus", "bike", "car", "bus", "car"],
    "took": [1, 0, 0, 0, 1, 1],
    "cost": [4.0, 2.0, 1.0, 6.0, 3.0, 5.0],
    "comfort": ["high", "low", "low", "high", "low", "middle"],
    "colour": ["red", "blue", "red", "blue", "red", "red"],
    "income": [10.0, 10.0, 10.0, 20.0, 20.0, 30.0],
    "purpose": ["work", "work", "work", "leisure", "leisure", "work"],
    "sex": ["m", "m", "m", "f", "f", "f"],
}
ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "individual": ["income", "purpose", "sex"],
    "features": ["cost", "comfort", "colour"],
}


def read(changes: dict[str, Any] | None = None, **roles: Any) -> ChoiceData:
    return ChoiceData.from_long({**TABLE, **(changes or {})}, **{**ROLES, **roles})


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read()


def names(formula: str, data: ChoiceData, **options: Any) -> list[str]:
    design = Design.learn(formula, data, **options)
    assert design.matrix(data).shape == (len(data.rows), len(design.names))
    return list(design.names)


def column(formula: str, name: str, data: ChoiceData) -> list[float]:
    design = Design.learn(formula, data)
    result: list[float] = design.matrix(data)[:, design.names.index(name)].tolist()
    return result


# -- columns -------------------------------------------------------------------------------------------------------


def test_each_part_has_its_columns_in_order(data: ChoiceData) -> None:
    """Car is chosen twice and is the reference. Work is the purpose of two of three sets."""
    assert names("cost:income + cost | income + purpose | log(cost)", data) == [
        "cost:income",
        "cost",
        "constant[bike]",
        "constant[bus]",
        "income[bike]",
        "income[bus]",
        "purpose[leisure][bike]",
        "purpose[leisure][bus]",
        "log(cost)[car]",
        "log(cost)[bike]",
        "log(cost)[bus]",
    ]


def test_each_column_names_the_term_it_comes_from(data: ChoiceData) -> None:
    design = Design.learn("cost:comfort | standardise(income) | log(cost)", data)
    counts = {"cost:comfort": 3, "1": 2, "standardise(income)": 2, "log(cost)": 3}
    assert design.sources(data) == [term for term, n in counts.items() for _ in range(n)]


def test_the_numbers_of_each_part_are_those_found_by_hand(data: ChoiceData) -> None:
    formula = "cost/2 + comfort + cost/2:income | income | cost"
    assert column(formula, "cost/2", data) == [2, 1, 0.5, 3, 1.5, 2.5]
    assert column(formula, "comfort[low]", data) == [0, 1, 1, 0, 1, 0]
    assert column(formula, "cost/2:income", data) == [20, 10, 5, 60, 30, 75]
    assert column(formula, "constant[bus]", data) == [0, 1, 0, 0, 1, 0]
    assert column(formula, "income[bus]", data) == [0, 10, 0, 0, 20, 0]
    assert column(formula, "cost[car]", data) == [4, 0, 0, 6, 0, 5]


def test_the_dot_is_all_columns_without_another_term(data: ChoiceData) -> None:
    assert names(". | 0", data) == ["cost", "comfort[low]", "comfort[middle]", "colour[blue]"]
    assert names("log(cost) + . | 0", data)[0] == "log(cost)"
    assert "cost" not in names("log(cost) + . | 0", data)
    assert names("cost:income + . | 0", data)[:2] == ["cost:income", "cost"]
    assert "cost" not in names(". | 0 | cost", data)
    assert "cost" in names(". | 0 | cost:income", data)
    assert "colour[blue]" not in names(". | 0", data, leave_out=frozenset({"colour"}))


def test_the_dot_of_the_second_part_is_all_individual_columns(data: ChoiceData) -> None:
    result = names("cost | .", data)
    assert [n for n in result if n.endswith("[bus]")] == [
        "constant[bus]",
        "income[bus]",
        "purpose[leisure][bus]",
        "sex[m][bus]",
    ]
    assert "income[bus]" not in names("cost | square(income) + .", data)


def test_constants_need_labels_and_can_be_left_out(data: ChoiceData) -> None:
    assert names("cost", data) == ["cost", "constant[bike]", "constant[bus]"]
    assert names("cost | 1", data) == names("cost", data)
    assert names("cost | 0", data) == ["cost"]
    assert names("cost", read(alternative=None)) == ["cost"]
    assert names("|", data) == ["constant[bike]", "constant[bus]"]


@pytest.mark.parametrize("codes", [TABLE["mode"], ["c", "b", "w", "c", "b", "c"]], ids=["the label", "another name"])
def test_the_dot_omits_a_feature_that_equals_the_label(codes: list[str], caplog: pytest.LogCaptureFixture) -> None:
    repeated = read({"code": codes}, features=["code", "cost"])
    with caplog.at_level("INFO", logger="pcmcnet"):
        assert names(".", repeated) == ["cost", "constant[bike]", "constant[bus]"]
    message = "formula: '.' does not include 'code', which is equivalent to the label: the constants capture it"
    assert [record.getMessage() for record in caplog.records] == [message]
    assert len(names(". | 0", repeated)) == 3  # two levels and the cost: no constants distinguish the alternatives
    assert len(names("code + cost", repeated)) == 5  # it is included if it is named
    assert len(names(".", read({"code": codes}, features=["code", "cost"], alternative=None))) == 3


@pytest.mark.parametrize(
    "codes", [["c", "b", "b", "c", "b", "c"], ["c", "b", "w", "c", "b", "d"]], ids=["groups", "varies"]
)
def test_the_dot_keeps_a_feature_that_differs_from_the_label(codes: list[str]) -> None:
    assert any(name.startswith("code[") for name in names(".", read({"code": codes}, features=["code", "cost"])))


def test_the_reference_is_the_most_chosen_label_by_default(data: ChoiceData) -> None:
    assert names("cost", data, reference="bike") == ["cost", "constant[bus]", "constant[car]"]
    with pytest.raises(ConfigError, match=r"reference 'buss' is not an alternative of the table. Did you mean 'bus'\?"):
        Design.learn("cost", data, reference="buss")


def test_rare_levels_are_pooled(data: ChoiceData) -> None:
    """High, low and middle are chosen once each, so high is first by name."""
    assert names("comfort | 0", data) == ["comfort[low]", "comfort[middle]"]
    assert names("comfort + cost | 0", data, least=2) == ["comfort[(other)]", "cost"]
    assert names("comfort + cost | 0", data, least=3) == ["cost"]


# -- coefficients shared by a group of alternatives ----------------------------------------------------------------


def test_a_group_of_alternatives_shares_a_coefficient(data: ChoiceData) -> None:
    formula = "cost/2[car,bus] + cost[bike] + income[car,bike] | 0"
    assert names(formula, data) == ["cost/2[car,bus]", "cost[bike]", "income[car,bike]"]
    assert column(formula, "cost/2[car,bus]", data) == [2, 1, 0, 3, 1.5, 2.5]
    assert column(formula, "cost[bike]", data) == [0, 0, 1, 0, 0, 0]
    assert column(formula, "income[car,bike]", data) == [10, 0, 10, 20, 0, 30]
    other = read({"mode": ["car", "bus", "rocket", "car", "bus", "car"]})  # in no group
    assert Design.learn(formula, data).matrix(other)[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("colour[car,bus] | 0", ["colour[red][car,bus]", "colour[blue][car,bus]"]),
        ("colour[car,bus]", ["colour[blue][car,bus]", "constant[bike]", "constant[bus]"]),
        ("cost[car] + cost:colour[car] | 0", ["cost[car]", "cost:colour[blue][car]"]),
        ("cost + cost:colour[car] | 0", ["cost", "cost:colour[red][car]", "cost:colour[blue][car]"]),
        ("comfort:colour[car] + cost | 0", 3 * 2 + 1),
        ("comfort:colour[car] + cost", 3 * 2 - 1 + 1 + 2),
    ],
)
def test_levels_of_a_group_omit_the_reference_given_constants(formula: str, expected: Any, data: ChoiceData) -> None:
    result = names(formula, data)
    assert result == expected if isinstance(expected, list) else len(result) == expected


def test_a_group_of_all_alternatives_is_a_generic_coefficient(data: ChoiceData) -> None:
    group, generic = (Design.learn(f, data).matrix(data) for f in ("cost[car,bus,bike] | 0", "cost | 0"))
    np.testing.assert_array_equal(group, generic)


def test_a_group_must_name_alternatives_of_the_table(data: ChoiceData) -> None:
    with pytest.raises(
        ConfigError,
        match=r"the term cost\[car,buss\] contains 'buss', which is not an alternative of the table. Did you mean",
    ):
        Design.learn("cost[car, buss]", data)
    with pytest.raises(InputError, match="alternative-specific coefficients need labels"):
        Design.learn("cost[car] | 0", read(alternative=None))


def test_a_group_survives_json(data: ChoiceData) -> None:
    odd = read({"mode": ["big car", "1", "bike", "big car", "1", "big car"]})
    design = Design.learn("cost[`big car`, 1] + log(cost)[bike] | 0", odd)
    assert design.names == ("cost[big car,1]", "log(cost)[bike]")
    assert Design.from_dict(json.loads(json.dumps(design.to_dict()))) == design


# -- interactions with categories ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        # Levels of a feature: C = 3 comforts, 2 colours.
        ("cost + cost:colour | 0", ["cost", "cost:colour[blue]"]),
        ("cost:colour | 0", ["cost:colour[red]", "cost:colour[blue]"]),
        ("cost:colour | 0 | cost", ["cost:colour[blue]", "cost[car]", "cost[bike]", "cost[bus]"]),
        # A table of two features has one column fewer than cells.
        ("colour + cost + comfort:colour | 0", 1 + 1 + 2 * 2),
        ("colour + comfort + comfort:colour | 0", 3 * 2 - 1),
        ("colour + comfort:colour | 0", 3 * 2 - 1),
        ("comfort:colour | 0", 3 * 2 - 1),
        # Individual columns are constant within a set, so levels of the feature omit their reference.
        ("colour:income | 0", ["colour[blue]:income"]),
        ("colour + colour:purpose | 0", ["colour[blue]", "colour[blue]:purpose[leisure]"]),
        ("colour:purpose | 0", ["colour[blue]:purpose[work]", "colour[blue]:purpose[leisure]"]),
        ("cost:purpose | 0", ["cost:purpose[work]", "cost:purpose[leisure]"]),
        ("cost + cost:purpose | 0", ["cost", "cost:purpose[leisure]"]),
        # Individual columns alone, for 2 of 3 labels.
        ("| 1 + purpose", 2 * (1 + 1)),
        ("| 0 + purpose", 2 * 2),
        ("| 1 + income:purpose", 2 * (1 + 2)),
        ("| 1 + income + income:purpose", 2 * (1 + 1 + 1)),
        ("| 1 + purpose:sex", 2 * (1 + 3)),
        ("| 0 + purpose:sex", 2 * 4),
        ("| 1 + purpose + sex + purpose:sex", 2 * 4),
    ],
)
def test_an_interaction_replaces_missing_main_terms(formula: str, expected: Any, data: ChoiceData) -> None:
    """All levels have a coefficient if the main term is missing; otherwise the reference has none."""
    result = names(formula, data)
    assert result == expected if isinstance(expected, list) else len(result) == expected


def test_an_interaction_spans_its_missing_main_terms() -> None:
    """Columns span the same differences within sets with and without the main terms."""
    rng = np.random.default_rng(0)
    table = {
        "s": np.repeat(np.arange(60), 4),
        "t": np.tile([1, 0, 0, 0], 60),
        "a": np.array(["x", "y", "z"])[rng.integers(3, size=240)],
        "b": np.array(["u", "v"])[rng.integers(2, size=240)],
        "n": rng.normal(size=240),
        "w": np.repeat(np.array(["p", "q"])[rng.integers(2, size=60)], 4),
        "m": np.tile(["1", "2", "3", "4"], 60),
    }
    sets = ChoiceData.from_long(
        table, choice_set="s", chosen="t", alternative="m", individual=["w"], features=["a", "b", "n"]
    )

    def differences(formula: str) -> Any:
        x = Design.learn(formula, sets).matrix(sets).reshape(60, 4, -1)
        return (x[:, 1:] - x[:, :1]).reshape(180, -1)

    for short, long in [
        ("a:b | 0", "a + b + a:b | 0"),
        ("a + a:b | 0", "a + b + a:b | 0"),
        ("n:a | 0", "n + n:a | 0"),
        ("a:w | 0", "a + a:w | 0"),
        ("n:a:b | 0", "n + n:a + n:b + n:a:b | 0"),
        ("| 0 + w", "| 1 + w"),
    ]:
        one, other = differences(short), differences(long)
        rank = np.linalg.matrix_rank(one)
        assert rank == one.shape[1] == other.shape[1] == np.linalg.matrix_rank(np.hstack([one, other])), short


# -- invalid formulas ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "problem"),
    [
        ("coost", r"the utility needs column 'coost', which is not in the table. Did you mean 'cost'\?"),
        ("took", "the utility needs column 'took'"),
        ("income", r"the term income is the same for all alternatives .*interact it with a feature \(income:FEATURE\)"),
        ("cost || income", "the term income is the same for all alternatives"),
        ("| cost", r"the term cost after the first '\|' contains a feature: move it after a second '\|'"),
        ("| income:cost", "the term income:cost after the first"),
        ("log(comfort)", r"log\(comfort\): expected a numeric column, but 'comfort' is categorical"),
        ("comfort/2", "comfort/2: expected a numeric column, but 'comfort' is categorical"),
        ("cost | sqrt(purpose)", r"sqrt\(purpose\): expected a numeric column"),
    ],
)
def test_an_invalid_term_is_refused(formula: str, problem: str, data: ChoiceData) -> None:
    with pytest.raises(SchemaError, match=problem):
        Design.learn(formula, data)


@pytest.mark.parametrize("formula", ["cost | 1", "cost | income", "cost || cost", "| 1"])
def test_coefficients_per_alternative_need_labels(formula: str) -> None:
    with pytest.raises(
        InputError, match="alternative-specific coefficients need labels: read the table with alternative="
    ):
        Design.learn(formula, read(alternative=None))


@pytest.mark.parametrize("formula", ["| 0", "."])
def test_a_formula_without_columns_is_refused(formula: str) -> None:
    with pytest.raises(InputError, match="has no column with a coefficient to estimate"):
        Design.learn(formula, read(alternative=None, features=[]))


def test_the_error_of_a_transformation_counts_invalid_rows() -> None:
    data = read({"cost": [4.0, 0.0, 1.0, 0.0, -3.0, 5.0]})
    with pytest.raises(SchemaError, match=r"log\(cost\): .* got 0 in table row 1 \(choice set 1\); 3 such"):
        Design.learn("log(cost)", data).matrix(data)


def test_coefficients_with_equal_names_are_refused() -> None:
    table = {**TABLE, "constant": ["bus", "car", "bus", "car", "bus", "bus"]}
    data = ChoiceData.from_long(table, **{**ROLES, "features": ["constant"]})
    with pytest.raises(SchemaError, match="two coefficients would be called 'constant"):
        Design.learn("constant", data, reference="bus")


def test_levels_may_look_like_parts_of_coefficient_names() -> None:
    comfort = ["missing", "a]:cost[b", "to 3", "missing", "(other)", "missing"]
    data = read({"comfort": comfort})
    result = names("cost + comfort | 0", data)
    assert result == ["cost", "comfort[a]:cost[b]", "comfort[to 3]", "comfort[(other)]"]
    back = Design.from_dict(json.loads(json.dumps(Design.learn("cost + comfort | 0", data).to_dict())))
    assert back.matrix(data)[:, 1:].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]


# -- later tables --------------------------------------------------------------------------------------------------


def test_scales_and_levels_of_training_apply_to_later_tables(data: ChoiceData) -> None:
    design = Design.learn("standardise(cost) + comfort | 0", data)
    other = read({"cost": [40.0] * N, "comfort": ["low"] * N})
    mean, scale = np.mean(TABLE["cost"]), np.std(TABLE["cost"])
    np.testing.assert_allclose(design.matrix(other)[:, 0], (40 - mean) / scale, rtol=1e-12)
    assert design.matrix(other)[:, 1:].tolist() == [[1, 0]] * N


def test_an_unseen_label_has_no_constant(data: ChoiceData) -> None:
    other = read({"mode": ["car", "bus", "bike", "car", "rocket", "car"]})
    with pytest.raises(
        InputError, match=r"alternative 'rocket' \(table row 4\) was not in the training data, .*1 such row"
    ):
        Design.learn("cost", data).matrix(other)
    assert Design.learn("cost | 0", data).matrix(other).shape == (N, 1)


def test_a_table_of_another_kind_is_refused(data: ChoiceData) -> None:
    design = Design.learn("cost", data)
    with pytest.raises(SchemaError, match="column 'cost' is categorical here, but not in the training data"):
        design.matrix(read(categorical=["cost", "comfort", "colour", "purpose", "sex"]))
    with pytest.raises(InputError, match="alternative-specific coefficients need labels"):
        design.matrix(read(alternative=None))
    with pytest.raises(SchemaError, match="the utility needs column 'cost'"):
        design.matrix(read(features=["comfort"]))


def test_an_empty_table_has_a_design_without_rows(data: ChoiceData) -> None:
    design = Design.learn("cost + comfort + relative(cost) + cost:comfort | . | piecewise(cost, 2)", data)
    assert design.matrix(data.subset([])).shape == (0, len(design.names))


def test_missing_values_have_an_indicator_column() -> None:
    data = read({"cost": [4.0, None, 1.0, 6.0, None, 5.0]}, missing="indicator")
    design = Design.learn("cost + cost:income | 0", data)
    assert design.names == ("cost", "cost[missing]", "cost:income", "cost[missing]:income")
    assert design.matrix(data)[:, :2].tolist() == [[4, 0], [4, 1], [1, 0], [6, 0], [4, 1], [5, 0]]


# -- the saved form ------------------------------------------------------------------------------------------------


ODD = ["total price", "a`b", "Größe", "価格", "x + y | z", "1", "log", ":", "\N{BUS}"]


@pytest.mark.parametrize("odd", ODD)
def test_a_design_with_any_column_names_survives_json(odd: str) -> None:
    table = {**TABLE, odd: TABLE["cost"]}
    data = ChoiceData.from_long(table, **{**ROLES, "features": ["comfort", odd]})
    design = Design.learn(". | income", data, reference="bus")
    back = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert back == design
    np.testing.assert_array_equal(back.matrix(data), design.matrix(data))


@pytest.mark.parametrize(
    "formula",
    [
        "|",
        "| 0 + income",
        "cost | 0",
        "cost || cost",
        ". | . | log(cost)/7.5",
        "piecewise(cost, 1.5, 3)/60:income + square(cost) | income:purpose",
    ],
)
def test_a_design_with_any_formula_survives_json(formula: str, data: ChoiceData) -> None:
    design = Design.learn(formula, data)
    back = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert back == design
    np.testing.assert_array_equal(back.matrix(data), design.matrix(data))


@pytest.mark.parametrize("change", [{"codes": None}, {"resolved": "cost +"}, {"labels": {"mean": 1}}, {"names": 3}])
def test_an_altered_design_is_refused(change: dict[str, Any], data: ChoiceData) -> None:
    entries = Design.learn("cost", data).to_dict()
    with pytest.raises(ArtifactError, match="the saved design is incomplete or damaged"):
        Design.from_dict(entries | change)
    with pytest.raises(ArtifactError, match="the saved design is incomplete or damaged"):
        Design.from_dict({k: v for k, v in entries.items() if k not in change})
