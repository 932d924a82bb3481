"""Fits to sampled alternatives: corrected likelihoods, and predictions and evaluations on full sets."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import pcmcnet as pn
from pcmcnet.arrays import Floats
from pcmcnet.data import CatalogueData, ChoiceData
from pcmcnet.data.encoder import learn_encoder
from pcmcnet.datasets import catalogue
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation import hausman_mcfadden
from pcmcnet.insight.chain import chain
from pcmcnet.models import KINDS
from pcmcnet.models.networks.chain_network import ChainNetwork
from pcmcnet.models.networks.factored_network import FactoredMixture, FactoredNetwork
from pcmcnet.models.networks.pairwise_network import ChainMixture, PCMCNetwork
from pcmcnet.models.networks.starting_values import start_as_logit
from pcmcnet.models.pcmcnet import PCMCNetConfig
from quick_models import QUICK

ROLES: dict[str, Any] = {
    "item": "id",
    "chosen": "item",
    "individual": ["income"],
    "features": ["price", "quality", "department"],
    "pair_features": {"distance": catalogue.distance},
}


def visits(items: int = 40, choosers: int = 60, rank: int = 2, **roles: Any) -> tuple[CatalogueData, Floats]:
    """Return simulated choosers and a catalogue, and the true probabilities of all pairs."""
    truth = catalogue.random_catalogue(items=items, rank=rank, context=0.5, seed=1)
    table = truth.simulate(choosers, seed=2)
    data = ChoiceData.from_catalogue(table, truth.catalogue, **{**ROLES, **roles})
    return data, truth.probabilities(table).ravel()


# -- Logits ------------------------------------------------------------------------------------------------------------


def many_shops(choosers: int = 4_000) -> ChoiceData:
    """Return choices from 60 shops with utility 1.0 size - 0.5 price + 1.0 [market]; one shop in six is a market."""
    rng = np.random.default_rng(0)
    n = 60
    is_market = np.arange(n) % 6 == 0
    size, price = rng.standard_normal((2, choosers, n))
    u = size - 0.5 * price + is_market + rng.gumbel(size=(choosers, n))
    table = {
        "visit": np.repeat(np.arange(choosers), n),
        "went": (u == u.max(1, keepdims=True)).ravel().astype(int),
        "shop": np.tile(np.arange(n), choosers),
        "kind": np.where(np.tile(is_market, choosers), "market", "corner"),
        "size": size.ravel(),
        "price": price.ravel(),
    }
    roles: dict[str, Any] = {"alternative": "shop", "features": ["size", "price", "kind"]}
    return ChoiceData.from_long(table, choice_set="visit", chosen="went", **roles)


@pytest.fixture(scope="module")
def shops() -> ChoiceData:
    return many_shops()


def estimates(sample: ChoiceData) -> dict[str, tuple[float, float]]:
    """Return the estimate and the standard error of each coefficient."""
    model = pn.MNL(formula="size + price + kind | 0").fit(sample)
    errors = np.sqrt(np.diag(model.estimates_.covariance("classical")))
    return dict(zip(model.estimates_.names, zip(model.estimates_.values, errors, strict=True), strict=True))


@pytest.mark.parametrize("by", ["uniform", "kind", "popularity"])
def test_a_logit_recovers_its_coefficients_from_a_sample(shops: ChoiceData, by: str) -> None:
    """The true coefficients are 1, -.5 and 1. Estimates of all three are within four standard errors."""
    values = estimates(shops.sample_alternatives(8, by=by, seed=1))
    for (estimate, error), true in zip(values.values(), (1.0, -0.5, 1.0), strict=True):
        assert abs(estimate - true) < 4 * error


def test_without_the_correction_a_logit_learns_how_alternatives_were_drawn(shops: ChoiceData) -> None:
    """Four of 10 markets and four of 50 corner shops: without the correction, the coefficient is log(5) too low."""
    sample = shops.sample_alternatives(8, by="kind", seed=1)
    corrected = estimates(sample)["kind[market]"]
    plain = estimates(replace(sample, expansion=None))["kind[market]"]
    assert plain[0] == pytest.approx(corrected[0] - np.log(5), abs=1e-6)


def test_samples_by_popularity_are_corrected_on_average() -> None:
    """Twenty samples of one table: the mean estimate is within four standard errors of that of the full sets."""
    data = many_shops(1_000)
    full = estimates(data)
    samples = [estimates(data.sample_alternatives(6, by="popularity", seed=seed)) for seed in range(20)]
    for name, (expected, _) in full.items():
        each = np.array([sample[name][0] for sample in samples])
        assert abs(each.mean() - expected) < 4 * each.std(ddof=1) / np.sqrt(len(each)) + 0.02  # a bias of order 1 / S


def test_the_null_log_likelihood_is_that_of_equal_utilities(shops: ChoiceData) -> None:
    """With equal utilities, the choice has the probability W_chosen / sum W."""
    sample = shops.sample_alternatives(8, by="kind", seed=1)
    assert sample.expansion is not None
    chosen = sample.expansion[sample.offsets[:-1] + sample.require_chosen("a test")]
    expected = np.log(chosen / np.add.reduceat(sample.expansion, sample.offsets[:-1])).sum()
    model = pn.MNL(formula="size + price + kind | 0").fit(sample)
    assert model.estimates_.null_log_likelihood == pytest.approx(expected)


def test_nonlinear_utilities_are_corrected(shops: ChoiceData) -> None:
    """With a Box-Cox exponent that is fixed at 1, the utility and all estimates are those of a linear one."""
    sample = shops.subset(np.arange(1_000)).sample_alternatives(8, by="kind", seed=1)
    size = replace(sample.features["size"], values=np.exp(sample.features["size"].plain()).astype(np.float32))
    sample = replace(sample, features={**sample.features, "size": size})
    linear = pn.MNL(formula="size + price + kind | 0").fit(sample)
    power = pn.MNL(formula="boxcox(size) + price + kind | 0", fixed={"lambda[size]": 1.0}).fit(sample)
    np.testing.assert_allclose(power.estimates_.log_likelihood, linear.estimates_.log_likelihood, rtol=1e-9)


def test_classes_with_equal_coefficients_are_a_logit(shops: ChoiceData) -> None:
    """A latent class logit whose only class is a logit has the corrected likelihood of the logit."""
    sample = shops.subset(np.arange(400)).sample_alternatives(8, by="kind", seed=1)
    logit = pn.MNL(formula="size + price + kind | 0").fit(sample)
    classes = pn.LatentClassMNL(formula="size + price + kind | 0", classes=2, starts=2).fit(sample, seed=0)
    assert classes.estimates_.log_likelihood >= logit.estimates_.log_likelihood
    assert classes.estimates_.null_log_likelihood == logit.estimates_.null_log_likelihood
    assert classes.estimates_.log_likelihood < logit.estimates_.log_likelihood + 20


# -- Networks ----------------------------------------------------------------------------------------------------------


def with_copies(data: ChoiceData, copies: Any) -> ChoiceData:
    """Return choice sets that contain each alternative several times. The choice is its first copy."""
    flat = np.repeat(np.arange(len(copies)), copies)
    first = np.append(0, np.cumsum(copies))
    offsets = first[data.offsets]
    chosen = first[data.offsets[:-1] + data.require_chosen("a test")] - offsets[:-1]
    features = {name: column.take(flat) for name, column in data.features.items()}
    return replace(data, features=features, offsets=offsets, chosen=chosen, rows=np.arange(len(flat)))


def random_network(kind: type[ChainNetwork], data: ChoiceData, **options: Any) -> tuple[ChainNetwork, Any]:
    encoder = learn_encoder(data, labels=False)
    rank = {"rank": 3} if issubclass(kind, FactoredNetwork) else {}
    classes = {"classes": 2} if kind in (FactoredMixture, ChainMixture) else {}
    network: ChainNetwork = kind(encoder, PCMCNetConfig(hidden=(7,), **options), **rank, **classes)
    generator = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.4, generator=generator)
    return network.double().eval(), encoder


def log_p(network: ChainNetwork, encoder: Any, data: ChoiceData) -> torch.Tensor:
    batch = encoder.encode(data).batch(np.arange(len(data)))
    names = ("numeric", "individual_numeric", "weight", "log_expansion")
    double = {name: getattr(batch, name).double() for name in names if getattr(batch, name) is not None}
    values: torch.Tensor = network(replace(batch, **double))
    return values.gather(1, batch.chosen.unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (FactoredNetwork, {}),
        (FactoredNetwork, {"utility": "none"}),
        (FactoredMixture, {}),
        (PCMCNetwork, {}),
        (PCMCNetwork, {"utility": "none"}),
        (PCMCNetwork, {"utility": "none", "rate": "relu", "epsilon": 0.5}),
        (ChainMixture, {}),
    ],
    ids=str,
)
def test_an_alternative_with_factor_w_counts_as_w_copies(kind: type[ChainNetwork], options: dict[str, Any]) -> None:
    """Copies share the probability of their alternative: log p of the choice is log p of its first copy + log W."""
    data = visits()[0].read().subset(np.arange(6))
    copies = np.random.default_rng(0).integers(1, 4, size=data.n_alternatives)
    network, encoder = random_network(kind, data, **options)
    counted = log_p(network, encoder, replace(data, expansion=copies.astype(float)))
    copied = log_p(network, encoder, with_copies(data, copies))
    chosen = copies[data.offsets[:-1] + data.require_chosen("a test")]
    torch.testing.assert_close(counted, copied + torch.from_numpy(np.log(chosen)), rtol=1e-6, atol=1e-6)  # W in float32
    assert not torch.allclose(counted, log_p(network, encoder, data), atol=0.01)


def test_equal_factors_of_a_whole_set_change_nothing() -> None:
    data = visits()[0].read().subset(np.arange(6))
    for kind in (FactoredNetwork, PCMCNetwork):
        network, encoder = random_network(kind, data)
        equal = log_p(network, encoder, replace(data, expansion=np.full(data.n_alternatives, 7.0)))
        torch.testing.assert_close(equal, log_p(network, encoder, data), rtol=1e-9, atol=1e-9)


def test_the_logit_inside_starts_from_the_corrected_estimate(shops: ChoiceData) -> None:
    """The start of a network with strong weight decay is a logit.

    In stratified samples, the difference of two constants is log(5) too low. The prior draws both estimates towards 0.
    """
    sample = shops.subset(np.arange(1_000)).sample_alternatives(8, by="kind", seed=1)
    encoder = learn_encoder(sample, labels=False)
    gaps = []
    for data in (sample, replace(sample, expansion=None)):
        network = FactoredNetwork(encoder, PCMCNetConfig(hidden=(7,)), rank=2)
        assert network.utility is not None
        start_as_logit(network.utility, encoder.encode(data))
        constants = network.utility.constants[0].detach().flatten()
        gaps.append(abs(float(constants[2] - constants[1])))
    assert gaps[0] + gaps[1] == pytest.approx(np.log(5), abs=0.1)  # one is about 1, and the other 1 - log(5)


# -- Predictions and evaluations on full sets --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def catalogue_fit() -> tuple[pn.PCMCNet, CatalogueData, Floats]:
    """Fit to samples of 10 of 40 items."""
    data, truth = visits(choosers=600)
    model = pn.PCMCNet(rank=2, hidden=(8,), epochs=6, weight_decay=0.1, members=1)
    return model.fit(data.sample_alternatives(10, seed=0), seed=0, progress=False), data, truth


def test_a_fit_to_a_sample_predicts_and_evaluates_full_sets(
    catalogue_fit: tuple[pn.PCMCNet, CatalogueData, Floats], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalogue is processed in chunks, with the same results as the product in memory."""
    model, data, truth = catalogue_fit
    product = data.read()
    monkeypatch.setattr("pcmcnet.data.catalogue_data.CHUNK_ALTERNATIVES", 1_000)
    assert len(list(data.chunks())) > 10
    np.testing.assert_allclose(model.predict_proba(data), model.predict_proba(product), rtol=1e-5)
    np.testing.assert_allclose(model.chosen_probabilities(data), model.chosen_probabilities(product), rtol=1e-5)
    assert model.score(data) == pytest.approx(model.score(product))
    rows = model.predict(product)
    assert model.predict(data).tolist() == data.ids_of_rows(rows).tolist()
    actual, expected = (pn.evaluate(model, each, truth=truth, resamples=0) for each in (data, product))
    assert (actual.nll, actual.kl) == pytest.approx((expected.nll, expected.kl), rel=1e-5)
    assert actual.values == pytest.approx(expected.values, rel=1e-4)
    uniform = pn.evaluate(pn.Uniform().fit(product), data, truth=truth, resamples=0)
    assert actual.kl is not None
    assert uniform.kl is not None
    assert actual.kl < 0.5 * uniform.kl


