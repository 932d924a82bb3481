"""Pointer network (Vinyals et al., 2015), as applied to itineraries by Mottini & Acuna-Agost (2017).

The alternatives are read as a sequence, in the order of their rows, and an attention mechanism points at one of them:

    e_i = LSTM(e_<i, [S_i, I])                        encoder, over the alternatives in the order of the table
    d   = LSTM step from the encoder's last state     decoder, with the individual I as its input
    u_i = v . tanh(W1 e_i + W2 d)                     additive attention
    p   = softmax(u) over the set's alternatives

Shapes: B sets of up to J alternatives, width H: e (B, J, H), d (B, H), u (B, J) -> log p (B, J). Padded alternatives
are never read, and their log-probability is -inf. The probabilities depend on the order of the alternatives, and
uniform expansion does not hold.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pcmcnet.checks import require_number
from pcmcnet.data import Batch, Encoder
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.layers.generators import redirect_draws
from pcmcnet.layers.perceptron import Dropout
from pcmcnet.layers.representation import build_representation
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.averaged_members import NetworkSpec
from pcmcnet.models.networks.network_config import MAX_LAYERS, EncoderArguments, NetworkConfig
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.training.network import ChoiceNetwork


@dataclass(frozen=True, kw_only=True)
class PointerNetworkConfig(NetworkConfig):
    """Options of the pointer network: the network, then the training loop.

    Parameters
    ----------
    hidden
        Width of the encoder and decoder states, and of the attention.
    layers
        Number of stacked encoder layers.
    bidirectional
        Whether the encoder also reads the set backwards; each direction then has half the width.
    dropout
        Dropout probability in the embeddings, and in the input and output of the encoder.
    """

    hidden: int = 32
    layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.2
    batch_size: int | Literal["auto"] = 64  # smaller batches overfit

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("hidden", self.hidden, whole=True, low=1)
        require_number("layers", self.layers, whole=True, low=1, high=MAX_LAYERS)
        require_number("dropout", self.dropout, low=0, high=1, open_high=True)
        if not isinstance(self.bidirectional, bool):
            raise ConfigError(f"bidirectional must be true or false, got {self.bidirectional!r}.")
        if self.bidirectional and self.hidden % 2:
            raise ConfigError(f"hidden must be even with bidirectional=True, got {self.hidden}.")


@dataclass(frozen=True, kw_only=True)
class PointerNetworkArguments(PointerNetworkConfig, EncoderArguments):
    """Constructor arguments of the pointer network: the options and ``encoders``."""


class PointingNetwork(ChoiceNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    takes_generators = True

    def __init__(self, encoder: Encoder, config: PointerNetworkConfig, encoders: Encoders | None = None) -> None:
        super().__init__()
        self.individual = build_representation(encoder.individual, dropout=config.dropout, custom=encoders)
        self.alternative = build_representation(encoder.features, dropout=config.dropout, custom=encoders)
        width = config.hidden
        self.read = nn.Linear(self.alternative.width + self.individual.width, width)
        self.encoder = nn.LSTM(
            width,
            width // 2 if config.bidirectional else width,
            config.layers,
            batch_first=True,
            dropout=config.dropout if config.layers > 1 else 0.0,
            bidirectional=config.bidirectional,
        )
        self.start = nn.Parameter(torch.zeros(width))  # input of the decoder without individual columns
        self.ask = nn.Linear(self.individual.width, width, bias=False) if self.individual.width else None
        self.decoder = nn.LSTMCell(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.query = nn.Linear(width, width)
        self.point = nn.Linear(width, 1, bias=False)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        individual = self.individual(batch.individual_numeric, batch.individual_categorical, batch.individual_contents)
        alternatives = self.alternative(batch.numeric, batch.categorical, batch.contents)  # (B, J, D)
        steps = torch.cat([alternatives, individual.unsqueeze(1).expand(-1, alternatives.shape[1], -1)], -1)
        encoded, state = self.encode(steps, batch.mask)
        start = self.start.expand(len(individual), -1) if self.ask is None else self.start + self.ask(individual)
        decoded, _ = self.decoder(start, state)  # (B, H)
        match = torch.tanh(self.key(encoded) + self.query(self.dropout(decoded)).unsqueeze(1))  # (B, J, H)
        scores: Tensor = self.point(match).squeeze(-1)  # (B, J)
        return scores.masked_fill(~batch.mask, -math.inf).log_softmax(-1)

    def encode(self, steps: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Read alternatives (B, J, D) in order. Return encodings (B, J, H) and the last state, two tensors (B, H)."""
        lengths = mask.sum(1).cpu()  # pack_padded_sequence needs them on the host
        inputs = self.dropout(torch.tanh(self.read(steps)))
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        with redirect_draws() if self.encoder.dropout and self.training else nullcontext():
            out, last = self.encoder(packed)
        encoded, _ = pad_packed_sequence(out, batch_first=True, total_length=mask.shape[1])
        return self.dropout(encoded), (self._top(last[0]), self._top(last[1]))

    def _top(self, state: Tensor) -> Tensor:
        """Concatenate the directions of the top layer's last state: (layers * directions, B, .) -> (B, H)."""
        directions = 2 if self.encoder.bidirectional else 1
        return state[-directions:].transpose(0, 1).flatten(1)


class PointerNetwork(NeuralModel):
    """Pointer network: a recurrent network that reads the alternatives in order and points at one of them.

    The probabilities depend on the order of a set's rows in the table. Use the order in which the alternatives were
    shown to the decision maker.

    Examples
    --------
    >>> PointerNetwork(hidden=64, epochs=10).config.hidden
    64
    """

    name = "dpn"
    config_class = PointerNetworkConfig
    config: PointerNetworkConfig
    order_matters = True

    @takes(PointerNetworkArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _build(self, encoder: Encoder, spec: NetworkSpec) -> PointingNetwork:
        if not encoder.features:
            raise InputError(
                "PointerNetwork needs features or labels of alternatives: declare features, or declare an alternative "
                "column with labels that occur in several sets and keep labels=True."
            )
        return PointingNetwork(encoder, self.config, self.encoders)

    def _more_facts(self) -> dict[str, str]:
        return {"order": "probabilities depend on the order of the rows of a set"}
