"""Networks that see numbers by curves, beside others that do not."""

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
from pcmcnet.models.networks.chain_network import PCMCNetwork
from pcmcnet.models.networks.curve_members import MEMBERS, CurveView, pieces_of
from pcmcnet.models.networks.network_slopes import Input, jacobian_by_output

OPTIONS: dict[str, Any] = {"hidden": (4,), "epochs": 1, "weight_decay": 0.1, "members": MEMBERS}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(trips(60, slope=-0.3), **{key: ROLES[key] for key in ("alternative", "individual", "features")})


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> PCMCNet:
    return PCMCNet(**OPTIONS).fit(data, progress=False)


def test_five_of_seven_see_numbers_as_they_are() -> None:
    assert [pieces_of(number) for number in range(8)] == [0, 0, 0, 0, 0, 8, 16, 0]


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
