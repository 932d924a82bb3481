"""Effects of removing alternatives agree with predictions of the single sets."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from choice_tables import item_choices, read
from pcmcnet import MNL, Uniform, explain
from pcmcnet.data import ChoiceData
from pcmcnet.data.describe import has_varying_offers
from pcmcnet.insight.axioms import audit
from pcmcnet.insight.queries import places_in_set
from pcmcnet.insight.removals import extrapolation_warning, pair_share, predict_removals, sample_removals
from pcmcnet.plots.report import explanation_sections
from pcmcnet.reports.sections import Text

Floats = NDArray[np.float64]
SIZES = [3, 2, 5, 4, 1]


class Crowded:
    """P(i) proportional to exp(x_i n): a logit whose coefficient grows with the size n of the set."""

    calls = 0

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        self.calls += 1
        utility = data.features["x"].plain().astype(np.float64) * np.repeat(data.sizes, data.sizes)
        total = np.log(np.add.reduceat(np.exp(utility), data.offsets[:-1]))
        return data.to_rows(utility - np.repeat(total, data.sizes))


class Deterministic:
    """Gives probability 1 to the largest x of a set."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        x = data.features["x"].plain()
        best = np.repeat(np.maximum.reduceat(x, data.offsets[:-1]), data.sizes)
        return data.to_rows(np.where(x == best, 0.0, -np.inf))


@pytest.fixture
def data() -> ChoiceData:
    x = np.random.default_rng(0).normal(size=sum(SIZES))
    table: dict[str, Any] = {"set": np.repeat(np.arange(len(SIZES)), SIZES), "x": x}
    return ChoiceData.from_long(table, choice_set="set", features=["x"])


def test_all_removals_are_predicted_in_one_call(data: ChoiceData) -> None:
    model = Crowded()
    cases = sample_removals(data, np.arange(len(data)), limit=1000, rng=np.random.default_rng(0))
    result = predict_removals(model, data, *cases)
    assert model.calls == 1
    assert result.position.tolist() == [0] * 3 + [2] * 5 + [3] * 4
    assert result.removed.tolist() == [*range(3), *range(5, 10), *range(10, 14)]
    assert result.questions == 12 + 3
    assert np.diff(result.offsets).tolist() == [2] * 3 + [4] * 5 + [3] * 4


def test_probabilities_match_those_of_the_single_sets(data: ChoiceData) -> None:
    """Utilities are n x_i, so log P(i) / P(j) is n (x_i - x_j) before and (n - 1) (x_i - x_j) after the removal."""
    cases = sample_removals(data, np.arange(len(data)), limit=1000, rng=np.random.default_rng(0))
    result = predict_removals(Crowded(), data, *cases)
    x = data.features["x"].plain().astype(np.float64)
    for c, (position, removed) in enumerate(zip(result.position, result.removed, strict=True)):
        inside = slice(result.offsets[c], result.offsets[c + 1])
        places, n = result.places[inside], data.sizes[position]
        assert places.tolist() == [p for p in places_in_set(data, position) if p != removed]
        for log_p, size in ((result.log_with[inside], n), (result.log_without[inside], n - 1)):
            np.testing.assert_allclose(log_p - log_p[0], size * (x[places] - x[places[0]]), atol=1e-12)


def test_extremes_and_sums_agree_with_all_pairs(data: ChoiceData) -> None:
    cases = sample_removals(data, np.arange(len(data)), limit=1000, rng=np.random.default_rng(0))
    result = predict_removals(Crowded(), data, *cases)
    ratios = result.log_ratios()
    assert ratios.cases.tolist() == list(range(12))
    for c in range(12):
        entries = range(result.offsets[c], result.offsets[c + 1])
        changes = {(i, j): abs(result.shift[i] - result.shift[j]) for i, j in combinations(entries, 2)}
        assert ratios.pairs[c] == len(changes)
        assert ratios.sums[c] == pytest.approx(sum(changes.values()), rel=1e-12)
        assert result.shift[ratios.up[c]] - result.shift[ratios.down[c]] == max(changes.values())
    assert ratios.left_out == 0


