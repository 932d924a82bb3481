from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.networks.averaged_members import NetworkSpec
from pcmcnet.models.networks.set_network import (
    SetModel,
    SetNetwork,
    SetNetworkConfig,
    log_softmax_of_sets,
    perceptron_of,
    set_means,
    with_individual,
)

MakeTrips = Callable[..., pa.Table]
MASK = torch.tensor([[True, True, True], [True, True, False]])


class OwnScore(SetNetwork):
    """Scores each alternative independently."""

    def __init__(self, encoder: Encoder, config: Any, own: Any = None) -> None:
        super().__init__(encoder, config, own)
        self.net = perceptron_of(config, self.individual.width + self.alternative.width)

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.net(with_individual(alternatives, individual)).squeeze(-1)
        return out


class OwnScores(SetModel):
    """The model of OwnScore."""

    name = "own-scores"
    config_class = SetNetworkConfig
    network_class = OwnScore


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 8}, r"hidden must be a list of widths such as \(64, 64\), got 8"),
        ({"hidden": (0,)}, "hidden must be a whole number of at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be a number of at least 0 and below 1"),
        ({"activation": "step"}, "unknown activation 'step'"),
        ({"utility": "square"}, "unknown utility 'square'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OwnScores(**options)


def test_the_mean_of_a_set_excludes_padding() -> None:
    values = torch.tensor([[[1.0], [2.0], [6.0]], [[1.0], [2.0], [torch.nan]]])
    assert set_means(values, MASK).tolist() == [[3.0], [1.5]]


def test_padding_gets_no_probability_and_no_gradient() -> None:
    utilities = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 5.0]], requires_grad=True)
    log_p = log_softmax_of_sets(utilities, MASK)
    torch.testing.assert_close(log_p.exp(), torch.tensor([[1 / 3] * 3, [0.5, 0.5, 0.0]]))
    log_p[:, 0].sum().backward()  # type: ignore[no-untyped-call]
    assert utilities.grad is not None
    assert utilities.grad[1].tolist() == [0.5, -0.5, 0.0]


def test_unbounded_utilities_give_probabilities() -> None:
    utilities = torch.tensor([[torch.inf, -torch.inf, torch.nan], [1.0, 2.0, 3.0]])
    assert log_softmax_of_sets(utilities, MASK).exp().sum(1).tolist() == pytest.approx([1.0, 1.0])


def test_networks_start_uniform_or_as_a_logit_under_strong_decay(trips: ChoiceData) -> None:
    encoder = Encoder.learn(trips)
    batch = encoder.encode(trips).batch(np.arange(len(trips)))
    model = OwnScores(hidden=(4,))
    network = model._build(encoder, NetworkSpec())
    uniform = -batch.mask.sum(1).log()
    torch.testing.assert_close(network(batch)[:, 0], uniform)
    for decay, starts in ((1.0, False), (4.0, True)):
        fresh = model._build(encoder, NetworkSpec())
        fresh.set_starting_values(lambda _: encoder.encode(trips), decay)
        assert torch.allclose(fresh(batch)[:, 0], uniform) is not starts


def test_a_model_without_utility_is_the_network_alone(trips: ChoiceData) -> None:
    network = OwnScores(utility="none")._build(Encoder.learn(trips), NetworkSpec())
    assert network.utility is None
    assert network.prior_weights == []
    assert OwnScores(utility="none", epochs=1, weight_decay=4.0).fit(trips, progress=False).num_parameters > 0


def test_tables_without_differences_are_refused(make_trips: MakeTrips, roles: dict[str, Any]) -> None:
    data = ChoiceData.from_long(make_trips(), **roles | {"features": []})
    with pytest.raises(InputError, match="OwnScores needs features or labels of alternatives: declare"):
        OwnScores(labels=False).fit(data, progress=False)
    table = make_trips()
    alike = table.set_column(table.column_names.index("price"), "price", pa.array(np.ones(table.num_rows)))
    data = ChoiceData.from_long(alike, **roles | {"features": ["price"]})
    with pytest.raises(InputError, match="no feature differs between the alternatives of any choice set"):
        OwnScores(labels=False).fit(data, progress=False)
