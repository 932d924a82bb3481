"""Either kind of choice sets gives the same encoder."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.data.sets import learn_encoder


def test_an_encoder_is_kept_for_a_table_on_disk_and_learnt_from_one_in_memory(
    trips: dict[str, list[Any]], roles: dict[str, Any], tmp_path: Path
) -> None:
    pyarrow.parquet.write_table(pa.table(trips), tmp_path / "trips.parquet")
    scanned = ChoiceData.scan(tmp_path / "trips.parquet", cache=tmp_path / "cache", memory="1 MiB", **roles)
    expected = Encoder.learn(ChoiceData.from_long(trips, **roles), bend=True, labels=True)
    assert learn_encoder(ChoiceData.from_long(trips, **roles), bend=True, labels=True) == expected
    assert not list(scanned.folder.glob("encoder-*"))
    assert learn_encoder(scanned, bend=True, labels=True) == expected
    assert len(list(scanned.folder.glob("encoder-*"))) == 1
