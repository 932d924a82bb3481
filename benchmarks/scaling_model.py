"""What a fit takes, against choice sets, alternatives and workers: one formula for each part of it.

An epoch of S sets with n alternatives and c columns each, by W workers in batches of b sets per worker. A buffer has m
shards, of which a worker reads at most the share s = ceil(m/W) / m:

    read     s S n c / read rate (+ s S n bytes / check rate, if W > 1)
                                                  shards -> tensors, by a thread, while the buffer before is in use;
                                                  no less than bytes / link, nor than the bytes of all workers / store
    sizes    S / sizes rate (if W > 1)            sizes of all sets, to plan by; by the same thread
    plan     S / plan rate                        the batches of a buffer
    copy     s S n bytes / bus                    a buffer to the device
    compute  s S (pair n^2 + cube n^3)            rates of all pairs, then the elimination
    launch   S / (b W) max(step, issue - compute of the step)
                                                  what a step takes whatever its size; with several workers, kernels
                                                  are launched one by one, which may take longer than they do
    reduce   S / (b W) (2 log2 W hop + 2 (W-1)/W 4P / wire)      the gradients of P weights, added up
    keep     12 P / checkpoint rate               the state of the run, once

    ahead = read + sizes,    use = plan + copy + compute + launch + reduce

What comes ahead is beside what is in use, so that with k buffers

    epoch = ahead / k + (k-1)/k max(ahead, use) + use / k + keep

Before the first epoch the workers scan the table and learn its encoder, each at the part e of its speed alone; what
they read and write, the table, rows on piles twice, and shards, goes through the store:

    scan     S n (c+2) / (scan rate e W)          half of it shared by pieces, half by shards: u times that, where the
                                                  N shards do not come out even, u = ceil(N/W) W/N
    learn    u (S n bytes / check rate + S n c / learn rate) / (e W)
                                                  both no less than their bytes / store, or of each worker / link
    begin    start + scan + learn                 until the first epoch begins

Sizes and plan are the price of batches that are those of one process: every worker does all of both. ``Design`` says
what would be if this or that were changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

GIB = 2**30
BUFFERS = 4  # a buffer is this part of the memory allowed
SHARES = 32  # a shard is made of this part of the memory that the scan was allowed
SHARDS = 512  # at most
PILES = 64  # a table may have as many times the memory of its scan
EVEN = 8  # shards of a buffer, at least, for workers to share them out
OUTLINE = 32  # bytes of a set that tell its size, place and part


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
    memory: float | None = None  # bytes for choice sets, of all workers together; if not given, see ``allowed``
    shards: int | None = None  # of the table; if not given, those that the scan makes
    in_memory: bool = False  # of every worker: nothing is read, and each takes its share of every batch
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
        """Bytes of the table as the scan reckons."""
        return self.rows * (8 * (self.columns + 2) + 24)

    @property
    def scanned_with(self) -> float:
        """Bytes that the scan is allowed: it takes no table of more than 64 times as many."""
        return max(GIB, self.raw / PILES)

    @property
    def cut(self) -> int:
        """Number of shards of the table."""
        if self.shards is not None:
            return self.shards
        return min(SHARDS, max(1, math.ceil(self.raw * SHARES / self.scanned_with)))

    def allowed(self, rates: Rates) -> float:
        """Bytes for choice sets: as many as the scan had, or more, so that workers have equal parts of a buffer."""
        stored = self.rows * rates.shard_bytes
        in_buffer = self.workers * math.ceil(EVEN / self.workers) if self.workers > 1 else 1
        return max(self.scanned_with, BUFFERS * stored * min(in_buffer / self.cut, 1.0))


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What the parts take on some machine: measured, or assumed."""

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
    sharing: float = 1.0  # of its speed alone that each of several has when they scan and learn