def test_improbable_alternatives_may_be_left_out(data: ChoiceData) -> None:
    cases = sample_removals(data, np.arange(len(data)), limit=1000, rng=np.random.default_rng(0))
    result = predict_removals(Crowded(), data, *cases)
    ratios = result.log_ratios(least=0.1)
    probable = np.exp(result.log_with) >= 0.1
    m = np.add.reduceat(probable.astype(int), result.offsets[:-1])
    assert ratios.pairs.tolist() == (m * (m - 1) // 2).tolist()
    assert 0 < ratios.pairs.sum() < result.log_ratios().pairs.sum()
    assert probable[ratios.up].all()
    assert probable[ratios.down].all()


def test_an_alternative_of_probability_0_has_no_log_ratio(data: ChoiceData) -> None:
    cases = sample_removals(data, np.arange(len(data)), limit=1000, rng=np.random.default_rng(0))
    ratios = predict_removals(Deterministic(), data, *cases).log_ratios()
    assert ratios.cases.size == 0
    assert ratios.left_out == 3 * 1 + 5 * 6 + 4 * 3


@pytest.mark.parametrize(("limit", "removed"), [(4, 3), (5, 3), (6, 4), (9, 7), (10, 8), (15, 12), (3, 2), (1, 0)])
def test_a_limit_bounds_the_number_of_predictions(limit: int, removed: int, data: ChoiceData) -> None:
    """Sets of 3, 5 and 4 cost 4, 6 and 5 predictions. Part of a set needs at least 2: the set and one removal."""
    cases = sample_removals(data, np.arange(len(data)), limit=limit, rng=np.random.default_rng(0))
    result = predict_removals(Crowded(), data, *cases)
    assert len(result.removed) == removed
    assert result.questions <= limit


def test_an_empty_list_of_removals_is_allowed(data: ChoiceData) -> None:
    result = predict_removals(Crowded(), data, np.empty(0, np.int64), np.empty(0, np.int64))
    assert result.log_ratios().cases.size == 0
    assert result.questions == 0


def test_pair_shares_are_exact_for_tiny_probabilities() -> None:
    assert pair_share(np.float64(-1000.0), np.float64(-1000.0) + np.log(3.0)) == pytest.approx(0.25, rel=1e-12)
    assert pair_share(np.float64(0.0), np.float64(-np.inf)) == 1
    assert pair_share(np.float64(-np.inf), np.float64(0.0)) == 0


# -- Availability ------------------------------------------------------------------------------------------------------
# Removals extrapolate if all training sets offer the same alternatives.


SAME = item_choices([("abc", "a"), ("cab", "b"), ("abc", "c")] * 4)
REMOVALS = (
    "All choice sets of the training table offer the same alternatives. Choices from smaller sets were never "
    "observed, so effects of removals are extrapolated from the model's functional form."
)
DIFFERENT = item_choices([("abc", "a"), ("ab", "b"), ("abd", "a")] * 4)


def test_offers_differ_by_label_or_by_size() -> None:
    assert not has_varying_offers(SAME)
    assert has_varying_offers(DIFFERENT)
    assert has_varying_offers(item_choices([("abc", "a"), ("abd", "b")]))  # same size, other labels
    table = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "x": [1.0, 2.0, 3.0, 4.0]}
    plain = read(table, features=["x"])
    assert not has_varying_offers(plain)
    assert "have the same number of alternatives" in (extrapolation_warning(object(), plain) or "")
    assert has_varying_offers(read({**table, "trip": [1, 1, 1, 2], "took": [1, 0, 0, 1]}, features=["x"]))


def test_the_training_table_decides_on_extrapolation() -> None:
    trained = Uniform().fit(SAME)
    assert extrapolation_warning(trained, DIFFERENT) == REMOVALS
    assert extrapolation_warning(Uniform().fit(DIFFERENT), SAME) is None
    trained.add_table_facts(description={})  # fitted by several processes
    assert extrapolation_warning(trained, DIFFERENT) is None
    assert extrapolation_warning(object(), SAME) == REMOVALS
    assert REMOVALS in audit(Uniform().fit(SAME), SAME).notes


def test_the_report_warns_about_removals_and_skips_clock_times() -> None:
    rng = np.random.default_rng(0)
    n = 30
    table = {
        "trip": np.repeat(np.arange(n), 3),
        "took": np.tile([1, 0, 0], n),
        "mode": np.tile(["car", "bus", "bike"], n),
        "price": rng.gamma(2.0, 2.0, 3 * n) + np.tile([0, 1, 2], n),
        "depTime": rng.uniform(300, 1300, 3 * n),
    }
    data = read(table, alternative="mode", features=["price", "depTime"])
    skip = ("fit", "calibration", "importance", "categories", "trade_offs")
    result = explain(MNL(formula="price + depTime | 0").fit(data), data, sets=10, skip=skip, progress=False)
    assert result.elasticities is not None
    assert [t.column for t in result.elasticities.tables] == ["price"]
    assert result.elasticities.left_out == {"depTime": "is a clock time: a 1% increase has no meaning"}
    assert result.removals == result.summary()["found"]["removals"] == result.to_dict()["removals"] == REMOVALS
    by_name = {section.name: section for section in explanation_sections(result)}
    assert by_name["context"].blocks[0] == by_name["examples"].blocks[0] == Text(REMOVALS, "warning")
    words = [block.text for block in by_name["elasticities"].blocks if isinstance(block, Text)]
    assert "No elasticity for depTime: it is a clock time: a 1% increase has no meaning." in words
