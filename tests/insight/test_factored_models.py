"""Insight into PCMC-Nets with factored rates: the same interfaces and numbers as for the dense chain of their rates."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet import ChoiceData, PCMCNet, load
from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.insight.axioms import audit
from pcmcnet.insight.chain import chain
from pcmcnet.insight.context_effects import measure, search
from pcmcnet.insight.demand import demand
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.feature_effects import category_effects
from pcmcnet.insight.importance import importance
from pcmcnet.insight.preference_map import preference_map_in_set
from pcmcnet.insight.removals import attribution
from pcmcnet.layers import stationary_distribution

QUICK: dict[str, Any] = {
    "hidden": (6,),
    "activation": "tanh",  # derivatives of leaky_relu jump, so differences would not agree
    "epochs": 6,
    "batch_size": 8,
    "weight_decay": 0.01,
    "lr": 0.02,
}


class DenseChains:
    """The chains of a factored network, as a plain predictor: rates u v' of all pairs, solved in float64."""

    def __init__(self, model: PCMCNet) -> None:
        self.model = model

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        p = np.zeros(data.n_alternatives)
        shares = self.model.class_shares(data)
        for member in range(self.model.spec_.members):
            for k in range(shares.shape[1]):
                for positions, factors in self.model._factors(data, member, k):
                    u, v = factors.double().exp().unbind(1)
                    for s, rates in zip(positions.tolist(), u @ v.mT, strict=True):
                        n, inside = data.sizes[s], slice(data.offsets[s], data.offsets[s + 1])
                        weight = shares[s, k] / self.model.spec_.members
                        p[inside] += weight * stationary_distribution(rates[:n, :n]).numpy()
        log_p = np.full(data.n_rows, -np.inf)
        log_p[data.rows] = np.log(p)
        return log_p


@pytest.fixture(scope="module", params=["one chain", "average", "classes"])
def model(request: pytest.FixtureRequest, driven: ChoiceData) -> PCMCNet:
    """A network with three factors, an average of two such networks, or a mixture of two classes."""
    extra = {"one chain": {"members": 1}, "average": {"members": 2}, "classes": {"classes": 2, "by": "set"}}
    fitted: PCMCNet = PCMCNet(rank=3, **QUICK, **extra[request.param]).fit(driven, progress=False)
    return fitted


@pytest.fixture(scope="module")
def network(driven: ChoiceData) -> PCMCNet:
    fitted: PCMCNet = PCMCNet(rank=3, members=1, **QUICK).fit(driven, progress=False)
    return fitted


def large_set(data: ChoiceData) -> int:
    """Return the position of a set with four alternatives and a positive weight."""
    return int(np.flatnonzero((data.sizes == 4) & (data.weights > 0))[0])


def decoy_effects(model: Any, data: ChoiceData) -> list[float]:
    first = int(data.offsets[large_set(data)])
    table = measure(model, data, first, first + 1, {"attraction": first + 2, "similarity": first + 3})
    return [row.effect for row in table.effects]


def context_search(model: Any, data: ChoiceData) -> list[float]:
    result = search(model, data)
    return [result.mean, *(case.by_removing for case in result.cases[:3])]


def market(model: Any, data: ChoiceData) -> list[float]:
    result = pn.scenario(model, data, "price *= 1.2 where mode == 'car'", intervals=False)
    return [*(row.after for row in result.shares.rows), *(row.ratio for row in result.diversion.rows)]


def without_bus(model: Any, data: ChoiceData) -> list[float]:
    return [row.after for row in pn.scenario(model, data, "remove bus", intervals=False).shares.rows]


def map_of_shares(model: Any, data: ChoiceData) -> Floats:
    first = int(data.offsets[large_set(data)])
    return preference_map_in_set(model, data, first, first + 1, first + 2, ("price", "time"), cells=3).preference


def order_terms(model: Any, data: ChoiceData) -> list[float]:
    return [row.contribution for row in pn.order_effects(model, data, least=0.0).orders]


def importances(model: Any, data: ChoiceData) -> list[float]:
    return [row.value for row in importance(model, data, ["price", "time"], repeats=2).rows]


