"""On real tables, a monotone network has probabilities that fall with the price in all test sets."""

import importlib
import re
from dataclasses import replace
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


def test_signs_of_a_real_table_are_obeyed_if_declared_and_questioned_if_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    benchmark: Any = importlib.import_module("benchmarks.monotone")
    try:
        table, schema = packaged.long_form("mode-canada")
    except DatasetError as error:
        pytest.skip(str(error))
    signs, options = benchmark.SIGNS["mode-canada"], {"epochs": 4, "members": 1, "weight_decay": 0.1}
    free, signed = (pn.ChoiceData.from_schema(table, replace(schema, signs=s))[::4] for s in ({}, signs))
    model = pn.PCMCNet(**options).fit(signed, progress=False)
    assert model.caveats == ()
    assert benchmark.right_sets(model, signed[:100], signs) == 1
    caveat = pn.PCMCNet(**options).fit(free, progress=False).sign_caveats["cost"]
    question, _, remedy = caveat.partition(". ")
    assert re.fullmatch(
        r"the probability of an alternative rises with its cost in \d+% of 500 .* choice sets", question
    )
    assert remedy == "Is this plausible? If not, declare signs={'cost': '-'} and fit again"
