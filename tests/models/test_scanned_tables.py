"""Models fitted to tables on disk have the results of a table in memory for the same order of batches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import pcmcnet as pn
from choice_tables import trips
from pcmcnet.data import ChoiceData, EncodedSets, EncodedStream, Encoder, ScannedData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.axioms import audit
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.training import TrainConfig, loop, train
from pcmcnet.training.step import Steps

ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "individual": ["income"],
    "features": ["price", "minutes", "comfort"],
}
OPTIONS: dict[str, Any] = {"hidden": (8,), "epochs": 3, "batch_size": 32, "dropout": 0.1, "weight_decay": 0.5}


class Interruption(KeyboardInterrupt):
    """Interrupts a run."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write about 1,000 shuffled rows of 300 trips in three files. Cheaper alternatives are more probable."""
    rows = pa.table(trips(300, slope=-0.5, mixed=True))
    folder = tmp_path_factory.mktemp("large") / "trips"
    folder.mkdir()
    for k in range(3):
        begin, end = rows.num_rows * k // 3, rows.num_rows * (k + 1) // 3
        pyarrow.parquet.write_table(rows.slice(begin, end - begin), folder / f"{k}.parquet")
    return folder


@pytest.fixture(scope="module")
def scanned(table: Path) -> ScannedData:
    """Scan the table with very little memory: a buffer holds one shard."""
    result = replace(ChoiceData.scan(table, memory="1 MiB", **ROLES), memory=2**15)
    assert len(result.buffers()) == len(result.manifest.shards) > 2
    return result


@pytest.fixture(scope="module")
def in_memory(table: Path) -> ChoiceData:
    return ChoiceData.from_long(table, **ROLES)


def weights(module: torch.nn.Module) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in module.state_dict().values()]


def untimed(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in history]


def network(encoder: Encoder) -> PCMCNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return PCMCNetwork(encoder, pn.PCMCNet(**OPTIONS).config)


def test_a_buffer_of_the_whole_table_trains_bit_for_bit_as_in_memory(
    scanned: ScannedData, in_memory: ChoiceData
) -> None:
    one = replace(scanned, memory=2**30)
    assert one.fits
    assert len(one.manifest.shards) > 2
    encoder = Encoder.learn(in_memory)
    streamed, stored = network(encoder), network(encoder)
    config = TrainConfig(epochs=2, batch_size=32)
    a = train(streamed, EncodedStream(one, encoder, torch.device("cpu")), config, seed=5)
    b = train(stored, encoder.encode(in_memory), config, seed=5)
    assert weights(streamed) == weights(stored)
    assert untimed(a.history) == untimed(b.history)


class Reordered:
    """A table in memory that yields its sets in the order of a stream."""

    def __init__(self, whole: EncodedSets, places: dict[int, int], scanned: ScannedData) -> None:
        self.whole, self.places, self.scanned = whole, places, scanned
        self.device, self.mean_pairs, self.largest = whole.device, whole.mean_pairs, whole.largest

    def __len__(self) -> int:
        return len(self.whole)

    def parts(self, order: Any = None, skip: int = 0) -> Any:
        assert not skip
        n = len(self.scanned.manifest.shards)
        shuffled = np.random.default_rng([*order, n]).permutation(n).tolist()
        for group in self.scanned.buffers(shuffled):
            rows = np.sort(np.concatenate([shard.first for shard in self.scanned.shards(group)]))
            index = np.array([self.places[row] for row in rows.tolist()])
            of_sets = ("starts", "counts", "individual_numeric", "individual_categorical", "chosen", "weight")
            some = {name: getattr(self.whole, name)[torch.from_numpy(index)] for name in of_sets}
            yield replace(self.whole, sizes=self.whole.sizes[index], **some)


def test_the_same_order_of_batches_gives_the_same_weights_bit_for_bit(
    scanned: ScannedData, in_memory: ChoiceData
) -> None:
    encoder = Encoder.learn(scanned)
    places = {row: k for k, row in enumerate(in_memory.rows[in_memory.offsets[:-1]].tolist())}
    streamed, stored = network(encoder), network(encoder)
    config = TrainConfig(epochs=2, batch_size=32)
    train(streamed, EncodedStream(scanned, encoder, torch.device("cpu")), config, seed=5)
    train(stored, Reordered(encoder.encode(in_memory), places, scanned), config, seed=5)
    assert weights(streamed) == weights(stored)


