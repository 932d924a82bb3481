"""The best offer under fitted models: proven if theory allows, otherwise heuristic; bad input is rejected."""

from itertools import product
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import pcmcnet as pn
from choice_tables import read, trips
from pcmcnet.errors import ConfigError, InputError

FEATURES = ["price", "comfort"]
CATALOGUE = {
    "mode": ["walk", "car", "bus", "train", "bike"],
    "price": [9.0, 13.0, 11.0, 12.0, 8.0],
    "comfort": ["low", "high", "low", "high", "low"],
    "margin": [None, 2.0, 0.6, 1.1, 0.4],
}
INDIVIDUAL = {"income": 30.0}
NETWORK = {"hidden": (4,), "epochs": 2, "weight_decay": 0.1}


@pytest.fixture(scope="module")
def data() -> pn.ChoiceData:
    return read(trips(80, sizes=(3, 5), slope=-0.2), alternative="mode", individual=["income"], features=FEATURES)


def best_by_enumeration(model: pn.models.ChoiceModel, **fixed: Any) -> float:
    """Return the best of all offers with the outside option, by predictions of the model."""
    values = []
    for shown in product([False, True], repeat=4):
        rows = [0, *(k for k in range(1, 5) if shown[k - 1])]
        table = {name: [CATALOGUE[name][k] for k in rows] for name in ("mode", *FEATURES)}
        table |= {"trip": [1] * len(rows), "income": [INDIVIDUAL["income"]] * len(rows)}
        values.append(float(model.predict_proba(table) @ [CATALOGUE["margin"][k] or 0.0 for k in rows]))
    return max(values)


