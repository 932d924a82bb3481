"""Numbers -> curves: a number beside what a network can bend at knots of its own.

The knots x_0 < ... < x_T are quantiles of the training column. Of a number x a network gets

    piecewise   e_t = (x - x_{t-1}) / (x_t - x_{t-1}), within 0 and 1 but for the first and the last bin, t = 1..T
                (Gorishniy, Rubachev & Babenko, 2022)
    spline      the T + 3 cubic B-splines on the knots (de Boor, 1978), continued by their tangents beyond the last

so that a linear layer above is any curve with bends at the knots: continuous in x, for splines with two derivatives in
between, and a straight line beyond the ends. Shapes: (...) -> (..., width).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

DEGREE = 3


class Piecewise(nn.Module):
    """How far a number has come through each bin."""

    starts: Tensor
    widths: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        at = torch.tensor(knots, dtype=torch.float64)
        self.width = len(at) - 1
        for name, values in {
            "starts": at[:-1],
            "widths": at.diff(),
            "low": torch.tensor([-math.inf] + [0.0] * (self.width - 1)),
            "high": torch.tensor([1.0] * (self.width - 1) + [math.inf]),
        }.items():
            self.register_buffer(name, values.float(), persistent=False)  # the knots are kept with the column's code

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (..., T)."""
        through = (x.unsqueeze(-1) - self.starts) / self.widths
        return torch.maximum(torch.minimum(through, self.high), self.low)


class Spline(nn.Module):
    """Cubic B-splines, and their tangents beyond the ends."""

    knots: Tensor
    slopes: Tensor

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        at = torch.tensor(knots, dtype=torch.float64)
        self.width = len(at) - 1 + DEGREE
        ends = [at[:1].expand(DEGREE), at, at[-1:].expand(DEGREE)]
        # Only the first two splines have a slope at the first knot, and only the last two at the last one.
        slopes = torch.zeros(2, self.width, dtype=torch.float64)
        first, last = DEGREE / (at[1] - at[0]), DEGREE / (at[-1] - at[-2])
        slopes[0, :2] = torch.stack([-first, first])
        slopes[1, -2:] = torch.stack([-last, last])
        self.register_buffer("knots", torch.cat(ends).float(), persistent=False)
        self.register_buffer("slopes", slopes.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (..., T + 3)."""
        first, last = self.knots[0], self.knots[-1]
        inside = torch.maximum(torch.minimum(x, last), first)
        below, above = (x - first).clamp(max=0), (x - last).clamp(min=0)
        tangents = below.unsqueeze(-1) * self.slopes[0] + above.unsqueeze(-1) * self.slopes[1]
        return self._splines(inside.unsqueeze(-1)) + tangents

    def _splines(self, x: Tensor) -> Tensor:
        """Cox and de Boor's recursion: from splines of degree d - 1 to those of degree d."""
        t = self.knots
        last = (t[1:] == t[-1]) & (t[:-1] < t[-1])  # the last bin holds its end as well
        found = ((x >= t[:-1]) & ((x < t[1:]) | (last & (x == t[-1])))).to(x.dtype)
        for d in range(1, DEGREE + 1):
            up, down = t[d:-1] - t[: -d - 1], t[d + 1 :] - t[1:-d]
            rising = (x - t[: -d - 1]) / up.where(up > 0, up.new_ones(())) * (up > 0)
            falling = (t[d + 1 :] - x) / down.where(down > 0, down.new_ones(())) * (down > 0)
            found = rising * found[..., :-1] + falling * found[..., 1:]
        return found


CURVES: Mapping[str, type[Piecewise | Spline]] = {"piecewise": Piecewise, "spline": Spline}
