"""Goodness of fit of a model on a table, and of cross-validated baselines."""

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, Uniform, compare, evaluate
from pcmcnet.insight import calibration as module
from pcmcnet.insight.calibration import fit_quality


@pytest.fixture(scope="module")
def model(driven: ChoiceData) -> MNL:
    return MNL().fit(driven)  # type: ignore[no-any-return]


def test_the_model_is_evaluated_and_the_baselines_are_cross_validated(model: MNL, driven: ChoiceData) -> None:
    baselines = {"uniform": Uniform(), "mnl": MNL()}
    quality = fit_quality(model, driven, baselines, seed=3)
    assert quality.report == evaluate(model, driven, seed=3)
    expected = compare(baselines, driven, 5, 3, progress=False)
    assert quality.baselines is not None
    assert [row.values for row in quality.baseline_rows] == [row.values for row in expected.rows]
    assert quality.in_sample
    assert quality.warning is not None
    assert quality.to_dict()["baselines"]["n_sets"] == len(driven)


def test_baselines_use_a_sample_of_a_large_table(
    model: MNL, driven: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BASELINE_SETS", 12)
    quality = fit_quality(model, driven, {"uniform": Uniform()})
    assert quality.baselines is not None
    assert (quality.report.n_sets, quality.baselines.n_sets) == (40, 12)


def test_a_table_too_small_for_folds_has_no_baselines(model: MNL, driven: ChoiceData) -> None:
    assert fit_quality(model, driven.subset(np.arange(9)), {"uniform": Uniform()}).baselines is None
