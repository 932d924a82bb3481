"""Monotone columns: the probability of an alternative falls with its price, whatever the data."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import pcmcnet as pn
from choice_tables import ROLES, read, trips
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.errors import ConfigError, SchemaError
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.insight.queries import with_values
from pcmcnet.layers.inner_logit import LinearUtility, SignedLinear
from pcmcnet.models import Ensemble, PCMCNet
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.models.networks.starting_values import start_as_logit

FALLS: Any = {"price": "decreasing"}
QUICK: dict[str, Any] = {"hidden": (8, 8), "epochs": 6, "weight_decay": 0.05, "batch_size": 8, "lr": 0.02}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    """Choices prefer high prices. A network without signs would learn this."""
    return read(trips(120, slope=0.3), **ROLES)


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> PCMCNet:
    fitted: PCMCNet = PCMCNet(**QUICK, monotone=FALLS).fit(data, progress=False)
    return fitted


def rises(model: Any, data: ChoiceData, column: str = "price") -> float:
    """Return the largest rise of a log-probability as the value of its alternative increases on a grid."""
    values, most = np.asarray(data.features[column].values, np.float64), -np.inf  # type: ignore[union-attr]
    place = np.arange(len(values)) - np.repeat(data.offsets[:-1], data.sizes)
    for k in range(data.largest):
        at = [
            data.from_rows(model.predict_log_proba(with_values(data, column, np.where(place == k, x, values))))
            for x in np.linspace(values.min() - 5, 2 * values.max(), 9)
        ]
        most = max(most, float(np.diff(np.stack(at)[:, place == k], axis=0).max()))
    return most


# -- signs of the table --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signed_data() -> ChoiceData:
    return read(trips(120, slope=0.3), **ROLES, signs={"price": "-"})


def test_signs_of_the_table_give_the_network_of_the_monotone_option(
    signed_data: ChoiceData, data: ChoiceData, model: PCMCNet, tmp_path: Path
) -> None:
    signed = PCMCNet(**QUICK).fit(signed_data, progress=False)
    assert (signed.predict_proba(data) == model.predict_proba(data)).all()
    loaded = pn.load(signed.save(tmp_path / "model"))
    assert loaded.schema.signs == {"price": "-"}
    assert (loaded.predict_proba(data) == model.predict_proba(data)).all()


def test_free_ignores_the_sign_of_a_feature(signed_data: ChoiceData, data: ChoiceData) -> None:
    free = PCMCNet(**QUICK, monotone={"price": "free"}).fit(signed_data, progress=False)
    assert (free.predict_proba(data) == PCMCNet(**QUICK).fit(data, progress=False).predict_proba(data)).all()


def test_a_network_that_cannot_obey_signs_is_refused(signed_data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"signs of the table, need a non-decreasing activation.*got 'gelu'"):
        PCMCNet(**QUICK, activation="gelu").fit(signed_data, progress=False)


def test_a_network_without_signs_cannot_start_one_with_signs(signed_data: ChoiceData, data: ChoiceData) -> None:
    first = PCMCNet(**{**QUICK, "epochs": 1}).fit(data, progress=False)
    with pytest.raises(SchemaError, match=r"init was fitted to a table with signs \{\}, but this table has"):
        PCMCNet(**QUICK).fit(signed_data, init=first, progress=False)


# -- monotonicity --------------------------------------------------------------------------------------------------


def test_bins_of_a_signed_column_have_its_sign(data: ChoiceData) -> None:
    """Without signs, bins learn from these choices that probabilities rise with the price."""
    free, signed = (PCMCNet(**QUICK, members=3, monotone=signs).fit(data, progress=False) for signs in ({}, FALLS))
    assert signed.spec_.bins == free.spec_.bins == (0, 0, 8)
    assert rises(free, data) > 0.1
    assert rises(signed, data) < 1e-5  # as below


def test_a_probability_falls_with_its_price_against_the_data(data: ChoiceData, model: PCMCNet) -> None:
    """Log-probabilities in float32 have rounding errors of 1e-5."""
    free = PCMCNet(**QUICK).fit(data, progress=False)
    assert rises(free, data) > 0.1
    assert rises(model, data) < 1e-5
    assert (elasticity(model, data, "price").own <= 1e-6).all()


@pytest.mark.parametrize(
    "options",
    [{"hidden": ()}, {"weight_decay": 4.0}, {"activation": "tanh", "dropout": 0.2}, {"utility": "none"}],
    ids=lambda options: next(iter(options)),
)
def test_monotonicity_holds_with_other_options(data: ChoiceData, options: dict[str, Any]) -> None:
    result = PCMCNet(**{**QUICK, "epochs": 2, **options}, monotone=FALLS).fit(data, progress=False)
    assert rises(result, data) < 1e-5


def test_monotonicity_holds_with_the_papers_settings(data: ChoiceData) -> None:
    result = PCMCNet.paper((8,), epochs=1, batch_size=16, monotone=FALLS).fit(data, progress=False)
    assert rises(result, data) < 1e-5


def test_effects_with_the_right_sign_are_learnt(data: ChoiceData) -> None:
    """The data prefer high prices, so an increasing effect of the price is learnt."""
    result = PCMCNet(**QUICK, monotone={"price": "increasing", "minutes": "decreasing"}).fit(data, progress=False)
    assert elasticity(result, data, "price").own.mean() > 0.5
    assert rises(result, data, "minutes") < 1e-5


def test_monotonicity_holds_with_missing_prices() -> None:
    table = trips(60, slope=0.3)
    gone = np.arange(len(table["price"])) % 7 == 0
    table["price"] = np.where(gone, np.nan, table["price"])
    data = read(table, **ROLES, missing="indicator")
    model = PCMCNet(**QUICK, monotone=FALLS).fit(data, progress=False)
    complete = read(trips(60, slope=0.3), **ROLES, missing="indicator")
    assert rises(model, complete) < 1e-5


# -- training, saving, export --------------------------------------------------------------------------------------


def test_all_weights_have_the_right_sign_after_a_fit(model: PCMCNet) -> None:
    parts = [part for part in model.network_.modules() if isinstance(part, SignedLinear)]
    assert len(parts) == 4
    for part in parts:
        assert ((part.weight >= part.low) & (part.weight <= part.high)).all()
    utility = model.network_.utility
    assert isinstance(utility, LinearUtility)
    assert utility.slopes[0] <= 0


def test_a_loaded_network_stays_monotone_when_trained_further(data: ChoiceData, model: PCMCNet, tmp_path: Path) -> None:
    loaded = pn.load(model.save(tmp_path / "model"))
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
    again = PCMCNet(**{**QUICK, "epochs": 1}, monotone=FALLS).fit(data, init=loaded, progress=False)
    assert rises(again, data) < 1e-5
    with pytest.raises(ConfigError, match="init was fitted with monotone="):
        PCMCNet(**QUICK).fit(data, init=loaded, progress=False)


def test_a_resumed_fit_equals_an_uninterrupted_one(data: ChoiceData, model: PCMCNet, tmp_path: Path) -> None:
    def stop(entry: Any) -> None:
        if entry["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PCMCNet(**QUICK, monotone=FALLS).fit(data, run_folder=tmp_path / "run", on_epoch=stop, progress=False)
    resumed = PCMCNet(**QUICK, monotone=FALLS).fit(data, run_folder=tmp_path / "run", resume=True, progress=False)
    np.testing.assert_array_equal(resumed.predict_proba(data), model.predict_proba(data))


def test_members_of_an_ensemble_are_monotone(data: ChoiceData) -> None:
    member = PCMCNet(**{**QUICK, "epochs": 2}, monotone=FALLS)
    assert rises(Ensemble(member, 2).fit(data, progress=False), data) < 1e-5


def test_a_fit_to_a_table_on_disk_is_monotone(data: ChoiceData, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table(trips(120, slope=0.3)), tmp_path / "trips.parquet")
    scanned = ChoiceData.scan(tmp_path / "trips.parquet", **ROLES)
    result = PCMCNet(**{**QUICK, "epochs": 2}, monotone=FALLS).fit(scanned, progress=False)
    assert rises(result, data) < 1e-5


@pytest.mark.slow
def test_an_exported_graph_gives_the_same_probabilities(data: ChoiceData, model: PCMCNet, tmp_path: Path) -> None:
    graph = torch.export.load(model.export(tmp_path / "model.pt2")).module()
    batch = model.encoder_.encode(data).batch(np.arange(len(data)))
    given = {
        name: getattr(batch, name)
        for name in ("mask", "numeric", "categorical", "individual_numeric", "individual_categorical")
    }
    with torch.no_grad():
        expected = model.network_.eval()(batch).exp()
    torch.testing.assert_close(graph(**given), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("individual", [False, True], ids=["price", "income"])
def test_derivatives_are_exact_for_clipped_tastes(model: PCMCNet, data: ChoiceData, individual: bool) -> None:
    """The taste is so strong that the price coefficient is clipped to 0 for some individuals."""
    clipped = PCMCNet(**{**QUICK, "epochs": 1}, monotone=FALLS).fit(data, progress=False)
    network = clipped.network_
    assert isinstance(network, PCMCNetwork)
    assert network.utility is not None
    assert network.utility.taste is not None
    place = network.alternative.width - len(network.utility.slopes)
    with torch.no_grad():
        network.utility.taste[place] = 1.0
    batch = clipped.encoder_.encode(data).batch(np.arange(len(data)))
    with torch.no_grad():
        individual_vectors, _ = network.represent(batch)
        total = network.utility.slopes[0] + network.utility.weights(individual_vectors)[:, place]
    assert (total <= 0).all()
    assert (total > -1e-7).any()
    assert (total < -0.1).any()
    at = NumericInput(individual, 0)
    torch.testing.assert_close(
        clipped._jacobian(batch, at), jacobian_by_output(network, batch, at), rtol=1e-4, atol=1e-5
    )
    assert rises(clipped, data) < 1e-5


def test_the_logit_start_is_the_best_one_with_the_right_signs(data: ChoiceData) -> None:
    """The unconstrained price coefficient is positive, so the constrained maximum has it at 0."""
    encoder = Encoder.learn(data, labels=True)
    free = LinearUtility(encoder.features, 2, 9)
    start_as_logit(free, encoder.encode(data))
    assert free.slopes[0] > 0.1
    signs = torch.zeros(len(free.slopes))
    signs[0] = -1.0
    constrained = LinearUtility(encoder.features, 2, 9, signs=signs)
    start_as_logit(constrained, encoder.encode(data))
    assert constrained.slopes[0] == 0
    unaffected = LinearUtility(encoder.features, 2, 9, signs=-signs)
    start_as_logit(unaffected, encoder.encode(data))
    torch.testing.assert_close(unaffected.slopes, free.slopes, rtol=1e-3, atol=1e-3)


# -- invalid input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"monotone": "price"}, "monotone must map columns to directions, as in"),
        ({"monotone": {"price": "down"}}, "unknown direction of the monotone column 'price': 'down'"),
        ({"monotone": {"price": "decresing"}}, "Did you mean 'decreasing'"),
        ({"monotone": FALLS, "activation": "gelu"}, "non-decreasing activation.*got 'gelu'"),
        ({"monotone": FALLS, "rate": "softplus"}, "not supported with rate='softplus'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PCMCNet(**options)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("prise", "not a numeric feature.*Did you mean 'price'"),
        ("comfort", "'comfort', which is not a numeric column"),
        ("mode", "'mode', which is not a numeric column"),
        ("income", "'income', an individual-level column"),
    ],
)
def test_columns_that_cannot_be_monotone_are_refused(data: ChoiceData, column: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PCMCNet(**QUICK, monotone={column: "decreasing"}).fit(data, progress=False)


def test_a_monotone_spline_column_is_refused() -> None:
    data = read(trips(40), **ROLES, kinds={"price": "spline"})
    with pytest.raises(ConfigError, match="'price', but a column of kind spline"):
        PCMCNet(**QUICK, monotone=FALLS).fit(data, progress=False)