@dataclass(frozen=True)
class Design:
    """How the work is shared; the default is what the library does."""

    readers: int = 1  # that read for a worker
    planned_ahead: bool = False  # batches are planned by the thread that reads
    own_plan: bool = False  # each worker draws its batches from its own shards: not those of one process any more
    recorded: bool = False  # steps of a group are replayed as one graph
    scanners: int | None = None  # that scan and learn: all workers, if not given
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
        """What a thread does one buffer ahead."""
        return self.read + self.sizes + (self.plan if design.planned_ahead else 0.0)

    def use(self, design: Design) -> float:
        """What comes one after the other."""
        planned = 0.0 if design.planned_ahead else self.plan
        return planned + self.copy + self.compute + self.launch + self.reduce


AS_IT_IS = Design()


def share(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Part of a buffer that the worker with most of its shards has."""
    if job.in_memory:
        return 1 / job.workers
    in_buffer = max(job.cut / buffers(job, rates, design), 1.0)
    return min(max(math.ceil(in_buffer / job.workers - 1e-9) / in_buffer, 1 / job.workers), 1.0)


def parts(job: Job, rates: Rates, design: Design = AS_IT_IS) -> Parts:
    """Reckon the parts of an epoch, each as if it were alone."""
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
    """How many buffers of shards an epoch has."""
    allowed = job.allowed(rates) if job.memory is None else job.memory
    return max(math.ceil(job.rows * rates.shard_bytes / (allowed / BUFFERS) - 1e-9), design.least_buffers)


def epoch_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Reckon an epoch: what is ahead beside what is in use."""
    found, k = parts(job, rates, design), buffers(job, rates, design)
    ahead, use = found.ahead(design), found.use(design)
    return ahead / k + (k - 1) / k * max(ahead, use) + use / k + found.keep


def scan_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Check and convert the table, its id and choice included; once, whatever is fitted afterwards."""
    moved = 3 * job.raw + job.rows * rates.shard_bytes
    alone = job.rows * (job.columns + 2) / rates.scan
    return _shared_out(alone * (1 + _uneven(job, design)) / 2, moved, job, rates, design)


def learn_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Look at the hashes of all shards and learn the encoder: once, before the workers begin to train."""
    stored = job.rows * rates.shard_bytes
    alone = stored / rates.check + job.values / rates.learn
    return _shared_out(alone * _uneven(job, design), stored, job, rates, design)


def _uneven(job: Job, design: Design) -> float:
    """Return how many times its even share of the shards the worker with most of them has."""
    several = job.workers if design.scanners is None else design.scanners
    return math.ceil(job.cut / several) * several / job.cut


def _shared_out(alone: float, moved: float, job: Job, rates: Rates, design: Design) -> float:
    """Reckon what takes one process so many seconds, and moves so many bytes, when several share it."""
    several = job.workers if design.scanners is None else design.scanners
    if several == 1:
        return alone
    return max(alone / (several * rates.sharing), moved / several / rates.link, moved / rates.store)


def begin_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Reckon how long after the command the first epoch begins, for a table that was never scanned."""
    start = rates.start if job.workers > 1 else 0.0
    return start + scan_seconds(job, rates, design) + learn_seconds(job, rates, design)


def fit_seconds(job: Job, rates: Rates, design: Design = AS_IT_IS) -> float:
    """Reckon a fit without failures, once the encoder is learnt: that is the time that GPUs are held."""
    return (rates.start if job.workers > 1 else 0.0) + job.epochs * epoch_seconds(job, rates, design)


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
    """Reckon memory: of a worker, its share of what all are allowed; of the scan, what it asks for."""
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
    """From how many workers on twice as many do not pay, and the part that is most to blame."""

    workers: int | None
    part: str


def saturates_first(job: Job, rates: Rates, design: Design = AS_IT_IS, most: int = 1024) -> Saturation:
    """Find the smallest number of workers of which twice as many are not even a third faster."""
    for workers in range(1, most + 1):
        few, many = (replace(job, workers=w) for w in (workers, 2 * workers))
        if epoch_seconds(many, rates, design) > 0.75 * epoch_seconds(few, rates, design):
            before, after = (parts(each, rates, design)._asdict() for each in (few, many))
            return Saturation(workers, max(after, key=lambda name: after[name] - before[name] / 2))
    return Saturation(None, "-")