@pytest.mark.parametrize(
    ("model", "exact"),
    [
        (pn.MNL(), True),
        (pn.LatentClassMNL(classes=2, starts=1, prior=1.0), True),
        (pn.MixedMNL(random={"price": "normal"}, draws=20), True),
        (pn.PCMCNet(**NETWORK), True),
        (pn.Ensemble(pn.PCMCNet(**NETWORK), n=2), True),
        (pn.Stacking([pn.PCMCNet(**NETWORK), pn.MNL()]), True),
        (pn.Stacking([pn.PCMCNet(**NETWORK), pn.Boosted(trees=5)]), False),  # relative features depend on the offer
        (pn.RandomForest(trees=3), False),
        (pn.PointerNetwork(epochs=1, weight_decay=0.0), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_other_offer_earns_more(data: pn.ChoiceData, model: pn.models.ChoiceModel, exact: bool) -> None:
    model.fit(data, progress=False)
    offer = pn.optimise_offer(model, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL)
    assert offer.value == pytest.approx(best_by_enumeration(model), rel=2e-5)
    assert offer.exact == exact
    assert offer.bound >= offer.value
    assert offer.outside is not None
    assert sum(offer.probabilities) + offer.outside == pytest.approx(1.0, abs=1e-6)
    assert ("proven" in str(offer)) == exact
    assert ("heuristic" in offer.to_markdown()) != exact
    assert offer.to_dict()["labels"] == list(offer.labels)
    assert offer.to_frame()["alternative"].tolist() == [*offer.labels, "outside option"]


def test_the_proof_for_a_mixed_logit_names_its_draws(data: pn.ChoiceData) -> None:
    model = pn.MixedMNL(random={"price": "normal"}, draws=20).fit(data)
    offer = pn.optimise_offer(model, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL)
    assert offer.draws == 20
    assert "proven to be the best offer for 20 fixed draws" in str(offer)


def test_without_an_outside_option_only_the_dearest_is_offered(data: pn.ChoiceData) -> None:
    offer = pn.optimise_offer(pn.MNL().fit(data), CATALOGUE, [9, 2, 1, 1, 1], individual=INDIVIDUAL)
    assert (offer.labels, offer.value, offer.outside) == (("walk",), pytest.approx(9.0), None)


def test_constraints_hold_and_reduce_revenue(data: pn.ChoiceData) -> None:
    model = pn.PCMCNet(**NETWORK).fit(data, progress=False)
    free = pn.optimise_offer(model, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL)
    limits = pn.Constraints(size=(2, 2), always=["bike"])
    bound = pn.optimise_offer(
        model, CATALOGUE, "margin", outside="walk", individual=INDIVIDUAL, constraints=limits, current=["car", "bus"]
    )
    assert len(bound.labels) == 2
    assert "bike" in bound.labels
    assert bound.value <= free.value
    assert {*bound.added, *bound.dropped} == {*bound.labels} ^ {"car", "bus"}
    assert bound.current_value is not None
    assert "current offer" in str(bound)


def test_the_outside_option_of_a_model_needs_no_features() -> None:
    """Its row may be anywhere and have missing values; all offers are compared by predictions of the model."""
    table = trips(200, sizes=(3, 3), slope=-0.2)
    table["took"] = table["took"] * (table["trip"] % 4 > 0)  # no choice means the outside option
    data = read(table, alternative="mode", features=["price"], outside="none")
    catalogue = {
        "mode": ["car", "bus", "none", "bike"],
        "price": [9.0, 8.0, None, 12.0],
        "margin": [3.0, 2.0, 0.0, 5.0],
    }
    for model in (pn.MNL(formula="price"), pn.PCMCNet(**NETWORK)):
        model.fit(data, progress=False)
        offer = pn.optimise_offer(model, catalogue, "margin", outside="none")
        assert offer.exact
        price = dict(zip(catalogue["mode"], catalogue["price"], strict=True))
        rows = {"mode": list(offer.labels), "price": [price[label] for label in offer.labels]}
        p = model.predict_proba({**rows, "trip": [1] * len(offer.labels)})
        np.testing.assert_allclose(p[: len(offer.labels)], offer.probabilities, atol=1e-6)


def test_revenue_of_the_outside_option_counts(data: pn.ChoiceData) -> None:
    worth = {"walk": 7.0, "car": 1.0, "bus": 1.0, "train": 1.0, "bike": 1.0}
    offer = pn.optimise_offer(pn.MNL().fit(data), CATALOGUE, worth, outside="walk", individual=INDIVIDUAL)
    assert (offer.labels, offer.outside_revenue, offer.value) == ((), 7.0, pytest.approx(7.0))
    assert "outside option" in str(offer)


def test_losses_are_avoided_with_revenue_by_label(data: pn.ChoiceData) -> None:
    worth = {"car": 1.0, "bus": -5.0, "train": 1.0, "bike": -0.1}
    offer = pn.optimise_offer(pn.MNL().fit(data), CATALOGUE, worth, outside="walk", individual=INDIVIDUAL)
    assert set(offer.labels) == {"car", "train"}


def test_a_cautious_offer_is_judged_by_the_worst_members(data: pn.ChoiceData) -> None:
    model = pn.Ensemble(pn.PCMCNet(**NETWORK), n=4, resample=True).fit(data, progress=False)
    options = {"outside": "walk", "individual": INDIVIDUAL}
    mean = pn.optimise_offer(model, CATALOGUE, "margin", **options)
    worst = pn.optimise_offer(model, CATALOGUE, "margin", risk=0.25, **options)
    assert worst.value <= mean.value <= worst.bound * (1 + 1e-9)
    assert mean.best_for is not None
    assert 0.0 <= mean.best_for <= 1.0
    alone = [pn.optimise_offer(member, CATALOGUE, "margin", **options).value for member in model.members_]
    assert worst.value <= min(alone) * (1 + 1e-9)


def test_an_unseen_category_is_offered_like_any_other(data: pn.ChoiceData) -> None:
    model = pn.PCMCNet(**NETWORK).fit(data, progress=False)
    new = {
        **CATALOGUE,
        "mode": ["walk", "car", "bus", "train", "rocket"],
        "comfort": ["low", "high", "low", "odd", "low"],
    }
    offer = pn.optimise_offer(model, new, "margin", outside="walk", individual=INDIVIDUAL)
    assert offer.exact


def test_labels_can_be_a_feature() -> None:
    """A logit with constants only predicts 3, 2 and 1 in 6 choices: bus at 4 against walking gives 2 / 5 times 4."""
    table = {"trip": np.repeat(np.arange(6), 3), "mode": ["walk", "bus", "car"] * 6}
    chosen = np.array(["walk", "walk", "walk", "bus", "bus", "car"])
    data = read({**table, "took": table["mode"] == np.repeat(chosen, 3)}, alternative="mode", features=["mode"])
    catalogue = {"mode": ["walk", "bus", "car"], "margin": [0.0, 4.0, 1.0]}
    offer = pn.optimise_offer(pn.MNL().fit(data), catalogue, "margin", outside="walk")
    assert (offer.labels, offer.value) == (("bus",), pytest.approx(2 / 5 * 4, rel=1e-3))


def test_a_wrong_sign_is_noted() -> None:
    """The probability rises with the price in the first logit, and falls in the second one."""
    data = read(trips(40), features=["price"])
    catalogue = {"price": [3.0, 4.0, 5.0]}
    for coefficient, notes in ((0.2, 1), (-0.2, 0)):
        model = pn.MNL(formula="price", fixed={"price": coefficient}).fit(data, progress=False)
        sentences = tuple(model.sign_caveats.values())
        offer = pn.optimise_offer(model, catalogue, "price")
        assert offer.notes == sentences == pn.optimise_offers(model, catalogue, {"age": [30]}, "price").notes
        assert len(sentences) == notes
        frontier = pn.offer_frontier(model, catalogue, "price", sizes=(1, 2))
        for text in (str(offer), offer.to_markdown(), str(frontier)):
            assert text.count("rises with its price") == notes
        assert offer.to_dict()["notes"] == list(sentences)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"revenue": "margins"}, "revenue: no column 'margins'.* 'margin'"),
        ({"revenue": [1, 2]}, "revenue: expected 5 numbers, one for each alternative, got 2"),
        ({"revenue": [0, 1, float("nan"), 1, 1]}, "revenue of 'bus': expected a finite number, got nan"),
        ({"revenue": "comfort"}, "revenue: expected numbers, got 'low' for 'walk'"),
        ({"outside": "nothing"}, "'nothing' is not in the catalogue"),
        ({"individual": None}, "the model needs the individual-level columns income"),
        ({"individual": {"incom": 1}}, "individual: no value for 'income'.* 'incom'"),
        ({"individual": {"income": [1, 2]}}, "expected one individual, got 2: use optimise_offers"),
        ({"catalogue": {"mode": ["walk"], "price": [1.0]}}, "no column 'comfort', which the model needs"),
        ({"catalogue": {"mode": [], "price": [], "comfort": []}}, "the catalogue has no rows"),
        ({"current": [], "outside": None, "revenue": [0, 1, 1, 1, 1]}, "current: expected at least one label"),
        ({"risk": 0.5}, "risk needs the members of an ensemble"),
    ],
)
def test_bad_input_is_rejected(data: pn.ChoiceData, change: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"catalogue": CATALOGUE, "revenue": "margin", "individual": INDIVIDUAL, "outside": "walk"}
    with pytest.raises(InputError, match=message):
        pn.optimise_offer(pn.MNL().fit(data), **options | change)


def test_a_negative_time_limit_is_rejected(data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match="time_limit"):
        pn.optimise_offer(pn.MNL().fit(data), CATALOGUE, "margin", individual=INDIVIDUAL, time_limit=-1)


def test_each_of_many_individuals_gets_their_own_best_offer(data: pn.ChoiceData, tmp_path: Any) -> None:
    model = pn.PCMCNet(**NETWORK).fit(data, progress=False)
    people = {"income": np.linspace(20.0, 40.0, 7)}
    offers = pn.optimise_offers(model, CATALOGUE, people, "margin", outside="walk")
    assert len(offers) == 7
    for k, income in enumerate(people["income"]):
        alone = pn.optimise_offer(model, CATALOGUE, "margin", outside="walk", individual={"income": income})
        assert offers.values[k] == pytest.approx(alone.value, rel=1e-6)
    path = offers.write(tmp_path / "offers.parquet")

    assert pq.read_table(path).equals(offers.to_arrow())
    assert "7 individuals" in repr(offers)
    assert len(offers.to_frame()) == 7
