"""Training in several processes, simulated by threads that sum their tensors at a barrier."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

import pcmcnet as pn
from pcmcnet.data import EncodedStream, Encoder
from pcmcnet.data.batches import Batch
from pcmcnet.data.scan.cache import VerifiedShards
from pcmcnet.datasets import airline
from pcmcnet.models.networks.averaged_members import NetworkSpec
from pcmcnet.training import Checkpoint, ChoiceNetwork, TrainConfig, train
from pcmcnet.training.data_parallel import ProcessGroup, current_group, training_in_group


class SumAtBarrier:
    """Sums one tensor of each of n threads, in the order of the threads."""

    def __init__(self, n: int) -> None:
        self.barrier, self.brought = threading.Barrier(n, timeout=60), dict[int, Tensor]()

    def adder(self, rank: int) -> Callable[[Tensor], None]:
        def sum_over_processes(tensor: Tensor) -> None:
            self.brought[rank] = tensor.clone()
            self.barrier.wait()
            tensor.copy_(torch.stack([self.brought[k] for k in sorted(self.brought)]).sum(0))
            self.barrier.wait()

        return sum_over_processes


class Linear(ChoiceNetwork):
    """A logit of two features with initial weights (1, -1)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -1.0]))

    def forward(self, batch: Batch) -> Tensor:
        return (batch.numeric @ self.weight).masked_fill(~batch.mask, -torch.inf).log_softmax(-1)


def run_as_group(n: int, fit: Callable[[], Any]) -> list[Any]:
    """Run the same fit in n threads as one group."""
    meeting = SumAtBarrier(n)

    def run(rank: int) -> Any:
        with training_in_group(ProcessGroup(rank, n, meeting.adder(rank))):
            return fit()

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


