"""Designs: textbook optima, exhaustive search, rules, versions, priors, and messages about impossible designs."""

import math
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.designs.attributes import profile_space
from pcmcnet.designs.information import LogitScores
from pcmcnet.designs.model_scores import ModelScores
from small_designs import EXHAUSTIVE, TEXTBOOK, SmallDesign, TextbookDesign, exhaustive_optimum

L2, L3, L4 = ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]
FLIGHT = {"price": [10, 15, 20, 25], "minutes": [30, 45, 60], "brand": L3, "meal": ["no", "yes"]}
PRIOR = {"price": -0.1, "minutes": -0.03, "brand[b]": 0.3, "brand[c]": 0.5, "meal[yes]": 0.4}


def slow(*cases: Any) -> list[Any]:
    """Return the cases as slow parameters."""
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("known", [*TEXTBOOK[:3], *slow(*TEXTBOOK[3:])], ids=lambda known: known.name)
def test_the_d_error_is_within_one_per_cent_of_textbook_optima(known: TextbookDesign) -> None:
    """``small_designs.py`` derives the optima."""
    plan = pn.design(known.space, alternatives=known.alternatives, tasks=known.tasks, coding="effects", starts=5)
    assert known.lowest * (1 - 1e-9) <= plan.error < 1.01 * known.lowest
    assert plan.error == pytest.approx(plan.d_error)
    equal = {known.tasks * known.alternatives // known.levels}
    assert [set(by_level.values()) for by_level in plan.level_counts().values()] == [equal] * known.attributes


@pytest.mark.parametrize("small", [*EXHAUSTIVE[:2], *slow(*EXHAUSTIVE[2:])], ids=lambda small: small.name)
def test_small_designs_are_those_of_exhaustive_search(small: SmallDesign) -> None:
    sizes = {"alternatives": small.alternatives, "tasks": small.tasks}
    plan = pn.design(small.attributes, prior=small.prior, balance=False, starts=5, **sizes)
    assert plan.error == pytest.approx(exhaustive_optimum(small))


@pytest.fixture(scope="module")
def plan() -> pn.ChoiceDesign:
    """Return a design with all rules: versions, prohibited combinations, none, and no dominated alternatives."""
    rules = {"prohibited": [{"brand": "c", "price": [10, 15]}], "dominated": "avoid", "none": True, "starts": 2}
    return pn.design(FLIGHT, prior=PRIOR, tasks=6, versions=2, **rules)


def test_the_rules_are_followed(plan: pn.ChoiceDesign) -> None:
    frame = plan.to_arrow().to_pylist()
    offered = [row for row in frame if row["alternative"] != "none"]
    assert not [row for row in offered if row["brand"] == "c" and row["price"] in (10, 15)]
    assert not plan.directions.dominates(plan.levels).any()
    assert plan.level_counts()["meal"] == {"no": 18, "yes": 18}
    assert plan.level_counts()["price"] == {10: 9, 15: 9, 20: 9, 25: 9}
    tasks = {(row["version"], row["task"]): [] for row in offered}
    for row in offered:
        tasks[row["version"], row["task"]].append(tuple(row[name] for name in FLIGHT))
    assert len({tuple(sorted(task)) for task in tasks.values()}) == 12  # no task is repeated
    assert all(len(set(task)) == 3 for task in tasks.values())  # and no alternative within a task


def test_the_versions_have_similar_level_counts(plan: pn.ChoiceDesign) -> None:
    assert plan.version.tolist() == [1] * 6 + [2] * 6
    for k in range(4):
        first, second = (np.bincount(plan.levels[plan.version == v][:, :, k].ravel()) for v in (1, 2))
        assert np.abs(first - second).max() <= 3


def test_decoys_are_placed_in_every_task() -> None:
    plan = pn.design(FLIGHT, prior=PRIOR, tasks=6, dominated="place", starts=1)
    dominating = plan.directions.dominates(plan.levels).sum(axis=1)  # (T, J): how many dominate each alternative
    assert ((dominating > 0) & (dominating < 2)).any(axis=1).all()
    assert "6 of 6 tasks have a dominated alternative" in str(plan)


def test_a_bayesian_design_is_robust_to_its_prior() -> None:
    """It has a lower mean D-error over the prior than the design for the mean of the prior, at the same draws."""
    prior = {"x": (-1.0, 1.0), "y[b]": (1.0, 1.0), "y[c]": (2.0, 1.0)}
    attributes, size = {"x": [0, 1, 2, 3, 4], "y": L3}, {"alternatives": 2, "tasks": 6, "balance": False}
    robust = pn.design(attributes, prior=prior, criterion="Db", **size)
    local = pn.design(attributes, prior=prior, criterion="D", **size)
    z = robust.scores(local.levels)
    information = (z.swapaxes(-1, -2) @ z).sum(axis=0) * np.outer(robust.scores.scales, robust.scores.scales)
    assert robust.error == pytest.approx(robust.d_error)
    assert robust.error < 0.97 * np.mean(np.linalg.det(information) ** (-1 / 3))


def test_the_error_of_ratios_is_that_of_the_delta_method() -> None:
    """With w = -b_k / b_c, var w = (var b_k + w^2 var b_c + 2 w cov) / b_c^2; the error is a geometric mean over k."""
    prior = {"price": -0.1, "minutes": -0.03, "meal[yes]": 0.4}
    attributes = {name: FLIGHT[name] for name in ("price", "minutes", "meal")}
    plan = pn.design(attributes, prior=prior, criterion="C", cost="price", tasks=8, starts=3)
    covariance = np.linalg.inv(plan.information[0])
    variances = []
    for k, b in ((1, -0.03), (2, 0.4)):
        w = b / 0.1
        variances.append((covariance[k, k] + w**2 * covariance[0, 0] + 2 * w * covariance[0, k]) / 0.1**2)
    assert plan.error == pytest.approx(math.sqrt(variances[0] * variances[1]))
    other = pn.design(attributes, prior=prior, tasks=8, starts=3)
    gradients = np.array([[0.3 / 0.1, 10.0, 0], [-4 / 0.1, 0, 10.0]])
    of_other = [float(g @ np.linalg.inv(other.information[0]) @ g) for g in gradients]
    assert plan.error < math.sqrt(of_other[0] * of_other[1])


# -- Answers -----------------------------------------------------------------------------------------------------------


def test_simulated_answers_recover_the_prior(plan: pn.ChoiceDesign) -> None:
    """The estimates are within four expected standard errors of the truth, and so are their errors of the expected."""
    data = plan.to_choice_data(plan.simulate(1000, seed=3))
    assert (len(data), data.schema.person, data.schema.outside) == (6000, "person", "none")
    formula = "price + minutes + brand + meal + none"
    model = pn.MNL(formula=formula, base={"brand": "a", "meal": "no"}, errors="classical").fit(data, progress=False)
    expected, errors = plan.standard_errors(1000), model.estimates_.standard_errors("classical")
    for name, value in {**PRIOR, "none": 0.0}.items():
        assert abs(model.coefficients[name] - value) < 4 * expected[name]
        assert errors[name] == pytest.approx(expected[name], rel=0.1)  # sampling error of the information


def test_answers_become_a_long_table() -> None:
    plan = pn.design({"x": [1, 2], "y": L3}, tasks=3, alternatives=2, none=True, starts=1)
    answers = {"person": ["p", "p", "q"], "version": [1, 1, 1], "task": [1, 3, 2], "choice": ["2", "none", "1"]}
    table = plan.to_long(answers).to_pydict()
    assert table["person"] == ["p"] * 4 + ["q"] * 2
    assert table["task"] == [1, 1, 3, 3, 2, 2]
    assert table["chosen"] == [0, 1, 0, 0, 1, 0]
    assert table["x"][:2] == plan.values(["x"])[0, :, 0].tolist()
    assert plan.to_choice_data(answers).chosen.tolist() == [1, 2, 0]


def test_the_table_is_written_and_read_back(plan: pn.ChoiceDesign, tmp_path: Any) -> None:
    plan.save(tmp_path / "design.csv")
    lines = (tmp_path / "design.csv").read_text().splitlines()
    assert lines[0].replace('"', "") == "version,task,alternative,price,minutes,brand,meal"
    assert len(lines) == 1 + 12 * 4
    assert lines[4].replace('"', "") == "1,1,none,,,,"
    assert plan.to_frame().shape == (48, 7)


def test_the_width_of_an_interval_gives_the_respondents() -> None:
    """N = (2 z s / width)^2, and an interval from N respondents is at most as wide."""
    plan = pn.design({"x": [1, 2, 3], "y": L3}, tasks=6, prior={"x": -0.5}, starts=1)
    n = plan.respondents_for("x", 0.2)
    width = 2 * 1.959964 * plan.standard_errors(n)["x"]
    assert width <= 0.2 < 2 * 1.959964 * plan.standard_errors(n - 1)["x"]
    with pytest.raises(pn.PcmcNetError, match=r"unknown coefficient 'z'. Known: x, y\[b\], y\[c\]"):
        plan.respondents_for("z", 1)


# -- Fitted models as priors -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answers() -> pn.ChoiceData:
    attributes = {"price": [1, 2, 3], "brand": L3}
    plan = pn.design(attributes, tasks=12, prior={"price": -0.5, "brand[b]": 0.5, "brand[c]": 1.0}, starts=1)
    return plan.to_choice_data(plan.simulate(60, seed=1))


def test_a_fitted_logit_is_a_prior_with_its_covariance(answers: pn.ChoiceData) -> None:
    """Its reference level of brand is 'c', that of the design 'a': coefficients are relative to 'a'."""
    logit = pn.MNL(base={"brand": "c"}, errors="classical").fit(answers, progress=False)
    attributes = {"price": [1, 2, 3], "brand": L3}
    plan = pn.design(attributes, prior=logit, criterion="Db", draws=32, tasks=6, starts=1)
    b = logit.coefficients
    assert plan.prior_mean == pytest.approx([b["price"], b["brand[b]"] - b["brand[a]"], -b["brand[a]"]])
    assert len(plan.information) == 32
    error = logit.estimates_.standard_errors("classical")["brand[a]"]
    assert plan.scores.draws[:, 2].std() == pytest.approx(error, rel=0.15)  # of 32 points


def test_the_scores_of_a_fitted_logit_are_those_of_its_coefficients(answers: pn.ChoiceData) -> None:
    """Central differences with a step of 5% have a relative error of about (0.05 b x)^2 / 6, up to 0.1% here."""
    logit = pn.MNL(base={"brand": "a"}).fit(answers, progress=False)
    space = profile_space({"price": [1, 2, 3], "brand": L3})
    levels = np.random.default_rng(0).integers(3, size=(50, 3, 2))
    scores = ModelScores.of(space, logit, 3)
    coefficients = np.array([[logit.coefficients[name] for name in space.names]])
    exact = LogitScores(space, coefficients, space.scales())(levels)
    np.testing.assert_allclose(scores(levels) * [np.sign(coefficients[0, 0]), 1, 1], exact, rtol=5e-3, atol=2e-3)
    assert scores.effects == {0: pytest.approx(abs(logit.coefficients["price"]) * 3, rel=2e-3)}  # scale of price: 3


def test_any_fitted_model_gives_probabilities_and_derivatives(answers: pn.ChoiceData) -> None:
    """Of a network, the derivatives in t by differences of its predictions; each distinct task is predicted once."""
    network = pn.PCMCNet(hidden=(8,), epochs=20, members=1, weight_decay=0.0).fit(answers, progress=False)
    attributes = {"price": [1, 2, 3], "brand": L3}
    plan = pn.design(attributes, prior=network, tasks=5, alternatives=3, starts=1, balance=False)
    table = plan.to_arrow().append_column("choice_set", [np.repeat(np.arange(5), 3)])
    table = table.drop_columns(["alternative", "version", "task"])

    def predict(t: float) -> np.ndarray:
        price = 2 + (1 + t) * (np.array(table["price"]) - 2)
        return network.predict_proba(table.set_column(0, "price", [price])).reshape(5, 3)

    p, x = predict(0), plan.space.encode(plan.levels)
    np.testing.assert_allclose(plan.probabilities(), p, atol=1e-6)  # networks compute in float32
    gradients = x - (p[..., None] * x).sum(axis=1, keepdims=True)
    of_price = (np.log(predict(0.05)) - np.log(predict(-0.05))) / 0.1
    effect = plan.scores.effects[0] / 3  # in units of the largest price
    gradients[..., 0] = (of_price - (p * of_price).sum(axis=1, keepdims=True)) / effect
    information = np.einsum("tj,tjp,tjq->pq", p, gradients, gradients)
    np.testing.assert_allclose(plan.information[0], information, rtol=1e-3, atol=1e-4)  # float32 over a step of 0.05


def test_power_needs_coefficients_if_the_prior_has_none(answers: pn.ChoiceData) -> None:
    plan = pn.design({"price": [1, 2, 3], "brand": L3}, prior=pn.Uniform().fit(answers), tasks=5, starts=1)
    with pytest.raises(pn.PcmcNetError, match=r"without coefficients: pass .* as in coefficients=\{'price': -0.5\}"):
        pn.design_power(plan, "price", respondents=[50], surveys=10)
    power = pn.design_power(plan, "price", coefficients={"price": -0.5}, respondents=[200], surveys=20)
    assert power.rows[0].expected_power > 0.5


def test_an_attribute_without_an_effect_has_the_scores_of_a_logit(answers: pn.ChoiceData) -> None:
    """Uniform predicts 1 / J for any prices, so their scale has no derivative: M is that of a logit without prior."""
    space = profile_space({"price": [1, 2, 3], "brand": L3})
    scores = ModelScores.of(space, pn.Uniform().fit(answers), 3)
    levels = np.random.default_rng(0).integers(3, size=(20, 3, 2))
    assert scores.effects == {}
    np.testing.assert_allclose(scores(levels), LogitScores(space, np.zeros((1, 3)), space.scales())(levels), atol=1e-12)


def test_a_model_with_other_columns_is_refused(answers: pn.ChoiceData) -> None:
    network = pn.PCMCNet(hidden=(4,), epochs=1, members=1, weight_decay=0.0).fit(answers, progress=False)
    with pytest.raises(pn.PcmcNetError, match="needs the columns price, which are not attributes"):
        pn.design({"brand": L3, "size": [1, 2]}, prior=network)
    with pytest.raises(pn.PcmcNetError, match="does not use the attributes size"):
        pn.design({"price": [1, 2], "brand": L3, "size": [1, 2]}, prior=network)
    with pytest.raises(pn.PcmcNetError, match="has no outside option: read its table with outside='none'"):
        pn.design({"price": [1, 2], "brand": L3}, prior=network, none=True)
    logit = pn.MNL(base={"brand": "c"}).fit(answers, progress=False)
    with pytest.raises(pn.PcmcNetError, match="no coefficient of the attribute 'size'"):
        pn.design({"size": [1, 2], "brand": L3}, prior=logit)
    with pytest.raises(pn.PcmcNetError, match="no coefficient of levels c, d of the attribute 'brand'"):
        pn.design({"price": [1, 2], "brand": L4}, prior=logit)
    with pytest.raises(pn.PcmcNetError, match="no constant of 'none'"):
        pn.design({"price": [1, 2], "brand": L3}, prior=logit, none=True)


# -- Bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "options", "message"),
    [
        ({"x": [1]}, {}, "attribute 'x': expected at least two levels, got .1.* add a level, or leave"),
        ({"x": [1, 1]}, {}, "attribute 'x': expected distinct levels"),
        ({"x": [1, math.nan]}, {}, "attribute 'x': expected finite levels"),
        ({"x": [1e308, 1]}, {}, "attribute 'x': expected finite levels of at most 1e.50 in size"),
        ({"x": [[1], [2]]}, {}, r"attribute 'x': expected numbers or texts as levels, got \[1\]"),
        ({"x": [1, 2]}, {"none": "yes"}, "none must be True or False, got 'yes'"),
        ({"x": [1, 2]}, {"balance": 1}, "balance must be True or False, got 1"),
        ({"x": [1, 2]}, {"effects": "dominance"}, r"effects: expected a list or a mapping.*write \['dominance'\]"),
        ({"x": [1, 2], "y": [1, 2, 3]}, {"prior": {"x": 1e6}}, "x changes the utility by up to 2e.06, .*smaller prior"),
        ({"x": "abc"}, {}, "attribute 'x': expected a list of levels"),
        ({"task": [1, 2]}, {}, "attribute 'task': expected a name other than .*Rename it"),
        ({}, {}, "attributes: expected a mapping from names to lists of levels"),
        ({"x": [1, 2]}, {"prior": {"y": 1.0}}, "prior: unknown coefficient 'y'"),
        ({"x": [1, 2]}, {"prior": {"x": "low"}}, "prior, coefficient 'x': expected a number"),
        ({"x": [1, 2]}, {"prior": {"x": (1.0, -1.0)}}, "standard deviation of at least 0"),
        ({"x": [1, 2]}, {"prior": 3}, "prior: expected a mapping"),
        ({"x": [1, 2]}, {"prior": pn.PCMCNet()}, "PCMCNet is not fitted. Fit it first"),
        ({"x": [1, 2]}, {"signs": {"y": "-"}}, "signs: unknown attribute 'y'"),
        ({"x": [1, 2]}, {"signs": {"x": "down"}}, "unknown sign of 'x' 'down'"),
        ({"x": [1, 2]}, {"categorical": ["y"]}, "categorical: unknown attribute 'y'"),
        ({"x": [1, 2]}, {"criterion": "A"}, "unknown criterion 'A'"),
        ({"x": [1, 2]}, {"criterion": "Db"}, "criterion='Db' needs a prior with standard deviations"),
        ({"x": [1, 2]}, {"criterion": "C"}, "criterion='C' needs cost"),
        ({"x": [1, 2]}, {"criterion": "C", "cost": "x"}, "needs a prior of 'x' other than 0"),
        ({"x": [1, 2]}, {"criterion": "C", "cost": "x", "prior": {"x": (-1.0, 3.0)}}, "'x' is 0 or changes its sign"),
        ({"x": [1, 2]}, {"dominated": "avoid"}, "needs the direction of an attribute: pass signs"),
        ({"x": [1, 2]}, {"dominated": "place", "alternatives": 2, "signs": {"x": "-"}}, "at least three alternatives"),
        ({"x": [1, 2]}, {"alternatives": 3}, "have only 2 different profiles, .*use fewer alternatives"),
        ({"x": L4, "y": L3}, {"alternatives": 100}, "only 12 different profiles, so a task cannot have 100"),
        ({"x": [1, 2, 3], "y": L3}, {"categorical": "x"}, r"expected a list of attributes, got 'x': write \['x'\]"),
        ({"x": L4, "y": L3}, {"tasks": 2, "alternatives": 2}, "at most 2 coeff.* 5 .3 of them of 'x'.*levels of 'x'"),
        ({"x": [1, 2], "y": L2}, {"prohibited": [{"x": 1}]}, "combination 1: expected levels of at least two attr"),
        ({"x": [1, 2], "y": L2}, {"prohibited": [{"x": 1, "z": 1}]}, "combination 1: unknown attribute 'z'"),
        ({"x": [1, 2], "y": L2}, {"prohibited": [{"x": 5, "y": "a"}]}, "'x' has no level 5. Its levels are 1, 2"),
        (
            {"x": [1, 2], "y": L2},
            {"prohibited": [{"x": 1, "y": ["a", "b"]}]},
            "no allowed profile has level 1 of attribute 'x'. Remove a prohibition",
        ),
        (
            {"x": L2, "y": L2, "z": [1, 2, 3]},
            {"prohibited": [{"x": "a", "y": "b"}, {"x": "b", "y": "a"}], "alternatives": 2},
            r"the best design does not identify the coefficients x\[b\], y\[b\] separately",
        ),
    ],
)  # fmt: skip
def test_designs_that_cannot_exist_say_why(attributes: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(pn.PcmcNetError, match=message):
        pn.design(attributes, **{"starts": 1, **options})


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("task", 9, "answers, row 2: expected a version from 1 to 1 and a task from 1 to 3, got version 1 and task 9"),
        ("choice", "3", "answers, row 2: expected a choice among 1, 2, got '3'. Leave out unanswered tasks"),
    ],
)
def test_answers_that_do_not_fit_are_named(column: str, value: Any, message: str) -> None:
    plan = pn.design({"x": [1, 2], "y": L3}, tasks=3, alternatives=2, starts=1)
    answers: dict[str, list[Any]] = {"person": [1, 1], "version": [1, 1], "task": [1, 2], "choice": ["1", "2"]}
    answers[column][1] = value
    with pytest.raises(pn.PcmcNetError, match=message):
        plan.to_long(answers)
    with pytest.raises(pn.PcmcNetError, match=r"probabilities: expected shape \(3, 2\)"):
        plan.simulate(2, probabilities=np.ones((3, 3)) / 3)
    with pytest.raises(pn.PcmcNetError, match="attribute 'y' is categorical"):
        plan.values()


def test_attributes_without_correlation_are_not_named() -> None:
    """Eight profiles of two attributes, each pair of levels twice: no pair is correlated."""
    plan = pn.design({"x": [1, 2], "y": [1, 2]}, tasks=4, alternatives=2, starts=4)
    assert abs(plan.correlations()[0, 1]) < 1e-9
    assert "correlation    at most 0.00\n" in str(plan)
