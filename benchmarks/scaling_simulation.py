"""Chance on top of the formulas: workers that are slow for a while, and workers that die.

Workers wait for one another at every step, so a step takes as long as its slowest worker: with factors exp(spread Z),
Z normal, of W workers the largest counts. It is drawn in one piece, as the largest of W uniform numbers is U^(1/W).
Workers die at a constant rate. The state is kept after each epoch, so the epoch under way is lost, and all workers
start again. Without spread and without failures a run takes what the formula says.

Before the first epoch nobody waits for others but at the end of a pass: whoever is free takes the next piece, and a
piece whose worker dies is done again. The passes are one over pieces of the table and one over its shards, which make
the scan, and one over shards to learn the encoder (in fact several, which is for chance the same).
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.scaling_model import AS_IT_IS, Design, Job, Rates, buffers, learn_seconds, parts, scan_seconds

DRAWS = 64  # steps that are drawn for each buffer; the others take their mean
PIECES = 8  # of the table for each worker that scans it; taken to be alike, though the last are the smallest
GIVEN_UP = 3  # failures after which a fit ends and is to be resumed by hand


class Chances(NamedTuple):
    """How far workers differ from one step to the next, and how often one dies, per hour."""

    spread: float = 0.0
    deaths: float = 0.0


CERTAIN = Chances()


class Run(NamedTuple):
    """Seconds of a fit, and how many workers died."""

    seconds: float
    failures: int


def slowest(workers: int, spread: float, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the factor of the slowest of some workers."""
    if spread == 0:
        return np.ones(shape)
    return np.exp(spread * ndtri(rng.random(shape) ** (1 / workers)))


def epoch_by_chance(job: Job, rates: Rates, design: Design, chances: Chances, rng: np.random.Generator) -> float:
    """Go through the buffers of an epoch: each is read while the one before is in use."""
    found, k, W = parts(job, rates, design), buffers(job, rates, design), job.workers
    read = found.ahead(design) / k * slowest(W, chances.spread, (k,), rng)
    stretch = slowest(W, chances.spread, (k, DRAWS), rng).mean(1)
    use = (found.use(design) - found.compute) / k + found.compute / k * stretch
    return float(read[0] + np.maximum(read[1:], use[:-1]).sum() + use[-1] + found.keep)


def run_by_chance(job: Job, rates: Rates, design: Design, chances: Chances, rng: np.random.Generator) -> Run:
    """Fit once, from the start of the workers to the last epoch."""
    start = rates.start if job.workers > 1 else 0.0
    rate = chances.deaths * job.workers / 3600
    clock, failures, fresh, done = 0.0, 0, True, 0
    dies = rng.exponential(1 / rate) if rate else np.inf
    while done < job.epochs:
        attempt = fresh * start + epoch_by_chance(job, rates, design, chances, rng)
        if clock + attempt > dies:
            clock, failures, fresh = dies, failures + 1, True
            dies = clock + rng.exponential(1 / rate)
        else:
            clock, done, fresh = clock + attempt, done + 1, False
    return Run(clock, failures)


def pass_by_chance(
    seconds: float, pieces: int, job: Job, chances: Chances, rng: np.random.Generator
) -> tuple[float, int]:
    """Share out so many pieces of so many seconds each: the time until the last is done, and deaths on the way."""
    free, rate, deaths = [0.0] * job.workers, chances.deaths / 3600, 0
    for factor in np.exp(chances.spread * rng.standard_normal(pieces)):
        clock = heapq.heappop(free)
        while rate and (dies := rng.exponential(1 / rate)) < seconds * factor:
            clock, deaths = clock + dies, deaths + 1
        heapq.heappush(free, clock + seconds * float(factor))
    return max(free), deaths


def begin_by_chance(job: Job, rates: Rates, chances: Chances, rng: np.random.Generator) -> Run:
    """Scan and learn once, by all workers."""
    one = replace(job, workers=1)
    slowed = rates.sharing if job.workers > 1 else 1.0
    scan, learn = scan_seconds(one, rates) / slowed, learn_seconds(one, rates) / slowed
    passes = ((scan / 2, PIECES * job.workers), (scan / 2, job.cut), (learn, job.cut))
    found = [pass_by_chance(seconds / pieces, pieces, job, chances, rng) for seconds, pieces in passes]
    start = rates.start if job.workers > 1 else 0.0
    return Run(start + sum(seconds for seconds, _ in found), sum(deaths for _, deaths in found))


def simulate_begin(job: Job, rates: Rates, chances: Chances = CERTAIN, *, runs: int = 200, seed: int = 0) -> list[Run]:
    """Scan and learn many times."""
    rng = np.random.default_rng(seed)
    return [begin_by_chance(job, rates, chances, rng) for _ in range(runs)]


def simulate(
    job: Job, rates: Rates, design: Design = AS_IT_IS, chances: Chances = CERTAIN, *, runs: int = 200, seed: int = 0
) -> list[Run]:
    """Fit many times."""
    rng = np.random.default_rng(seed)
    return [run_by_chance(job, rates, design, chances, rng) for _ in range(runs)]
