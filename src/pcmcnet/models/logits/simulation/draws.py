"""Draws of random numbers that belong to a person, whoever else is in the table.

A person's draws are points of a D-dimensional cube, R of them, made from the seed and from a hash of the person's id
alone. So neither the order of persons and rows nor who else is there matters, a person of a fold has the draws of the
whole table, and draws need not be kept: any block of persons makes its own again. Another id gives other draws.

    sobol    a scrambled Sobol sequence that all share, each person's copy under a digital shift of its own (XOR)
    halton   a Halton sequence that all share, each person's copy rotated by a shift of its own (modulo 1)
    mlhs     modified Latin hypercube: R equally spaced points with one random offset, shuffled, in each dimension
    random   pseudo-random numbers

(Bhat, 2001; Hess, Train & Polak, 2006; Owen, 1997.) Points are whole numbers of 31 bits until the end, so that CPU and
GPU make the same. With ``antithetic`` the second half of the draws mirrors the first at the centre of the cube. What is
given out is t in (-1, 1), uniform: the distributions make of it what they need. Shapes: keys (N,) -> t (N, D, R).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from pcmcnet.arrays import Ints

Sequence = Literal["sobol", "halton", "mlhs", "random"]

_BITS = 31
_ONES = 2**_BITS - 1
_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed number: Weyl steps of SplitMix64
_MIX = (-4658895280553007687, -7723592293110705685)
_NOBODY = 0  # key of the draws that predictions share


@dataclass(frozen=True)
class Draws:
    """R draws in D dimensions for any person."""

    sequence: Sequence
    dimensions: int
    number: int
    seed: int
    antithetic: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def of(self, keys: Ints) -> Tensor:  # (N,) -> (N, D, R)
        """Return the draws t of persons, by their keys."""
        key = torch.from_numpy(np.asarray(keys, np.int64)).to(self.device)
        points = self._points(_mixed(key ^ _mixed(torch.tensor(self.seed, device=self.device))))
        if self.antithetic:
            points = torch.cat([points, _ONES - points], dim=-1)
        t: Tensor = (points - 2 ** (_BITS - 1)).to(torch.float32) * 2.0 ** (1 - _BITS)
        return t.clamp_(-1 + 2**-24, 1 - 2**-24)  # rounding must not reach the ends, where quantiles are infinite

    def common(self) -> Tensor:  # -> (1, D, R)
        """Return the draws that predictions share: for nobody in particular."""
        return self.of(np.array([_NOBODY]))

    def _points(self, key: Tensor) -> Tensor:  # (N,) -> (N, D, R or R / 2) whole numbers of 31 bits
        # 1. One number per person and dimension: the shift of a shared sequence, or the seed of the person's own.
        of_dimension = _mixed(key[:, None] + _GOLDEN * torch.arange(1, self.dimensions + 1, device=self.device))
        shift: Tensor = (of_dimension & _ONES)[:, :, None]  # (N, D, 1)
        if self.sequence in ("sobol", "halton"):
            moved: Tensor = self._shared ^ shift.to(torch.int32)
            return moved if self.sequence == "sobol" else (self._shared.long() + shift).bitwise_and(_ONES)
        # 2. Noise by counting on from that number; a Latin hypercube takes its order, and one offset.
        steps = torch.arange(1, self._half + 1, device=self.device)
        noise = _mixed(of_dimension[:, :, None] + _GOLDEN * steps).bitwise_and(_ONES)
        if self.sequence == "random":
            return noise
        order = noise.argsort(dim=-1, stable=True)
        return torch.div(order * 2**_BITS + shift, self._half, rounding_mode="floor")

    @property
    def _half(self) -> int:
        return self.number // 2 if self.antithetic else self.number

    @cached_property
    def _shared(self) -> Tensor:  # (D, R or R / 2)
        """The sequence that all persons share, before their shifts."""
        if self.sequence == "sobol":
            engine = SobolEngine(self.dimensions, scramble=True, seed=self.seed)  # type: ignore[no-untyped-call]
            points = engine.draw(self._half, dtype=torch.float64)
        else:
            from scipy.stats.qmc import Halton

            points = torch.from_numpy(Halton(self.dimensions, scramble=False).random(self._half))
        shared: Tensor = (points.T * 2**_BITS).to(torch.int32).contiguous().to(self.device)
        return shared


def keys_of(ids: Iterable[Any]) -> Ints:
    """Hash ids, of any kind, to whole numbers of 64 bits; equal ids as text have equal keys."""
    found = (int.from_bytes(blake2b(str(each).encode(), digest_size=8).digest(), "little", signed=True) for each in ids)
    return np.fromiter(found, np.int64)


def _mixed(x: Tensor) -> Tensor:
    """Scatter whole numbers of 64 bits: the finaliser of SplitMix64 (Steele, Lea & Flood, 2014)."""
    x = x.bitwise_xor(_right(x, 30)) * _MIX[0]
    x = x.bitwise_xor(_right(x, 27)) * _MIX[1]
    return x.bitwise_xor(_right(x, 31))


def _right(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros."""
    return x.bitwise_right_shift(bits).bitwise_and(2 ** (64 - bits) - 1)
