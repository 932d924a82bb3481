"""Any table gives probabilities that sum to 1 within each set, or one of our errors."""

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from pcmcnet.data import ChoiceData
from pcmcnet.errors import PcmcNetError
from pcmcnet.models import MODELS

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]


def written(case: Any, folder: Path) -> Any:
    """Return the table of a case, as a mapping of arrays if its container or format cannot hold it."""
    try:
        return case.table(folder)
    except Exception:  # noqa: BLE001 - the libraries' trouble, before anything of ours is asked
        return dict(case.arrays)


def message(error: PcmcNetError) -> str:
    assert str(error).strip(), "an error without a word"
    return type(error).__name__


def require_distribution(p: Any, data: ChoiceData) -> None:
    assert p.shape == (data.n_rows,)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    assert (p[data.hidden_rows] == 0).all()
    sums = np.add.reduceat(p[data.rows], data.offsets[:-1])
    assert np.abs(sums - 1).max() < 1e-5  # networks sum up to 3,000 float32 numbers


def outcome(case: Any) -> str:
    """Fit and predict; return "fitted", or the name of our error."""
    with tempfile.TemporaryDirectory() as folder:
        table = written(case, Path(folder))
        try:
            data = ChoiceData.from_long(table, **case.roles)
            model = MODELS[case.model](**case.options).fit(data, progress=False)
            predictions = [model.predict_proba(table_to_predict) for table_to_predict in (data, table)]
        except PcmcNetError as error:
            return message(error)
        for p in predictions:
            require_distribution(p, data)
    try:  # a later table with other values
        later = ChoiceData.from_schema(case.with_other_values(), model.schema.for_prediction())
        p = model.predict_proba(later)
    except PcmcNetError as error:
        return f"fitted, later {message(error)}"
    require_distribution(p, later)
    return "fitted"


def search(hostile: Callable[..., Any], n: int, *, large: bool) -> Counter[str]:
    """Try n tables; return how often each outcome occurred."""
    outcomes: Counter[str] = Counter()

    @settings(max_examples=n, suppress_health_check=QUIET, database=None)
    @given(hostile(large=large))
    def check(case: Any) -> None:
        outcomes[outcome(case)] += 1

    check()
    return outcomes


def test_a_hundred_unusual_tables_give_a_model_or_our_error(hostile: Any) -> None:
    outcomes = search(hostile, 100, large=False)
    assert (
        sum(count for what, count in outcomes.items() if what.startswith("fitted")) > 20
    )  # otherwise too few models are tested
    assert outcomes["SchemaError"] > 10


@pytest.mark.slow
def test_ten_thousand_unusual_tables_give_a_model_or_our_error(hostile: Any) -> None:
    outcomes = search(hostile, 10_000, large=True)
    assert sum(count for what, count in outcomes.items() if what.startswith("fitted")) > 2_500
    assert outcomes["SchemaError"] > 1_500


# -- earlier failures ----------------------------------------------------------------------------------------------


def test_extreme_utilities_still_give_a_distribution() -> None:
    """With utilities so large that log 2 was lost in rounding, both alternatives once had probability 1."""
    table = {"set": [0, 0], "took": [0, 1], "x": [1.3e-40, 9.5e-41]}
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", features=["x"])
    model = MODELS["mnl"]().fit(data, progress=False)
    assert np.array_equal(model.predict_proba({**table, "x": [1.0, 1.0]}), [0.5, 0.5])


def test_thousands_of_columns_are_read_in_linear_time() -> None:
    """This once took minutes: each column was compared with all others."""
    rng, names = np.random.default_rng(0), [f"column {k}" for k in range(5_000)]
    columns = {name: rng.normal(size=6) for name in names}
    table = pa.table({"set": [0, 0, 1, 1, 1, 2], "took": [1, 0, 0, 1, 0, 1], **columns})
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", features=names)
    assert list(data.features) == names
    model = MODELS["pcmcnet"](hidden=(2,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    require_distribution(model.predict_proba(table), data)
