"""The steps of a fit: what runs once, and whether the architecture page describes them correctly."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pcmcnet as pn
from choice_tables import ROLES, trips
from pcmcnet.data import choice_data
from pcmcnet.data.subsets import fingerprint

ROOT = Path(__file__).parents[1]
TRACED = """
import json
from tools.fit_walk import fit_walk
walk = fit_walk()
print(json.dumps([walk.run, walk.entered, walk.returns, walk.calls]))
"""


def test_a_fit_hashes_its_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data, hashed = pn.ChoiceData.from_long(trips(), **ROLES), []

    def noted(sets: pn.ChoiceData) -> str:
        hashed.append(sets)
        return fingerprint(sets)

    monkeypatch.setattr(choice_data, "fingerprint", noted)
    model = pn.PCMCNet(hidden=(4,), epochs=1, weight_decay=0.1).fit(data, progress=False)
    assert hashed == [data]
    assert model.table_.fingerprint == fingerprint(data)


@pytest.mark.slow
def test_the_architecture_page_names_the_modules_of_a_fit() -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ended = subprocess.run(
        [sys.executable, "-c", TRACED],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    run, entered, returns, calls = json.loads(ended.stdout.splitlines()[-1])
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition("## The walk of a fit")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w/]+\.py)`", section))
    assert set(entered) <= named <= set(run)
    assert calls["data/subsets.py:fingerprint"] == calls["storage.py:_acquire"] == 1
    assert not [module for module in run if module.startswith("data/scan/")]
    assert len(entered) <= 28  # files that a reader of a fit goes through
    # A module is entered again only through the interface of models or networks, or by a callback.
    models = {"models/interface/choice_model.py", "models/networks/neural_model.py"}
    networks = {"models/networks/chain_network.py", "models/networks/averaged_members.py"}
    assert {name.partition(":")[0] for name in returns} <= models | networks | {"models/networks/fitting.py"}
