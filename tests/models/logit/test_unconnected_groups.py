"""Logits of alternatives that form groups which are never offered together."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.insight.scenarios.constants import calibrate_constants
from pcmcnet.models import MNL, CrossNestedMNL, LatentClassMNL, MixedMNL, NestedMNL, load
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.logit_model import LogitModel

Table = dict[str, list[Any]]


def counted(*choices: tuple[str, str, int]) -> ChoiceData:
    """Return choice sets with the given labels, chosen label and number of copies."""
    copies = [(labels, chosen) for labels, chosen, n in choices for _ in range(n)]
    rows = [(s, label, label == chosen) for s, (labels, chosen) in enumerate(copies) for label in labels]
    table = {name: [row[k] for row in rows] for k, name in enumerate(("trip", "mode", "took"))}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode")


def simulated(sets: int, groups: tuple[str, ...] = ("abc", "def"), seed: int = 0) -> Table:
    """Return choices by persons with four choice sets each; every person is offered the labels of one group."""
    rng = np.random.default_rng(seed)
    table: Table = {name: [] for name in ("trip", "mode", "took", "person", "income", "x")}
    for s in range(sets):
        person = s // 4
        labels, income = groups[person % len(groups)], float(person % 7) / 3
        x = rng.normal(size=len(labels))
        gain = x + 0.3 * income * np.arange(len(labels)) - 0.2 * np.arange(len(labels))
        took = np.arange(len(labels)) == (gain + rng.gumbel(size=len(labels))).argmax()
        for name, column in (("mode", list(labels)), ("took", took.tolist()), ("x", x.tolist())):
            table[name] += column
        for name, value in (("trip", s), ("person", person), ("income", income)):
            table[name] += [value] * len(labels)
    return table


def read(table: Table) -> ChoiceData:
    return ChoiceData.from_long(
        table,
        choice_set="trip",
        chosen="took",
        alternative="mode",
        person="person",
        individual=["income"],
        features=["x"],
    )


def only(table: Table, labels: str) -> Table:
    rows = [k for k, label in enumerate(table["mode"]) if label in labels]
    return {name: [column[k] for k in rows] for name, column in table.items()}


PAIRS = (("ab", "a", 3), ("ab", "b", 1), ("cd", "c", 2), ("cd", "d", 18))


@pytest.fixture(scope="module")
def table() -> Table:
    return simulated(240)


@pytest.fixture(scope="module")
def data(table: Table) -> ChoiceData:
    return read(table)


# -- values ------------------------------------------------------------------------------------------------------------


def test_constants_of_two_pairs_have_values_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    """Odds of b against a are 1 : 3 and of c against d 1 : 9; variances of log odds are 1/1 + 1/3 and 1/2 + 1/18.

    The references d, chosen most often, and a have constants of 0, so they are chosen equally often from {a, d}, and b
    has a quarter of the choices from {b, d}.
    """
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        model = MNL(formula="|").fit(counted(*PAIRS))
    expected = {"constant[a]": 0, "constant[b]": -np.log(3), "constant[c]": -np.log(9)}
    assert model.coefficients == pytest.approx(expected, rel=1e-9)
    errors = model.standard_errors()
    assert errors["constant[b]"] == pytest.approx(np.sqrt(1 + 1 / 3), rel=1e-9)
    assert errors["constant[c]"] == pytest.approx(np.sqrt(1 / 2 + 1 / 18), rel=1e-9)
    log_likelihood = 3 * np.log(3 / 4) + np.log(1 / 4) + 2 * np.log(1 / 10) + 18 * np.log(9 / 10)
    assert model.estimates_.log_likelihood == pytest.approx(log_likelihood, rel=1e-12)
    assert model.estimates_.constants_log_likelihood == pytest.approx(log_likelihood, rel=1e-12)
    assert (model.num_parameters, model.estimates_.fixed) == (2, ("constant[a]",))
    mixed = model.predict_proba(counted(("ad", "a", 1), ("bd", "b", 1)))
    np.testing.assert_allclose(mixed, [1 / 2, 1 / 2, 1 / 4, 3 / 4], rtol=1e-9)
    # The fit and the summary name the convention.
    message = "2 groups of alternatives are never offered together (sizes 2, 2): 'constant[a]' fixed at 0 by convention"
    assert caplog.text.count(message) == 1
    assert model.summary().facts["unconnected groups"].startswith("2 (of 2, 2 alternatives): 'constant[a]' fixed at 0")


@pytest.mark.parametrize("formula", ["|", "| income"])
def test_estimates_within_groups_are_those_of_separate_fits(formula: str, table: Table, data: ChoiceData) -> None:
    model = MNL(formula=formula, errors="classical", reference="a").fit(data)
    first = MNL(formula=formula, errors="classical", reference="a").fit(read(only(table, "abc")))
    (group,) = model.design_.groups
    second = MNL(formula=formula, errors="classical", reference=group.labels[0]).fit(read(only(table, "def")))
    assert len(group.columns) == (1 if formula == "|" else 2)
    separate = {**first.coefficients, **second.coefficients}
    free = {name: value for name, value in model.coefficients.items() if name not in model.estimates_.fixed}
    assert free == pytest.approx(separate, rel=1e-6)
    errors = {**first.standard_errors(), **second.standard_errors()}
    assert {name: model.standard_errors()[name] for name in free} == pytest.approx(errors, rel=1e-6)
    total = first.estimates_.log_likelihood + second.estimates_.log_likelihood
    assert model.estimates_.log_likelihood == pytest.approx(total, rel=1e-10)


NESTS = {"near": ["a", "b", "e", "f"], "far": ["c", "d"]}
MODELS = [
    MNL(formula="x | income", reference="a"),
    MNL(formula="x | income", reference="a", wtp_space="x"),
    NestedMNL(formula="x | income", reference="a", nests=NESTS),
    CrossNestedMNL(
        formula="x",
        reference="a",
        nests={"near": ["a", "b", "e", "f"], "far": ["b", "c", "d", "e"]},
        fixed={"logsum[near]": 0.7, "logsum[far]": 0.6},
    ),
    MixedMNL(formula="x | income", reference="a", random={"1": "normal"}, draws=20),
    MixedMNL(formula="x | income", reference="a", random={"x": "normal"}, draws=20, wtp_space="x"),
    LatentClassMNL(formula="x", reference="a", classes=2, starts=2, membership="1"),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{type(model).__name__}-{model.config.wtp_space}")
def test_the_references_of_two_groups_act_as_one_alternative(model: LogitModel, table: Table, data: ChoiceData) -> None:
    """If the reference of the second group has the label a, the groups are connected, and the model is the same."""
    fitted = model.fit(data)
    (group,) = fitted.design_.groups
    renamed = {**table, "mode": ["a" if label == group.labels[0] else label for label in table["mode"]]}
    one = type(model)(**model.get_params(deep=False))
    if isinstance(one, NestedMNL | CrossNestedMNL):
        nests = {nest: [k for k in labels if k != group.labels[0]] for nest, labels in one.config.nests.items()}
        assert group.labels[0] in one.config.nests["near"]
        one = type(model)(**{**model.get_params(deep=False), "nests": nests})
    one.fit(read(renamed))
    assert one.design_.groups == ()
    of_reference = {column for column in fitted.coefficients if f"[{group.labels[0]}]" in column}
    assert of_reference <= {*fitted.estimates_.fixed}
    assert [name for name in fitted.coefficients if name not in of_reference] == list(one.coefficients)
    assert fitted.num_parameters == one.num_parameters
    assert fitted.estimates_.log_likelihood == pytest.approx(one.estimates_.log_likelihood, rel=1e-9)
    free_of_one = [name for name in one.coefficients if name not in one.estimates_.fixed]
    errors = {name: fitted.standard_errors()[name] for name in free_of_one}
    assert np.isfinite(list(errors.values())).all()
    assert errors == pytest.approx({name: one.standard_errors()[name] for name in free_of_one}, rel=1e-6)
    values = {name: fitted.coefficients[name] for name in one.coefficients}
    assert values == pytest.approx(one.coefficients, rel=1e-6, abs=1e-9)


def test_a_label_that_is_only_offered_alone_is_a_group() -> None:
    model = MNL(formula="|").fit(counted(*PAIRS[:2], ("e", "e", 2)))
    assert model.coefficients == pytest.approx({"constant[b]": -np.log(3), "constant[e]": 0}, rel=1e-9)


def test_labels_without_a_common_set_may_be_connected_by_others() -> None:
    model = MNL(formula="|").fit(counted(*PAIRS, ("bc", "b", 1), ("bc", "c", 1)))
    assert (model.design_.groups, model.estimates_.fixed, model.num_parameters) == ((), (), 3)
    assert "unconnected groups" not in model.summary().facts


# -- the choice of the references --------------------------------------------------------------------------------------


def test_the_option_sets_the_reference_of_its_own_group() -> None:
    model = MNL(formula="|", reference="b").fit(counted(*PAIRS))
    assert model.summary().facts["reference"] == "b"
    assert model.coefficients == pytest.approx({"constant[a]": np.log(3), "constant[c]": -np.log(9), "constant[d]": 0})


def test_a_fixed_coefficient_replaces_the_convention() -> None:
    """With c at 0.5, d is at 0.5 + log 9, and no coefficient of this group is fixed by convention."""
    model = MNL(formula="|", reference="a", fixed={"constant[c]": 0.5}).fit(counted(*PAIRS))
    expected = {"constant[b]": -np.log(3), "constant[c]": 0.5, "constant[d]": 0.5 + np.log(9)}
    assert model.coefficients == pytest.approx(expected, rel=1e-9)
    assert "unconnected groups" not in model.summary().facts


def test_coefficients_without_a_reference_have_no_convention(data: ChoiceData) -> None:
    for formula in ("x | 0", "| 0 | x"):
        model = MNL(formula=formula).fit(data)
        assert (model.design_.groups, model.estimates_.fixed) == ((), ())


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (MNL(formula="|", bounds={"constant[a]": (1, None)}), r"bounds: 'constant\[a\]' is 0 by convention"),
        (MNL(formula="|", start={"constant[a]": 1.0}), r"start: 'constant\[a\]' is 0 by convention"),
        (
            MixedMNL(formula="|", random={"constant[a]": "normal"}),
            r"random includes 'constant\[a\]', which is 0 because its label is the reference of a group",
        ),
    ],
)
def test_options_that_contradict_the_convention_are_refused(model: LogitModel, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        model.fit(counted(*PAIRS))


@pytest.mark.parametrize(
    ("formula", "problem"),
    [
        ("x + square(x) + x:income[a,b,c] + x:income[d,e,f] + x:income", "singular design: within every choice set"),
        ("x + income[a,b,c]", r"'income\[a,b,c\]' does not vary within any choice set"),
    ],
)
def test_other_singular_designs_are_refused(formula: str, problem: str, data: ChoiceData) -> None:
    with pytest.raises(InputError, match=problem):
        MNL(formula=formula).fit(data)


# -- uses of the fitted model ------------------------------------------------------------------------------------------


def test_saved_models_keep_their_groups(tmp_path: Path, data: ChoiceData) -> None:
    model = MNL(formula="x | income").fit(data)
    back = load(model.save(tmp_path / "groups"))
    assert isinstance(back, MNL)
    assert back.design_.groups == model.design_.groups
    assert str(back.summary()) == str(model.summary())
    np.testing.assert_array_equal(back.predict_proba(data), model.predict_proba(data))


def test_designs_saved_without_groups_are_read(table: Table) -> None:
    design = MNL(formula="x | income").fit(read(only(table, "abc"))).design_
    assert "groups" not in design.to_dict()
    assert Design.from_dict(design.to_dict()) == design


@pytest.mark.parametrize(
    "change",
    [
        {"labels": []},
        {"labels": ["d", "e"]},
        {"labels": ["d", "e", "z"]},
        {"columns": []},
        {"columns": [["constant[d]", "constant[e]", "constant[z]"]]},
        {"columns": 3},
    ],
)
def test_altered_groups_are_refused(change: dict[str, Any], data: ChoiceData) -> None:
    entries = MNL(reference="a").fit(data).design_.to_dict()
    entries["groups"] = [entries["groups"][0] | change]
    with pytest.raises(ArtifactError, match="the saved design is incomplete or damaged"):
        Design.from_dict(entries)


def test_a_refit_keeps_the_references(data: ChoiceData) -> None:
    model = MNL(formula="x | income").fit(data)
    again = model.refit(data, model.design_, seed=0)
    assert again.fixed == model.estimates_.fixed
    np.testing.assert_allclose(again.values, model.estimates_.values, rtol=1e-9)


def test_calibration_moves_the_constants_of_all_groups() -> None:
    """The sets {a, d} and {b, c} mix the groups, so known shares determine their levels."""
    model = MNL(formula="|").fit(counted(*PAIRS))
    market = counted(("ad", "a", 10), ("bc", "b", 10), ("ac", "a", 10))
    shares = {"a": 0.4, "b": 0.2, "c": 0.3, "d": 0.1}
    moved = calibrate_constants(model, market, shares)
    assert isinstance(moved, MNL)
    p, labels = moved.predict_proba(market), np.array(list("ad" * 10 + "bc" * 10 + "ac" * 10))
    assert {k: p[labels == k].sum() / 30 for k in shares} == pytest.approx(shares, abs=1e-6)
    assert moved.coefficients["constant[a]"] != 0
    assert "unconnected groups" not in moved.summary().facts
