import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.context_effects import search
from pcmcnet.models import MNL, Uniform

Floats = NDArray[np.float64]


class Decoy:
    """P(i) proportional to w_i; where a decoy is present, its target has three times its weight."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        weight = data.features["weight"].plain().astype(np.float64)
        kinds = data.features["kind"].plain()
        for low, high in zip(data.offsets[:-1], data.offsets[1:], strict=True):
            if "decoy" in kinds[low:high]:
                weight[low:high][kinds[low:high] == "target"] *= 3
        return data.to_rows(np.log(weight / np.repeat(np.add.reduceat(weight, data.offsets[:-1]), data.sizes)))


# Set 11 has a decoy; set 12 has none.
TABLE: dict[str, Any] = {
    "set": [11, 11, 11, 12, 12, 12, 12],
    "name": ["a", "b", "d", "a", "b", "c", "e"],
    "took": [1, 0, 0, 0, 1, 0, 0],
    "weight": [2.0, 1.0, 1.0, 1.0, 2.0, 3.0, 1e-9],
    "kind": ["target", "real", "decoy", "real", "real", "real", "real"],
}


@pytest.fixture
def data() -> ChoiceData:
    return ChoiceData.from_long(TABLE, choice_set="set", chosen="took", alternative="name", features=["weight", "kind"])


def test_the_set_with_the_decoy_is_found_first(data: ChoiceData) -> None:
    """With it log P(a) / P(b) = log 6, without it log 2: adding it changes the ratio by log 3."""
    found = search(Decoy(), data)
    first = found.cases[0]
    assert (first.choice_set, first.removed, first.i, first.j) == (11, "d", "b", "a")
    assert first.log_ratio_with == pytest.approx(-np.log(6), rel=1e-12)
    assert first.log_ratio_without == pytest.approx(-np.log(2), rel=1e-12)
    assert first.by_removing == pytest.approx(np.log(3), rel=1e-12)
    assert first.by_adding == pytest.approx(-np.log(3), rel=1e-12)
    assert (first.share_with, first.share_without) == pytest.approx((1 / 7, 1 / 3), rel=1e-12)
    assert first.places == (2, 1, 0)
    assert max(abs(case.by_adding) for case in found.cases[1:]) < 1e-9
    # 3 + 4 removals; a pair each in set 11, and 1 + 1 + 1 + 3 in set 12 without the one that nobody chooses
    assert (found.removals, found.pairs, found.questions) == (7, 3 + 1 + 1 + 1 + 3, 9)
    assert found.mean == pytest.approx(np.log(3) / 9, rel=1e-12)


def test_alternatives_that_nobody_chooses_count_only_if_asked_for(data: ChoiceData) -> None:
    assert search(Decoy(), data, least=0.0).pairs == 3 + 4 * 3


def test_a_logit_has_no_case_to_show(data: ChoiceData) -> None:
    found = search(MNL(formula="weight").fit(data), data, least=0.0)
    assert max(abs(case.by_adding) for case in found.cases) < 1e-9
    assert found.mean < 1e-9


def test_a_limit_and_a_seed_draw_sets() -> None:
    rng = np.random.default_rng(0)
    table = {"set": np.repeat(np.arange(50), 4), "weight": rng.random(200), "kind": ["real"] * 200}
    data = ChoiceData.from_long(table, choice_set="set", features=["weight", "kind"])
    one, again, other = (search(Decoy(), data, limit=20, seed=seed, top=20) for seed in (0, 0, 1))
    assert one == again
    assert one.questions == other.questions == 20  # four sets of 4, with their four removals each
    drawn = [{case.choice_set for case in found.cases} for found in (one, other)]
    assert [len(sets) for sets in drawn] == [4, 4]
    assert drawn[0] != drawn[1]
    assert len(search(Decoy(), data, top=3).cases) == 3
    assert search(Decoy(), data, limit=250).questions == 250  # all of them


def test_the_search_prints_as_a_table_and_survives_json(data: ChoiceData) -> None:
    found = search(Decoy(), data, top=1)
    assert "9 pairs, each alternative with a probability of at least 0.01, in 7 sets with one" in str(found)
    assert "| 11 | d | b | a | -1.792 | -0.693 | -1.099 | 0.143 | 0.333 |" in found.to_markdown()
    back = json.loads(json.dumps(found.to_dict()))
    assert back["cases"][0]["by_adding"] == found.cases[0].by_adding
    assert back["cases"][0]["choice_set"] == 11


def test_a_table_is_read_by_the_models_schema_and_alternatives_are_named(data: ChoiceData) -> None:
    plain = ChoiceData.from_long(TABLE, choice_set="set", chosen="took", features=["weight", "kind"])
    found = search(Uniform().fit(plain), TABLE)
    expected = {
        (11, "#1 (target)"),
        (11, "#2 (real)"),
        (11, "#3 (decoy)"),
        *((12, f"#{k} (real, weight {w})") for k, w in ((1, 1), (2, 2), (3, 3), (4, 1e-09))),
    }
    assert {(case.choice_set, case.removed) for case in found.cases} == expected


def test_what_has_no_case_is_refused(data: ChoiceData) -> None:
    with pytest.raises(InputError, match="no choice set has three alternatives"):
        search(Decoy(), data.subset([]))
    with pytest.raises(InputError, match=r"no case among 2 questions: .* a limit of at least 4|no case"):
        search(Decoy(), data, limit=2, least=0.9)
    for name, value in {"limit": 0, "top": 0, "seed": -1, "least": 1.0}.items():
        with pytest.raises(ConfigError, match=f"{name} must be"):
            search(Decoy(), data, **{name: value})  # type: ignore[arg-type]
