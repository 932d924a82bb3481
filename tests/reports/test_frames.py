import pyarrow as pa
import pytest

from pcmcnet.errors import InputError
from pcmcnet.reports import frames
from pcmcnet.reports.frames import data_frame

TABLE = pa.table({"name": ["a", "b"], "value": [1.5, 2.0]})


def test_a_column_may_become_the_index() -> None:
    pytest.importorskip("pandas")
    assert data_frame(TABLE)["name"].tolist() == ["a", "b"]
    assert data_frame(TABLE, index="name").loc["b", "value"] == 2.0


def test_without_pandas_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"estimates needs pandas, .*: pip install pandas, or use coefficients\."):
        data_frame(TABLE, method="estimates", instead="coefficients")
    with pytest.raises(InputError, match=r"pip install pandas\."):
        data_frame(TABLE)
