"""Transformer choice net (Wang, Li & Talluri, 2023): attention over the alternatives of a set.

    e_i = W [S_i, I]                                     tokens
    a   = blocks of self-attention of e                  the assortment
    c   = blocks of cross-attention from e to a          each candidate attends to the assortment
    u_i = linear utility of i + v . norm(c_i)
    p   = softmax(u)

A block computes z + attention(norm(z), norm(context)), then z + perceptron(norm(z)). There is no positional encoding,
so the order of the alternatives does not matter. Every alternative of the set is both a candidate and a part of the
assortment. Padding is masked in the attention. Shapes: width W, M heads: e, a, c (B, J, W), attention (B, M, J, J) -> u
(B, J).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pcmcnet.checks import require_number
from pcmcnet.data import Encoder
from pcmcnet.errors import ConfigError
from pcmcnet.layers.perceptron import Dropout
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import MAX_LAYERS, EncoderArguments
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, SetNetworkConfig, perceptron_of, with_individual


@dataclass(frozen=True, kw_only=True)
class TCNetConfig(SetNetworkConfig):
    """Options of the transformer choice net: the network, then the training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of the perceptron in each block.
    width
        Width of the tokens, which must be a multiple of ``heads``.
    heads
        Number of attention heads.
    blocks
        Number of self-attention blocks, which is also the number of cross-attention blocks.
    dropout
        Dropout probability in the embeddings, the outputs of attention and the hidden layers.
    """

    hidden: tuple[int, ...] = (64,)
    width: int = 32
    heads: int = 4
    blocks: int = 1
    dropout: float = 0.2
    lr: float = 0.002  # overfits at the default rate of other networks

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "heads"):
            require_number(name, getattr(self, name), whole=True, low=1)
        require_number("blocks", self.blocks, whole=True, low=1, high=MAX_LAYERS)
        if self.width % self.heads:
            raise ConfigError(f"width must be a multiple of heads, got {self.width} and {self.heads}.")


@dataclass(frozen=True, kw_only=True)
class TCNetArguments(TCNetConfig, EncoderArguments):
    """Constructor arguments of the transformer choice net: the options and ``encoders``."""


class Attention(nn.Module):
    """Multi-head attention: each token gets a mean of the tokens of its set, weighted by how well they match."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: Tensor, of: Tensor, mask: Tensor) -> Tensor:
        """Return weighted means (B, J, W) of the tokens ``of`` (B, J, W), with weights that depend on ``tokens``."""
        q, k, v = self._heads(self.query(tokens)), self._heads(self.key(of)), self._heads(self.value(of))
        match = q @ k.mT / math.sqrt(q.shape[-1])  # (B, M, J, J)
        means = match.masked_fill(~mask[:, None, None, :], -math.inf).softmax(-1) @ v
        out: Tensor = self.out(means.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """Split tokens (B, J, W) into heads (B, M, J, W / M)."""
        B, J, W = x.shape
        return x.view(B, J, self.heads, W // self.heads).transpose(1, 2)


class AttentionBlock(nn.Module):
    """Attention, then a perceptron, each with a residual connection."""

    def __init__(self, config: TCNetConfig) -> None:
        super().__init__()
        self.attention = Attention(config.width, config.heads)
        self.layers = perceptron_of(config, config.width, out=config.width, start="spread")
        self.of_tokens, self.of_context, self.of_layers = (nn.LayerNorm(config.width) for _ in range(3))
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """Return new tokens (B, J, W), given tokens (B, J, W), context (B, J, W) and a mask (B, J)."""
        tokens = tokens + self.dropout(self.attention(self.of_tokens(tokens), self.of_context(context), mask))
        out: Tensor = tokens + self.dropout(self.layers(self.of_layers(tokens)))
        return out


class TCNetwork(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: TCNetConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        self.token = nn.Linear(self.individual.width + self.alternative.width, config.width)
        self.assortment = nn.ModuleList(AttentionBlock(config) for _ in range(config.blocks))
        self.candidates = nn.ModuleList(AttentionBlock(config) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width, bias=False)  # a bias would shift all utilities equally
        self.worth = nn.Linear(config.width, 1, bias=False)
        nn.init.zeros_(self.worth.weight)

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return scores (B, J), given individuals (B, D0), alternatives (B, J, D) and a mask (B, J)."""
        tokens = assortment = self.token(with_individual(alternatives, individual))
        for block in self.assortment:
            assortment = block(assortment, assortment, mask)
        for block in self.candidates:
            tokens = block(tokens, assortment, mask)
        out: Tensor = self.worth(self.norm(tokens)).squeeze(-1)
        return out


class TCNet(SetModel):
    """Transformer choice net: alternatives attend to the other alternatives of the choice set.

    Examples
    --------
    >>> TCNet(width=16, heads=2, epochs=10).config.width
    16
    """

    name = "tcnet"
    config_class = TCNetConfig
    config: TCNetConfig
    network_class = TCNetwork

    @takes(TCNetArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
