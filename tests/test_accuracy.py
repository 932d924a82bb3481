"""How well the default models learn the paper's first experiment, against the published figures."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pcmcnet as pn
from pcmcnet.datasets import mlba
from pcmcnet.models import ChoiceModel

TABLE = Path(__file__).parents[2] / "shared" / "data" / "mlba_train.parquet"
ROLES = {"choice_set": "choice_set", "chosen": "chosen", "alternative": "alternative", "features": ["attr1", "attr2"]}
PAPER = 0.009  # Table 1, PCMC-Net 3x16


@pytest.fixture(scope="module")
def train() -> pn.ChoiceData:
    """Return the 20,000 sets that the paper's model was trained on."""
    if not TABLE.exists():
        pytest.skip(f"needs {TABLE}, which is not part of the repository")
    return pn.ChoiceData.from_long(TABLE, **ROLES)


@pytest.fixture(scope="module")
def fresh() -> pa.Table:
    return mlba.simulate(10_000, seed=99)


def divergence(model: ChoiceModel, fresh: pa.Table) -> float:
    truth = fresh["true_prob"].to_numpy()
    report = pn.evaluate(model, pn.ChoiceData.from_long(fresh, **ROLES), truth=truth, resamples=0)
    assert report.kl is not None
    return report.kl


def test_a_logit_has_the_published_divergence(train: pn.ChoiceData, fresh: pa.Table) -> None:
    """Table 1 has .119 for the multinomial logit; no fit can do better, as it has no context effects."""
    model = pn.MNL(formula="attr1 + attr2 | 0").fit(train)
    assert model.num_parameters == 2
    assert divergence(model, fresh) == pytest.approx(0.119, abs=0.003)


def test_a_third_of_the_default_epochs_beats_the_paper(train: pn.ChoiceData, fresh: pa.Table) -> None:
    papers: dict[str, Any] = {"labels": False, "utility": "none", "members": 1}  # the inputs and weights of the paper
    model = pn.PCMCNet(hidden=(16, 16, 16), epochs=7, **papers).fit(train, seed=0, progress=False)
    assert model.num_parameters == 641
    assert divergence(model, fresh) < PAPER


@pytest.mark.slow
def test_five_seeds_reach_half_of_the_papers_divergence(train: pn.ChoiceData, fresh: pa.Table) -> None:
    networks = [pn.PCMCNet(hidden=(16, 16, 16), labels=False, members=1) for _ in range(5)]  # new labels
    fits = [network.fit(train, seed=seed, progress=False) for seed, network in enumerate(networks)]
    divergences = [divergence(model, fresh) for model in fits]
    assert np.mean(divergences) <= 0.006
    assert max(divergences) <= PAPER


@pytest.mark.slow
def test_the_settings_of_the_paper_approach_its_figure(train: pn.ChoiceData, fresh: pa.Table) -> None:
    """With one choice set per step, a fifth of the paper's 100 epochs takes minutes."""
    model = pn.PCMCNet.paper(epochs=20).fit(train, seed=0, progress=False)
    assert divergence(model, fresh) <= 0.012
