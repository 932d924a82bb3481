"""One contract for the data frames of all results: every result class has ``to_frame``, and an example here."""

import sys
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import ROLES, trips
from pcmcnet.data.catalogue_data import CatalogueData
from pcmcnet.datasets import market
from pcmcnet.evaluation.model_bootstrap import BootstrapResult
from pcmcnet.insight.context_effects import measure, search
from pcmcnet.insight.demand import demand
from pcmcnet.insight.feature_effects import category_effects
from pcmcnet.insight.importance import importance
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.formats import FormatsMixin, NotebookMixin, ReportPartMixin, Summary, SummaryMixin
from pcmcnet.reports.frames import FrameMixin
from pcmcnet.reports.tables import TableMixin
from pcmcnet.tuning.result import TrialRecord

pd = pytest.importorskip("pandas")

MIXINS = {FrameMixin, TableMixin, NotebookMixin, ReportPartMixin, FormatsMixin, SummaryMixin}
TABLES = {pn.ChoiceData, CatalogueData}  # tables of choices; see tests/data/test_long_table.py, test_catalogue_data.py


@pytest.fixture(scope="module")
def data() -> pn.ChoiceData:
    roles = {name: value for name, value in ROLES.items() if name not in ("weight", "available")}
    table = trips(40, slope=-0.2)
    table["kind"] = np.where(np.asarray(table["minutes"]) > np.median(table["minutes"]), "slow", "fast")
    return pn.ChoiceData.from_long(
        {k: v for k, v in table.items() if k != "open"}, **{**roles, "features": ["price", "minutes", "kind"]}
    )


@pytest.fixture(scope="module")
def results(data: pn.ChoiceData) -> dict[type, Any]:
    """Return one result of each class."""
    logit = pn.MNL(formula="price + minutes + kind | 0").fit(data, progress=False)
    network = pn.PCMCNet(hidden=(4,), epochs=1, members=1, weight_decay=0.0).fit(data, progress=False)
    factored = pn.PCMCNet(rank=2, hidden=(4,), epochs=1, members=1, weight_decay=0.0).fit(data, progress=False)
    smaller = pn.MNL(formula="price | 0").fit(data, progress=False)
    explanation = pn.explain(network, data, sets=10, baselines={"uniform": pn.Uniform()}, progress=False)
    scenario = pn.scenario(logit, data, "price *= 1.1 where mode == 'car'", revenue="price", cost="price")
    catalogue = {"mode": ["car", "bus"], "price": [2.0, 3.0], "minutes": [5.0, 4.0], "kind": ["slow", "fast"]}
    person = {"income": 1.0, "purpose": "work"}
    roles = {"choice_set": "market", "counts": "sales", "alternative": "product", "features": ["price", "cost"]}
    sales = pn.ChoiceData.from_long(market.simulate_shares(40, seed=0), **roles)
    responses = pn.elasticity(logit, data, "price")
    trial = TrialRecord(1, "complete", 1.0, {"hidden": (4, 4), "lr": 0.1}, None, 0.1, defaults=True)
    plan = pn.design({"price": [1, 2], "brand": ["a", "b", "c"]}, tasks=3, starts=1)
    mixed = pn.MixedMNL(formula="price | 0", random={"price": "normal"}, draws=10, starts=1).fit(data, progress=False)
    few = {"chains": 2, "burn_in": 10, "draws": 20, "thin": 1}
    hierarchical = pn.HierarchicalMNL(formula="price | 0", **few).fit(data, progress=False)
    numeric = pn.HierarchicalMNL(formula="price + minutes | 0", signs={"price": "-"}, **few).fit(data, progress=False)
    simulated = pn.market_shares(numeric, {**catalogue, "income": [1.0, 1.0], "purpose": ["work", "work"]})
    scaled = pn.MNL(formula="price + minutes | 0", scale="purpose").fit(data, progress=False)
    examples: list[Any] = [
        *(pn.evaluate(network, data, resamples=10), logit.summary(), logit.convergence(), explanation),
        *(getattr(explanation, part) for part in explanation._parts if part != "examples"),
        *(explanation.examples[0], explanation.examples[0].attribution, explanation.examples[0].chain),
        *(explanation.calibration.first, category_effects(logit, data, "kind", resamples=10)),
        *(
            importance(logit, data, repeats=1),
            search(network, data, limit=100),
            measure(logit, data, 0, 1, {"attraction": 2}),
        ),
        *(responses, responses.table(), responses.between(), pn.willingness_to_pay(logit, data, "minutes", "price")),
        *(logit.willingness_to_pay("minutes", "price"), logit.elasticities(data, "price")),
        *(demand(logit, data, "price", alternative="car"), pn.order_effects(network, data, 2)),
        *(scenario, scenario.shares, scenario.diversion, scenario.consumer_surplus, pn.submarkets(factored, data)),
        *(
            pn.optimise_offer(logit, catalogue, "price", individual=person),
            pn.optimise_prices(logit, catalogue, individual=person, starts=1),
        ),
        *(pn.offer_frontier(logit, catalogue, "price", sizes=[1, 2], individual=person),),
        pn.optimise_offers(logit, catalogue, {"income": [1.0], "purpose": ["work"]}, "price"),
        *(pn.likelihood_ratio(smaller, logit), pn.table([smaller, logit]), pn.delta(logit, "minutes / price")),
        pn.control_function(data, "price", instruments=["minutes"]),
        pn.berry_inversion(sales, instruments=["cost"]),
        *(pn.bootstrap_errors(logit, data, 5, progress=False), pn.compare({"mnl": logit}, data, 2, progress=False)),
        pn.leaderboard({"toy": data}, {"mnl": pn.MNL(), "uniform": pn.Uniform()}, folds=2, progress=False),
        pn.Tuning(logit, {"hidden": (4, 4), "lr": 0.1}, 1.0, [trial], {}, {}),
        *(mixed.tastes(), mixed.taste_covariance(), mixed.conditional(data), pn.swait_louviere(scaled, data)),
        *(hierarchical.chains(), hierarchical.part_worths(), pn.part_worth_table(numeric)),
        *(pn.willingness_to_pay_by_person(numeric, "price"), simulated, simulated.sensitivity("price")),
        *(plan, pn.design_power(plan, "price", respondents=[5], surveys=2)),
        BootstrapResult(
            labels=("x",),
            values=np.ones(1),
            draws=np.eye(3)[:, :1],
            failures={},
            unit="choice sets",
            n_units=3,
            level=0.95,
            kind="percentile",
            seed=0,
        ),
    ]
    return {type(result): result for result in examples}


