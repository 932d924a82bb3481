"""Saved folders of the current format, which are never rewritten.

``python tests/models/golden/make.py tests/models/golden/format-2`` wrote them: tiny fits to table.csv with fixed seeds,
one of each kind of model, and their probabilities in expected.json. If a folder no longer loads, or its probabilities
change, models that users have saved break as well.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.errors import ArtifactError
from pcmcnet.models import KINDS, load
from pcmcnet.models.interface.saving import FORMAT

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob(f"format-{FORMAT}/*/model.json"))


def expected(folder: Path) -> Any:
    return json.loads((folder.parent / "expected.json").read_bytes())[folder.name]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_golden_folder_keeps_its_probabilities(folder: Path) -> None:
    model = load(folder)
    np.testing.assert_allclose(model.predict_proba(GOLDEN / "table.csv"), expected(folder), rtol=0, atol=1e-6)


def common_entries(after: Any, before: Any) -> Any:
    """Return the entries of mappings that the golden folder has, without fields that were added later."""
    if isinstance(after, list) and isinstance(before, list) and len(after) == len(before):
        return [common_entries(*pair) for pair in zip(after, before, strict=True)]
    if not (isinstance(after, dict) and isinstance(before, dict)):
        return after
    return {key: common_entries(value, before[key]) for key, value in after.items() if key in before}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_loaded_golden_folder_is_saved_unchanged(folder: Path, tmp_path: Path) -> None:
    """Table, record and options are read and written by the types of their fields, which may be new."""
    again = load(folder).save(tmp_path / "again")
    for name in ("fit", "model", "format"):
        before, after = (json.loads((place / "model.json").read_bytes())[name] for place in (folder, again))
        assert common_entries(after, before) == before
    for name in ("schema.json", "history.json"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()
    options, saved = (json.loads((place / "config.json").read_bytes()) for place in (folder, again))
    assert common_entries(saved, options) == options  # later options have their defaults


def test_every_kind_of_model_has_a_golden_folder() -> None:
    assert {json.loads((folder / "model.json").read_bytes())["model"] for folder in FOLDERS} == set(KINDS)
    assert [path.name for path in GOLDEN.glob("format-*")] == [f"format-{FORMAT}"]


@pytest.mark.parametrize("files", [{}, {"training": {}, "files": {}, "sizes": {}, "versions": {}}])
def test_a_folder_of_an_earlier_format_is_refused(files: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"format": 1, "model": "pcmcnet", **files}))
    with pytest.raises(ArtifactError, match="has format 1, but this version of pcmcnet reads format 2: fit the model"):
        load(tmp_path)
