"""The audit finds the axioms that models are known to obey or to violate, with an example."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from choice_tables import largest
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import markov, mlba
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.axioms import AxiomFinding, audit, draw_triples
from pcmcnet.models import MNL, PCMCNet, RandomForest, RankBy

Floats = NDArray[np.float64]
TRANSITIVITY = ("weak", "moderate", "strong")


def by_set(data: ChoiceData, distribution: Any, columns: list[str]) -> Floats:
    """Return log-probabilities, set by set, of a distribution given by the columns (n, columns) of a set."""
    x = np.column_stack([data.features[name].plain() for name in columns])
    parts = [distribution(x[low:high]) for low, high in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    with np.errstate(divide="ignore"):
        return data.to_rows(np.log(np.concatenate(parts)))


class Chain:
    """A chain with rates (n, n). A feature holds the number of the item; copies of an item have the same rates."""

    def __init__(self, rates: Floats) -> None:
        self.rates = rates

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        def distribution(x: NDArray[Any]) -> Floats:
            items = x[:, 0].astype(int)
            between = self.rates[np.ix_(items, items)]
            between[items[:, None] == items] = 1.0  # any rate between copies gives the same result
            return markov.probabilities(between)

        return by_set(data, distribution, ["item"])


class MLBA:
    """The multi-attribute linear ballistic accumulator of figure 2."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        return by_set(data, lambda x: mlba.probabilities(x[None].astype(np.float64))[0], ["attr1", "attr2"])


class Logit:
    """P(i) proportional to exp(item)."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        return by_set(data, lambda x: np.exp(x[:, 0]) / np.exp(x[:, 0]).sum(), ["item"])


@pytest.fixture(scope="module")
def items() -> ChoiceData:
    """Return rock, scissors and paper in one set of three and in all pairs."""
    sets = [[0, 1, 2], *combinations(range(3), 2)]
    numbers = np.concatenate([np.array(s) for s in sets])
    table: dict[str, Any] = {
        "set": np.repeat(np.arange(4) + 10, [3, 2, 2, 2]),
        "item": numbers.astype(float),
        "name": np.array(markov.ITEMS)[numbers],
    }
    return ChoiceData.from_long(table, choice_set="set", alternative="name", features=["item"])


@pytest.fixture(scope="module")
def trips() -> ChoiceData:
    """Return 40 sets of 2 to 6 alternatives with two features, and choices of a logit."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 7, 40)
    trip = np.repeat(np.arange(40), sizes)
    price, minutes = rng.gamma(2.0, 5.0, len(trip)), rng.gamma(3.0, 10.0, len(trip))
    utility = -0.1 * price - 0.05 * minutes + rng.gumbel(size=len(trip))
    table = {"trip": trip, "took": largest(utility, trip), "price": price, "minutes": minutes}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price", "minutes"])


def test_a_logit_violates_only_the_axiom_of_copies(trips: ChoiceData) -> None:
    report = audit(MNL(formula="price + minutes").fit(trips), trips, tolerance=1e-9)
    assert report["independence"].largest <= 1e-9
    for axiom in ("independence", "regularity", *TRANSITIVITY, "uniform"):
        finding = report[axiom]
        assert finding.cases > 20
        assert (finding.violations, finding.verdict, finding.example) == (0, "holds", None)
    assert report["copies"].verdict == "violated"
    assert report["copies"].more["of_a_logit"] == pytest.approx(1.0, rel=1e-9)
    assert report.sets == 40
    assert report.notes == ()


