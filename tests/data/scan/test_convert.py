"""Columns of contents from disk: contents, codes and weights as in memory, each content once per shard."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import torch

from choice_tables import picture
from pcmcnet.data import ChoiceData, EncodedStream, Encoder, ScannedData
from pcmcnet.data.columns.arrays import Contents
from pcmcnet.errors import SchemaError
from pcmcnet.models import MNL, PCMCNet, load
from pcmcnet.models.interface.prediction_files import predict_folder
from pcmcnet.models.networks.averaged_members import NetworkSpec
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.training import TrainConfig, train

Write = Callable[..., Path]
CPU = torch.device("cpu")
KINDS: dict[str, Any] = {
    "photo": "image",
    "about": "text",
    "services": "multi",
    "style": "vector",
    "at": "datetime",
    "guest": "vector",
}
ROLES: dict[str, Any] = {
    "choice_set": "search",
    "chosen": "booked",
    "features": ["price", "photo", "about", "services", "style"],
    "individual": ["at", "guest"],
    "keep": ["city"],
    "kinds": KINDS,
}


def rooms(sets: int = 90, *, missing: bool = False) -> pa.Table:
    """Make rooms in scattered rows. 20 pictures and 7 vectors recur in all shards, and texts hold numbers."""
    rng = np.random.default_rng(0)
    n = 3 * sets
    pool = rng.normal(size=(7, 4)).astype(np.float32)
    style: list[Any] = list(pool[rng.integers(7, size=n)].tolist())
    about: list[Any] = [f"Room {k % 30} with {k % 7} beds" for k in range(n)]
    if missing:
        style[4] = about[5] = None
    table = {
        "search": np.repeat([f"s{k}" for k in range(sets)], 3),
        "booked": (np.arange(3) == rng.integers(3, size=sets)[:, None]).ravel().astype(int),
        "price": rng.uniform(50, 200, n),
        "photo": [picture(int(k)) for k in rng.integers(20, size=n)],
        "about": about,
        "services": [[["wifi"], ["pool", "wifi"], []][k] for k in rng.integers(3, size=n)],
        "style": pa.array(style, pa.list_(pa.float32())),
        "at": np.repeat(np.datetime64("2024-03-01T08:00", "s") + rng.integers(10**6, size=sets), 3),
        "guest": pa.array(np.repeat(rng.normal(size=(sets, 2)), 3, axis=0).tolist(), pa.list_(pa.float64())),
        "city": np.repeat([f"c{k % 5}" for k in range(sets)], 3),
    }
    return pa.table(table).take(pa.array(rng.permutation(n)))


@pytest.fixture
def folder(write: Write) -> Path:
    return write(rooms())


@pytest.fixture
def scanned(folder: Path) -> ScannedData:
    """The table with so little memory that a buffer holds only some of its shards."""
    return replace(ChoiceData.scan(folder, memory="1 MiB", **ROLES), memory=2**16)


def test_scanned_contents_equal_those_in_memory(folder: Path, scanned: ScannedData) -> None:
    whole = ChoiceData.from_long(folder, **ROLES)
    assert len(scanned.manifest.shards) > 2
    restored = scanned.read()
    assert restored.fingerprint() == whole.fingerprint()
    for name in KINDS:
        ours, theirs = ({**data.features, **data.individual}[name] for data in (restored, whole))
        assert ours.kind == theirs.kind == KINDS[name]
        assert [*map(repr, ours.plain())] == [*map(repr, theirs.plain())]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "folder"])
def test_missing_contents_stay_missing_in_every_format(kind: str, write: Write) -> None:
    path = write(rooms(30, missing=True), kind)
    roles = ROLES | {"missing": "indicator"}
    whole = ChoiceData.from_long(path, **roles)
    assert ChoiceData.scan(path, memory="1 MiB", **roles).read().fingerprint() == whole.fingerprint()
    with pytest.raises(SchemaError, match=r"column '(about|style)', row \d+ .* got nothing; 1 such row"):
        ChoiceData.scan(path, memory="1 MiB", **ROLES)


def test_lists_and_paths_in_a_csv_are_scanned(tmp_path: Path) -> None:
    table = rooms(20).to_pydict()
    paths = {content: tmp_path / f"{k}.png" for k, content in enumerate(dict.fromkeys(table["photo"]))}
    for content, path in paths.items():
        path.write_bytes(content)
    table["photo"] = [paths[content].name for content in table["photo"]]  # relative to the folder of the table
    for name in ("services", "style", "guest"):
        table[name] = [json.dumps(value) for value in table[name]]
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "t.csv")
    data = ChoiceData.scan(tmp_path / "t.csv", memory="1 MiB", **ROLES).read()
    assert data.fingerprint() == ChoiceData.from_long(tmp_path / "t.csv", **ROLES).fingerprint()


def test_codes_learnt_from_disk_equal_those_in_memory(scanned: ScannedData) -> None:
    part = scanned.split((0.7, 0.3))[0]
    for data in (scanned, part):
        ours, theirs = Encoder.learn(data), Encoder.learn(data.read())
        codes = (*ours.features.contents, *ours.individual.contents)
        expected = (*theirs.features.contents, *theirs.individual.contents)
        for a, b in zip(codes, expected, strict=True):
            if a.kind in ("multi", "image"):
                assert a == b
            else:
                assert type(a) is type(b)
                for key in ("mean", "scale"):
                    np.testing.assert_allclose(getattr(a, key), getattr(b, key), rtol=1e-12)


def test_a_constant_coordinate_is_recognised_in_all_shards(write: Write) -> None:
    table = rooms(40)
    fixed = [[0.1, value[0], 1.0 + (k == 0)] for k, value in enumerate(table["style"].to_pylist())]
    table = table.set_column(table.column_names.index("style"), "style", pa.array(fixed, pa.list_(pa.float32())))
    code = next(
        c
        for c in Encoder.learn(ChoiceData.scan(write(table), memory="1 MiB", **ROLES)).features.contents
        if c.name == "style"
    )
    assert code.scale[0] == 0  # type: ignore[attr-defined]
    assert min(code.scale[1:]) > 0  # type: ignore[attr-defined]


def test_training_from_disk_gives_the_weights_of_memory(scanned: ScannedData) -> None:
    """With one buffer for all sets, the weights are equal bit for bit."""
    whole = scanned.read()
    encoder = Encoder.learn(whole)
    config = TrainConfig(epochs=2, batch_size=16)

    def weights(source: Any) -> list[Any]:
        torch.manual_seed(0)
        network = PCMCNet(hidden=(8,))._build(encoder, NetworkSpec())
        assert isinstance(network, PCMCNetwork)
        train(network, source, config, seed=0, progress=False)
        return [p.tolist() for p in network.parameters()]

    stream = EncodedStream(replace(scanned, memory=2**40), encoder, CPU)
    assert len(list(stream.parts())) == 1
    assert weights(stream) == weights(encoder.encode(whole))


def test_a_buffer_of_several_shards_prepares_a_content_once(scanned: ScannedData) -> None:
    stream = EncodedStream(replace(scanned, memory=2**40), Encoder.learn(scanned), CPU)
    (part,) = stream.parts()
    tables = dict(zip((code.name for code in stream.encoder.features.contents), part.contents, strict=True))
    assert len(tables["photo"].table) == 20
    assert len(tables["style"].table) == 7
    assert len(list(EncodedStream(scanned, stream.encoder, CPU).parts())) > 1


def test_shards_store_each_content_once_and_count_their_bytes(scanned: ScannedData) -> None:
    for shard, about in zip(scanned.shards(), scanned.manifest.shards, strict=True):
        photo = shard.data.features["photo"]
        assert isinstance(photo, Contents)
        assert len(photo.table) == len({*photo.plain().tolist()}) <= 20
        assert about.loaded > len(photo.table) * 5 * 4 * 3
        assert about.loaded < len(photo.table) * 64 * 64 * 3  # all have one small size
        assert about.memory_bytes == about.bytes + about.loaded


def test_a_network_is_fitted_and_predicts_in_chunks(scanned: ScannedData, folder: Path, tmp_path: Path) -> None:
    assert not scanned.fits
    model = PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0).fit(*scanned.split((0.8, 0.2)), progress=False)
    expected = model.predict_proba(folder)
    np.testing.assert_allclose(
        model.predict_proba(scanned), expected, atol=1e-6
    )  # batches of other sizes round differently
    model.save(tmp_path / "model")
    n = predict_folder(load(tmp_path / "model"), folder, tmp_path / "out", memory="1 MiB")
    assert n == len(expected)
    written = [pa.parquet.read_table(file) for file in sorted((tmp_path / "out").glob("*.parquet"))]
    predictions = np.concatenate([table["probability"].to_numpy() for table in written])
    np.testing.assert_allclose(predictions, expected, atol=1e-6)  # batches of other sizes round differently
    assert written[0].column_names == [*rooms(2).column_names, "probability"]


def test_a_logit_ignores_contents_and_predicts_from_disk(scanned: ScannedData, folder: Path) -> None:
    model = MNL().fit(scanned.sample(40), progress=False)
    np.testing.assert_allclose(model.predict_proba(scanned), model.predict_proba(folder), atol=1e-12)


def test_a_vector_of_another_size_is_named_with_its_row(write: Write) -> None:
    table = rooms(60)
    sizes = [4 if name == "s7" else 3 for name in table["search"].to_pylist()]
    uneven = pa.array([[1.0] * size for size in sizes], pa.list_(pa.float64()))
    table = table.set_column(table.column_names.index("style"), "style", uneven)
    roles = ROLES | {"features": ["price", "style"], "individual": [], "kinds": {"style": "vector"}}
    with pytest.raises(SchemaError, match=r"column 'style', row \d+.*expected a vector of \d numbers as in") as refused:
        ChoiceData.scan(write(table), memory="1 MiB", **roles)
    row = int(str(refused.value).partition("row ")[2].partition(":")[0].split()[0])
    assert (table["search"][row].as_py() == "s7") == ("got 4 numbers" in str(refused.value))


def test_a_broken_picture_is_named_with_its_table_row(write: Write) -> None:
    table = rooms(60)
    photos = table["photo"].to_pylist()
    photos[123] = b"none"
    table = table.set_column(table.column_names.index("photo"), "photo", pa.array(photos))
    with pytest.raises(
        SchemaError, match=r"column 'photo', row 123 \(choice set s\d+\): expected a picture, got 4 bytes"
    ):
        ChoiceData.scan(write(table), memory="1 MiB", **ROLES)


def test_contents_cannot_group_a_scanned_table(scanned: ScannedData) -> None:
    with pytest.raises(
        SchemaError, match="column 'at' is of kind datetime: only numeric and categorical columns can group"
    ):
        scanned.split((0.5, 0.5), by="at")
    assert len(scanned.split((0.5, 0.5), by="city")) == 2


def test_large_contents_make_more_shards(write: Write) -> None:
    """Vectors of 2,000 numbers take 16 kB a row, so a shard holds few of them."""
    table = rooms(60)
    wide = pa.array(np.random.default_rng(0).normal(size=(180, 2000)).tolist(), pa.list_(pa.float64()))
    path = write(table.set_column(table.column_names.index("style"), "style", wide))
    roles = {"choice_set": "search", "chosen": "booked", "features": ["price", "style"]}
    few = ChoiceData.scan(path, memory="1 GiB", cache=path.parent / "a", **roles, kinds={"style": "vector"})
    many = ChoiceData.scan(path, memory="8 MiB", cache=path.parent / "b", **roles, kinds={"style": "vector"})
    assert len(few.manifest.shards) == 1
    assert len(many.manifest.shards) > 5
    assert many.read().fingerprint() == few.read().fingerprint()
