"""A straightforward batched implementation of PCMC-Net: the second reference of the benchmarks.

Sets are padded to the largest of their random batch. The first layer is computed for alternatives and added for pairs
by broadcasting. The padded generators are solved by one batched LU. Plain autograd, Adam, and the rates of the paper.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchmarks.shapes import Shape
from pcmcnet import ChoiceData


class BatchedNetwork(nn.Module):
    """The network on a padded batch."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden[0]
        self.who = nn.Linear(shape.individual, width, bias=False) if shape.individual else None
        self.leave, self.enter = nn.Linear(shape.features, width, bias=False), nn.Linear(shape.features, width)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise((*shape.hidden, 1)))
        self.dropout = shape.dropout

    def forward(self, individual: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        """(B, D0), (B, J, D), (B, J) -> probabilities (B, J)."""
        h = self.leave(x).unsqueeze(2) + self.enter(x).unsqueeze(1)  # (B, J, J, H)
        if self.who is not None:
            h = h + self.who(individual)[:, None, None]
        for layer in self.layers:
            h = layer(F.dropout(F.leaky_relu(h), self.dropout, self.training))
        return solved(F.relu(h.squeeze(-1)) + 0.5, mask)


def solved(rates: Tensor, mask: Tensor) -> Tensor:
    """Solve by LU with ones in the first column of each generator: (B, J, J), (B, J) -> (B, J)."""
    real = mask.unsqueeze(2) & mask.unsqueeze(1)
    off = rates * real * (1 - torch.eye(rates.shape[-1], device=rates.device))
    exits = off.sum(-1) + ~mask  # a padded state is left at rate 1 and never entered: its probability is 0
    system = off - torch.diag_embed(exits)
    system = torch.cat([torch.ones_like(system[..., :1]), system[..., 1:]], -1)
    right = F.one_hot(torch.zeros(len(rates), dtype=torch.long, device=rates.device), rates.shape[-1])
    return torch.linalg.solve(system.mT, right.to(rates.dtype))


def to_tensors(data: ChoiceData) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return individuals (S, D0), alternatives by set (n, D), and choices (S,)."""
    x = np.stack([c.values for c in data.features.values()], 1).astype(np.float32)
    individual = np.zeros((len(data), len(data.individual)), np.float32)
    for at, column in enumerate(data.individual.values()):
        individual[:, at] = column.values
    alternatives = list(torch.from_numpy(x).split(data.sizes.tolist()))
    return torch.from_numpy(individual), alternatives, torch.from_numpy(data.chosen)


def sets_per_second(shape: Shape, data: ChoiceData, *, steps: int, batch_size: int, device: str = "cpu") -> float:
    """Train for some steps and return the speed."""
    torch.manual_seed(0)
    network = BatchedNetwork(shape).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.001)
    individual, x, chosen = to_tensors(data)
    sizes = torch.from_numpy(data.sizes)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(data)))
    began, done = time.perf_counter(), 0
    for batch in order.split(batch_size)[:steps]:
        padded = pad_sequence([x[i] for i in batch], batch_first=True).to(device)
        mask = torch.arange(padded.shape[1]) < sizes[batch].unsqueeze(1)
        p = network(individual[batch].to(device), padded, mask.to(device))
        loss = -p.gather(1, chosen[batch].long().to(device).unsqueeze(1)).log().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        done += len(batch)
    if device == "cuda":
        torch.cuda.synchronize()
    return done / (time.perf_counter() - began)
