"""How a scenario is shown: text, Markdown, frames and JSON."""

import json
from collections.abc import Callable

import pytest

from pcmcnet import ChoiceData, Scenario, scenario
from pcmcnet.errors import InputError
from pcmcnet.models import ChoiceModel


@pytest.fixture(scope="module")
def found(driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> Scenario:
    return scenario(fitted("mnl"), driven, "price += 1 where mode == 'car'", revenue="price", cost="price")


def test_the_text_has_all_figures(found: Scenario) -> None:
    lines = str(found).splitlines()
    assert lines[:2] == ["Scenario: MNL on 40 choice sets", "=" * 31]
    assert lines[2].split(maxsplit=1)[1].startswith("price += 1 where mode == 'car': ")
    heads = ["mode", "before", "after", "change in points", "interval", "diversion"]
    heads += ["volume before", "after", "revenue before", "after"]
    assert " ".join(heads).split() in [line.split() for line in lines]
    car = found.shares["car"]
    row = next(line for line in lines if line.startswith("car"))
    assert f"{car.before:.2%}" in row
    assert f"{100 * car.change:+.2f}" in row
    assert any(line.startswith("revenue, price  ") for line in lines)
    assert any(line.startswith("consumer surplus  -") for line in lines)
    assert "95% intervals by the delta method, classical standard errors" in lines
    assert repr(found) == str(found)


def test_the_same_in_markdown_frames_and_json(found: Scenario) -> None:
    assert found.to_markdown().startswith("# Scenario: MNL on 40 choice sets\n")
    assert "| car |" in found.to_markdown()
    assert "<td" in found._repr_html_()
    assert "car & " in found.to_latex()
    frame = found.to_frame()
    assert frame.index.name == "mode"
    assert frame.loc["car", "share_change"] == found.shares["car"].change
    assert frame.loc["bus", "diversion"] == found.diversion["bus"].ratio
    assert frame["diversion"].isna().tolist() == [False, False, True, False]
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["shares"]["car"]["after"] == found.shares["car"].after
    assert plain["consumer_surplus"]["mean"] == found.consumer_surplus.mean
    assert plain["left_out"] == {}
    assert found.to_arrow().column_names[0] == "mode"


def test_parts_print_as_tables(found: Scenario) -> None:
    assert str(found.volumes).splitlines()[0].split() == ["volume", "before", "after", "change", "interval"]
    assert str(found.diversion).splitlines()[0].split() == ["group", "diversion", "interval"]
    assert found.shares.to_markdown().startswith("| share | before |")
    assert sum(row.ratio for row in found.diversion.rows) == pytest.approx(1)
    assert str(found.consumer_surplus).startswith(f"{found.consumer_surplus.mean:.4g} price per choice set (")
    with pytest.raises(InputError, match=r"no group 'cra'\. Did you mean 'car'"):
        found.shares["cra"]
    with pytest.raises(InputError, match="no group 'car'"):
        found.diversion["car"]
