"""Removals are extrapolation where all training sets offer the same alternatives."""

import numpy as np

from choice_tables import item_choices, read
from pcmcnet import MNL, Uniform, explain
from pcmcnet.data.describe import offers_differ
from pcmcnet.insight.availability import extrapolation
from pcmcnet.insight.axioms import audit
from pcmcnet.plots.report import sections_of
from pcmcnet.reports.sections import Text

SAME = item_choices([("abc", "a"), ("cab", "b"), ("abc", "c")] * 4)
REMOVALS = (
    "All choice sets of the training table offer the same alternatives. How people choose when one is missing was "
    "never observed: what is said of removals is extrapolation, by the form of the model."
)
DIFFERENT = item_choices([("abc", "a"), ("ab", "b"), ("abd", "a")] * 4)


def test_offers_differ_by_label_or_by_size() -> None:
    assert not offers_differ(SAME)
    assert offers_differ(DIFFERENT)
    assert offers_differ(item_choices([("abc", "a"), ("abd", "b")]))  # of one size
    table = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "x": [1.0, 2.0, 3.0, 4.0]}
    plain = read(table, features=["x"])
    assert not offers_differ(plain)
    assert "have the same number of alternatives" in (extrapolation(object(), plain) or "")
    assert offers_differ(read({**table, "trip": [1, 1, 1, 2], "took": [1, 0, 0, 1]}, features=["x"]))


def test_the_training_table_decides_where_it_is_known() -> None:
    trained = Uniform().fit(SAME)
    assert extrapolation(trained, DIFFERENT) == REMOVALS
    assert extrapolation(Uniform().fit(DIFFERENT), SAME) is None
    trained.note_table(description={})  # fitted by several processes
    assert extrapolation(trained, DIFFERENT) is None
    assert extrapolation(object(), SAME) == REMOVALS
    assert REMOVALS in audit(Uniform().fit(SAME), SAME).notes


def test_the_report_marks_removals_and_leaves_out_clock_times() -> None:
    rng = np.random.default_rng(0)
    n = 30
    table = {
        "trip": np.repeat(np.arange(n), 3),
        "took": np.tile([1, 0, 0], n),
        "mode": np.tile(["car", "bus", "bike"], n),
        "price": rng.gamma(2.0, 2.0, 3 * n) + np.tile([0, 1, 2], n),
        "depTime": rng.uniform(300, 1300, 3 * n),
    }
    data = read(table, alternative="mode", features=["price", "depTime"])
    skip = ("fit", "calibration", "importance", "categories", "trade_offs")
    found = explain(MNL(formula="price + depTime | 0").fit(data), data, sets=10, skip=skip, progress=False)
    assert found.elasticities is not None
    assert [t.column for t in found.elasticities.tables] == ["price"]
    assert found.elasticities.left_out == {"depTime": "is a clock time: one per cent more of it means nothing"}
    assert found.removals == found.summary()["found"]["removals"] == found.to_dict()["removals"] == REMOVALS
    by_name = {section.name: section for section in sections_of(found)}
    assert by_name["context"].blocks[0] == by_name["examples"].blocks[0] == Text(REMOVALS, "warning")
    words = [block.text for block in by_name["elasticities"].blocks if isinstance(block, Text)]
    assert "No elasticity for depTime: it is a clock time: one per cent more of it means nothing." in words
