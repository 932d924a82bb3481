from typing import Any

import numpy as np
import pytest

from choice_tables import read
from pcmcnet import MNL, ChoiceData, NestedMNL
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests import likelihood_ratio, swait_louviere


def waves(second: tuple[float, float], sets: int = 800, **roles: Any) -> ChoiceData:
    """Return choices with the coefficients (1, -1) of x and y in wave 1, and those given in wave 2."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, sets, 3))
    wave = 1 + np.arange(sets) % 2
    b = np.where(wave == 1, 1.0, second[0]), np.where(wave == 1, -1.0, second[1])
    utility = b[0][:, None] * x[0] + b[1][:, None] * x[1] + rng.gumbel(size=(sets, 3))
    table = {
        "trip": np.repeat(np.arange(sets), 3),
        "mode": ["A", "B", "C"] * sets,
        "x": x[0].ravel(),
        "y": x[1].ravel(),
        "took": (utility.argmax(1)[:, None] == np.arange(3)).ravel(),
        "wave": np.repeat(wave, 3),
        "only": np.where(np.repeat(wave, 3) == 1, x[0].ravel(), 0.0),
        "person": np.repeat(np.arange(sets) // 4, 3),
        "weight": np.full(3 * sets, 2.0),
    }
    return read(table, alternative="mode", features=["x", "y", "only"], individual=["wave"], **roles)


def test_statistics_are_those_of_separate_fits() -> None:
    data = waves((0.5, -0.5))
    model = MNL(formula="x + y", scale="wave", base={"wave": "1"}).fit(data)
    test = swait_louviere(model, data)
    wave = data.individual["wave"].plain()
    plain = MNL(formula="x + y", reference=model.design_.labels.reference)  # type: ignore[union-attr]
    parts = [MNL(**plain.get_params(deep=False)).fit(data.subset(np.flatnonzero(wave == k))) for k in (1, 2)]
    separate = sum(part.estimates_.log_likelihood for part in parts)
    pooled = plain.fit(data)
    assert test.coefficients.statistic == pytest.approx(2 * (separate - model.estimates_.log_likelihood), abs=1e-6)
    assert test.coefficients.degrees_of_freedom == 2 * 4 - 5
    assert test.scales.statistic == pytest.approx(likelihood_ratio(pooled, model).statistic, abs=1e-6)
    assert test.scales.degrees_of_freedom == 1
    assert (test.coefficients.rejected, test.scales.rejected) == (False, True)
    assert str(test).splitlines()[0].startswith("Swait-Louviere test of coefficients: chi-squared = ")
    assert test.to_dict()["scales"]["rejected"] is True


def test_different_tastes_are_rejected_and_the_second_test_says_so() -> None:
    data = waves((1.0, 1.0), person="person", weight="weight")
    test = swait_louviere(MNL(formula="x + y", scale="wave").fit(data), data)
    assert test.coefficients.rejected
    assert "equal coefficients are rejected, so this test is not meaningful" in test.scales.notes
    assert any("choices of the same person" in note for note in test.coefficients.notes)
    assert any("likelihoods are weighted" in note for note in test.coefficients.notes)


def test_nested_logits_are_tested() -> None:
    data = waves((0.5, -0.5))
    nests = {"A": "one", "B": "one", "C": "two"}
    model = NestedMNL(formula="x + y", scale="wave", nests=nests, bounds=None).fit(data)
    assert swait_louviere(model, data).coefficients.degrees_of_freedom == 2 * 5 - 6


def test_what_cannot_be_tested_is_explained() -> None:
    data = waves((0.5, -0.5))
    with pytest.raises(InputError, match=r"needs a logit with scales, as in MNL\(scale='survey'\); got MNL without"):
        swait_louviere(MNL(formula="x").fit(data), data)
    with pytest.raises(InputError, match=r"needs free scales: remove 'scale\[2\]' from fixed, bounds and start"):
        swait_louviere(MNL(formula="x", scale="wave", fixed={"scale[2]": 0.5}).fit(data), data)
    with pytest.raises(InputError, match="group '2' of column 'wave': 'only' does not vary within any choice set"):
        swait_louviere(MNL(formula="y + only", scale="wave", base={"wave": "1"}).fit(data), data)
    with pytest.raises(InputError, match="2 parameters, not fewer than the 2 of the logits of the groups"):
        swait_louviere(MNL(formula="x | 0", scale="wave").fit(data), data)
