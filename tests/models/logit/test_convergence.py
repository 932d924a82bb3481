"""Convergence reports: values worked out by hand, all logits, and a model that is not identified."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import PANEL, logit_choices, normal_tastes, panel, read
from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL, CrossNestedMNL, LatentClassMNL, MixedMNL, NestedMNL, load
from pcmcnet.models.logit.convergence import measure_convergence


def test_the_measures_are_those_found_by_hand() -> None:
    """The information [[2, 1], [1, 2]] has eigenvalues 1 and 3; its inverse [[2, -1], [-1, 2]] / 3, correlation -1/2.

    A step along (1, -1) / sqrt(2) is not rejected, but the estimates are not highly correlated.
    """
    information = np.array([[2.0, 1.0], [1.0, 2.0]])
    record = measure_convergence(
        ["a", "b"], np.array([3.0, 4.0]), information, np.linalg.inv(information), np.array([1.0, 10.0]), np.ones(2)
    )
    assert record is not None
    assert record.gradient == pytest.approx(5)
    assert (record.smallest_eigenvalue, record.relative_eigenvalue) == pytest.approx((1, 1 / 3))
    assert record.correlation == pytest.approx(-0.5)
    assert record.correlated == ("a", "b")
    assert set(record.weakest) == {"a", "b"}
    assert record.hardly_identified == ()
    # In units that are ten times smaller, the gradient is as well, and eigenvalues are a hundred times smaller.
    small = measure_convergence(
        ["a", "b"], np.array([3.0, 4.0]), information, np.linalg.inv(information), np.ones(2), np.full(2, 0.1)
    )
    assert small is not None
    assert (small.gradient, small.smallest_eigenvalue) == pytest.approx((0.5, 0.01))


@pytest.mark.parametrize(("a", "b", "named"), [(1.0, 1.0, ("a", "b")), (1.0, 10.0, ())])
def test_correlated_estimates_are_hardly_identified_if_neither_is_significant(
    a: float, b: float, named: tuple[str, ...]
) -> None:
    """The information [[10, 9.5], [9.5, 10]] has eigenvalues 19.5 and .5; errors 1.01, correlation -.95."""
    information = np.array([[10.0, 9.5], [9.5, 10.0]])
    record = measure_convergence(
        ["a", "b"], np.zeros(2), information, np.linalg.inv(information), np.array([a, b]), np.ones(2)
    )
    assert record is not None
    assert record.correlation == pytest.approx(-0.95)
    assert record.hardly_identified == named


MODES = logit_choices(400, {"x": 1.0, "y": -0.5}, sizes=(3, 3), constants=[0.0, 0.5, -0.3])


@pytest.mark.parametrize(
    "model",
    [
        MNL(formula="x + y"),
        NestedMNL(formula="x + y", nests={"A": "one", "B": "one", "C": "two"}),
        CrossNestedMNL(formula="x + y", nests={"one": ["A", "B"], "two": ["B", "C"]}, common_logsum=True),
        MixedMNL(formula="x + y", random={"x": "normal"}, draws=40),
        LatentClassMNL(formula="x + y | 0", classes=2),
    ],
)
def test_every_logit_reports_its_convergence(model: Any, tmp_path: Path) -> None:
    model.fit(read(MODES, alternative="mode", features=["x", "y"]))
    report = model.convergence()
    assert report.record.gradient < 1e-3  # a gradient g loses about g^2 / 2 times the curvature, here less than 1e-6
    assert report.steps > 0
    assert report.seconds > 0
    frame = report.to_frame()
    assert frame.loc[0, "log_likelihood"] == model.estimates_.log_likelihood
    assert frame.loc[0, "smallest_eigenvalue"] == report.record.smallest_eigenvalue
    assert "gradient norm" in str(report)
    assert "largest correlation" in model.summary().facts["convergence"]
    # The report is saved with the model.
    assert load(model.save(tmp_path / "model")).convergence().record == report.record


def test_error_components_that_are_not_identified_are_named() -> None:
    """With one choice per person among three alternatives, three variances are not identified."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3))
    took = (-x + [0, 0.5, -0.3] + rng.normal(size=(500, 3)) + rng.gumbel(size=(500, 3))).argmax(1)
    table = {
        "trip": np.repeat(np.arange(500), 3),
        "mode": np.tile(["a", "b", "c"], 500),
        "x": x.ravel(),
        "took": (took[:, None] == np.arange(3)).ravel(),
    }
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["x"])
    model = MixedMNL(random={}, components={"a": "a", "b": "b", "c": "c"}, draws=100).fit(data, progress=False)
    named = model.convergence().record.hardly_identified
    assert sum(name.startswith("component[") for name in named) >= 2
    assert any("the data hardly identify 'component[" in caveat for caveat in model.summary().caveats)
    assert not MNL().fit(data).convergence().record.hardly_identified


def test_well_identified_coefficients_have_no_warning() -> None:
    model = MixedMNL(draws=100).fit(read(panel(200, normal_tastes), **PANEL), progress=False)
    assert model.convergence().record.hardly_identified == ()
    assert "no sign of a problem" in str(model.convergence())
