"""Chains for plot_properties.py: probabilities of a chain, networks with weights set by hand, and trained networks.

Rates are (n, n): entry (i, j) is the rate of leaving i for j. The diagonal is ignored.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import pcmcnet as pn
from pcmcnet.layers import PairwiseRates

Floats = NDArray[np.float64]
SetProbabilities = dict[tuple[int, ...], Floats]  # choice set -> probabilities of its alternatives


def probabilities(rates: Floats) -> Floats:
    """(n, n) rates -> (n,) probabilities."""
    return pn.stationary_distribution(torch.as_tensor(rates, dtype=torch.float64)).numpy()


def probabilities_by_set(rates: Floats) -> SetProbabilities:
    """Return the probabilities of every choice set with at least two alternatives."""
    n = len(rates)
    subsets = [s for k in range(2, n + 1) for s in itertools.combinations(range(n), k)]
    mask = torch.tensor([[i in s for i in range(n)] for s in subsets])
    p = pn.stationary_distribution(torch.as_tensor(rates).expand(len(subsets), n, n), mask).numpy()
    return {s: p[k, list(s)] for k, s in enumerate(subsets)}


def distance(one: SetProbabilities, other: SetProbabilities) -> float:
    """Return the largest total variation over all choice sets."""
    return max(float(np.abs(one[s] - other[s]).sum()) / 2 for s in one)


def one_layer(leave: Any, enter: Any, bias: Any, output: Any, shift: float, *, epsilon: float) -> PairwiseRates:
    """Return the network with rates max(0, output · max(0, leave S_i + enter S_j + bias) + shift) + epsilon."""
    units, width = np.shape(leave)
    net = PairwiseRates(0, width, (units,), activation="relu", rate="relu", epsilon=epsilon).double()
    values = (leave, enter, bias, [output], [shift])
    weights = (net.leave.weight, net.enter.weight, net.enter.bias, net.output.weight, net.output.bias)
    with torch.no_grad():
        for weight, value in zip(weights, values, strict=True):
            weight.copy_(torch.as_tensor(np.asarray(value, np.float64)))
    return net


def by_hand(rates: Floats, *, epsilon: float) -> PairwiseRates:
    """Return the network of the proof: it has the rates of a chain on one-hot alternatives; zeros become epsilon.

    Each positive rate q_ij has one hidden unit, max(0, [i is left] + [j is entered] - 1). The unit is 1 for this pair
    and 0 for all others. Its output weight is q_ij - epsilon. Positive rates must not be below epsilon.
    """
    i, j = np.nonzero(rates)
    one_hot = np.eye(len(rates))
    return one_layer(one_hot[i], one_hot[j], -np.ones(len(i)), rates[i, j] - epsilon, 0.0, epsilon=epsilon)


@torch.no_grad()
def rates_of(net: PairwiseRates, alternatives: Floats) -> Floats:
    """(n, d) alternatives -> (n, n) rates of a network, up to a common factor."""
    x: Tensor = torch.as_tensor(alternatives)[None]
    rates = net(x.new_zeros(1, 0), x, torch.ones(x.shape[:2], dtype=torch.bool))[0].fill_diagonal_(0)
    return rates.numpy()


def choices(weights: Mapping[Any, Floats], features: Mapping[Any, Floats]) -> pn.ChoiceData:
    """Return choice data in which each alternative of a set is chosen once, with its probability as the weight."""
    blocks = [(s, c, p) for s, shares in weights.items() for c, p in enumerate(shares) if p > 0]
    x = np.concatenate([features[s] for s, _, _ in blocks])
    names = list(_columns(x))
    sizes = [len(weights[s]) for s, _, _ in blocks]
    table = {
        "set": np.repeat(np.arange(len(blocks)), sizes),
        "chosen": np.concatenate([np.arange(len(weights[s])) == c for s, c, _ in blocks]),
        "weight": np.repeat([p for _, _, p in blocks], sizes),
        **_columns(x),
    }
    return pn.ChoiceData.from_long(table, choice_set="set", chosen="chosen", weight="weight", features=names)


def predictions(model: pn.PCMCNet, features: Mapping[Any, Floats]) -> dict[Any, Floats]:
    """Return the probabilities of each choice set according to a fitted model."""
    sizes = [len(x) for x in features.values()]
    x = np.concatenate(list(features.values()))
    p = model.predict_proba({"set": np.repeat(np.arange(len(sizes)), sizes), **_columns(x)})
    return dict(zip(features, np.split(p, np.cumsum(sizes)[:-1]), strict=True))


def _columns(x: Floats) -> dict[str, Floats]:
    return {f"x{k}": column for k, column in enumerate(x.T)}


def fit_to(weights: Mapping[Any, Floats], features: Mapping[Any, Floats], **options: Any) -> pn.PCMCNet:
    """Fit a network to exact probabilities."""
    settings = {"batch_size": 128, "lr": 0.03, "weight_decay": 0.0, "utility": "none", "labels": False, **options}
    return pn.PCMCNet(**settings).fit(choices(weights, features), device="cpu", progress=False)
