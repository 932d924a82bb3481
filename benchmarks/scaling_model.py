"""Predict the time, memory and cost of a fit from the numbers of choice sets, alternatives and workers.

An epoch has S sets with n alternatives and c columns each, and W workers with batches of b sets per worker. A buffer
has m shards. A worker reads at most the share s = ceil(m/W) / m of it:

    read     s S n c / read rate (+ s S n bytes / check rate, if W > 1)
                                                  shards -> tensors, in a thread, while the previous buffer is in use;
                                                  at least bytes / link, and at least the bytes of all workers / store
    sizes    S / sizes rate (if W > 1)            sizes of all sets, needed for planning; in the same thread
    plan     S / plan rate                        the batches of a buffer
    copy     s S n bytes / bus                    a buffer to the device
    compute  s S (pair n^2 + cube n^3)            rates of all pairs, then the elimination
    launch   S / (b W) max(step, issue - compute of the step)
                                                  fixed time of a step; with several workers, kernels are launched one
                                                  by one, which may take longer than running them
    reduce   S / (b W) (2 log2 W hop + 2 (W-1)/W 4P / wire)      sum of the gradients of P weights
    keep     12 P / checkpoint rate               writing the state of the run, once

    ahead = read + sizes,    use = plan + copy + compute + launch + reduce

The next buffer is read while the current one is in use. With k buffers:

    epoch = ahead / k + (k-1)/k max(ahead, use) + use / k + keep

Before the first epoch, the workers scan the table and learn its encoder, each at e times its speed alone. All data that
they read and write go through the store: the table, sorted rows (twice) and shards:

    scan     S n (c+2) / (scan rate e W)          half of it is shared by chunks, half by shards. The second half takes
                                                  u times as long if W does not divide the N shards, u = ceil(N/W) W/N
    learn    u (S n bytes / check rate + S n c / learn rate) / (e W)
                                                  both at least their bytes / store, or bytes of each worker / link
    begin    start + scan + learn                 until the first epoch begins

Sizes and plan are the cost of using the same batches as one process: every worker does both for all sets. ``Design``
describes possible changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

GIB = 2**30
BUFFERS = 4  # buffers that fit into the memory limit
SHARES = 32  # shards that fit into the memory limit of the scan
SHARDS = 512  # maximum number
PILES = 64  # largest table, as a multiple of the memory limit of its scan
EVEN = 8  # minimum number of shards in a buffer if workers share it
OUTLINE = 32  # bytes per set for its size, position and part


@dataclass(frozen=True, kw_only=True)
class Job:
    """A fit. Set sizes enter through the means of n, n^2 and n^3; the default is sets of equal size."""

    sets: float
    alternatives: float
    workers: int = 1
    batch: float = 512  # sets per worker
    epochs: int = 1
    columns: int = 15
    parameters: int = 350_000
    memory: float | None = None  # bytes for choice sets, for all workers together; default: ``allowed``
    shards: int | None = None  # default: number of shards of the scan
    in_memory: bool = False  # every worker has all sets in memory and computes its share of every batch
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
    def raw(self) -> float:
        """Bytes of the table as estimated by the scan."""
        return self.rows * (8 * (self.columns + 2) + 24)

    @property
    def scanned_with(self) -> float:
        """Memory limit of the scan, in bytes; the table must not exceed 64 times this limit."""
        return max(GIB, self.raw / PILES)

    @property
    def cut(self) -> int:
        """Number of shards of the table."""
        if self.shards is not None:
            return self.shards
        return min(SHARDS, max(1, math.ceil(self.raw * SHARES / self.scanned_with)))

    def allowed(self, rates: Rates) -> float:
        """Bytes for choice sets: at least those of the scan, and enough for equal shares of a buffer."""
        stored = self.rows * rates.shard_bytes
        in_buffer = self.workers * math.ceil(EVEN / self.workers) if self.workers > 1 else 1
        return max(self.scanned_with, BUFFERS * stored * min(in_buffer / self.cut, 1.0))


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Measured or assumed rates of a machine."""

    scan: float  # values per second, of all columns, in one process
    learn: float  # values per second
    read: float  # values per second
    sizes: float  # sets per second
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
    sharing: float = 1.0  # relative speed of each of several processes that scan and learn


@dataclass(frozen=True)
class Design:
    """How the work is shared; the defaults describe the library."""

    readers: int = 1  # threads that read for a worker
    planned_ahead: bool = False  # the reading thread plans the batches
    own_plan: bool = False  # each worker draws batches from its own shards, so batches differ from those of one process
    recorded: bool = False  # steps with several workers are replayed as one graph
    scanners: int | None = None  # workers that scan and learn; default: all
    least_buffers: int = 1  # of an epoch


class Parts(NamedTuple):
    """Seconds of an epoch by part."""

    read: float
    sizes: float
    plan: float
    copy: float
    compute: float
    launch: float
    reduce: float
    keep: float

    def ahead(self, design: Design) -> float:
        """Return the time of the thread that prepares the next buffer."""
        return self.read + self.sizes + (self.plan if design.planned_ahead else 0.0)

    def use(self, design: Design) -> float:
        """Return the time of the steps that run one after the other."""
        planned = 0.0 if design.planned_ahead else self.plan
        return planned + self.copy + self.compute + self.launch + self.reduce


AS_IT_IS = Design()


