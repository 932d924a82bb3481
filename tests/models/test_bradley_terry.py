"""The logit of items: exact values, standard errors, and data without estimates."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import item_choices
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models import BradleyTerry
from pcmcnet.models.items.universe import DistinctSets, Universe

CIRCLE = {("ab", "a"): 6.0, ("ab", "b"): 2.0, ("bc", "b"): 3.0, ("bc", "c"): 5.0, ("abc", "a"): 4.0, ("abc", "c"): 1.0}


def test_two_items_have_the_closed_form() -> None:
    """30 of 40 choices: log odds log 3 against the winner, variance 1 / (40 x 3/4 x 1/4) = 2 / 15."""
    model = BradleyTerry(smoothing=0).fit(item_choices({("ab", "a"): 30, ("ab", "b"): 10}))
    np.testing.assert_allclose(model.strengths_, [0, -np.log(3)], rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.errors_, [0, np.sqrt(2 / 15)], rtol=1e-12, atol=0)
    assert model.num_parameters == 1


def test_smoothing_adds_to_every_item_of_every_distinct_set() -> None:
    model = BradleyTerry(smoothing=0.5).fit(item_choices({("ab", "a"): 3, ("abc", "a"): 1}))
    same = BradleyTerry(smoothing=0).fit(
        item_choices({("ab", "a"): 3.5, ("ab", "b"): 0.5, ("abc", "a"): 1.5, ("abc", "b"): 0.5, ("abc", "c"): 0.5})
    )
    np.testing.assert_allclose(model.strengths_, same.strengths_, rtol=0, atol=1e-12)


def test_expected_counts_equal_choices_at_the_estimate() -> None:
    data = item_choices(CIRCLE)
    model = BradleyTerry(smoothing=0).fit(data)
    assert data.labels is not None
    p = np.exp(model._log_proba(data)) * data.weights[data.set_of_alternative]
    expected = np.bincount(Universe(("a", "b", "c")).index(data), weights=p)
    np.testing.assert_allclose(expected, [10, 5, 6], rtol=1e-12, atol=0)


def test_standard_errors_are_those_of_the_hessian() -> None:
    """Second differences of the log-likelihood are accurate to about 1e-6."""
    data = item_choices(CIRCLE)
    model = BradleyTerry(smoothing=0).fit(data)
    sets = DistinctSets.of(data, Universe(("a", "b", "c")).index(data))
    free = [k for k in range(3) if k != model.reference_]

    def value(s: list[float]) -> float:
        strengths = np.zeros(3)
        strengths[free] = model.strengths_[free] + s
        return float(sets.counts @ model._item_log_p(sets, strengths))

    h, I = 1e-3, np.eye(2)
    hessian = np.array(
        [
            [
                (value(h * (u + v)) - value(h * (u - v)) - value(h * (v - u)) + value(-h * (u + v))) / (4 * h * h)
                for u in I
            ]
            for v in I
        ]
    )
    np.testing.assert_allclose(model.errors_[free], np.sqrt(np.diag(np.linalg.inv(-hessian))), rtol=1e-5)


def test_known_strengths_are_recovered_within_their_errors() -> None:
    """Each estimate from 4,000 choices in all sets of 5 items is within 4 standard errors."""
    rng = np.random.default_rng(0)
    truth = np.array([0.0, -0.5, -1.0, -1.5, -2.0])
    sets = [np.sort(rng.permutation(5)[: rng.integers(2, 6)]) for _ in range(4000)]
    best = [items[np.argmax(truth[items] + rng.gumbel(size=len(items)))] for items in sets]
    data = item_choices([("".join("abcde"[i] for i in items), "abcde"[b]) for items, b in zip(sets, best, strict=True)])
    model = BradleyTerry().fit(data, progress=False)
    assert (np.abs(model.strengths_ - truth)[1:] < 4 * model.errors_[1:]).all()
    assert model.errors_.max() < 0.15


def test_without_smoothing_an_item_that_always_loses_is_named() -> None:
    data = item_choices({("ab", "a"): 3, ("ab", "b"): 1, ("bc", "b"): 2})
    with pytest.raises(InputError, match=r"'c' always won, or always lost.*Set smoothing or ridge above 0"):
        BradleyTerry(smoothing=0).fit(data)
    assert np.isfinite(BradleyTerry().fit(data).strengths_).all()


def test_unconnected_items_are_named() -> None:
    data = item_choices({("ab", "a"): 3, ("ab", "b"): 1, ("cd", "c"): 2})
    with pytest.raises(InputError, match=r"no chain of choice sets connects 'a', 'b' with 'c', 'd'"):
        BradleyTerry().fit(data)


def test_extreme_strengths_converge() -> None:
    """Each item is chosen 10,000 times as often as the next: log-strengths go down to -18."""
    odds = {
        (pair[0] + pair[1], individual): 1e4 if individual == pair[0] else 1.0
        for pair in pairwise("abc")
        for individual in pair
    }
    model = BradleyTerry(smoothing=0).fit(item_choices(odds))
    np.testing.assert_allclose(model.strengths_ - model.strengths_[0], -np.log(1e4) * np.arange(3), rtol=0, atol=1e-8)
    assert model.record_.converged


def test_the_summary_shows_errors_and_the_reference() -> None:
    text = str(BradleyTerry().fit(item_choices(CIRCLE)).summary())
    assert "the strength of 'a' is 0" in text
    assert "0 (reference)" in text
    assert "not used: alternatives are identified by their labels" in text
    assert text.splitlines()[-1].startswith("b ")  # the weakest comes last


@pytest.mark.parametrize("options", [{"smoothing": -1}, {"max_iter": 0}, {"tolerance": 0}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        BradleyTerry(**options)


@pytest.mark.parametrize("change", [{"strengths": [0.0]}, {"strengths": [0.0, None, 0.0]}, {"reference": 7}])
def test_a_damaged_file_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    model = BradleyTerry().fit(item_choices(CIRCLE))
    entries = json.loads(model._files()["items.json"])
    with pytest.raises(ArtifactError, match="do not match the saved items"):
        BradleyTerry()._restore({"items.json": json.dumps({**entries, **change}).encode()}, model.record_, model.table_)


def test_a_search_that_did_not_converge_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    model = BradleyTerry(max_iter=1).fit(item_choices(CIRCLE))
    assert "within max_iter=1" in caplog.text
    assert "stopped by max_iter" in str(model.summary())