def test_all_removals_of_all_sets_are_checked(trips: ChoiceData) -> None:
    """A set of n >= 3 has n removals with n - 1 others each, and needs four more predictions."""
    report = audit(MNL(formula="price").fit(trips), trips)
    n = trips.sizes[trips.sizes >= 3]
    assert report["independence"].cases == n.sum()
    assert report["independence"].more["pairs"] == (n * (n - 1) * (n - 2) // 2).sum()
    assert report["regularity"].cases == (n * (n - 1)).sum()
    assert report["uniform"].cases == trips.sizes.sum()
    assert report.questions == len(n) + n.sum() + 3 * report["weak"].cases + 4 * len(trips)


def test_rock_paper_scissors_violates_transitivity(items: ChoiceData) -> None:
    """With alpha = .9, weak transitivity misses .5 by .4 and the others miss .9 by .8.

    All three have one third each, and the loser of a pair has .1: it loses 1/3 - .1 if the third leaves.
    """
    report = audit(Chain(markov.rock_paper_scissors(0.9)), items, tolerance=1e-9)
    for axiom, size in zip(TRANSITIVITY, (0.4, 0.8, 0.8), strict=True):
        assert report[axiom].cases == 1
        assert report[axiom].share == 1
        assert report[axiom].largest == pytest.approx(size, rel=1e-12)
    assert "= 0.900, " in str(report["weak"].example)
    assert str(report["weak"].example).endswith("= 0.100")
    regularity = report["regularity"]
    assert (regularity.cases, regularity.violations) == (6, 3)
    assert regularity.largest == pytest.approx(1 / 3 - 0.1, rel=1e-12)
    assert regularity.mean == pytest.approx((1 / 3 - 0.1) / 2, rel=1e-12)
    assert regularity.choice_set == 10
    assert "falls from 0.333 to 0.100" in str(regularity.example)
    # log-ratios: 0 with the third, log 9 without
    assert report["independence"].largest == pytest.approx(np.log(9), rel=1e-12)
    assert report["independence"].mean == pytest.approx(np.log(9), rel=1e-12)


def test_forms_of_transitivity_are_distinguished() -> None:
    """P(a over b) = .8 and P(b over c) = .7. P(a over c) = .75 is moderate but not strong; .6 is only weak.

    .4 makes a cycle, whose largest gap is in the order b, c, a: .7 and .6, but .2.
    """
    table: dict[str, Any] = {"set": [0, 0, 0], "item": [0.0, 1.0, 2.0], "name": list("abc")}
    data = ChoiceData.from_long(table, choice_set="set", alternative="name", features=["item"])
    for ac, gaps in ((0.85, (0, 0, 0)), (0.75, (0, 0, 0.05)), (0.6, (0, 0.1, 0.2)), (0.4, (0.3, 0.4, 0.5))):
        rates = np.array([[0, 0.2, 1 - ac], [0.8, 0, 0.3], [ac, 0.7, 0]])
        report = audit(Chain(rates), data, tolerance=1e-9)
        assert [report[form].largest for form in TRANSITIVITY] == pytest.approx(gaps, abs=1e-12)
    assert report["strong"].example == "P(b over c) = 0.700, P(c over a) = 0.600, but P(b over a) = 0.200"


def test_a_chain_obeys_uniform_expansion_but_not_copies(items: ChoiceData) -> None:
    """Two copies of one item of a pair with rates r and s have 2 s / (2 s + r), as in a logit."""
    model = Chain(markov.rock_paper_scissors(0.9))
    assert audit(model, items, expand=3)["uniform expansion"].largest < 1e-12
    report = audit(model, items.subset([1, 2, 3]))
    assert report["copies"].more["of_a_logit"] == pytest.approx(1.0, abs=1e-9)
    assert report["copies"].more["largest_gap_between_copies"] < 1e-12


def test_the_ballistic_accumulator_violates_regularity() -> None:
    """The decoy at (3, 5) is hardly ever chosen, and without it a falls from .67 to .5."""
    x = np.array([mlba.A, mlba.B, (3.0, 5.0)])
    table = {"set": [0, 0, 0], "name": list("abc"), "attr1": x[:, 0], "attr2": x[:, 1]}
    data = ChoiceData.from_long(table, choice_set="set", alternative="name", features=["attr1", "attr2"])
    report = audit(MLBA(), data)
    p = mlba.probabilities(x[None])[0]
    assert report["regularity"].largest == pytest.approx(p[0] - 0.5, rel=1e-9)
    assert report["regularity"].example == f"without c, P(a) falls from {p[0]:.3f} to 0.500"
    assert report["independence"].verdict == "violated"
    assert report["uniform"].verdict == "violated"  # copies race each other


def test_violations_of_regularity_are_found_among_simulated_sets() -> None:
    table = mlba.simulate(100, seed=0)
    data = ChoiceData.from_long(table, choice_set="choice_set", features=["attr1", "attr2"])
    finding = audit(MLBA(), data, sets=50)["regularity"]
    assert finding.cases == 50 * 6
    assert 0.05 < finding.share < 0.5
    assert finding.largest > 0.1


def test_pcmc_net_obeys_uniform_expansion_to_rounding(trips: ChoiceData) -> None:
    model = PCMCNet(hidden=(8, 8), epochs=5, weight_decay=0.0, lr=0.02).fit(trips, progress=False)
    report = audit(model, trips, expand=3)
    assert report["uniform"].largest < 1e-5  # float32
    assert report["uniform"].verdict == "holds"
    assert report["independence"].verdict == "violated"


def test_the_same_seed_draws_the_same_cases(trips: ChoiceData) -> None:
    one, again, other = (audit(Crowded(), trips, sets=5, seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other
    assert one.sets == 5


class Crowded:
    """P(i) proportional to exp(-price / n): prices matter less in larger sets."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        return by_set(data, lambda x: np.exp(-x[:, 0] / len(x)) / np.exp(-x[:, 0] / len(x)).sum(), ["price"])


def test_limits_bound_the_number_of_predictions(trips: ChoiceData) -> None:
    report = audit(Crowded(), trips, sets=10, limit=12, triples=7)
    assert report["independence"].cases <= 11
    assert report["weak"].cases <= 7
    assert report.questions <= 12 + 3 * 7 + 4 * 10


def test_triples_are_distinct_members_of_one_set(trips: ChoiceData) -> None:
    drawn = np.flatnonzero(trips.sizes >= 2)
    triples = draw_triples(trips, drawn, 5000, np.random.default_rng(0))
    assert (np.diff(triples, axis=1) > 0).all()
    owner = trips.set_of_alternative[triples]
    assert (owner == owner[:, :1]).all()
    n = trips.sizes[trips.sizes >= 3]
    assert len(triples) == (n * (n - 1) * (n - 2) // 6).sum()  # there are enough draws to find every triple


def test_sets_of_weight_0_or_of_one_alternative_are_ignored() -> None:
    table = {"set": [0, 0, 1, 2, 2], "item": [0.0, 1.0, 2.0, 0.0, 2.0], "weight": [1, 1, 1, 0, 0]}
    data = ChoiceData.from_long(table, choice_set="set", features=["item"], weight="weight")
    report = audit(Logit(), data)
    assert report.sets == 1
    assert report["independence"].verdict == report["weak"].verdict == "not checked"
    assert report["uniform"].cases == 2
    with pytest.raises(InputError, match="at least two alternatives and a positive weight, found none in 1"):
        audit(Logit(), data.subset([1]))


def test_rankings_scores_and_ordered_models_get_a_note(trips: ChoiceData) -> None:
    cheapest = audit(RankBy("price").fit(trips), trips)
    assert cheapest["independence"].verdict == "not checked"
    assert cheapest["independence"].more["pairs_without_log_ratio"] > 0
    assert "returns a ranking" in cheapest.notes[0]
    forest = audit(RandomForest(trees=5, min_samples_leaf=5).fit(trips, progress=False), trips, sets=5)
    assert "scores that are scaled to sum to 1" in forest.notes[0]

    class Ordered(Logit):
        order_matters = True

    items = ChoiceData.from_long({"s": [0, 0], "item": [0.0, 1.0]}, choice_set="s", features=["item"])
    assert "order of the rows of a set" in audit(Ordered(), items).notes[0]


def test_the_audit_is_one_page_and_survives_json(items: ChoiceData) -> None:
    report = audit(Chain(markov.rock_paper_scissors(0.9)), items)
    page = report.to_markdown()
    assert page.startswith("# Axioms of choice: Chain\n")
    assert "| weak stochastic transitivity | violated | 1 | 100.0% | 0.4 | 0.4 | probability |" in page
    assert "- **regularity**: choice set 10: without " in page
    assert len(page.splitlines()) < 40
    assert "regularity: choice set 10: without " in str(report)
    back = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert [f["axiom"] for f in back["findings"]] == [f.axiom for f in report.findings]
    assert back["findings"][1]["share"] == report["regularity"].share
    assert report.obeyed == ("uniform expansion",)
    with pytest.raises(InputError, match=r"no axiom 'regularty'\. Did you mean 'regularity'"):
        report["regularty"]


def test_a_finding_without_cases_has_no_share() -> None:
    finding = AxiomFinding(axiom="regularity", unit="probability", cases=0, violations=0, mean=0.0, largest=0.0)
    assert (finding.share, finding.verdict) == (0.0, "not checked")


@pytest.mark.parametrize("option", ["sets", "limit", "triples", "expand", "tolerance"])
def test_numbers_out_of_range_are_rejected(option: str, items: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be"):
        audit(Logit(), items, **{option: -1})  # type: ignore[arg-type]
