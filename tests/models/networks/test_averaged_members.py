"""Averaged networks: the mean of probabilities, members with bins, and the architecture that is saved."""

import pickle
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pcmcnet as pn
from choice_tables import ROLES, read, trips
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.data import Batch, Encoder
from pcmcnet.data.kinds.number import BinCode
from pcmcnet.errors import ArtifactError
from pcmcnet.models.networks.averaged_members import (
    AUTO_MEMBERS,
    MAX_MEMBERS,
    AveragedNetwork,
    BinnedView,
    NetworkSpec,
    bins_per_member,
    members_of,
)
from pcmcnet.models.networks.chain_network import AveragedChains
from pcmcnet.models.networks.fitting import BIN_PERIODS, build_network
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.training.network import ChoiceNetwork

OPTIONS: dict[str, Any] = {"hidden": (6,), "epochs": 2, "weight_decay": 0.1, "members": 6}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(trips(60, slope=-0.3), **{key: ROLES[key] for key in ("alternative", "individual", "features")})


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> PCMCNet:
    """Six networks. The third and the last use bins."""
    return PCMCNet(**OPTIONS).fit(data, progress=False)


def everything(model: PCMCNet, data: ChoiceData) -> Batch:
    return model.encoder_.encode(data).batch(np.arange(len(data)))


# -- mean -----------------------------------------------------------------------------------------------------------


class Fixed(ChoiceNetwork):
    """A network with given probabilities."""

    def __init__(self, p: list[list[float]]) -> None:
        super().__init__()
        self.p = torch.tensor(p)

    def forward(self, batch: Batch) -> Tensor:
        return self.p.log()


def test_an_average_is_the_mean_of_probabilities(model: PCMCNet, data: ChoiceData) -> None:
    """The mean of (.2, .8) and (.6, .4) is (.4, .6). Padding has probability 0."""
    batch = everything(model, data)
    batch = replace(batch, mask=torch.tensor([[True, True, False]]))
    average = AveragedNetwork([Fixed([[0.2, 0.8, 0.0]]), Fixed([[0.6, 0.4, 0.0]])], [nn.Identity()])
    torch.testing.assert_close(average(batch).exp(), torch.tensor([[0.4, 0.6, 0.0]]))
    assert average(batch)[0, 2] == -torch.inf


def test_a_fit_averages_the_probabilities_of_its_members(model: PCMCNet, data: ChoiceData) -> None:
    with torch.no_grad():
        each = []
        for member, bins in zip(members_of(model.network_), model.spec_.bins, strict=True):
            encoder = model.encoder_.with_bins(bins)
            alone = PCMCNetwork(encoder, model.config)
            alone.load_state_dict(member.state_dict())
            each.append(alone.eval()(encoder.encode(data).batch(np.arange(len(data)))).exp())
        average = model.network_.eval()(everything(model, data)).exp()
    torch.testing.assert_close(average, torch.stack(each).mean(0))
    assert min(float((a - b).abs().max()) for a in each for b in each if a is not b) > 1e-3


def test_the_first_member_is_the_network_of_a_single_fit(model: PCMCNet, data: ChoiceData) -> None:
    single = PCMCNet(**OPTIONS | {"members": 1}).fit(data, progress=False)
    weights = members_of(model.network_)[0].state_dict()
    assert members_of(single.network_) == [single.network_]
    assert all(torch.equal(weight, weights[name]) for name, weight in single.network_.state_dict().items())
    assert [entry["train_loss"] for entry in model.history] == [entry["train_loss"] for entry in single.history]


def test_a_saved_average_has_all_members(model: PCMCNet, data: ChoiceData, tmp_path: Path) -> None:
    loaded = pn.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(data), model.predict_proba(data))
    assert loaded.record_.spec == model.spec_
    assert loaded.summary().facts["networks"].startswith("average of 6")
    assert loaded.summary().facts["networks"].endswith("2 also use piecewise-linear inputs")
    assert "parameters in all, of 6 networks" in model.diagram()


def test_a_fit_from_an_average_starts_at_each_member(model: PCMCNet, data: ChoiceData, tmp_path: Path) -> None:
    loaded = pn.load(model.save(tmp_path / "model"))
    more = PCMCNet(**OPTIONS | {"epochs": 1, "lr": 1e-9}).fit(data, init=loaded, progress=False)
    assert more.spec_ == model.spec_
    np.testing.assert_allclose(more.predict_proba(data), model.predict_proba(data), atol=1e-5)  # Adam steps of 1e-9


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "members": 3}], ids=["learnt", "given"])
def test_a_pickled_average_holds_no_table(data: ChoiceData, options: dict[str, Any]) -> None:
    model = PCMCNet(epochs=1, hidden=(4,), **options).fit(data, progress=False)
    sent = pickle.dumps(model)
    assert len(sent) < len(pickle.dumps(model.network_)) + 30_000
    assert np.array_equal(pickle.loads(sent).predict_proba(data), model.predict_proba(data))


def test_an_average_computes_in_the_chunks_of_its_members(model: PCMCNet) -> None:
    assert model.network_.computes_in_chunks == members_of(model.network_)[0].computes_in_chunks