def result_classes() -> set[type]:
    """Return the public classes of the package that have ``to_frame``."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "pcmcnet"]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {kind for kind in classes if kind.__module__.startswith("pcmcnet") and hasattr(kind, "to_frame")}


def test_every_result_has_an_example(results: dict[type, Any]) -> None:
    assert {kind.__name__ for kind in result_classes() - MIXINS - TABLES - set(results)} == set()


def test_every_result_that_prints_a_table_has_a_frame() -> None:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("pcmcnet.")]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    own = [kind for kind in classes if kind.__module__.startswith("pcmcnet")]
    # Classes that inherit the method from another package, such as configurations of Ray, are no results.
    shown = {kind for kind in own for base in kind.__mro__ if "_repr_html_" in vars(base) and base in own}
    tables = {kind for kind in shown if not issubclass(kind, ChoiceModel)}
    assert {kind.__name__ for kind in tables - result_classes()} == set()


def test_frames_have_named_columns_of_one_type(results: dict[type, Any]) -> None:
    for kind, result in results.items():
        frame = result.to_frame()
        assert isinstance(frame, pd.DataFrame), kind
        assert len(frame), kind
        assert frame.columns.is_unique, kind
        for name in frame.columns:
            types = {type(value) for value in frame[name] if value is not None and value == value}
            assert len(types) <= 1, (kind, name, types)


def test_a_frame_has_the_unrounded_numbers_of_its_result(results: dict[type, Any], data: pn.ChoiceData) -> None:
    report = results[pn.Report]
    assert report.to_frame().loc["nll", ["value", "low", "high", "uniform"]].tolist() == [
        report.nll,
        *report.intervals["nll"],
        report.uniform["nll"],
    ]
    table = pn.elasticity(pn.MNL(formula="price | 0").fit(data, progress=False), data, "price").table("mode")
    assert table.to_frame().set_index("segment").loc["car", "own"] == table["car"].own
    explanation = results[pn.Explanation]
    assert explanation.to_frame()["text"].tolist() == [finding.text for finding in explanation.findings]
    first = explanation.calibration.to_frame().query("curve == 'first'")
    assert first["predicted"].tolist() == explanation.calibration.first.predicted.tolist()


def test_frames_of_offers_and_prices_share_their_columns(results: dict[type, Any]) -> None:
    offer, prices = results[pn.Offer], results[pn.Prices]
    shared = ["alternative", "probability", "contribution"]
    assert set(shared) <= set(offer.to_frame()) & set(prices.to_frame())
    assert offer.to_frame()["contribution"].sum() == pytest.approx(offer.value, abs=1e-12)
    assert prices.to_frame()["contribution"].sum() == pytest.approx(prices.value, abs=1e-12)
    assert prices.to_frame()["contribution_before"].sum() == pytest.approx(prices.value_before, abs=1e-12)


def test_the_frame_of_an_offer_has_the_outside_option(data: pn.ChoiceData) -> None:
    model = pn.MNL(formula="price | 0").fit(data, progress=False)
    catalogue = {"mode": ["car", "bus"], "price": [2.0, 3.0], "minutes": [5.0, 4.0], "kind": ["slow", "fast"]}
    person = {"income": 1.0, "purpose": "work"}
    offer = pn.optimise_offer(model, catalogue, [0.0, 3.0], outside="car", individual=person)
    last = offer.to_frame().iloc[-1]
    assert (last["alternative"], last["probability"]) == ("outside option", offer.outside)


def test_the_numbers_of_a_summary_are_numbers(results: dict[type, Any]) -> None:
    frame = results[Summary].to_frame()
    assert frame["estimate"].dtype == float
    assert frame.iloc[:, 0].tolist() == ["price", "minutes", "kind[slow]"]
