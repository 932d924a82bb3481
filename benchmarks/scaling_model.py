"""What a fit takes, against choice sets, alternatives and workers: one formula for each part of it.

An epoch of S sets with n alternatives and c columns each, by W workers in batches of b sets per worker:

    read     S n c / read rate                    shards -> tensors, by a thread, while the buffer before is in use
    plan     S / plan rate                        the batches of a buffer
    copy     S n bytes / bus                      a buffer to the device
    compute  S / W (pair n^2 + cube n^3)          rates of all pairs, then the elimination
    launch   S / (b W) max(step, issue - compute of the step)
                                                  what a step takes whatever its size; with several workers, kernels
                                                  are launched one by one, which may take longer than they do
    reduce   S / (b W) (2 log2 W hop + 2 (W-1)/W 4P / wire)      the gradients of P weights, added up
    keep     12 P / checkpoint rate               the state of the run, once

The last five and plan come one after the other: use = plan + copy + compute + launch + reduce. Reading is beside them,
one buffer ahead, so that with k buffers

    epoch = read / k + (k-1)/k max(read, use) + use / k + keep

Every worker reads, plans and copies all sets, as it draws the batches of all and takes its share of each. ``Design``
says what would be if this were changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

GIB = 2**30
BUFFERS = 4  # a buffer is this part of the memory allowed
PILES = 64  # a table may have as many times the memory allowed


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be fitted. Sizes of sets come in by the means of n, n^2 and n^3: those of equal sets, if not given."""

    sets: float
    alternatives: float
    workers: int = 1
    batch: float = 512  # sets of each worker
    epochs: int = 1
    columns: int = 15
    parameters: int = 350_000
    memory: float | None = None  # bytes for choice sets, of each worker; the least that the scan takes, if not given
    mean_square: float | None = None
    mean_cube: float | None = None

    @property
    def rows(self) -> float:
        return self.sets * self.alternatives

    @property
    def values(self) -> float:
        return self.rows * self.columns

    @property
    def steps(self) -> float:
        return self.sets / (self.batch * self.workers)

    @property
    def allowed(self) -> float:
        """Bytes for choice sets: a scan takes no table of more than 64 times as many."""
        least = self.rows * (8 * (self.columns + 2) + 24) / PILES
        return max(GIB, least) if self.memory is None else self.memory


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What the parts take on some machine: measured, or assumed."""

    scan: float  # values per second, of all columns, in one process
    learn: float  # values per second
    read: float  # values per second
    check: float  # bytes per second that are hashed
    plan: float  # sets per second
    shard_bytes: float  # of a row on disk
    encoded_bytes: float  # of a row in memory
    pair: float  # seconds
    cube: float
    step: float  # whatever its size
    issue: float = 0.0  # to launch the kernels of a step one by one
    hop: float
    wire: float  # bytes per second
    checkpoint: float  # bytes per second
    bus: float = math.inf  # bytes per second
    link: float = math.inf  # bytes per second that reach a worker
    store: float = math.inf  # bytes per second that all workers get together
    start: float = 0.0  # seconds until workers are there


@dataclass(frozen=True)
class Design:
    """How the work is shared; the default is what the library does."""

    own_shards: bool = False  # each worker reads, plans and copies its part alone
    readers: int = 1  # that read for a worker
    recorded: bool = False  # steps of a group are replayed as one graph
    scanners: int = 1
    encoder_kept: bool = False  # learnt by the scan, and read by whoever needs it
    least_buffers: int = 1  # of an epoch


class Parts(NamedTuple):
    """Seconds of an epoch by part."""

    read: float
    plan: float
    copy: float
    compute: float
    launch: float
    reduce: float
    keep: float

    @property
    def use(self) -> float:
        """What comes one after the other."""
        return self.plan + self.copy + self.compute + self.launch + self.reduce


AS_IT_IS = Design()


def parts(job: Job, rates: Rates, design: Design = AS_IT_IS) -> Parts:
    """Reckon the parts of an epoch, each as if it were alone."""
    W = job.workers
    share = 1 / W if design.own_shards else 1.0
    stored = job.rows * rates.shard_bytes * share
    square = job.alternatives**2 if job.mean_square is None else job.mean_square
    cube = job.alternatives**3 if job.mean_cube is None else job.mean_cube
    compute = job.sets / W * (rates.pair * square + rates.cube * cube)
    recorded = W == 1 or design.recorded
    each = rates.step if recorded else max(rates.step, rates.issue - compute / job.steps)
    message = 2 * math.log2(W) * rates.hop + 2 * (W - 1) / W * 4 * job.parameters / rates.wire
    return Parts(
        read=max(job.values * share / rates.read / design.readers, stored / rates.link, stored * W / rates.store),
        plan=job.sets * share / rates.plan,
        copy=job.rows * share * rates.encoded_bytes / rates.bus,
        compute=compute,
        launch=job.steps * each,
        reduce=job.steps * message,
        keep=12 * job.parameters / rates.checkpoint,
    )


def buffers(job: Job, rates: Rates, design: Design = AS_IT_IS) -> int:
    """How many buffers of shards an epoch has."""
    stored = job.rows * rates.shard_bytes / (job.workers if design.own_shards else 1)
    return max(math.ceil(stored / (job.allowed / BUFFERS)), design.least_buffers)


def epoch_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Reckon an epoch: reading beside all that comes one after the other."""
    found, k = parts(job, rates, design), buffers(job, rates, design)
    return found.read / k + (k - 1) / k * max(found.read, found.use) + found.use / k + found.keep


