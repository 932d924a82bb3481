"""Networks that see numbers by curves, beside others that do not."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pcmcnet as pn
from choice_tables import ROLES, read, trips
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.data import Encoder
from pcmcnet.data.kinds.number import PieceCode
from pcmcnet.errors import ArtifactError, TrainingError
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.networks.chain_network import PCMCNetwork
from pcmcnet.models.networks.curve_members import (
    MEMBERS,
    TURNS,
    CurveView,
    mixed,
    pieces_kept,
    pieces_of,
    turn_of_curves,
)
from pcmcnet.models.networks.decay_search import SearchLog
from pcmcnet.models.networks.held_out_trials import Trials, held_out_trials
from pcmcnet.models.networks.network_slopes import Input, jacobian_by_output

OPTIONS: dict[str, Any] = {"hidden": (4,), "epochs": 1, "weight_decay": 0.1, "members": MEMBERS}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(trips(60, slope=-0.3), **{key: ROLES[key] for key in ("alternative", "individual", "features")})


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> PCMCNet:
    return PCMCNet(**OPTIONS).fit(data, progress=False)


def test_the_first_network_sees_numbers_as_they_are() -> None:
    for members in range(1, 9):
        for every in TURNS:
            found = pieces_of(members, every)
            assert len(found) == members
            assert found[0] == 0
            assert sum(pieces > 0 for pieces in found) == (members // every if every else 0)


def trials_with(data: ChoiceData, nll: dict[int, np.ndarray]) -> tuple[Trials, Callable[[ChoiceData], np.ndarray]]:
    """Trials in which a network with so many pieces loses so much on held-out sets; one that is not named diverges."""
    now = [0]

    def fitted(_: object, decay: float, pieces: int) -> None:
        assert decay == 4.0
        if pieces not in nll:
            raise TrainingError("the loss is no longer finite")
        now[0] = pieces

    pairs = [(data, (data,))]
    return Trials(pairs, lambda *_: [], SearchLog(None, {}), 1.0, fitted), lambda _: nll[now[0]]


def test_held_out_sets_decide_on_the_share_of_networks_with_curves(data: ChoiceData) -> None:
    rng = np.random.default_rng(0)
    straight = rng.uniform(0.5, 1.5, len(data))
    for curved, expected in (
        (straight + 0.5, 0),  # worse on each set
        (straight - 0.5, 2),  # better on each
        (np.where(np.arange(len(data)) % 9 < 4, straight - 1.2, straight + 1.4), 3),  # often much worse, often better
    ):
        trials, nll = trials_with(data, {0: straight, 8: curved})
        assert turn_of_curves(trials, 4.0, nll) == expected
    trials, nll = trials_with(data, {0: straight})
    assert turn_of_curves(trials, 4.0, nll) == 0  # those with curves diverged


def test_shares_are_those_of_the_mean_of_probabilities(data: ChoiceData) -> None:
    """A third and half of the probabilities: .2 and .5, by hand."""
    straight, curved = np.full(len(data), -np.log(0.2)), np.full(len(data), -np.log(0.5))
    for every, p in ((0, 0.2), (3, 0.2 * 2 / 3 + 0.5 / 3), (2, 0.35)):
        np.testing.assert_allclose(np.exp(-mixed(straight, curved, every)), p)


def test_a_saved_model_with_impossible_curves_is_refused() -> None:
    assert pieces_kept({"members": 3}) == (0, 0, 0)
    assert pieces_kept({"members": 3, "pieces": [0, 8, 0]}) == (0, 8, 0)
    for wrong in ({"members": 0}, {"members": "6"}):
        with pytest.raises(ArtifactError, match="members="):
            pieces_kept(wrong)
    for pieces in ([0, 8], [8, 0, 0], [0, 7, 0], "08"):
        with pytest.raises(ArtifactError, match="pieces="):
            pieces_kept({"members": 3, "pieces": pieces})


def test_a_view_of_a_batch_is_what_the_network_was_trained_on(model: PCMCNet, data: ChoiceData) -> None:
    sets = np.arange(len(data))
    for most in (0, 8, 16):
        own = model.encoder_.with_pieces(most)
        seen = CurveView(model.encoder_, own)(model.encoder_.encode(data).batch(sets))
        trained_on = own.encode(data).batch(sets)
        real = trained_on.mask
        torch.testing.assert_close(seen.numeric[real], trained_on.numeric[real], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(seen.individual_numeric, trained_on.individual_numeric, atol=1e-4, rtol=1e-4)
        assert (seen.numeric.shape[2] > model.encoder_.features.n_numeric) == (most > 0)


def test_what_is_put_to_a_network_goes_to_its_device(model: PCMCNet) -> None:
    """A device without numbers stands for a GPU, to which networks are moved before they are trained."""
    first, other = deepcopy(model.network_).to("meta"), deepcopy(model.network_)
    assert isinstance(first, PCMCNetwork)
    first.add(other, CurveView(model.encoder_, model.encoder_.with_pieces(8)))
    assert {tensor.device.type for tensor in (*first.parameters(), *first.buffers())} == {"meta"}


def test_pieces_come_before_the_marks_of_gaps() -> None:
    table = {name: np.asarray(values).copy() for name, values in trips(40, slope=-0.3).items()}
    table["minutes"] = table["minutes"].astype(float)
    table["minutes"][::7] = np.nan
    roles = {"choice_set": "trip", "chosen": "took", "features": ["minutes", "price"], "missing": "indicator"}
    data = ChoiceData.from_long(table, **roles)
    encoder = Encoder.learn(data).with_knots(data)
    own = encoder.with_pieces(8)
    assert {code.name for code in own.features.numeric if isinstance(code, PieceCode)} == {"price"}
    seen, trained_on = (e.encode(data).batch(np.arange(40)) for e in (encoder, own))
    found = CurveView(encoder, own)(seen).numeric[trained_on.mask]
    torch.testing.assert_close(found, trained_on.numeric[trained_on.mask], atol=1e-4, rtol=1e-4)


def test_a_saved_model_and_a_fit_from_it_have_the_same_curves(model: PCMCNet, data: ChoiceData, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = pn.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(data), model.predict_proba(data))
    still = PCMCNet(**OPTIONS, lr=1e-9).fit(data, init=again, progress=False)
    np.testing.assert_allclose(still.predict_proba(data), model.predict_proba(data), atol=1e-5)


def test_slopes_go_through_the_curves(model: PCMCNet, data: ChoiceData) -> None:
    network = deepcopy(model.network_).double().eval()
    batch = model.encoder_.encode(data).batch(np.arange(len(data)))
    away = batch.numeric.double() + 0.003  # from knots, where a curve has two slopes
    batch = replace(batch, numeric=away, individual_numeric=batch.individual_numeric.double())
    step = torch.zeros_like(batch.numeric)
    step[:, 0, 0] = 1e-6
    with torch.no_grad():
        up, down = (network(replace(batch, numeric=batch.numeric + by)) for by in (step, -step))
    found = jacobian_by_output(network, batch, Input(individual=False, k=0))[:, :, 0]
    torch.testing.assert_close(found[batch.mask], ((up - down) / 2e-6)[batch.mask], atol=1e-6, rtol=1e-4)


def test_signs_leave_no_room_for_curves(data: ChoiceData) -> None:
    signed = PCMCNet(**OPTIONS, monotone={"price": "decreasing"}).fit(data, progress=False)
    assert isinstance(signed.network_, PCMCNetwork)
    assert len({member.alternative.width for member in signed.network_.members}) == 1
    assert not any(code.knots for code in signed.encoder_.features.numeric)


def test_a_table_without_numbers_has_no_networks_with_curves() -> None:
    labels = read(trips(40), choice_set="trip", chosen="took", alternative="mode")
    model = PCMCNet(**OPTIONS).fit(labels, progress=False)
    assert model.training_["pieces"] == [0] * MEMBERS
    assert "curves" not in str(model.summary())


def test_a_trial_of_the_search_is_not_fitted_again(data: ChoiceData) -> None:
    """Nor is one with more classes taken for it, that was tried later."""
    model = PCMCNet(hidden=(4,), epochs=2, members=1).fit(data, progress=False)
    kept = SearchLog(None, {})
    trials = held_out_trials(model, data, None, FitSettings(seed=0), torch.device("cpu"), kept)
    assert trials is not None
    pair = trials.pairs[0]
    trials.run(pair, 4.0)
    first = model.network_
    model._classes = 2
    trials.run(pair, 4.0)
    assert model.network_ is not first
    trials.fitted(pair, 4.0, 0)
    assert model.network_ is first
    model._classes = 1
    trials.fitted(pair, 4.0, 8)
    assert isinstance(first, PCMCNetwork)
    assert isinstance(model.network_, PCMCNetwork)
    assert model.network_.alternative.width > first.alternative.width
