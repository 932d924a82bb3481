"""PCMC-Net implemented as described in the paper: the reference of the benchmarks.

One data frame per choice set; all ordered pairs by concatenation; every pair goes through the first layer. For each
set in turn, the generator with a column of ones is solved by LU and differentiated by autograd. Adam.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.shapes import Shape
from pcmcnet import ChoiceData


def to_frames(data: ChoiceData) -> list[pd.DataFrame]:
    """Return one data frame per set, with the columns of the individual repeated."""
    columns = {name: c.values for name, c in data.features.items()}
    columns |= {name: c.values[data.set_of_alternative] for name, c in data.individual.items()}
    chosen = np.zeros(len(data.rows), np.int64)
    chosen[data.offsets[:-1] + data.chosen] = 1
    frame = pd.DataFrame({"set": data.set_of_alternative, "chosen": chosen, **columns})
    return [part for _, part in frame.groupby("set")]


class PaperNetwork(nn.Module):
    """The network on concatenated pairs, set by set."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        widths = (shape.individual + 2 * shape.features, *shape.hidden)
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.LeakyReLU(), nn.Dropout(shape.dropout)]
        self.f = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, sets: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        """Return log-probabilities of each set, from individual (1, D0) and alternatives (n, D)."""
        pairs = []
        for who, x in sets:
            n = len(x)
            both = torch.cat([x.repeat_interleave(n, 0), x.repeat(n, 1)], 1)
            pairs.append(torch.cat([who.expand(n * n, -1), both], 1))
        rates = torch.relu(self.f(torch.cat(pairs)))[:, 0] + 0.5
        out = []
        for q, (_, x) in zip(rates.split([len(x) ** 2 for _, x in sets]), sets, strict=True):
            n = len(x)
            off = q.reshape(n, n) * (1 - torch.eye(n, device=q.device))
            generator = off - torch.diag(off.sum(1))
            system = torch.cat([generator[:, :-1], q.new_ones(n, 1)], 1)
            right = q.new_zeros(n)
            right[-1] = 1
            out.append(torch.linalg.solve(system.T, right).log())
        return out


def sets_per_second(shape: Shape, data: ChoiceData, *, steps: int, device: str = "cpu") -> float:
    """Train for some steps at the batch size of the paper and return the speed."""
    torch.manual_seed(0)
    network = PaperNetwork(shape).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.001)
    frames = to_frames(data)
    order = np.random.default_rng(0).permutation(len(frames))
    who, what = list(data.individual), list(data.features)
    began, done = time.perf_counter(), 0
    for step in range(steps):
        batch = [frames[i] for i in order[step * shape.paper_batch : (step + 1) * shape.paper_batch]]
        people = [torch.tensor(f[who].iloc[[0]].to_numpy(np.float32), device=device) for f in batch]
        offers = [torch.tensor(f[what].to_numpy(np.float32), device=device) for f in batch]
        tensors = list(zip(people, offers, strict=True))
        chosen = [int(f["chosen"].to_numpy().argmax()) for f in batch]
        loss = -torch.stack([p[y] for p, y in zip(network(tensors), chosen, strict=True)]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        done += len(batch)
    if device == "cuda":
        torch.cuda.synchronize()
    return done / (time.perf_counter() - began)
