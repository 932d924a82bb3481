"""On real tables, a monotone network has probabilities that fall with the price in all test sets."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.datasets import packaged
from pcmcnet.errors import DatasetError

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mode-canada", "swissmetro", "electricity"])
def test_all_test_sets_of_a_real_table_are_monotone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    benchmark: Any = importlib.import_module("benchmarks.monotone")
    try:
        data = pn.ChoiceData.from_schema(*packaged.long_form(name))
    except DatasetError as error:
        pytest.skip(str(error))
    train, test = data.split((0.8, 0.2), seed=0)
    column, options = benchmark.PRICES[name], {"epochs": 4, "weight_decay": 0.1}
    values = data.features[column].values
    grid = np.linspace(values.min(), values.max(), benchmark.POINTS)
    free = pn.PCMCNet(**options).fit(train, progress=False)
    signed = pn.PCMCNet(**options, monotone={column: "decreasing"}).fit(train, progress=False)
    assert (benchmark.largest_rises(free, test, column, grid) > 1e-3).any()
    assert (benchmark.largest_rises(signed, test, column, grid) < benchmark.TOLERANCE).all()