def built(model: pn.PCMCNet, encoder: Encoder) -> ChoiceNetwork:
    """Return a copy of one network: threads share a random state."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return model._build(encoder, NetworkSpec())


def require_same(
    weights: dict[str, Tensor], others: list[dict[str, Tensor]], expected: dict[str, Tensor], tolerance: float
) -> None:
    """Check that a group has equal weights to the last bit, and those of one process up to rounding."""
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=tolerance)
        assert all(torch.equal(value, other[name]) for other in others)


@pytest.mark.parametrize(
    ("n", "device", "tolerance", "options"),
    [
        (2, "cpu", 1e-5, {}),
        (3, "cpu", 1e-5, {}),
        (2, "cpu", 1e-5, {"monotone": {"totalPrice": "decreasing"}}),
        pytest.param(2, "cuda", 1e-4, {}, marks=pytest.mark.gpu),  # sums differ from run to run on a GPU
    ],
)
def test_a_group_reaches_the_weights_of_one_process(
    n: int, device: str, tolerance: float, options: dict[str, Any]
) -> None:
    """20 steps: 2 epochs of 160 sets in batches of 16, with numeric columns only.

    Adam divides by the size of a gradient. Weights with a tiny gradient, such as those of rare categories, may
    differ by more.
    """
    roles = {"individual": ["dtd"], "features": ["totalPrice", "totalTripDurationMinutes", "nFlights", "outDepTime"]}
    data = pn.ChoiceData.from_long(
        airline.simulate(200, seed=0), choice_set="individual", chosen="choice", categorical=[], **roles
    )
    part, held_out = data.split((0.8, 0.2), seed=0)
    model = pn.PCMCNet(hidden=(16, 16), dropout=0.0, epochs=2, weight_decay=0.0, batch_size=16, **options)
    encoder = Encoder.learn(part)
    sets, valid = (encoder.encode(some).to(torch.device(device)) for some in (part, held_out))
    network = built(model, encoder).to(device)
    network.prepare(sets, model.config.pair_budget)

    def fit() -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        module = copy.deepcopy(network)
        outcome = train(module, sets, model.config, valid=valid, seed=3)
        return module.state_dict(), outcome.history

    expected, history = fit()
    (weights, entries), *others = run_as_group(n, fit)
    require_same(weights, [other for other, _ in others], expected, tolerance)
    for entry, known in zip(entries, history, strict=True):
        for key in ("train_loss", "valid_loss", "gradient_norm"):
            assert entry[key] == pytest.approx(known[key], abs=tolerance)  # the tolerance of the weights


def test_a_group_differs_from_one_process_only_by_rounding() -> None:
    """In float64 even the weights of rare categories agree, which soon differ in float32."""
    data = pn.ChoiceData.from_long(airline.simulate(100, seed=0), **airline.ROLES)
    model = pn.PCMCNet(hidden=(8,), dropout=0.0, epochs=2, batch_size=8, weight_decay=1.0)
    encoder = Encoder.learn(data)
    sets, network = encoder.encode(data), built(model, encoder)
    network.prepare(sets, model.config.pair_budget)
    network.double()
    sets = replace(sets, **{name: getattr(sets, name).double() for name in ("numeric", "individual_numeric", "weight")})

    def fit() -> dict[str, Tensor]:
        module = copy.deepcopy(network)
        train(module, sets, model.config, seed=3)
        return module.state_dict()

    expected = fit()
    weights, *others = run_as_group(2, fit)
    require_same(weights, others, expected, tolerance=1e-12)


@pytest.fixture
def scanned(tmp_path: Path) -> pn.ScannedData:
    """Scan 200 sets with weights, some of them 0, in about 15 shards; a buffer holds five."""
    table = airline.simulate(200, seed=0)
    sets = np.unique(table["individual"].to_numpy(), return_inverse=True)[1]
    pq.write_table(table.append_column("weight", [(sets % 4).astype(float)]), tmp_path / "trips.parquet")
    roles = {"individual": ["dtd"], "features": ["totalPrice", "totalTripDurationMinutes", "nFlights", "outDepTime"]}
    data = pn.ChoiceData.scan(
        tmp_path / "trips.parquet",
        choice_set="individual", chosen="choice", categorical=[], weight="weight", memory="1 MiB", **roles,
    )  # fmt: skip
    return replace(data, memory=4 * 5 * max(shard.bytes for shard in data.manifest.shards))


@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.slow), 7])
def test_processes_with_their_own_shards_match_one_process(n: int, scanned: pn.ScannedData) -> None:
    """About 20 steps. Seven processes are more than the shards of a buffer; the last buffer has even fewer."""
    model = pn.PCMCNet(hidden=(16, 16), dropout=0.0, epochs=2, weight_decay=0.0, batch_size=12)
    parts = [part.with_positive_weight() for part in scanned.split((0.8, 0.2), seed=0)]
    encoder = Encoder.learn(parts[0])
    network = built(model, encoder)
    network.prepare(next(EncodedStream(parts[0], encoder, torch.device("cpu")).chunks()), model.config.pair_budget)
    opened: list[set[str]] = []

    def fit() -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        group, module = current_group(), copy.deepcopy(network)
        own_parts = [replace(part, verified=VerifiedShards(part.folder)) for part in parts]
        sets, valid = (EncodedStream(part, encoder, torch.device("cpu"), group.rank, group.size) for part in own_parts)
        outcome = train(module, sets, model.config, valid=valid, seed=3)
        opened.append(set(own_parts[1].verified.seen))  # each process reads the same shards in all epochs
        return module.state_dict(), outcome.history

    assert 9 <= len(parts[0]) / 12 <= 11
    assert len(scanned.buffers()) > 2
    expected, history = fit()
    opened.clear()
    (weights, entries), *others = run_as_group(n, fit)
    require_same(weights, [other for other, _ in others], expected, tolerance=1e-5)
    for entry, known in zip(entries, history, strict=True):
        for key in ("train_loss", "valid_loss", "gradient_norm"):
            assert entry[key] == pytest.approx(known[key], abs=1e-5)  # the tolerance of the weights
    assert sum(map(len, opened)) == len(set.union(*opened)) == len(scanned.manifest.shards)


def test_set_weights_apply_to_the_whole_batch(make_sets: Callable[..., Any]) -> None:
    """The shares have very different weights, so a mean of their means would give another gradient."""
    sets = make_sets(8, weight=[100.0, 1.0] * 4)
    config = TrainConfig(epochs=1, batch_size=8, lr=0.1, schedule="constant", warmup=0.0)

    def step() -> Tensor:
        module = Linear()
        train(module, sets, config)
        return module.weight.detach()

    alone = step()
    for weight in run_as_group(2, step):
        torch.testing.assert_close(weight, alone, rtol=0, atol=1e-6)


def test_a_process_without_sets_in_a_batch_takes_the_step(make_sets: Callable[..., Any]) -> None:
    sets = make_sets(5)
    config = TrainConfig(epochs=2, batch_size=2, lr=0.01)

    def steps() -> Tensor:
        module = Linear()
        train(module, sets, config)
        return module.weight.detach()

    alone = steps()
    for weight in run_as_group(3, steps):
        torch.testing.assert_close(weight, alone, rtol=0, atol=1e-6)


def test_only_the_first_process_writes_checkpoints(make_sets: Callable[..., Any], tmp_path: Path) -> None:
    sets = make_sets(6)

    def run() -> Path:
        file = tmp_path / f"{current_group().rank}"
        train(Linear(), sets, TrainConfig(epochs=1), checkpoint=Checkpoint(file, {}))
        return file

    first, second = run_as_group(2, run)
    assert first.exists()
    assert not second.exists()


def test_outside_the_block_there_is_one_process() -> None:
    with training_in_group(ProcessGroup(1, 2)):
        assert current_group().size == 2
        assert not current_group().is_first
    assert current_group() == ProcessGroup()
    assert current_group().is_first


def test_processes_share_a_batch_with_their_own_dropout() -> None:
    sets = np.array([5, 3, 8, 1, 9])
    shares = [ProcessGroup(rank, 3).share(sets).tolist() for rank in range(3)]
    assert shares == [[5, 1], [3, 9], [8]]
    assert len({ProcessGroup(rank, 3).seed(2**63 - 1) for rank in range(3)}) == 3
    assert ProcessGroup().seed(7) == 7