def test_summaries_say_that_alternatives_are_sampled(
    catalogue_fit: tuple[pn.PCMCNet, CatalogueData, Floats], tmp_path: Any
) -> None:
    model = catalogue_fit[0]
    assert "600 choice sets, 6,000 sampled alternatives" in str(model.summary())
    model.save(tmp_path / "model")
    assert pn.load(tmp_path / "model").table_.sampled is True


def test_truth_of_a_catalogue_needs_one_value_per_pair(
    catalogue_fit: tuple[pn.PCMCNet, CatalogueData, Floats],
) -> None:
    model, data, truth = catalogue_fit
    with pytest.raises(InputError, match="24000 table rows, got shape"):
        pn.evaluate(model, data, truth=truth[1:])


def test_small_catalogues_are_explained_and_compared_like_tables(
    catalogue_fit: tuple[pn.PCMCNet, CatalogueData, Floats],
) -> None:
    model, data, _ = catalogue_fit
    part, large = data.subset(np.arange(20)), replace(data, max_bytes=1_000)
    product = part.read()
    assert str(pn.submarkets(model, part)) == str(pn.submarkets(model, product))
    assert str(pn.scenario(model, part, "price *= 1.1")) == str(pn.scenario(model, product, "price *= 1.1"))
    assert str(chain(model, part, 0)) == str(chain(model, product, 0))
    options: dict[str, Any] = {"fitted": {"network": model}, "resamples": 0, "progress": False}
    comparisons = [pn.compare({"uniform": pn.Uniform()}, each, test=each, **options) for each in (part, product)]
    assert comparisons[0].to_markdown() == comparisons[1].to_markdown()
    explanations = [pn.explain(model, each, skip=("elasticities", "trade_offs", "axioms")) for each in (part, product)]
    assert explanations[0].summary() == explanations[1].summary()
    for call in (pn.submarkets, pn.explain):
        with pytest.raises(InputError, match=r"all choice sets are needed in memory.*data\.subset"):
            call(model, large)


