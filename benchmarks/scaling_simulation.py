"""Simulate random delays and failures on top of the formulas: workers that are slow for a while, and workers that fail.

Workers wait for one another at every step, so a step takes as long as its slowest worker. The factors of the W workers
are exp(spread Z) with Z normal, and the largest one counts. It is drawn directly, because the largest of W uniform
numbers is distributed as U^(1/W). Workers fail at a constant rate. The state is saved after each epoch, so a failure
loses the current epoch, and all workers start again. Without spread and failures, a run takes the time of the formula.

Before the first epoch, workers wait for others only at the end of a pass. A free worker takes the next task, and the
task of a failed worker is done again. There are three passes: over chunks of the table and over its shards, which are
the scan, and over shards to learn the encoder. The last one stands for several passes, with the same result.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.scaling_model import AS_IT_IS, Design, Job, Rates, buffers, learn_seconds, parts, scan_seconds

DRAWS = 64  # steps drawn per buffer; the other steps take their mean
PIECES = 8  # tasks per worker that scans; assumed to be equal, although the last ones are the smallest
GIVEN_UP = 3  # failures after which a fit stops and must be resumed by hand


class Chances(NamedTuple):
    """Spread of the time of a step between workers, and failures per hour and worker."""

    spread: float = 0.0
    deaths: float = 0.0


CERTAIN = Chances()


class Run(NamedTuple):
    """Seconds of a fit, and number of failures."""

    seconds: float
    failures: int


def slowest(workers: int, spread: float, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the factor of the slowest worker."""
    if spread == 0:
        return np.ones(shape)
    return np.exp(spread * ndtri(rng.random(shape) ** (1 / workers)))


def epoch_by_chance(job: Job, rates: Rates, design: Design, chances: Chances, rng: np.random.Generator) -> float:
    """Simulate an epoch: each buffer is read while the previous one is in use."""
    planned, k, W = parts(job, rates, design), buffers(job, rates, design), job.workers
    read = planned.ahead(design) / k * slowest(W, chances.spread, (k,), rng)
    stretch = slowest(W, chances.spread, (k, DRAWS), rng).mean(1)
    use = (planned.use(design) - planned.compute) / k + planned.compute / k * stretch
    return float(read[0] + np.maximum(read[1:], use[:-1]).sum() + use[-1] + planned.keep)


def run_by_chance(job: Job, rates: Rates, design: Design, chances: Chances, rng: np.random.Generator) -> Run:
    """Simulate a fit, from the start of the workers to the last epoch."""
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
    """Simulate a pass over equal tasks; return the time until the last one is done, and the failures."""
    free, rate, deaths = [0.0] * job.workers, chances.deaths / 3600, 0
    for factor in np.exp(chances.spread * rng.standard_normal(pieces)):
        clock = heapq.heappop(free)
        while rate and (dies := rng.exponential(1 / rate)) < seconds * factor:
            clock, deaths = clock + dies, deaths + 1
        heapq.heappush(free, clock + seconds * float(factor))
    return max(free), deaths


def begin_by_chance(job: Job, rates: Rates, chances: Chances, rng: np.random.Generator) -> Run:
    """Simulate scan and learning once, with all workers."""
    one = replace(job, workers=1)
    slowed = rates.sharing if job.workers > 1 else 1.0
    scan, learn = scan_seconds(one, rates) / slowed, learn_seconds(one, rates) / slowed
    passes = ((scan / 2, PIECES * job.workers), (scan / 2, job.cut), (learn, job.cut))
    results = [pass_by_chance(seconds / pieces, pieces, job, chances, rng) for seconds, pieces in passes]
    start = rates.start if job.workers > 1 else 0.0
    return Run(start + sum(seconds for seconds, _ in results), sum(deaths for _, deaths in results))


def simulate_begin(job: Job, rates: Rates, chances: Chances = CERTAIN, *, runs: int = 200, seed: int = 0) -> list[Run]:
    """Simulate scan and learning many times."""
    rng = np.random.default_rng(seed)
    return [begin_by_chance(job, rates, chances, rng) for _ in range(runs)]


def simulate(
    job: Job, rates: Rates, design: Design = AS_IT_IS, chances: Chances = CERTAIN, *, runs: int = 200, seed: int = 0
) -> list[Run]:
    """Simulate many fits."""
    rng = np.random.default_rng(seed)
    return [run_by_chance(job, rates, design, chances, rng) for _ in range(runs)]