# Functions of a model and a table, and the tolerance. The network computes its factors in float32, so log-probabilities
# have errors of about 1e-6; differences divide them by a step of about 1e-3.
INTERFACES: dict[str, tuple[Callable[[Any, ChoiceData], Any], float]] = {
    "probabilities": (lambda m, d: np.exp(m.predict_log_proba(d)), 1e-6),
    "metrics": (lambda m, d: pn.evaluate(m, d).nll, 1e-6),
    "elasticities": (lambda m, d: elasticity(m, d, "price").own, 5e-3),
    "elasticities of an individual-level column": (lambda m, d: elasticity(m, d, "income").values, 5e-3),
    "demand": (lambda m, d: demand(m, d, "price", alternative="car").shares, 1e-5),
    "scenario and diversion": (market, 1e-3),
    "scenario without an alternative": (without_bus, 1e-5),
    "context effects": (decoy_effects, 1e-5),
    "strongest context effects": (context_search, 1e-4),
    "orders of context effects": (order_terms, 1e-4),
    "attribution": (lambda m, d: attribution(m, d, d.set_ids[large_set(d)]).push, 1e-5),
    "importance": (importances, 1e-5),
    "effects of categories": (lambda m, d: [row.share for row in category_effects(m, d, "comfort").rows], 1e-5),
    "map of shares": (map_of_shares, 1e-5),
}


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_factored_model_gives_the_numbers_of_its_dense_chain(
    interface: str, model: PCMCNet, driven: ChoiceData
) -> None:
    compute, tolerance = INTERFACES[interface]
    numbers, expected = (np.asarray(compute(each, driven), np.float64) for each in (model, DenseChains(model)))
    assert expected.size
    np.testing.assert_allclose(numbers, expected, rtol=tolerance, atol=tolerance)


def test_context_effects_are_not_all_zero(model: PCMCNet, driven: ChoiceData) -> None:
    """Otherwise the comparisons above would also hold for a logit."""
    assert search(model, driven).mean > 1e-3


def test_rates_and_flows_are_products_of_factors(network: PCMCNet, driven: ChoiceData) -> None:
    s = large_set(driven)
    one = driven.subset([s])
    ((_, factors),) = network._factors(one, 0, 0)
    u, v = factors[0].double().exp().numpy()
    rates = u @ v.T
    np.fill_diagonal(rates, 0.0)
    (returned,) = network.rates(one)
    np.testing.assert_allclose(returned, rates / rates.max(), rtol=1e-5)  # float32
    # Flows of submarkets are those of the chain, up to moves that return and the unit of time.
    of_pairs, by_factor = chain(network, driven, driven.set_ids[s]), pn.submarkets(network, one)
    assert by_factor.flows is not None
    assert one.labels is not None
    order = [by_factor.alternatives.index(label) for label in of_pairs.labels]
    flows = by_factor.flows.sum(0)[np.ix_(order, order)]
    np.fill_diagonal(flows, 0.0)
    np.testing.assert_allclose(flows / flows.sum(), of_pairs.flows / of_pairs.flows.sum(), rtol=1e-5)  # float32


def test_a_factored_model_is_explained_and_audited(network: PCMCNet, driven: ChoiceData) -> None:
    explanation = pn.explain(network, driven, sets=10, progress=False)
    assert {"elasticities", "context", "importance"} <= {finding.part for finding in explanation.findings}
    assert explanation.axioms is not None
    violations = {finding.axiom: finding.violations for finding in audit(network, driven).findings}
    assert violations["uniform expansion"] == 0


def test_statistics_of_a_factored_model_are_bootstrapped(network: PCMCNet, driven: ChoiceData) -> None:
    def statistic(fitted: Any) -> dict[str, float]:
        shares = pn.scenario(fitted, driven, "price *= 1.2 where mode == 'car'", intervals=False).shares
        return {"car": shares["car"].change, "switches": float(pn.submarkets(fitted, driven).switches.mean())}

    result = pn.bootstrap(network, driven, statistic, replicates=3, progress=False)
    assert result.labels == ("car", "switches")
    np.testing.assert_allclose(result.values, list(statistic(network).values()), rtol=1e-12)
    assert (result.draws.std(0) > 0).all()


