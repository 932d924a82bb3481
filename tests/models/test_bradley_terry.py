"""The logit of items: exact values, standard errors, and data without estimates."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import item_choices
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models import BradleyTerry, Thurstone, load
from pcmcnet.models.items.strengths import StrengthModel
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


GROUPS = {("ab", "a"): 3.0, ("ab", "b"): 1.0, ("cd", "c"): 2.0, ("cd", "d"): 18.0}


@pytest.mark.parametrize("kind", [BradleyTerry, Thurstone])
def test_unconnected_groups_are_fitted_separately(kind: type[StrengthModel], caplog: pytest.LogCaptureFixture) -> None:
    """Shares of a and d are 3/4 and 9/10; with equal means, d - b = (d - c) / 2 + (a - b) / 2, and so on."""
    model = kind(smoothing=0, ridge=0).fit(item_choices(GROUPS))
    a, b, c, d = model.strengths_
    assert model.groups_.tolist() == [0, 0, 1, 1]
    assert (d, model.num_parameters) == (0, 2)  # d is chosen most often
    assert a + b == pytest.approx(c + d, abs=1e-9)
    assert "2 groups of items are not connected by choice sets (sizes 2, 2)" in caplog.text
    of_pairs = model.predict_proba(item_choices([("ab", "a"), ("cd", "c"), ("ad", "a")]))
    assert of_pairs[:4] == pytest.approx([0.75, 0.25, 0.1, 0.9], abs=1e-6)  # Thurstone's search ends at 1e-6
    # Within a group, the strengths and errors are those of a separate fit.
    separate = kind(smoothing=0, ridge=0).fit(item_choices({k: n for k, n in GROUPS.items() if k[0] == "cd"}))
    assert c - d == pytest.approx(separate.strengths_[0], abs=1e-6)
    assert model.errors_[2:] == pytest.approx(separate.errors_, abs=1e-6)
    summary = model.summary()
    assert summary.facts["unconnected groups"].startswith("2 (of 2, 2 items): all have the same mean strength by")
    assert {row[0]: row[3] == "" for row in summary.rows} == {"a": True, "b": True, "c": False, "d": True}


def test_groups_of_a_logit_have_values_by_hand() -> None:
    """Half of log 3 = 1.0986 and half of log 9 = 2.1972: strengths .5493 and -.5493, and -1.0986 and 1.0986."""
    model = BradleyTerry(smoothing=0, ridge=0).fit(item_choices(GROUPS))
    halves = np.log([3, 9]) / 2
    expected = np.array([halves[0], -halves[0], -halves[1], halves[1]]) - halves[1]
    np.testing.assert_allclose(model.strengths_, expected, atol=1e-10)
    odds = np.exp(halves[0] - halves[1])  # of a against d
    p = model.predict_proba(item_choices([("ad", "a")]))
    np.testing.assert_allclose(p, [odds / (1 + odds), 1 / (1 + odds)], rtol=1e-10)
    # Variances of log odds: 1/3 + 1 and 1/2 + 1/18; of deviations from the means: a quarter.
    np.testing.assert_allclose(model.errors_[0] ** 2, (4 / 3 + 5 / 9) / 4, rtol=1e-8)


def test_saved_groups_are_loaded(tmp_path: Path) -> None:
    model = BradleyTerry().fit(item_choices(GROUPS))
    back = load(model.save(tmp_path / "groups"))
    assert isinstance(back, BradleyTerry)
    assert back.groups_.tolist() == [0, 0, 1, 1]
    assert str(back.summary()) == str(model.summary())


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


@pytest.mark.parametrize(
    "change",
    [{"strengths": [0.0]}, {"strengths": [0.0, None, 0.0]}, {"reference": 7}, {"groups": [0]}, {"groups": [0, 2, 0]}],
)
def test_a_damaged_file_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    model = BradleyTerry().fit(item_choices(CIRCLE))
    entries = json.loads(model._files()["items.json"])
    with pytest.raises(ArtifactError, match="do not match the saved items"):
        BradleyTerry()._restore({"items.json": json.dumps({**entries, **change}).encode()}, model.record_, model.table_)


def test_a_search_that_did_not_converge_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    model = BradleyTerry(max_iter=1).fit(item_choices(CIRCLE))
    assert "within max_iter=1" in caplog.text
    assert "stopped by max_iter" in str(model.summary())