def share(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Return the largest share of a buffer that a worker has."""
    if job.in_memory:
        return 1 / job.workers
    in_buffer = max(job.cut / buffers(job, rates, design), 1.0)
    return min(max(math.ceil(in_buffer / job.workers - 1e-9) / in_buffer, 1 / job.workers), 1.0)


def parts(job: Job, rates: Rates, design: Design = AS_IT_IS) -> Parts:
    """Return the time of each part of an epoch, without overlap."""
    W, own = job.workers, share(job, rates, design)
    several, planned = W > 1 and not job.in_memory, (1 / W if design.own_plan else 1.0)
    square = job.alternatives**2 if job.mean_square is None else job.mean_square
    cube = job.alternatives**3 if job.mean_cube is None else job.mean_cube
    compute = job.sets * own * (rates.pair * square + rates.cube * cube)
    recorded = W == 1 or design.recorded
    each = rates.step if recorded else max(rates.step, rates.issue - compute / job.steps)
    message = 2 * math.log2(W) * rates.hop + 2 * (W - 1) / W * 4 * job.parameters / rates.wire
    stored = job.rows * rates.shard_bytes * own
    outlined = job.sets * OUTLINE * planned * several
    read = job.values * own / rates.read + several * stored / rates.check
    return Parts(
        read=max(read / design.readers, (stored + outlined) / rates.link, (stored + outlined) * W / rates.store),
        sizes=several * job.sets * planned / rates.sizes,
        plan=job.sets * planned / rates.plan,
        copy=job.rows * own * rates.encoded_bytes / rates.bus,
        compute=compute,
        launch=job.steps * each,
        reduce=job.steps * message,
        keep=12 * job.parameters / rates.checkpoint,
    )


def buffers(job: Job, rates: Rates, design: Design = AS_IT_IS) -> int:
    """Return the number of buffers of an epoch."""
    allowed = job.allowed(rates) if job.memory is None else job.memory
    return max(math.ceil(job.rows * rates.shard_bytes / (allowed / BUFFERS) - 1e-9), design.least_buffers)


def epoch_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Return the time of an epoch; reading ahead overlaps with training."""
    found, k = parts(job, rates, design), buffers(job, rates, design)
    ahead, use = found.ahead(design), found.use(design)
    return ahead / k + (k - 1) / k * max(ahead, use) + use / k + found.keep


def scan_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Return the time to check and convert the table, including its id and choice; done once per table."""
    moved = 3 * job.raw + job.rows * rates.shard_bytes
    alone = job.rows * (job.columns + 2) / rates.scan
    return _shared_out(alone * (1 + _uneven(job, design)) / 2, moved, job, rates, design)


def learn_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Return the time to check the hashes of all shards and to learn the encoder; done once before training."""
    stored = job.rows * rates.shard_bytes
    alone = stored / rates.check + job.values / rates.learn
    return _shared_out(alone * _uneven(job, design), stored, job, rates, design)


def _uneven(job: Job, design: Design) -> float:
    """Return the largest number of shards of a worker, relative to an equal share."""
    several = job.workers if design.scanners is None else design.scanners
    return math.ceil(job.cut / several) * several / job.cut


def _shared_out(alone: float, moved: float, job: Job, rates: Rates, design: Design) -> float:
    """Return the time of work that takes one process ``seconds`` and moves some bytes, if several share it."""
    several = job.workers if design.scanners is None else design.scanners
    if several == 1:
        return alone
    return max(alone / (several * rates.sharing), moved / several / rates.link, moved / rates.store)


def begin_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Return the time from the command to the first epoch, for a table that was not scanned before."""
    start = rates.start if job.workers > 1 else 0.0
    return start + scan_seconds(job, rates, design) + learn_seconds(job, rates, design)


def fit_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Return the time of a fit without failures, after the encoder is learnt; GPUs are needed for this time."""
    return (rates.start if job.workers > 1 else 0.0) + job.epochs * epoch_seconds(job, rates, design)


def gpu_hours(job: Job, seconds: float) -> float:
    """Return the cost of a fit. Idle GPUs cost as much as busy ones."""
    return job.workers * seconds / 3600


class Memory(NamedTuple):
    """Bytes of a worker on host and device, on disk, and of the process that starts a distributed prediction."""

    host: float
    device: float
    disk: float
    ids: float


def memory(job: Job, rates: Rates, *, base: float = 0.27 * GIB, kept: float = 4 * GIB) -> Memory:
    """Return the memory of a worker, which is its share of the limit, and of the scan."""
    allowed = (job.allowed(rates) if job.memory is None else job.memory) * share(job, rates)
    outlined = 3 * OUTLINE * job.sets / buffers(job, rates) * (job.workers > 1)  # of two buffers, and sorted
    part = allowed / BUFFERS * rates.encoded_bytes / rates.shard_bytes
    return Memory(
        host=base + 1.05 * allowed + outlined,
        device=2 * part + 16 * job.parameters + kept,
        disk=job.rows * rates.shard_bytes + job.raw,
        ids=8 * job.sets,
    )


class Saturation(NamedTuple):
    """Number of workers from which doubling does not pay, and the part that limits the speed."""

    workers: int | None
    part: str


def saturates_first(job: Job, rates: Rates, design: Design = AS_IT_IS, most: int = 1024) -> Saturation:
    """Return the smallest number of workers for which doubling saves less than a quarter of the time."""
    for workers in range(1, most + 1):
        few, many = (replace(job, workers=w) for w in (workers, 2 * workers))
        if epoch_seconds(many, rates, design) > 0.75 * epoch_seconds(few, rates, design):
            before, after = (parts(each, rates, design)._asdict() for each in (few, many))
            return Saturation(workers, max(after, key=lambda name: after[name] - before[name] / 2))
    return Saturation(None, "-")
