"""An audit finds what a model is known to obey, and what it is known to violate, with the case that shows it."""

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


def by_set(data: ChoiceData, law: Any, columns: list[str]) -> Floats:
    """Log-probabilities of a law of values (n, columns), set after set."""
    x = np.column_stack([data.features[name].plain() for name in columns])
    parts = [law(x[low:high]) for low, high in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    with np.errstate(divide="ignore"):
        return data.to_rows(np.log(np.concatenate(parts)))


class Chain:
    """A chain of rates (n, n) on items that are numbered by a feature; copies are items with the same rates."""

    def __init__(self, rates: Floats) -> None:
        self.rates = rates

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        def law(x: NDArray[Any]) -> Floats:
            items = x[:, 0].astype(int)
            between = self.rates[np.ix_(items, items)]
            between[items[:, None] == items] = 1.0  # between copies any rate will do
            return markov.probabilities(between)

        return by_set(data, law, ["item"])


class MLBA:
    """The model of deliberation that figure 2 draws."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        return by_set(data, lambda x: mlba.probabilities(x[None].astype(np.float64))[0], ["attr1", "attr2"])


class Logit:
    """P(i) proportional to exp(item)."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        return by_set(data, lambda x: np.exp(x[:, 0]) / np.exp(x[:, 0]).sum(), ["item"])


@pytest.fixture(scope="module")
def items() -> ChoiceData:
    """Rock, scissors and paper, in one set of three and in the pairs."""
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
    """40 sets of 2 to 6 alternatives of two features, chosen by a logit."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 7, 40)
    trip = np.repeat(np.arange(40), sizes)
    price, minutes = rng.gamma(2.0, 5.0, len(trip)), rng.gamma(3.0, 10.0, len(trip))
    utility = -0.1 * price - 0.05 * minutes + rng.gumbel(size=len(trip))
    table = {"trip": trip, "took": largest(utility, trip), "price": price, "minutes": minutes}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price", "minutes"])


def test_a_logit_obeys_everything_but_what_copies_do(trips: ChoiceData) -> None:
    found = audit(MNL(formula="price + minutes").fit(trips), trips, tolerance=1e-9)
    assert found["independence"].largest <= 1e-9
    for axiom in ("independence", "regularity", *TRANSITIVITY, "uniform"):
        finding = found[axiom]
        assert finding.cases > 20
        assert (finding.violations, finding.verdict, finding.example) == (0, "holds", None)
    assert found["copies"].verdict == "violated"
    assert found["copies"].more["of_a_logit"] == pytest.approx(1.0, rel=1e-9)
    assert found.sets == 40
    assert found.notes == ()


def test_all_removals_of_all_sets_are_looked_at(trips: ChoiceData) -> None:
    """n removals of a set of n >= 3 with n - 1 others each, and four more questions for each set."""
    found = audit(MNL(formula="price").fit(trips), trips)
    n = trips.sizes[trips.sizes >= 3]
    assert found["independence"].cases == n.sum()
    assert found["independence"].more["pairs"] == (n * (n - 1) * (n - 2) // 2).sum()
    assert found["regularity"].cases == (n * (n - 1)).sum()
    assert found["uniform"].cases == trips.sizes.sum()
    assert found.questions == len(n) + n.sum() + 3 * found["weak"].cases + 4 * len(trips)


def test_rock_paper_scissors_goes_in_a_circle(items: ChoiceData) -> None:
    """alpha = .9: weak transitivity is short of .5 by .4, and the others of .9 by .8; the loser of a pair has .1.

    All three have one third each, so that the loser of a pair loses 1/3 - .1 when the third leaves.
    """
    found = audit(Chain(markov.rock_paper_scissors(0.9)), items, tolerance=1e-9)
    for axiom, size in zip(TRANSITIVITY, (0.4, 0.8, 0.8), strict=True):
        assert found[axiom].cases == 1
        assert found[axiom].share == 1
        assert found[axiom].largest == pytest.approx(size, rel=1e-12)
    assert "= 0.900, " in str(found["weak"].example)
    assert str(found["weak"].example).endswith("= 0.100")
    regularity = found["regularity"]
    assert (regularity.cases, regularity.violations) == (6, 3)
    assert regularity.largest == pytest.approx(1 / 3 - 0.1, rel=1e-12)
    assert regularity.mean == pytest.approx((1 / 3 - 0.1) / 2, rel=1e-12)
    assert regularity.choice_set == 10
    assert "falls from 0.333 to 0.100" in str(regularity.example)
    # log-ratios: 0 with the third, log 9 without
    assert found["independence"].largest == pytest.approx(np.log(9), rel=1e-12)
    assert found["independence"].mean == pytest.approx(np.log(9), rel=1e-12)


def test_forms_of_transitivity_are_told_apart() -> None:
    """P(a over b) = .8 and P(b over c) = .7: P(a over c) of .75 is moderate and not strong, of .6 weak alone.

    Of .4 it makes a circle, whose largest gap is in the order b, c, a: .7 and .6, but .2.
    """
    table: dict[str, Any] = {"set": [0, 0, 0], "item": [0.0, 1.0, 2.0], "name": list("abc")}
    data = ChoiceData.from_long(table, choice_set="set", alternative="name", features=["item"])
    for ac, gaps in ((0.85, (0, 0, 0)), (0.75, (0, 0, 0.05)), (0.6, (0, 0.1, 0.2)), (0.4, (0.3, 0.4, 0.5))):
        rates = np.array([[0, 0.2, 1 - ac], [0.8, 0, 0.3], [ac, 0.7, 0]])
        found = audit(Chain(rates), data, tolerance=1e-9)
        assert [found[form].largest for form in TRANSITIVITY] == pytest.approx(gaps, abs=1e-12)
    assert found["strong"].example == "P(b over c) = 0.700, P(c over a) = 0.600, but P(b over a) = 0.200"


def test_a_chain_obeys_uniform_expansion_and_its_copies_count(items: ChoiceData) -> None:
    """Copies of one item of a pair with rates r to and s from it have 2 s / (2 s + r): as in a logit."""
    model = Chain(markov.rock_paper_scissors(0.9))
    assert audit(model, items, expand=3)["uniform expansion"].largest < 1e-12
    found = audit(model, items.subset([1, 2, 3]))
    assert found["copies"].more["of_a_logit"] == pytest.approx(1.0, abs=1e-9)
    assert found["copies"].more["largest_gap_between_copies"] < 1e-12


def test_the_model_of_deliberation_is_not_regular() -> None:
    """The decoy at (3, 5) is no choice of its own, and a falls from .67 to .5 without it."""
    x = np.array([mlba.A, mlba.B, (3.0, 5.0)])
    table = {"set": [0, 0, 0], "name": list("abc"), "attr1": x[:, 0], "attr2": x[:, 1]}
    data = ChoiceData.from_long(table, choice_set="set", alternative="name", features=["attr1", "attr2"])
    found = audit(MLBA(), data)
    p = mlba.probabilities(x[None])[0]
    assert found["regularity"].largest == pytest.approx(p[0] - 0.5, rel=1e-9)
    assert found["regularity"].example == f"without c, P(a) falls from {p[0]:.3f} to 0.500"
    assert found["independence"].verdict == "violated"
    assert found["uniform"].verdict == "violated"  # copies race each other


def test_violations_of_regularity_are_found_among_simulated_sets() -> None:
    table = mlba.simulate(100, seed=0)
    data = ChoiceData.from_long(table, choice_set="choice_set", features=["attr1", "attr2"])
    finding = audit(MLBA(), data, sets=50)["regularity"]
    assert finding.cases == 50 * 6
    assert 0.05 < finding.share < 0.5
    assert finding.largest > 0.1


def test_pcmc_net_obeys_uniform_expansion_to_rounding(trips: ChoiceData) -> None:
    model = PCMCNet(hidden=(8, 8), epochs=5, weight_decay=0.0, lr=0.02).fit(trips, progress=False)
    found = audit(model, trips, expand=3)
    assert found["uniform"].largest < 1e-5  # float32
    assert found["uniform"].verdict == "holds"
    assert found["independence"].verdict == "violated"


def test_a_seed_draws_the_same_cases_again(trips: ChoiceData) -> None:
    one, again, other = (audit(Crowded(), trips, sets=5, seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other
    assert one.sets == 5


class Crowded:
    """P(i) proportional to exp(-price / n): the more there are, the less prices count."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        return by_set(data, lambda x: np.exp(-x[:, 0] / len(x)) / np.exp(-x[:, 0] / len(x)).sum(), ["price"])


def test_limits_bound_the_questions(trips: ChoiceData) -> None:
    found = audit(Crowded(), trips, sets=10, limit=12, triples=7)
    assert found["independence"].cases <= 11
    assert found["weak"].cases <= 7
    assert found.questions <= 12 + 3 * 7 + 4 * 10


def test_triples_are_distinct_members_of_one_set(trips: ChoiceData) -> None:
    drawn = np.flatnonzero(trips.sizes >= 2)
    triples = draw_triples(trips, drawn, 5000, np.random.default_rng(0))
    assert (np.diff(triples, axis=1) > 0).all()
    owner = trips.set_of_alternative[triples]
    assert (owner == owner[:, :1]).all()
    n = trips.sizes[trips.sizes >= 3]
    assert len(triples) == (n * (n - 1) * (n - 2) // 6).sum()  # so many draws find each one


def test_a_weight_of_0_and_sets_of_one_take_no_part() -> None:
    table = {"set": [0, 0, 1, 2, 2], "item": [0.0, 1.0, 2.0, 0.0, 2.0], "weight": [1, 1, 1, 0, 0]}
    data = ChoiceData.from_long(table, choice_set="set", features=["item"], weight="weight")
    found = audit(Logit(), data)
    assert found.sets == 1
    assert found["independence"].verdict == found["weak"].verdict == "not checked"
    assert found["uniform"].cases == 2
    with pytest.raises(InputError, match="a choice set with two alternatives and a positive weight, found none in 1"):
        audit(Logit(), data.subset([1]))


def test_models_of_another_kind_are_marked(trips: ChoiceData) -> None:
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
    found = audit(Chain(markov.rock_paper_scissors(0.9)), items)
    page = found.to_markdown()
    assert page.startswith("# Axioms of choice: Chain\n")
    assert "| weak stochastic transitivity | violated | 1 | 100.0% | 0.4 | 0.4 | probability |" in page
    assert "- **regularity**: choice set 10: without " in page
    assert len(page.splitlines()) < 40
    assert "regularity: choice set 10: without " in str(found)
    back = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [f["axiom"] for f in back["findings"]] == [f.axiom for f in found.findings]
    assert back["findings"][1]["share"] == found["regularity"].share
    assert found.obeyed == ("uniform expansion",)
    with pytest.raises(InputError, match=r"no axiom 'regularty'\. Did you mean 'regularity'"):
        found["regularty"]


def test_a_finding_without_cases_has_no_share() -> None:
    finding = AxiomFinding(axiom="regularity", unit="probability", cases=0, violations=0, mean=0.0, largest=0.0)
    assert (finding.share, finding.verdict) == (0.0, "not checked")


@pytest.mark.parametrize("option", ["sets", "limit", "triples", "expand", "tolerance"])
def test_numbers_out_of_range_are_refused(option: str, items: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be"):
        audit(Logit(), items, **{option: -1})  # type: ignore[arg-type]