# -- bins -----------------------------------------------------------------------------------------------------------


def test_the_first_member_uses_plain_numbers() -> None:
    for members in range(1, 9):
        for period in BIN_PERIODS:
            bins = bins_per_member(members, period)
            assert len(bins) == members
            assert bins[0] == 0
            assert sum(number > 0 for number in bins) == (members // period if period else 0)


def test_a_third_of_the_members_has_bins_by_default(model: PCMCNet) -> None:
    assert OPTIONS["members"] == AUTO_MEMBERS
    assert model.spec_ == NetworkSpec(bins=(0, 0, 8, 0, 0, 16))


def test_a_member_gets_the_inputs_it_was_trained_on(model: PCMCNet, data: ChoiceData) -> None:
    sets = np.arange(len(data))
    for bins in (0, 8, 16):
        encoder = model.encoder_.with_bins(bins)
        seen = BinnedView(model.encoder_, encoder)(model.encoder_.encode(data).batch(sets))
        trained_on = encoder.encode(data).batch(sets)
        real = trained_on.mask
        # The encoder computes bins in float64, the view in float32.
        torch.testing.assert_close(seen.numeric[real], trained_on.numeric[real], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(seen.individual_numeric, trained_on.individual_numeric, atol=1e-4, rtol=1e-4)
        assert (seen.numeric.shape[2] > model.encoder_.features.n_numeric) == (bins > 0)


def test_bins_come_before_missing_value_indicators() -> None:
    table = {name: np.asarray(values).copy() for name, values in trips(40, slope=-0.3).items()}
    table["minutes"] = table["minutes"].astype(float)
    table["minutes"][::7] = np.nan
    roles = {"choice_set": "trip", "chosen": "took", "features": ["minutes", "price"], "missing": "indicator"}
    data = ChoiceData.from_long(table, **roles)
    encoder = Encoder.learn(data).with_knots(data)
    binned = encoder.with_bins(8)
    assert {code.name for code in binned.features.numeric if isinstance(code, BinCode)} == {"price"}
    seen, trained_on = (e.encode(data).batch(np.arange(40)) for e in (encoder, binned))
    view = BinnedView(encoder, binned)(seen).numeric[trained_on.mask]
    torch.testing.assert_close(view, trained_on.numeric[trained_on.mask], atol=1e-4, rtol=1e-4)


def test_views_follow_the_average_to_its_device(model: PCMCNet) -> None:
    """The meta device replaces a GPU."""
    network = deepcopy(model.network_).to("meta")
    assert {tensor.device.type for tensor in (*network.parameters(), *network.buffers())} == {"meta"}
    assert any(True for _ in model.network_.views.buffers())  # type: ignore[union-attr]


def test_slopes_include_the_bins(model: PCMCNet, data: ChoiceData) -> None:
    network = deepcopy(model.network_).double().eval()
    batch = everything(model, data)
    away = batch.numeric.double() + 0.003  # away from knots, where the function has two slopes
    batch = replace(batch, numeric=away, individual_numeric=batch.individual_numeric.double())
    step = torch.zeros_like(batch.numeric)
    step[:, 0, 0] = 1e-6
    with torch.no_grad():
        up, down = (network(replace(batch, numeric=batch.numeric + by)) for by in (step, -step))
    slopes = jacobian_by_output(network, batch, NumericInput(individual=False, k=0))[:, :, 0]
    # central differences with a step of 1e-6 in float64
    torch.testing.assert_close(slopes[batch.mask], ((up - down) / 2e-6)[batch.mask], atol=1e-6, rtol=1e-4)


# -- architecture ---------------------------------------------------------------------------------------------------


def test_a_built_network_has_the_shapes_of_the_fitted_one(model: PCMCNet) -> None:
    network = build_network(model._build, model.encoder_, model.spec_, AveragedChains)
    assert type(network) is type(model.network_)
    shapes = [{name: weight.shape for name, weight in n.state_dict().items()} for n in (network, model.network_)]
    assert shapes[0] == shapes[1]


def test_a_spec_counts_its_members() -> None:
    assert NetworkSpec().members == 1
    assert NetworkSpec(bins=(0, 8, 0)).members == 3


@pytest.mark.parametrize(
    "spec",
    [
        NetworkSpec(bins=()),
        NetworkSpec(bins=(8, 0, 0)),
        NetworkSpec(bins=(0, 7, 0)),
        NetworkSpec(bins=(0,) * (MAX_MEMBERS + 1)),
        NetworkSpec(classes=0),
        NetworkSpec(classes=1_001),  # more than there are weights
        NetworkSpec(classes=2, bins=(0, 0)),
    ],
)
def test_an_impossible_architecture_is_refused(spec: NetworkSpec) -> None:
    with pytest.raises(ArtifactError, match="has an unknown architecture"):
        spec.require_valid(1_000)


def test_architectures_of_fits_are_valid(model: PCMCNet) -> None:
    for spec in (model.spec_, NetworkSpec(), NetworkSpec(classes=4), NetworkSpec(bins=(0, 8, 0, 16))):
        spec.require_valid(1_000)