def test_a_table_that_fits_into_memory_trains_as_in_memory(table: Path, in_memory: ChoiceData) -> None:
    small = ChoiceData.scan(table, memory="1 MiB", **ROLES)
    for model in (pn.PCMCNet(**OPTIONS), pn.MNL()):
        a = model.fit(small, progress=False).predict_proba(in_memory)
        b = type(model)(**{k: getattr(model.config, k) for k in OPTIONS if hasattr(model.config, k)})
        assert a.tolist() == b.fit(in_memory, progress=False).predict_proba(in_memory).tolist()
    assert model.table_.fingerprint == in_memory.fingerprint()
    assert len(model.predict(small)) == len(in_memory)


def test_a_fit_from_disk_is_as_good_as_from_memory(scanned: ScannedData, in_memory: ChoiceData) -> None:
    options = OPTIONS | {"epochs": 8}
    disk = pn.PCMCNet(**options).fit(scanned, progress=False)
    memory = pn.PCMCNet(**options).fit(in_memory, progress=False)
    uniform = -float(np.log(in_memory.sizes).mean())
    assert disk.score(in_memory) > uniform + 0.8 * (memory.score(in_memory) - uniform)
    assert disk.score(scanned) == pytest.approx(disk.score(in_memory), rel=1e-6)  # batches have other widths
    assert disk.table_.choice_sets == len(in_memory)
    assert disk.table_.alternatives == len(in_memory.rows)
    assert disk.table_.columns


def test_predictions_are_in_the_order_of_the_rows(scanned: ScannedData, in_memory: ChoiceData) -> None:
    for model in (pn.PCMCNet(**OPTIONS), pn.MNL()):
        model.fit(in_memory.subset(np.arange(100)), progress=False)
        # Batches of different widths round differently.
        np.testing.assert_allclose(model.predict_proba(scanned), model.predict_proba(in_memory), rtol=0, atol=1e-6)
    with pytest.raises(InputError, match=r"data\.parts\(\) one by one, or draw data\.sample"):
        model.predict(scanned)