def scan_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Check and convert the table, its id and choice included; once, whatever is fitted afterwards."""
    return job.rows * (job.columns + 2) / rates.scan / design.scanners


def learn_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Look at the hashes of all shards and learn the encoder: by every worker at its start."""
    share = 1 / job.workers if design.own_shards else 1.0
    look = job.rows * rates.shard_bytes / rates.check
    return share * (look + (0.0 if design.encoder_kept else job.values / rates.learn))


def fit_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Reckon a fit without failures; with workers, whoever started them learns the encoder once more at the end."""
    again = learn_seconds(job, rates, design) if job.workers > 1 else 0.0
    start = rates.start if job.workers > 1 else 0.0
    return start + learn_seconds(job, rates, design) + job.epochs * epoch_seconds(job, rates, design) + again


def gpu_hours(job: Job, seconds: float) -> float:
    """GPUs are paid for as long as they are held, busy or not."""
    return job.workers * seconds / 3600


class Memory(NamedTuple):
    """Bytes: of a worker on the host and on its device, on disk, and of whoever starts a prediction by workers."""

    host: float
    device: float
    disk: float
    ids: float


def memory(job: Job, rates: Rates, *, base: float = 0.27 * GIB, kept: float = 4 * GIB) -> Memory:
    """Reckon memory: nothing grows with the table but the memory that the scan asks for, the disk and the ids."""
    part = job.allowed / BUFFERS * rates.encoded_bytes / rates.shard_bytes
    return Memory(
        host=base + 1.05 * job.allowed,
        device=2 * part + 16 * job.parameters + kept,
        disk=job.rows * (rates.shard_bytes + 8 * (job.columns + 2) + 24),
        ids=8 * job.sets,
    )


class Saturation(NamedTuple):
    """From how many workers on a part takes longer than computing, and which."""

    workers: int | None
    part: str


def saturates_first(job: Job, rates: Rates, design: Design = AS_IT_IS, most: int = 64) -> Saturation:
    """Find the smallest number of workers at which a part that keeps devices waiting exceeds what they compute."""
    for workers in range(1, most + 1):
        found = parts(replace(job, workers=workers), rates, design)._asdict()
        computing = found.pop("compute")
        worst = max(found, key=lambda name: found[name])
        if found[worst] > computing:
            return Saturation(workers, worst)
    return Saturation(None, "compute")
