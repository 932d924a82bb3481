"""The plan for machines that are not here: formulas by hand, laws, chance against its expectation, and the records."""

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
def found_from_here() -> Iterator[None]:
    """The benchmarks are not part of the package: they are imported from the repository."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


@pytest.fixture(scope="module")
def model() -> ModuleType:
    return importlib.import_module("benchmarks.scaling_model")


@pytest.fixture(scope="module")
def chance() -> ModuleType:
    return importlib.import_module("benchmarks.scaling_simulation")


@pytest.fixture(scope="module")
def fitted() -> ModuleType:
    return importlib.import_module("benchmarks.scaling_fit")


@pytest.fixture
def rates(model: ModuleType) -> Any:
    """Numbers that are easy to reckon with."""
    return model.Rates(
        scan=10.0, learn=100.0, read=60.0, sizes=20.0, check=400.0, plan=50.0, shard_bytes=8.0, encoded_bytes=4.0,
        pair=0.01, cube=0.001, step=0.5, issue=3.0, hop=0.25, wire=80.0, checkpoint=24.0, bus=40.0, start=7.0,
    )  # fmt: skip


@pytest.fixture
def job(model: ModuleType) -> Any:
    return model.Job(sets=100, alternatives=10, batch=10, columns=3, parameters=20, memory=16_000.0, shards=16)


def test_one_worker_takes_what_comes_out_by_hand(model: ModuleType, job: Any, rates: Any) -> None:
    """3,000 values at 60 a second; 100 sets at 50; 1,000 rows of 4 bytes at 40; 100 (1 + 1); 10 steps of a half."""
    found = model.parts(job, rates)
    assert found == pytest.approx((50, 0, 2, 100, 200, 5, 0, 10), rel=1e-12)
    assert found.use(model.AS_IT_IS) == pytest.approx(307, rel=1e-12)
    # 8,000 bytes in buffers of 4,000: half the reading goes first, then half the use beside the rest, then the rest.
    assert model.buffers(job, rates) == 2
    assert model.epoch_seconds(job, rates) == pytest.approx(25 + 307 / 2 + 307 / 2 + 10, rel=1e-12)
    assert model.scan_seconds(job, rates) == pytest.approx(1000 * 5 / 10, rel=1e-12)
    # To begin with, 8,000 bytes are hashed at 400 a second and 3,000 values looked at, at 100.
    assert model.learn_seconds(job, rates) == pytest.approx(20 + 30, rel=1e-12)
    assert model.fit_seconds(replace(job, epochs=2), rates) == pytest.approx(2 * 342, rel=1e-12)


def test_workers_share_what_comes_before_the_first_epoch(model: ModuleType, job: Any, rates: Any) -> None:
    """500 seconds of a scan and 50 of learning, by four at 0.8 of their speed; 16 shards come out even, 18 do not."""
    four, shared = replace(job, workers=4), replace(rates, sharing=0.8)
    assert model.scan_seconds(four, shared) == pytest.approx(500 / 3.2, rel=1e-12)
    assert model.learn_seconds(four, shared) == pytest.approx(50 / 3.2, rel=1e-12)
    assert model.begin_seconds(four, shared) == pytest.approx(7 + 550 / 3.2, rel=1e-12)
    uneven = 5 * 4 / 18
    assert model.learn_seconds(replace(four, shards=18), shared) == pytest.approx(uneven * 50 / 3.2, rel=1e-12)
    assert model.scan_seconds(replace(four, shards=18), shared) == pytest.approx((1 + uneven) * 250 / 3.2, rel=1e-12)
    assert model.begin_seconds(job, shared) == pytest.approx(550, rel=1e-12)
    assert model.begin_seconds(four, shared, model.Design(scanners=1)) == pytest.approx(557, rel=1e-12)
    # The table and its rows on piles, written and read, 3 x 64,000 bytes, and 8,000 of the shards, at 100 a second.
    assert model.scan_seconds(four, replace(shared, store=100.0)) == pytest.approx(2000, rel=1e-12)
    assert model.learn_seconds(four, replace(shared, link=10.0)) == pytest.approx(200, rel=1e-12)


def test_a_table_in_one_buffer_is_read_before_it_is_used_and_many_buffers_are_read_meanwhile(
    model: ModuleType, job: Any, rates: Any
) -> None:
    one, many = replace(job, memory=1e9), replace(job, memory=1.0)
    assert model.epoch_seconds(one, rates) == pytest.approx(50 + 307 + 10, rel=1e-12)
    # 32,000 buffers: what is not beside something else is one buffer of each, a 32,000th.
    assert model.epoch_seconds(many, rates) == pytest.approx(307 + 10 + 50 / 32_000, rel=1e-12)
    assert model.epoch_seconds(many, replace(rates, read=1.0)) == pytest.approx(3000 + 10 + 307 / 32_000, rel=1e-12)


def test_several_workers_share_all_but_what_their_plans_need(model: ModuleType, job: Any, rates: Any) -> None:
    """Two of the eight shards of a buffer each: a quarter of reading and hashing, but the sizes of all 100 sets.

    2.5 steps, each with 2 x 2 hops of a quarter, 1.5 x 80 bytes at 80, and 3 - 20 < 0.5 to launch.
    """
    four = replace(job, workers=4)
    found = model.parts(four, rates)
    assert model.share(four, rates) == 1 / 4
    assert found == pytest.approx((12.5 + 5, 5, 2, 25, 50, 1.25, 2.5 * (1 + 1.5), 10), rel=1e-12)
    assert found.ahead(model.AS_IT_IS) == pytest.approx(22.5, rel=1e-12)
    ahead = model.Design(readers=5, planned_ahead=True)
    changed = model.parts(four, rates, ahead)
    assert changed.read == pytest.approx(17.5 / 5, rel=1e-12)
    assert changed.ahead(ahead) == pytest.approx(3.5 + 5 + 2, rel=1e-12)
    assert changed.use(ahead) == found.use(model.AS_IT_IS) - 2
    own = model.parts(four, rates, model.Design(own_plan=True))
    assert (own.sizes, own.plan) == pytest.approx((5 / 4, 2 / 4), rel=1e-12)
    # Workers are started; the encoder was learnt before.
    assert model.fit_seconds(four, rates) == pytest.approx(7 + model.epoch_seconds(four, rates), rel=1e-12)


def test_shards_that_do_not_come_out_even_leave_workers_waiting(model: ModuleType, job: Any, rates: Any) -> None:
    """A buffer has eight: of three workers one has three, and of ten each has one or none."""
    assert model.share(replace(job, workers=3), rates) == pytest.approx(3 / 8, rel=1e-12)
    assert model.share(replace(job, workers=10), rates) == pytest.approx(1 / 8, rel=1e-12)
    assert model.parts(replace(job, workers=10), rates).compute == pytest.approx(200 / 8, rel=1e-12)
    # Without a memory of its own, the job gets one by which a buffer has a shard for each of the ten.
    enough = replace(job, workers=10, memory=None, shards=20)
    assert model.share(enough, rates) == 1 / 10
    assert model.share(replace(job, workers=10, in_memory=True), rates) == 1 / 10
    assert model.parts(replace(job, workers=10, in_memory=True), rates).sizes == 0


def test_launching_counts_where_it_takes_longer_than_the_step_itself(model: ModuleType, job: Any, rates: Any) -> None:
    quick = replace(rates, pair=0.0, cube=0.0001)  # 1 second for the 10 sets of a step
    two = replace(job, workers=2)
    assert model.parts(two, quick).launch == pytest.approx(5 * (3 - 1), rel=1e-12)
    assert model.parts(two, quick, model.Design(recorded=True)).launch == pytest.approx(5 * 0.5, rel=1e-12)


def test_what_reaches_the_workers_bounds_reading(model: ModuleType, job: Any, rates: Any) -> None:
    """A quarter of 8,000 bytes by each of four workers, and 32 for each of 100 sets."""
    four = replace(job, workers=4)
    assert model.parts(four, replace(rates, link=10.0)).read == pytest.approx(520, rel=1e-12)
    assert model.parts(four, replace(rates, store=10.0)).read == pytest.approx(4 * 520, rel=1e-12)
    assert model.parts(replace(job, workers=1), replace(rates, link=10.0)).read == pytest.approx(800, rel=1e-12)


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
@pytest.mark.parametrize("ahead", [False, True])
def test_more_sets_alternatives_or_columns_never_take_less(
    model: ModuleType, job: Any, rates: Any, workers: int, ahead: bool
) -> None:
    design, job = model.Design(planned_ahead=ahead), replace(job, memory=None)
    for name, factors in {"sets": (1, 2, 5, 30), "alternatives": (1, 2, 3, 20), "columns": (1, 2, 4)}.items():
        jobs = [replace(job, workers=workers, **{name: getattr(job, name) * k}) for k in factors]
        for reckon in (model.epoch_seconds, model.fit_seconds, model.scan_seconds):
            times = [reckon(each, rates, design) for each in jobs]
            assert all(a < b for a, b in pairwise(times)), (name, reckon, times)


def test_the_part_that_saturates_first_is_found(model: ModuleType, job: Any, rates: Any) -> None:
    """An epoch takes 200 / W to compute, 5 / W to launch and x for a part that all do: too much from 205 / x on."""
    free = replace(rates, bus=math.inf, read=math.inf, plan=math.inf, sizes=math.inf, check=math.inf, issue=0.0)
    free = replace(free, hop=0.0, wire=math.inf, checkpoint=math.inf)
    many = replace(job, memory=None, shards=512)
    assert model.saturates_first(many, replace(free, sizes=4.9)) == (11, "sizes")
    assert model.saturates_first(many, replace(free, plan=4.9)) == (11, "plan")
    # 8,000 bytes at 100 a second, whoever reads them, and the sizes for each: 144 seconds with two, and 80 with one.
    assert model.saturates_first(many, replace(free, store=100.0)) == (1, "read")
    assert model.saturates_first(many, replace(free, step=0.0), most=300) == (None, "-")


def test_memory_is_shared_by_the_workers_and_grows_with_the_table_where_the_scan_asks_for_it(
    model: ModuleType, rates: Any
) -> None:
    small, large = (model.Job(sets=sets, alternatives=33) for sets in (1e6, 1e9))
    assert small.scanned_with == model.GIB
    assert large.scanned_with == pytest.approx(33e9 * (8 * 17 + 24) / 64, rel=1e-12)
    assert (small.cut, large.cut) == (158, 512)  # 5.28e9 bytes in parts of a 32nd of a GiB, and as many as there may be
    assert model.memory(small, rates).host < model.memory(large, rates).host
    assert model.memory(large, rates).ids == 8e9
    several = replace(large, workers=64)
    # Eight bytes a row, four buffers in memory: an eighth of the table at once has a shard for each.
    assert several.allowed(rates) == pytest.approx(33e9 * 8 * 4 / 8, rel=1e-12)
    assert model.buffers(several, rates) == 8
    assert model.share(several, rates) == 1 / 64
    assert model.memory(several, rates).host < model.memory(large, rates).host


# -- chance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("memory", [1e9, 16_000.0, 500.0])
def test_without_chance_a_run_takes_what_the_formula_says(
    model: ModuleType, chance: ModuleType, job: Any, rates: Any, workers: int, memory: float
) -> None:
    job = replace(job, workers=workers, memory=memory, epochs=3)
    (run,) = chance.simulate(job, rates, runs=1)
    assert run.failures == 0
    assert run.seconds == pytest.approx(model.fit_seconds(job, rates), rel=1e-12)


def test_failures_take_as_long_as_they_are_expected_to(
    model: ModuleType, chance: ModuleType, job: Any, rates: Any
) -> None:
    """With deaths at rate m, an attempt of d seconds that begins anew takes (exp(m d) - 1) / m in the mean."""
    m = 1 / 400
    runs = chance.simulate(job, rates, chances=chance.Chances(deaths=m * 3600), runs=4000, seed=0)
    attempt = model.fit_seconds(job, rates)
    seconds = np.array([run.seconds for run in runs])
    expected, error = math.expm1(m * attempt) / m, seconds.std() / math.sqrt(len(seconds))
    assert abs(seconds.mean() - expected) < 4 * error  # chance: four standard errors
    assert np.mean([run.failures for run in runs]) == pytest.approx(math.expm1(m * attempt), rel=0.1)  # likewise


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("shards", [16, 18])
def test_without_chance_the_first_epoch_begins_when_the_formula_says(
    model: ModuleType, chance: ModuleType, job: Any, rates: Any, workers: int, shards: int
) -> None:
    job, rates = replace(job, workers=workers, shards=shards), replace(rates, sharing=0.7)
    (run,) = chance.simulate_begin(job, rates, runs=1)
    assert run == (pytest.approx(model.begin_seconds(job, rates), rel=1e-12), 0)


def test_a_piece_whose_worker_dies_is_done_again(chance: ModuleType, job: Any) -> None:
    """One piece of d seconds with deaths at rate m takes (exp(m d) - 1) / m in the mean."""
    rng, m, d = np.random.default_rng(0), 1 / 100, 80.0
    found = [chance.pass_by_chance(d, 1, job, chance.Chances(deaths=m * 3600), rng) for _ in range(4000)]
    seconds = np.array([seconds for seconds, _ in found])
    error = seconds.std() / math.sqrt(len(seconds))
    assert abs(seconds.mean() - math.expm1(m * d) / m) < 4 * error  # chance: four standard errors


def test_an_epoch_that_is_done_is_not_done_again(model: ModuleType, chance: ModuleType, job: Any, rates: Any) -> None:
    """The time of a run with failures exceeds the plain one by no more than what was under way, each time."""
    job = replace(job, epochs=5)
    plain, epoch = model.fit_seconds(job, rates), model.epoch_seconds(job, rates)
    start = 0.0  # of one worker
    runs = chance.simulate(job, rates, chances=chance.Chances(deaths=3600 / 2000), runs=200, seed=1)
    assert any(run.failures for run in runs)
    for run in runs:
        assert plain - 1e-9 <= run.seconds <= plain + run.failures * (epoch + 2 * start) + 1e-9


def test_the_slowest_of_many_workers_is_drawn_as_the_largest_of_as_many_draws(chance: ModuleType) -> None:
    found = chance.slowest(16, 0.3, (20_000,), np.random.default_rng(0))
    drawn = np.exp(0.3 * np.random.default_rng(1).standard_normal((20_000, 16))).max(1)
    quantiles = np.linspace(0.05, 0.95, 10)
    # Quantiles of 20,000 draws are known to about one in a hundred.
    np.testing.assert_allclose(np.quantile(found, quantiles), np.quantile(drawn, quantiles), rtol=0.02)


def test_one_seed_gives_one_simulation_and_slow_workers_take_longer(
    model: ModuleType, chance: ModuleType, job: Any, rates: Any
) -> None:
    job, chances = replace(job, workers=8), chance.Chances(0.1, 1.0)
    first, again = (chance.simulate(job, rates, chances=chances, runs=5, seed=3) for _ in range(2))
    assert first == again
    slow = chance.simulate(job, rates, chances=chance.Chances(0.1), runs=20)
    assert min(run.seconds for run in slow) > model.fit_seconds(job, rates)


# -- rates from records -------------------------------------------------------------------------------------------


def test_rates_are_those_that_records_were_made_with(fitted: ModuleType, tmp_path: Path) -> None:
    """Steps of 2 ms + 10 us a set; elimination of 33^3 x 1 ns; sums of 4 ms + 1 ns a byte."""
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
    found = fitted.figures(tmp_path)
    cpu, gpu = fitted.on_cpu(found, "airline", "8"), fitted.on_gpu(found)
    host = (cpu.scan, cpu.learn, cpu.read, cpu.check, cpu.plan, cpu.sizes)
    assert host == pytest.approx((50, 60, 90, 80, 40, 70), rel=1e-9)
    assert (cpu.step, cpu.pair, cpu.hop, 1 / cpu.wire) == pytest.approx((2e-3, 2e-6, 2e-3, 1e-9), rel=1e-6)
    assert (gpu.step, gpu.issue, gpu.cube) == pytest.approx((2e-3, 7e-3, 1e-12), rel=1e-6)
    sizes = fitted.AIRLINE
    assert gpu.pair * sizes["mean_square"] + gpu.cube * sizes["mean_cube"] == pytest.approx(1e-5, rel=1e-6)


def test_the_sizes_of_airline_sets_are_those_of_the_benchmarks(fitted: ModuleType) -> None:
    """Three tenths have 50 alternatives, the others 1 to 49."""
    small = np.arange(1, 50.0)
    moments = [0.3 * 50**k + 0.7 * (small**k).mean() for k in (1, 2, 3)]
    assert list(fitted.AIRLINE.values()) == pytest.approx(moments, rel=2e-3)  # given in round numbers


def test_the_records_that_are_kept_give_a_plan(fitted: ModuleType, model: ModuleType) -> None:
    found = fitted.figures()
    rates = fitted.on_gpu(found)
    assert all(value > 0 for value in (rates.scan, rates.read, rates.pair, rates.cube, rates.step, rates.wire))
    rows = fitted.validated(found)
    assert {"20.8M rows, fit, CPU time"} <= {row["what"] for row in rows}
    assert all(math.isfinite(row["error"]) for row in rows)
