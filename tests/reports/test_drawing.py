"""Results find the functions that draw them, which are entered by a stage to their right."""

import pytest

import forked
from pcmcnet.reports import drawing


def test_a_drawing_is_found_by_its_name_and_loaded_when_it_is_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load() -> None:
        loaded.append("plots")
        drawing.draws("new")(lambda result, size: f"{result} at {size}")

    monkeypatch.setattr(drawing, "_FUNCTIONS", {})
    monkeypatch.setattr(drawing, "load", load)
    assert [drawing.draw("new", "picture", size=k) for k in (1, 2)] == ["picture at 1", "picture at 2"]
    assert loaded == ["plots"]


def test_a_result_is_drawn_also_where_only_its_own_stage_was_imported() -> None:
    code = (
        "import sys, pcmcnet.evaluation\nfrom pcmcnet.reports import drawing\n"
        "assert 'pcmcnet.plots' not in sys.modules\n"
        "try:\n    drawing.draw('leaderboard', None)\nexcept AttributeError as error:\n    print(error)"
    )
    run = forked.run(code)
    assert "standings" in run.stdout  # asked of what is no leaderboard, by the function that draws one
