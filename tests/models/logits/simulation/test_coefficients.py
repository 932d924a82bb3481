"""Parameters of a mixed logit, and the coefficients they make."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from pcmcnet.models.logits.simulation.coefficients import Mixing, Random
from pcmcnet.models.logits.simulation.distributions import Distribution

NORMAL, LOG = Distribution("normal"), Distribution("lognormal", sign=-1)
MIXING = Mixing(
    ("cost", "time", "wait", "component[road]"),
    3,
    (Random(0, LOG), Random(1, NORMAL), Random(2, NORMAL), Random(3, NORMAL)),
    group=(0, 1),
    means=((1, 0),),
    who=("income",),
)


def test_every_parameter_has_a_name_a_column_and_what_it_multiplies() -> None:
    assert MIXING.names == (
        *("cost", "time", "wait"),
        "mean[time]:income",
        *("sd[wait]", "component[road]"),
        *("cholesky[cost, cost]", "cholesky[time, cost]", "cholesky[time, time]"),
    )
    np.testing.assert_array_equal(MIXING.column, [0, 1, 2, 1, 2, 3, 0, 1, 1])
    np.testing.assert_array_equal(MIXING.basis, [0, 0, 0, 0, 3, 4, 1, 1, 2])
    np.testing.assert_array_equal(MIXING.individual, [0, 0, 0, 1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(MIXING.feature, [0, 0, 0, 5, 3, 4, 1, 1, 2])


def test_coefficients_by_hand() -> None:
    """Draws (1, -1, 2, 3), income 10: cost -exp(0.1 + 0.5), time 1 + 10 x 0.2 + 0.3 - 0.4, wait 2 + 2 x 0.6."""
    x = np.array([0.1, 1.0, 2.0, 0.2, 0.6, 0.7, 0.5, 0.3, 0.4])
    draws = torch.tensor([1.0, -1.0, 2.0, 3.0], dtype=torch.float64)[None, :, None]
    locations = torch.from_numpy(MIXING.locations(x, np.array([[10.0]])))
    found = MIXING.sample(locations, torch.from_numpy(MIXING.triangle(x)), draws).value[0, :, 0]
    np.testing.assert_allclose(found.numpy(), [-np.exp(0.6), 2.9, 3.2, 2.1])


def test_turned_draws_make_spreads_positive_and_leave_coefficients_alone() -> None:
    x = np.array([0.1, 1.0, 2.0, 0.2, -0.6, 0.7, -0.5, 0.3, -0.4])
    turned, y = MIXING.mirrored(x)
    assert (np.diag(turned.triangle(y)) >= 0).all()
    assert turned.mirror == (-1, -1, -1, 1)
    t = torch.rand(5, 4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    here, there = (
        mixing.sample(
            torch.from_numpy(mixing.locations(at, np.ones((5, 1)))),
            torch.from_numpy(mixing.triangle(at)),
            mixing.standard(t),
        ).value
        for mixing, at in ((MIXING, x), (turned, y))
    )
    torch.testing.assert_close(there, here)


def test_signs_are_those_of_the_estimates_unless_given() -> None:
    either = Distribution("lognormal", sign=0)
    mixing = Mixing(("a", "b", "c"), 3, (Random(0, either), Random(1, either), Random(2, LOG)))
    found = mixing.signed(np.array([-0.2, 0.3, 0.4]))
    assert [r.distribution.sign for r in found.random] == [-1, 1, -1]


def test_it_survives_json_and_refuses_what_does_not_fit() -> None:
    entries = asdict(MIXING) | {"random": [[r.column, asdict(r.distribution)] for r in MIXING.random]}
    entries = json.loads(json.dumps(entries))
    assert Mixing.from_dict(entries) == MIXING
    for wrong in ({"located": 9}, {"group": [0, 7]}, {"mirror": [3]}, {"means": [[8, 0]]}, {"means": [[1, 4]]}):
        with pytest.raises(ValueError, match="that are not"):
            Mixing.from_dict({**entries, **wrong})
