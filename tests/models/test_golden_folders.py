"""Folders that were saved by the first version of each format, and never written again: see golden/make.py."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.models import KINDS, load
from pcmcnet.models.saving.manifest import FORMAT

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob("format-*/*/model.json"))


def expected(folder: Path) -> Any:
    return json.loads((folder.parent / "expected.json").read_bytes())[folder.name]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_folder_of_every_format_gives_the_probabilities_it_always_gave(folder: Path) -> None:
    model = load(folder)
    np.testing.assert_allclose(model.predict_proba(GOLDEN / "table.csv"), expected(folder), rtol=0, atol=1e-6)


def test_there_is_a_golden_folder_of_every_kind_of_model_in_the_present_format() -> None:
    kinds = {json.loads((folder / "model.json").read_bytes())["model"] for folder in FOLDERS}
    assert {int(folder.parent.name.removeprefix("format-")) for folder in FOLDERS} == set(range(1, FORMAT + 1))
    assert kinds == set(KINDS)
