"""Printed results show display names and units of columns; data frames have the names in the table."""

import pytest

import pcmcnet as pn
from pcmcnet.datasets import intercity
from pcmcnet.insight.importance import importance
from pcmcnet.insight.willingness_to_pay import trade_offs


@pytest.fixture(scope="module")
def data() -> pn.ChoiceData:
    return intercity.read()[:60]


@pytest.fixture(scope="module")
def logit(data: pn.ChoiceData) -> pn.MNL:
    return pn.MNL(formula="price + time | 0").fit(data)


def test_importance_has_display_names(logit: pn.MNL, data: pn.ChoiceData) -> None:
    result = importance(logit, data, ["time", "party"], repeats=1)
    assert [line.split("  ")[0] for line in str(result).splitlines()[1:]] == ["Travel time", "Group size"]
    assert [row["name"] for row in result._frame_rows()] == ["time", "party"]
    assert "display" not in result.to_dict()


def test_elasticities_have_display_names(logit: pn.MNL, data: pn.ChoiceData) -> None:
    table = pn.elasticity(logit, data, "price").table()
    assert str(table).startswith("elasticity, Price ")
    assert table.to_dict().keys() == {"column", "kind", "rows", "caveats"}


def test_willingness_to_pay_has_units(logit: pn.MNL, data: pn.ChoiceData) -> None:
    assert str(pn.willingness_to_pay(logit, data, "time", "price")).startswith("Travel time (min) in Price (EUR) ")
    text = str(trade_offs(logit, data, ["time"], "price"))
    assert "is offset by Price (EUR)" in text
    assert "\nTravel time (min) " in text


def test_notebooks_show_the_meaning_of_columns(data: pn.ChoiceData) -> None:
    html = data._repr_html_()
    assert "Price (EUR)" in html
    assert "meaning" in html
    plain = pn.ChoiceData.from_long(intercity.PATH, choice_set="trip", chosen="chosen", features=["price"])
    assert "meaning" not in plain._repr_html_()
