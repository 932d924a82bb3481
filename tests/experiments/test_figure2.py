import json
from pathlib import Path

import numpy as np
import pytest

from pcmcnet.experiments import figure2
from pcmcnet.experiments.context_effects import training_part
from pcmcnet.experiments.figure2 import NET, TRUTH, preference_at
from pcmcnet.plots import PreferenceMap, preference_error
from pcmcnet.plots.context import CONTEXTS


@pytest.fixture(scope="module")
def maps() -> dict[str, PreferenceMap]:
    return figure2.maps(training_part(None, 4_000, seed=0), epochs=10, cells=32)


def test_the_panels_are_those_of_the_paper(maps: dict[str, PreferenceMap]) -> None:
    assert list(maps) == [TRUTH, "MNL", "PCMC", NET]


def test_the_logit_is_flat(maps: dict[str, PreferenceMap]) -> None:
    assert np.ptp(maps["MNL"].preference) < 1e-12


def test_the_binned_chain_has_one_shade_for_each_bin(maps: dict[str, PreferenceMap]) -> None:
    """Cells of a bin ask for the same items, so that the 1,024 cells have at most 64 shades, and most differ."""
    shades = len(np.unique(maps["PCMC"].preference.round(9)))
    assert 48 < shades <= 64


def test_pcmc_net_is_smooth_and_close_to_the_truth(maps: dict[str, PreferenceMap]) -> None:
    """A step between neighbouring cells is at most a third of the span; the bins of PCMC make larger ones."""
    steps = {name: max(np.abs(np.diff(m.preference, axis=k)).max() for k in (0, 1)) for name, m in maps.items()}
    assert steps[NET] < 0.25 < steps["PCMC"]
    error = {name: preference_error(m, maps[TRUTH]).preference.mean() for name, m in maps.items()}
    assert error[NET] < error["PCMC"] < error["MNL"]


@pytest.mark.parametrize("name", [TRUTH, "PCMC", NET])
def test_the_preference_for_a_rises_around_attraction_and_falls_around_similarity(
    name: str, maps: dict[str, PreferenceMap]
) -> None:
    """Without c, a and b are chosen alike: .5. Similarity is strongest where c is close to a and not worse."""
    at = {effect: preference_at(maps[name], place) for effect, place in CONTEXTS.items()}
    assert at["attraction"] > 0.6
    assert at["compromise"] > 0.5
    assert at["similarity"] < at["attraction"] - 0.05
    assert preference_at(maps[name], (4.5, 7.0)) < 0.4


def test_the_preference_at_a_place_is_that_of_its_cell() -> None:
    grid = np.array([1.0, 2.0, 3.0])
    drawn = PreferenceMap(grid, grid, np.arange(9.0).reshape(3, 3) / 10, (1, 2), (2, 1))
    assert preference_at(drawn, (2.4, 2.6)) == 0.7


def test_the_figure_is_written_in_three_formats_with_a_report(tmp_path: Path) -> None:
    found = figure2.run(tmp_path, sets=200, epochs=1, cells=8)
    endings = {"figure2.png": b"\x89PNG", "figure2.pdf": b"%PDF-", "figure2.svg": b"<?xml"}
    assert {file.name for file in tmp_path.iterdir()} == {*endings, "report.md", "report.html", "result.json"}
    for name, start in endings.items():
        assert (tmp_path / name).read_bytes().startswith(start)
    values = json.loads((tmp_path / "result.json").read_text("utf-8"))["values"]
    assert values[TRUTH]["mean_error"] == 0
    assert values["MNL"]["lowest"] == pytest.approx(values["MNL"]["highest"], abs=1e-12)
    assert "figure2.svg" in (tmp_path / "report.md").read_text("utf-8")
    assert len(found.sections[0].tables[0]) == 5
