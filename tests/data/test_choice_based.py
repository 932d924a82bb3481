"""Weights of choice-based samples: by hand, consistency on simulated samples, and errors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import read
from pcmcnet.errors import InputError, SchemaError

MODES = ("car", "bus", "bike")


def sample(*chosen: str, **roles: Any) -> pn.ChoiceData:
    """Read one set of three modes for each choice."""
    table = {
        "trip": np.repeat(np.arange(len(chosen)), 3),
        "mode": np.tile(MODES, len(chosen)),
        "took": [int(mode == choice) for choice in chosen for mode in MODES],
        "w": np.repeat(np.arange(1.0, len(chosen) + 1), 3),
    }
    return read(table, **{"alternative": "mode", **roles})


SHARES = {"car": 0.6, "bus": 0.3, "bike": 0.1}


def test_weights_by_hand() -> None:
    """Half of the sample chose car, a quarter each bus and bike: weights 1.2, 1.2 and 0.4. Their sum is 4."""
    data = pn.wesml(sample("car", "bus", "bike", "car"), SHARES)
    np.testing.assert_allclose(data.weights, [1.2, 1.2, 0.4, 1.2], rtol=1e-12)


def test_weights_multiply_those_of_the_table() -> None:
    """With weights 1 to 4, the shares of the sample are 5/10, 2/10 and 3/10: ratios 1.2, 1.5 and 1/3."""
    data = pn.wesml(sample("car", "bus", "bike", "car", weight="w"), SHARES)
    np.testing.assert_allclose(data.weights, [1.2, 3.0, 1.0, 4.8], rtol=1e-12)


def test_robust_errors_treat_the_sizes_of_the_strata_as_fixed() -> None:
    """With constants alone, the scores of a stratum are equal, so the weighted estimates have no error at all.

    The estimates are log(Q_i / Q_car) whatever the sample, so this is right. A slope still has an error.
    """
    data = pn.wesml(sample(*MODES * 40), SHARES)
    model = pn.MNL(reference="car").fit(data)
    assert max(model.standard_errors("robust").values()) < 1e-6
    assert min(model.standard_errors("classical").values()) > 0.1
    # The stratum stays with the sets of a part.
    part = data.subset(np.arange(60))
    assert max(pn.MNL(reference="car").fit(part).standard_errors().values()) < 1e-6


def test_weighted_constants_have_the_shares_of_the_population() -> None:
    """A logit with constants alone reproduces the weighted shares: its constants are log(Q_i / Q_car)."""
    model = pn.MNL(reference="car").fit(pn.wesml(sample(*MODES * 40), SHARES))
    np.testing.assert_allclose(model.coefficients["constant[bus]"], np.log(0.3 / 0.6), rtol=1e-6)
    np.testing.assert_allclose(model.coefficients["constant[bike]"], np.log(0.1 / 0.6), rtol=1e-6)
    assert model.default_errors == "robust"


def test_a_choice_based_sample_is_corrected() -> None:
    """600 choices of each mode from a population in which 1 of 20 cycles."""
    rng = np.random.default_rng(0)
    times = rng.uniform(0, 2, (40_000, 3))
    constants = np.array([0.0, -2.0, -2.5])
    chosen = (constants - times + rng.gumbel(size=times.shape)).argmax(axis=1)
    shares = np.bincount(chosen) / len(chosen)
    drawn = np.concatenate([np.flatnonzero(chosen == k)[:600] for k in range(3)])
    table = {
        "trip": np.repeat(np.arange(len(drawn)), 3),
        "mode": np.tile(MODES, len(drawn)),
        "took": (chosen[drawn][:, None] == np.arange(3)).ravel(),
        "time": times[drawn].ravel(),
    }
    data = read(table, alternative="mode", features=["time"])
    naive = pn.MNL(reference="car").fit(data)
    model = pn.MNL(reference="car").fit(pn.wesml(data, dict(zip(MODES, shares.tolist(), strict=True))))
    truth = {"time": -1.0, "constant[bus]": -2.0, "constant[bike]": -2.5}
    for name, value in truth.items():
        assert abs(model.coefficients[name] - value) < 3 * model.standard_errors()[name], name
    assert naive.coefficients["constant[bike]"] > -1


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"car": 0.6, "bus": 0.3, "bike": 0.3}, "sum of 1.2"),
        ({"car": 0.6, "bus": 0.4}, "'bike' has none"),
        ({"car": 0.6, "bus": 0.5, "bike": -0.1}, "expected a share above 0 for 'bike', got -0.1"),
        ({"car": 0.5, "bus": 0.3, "bike": 0.1, "boat": 0.1}, "'boat' is not a label"),
    ],
)
def test_invalid_shares_are_refused(shares: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pn.wesml(sample(*MODES), shares)


def test_shares_are_a_mapping() -> None:
    with pytest.raises(InputError, match="shares: expected a mapping from labels to shares"):
        pn.wesml(sample(*MODES), [0.5, 0.3, 0.2])  # type: ignore[arg-type]


def test_tables_without_choices_or_labels_are_refused() -> None:
    with pytest.raises(InputError, match="'bike' is never chosen in the sample"):
        pn.wesml(sample("car", "bus"), SHARES)
    with pytest.raises(InputError, match="needs the choices"):
        pn.wesml(replace(sample(*MODES), chosen=None), SHARES)
    with pytest.raises(SchemaError, match="read the table with alternative="):
        pn.wesml(sample(*MODES, alternative=None), SHARES)
    with pytest.raises(InputError, match="got dict"):
        pn.wesml({}, SHARES)  # type: ignore[arg-type]