def test_a_loaded_model_gives_the_same_numbers(model: PCMCNet, driven: ChoiceData, tmp_path: Any) -> None:
    loaded: Any = load(model.save(tmp_path / "model"))
    for interface in ("elasticities", "scenario and diversion", "strongest context effects"):
        compute, _ = INTERFACES[interface]
        np.testing.assert_array_equal(compute(loaded, driven), compute(model, driven))


def test_the_rank_may_exceed_the_number_of_alternatives(driven: ChoiceData) -> None:
    model = PCMCNet(rank=9, members=1, **QUICK).fit(driven, progress=False)
    compute, tolerance = INTERFACES["elasticities"]
    np.testing.assert_allclose(compute(model, driven), compute(DenseChains(model), driven), tolerance, tolerance)
    result = pn.submarkets(model, driven)
    assert result.rank == 9 > driven.sizes.max()
    assert result.choices.sum() == pytest.approx(1, rel=1e-10)
    assert len(result.to_frame()) == 9


# -- Large sets --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unlabelled(make_driven: Callable[..., ChoiceData]) -> PCMCNet:
    fitted: PCMCNet = PCMCNet(rank=3, members=1, **QUICK).fit(make_driven(labels=False), progress=False)
    return fitted


def many_sets(model: PCMCNet, sets: int, size: int) -> ChoiceData:
    rng, n = np.random.default_rng(0), sets * size
    table = {
        "trip": np.repeat(np.arange(sets), size),
        "price": rng.uniform(1, 9, n),
        "time": rng.uniform(9, 60, n),
        "noise": rng.normal(size=n),
        "comfort": rng.choice(["low", "high"], n),
        "income": np.full(n, 30.0),
        "purpose": np.full(n, "work"),
    }
    return ChoiceData.from_schema(table, model.schema.for_prediction())


def test_numbers_for_all_pairs_of_a_large_set_are_refused(unlabelled: PCMCNet) -> None:
    """A set of 100,000 alternatives has 10^10 pairs, which would take 80 GB in float64."""
    large = many_sets(unlabelled, 1, 100_000)
    rates = r"rates of all pairs of alternatives would take 80\.0 GB for 1 choice set of up to 100,000 alternatives"
    for compute in (
        unlabelled.rates,
        unlabelled.class_rates,
        unlabelled.fixed_chains,
        lambda data: chain(unlabelled, data, 0),
    ):
        with pytest.raises(InputError, match=rates + r".*data\.subset\(\[0\]\)\. pn\.submarkets describes"):
            compute(large)
    for method in ("auto", "derivatives", "differences"):
        with pytest.raises(InputError, match=r"derivatives of all pairs .* 80\.0 GB.*pn\.scenario"):
            elasticity(unlabelled, large, "price", method=method)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"probabilities without each rival of all pairs .* 80\.0 GB"):
        attribution(unlabelled, large, 0, "#1")


def test_many_sets_with_too_many_pairs_are_refused(unlabelled: PCMCNet, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 sets of 100 alternatives and one chain: 20 * 100^2 = 200,000 pairs."""
    monkeypatch.setattr("pcmcnet.data.columns.ragged.MAX_PAIRS", 199_999)
    data = many_sets(unlabelled, 20, 100)
    with pytest.raises(InputError, match="for 20 choice sets of up to 100 alternatives"):
        unlabelled.rates(data)
    assert len(unlabelled.rates(data.subset(range(19)))) == 19


def test_linear_interfaces_take_large_sets(unlabelled: PCMCNet) -> None:
    large = many_sets(unlabelled, 1, 20_000)
    p = unlabelled.predict_proba(large)
    assert p.sum() == pytest.approx(1, rel=1e-5)  # float32
    assert pn.submarkets(unlabelled, large).probabilities.sum() == pytest.approx(1, rel=1e-10)
    dearer = pn.scenario(unlabelled, large, "price *= 1.1 where price < 5", by="comfort", intervals=False)
    assert sum(row.after for row in dearer.shares.rows) == pytest.approx(1, rel=1e-5)  # float32