def test_a_fit_interrupted_within_an_epoch_resumes_at_the_last_buffer(
    scanned: ScannedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is saved after every buffer. The buffer in which the second epoch is interrupted is repeated."""
    buffers, folder = len(scanned.buffers()), tmp_path / "run"
    assert buffers > 2
    whole = pn.PCMCNet(**OPTIONS).fit(scanned, progress=False)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", 0.0)
    read: list[list[int]] = []
    plain = EncodedStream._read

    def counting(stream: EncodedStream, group: list[int]) -> EncodedSets | None:
        read.append(group)
        return plain(stream, group)

    run, ran = Steps.run, [0]

    def breaking(steps: Steps, *arguments: Any) -> Any:
        ran[0] += 1
        if ran[0] == buffers + 3:
            raise Interruption
        return run(steps, *arguments)

    monkeypatch.setattr(Steps, "run", breaking)
    with pytest.raises(Interruption):
        pn.PCMCNet(**OPTIONS).fit(scanned, progress=False, run_folder=folder)
    monkeypatch.setattr(Steps, "run", run)
    monkeypatch.setattr(EncodedStream, "_read", counting)
    resumed = pn.PCMCNet(**OPTIONS).fit(scanned, progress=False, run_folder=folder, resume=True)
    assert len(read) == (buffers - 2) + buffers  # the rest of the second epoch, and the third
    assert weights(resumed.network_) == weights(whole.network_)
    assert untimed(resumed.history) == untimed(whole.history)


def test_an_interrupted_fit_resumes_bit_for_bit(scanned: ScannedData, tmp_path: Path) -> None:
    training, held_out = scanned.split((0.8, 0.2))
    whole = pn.PCMCNet(**OPTIONS).fit(training, held_out, progress=False)

    def stop(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            raise Interruption

    with pytest.raises(Interruption):
        pn.PCMCNet(**OPTIONS).fit(training, held_out, progress=False, run_folder=tmp_path / "run", on_epoch=stop)
    resumed = pn.PCMCNet(**OPTIONS).fit(training, held_out, progress=False, run_folder=tmp_path / "run", resume=True)
    assert weights(resumed.network_) == weights(whole.network_)
    assert untimed(resumed.history) == untimed(whole.history)


def test_a_refit_uses_both_parts_of_a_split(scanned: ScannedData, in_memory: ChoiceData) -> None:
    parts = scanned.split((0.8, 0.2))
    model = pn.PCMCNet(**OPTIONS, refit=True).fit(*parts, progress=False)
    assert model.table_.choice_sets == len(scanned)
    with pytest.raises(ConfigError, match="both from the same split of a"):
        pn.PCMCNet(**OPTIONS, refit=True).fit(parts[0], in_memory, progress=False)


def test_the_validation_part_may_be_in_memory(scanned: ScannedData, in_memory: ChoiceData) -> None:
    model = pn.PointerNetwork(epochs=1, weight_decay=0.0, hidden=4).fit(
        scanned, in_memory.subset(np.arange(50)), progress=False
    )
    assert model.history[0]["valid_loss"] > 0


def test_an_ensemble_streams_if_its_members_do(scanned: ScannedData) -> None:
    ensemble = pn.Ensemble(pn.PCMCNet(**(OPTIONS | {"epochs": 1})), 2).fit(scanned, progress=False)
    assert ensemble.predict_proba(scanned).sum() == pytest.approx(len(scanned))
    with pytest.raises(ConfigError, match="Ensemble needs all choice sets in memory"):
        pn.Ensemble(pn.PCMCNet(**OPTIONS), 2, resample=True).fit(scanned, progress=False)


@pytest.mark.parametrize("name", ["mnl", "rf", "pcmc-linear"])
def test_models_that_cannot_stream_name_a_remedy(name: str, scanned: ScannedData) -> None:
    with pytest.raises(ConfigError, match=r"too large: fit the model to data\.sample\(n_sets\)"):
        pn.MODELS[name]().fit(scanned)


def test_results_that_need_the_whole_table_name_an_alternative(scanned: ScannedData, in_memory: ChoiceData) -> None:
    model = pn.Uniform().fit(in_memory)
    with pytest.raises(
        InputError, match=r"too large: process data\.parts\(\) one by one, or draw data\.sample\(n_sets\)"
    ):
        model.predict(scanned)
    with pytest.raises(InputError, match="evaluate, score and predict_proba support the whole table"):
        audit(model, scanned)


def test_a_table_without_choices_is_refused(table: Path) -> None:
    roles = {key: value for key, value in ROLES.items() if key != "chosen"}
    with pytest.raises(InputError, match="fitting needs the choices: scan the table with chosen"):
        pn.PCMCNet().fit(ChoiceData.scan(table, **roles))


@pytest.mark.gpu
def test_cuda_graphs_train_over_shards_as_plain_steps_do(scanned: ScannedData) -> None:
    """On a GPU, shards are copied in turn into the memory that the graphs read."""
    options = OPTIONS | {"dropout": 0.0, "epochs": 4, "precision": "float32"}
    losses = []
    for device in ("cuda", "cpu"):
        model = pn.PCMCNet(**options).fit(scanned, device=device, progress=False)
        losses.append([entry["train_loss"] for entry in model.history])
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=5e-3)  # sums in another order, over 40 steps


def test_chosen_probabilities_are_in_the_order_of_the_table(scanned: ScannedData, in_memory: ChoiceData) -> None:
    """A set of a table on disk has the position of its first row, in whichever shard it is."""
    model = pn.MNL(formula="price").fit(in_memory)
    np.testing.assert_array_equal(model.chosen_probabilities(scanned), model.chosen_probabilities(in_memory))
    half, _ = scanned.split((0.5, 0.5), seed=0)
    np.testing.assert_array_equal(model.chosen_probabilities(half), model.chosen_probabilities(half.read()))
    empty = replace(scanned, filters=(replace(half.filters[-1], low=0.0, high=0.0),))
    assert model.chosen_probabilities(empty).shape == (0,)
