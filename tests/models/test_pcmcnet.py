import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.errors import ConfigError, InputError, SchemaError
from pcmcnet.layers import stationary_distribution
from pcmcnet.models import MNL, PCMCNet
from pcmcnet.models.networks.averaged_members import NetworkSpec
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.models.pcmcnet import PCMCNetConfig
from pcmcnet.training.config import TrainConfig

MakeTrips = Callable[..., pa.Table]
MakeMlba = Callable[..., ChoiceData]


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("hidden", 64, r"hidden must be a list of widths such as \(64, 64\), got 64"),
        ("hidden", "64,64", r"hidden must be a list of widths such as \(64, 64\), got '64,64'"),
        ("hidden", (64, 0), r"hidden must be a whole number of at least 1, got 0"),
        ("hidden", (6.5,), r"hidden must be a whole number of at least 1, got 6.5"),
        ("dropout", 1.0, r"dropout must be a number of at least 0 and below 1, got 1.0"),
        ("dropout", -0.1, r"dropout must be a number of at least 0 and below 1, got -0.1"),
        ("epsilon", -1.0, r"epsilon must be a number of at least 0, got -1.0"),
        ("epsilon", math.nan, r"epsilon must be a number of at least 0, got nan"),
        ("activation", "leaky", r"unknown activation 'leaky'. Did you mean 'leaky_relu'\?"),
        ("initialisation", "saef", r"unknown initialisation 'saef'. Did you mean 'safe'\?"),
        ("utility", "liner", r"unknown utility 'liner'. Did you mean 'linear'\?"),
        ("labels", "yes", r"labels must be true or false, got 'yes'"),
        ("precision", "float16", r"unknown precision 'float16'. Did you mean 'bfloat16'\?"),
        ("rate", "softpus", r"unknown rate 'softpus'. Did you mean 'softplus'\?"),
        ("epochs", 0, r"epochs must be a whole number of at least 1, got 0"),
        ("hiden", (3,), r"unknown option 'hiden'. Did you mean 'hidden'\?"),
    ],
)
def test_an_invalid_option_is_refused_by_name(option: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PCMCNet(**{option: value})


def test_relu_rates_need_an_epsilon() -> None:
    with pytest.raises(ConfigError, match=r"rate='relu' needs epsilon > 0.*The paper uses 0.5"):
        PCMCNet(rate="relu", epsilon=0.0)


def test_widths_are_stored_as_a_tuple() -> None:
    assert PCMCNet(hidden=[16, 8]).config.hidden == (16, 8)
    assert PCMCNet(hidden=[]).config.hidden == ()


def test_options_include_those_of_training() -> None:
    assert issubclass(PCMCNetConfig, TrainConfig)
    assert PCMCNet(lr=0.3, hidden=(5,)).config == PCMCNetConfig(lr=0.3, hidden=(5,))


def test_the_papers_settings_are_the_published_ones() -> None:
    """Section 5.1 and its footnote; the stopping rule is that of section 6. Other options override the preset."""
    config = PCMCNet.paper().config
    assert config.hidden == (16, 16, 16)
    assert (config.rate, config.epsilon, config.initialisation) == ("relu", 0.5, "paper")
    assert (config.activation, config.dropout, config.precision) == ("leaky_relu", 0.0, "float32")
    assert (config.utility, config.labels, config.tails) == ("none", False, "keep")
    assert (config.epochs, config.batch_size, config.lr, config.schedule) == (100, 1, 0.001, "constant")
    assert (config.warmup, config.weight_decay, config.clip) == (0.0, 0.0, 0.0)
    assert (config.patience, config.min_delta) == (5, 0.01)
    airline = PCMCNet.paper(hidden=[512, 512], batch_size=16, dropout=0.5, epochs=66).config
    assert (airline.hidden, airline.batch_size, airline.dropout, airline.epochs) == ((512, 512), 16, 0.5, 66)


# -- size ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layers", "expected"), [(1, 97), (2, 369), (3, 641)])
def test_the_number_of_parameters_is_that_of_the_paper(
    layers: int, expected: int, make_mlba: MakeMlba, quick: dict[str, Any]
) -> None:
    """4 x 16 + 16 for the pair of two features each, 16 x 16 + 16 for each further layer, 16 + 1 at the end."""
    options = quick | {"hidden": (16,) * layers, "epochs": 1, "utility": "none"}
    model = PCMCNet(**options).fit(make_mlba(8), progress=False)
    assert model.num_parameters == expected


def test_the_preset_has_the_weights_of_the_papers_network(trips: ChoiceData) -> None:
    """Labels are declared but not used: comfort and purpose have embeddings. One layer of 16 has 2 + 4 + 4 inputs."""
    model = PCMCNet.paper((16,), epochs=1).fit(trips, progress=False)
    shapes = {name: tuple(p.shape) for name, p in model.network_.named_parameters()}
    assert shapes == {
        "individual.embeddings.0.weight": (3, 1),
        "alternative.embeddings.0.weight": (4, 2),
        "rates.who.weight": (16, 2),
        "rates.leave.weight": (16, 4),
        "rates.enter.weight": (16, 4),
        "rates.enter.bias": (16,),
        "rates.layers.0.weight": (1, 16),
        "rates.layers.0.bias": (1,),
    }
    assert model.network_.prior_weights == []
    assert model.record_.decay_search is None


def test_every_column_has_its_weights(fitted: PCMCNet) -> None:
    """Purpose has 2 categories: 1 wide; comfort 3: 2 wide; mode 5: 3 wide. Inputs: 1 + 1 and 2 + 2 + 3."""
    shapes = {name: tuple(p.shape) for name, p in fitted.network_.named_parameters()}
    assert shapes == {
        "individual.embeddings.0.weight": (3, 1),
        "alternative.embeddings.0.weight": (4, 2),
        "alternative.embeddings.1.weight": (6, 3),
        "rates.who.weight": (8, 2),
        "rates.leave.weight": (8, 7),
        "rates.enter.weight": (8, 7),
        "rates.enter.bias": (8,),
        "rates.layers.0.weight": (1, 8),
        "rates.layers.0.bias": (1,),
        "utility.constants.0": (4, 1),
        "utility.constants.1": (6, 1),
        "utility.slopes": (2,),
        "utility.worth": (7,),
        "utility.taste": (7, 2),
    }


def test_a_network_may_have_no_hidden_layer(make_mlba: MakeMlba, quick: dict[str, Any]) -> None:
    """A single neuron has 2 + 2 weights and a bias."""
    model = PCMCNet(**quick | {"hidden": (), "utility": "none"}).fit(make_mlba(20), progress=False)
    assert model.num_parameters == 5


# -- probabilities -------------------------------------------------------------------------------------------------


def test_probabilities_sum_to_1_over_the_available_rows_of_a_set(
    fitted: PCMCNet, make_trips: MakeTrips, roles: dict[str, Any]
) -> None:
    table = make_trips(seed=5)
    p = fitted.predict_proba(ChoiceData.from_long(table, **roles))
    closed = table["open"].to_numpy() == 0
    assert closed.any()
    assert (p[closed] == 0).all()
    assert (p[~closed] > 0).all()
    # logarithms in float32: a relative error of up to 6e-8 per term
    np.testing.assert_allclose(np.bincount(table["trip"].to_numpy(), weights=p), 1, rtol=1e-6)


def test_probabilities_follow_the_rows_of_the_table(
    fitted: PCMCNet, make_trips: MakeTrips, roles: dict[str, Any]
) -> None:
    table = make_trips(seed=5)
    expected = fitted.predict_proba(ChoiceData.from_long(table, **roles))
    assert len(np.unique(expected)) > 50  # otherwise a wrong order would not be detected
    order = np.random.default_rng(0).permutation(table.num_rows)
    shuffled = ChoiceData.from_long(table.take(order), **roles)
    # The elimination follows the order of the table, and so does its rounding.
    np.testing.assert_allclose(fitted.predict_proba(shuffled), expected[order], rtol=1e-5)
    np.testing.assert_array_equal(fitted.predict_proba(table), expected)  # read by the model's schema


def test_a_set_of_one_has_probability_exactly_1(fitted: PCMCNet, make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    data = ChoiceData.from_long(make_trips(seed=5), **roles)
    lonely = np.flatnonzero(data.sizes == 1)
    assert lonely.size
    log_p = fitted.predict_log_proba(data)
    for s in lonely:
        assert log_p[data.rows[data.offsets[s]]] == 0.0
    assert fitted.predict_proba(data.subset(lonely)).max() == 1.0


def test_predictions_are_labels_if_the_table_has_labels(fitted: PCMCNet, trips: ChoiceData) -> None:
    p = fitted.predict_proba(trips)
    labels = trips.labels
    assert labels is not None
    expected = []
    for begin, end in itertools.pairwise(trips.offsets):
        rows = trips.rows[begin:end]
        expected.append(labels.plain()[begin + int(np.argmax(p[rows]))])
    assert fitted.predict(trips).tolist() == expected


def test_all_unseen_categories_have_the_same_probabilities(fitted: PCMCNet, make_trips: MakeTrips) -> None:
    table = make_trips(seed=5)
    column = table.column_names.index("comfort")
    probabilities = [
        fitted.predict_proba(table.set_column(column, "comfort", pa.array([word] * table.num_rows)))
        for word in ("luxury", "none", "low")
    ]
    np.testing.assert_array_equal(probabilities[0], probabilities[1])
    assert not np.allclose(probabilities[0], probabilities[2], atol=1e-3)


def test_a_column_that_is_missing_at_prediction_is_named(
    fitted: PCMCNet, trips: ChoiceData, make_trips: MakeTrips, roles: dict[str, Any]
) -> None:
    table = make_trips().rename_columns({"price": "prise"})
    with pytest.raises(SchemaError, match=r"has no column 'price'. Did you mean 'prise'\?"):
        fitted.predict_proba(table)
    other = ChoiceData.from_long(table, **{**roles, "features": ["prise", "minutes", "comfort"]})
    with pytest.raises(SchemaError, match=r"trained with column 'price'.*Did you mean 'prise'\?"):
        fitted.predict_proba(other)


def test_a_column_whose_kind_changed_is_named(fitted: PCMCNet, make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    data = ChoiceData.from_long(make_trips(), **roles, categorical=["price", "comfort", "purpose"])
    with pytest.raises(SchemaError, match="column 'price': expected numeric as in training, got categorical"):
        fitted.predict_proba(data)


def test_features_or_labels_are_required(quick: dict[str, Any]) -> None:
    table = {"s": [0, 0], "mode": ["car", "bus"], "took": [1, 0], "income": [3.0, 3.0]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", alternative="mode", individual=["income"])
    message = "PCMCNet needs features or labels of alternatives: declare features"
    with pytest.raises(InputError, match=message):
        PCMCNet(**quick | {"labels": False}).fit(data, progress=False)


def shares(model: PCMCNet, data: ChoiceData) -> dict[str, float]:
    """Return the mean probability of each label."""
    assert data.labels is not None
    p, labels = model.predict_proba(data), np.asarray(data.labels.plain())
    return {word: float(p[labels == word].mean()) for word in np.unique(labels)}


@pytest.mark.parametrize("utility", ["linear", "none"])
def test_labels_alone_reproduce_the_shares(utility: str, quick: dict[str, Any]) -> None:
    """In 100 equal sets, labels are chosen 60, 30 and 10 times: these are the probabilities."""
    table = {
        "s": np.repeat(np.arange(100), 3),
        "mode": np.tile(["car", "bus", "bike"], 100),
        "took": np.eye(3)[np.repeat([0, 1, 2], [60, 30, 10])].ravel(),
    }
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", alternative="mode")
    options = quick | {"utility": utility, "epochs": 60, "dropout": 0.0, "schedule": "cosine"}
    model = PCMCNet(**options).fit(data, progress=False)
    expected = {"car": 0.6, "bus": 0.3, "bike": 0.1}
    assert shares(model, data) == pytest.approx(expected, abs=0.02)  # the last steps are small, not 0
    with pytest.raises(SchemaError, match=r"trained with the labels of alternatives in column 'mode'.*labels=False"):
        model.predict_proba(ChoiceData.from_long(table, choice_set="s", chosen="took"))


def test_all_unseen_labels_have_the_same_probabilities(fitted: PCMCNet, make_trips: MakeTrips) -> None:
    table = make_trips(seed=5)
    column = table.column_names.index("mode")
    probabilities = [
        fitted.predict_proba(table.set_column(column, "mode", pa.array([f"{word}{k}" for k in range(table.num_rows)])))
        for word in ("plane", "boat")
    ]
    np.testing.assert_array_equal(probabilities[0], probabilities[1])
    assert not np.allclose(probabilities[0], fitted.predict_proba(table), atol=1e-3)


def test_strong_weight_decay_gives_nearly_a_logit(make_mlba: MakeMlba) -> None:
    """Decay shrinks all weights except the linear ones to 0. The prior of those is weak for 2,000 sets."""
    train, test = make_mlba(2000), make_mlba(300, seed=1)
    logit = MNL(formula="attr1 + attr2 | 0").fit(train)
    options = {"hidden": (8,), "epochs": 10, "tails": "keep"}
    strong, weak = (PCMCNet(**options, weight_decay=w).fit(train, progress=False) for w in (100.0, 0.01))
    off = [np.abs(model.predict_proba(test) - logit.predict_proba(test)).max() for model in (strong, weak)]
    assert off[0] < 0.02
    assert off[1] > 0.2


@pytest.mark.parametrize("labels", [False, True])
def test_a_zero_network_with_a_utility_is_the_logit_of_its_weights(
    labels: bool, trips: ChoiceData, quick: dict[str, Any]
) -> None:
    model = PCMCNet(**quick | {"labels": labels, "epochs": 1}).fit(trips, progress=False)
    network = model.network_
    assert isinstance(network, PCMCNetwork)
    assert network.utility is not None
    with torch.no_grad():
        network.rates.output.weight.zero_()
    network.double().eval()
    batch = as_double(model.encoder_, trips)
    utility = network.utility(batch, *network.represent(batch))
    expected = utility.masked_fill(~batch.mask, -math.inf).log_softmax(1)
    torch.testing.assert_close(network(batch), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("individual", [[], ["income"], ["purpose"]])
@pytest.mark.parametrize("features", [["price"], ["comfort"], ["price", "comfort"]])
def test_any_mix_of_columns_can_be_fitted(
    individual: list[str], features: list[str], make_trips: MakeTrips, roles: dict[str, Any], quick: dict[str, Any]
) -> None:
    data = ChoiceData.from_long(make_trips(), **roles | {"individual": individual, "features": features})
    p = PCMCNet(**quick | {"epochs": 1}).fit(data, progress=False).predict_proba(data)
    np.testing.assert_allclose(p.sum(), len(data), rtol=1e-6)


# -- uniform expansion ---------------------------------------------------------------------------------------------


def copies(data: ChoiceData, times: int) -> ChoiceData:
    """Repeat every alternative of every set this many times."""
    table = {
        "choice_set": np.tile(data.set_of_alternative, times),
        **{name: np.tile(column.values, times) for name, column in data.features.items()},  # type: ignore[union-attr]
    }
    return ChoiceData.from_long(table, choice_set="choice_set", features=list(data.features))


@pytest.fixture(scope="module", params=["linear", "none"])
def expanding(request: pytest.FixtureRequest, make_mlba: MakeMlba, quick: dict[str, Any]) -> PCMCNet:
    """Trained until probabilities are far from uniform and no rate is near the floor."""
    options = quick | {"hidden": (16, 16), "epochs": 20, "batch_size": 16, "dropout": 0.0, "weight_decay": 0.3}
    model: PCMCNet = PCMCNet(**options | {"utility": request.param}).fit(make_mlba(200), progress=False)
    assert -model.score(make_mlba(200)) < 0.8
    return model


@pytest.mark.parametrize("times", [2, 5])
def test_copies_of_all_alternatives_share_their_probability(
    times: int, expanding: PCMCNet, make_mlba: MakeMlba
) -> None:
    data = make_mlba(50, seed=1)
    p = expanding.predict_proba(data)
    assert p.max() > 0.8
    # The network computes in float32 on matrices of another shape.
    np.testing.assert_allclose(expanding.predict_proba(copies(data, times)), np.tile(p, times) / times, atol=1e-5)


@pytest.mark.parametrize("times", [2, 5])
def test_copies_share_exactly_in_float64(times: int, expanding: PCMCNet, make_mlba: MakeMlba) -> None:
    data = make_mlba(50, seed=1)
    network = PCMCNetwork(expanding.encoder_, expanding.config).double().eval()
    network.load_state_dict(expanding.network_.state_dict())
    with torch.no_grad():
        one = network(as_double(expanding.encoder_, data)).exp()  # (50, 3)
        many = network(as_double(expanding.encoder_, copies(data, times))).exp()  # (50, 3 times)
    torch.testing.assert_close(many, one.repeat(1, times) / times, rtol=0, atol=1e-10)


@torch.no_grad()
def test_rates_between_copies_do_not_change_their_total_probability(expanding: PCMCNet, make_mlba: MakeMlba) -> None:
    """Copies of an alternative are a class of a contractible partition, also under a trained network."""
    network = PCMCNetwork(expanding.encoder_, expanding.config).double().eval()
    network.load_state_dict(expanding.network_.state_dict())
    batch = as_double(expanding.encoder_, copies(make_mlba(50, seed=1), 3))
    rates = network.chains(batch).squeeze(1)  # (50, 9, 9), alternatives a b c a b c a b c
    alike = torch.arange(9).unsqueeze(1) % 3 == torch.arange(9) % 3
    changed = torch.where(alike, rates * torch.rand(9, 9, generator=torch.Generator().manual_seed(0)) * 10, rates)
    assert not torch.allclose(stationary_distribution(changed), stationary_distribution(rates))
    before, after = (stationary_distribution(q).view(50, 3, 3).sum(1) for q in (rates, changed))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-10)


@torch.no_grad()
def test_probabilities_follow_a_permutation_exactly_in_float64(expanding: PCMCNet, make_mlba: MakeMlba) -> None:
    network = PCMCNetwork(expanding.encoder_, expanding.config).double().eval()
    network.load_state_dict(expanding.network_.state_dict())
    batch = as_double(expanding.encoder_, make_mlba(50, seed=1))
    p = network(batch).exp()
    for order in ([2, 0, 1], [1, 0, 2]):
        moved = network(replace(batch, numeric=batch.numeric[:, order], categorical=batch.categorical[:, order])).exp()
        torch.testing.assert_close(moved, p[:, order], rtol=0, atol=1e-10)
    assert not torch.allclose(p, p[:, [2, 0, 1]], atol=0.1)


def as_double(encoder: Encoder, data: ChoiceData) -> Batch:
    batch = encoder.encode(data).batch(np.arange(len(data)))
    return replace(batch, numeric=batch.numeric.double(), individual_numeric=batch.individual_numeric.double())


# -- dead start ----------------------------------------------------------------------------------------------------

CLEARLY_BELOW_UNIFORM = math.log(3) - 0.15
FORMS: dict[str, dict[str, Any]] = {
    "relu": {"rate": "relu", "epsilon": 0.5},
    "softplus": {"rate": "softplus", "epsilon": 0.0},
    "exp": {"rate": "exp", "epsilon": 0.0},
}


def nll_after_a_short_fit(data: ChoiceData, quick: dict[str, Any], *, form: str, layers: int, seed: int) -> float:
    options = quick | FORMS[form] | {"hidden": (16,) * layers, "epochs": 8, "batch_size": 16, "dropout": 0.0}
    return -float(PCMCNet(**options).fit(data, seed=seed, progress=False).score(data))


def nll_of_the_papers_model(data: ChoiceData, seed: int) -> float:
    model = PCMCNet.paper(batch_size=16, epochs=20).fit(data, seed=seed, progress=False)
    return -float(model.score(data))


@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("form", FORMS)
def test_no_start_is_dead(form: str, layers: int, make_mlba: MakeMlba, quick: dict[str, Any]) -> None:
    data = make_mlba(120)
    for seed in (0, 1):
        assert nll_after_a_short_fit(data, quick, form=form, layers=layers, seed=seed) < CLEARLY_BELOW_UNIFORM


@pytest.mark.parametrize("seed", [0, 9])
def test_no_start_of_the_papers_is_dead(seed: int, make_mlba: MakeMlba) -> None:
    """With seed 9 most rates start at their floor. Without a correction, all of them would end there."""
    assert nll_of_the_papers_model(make_mlba(300), seed) < CLEARLY_BELOW_UNIFORM


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_no_start_is_dead_for_many_seeds(seed: int, make_mlba: MakeMlba, quick: dict[str, Any]) -> None:
    data = make_mlba(120)
    for form, layers in itertools.product(FORMS, (1, 2, 3)):
        loss = nll_after_a_short_fit(data, quick, form=form, layers=layers, seed=seed)
        assert loss < CLEARLY_BELOW_UNIFORM, (form, layers)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_no_start_of_the_papers_is_dead_for_many_seeds(seed: int, make_mlba: MakeMlba) -> None:
    assert nll_of_the_papers_model(make_mlba(300), seed) < CLEARLY_BELOW_UNIFORM


class DeadStart(PCMCNet):
    """A network whose scores all start far below 0."""

    def _build(self, encoder: Encoder, spec: NetworkSpec) -> PCMCNetwork:
        network = super()._build(encoder, spec)
        with torch.no_grad():
            network.rates.output.bias.fill_(-100.0)
        return network


def test_a_dead_start_is_detected_and_corrected(
    make_mlba: MakeMlba, quick: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    data, options = make_mlba(60), quick | FORMS["relu"] | {"epochs": 2}
    with caplog.at_level(logging.INFO, "pcmcnet"):
        PCMCNet(**options).fit(data, progress=False)
        assert caplog.messages == []
        model = DeadStart(**options).fit(data, progress=False)
    assert caplog.messages == ["most rates started with zero gradient: the output bias was increased"]
    assert all(entry["gradient_norm"] > 0 for entry in model.history)


def test_a_dead_start_is_detected_after_a_thousand_sets_of_one(
    quick: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    sets = np.concatenate([np.arange(1100), [1100, 1100, 1101, 1101]])
    x = np.random.default_rng(0).normal(size=len(sets))
    took = np.concatenate([np.ones(1100), [1, 0, 0, 1]])
    data = ChoiceData.from_long({"s": sets, "x": x, "took": took}, choice_set="s", chosen="took", features=["x"])
    options = quick | FORMS["relu"] | {"epochs": 1, "batch_size": 2000}
    with caplog.at_level(logging.INFO, "pcmcnet"):
        DeadStart(**options).fit(data, progress=False)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("rate", "trained"), [("exp", False), ("softplus", True)])
def test_the_output_bias_of_exponential_rates_is_not_trained(
    rate: str, trained: bool, make_mlba: MakeMlba, quick: dict[str, Any]
) -> None:
    model = PCMCNet(**{**quick, "rate": rate, "weight_decay": 0.0}).fit(make_mlba(20), device="cpu", progress=False)
    assert isinstance(model.network_, PCMCNetwork)
    assert (model.network_.rates.output.bias.item() != 1.0) == trained


def test_features_that_are_constant_within_sets_are_refused(quick: dict[str, Any]) -> None:
    table = {"s": [0, 0, 1, 1], "x": [1.0, 1.0, 2.0, 2.0], "took": [1, 0, 0, 1]}
    data = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x"])
    with pytest.raises(InputError, match="no feature differs between the alternatives of any choice set"):
        PCMCNet(**quick).fit(data, progress=False)


def test_options_may_be_numpy_numbers() -> None:
    config = PCMCNet(epochs=np.int64(3), lr=np.float64(0.5), hidden=np.array([4, 2])).config
    assert (config.epochs, config.lr, config.hidden) == (3, 0.5, (4, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rate": 3}, "unknown rate 3"), ({"hidden": 5}, "hidden must be a list of widths such as")],
)
def test_the_preset_refuses_options_of_the_wrong_type(options: dict[str, Any], message: str) -> None:
    for make in (PCMCNet, PCMCNet.paper):
        with pytest.raises(ConfigError, match=message):
            make(**options)


def test_bfloat16_products_fit_nearly_as_well_as_float32(make_mlba: MakeMlba) -> None:
    """The losses differ by about as much as those of two seeds. Probabilities sum to 1 as in float32."""
    data, scores = make_mlba(600), {}
    for precision in ("float32", "bfloat16"):
        options = {"hidden": (16, 16), "epochs": 12, "weight_decay": 0.5, "precision": precision}
        model = PCMCNet(**options).fit(data, seed=0, progress=False)
        scores[precision] = model.score(data)
    assert model.config.precision == "bfloat16"
    assert scores["bfloat16"] != scores["float32"]
    assert scores["float32"] > -math.log(3) + 0.05  # better than uniform
    assert abs(scores["bfloat16"] - scores["float32"]) < 0.02
    sums = np.add.reduceat(model.predict_proba(data), data.offsets[:-1])
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-6)
