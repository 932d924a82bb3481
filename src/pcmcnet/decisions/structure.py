"""How a model's choice probabilities depend on the offer: as chains, as logits, or in a way of its own.

What is taken for a chain or a logit is compared with the model's own answers on some offers, so that a formula with
terms relative to the set, for example, is never taken for a logit.
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.decisions.nested_offers import NestedLogits
from pcmcnet.decisions.offer_value import CPU, AnyModel, Chains, Logits, OfferValue
from pcmcnet.models import ChainModel, ChoiceModel, Ensemble, MixedMNL, NestedMNL
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.training.device import device_of

_OFFERS = 16  # that the model is compared on
_LEAST = -600.0  # log-probability that stands for smaller ones: no attraction is 0, so that every offer has a choice
_NUMBERS = 2**26  # attractions of all individuals in all draws, half a GiB; a mixed logit with more is asked itself
_CLOSE = 1e-5  # in probability: networks compute in 32 bits


def structure_of(model: ChoiceModel, sets: ChoiceData, revenue: Floats) -> OfferValue:
    """Return what offers of a catalogue earn; ``sets`` holds all of it for each individual."""
    asked = AnyModel(model, sets, revenue)
    for structure in (_chains, _logits, _nested):
        value = structure(_members(model), sets, revenue)
        if value is not None and _agree(value, asked, len(sets)):
            return value
    return asked


def fixed_draws(model: ChoiceModel) -> int | None:
    """Return how many draws stand for the distribution of tastes that the model has; None where it has none."""
    return sum(m.config.draws for m in _members(model) if isinstance(m, MixedMNL)) or None


def _members(model: ChoiceModel) -> list[ChoiceModel]:
    return list(model.members_) if isinstance(model, Ensemble) else [model]


def _chains(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> Chains | None:
    """Return chains, where all members are such, or mixtures of such."""
    chains = [member for member in members if isinstance(member, ChainModel)]
    if len(chains) < len(members):
        return None
    found = [member.fixed_chains(sets) for member in chains]
    weights = [shares / len(members) for shares, _ in found]  # (P, K) of each member
    rates = [np.stack(theirs) for _, theirs in found]  # (P, K, n, n)
    networks = (member.network_ for member in chains if isinstance(member, NeuralModel))
    device = next(map(device_of, networks), CPU)
    return Chains(np.concatenate(weights, axis=1), np.concatenate(rates, axis=1), revenue, device)


def _logits(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> Logits | None:
    """Return logits, where all members are mixtures of such, and their draws fit into memory."""
    if sum(m.config.draws for m in members if isinstance(m, MixedMNL)) * len(sets) * len(revenue) > _NUMBERS:
        return None
    found = [member.as_logits(sets) for member in members]
    weights, attraction = [], []
    for part in found:
        if part is None:
            return None
        shares, log_p = part
        weights.append(shares / len(members))
        attraction.append(np.exp(np.maximum(log_p, _LEAST)).reshape(len(sets), -1, log_p.shape[1]).swapaxes(1, 2))
    return Logits(np.concatenate(weights, axis=1), np.concatenate(attraction, axis=1), revenue)


def _nested(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> NestedLogits | None:
    """Return nested logits, where the model is one with a single level of nests."""
    model = members[0]
    found = model.as_nests(sets) if len(members) == 1 and isinstance(model, NestedMNL) else None
    if found is None:
        return None
    v, nests, logsums = found
    return NestedLogits(v.reshape(len(sets), -1), nests[: len(revenue)], logsums, revenue)


def _agree(value: OfferValue, asked: AnyModel, individuals: int) -> bool:
    """Compare a structure with the model itself on random offers."""
    rng = np.random.default_rng(0)
    offers = rng.random((_OFFERS, len(asked.revenue))) < 0.5
    offers[np.arange(_OFFERS), rng.integers(0, offers.shape[1], _OFFERS)] = True
    who = rng.integers(0, individuals, _OFFERS)
    return bool(np.abs(value.probabilities(offers, who) - asked.probabilities(offers, who)).max() < _CLOSE)