def test_samples_are_neither_predicted_nor_evaluated(
    catalogue_fit: tuple[pn.PCMCNet, CatalogueData, Floats],
) -> None:
    model, data, _ = catalogue_fit
    sample = data.sample_alternatives(10)
    for call in (model.predict_proba, model.predict, model.score, model.chosen_probabilities):
        with pytest.raises(InputError, match="needs choice sets with all alternatives"):
            call(sample)
    with pytest.raises(InputError, match="an evaluation needs choice sets with all alternatives"):
        pn.evaluate(model, sample)
    with pytest.raises(InputError, match="needs choice sets with all alternatives"):
        pn.compare({"network": model, "uniform": pn.Uniform()}, sample)
    with pytest.raises(InputError, match="a chain needs choice sets with all alternatives"):
        chain(model, sample, 0)
    logit = pn.MNL(formula="price + distance | 0").fit(sample)
    with pytest.raises(InputError, match="needs choice sets with all alternatives"):
        hausman_mcfadden(logit, sample, without="3")


def test_validation_sets_may_be_full(catalogue_fit: tuple[pn.PCMCNet, CatalogueData, Floats]) -> None:
    """Validation on full sets measures what an evaluation measures."""
    data = catalogue_fit[1]
    train, valid = data.split((0.8, 0.2), seed=0)
    model = pn.PCMCNet(rank=2, hidden=(8,), epochs=2, weight_decay=0.1, members=1)
    model.fit(train.sample_alternatives(10), valid, seed=0, progress=False)
    assert min(entry["valid_loss"] for entry in model.history) == pytest.approx(-model.score(valid), rel=1e-4)


