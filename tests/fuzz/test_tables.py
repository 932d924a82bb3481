"""Whatever the table: probabilities that sum to 1 within each set, or one of our own errors. Nothing else."""

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
    """The table of a case; as a mapping of arrays where its container or format cannot hold it."""
    try:
        return case.table(folder)
    except Exception:  # noqa: BLE001 - the libraries' trouble, before anything of ours is asked
        return dict(case.arrays)


def said(error: PcmcNetError) -> str:
    assert str(error).strip(), "an error without a word"
    return type(error).__name__


def require_distribution(p: Any, data: ChoiceData) -> None:
    assert p.shape == (data.n_rows,)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    assert (p[data.hidden_rows] == 0).all()
    sums = np.add.reduceat(p[data.rows], data.offsets[:-1])
    assert np.abs(sums - 1).max() < 1e-5  # networks sum up to 3,000 numbers of 32 bits


def outcome(case: Any) -> str:
    """Fit and predict; returns "fitted", or the name of our own error."""
    with tempfile.TemporaryDirectory() as folder:
        table = written(case, Path(folder))
        try:
            data = ChoiceData.from_long(table, **case.roles)
            model = MODELS[case.model](**case.options).fit(data, progress=False)
            found = [model.predict_proba(asked) for asked in (data, table)]
        except PcmcNetError as error:
            return said(error)
        for p in found:
            require_distribution(p, data)
    try:  # a table that came later, with other values
        later = ChoiceData.from_schema(case.twisted(), model.schema.for_prediction())
        p = model.predict_proba(later)
    except PcmcNetError as error:
        return f"fitted, later {said(error)}"
    require_distribution(p, later)
    return "fitted"


def search(hostile: Callable[..., Any], n: int, *, large: bool) -> Counter[str]:
    """Try n tables; returns how often each outcome came."""
    seen: Counter[str] = Counter()

    @settings(max_examples=n, suppress_health_check=QUIET, database=None)
    @given(hostile(large=large))
    def check(case: Any) -> None:
        seen[outcome(case)] += 1

    check()
    return seen


def test_a_hundred_odd_tables_end_in_a_model_or_in_our_own_error(hostile: Any) -> None:
    seen = search(hostile, 100, large=False)
    assert sum(count for what, count in seen.items() if what.startswith("fitted")) > 20  # else it says little of models
    assert seen["SchemaError"] > 10


@pytest.mark.slow
def test_ten_thousand_odd_tables_end_in_a_model_or_in_our_own_error(hostile: Any) -> None:
    seen = search(hostile, 10_000, large=True)
    assert sum(count for what, count in seen.items() if what.startswith("fitted")) > 2_500
    assert seen["SchemaError"] > 1_500


# -- what was found that way ---------------------------------------------------------------------------------------


def test_utilities_far_from_those_of_training_still_give_a_distribution() -> None:
    """Where utilities are so large that log 2 beside them is lost in rounding, both alternatives had probability 1."""
    table = {"set": [0, 0], "took": [0, 1], "x": [1.3e-40, 9.5e-41]}
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", features=["x"])
    model = MODELS["mnl"]().fit(data, progress=False)
    assert np.array_equal(model.predict_proba({**table, "x": [1.0, 1.0]}), [0.5, 0.5])


def test_thousands_of_columns_are_read_without_looking_at_each_pair_of_them() -> None:
    """It took minutes: after each column, all columns were looked up in the list of all columns."""
    rng, names = np.random.default_rng(0), [f"column {k}" for k in range(5_000)]
    columns = {name: rng.normal(size=6) for name in names}
    table = pa.table({"set": [0, 0, 1, 1, 1, 2], "took": [1, 0, 0, 1, 0, 1], **columns})
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", features=names)
    assert list(data.features) == names
    model = MODELS["pcmcnet"](hidden=(2,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    require_distribution(model.predict_proba(table), data)
