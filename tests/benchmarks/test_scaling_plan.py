"""The plan for clusters: formulas against values by hand, simulations against expectations, and records."""

import importlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def import_benchmarks() -> Iterator[None]:
    """Make the benchmarks importable: they are in the repository, not in the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


@pytest.fixture(scope="module")
def model() -> ModuleType:
    return importlib.import_module("benchmarks.scaling_model")


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    return importlib.import_module("benchmarks.scaling_simulation")


@pytest.fixture(scope="module")
def fitted() -> ModuleType:
    return importlib.import_module("benchmarks.scaling_fit")


@pytest.fixture
def rates(model: ModuleType) -> Any:
    """Return rates that are easy to calculate with."""
    return model.Rates(
        scan=10.0, learn=100.0, read=60.0, sizes=20.0, check=400.0, plan=50.0, shard_bytes=8.0, encoded_bytes=4.0,
        pair=0.01, cube=0.001, step=0.5, issue=3.0, hop=0.25, wire=80.0, checkpoint=24.0, bus=40.0, start=7.0,
    )  # fmt: skip


@pytest.fixture
def job(model: ModuleType) -> Any:
    return model.Job(sets=100, alternatives=10, batch=10, columns=3, parameters=20, memory=16_000.0, shards=16)


def test_times_of_one_worker_match_values_by_hand(model: ModuleType, job: Any, rates: Any) -> None:
    """3,000 values at 60 per second; 100 sets at 50; 1,000 rows of 4 bytes at 40; 100 (1 + 1); 10 steps of 0.5 s."""
    result = model.parts(job, rates)
    assert result == pytest.approx((50, 0, 2, 100, 200, 5, 0, 10), rel=1e-12)
    assert result.use(model.AS_IT_IS) == pytest.approx(307, rel=1e-12)
    # 8,000 bytes in two buffers: read the first; use it while reading the second; use the second.
    assert model.buffers(job, rates) == 2
    assert model.epoch_seconds(job, rates) == pytest.approx(25 + 307 / 2 + 307 / 2 + 10, rel=1e-12)
    assert model.scan_seconds(job, rates) == pytest.approx(1000 * 5 / 10, rel=1e-12)
    # Learning hashes 8,000 bytes at 400 per second and reads 3,000 values at 100 per second.
    assert model.learn_seconds(job, rates) == pytest.approx(20 + 30, rel=1e-12)
    assert model.fit_seconds(replace(job, epochs=2), rates) == pytest.approx(2 * 342, rel=1e-12)


def test_workers_share_the_scan_and_the_learning(model: ModuleType, job: Any, rates: Any) -> None:
    """Four workers at 0.8 of their speed scan in 500 / 3.2 s and learn in 50 / 3.2 s. 18 shards are uneven."""
    four, shared = replace(job, workers=4), replace(rates, sharing=0.8)
    assert model.scan_seconds(four, shared) == pytest.approx(500 / 3.2, rel=1e-12)
    assert model.learn_seconds(four, shared) == pytest.approx(50 / 3.2, rel=1e-12)
    assert model.begin_seconds(four, shared) == pytest.approx(7 + 550 / 3.2, rel=1e-12)
    uneven = 5 * 4 / 18
    assert model.learn_seconds(replace(four, shards=18), shared) == pytest.approx(uneven * 50 / 3.2, rel=1e-12)
    assert model.scan_seconds(replace(four, shards=18), shared) == pytest.approx((1 + uneven) * 250 / 3.2, rel=1e-12)
    assert model.begin_seconds(job, shared) == pytest.approx(550, rel=1e-12)
    assert model.begin_seconds(four, shared, model.Design(scanners=1)) == pytest.approx(557, rel=1e-12)
    # The table and its sorted rows, written and read, are 3 x 64,000 bytes, plus 8,000 of shards, at 100 per second.
    assert model.scan_seconds(four, replace(shared, store=100.0)) == pytest.approx(2000, rel=1e-12)
    assert model.learn_seconds(four, replace(shared, link=10.0)) == pytest.approx(200, rel=1e-12)


def test_reading_overlaps_with_training_if_there_are_many_buffers(model: ModuleType, job: Any, rates: Any) -> None:
    one, many = replace(job, memory=1e9), replace(job, memory=1.0)
    assert model.epoch_seconds(one, rates) == pytest.approx(50 + 307 + 10, rel=1e-12)
    # With 32,000 buffers, only one buffer of each kind does not overlap.
    assert model.epoch_seconds(many, rates) == pytest.approx(307 + 10 + 50 / 32_000, rel=1e-12)
    assert model.epoch_seconds(many, replace(rates, read=1.0)) == pytest.approx(3000 + 10 + 307 / 32_000, rel=1e-12)


def test_workers_share_all_work_except_the_plans(model: ModuleType, job: Any, rates: Any) -> None:
    """Each has two of the eight shards of a buffer: a quarter of reading and hashing, but the sizes of all 100 sets.

    There are 2.5 steps, each with 2 x 2 hops of 0.25 s, 1.5 x 80 bytes at 80 per second, and 3 - 20 < 0.5 to launch.
    """
    four = replace(job, workers=4)
    result = model.parts(four, rates)
    assert model.share(four, rates) == 1 / 4
    assert result == pytest.approx((12.5 + 5, 5, 2, 25, 50, 1.25, 2.5 * (1 + 1.5), 10), rel=1e-12)
    assert result.ahead(model.AS_IT_IS) == pytest.approx(22.5, rel=1e-12)
    ahead = model.Design(readers=5, planned_ahead=True)
    changed = model.parts(four, rates, ahead)
    assert changed.read == pytest.approx(17.5 / 5, rel=1e-12)
    assert changed.ahead(ahead) == pytest.approx(3.5 + 5 + 2, rel=1e-12)
    assert changed.use(ahead) == result.use(model.AS_IT_IS) - 2
    own = model.parts(four, rates, model.Design(own_plan=True))
    assert (own.sizes, own.plan) == pytest.approx((5 / 4, 2 / 4), rel=1e-12)
    # The time includes the start of workers, not the learning of the encoder.
    assert model.fit_seconds(four, rates) == pytest.approx(7 + model.epoch_seconds(four, rates), rel=1e-12)


def test_uneven_shards_leave_workers_waiting(model: ModuleType, job: Any, rates: Any) -> None:
    """A buffer has eight shards: one of three workers has three, and each of ten workers has one or none."""
    assert model.share(replace(job, workers=3), rates) == pytest.approx(3 / 8, rel=1e-12)
    assert model.share(replace(job, workers=10), rates) == pytest.approx(1 / 8, rel=1e-12)
    assert model.parts(replace(job, workers=10), rates).compute == pytest.approx(200 / 8, rel=1e-12)
    # Without a memory limit, a buffer has a shard for each of the ten workers.
    enough = replace(job, workers=10, memory=None, shards=20)
    assert model.share(enough, rates) == 1 / 10
    assert model.share(replace(job, workers=10, in_memory=True), rates) == 1 / 10
    assert model.parts(replace(job, workers=10, in_memory=True), rates).sizes == 0


def test_launch_time_counts_if_it_exceeds_the_step(model: ModuleType, job: Any, rates: Any) -> None:
    quick = replace(rates, pair=0.0, cube=0.0001)  # a step of 10 sets takes 1 second
    two = replace(job, workers=2)
    assert model.parts(two, quick).launch == pytest.approx(5 * (3 - 1), rel=1e-12)
    assert model.parts(two, quick, model.Design(recorded=True)).launch == pytest.approx(5 * 0.5, rel=1e-12)


def test_bandwidth_limits_reading(model: ModuleType, job: Any, rates: Any) -> None:
    """Each of four workers reads a quarter of 8,000 bytes, and 32 bytes for each of 100 sets."""
    four = replace(job, workers=4)
    assert model.parts(four, replace(rates, link=10.0)).read == pytest.approx(520, rel=1e-12)
    assert model.parts(four, replace(rates, store=10.0)).read == pytest.approx(4 * 520, rel=1e-12)
    assert model.parts(replace(job, workers=1), replace(rates, link=10.0)).read == pytest.approx(800, rel=1e-12)


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
@pytest.mark.parametrize("ahead", [False, True])
def test_times_increase_with_sets_alternatives_and_columns(
    model: ModuleType, job: Any, rates: Any, workers: int, ahead: bool
) -> None:
    design, job = model.Design(planned_ahead=ahead), replace(job, memory=None)
    for name, factors in {"sets": (1, 2, 5, 30), "alternatives": (1, 2, 3, 20), "columns": (1, 2, 4)}.items():
        jobs = [replace(job, workers=workers, **{name: getattr(job, name) * k}) for k in factors]
        for estimate in (model.epoch_seconds, model.fit_seconds, model.scan_seconds):
            times = [estimate(each, rates, design) for each in jobs]
            assert all(a < b for a, b in pairwise(times)), (name, estimate, times)


def test_the_bottleneck_is_identified(model: ModuleType, job: Any, rates: Any) -> None:
    """An epoch takes 200 / W to compute, 5 / W to launch and x for unshared work, which dominates if W > 205 / x."""
    free = replace(rates, bus=math.inf, read=math.inf, plan=math.inf, sizes=math.inf, check=math.inf, issue=0.0)
    free = replace(free, hop=0.0, wire=math.inf, checkpoint=math.inf)
    many = replace(job, memory=None, shards=512)
    assert model.saturates_first(many, replace(free, sizes=4.9)) == (11, "sizes")
    assert model.saturates_first(many, replace(free, plan=4.9)) == (11, "plan")
    # At 100 bytes per second, 8,000 bytes and the sizes for each worker take 80 s with one worker, 144 s with two.
    assert model.saturates_first(many, replace(free, store=100.0)) == (1, "read")
    assert model.saturates_first(many, replace(free, step=0.0), most=300) == (None, "-")


def test_workers_share_the_memory(model: ModuleType, rates: Any) -> None:
    small, large = (model.Job(sets=sets, alternatives=33) for sets in (1e6, 1e9))
    assert small.scanned_with == model.GIB
    assert large.scanned_with == pytest.approx(33e9 * (8 * 17 + 24) / 64, rel=1e-12)
    assert (small.cut, large.cut) == (158, 512)  # 5.28e9 bytes in shards of GiB / 32; and the maximum
    assert model.memory(small, rates).host < model.memory(large, rates).host
    assert model.memory(large, rates).ids == 8e9
    several = replace(large, workers=64)
    # With 8 bytes per row and four buffers in memory, an eighth of the table has a shard for each worker.
    assert several.allowed(rates) == pytest.approx(33e9 * 8 * 4 / 8, rel=1e-12)
    assert model.buffers(several, rates) == 8
    assert model.share(several, rates) == 1 / 64
    assert model.memory(several, rates).host < model.memory(large, rates).host


# -- simulation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("memory", [1e9, 16_000.0, 500.0])
def test_without_randomness_a_run_takes_the_time_of_the_formula(
    model: ModuleType, simulation: ModuleType, job: Any, rates: Any, workers: int, memory: float
) -> None:
    job = replace(job, workers=workers, memory=memory, epochs=3)
    (run,) = simulation.simulate(job, rates, runs=1)
    assert run.failures == 0
    assert run.seconds == pytest.approx(model.fit_seconds(job, rates), rel=1e-12)


def test_runs_with_failures_have_the_expected_duration(
    model: ModuleType, simulation: ModuleType, job: Any, rates: Any
) -> None:
    """With failures at rate m, work of d seconds that restarts after each takes (exp(m d) - 1) / m on average."""
    m = 1 / 400
    runs = simulation.simulate(job, rates, chances=simulation.Chances(deaths=m * 3600), runs=4000, seed=0)
    attempt = model.fit_seconds(job, rates)
    seconds = np.array([run.seconds for run in runs])
    expected, error = math.expm1(m * attempt) / m, seconds.std() / math.sqrt(len(seconds))
    assert abs(seconds.mean() - expected) < 4 * error  # four standard errors
    assert np.mean([run.failures for run in runs]) == pytest.approx(math.expm1(m * attempt), rel=0.1)  # random


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("shards", [16, 18])
def test_without_randomness_the_start_takes_the_time_of_the_formula(
    model: ModuleType, simulation: ModuleType, job: Any, rates: Any, workers: int, shards: int
) -> None:
    job, rates = replace(job, workers=workers, shards=shards), replace(rates, sharing=0.7)
    (run,) = simulation.simulate_begin(job, rates, runs=1)
    assert run == (pytest.approx(model.begin_seconds(job, rates), rel=1e-12), 0)


def test_a_chunk_is_repeated_if_its_worker_dies(simulation: ModuleType, job: Any) -> None:
    """A chunk of d seconds with failures at rate m takes (exp(m d) - 1) / m on average."""
    rng, m, d = np.random.default_rng(0), 1 / 100, 80.0
    result = [simulation.pass_by_chance(d, 1, job, simulation.Chances(deaths=m * 3600), rng) for _ in range(4000)]
    seconds = np.array([seconds for seconds, _ in result])
    error = seconds.std() / math.sqrt(len(seconds))
    assert abs(seconds.mean() - math.expm1(m * d) / m) < 4 * error  # four standard errors


def test_completed_epochs_are_not_repeated(model: ModuleType, simulation: ModuleType, job: Any, rates: Any) -> None:
    """Each failure costs at most the epoch that was running."""
    job = replace(job, epochs=5)
    plain, epoch = model.fit_seconds(job, rates), model.epoch_seconds(job, rates)
    start = 0.0  # time to start one worker
    runs = simulation.simulate(job, rates, chances=simulation.Chances(deaths=3600 / 2000), runs=200, seed=1)
    assert any(run.failures for run in runs)
    for run in runs:
        assert plain - 1e-9 <= run.seconds <= plain + run.failures * (epoch + 2 * start) + 1e-9


def test_the_slowest_worker_has_the_distribution_of_a_maximum(simulation: ModuleType) -> None:
    result = simulation.slowest(16, 0.3, (20_000,), np.random.default_rng(0))
    drawn = np.exp(0.3 * np.random.default_rng(1).standard_normal((20_000, 16))).max(1)
    quantiles = np.linspace(0.05, 0.95, 10)
    # Quantiles of 20,000 draws have an error of about 1 %.
    np.testing.assert_allclose(np.quantile(result, quantiles), np.quantile(drawn, quantiles), rtol=0.02)


def test_the_seed_determines_the_simulation(model: ModuleType, simulation: ModuleType, job: Any, rates: Any) -> None:
    job, chances = replace(job, workers=8), simulation.Chances(0.1, 1.0)
    first, again = (simulation.simulate(job, rates, chances=chances, runs=5, seed=3) for _ in range(2))
    assert first == again
    slow = simulation.simulate(job, rates, chances=simulation.Chances(0.1), runs=20)
    assert min(run.seconds for run in slow) > model.fit_seconds(job, rates)


# -- rates from records -------------------------------------------------------------------------------------------


def test_rates_are_recovered_from_simulated_records(fitted: ModuleType, tmp_path: Path) -> None:
    """Steps of 2 ms + 10 us per set; elimination of 33^3 x 1 ns; sums of 4 ms + 1 ns per byte."""
    law = 512 * 33**3 * 1e-12 * 1e3
    about = {"columns": 3, "shard_bytes": 40.0, "encoded_bytes": 20.0, "table": "airline"}
    speeds = {"scan": 10.0, "learn": 20.0, "read": 30.0, "check": 2.0, "plan": 40.0, "sizes": 70.0}
    records: dict[str, Any] = {
        "tables": [{"part": k, "rows/s": v, "sets/s": v, **about} for k, v in speeds.items()],
        "checkpoint": [{"MB/s": 5.0}],
        "group": [{"numbers": k, "ms": 4 + 4e-6 * k} for k in (1000, 10_000, 1_000_000)],
        "steps": [
            {
                "table": "airline",
                "hidden": "8",
                "sets/s": b / (2 + 0.01 * b) * 1e3,
                "ms a step": 2 + 0.01 * b,
                "pairs": 5.0,
            }
            for b in (16, 64)
        ],
        "training": [{"shape": "airline", "batch": b, "ours": b / (2e-3 + 1e-5 * b)} for b in (16, 64, 512)],
        "launched": [{"batch": b, "ours": b / 7e-3} for b in (64, 256)],
        "stationary": [{"sets of n, sigma": "512 of 33, 1", "replayed, ms": law}],
    }
    for k, (name, rows) in enumerate(records.items()):
        (tmp_path / f"{k}.json").write_text(json.dumps({"figures": {name: rows}}))
    result = fitted.figures(tmp_path)
    cpu, gpu = fitted.on_cpu(result, "airline", "8"), fitted.on_gpu(result)
    host = (cpu.scan, cpu.learn, cpu.read, cpu.check, cpu.plan, cpu.sizes)
    assert host == pytest.approx((50, 60, 90, 80, 40, 70), rel=1e-9)
    assert (cpu.step, cpu.pair, cpu.hop, 1 / cpu.wire) == pytest.approx((2e-3, 2e-6, 2e-3, 1e-9), rel=1e-6)
    assert (gpu.step, gpu.issue, gpu.cube) == pytest.approx((2e-3, 7e-3, 1e-12), rel=1e-6)
    sizes = fitted.AIRLINE
    assert gpu.pair * sizes["mean_square"] + gpu.cube * sizes["mean_cube"] == pytest.approx(1e-5, rel=1e-6)


def test_the_sizes_of_airline_sets_match_the_benchmarks(fitted: ModuleType) -> None:
    """Three tenths of the sets have 50 alternatives, the others 1 to 49."""
    small = np.arange(1, 50.0)
    moments = [0.3 * 50**k + 0.7 * (small**k).mean() for k in (1, 2, 3)]
    assert list(fitted.AIRLINE.values()) == pytest.approx(moments, rel=2e-3)  # the constants are rounded


def test_the_stored_records_give_a_plan(fitted: ModuleType, model: ModuleType) -> None:
    result = fitted.figures()
    rates = fitted.on_gpu(result)
    assert all(value > 0 for value in (rates.scan, rates.read, rates.pair, rates.cube, rates.step, rates.wire))
    rows = fitted.validated(result)
    assert {"20.8M rows, fit, CPU time"} <= {row["what"] for row in rows}
    assert all(math.isfinite(row["error"]) for row in rows)