# -- Models without a correction ---------------------------------------------------------------------------------------


CORRECTED = {"pcmcnet", "mnl", "lc-mnl"}
AROUND_ANOTHER = {"ensemble", "calibrated", "stacking", "with-constants"}


@pytest.mark.parametrize("name", sorted(set(KINDS) - CORRECTED - AROUND_ANOTHER))
def test_other_models_need_full_sets(name: str) -> None:
    """A fit that ignored the factors would be biased without a message."""
    sample = visits(labels=True)[0].sample_alternatives(10, by="department")
    options = {"rank-by": {"column": "price"}, "nested-mnl": {"nests": {"0": "a", "1": "a"}}}
    options["cross-nested-mnl"] = {"nests": {"a": ["0", "1"], "b": ["1", "2"]}}
    model = KINDS[name](**options.get(name, QUICK.get(name, {})))
    with pytest.raises(ConfigError, match="sampled alternatives"):
        model.fit(sample, progress=False)


def test_an_ensemble_needs_full_sets() -> None:
    sample = visits()[0].sample_alternatives(10)
    with pytest.raises(ConfigError, match="Ensemble does not correct for sampled alternatives"):
        pn.Ensemble(model="pcmcnet", n=2).fit(sample, progress=False)


def test_a_mixed_logit_accepts_factors_that_are_equal_within_sets(shops: ChoiceData) -> None:
    """A constant that is added to all utilities of a set changes no probability of a mixed logit either."""
    data = shops.subset(np.arange(100))
    model = pn.MixedMNL(formula="size + price | 0", random={"size": "normal"}, draws=16)
    sample = data.sample_alternatives(8, seed=0)
    model.fit(sample, progress=False)
    plain = pn.MixedMNL(formula="size + price | 0", random={"size": "normal"}, draws=16)
    plain.fit(replace(sample, expansion=None), progress=False)
    np.testing.assert_allclose(model.estimates_.values, plain.estimates_.values, rtol=1e-6)
    with pytest.raises(ConfigError, match="by='uniform'"):
        model.fit(data.sample_alternatives(8, by="kind"), progress=False)


def test_a_large_catalogue_is_not_fitted_as_a_whole() -> None:
    data = replace(visits()[0], max_bytes=1_000)
    with pytest.raises(ConfigError, match=r"60 choosers and 40 items have 2,400 alternatives.*sample_alternatives"):
        pn.PCMCNet().fit(data)


def test_a_small_catalogue_is_fitted_as_a_whole() -> None:
    data = visits()[0]
    formula = "price + distance | 0"
    whole, product = pn.MNL(formula=formula).fit(data), pn.MNL(formula=formula).fit(data.read())
    assert whole.coefficients == product.coefficients
