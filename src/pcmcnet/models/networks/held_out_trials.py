"""Short fits of a network to parts of its training sets: what they lose on held-out sets decides on options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pcmcnet.data import Encoder, Sets
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.own_encoders import frozen_ones
from pcmcnet.models.networks.decay_search import (
    SHORT,
    Pair,
    Search,
    SearchLog,
    held_out_parts,
    search_decay,
    share_searched,
)
from pcmcnet.training import ChoiceNetwork

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel


class Trials(NamedTuple):
    """What is to be fitted and predicted, how, and where the results are kept."""

    pairs: list[Pair]
    run: Callable[[Pair, float], list[float]]  # sets, weight decay -> loss of held-out sets after each epoch
    kept: SearchLog
    share: float  # of the training sets that the pairs were drawn from
    fitted: Callable[[Pair, float, int], None]  # sets, weight decay, pieces of curves -> the model has such a network

    def search_decay(self) -> Search:
        """Learn how firmly to hold the network."""
        return search_decay(self.pairs, self.run, self.kept, share=self.share)


def held_out_trials(
    model: NeuralModel,
    train: Sets,
    valid: Sets | None,
    settings: FitSettings,
    device: torch.device,
    kept: SearchLog,
) -> Trials | None:
    """Return how to try options on held-out sets; None where sets are too few to tell."""
    train = train.counted()
    # Gaps that no other part has, and vectors of frozen encoders, are known from the whole training part.
    known = model._encoder(train) if train.schema.has_gaps or frozen_ones(model.encoders) else None
    known = known if settings.init is None else settings.init.encoder
    pairs = held_out_parts(train, None if valid is None else valid.counted(), settings.seed)
    encoders = {id(part): known or model._encoder(part) for part, _ in pairs}
    pairs = [(p, held) for p, held in pairs if encoders[id(p)].encode(p, tell=False).varies_within_sets()]
    if not pairs:
        return None
    quiet = replace(settings, progress=False, on_epoch=None, tells=False)
    short = replace(model.config, epochs=max(round(SHORT * model.config.passes), 1), min_delta="noise")

    done: dict[tuple[int, float], tuple[Encoder, ChoiceNetwork]] = {}

    def losses(pair: Pair, decay: float, pieces: int = 0) -> list[float]:
        (part, held_out), config = pair, replace(short, weight_decay=decay)
        encoder = encoders[id(part)]
        if pieces:
            encoder = encoder.with_knots(part).with_pieces(pieces)
        given: dict[str, Any] = {"device": device, "checkpoint": None, "encoder": encoder}
        outcome = model._run(part, held_out, config, quiet, **given)
        if not pieces:  # the first is that of one chain, whatever is tried later
            done.setdefault((id(part), decay), (model.encoder_, model.network_))
        return [entry["valid_loss"] for entry in outcome.history]

    def fitted(pair: Pair, decay: float, pieces: int) -> None:
        key = id(pair[0]), decay
        if pieces or key not in done:
            losses(pair, decay, pieces)
        else:
            model.encoder_, model.network_ = done[key]

    return Trials(pairs, losses, kept, share_searched(train), fitted)
