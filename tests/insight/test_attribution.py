import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, MODELS, ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.queries import compose_sets
from pcmcnet.insight.removals import attribution
from pcmcnet.models import ChoiceModel


class Halving:
    """The first alternative of a set gets 1/2 and the others share the rest; alone it gets 1."""

    def predict_log_proba(self, data: ChoiceData) -> Any:
        first = np.isin(np.arange(len(data.rows)), data.offsets[:-1])
        size = np.repeat(data.sizes, data.sizes)
        p = np.where(first, np.where(size == 1, 1.0, 0.5), 0.5 / np.maximum(size - 1, 1))
        return data.to_rows(np.log(p))


@pytest.fixture(scope="module")
def largest(driven: ChoiceData) -> int:
    return int(np.argmax(driven.sizes))


def test_in_a_logit_every_rival_takes_its_share(driven: ChoiceData, largest: int) -> None:
    """push = log(1 - p_r), nothing beyond; probabilities: p_i - p_i / (1 - p_r)."""
    model = MNL(formula="price + time | 0").fit(driven)
    found = attribution(model, driven, driven.set_ids[largest])
    np.testing.assert_allclose(found.push, np.log1p(-found.rival_p), rtol=1e-10)
    np.testing.assert_allclose(found.beyond, 0, atol=1e-12)
    np.testing.assert_allclose(found.change_beyond, 0, atol=1e-12)
    np.testing.assert_allclose(found.change, found.p - found.p / (1 - found.rival_p), rtol=1e-10)
    assert found.p + found.rival_p.sum() == pytest.approx(1)


def test_what_is_left_out_is_left_out(driven: ChoiceData, largest: int, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted("pcmcnet")
    inside = np.arange(driven.offsets[largest], driven.offsets[largest + 1])
    assert driven.labels is not None
    labels = driven.labels.plain()[inside]
    for place, label in enumerate(labels):
        found = attribution(model, driven, driven.set_ids[largest], label)
        assert found.alternative == label
        assert set(found.rivals) == set(labels) - {label}
        for k, rival in enumerate(found.rivals):
            assert driven.labels.plain()[found.places[k]] == rival
            rest = inside[labels != rival]
            p = model.predict_proba(compose_sets(driven, [rest], [largest]))
            assert found.without[k] == pytest.approx(p[rest == inside[place]][0], rel=1e-5)  # float32, other batches
            assert found.push[k] == pytest.approx(np.log(found.p) - np.log(found.without[k]), abs=1e-12)
    assert (np.diff(np.abs(found.beyond)) <= 1e-9).all()


def test_a_rival_that_takes_from_others_alone_pushes_beyond_its_share() -> None:
    """The first of three keeps 1/2 whoever leaves: no push, and beyond = -log(1 - p_r) > 0."""
    data = ChoiceData.from_long(
        {"s": [7, 7, 7], "took": [1, 0, 0], "x": [1.0, 2.0, 3.0]}, choice_set="s", chosen="took", features=["x"]
    )
    found = attribution(Halving(), data, 7)
    np.testing.assert_allclose(found.push, [0, 0], atol=1e-15)
    np.testing.assert_allclose(found.beyond, -np.log([0.75, 0.75]))
    np.testing.assert_allclose(found.change_beyond, [0.5 / 0.75 - 0.5] * 2)
    assert found.rivals == ("#2 (x 2)", "#3 (x 3)")


def test_of_two_the_other_takes_all_it_has(driven: ChoiceData) -> None:
    model = MNL(formula="price").fit(driven)
    pair = int(np.flatnonzero(driven.sizes == 2)[0])
    found = attribution(model, driven, driven.set_ids[pair])
    assert found.without.tolist() == [1.0]
    assert found.push[0] == pytest.approx(np.log(found.p))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_attributions(
    name: str, driven: ChoiceData, largest: int, fitted: Callable[[str], ChoiceModel]
) -> None:
    model = fitted(name)
    found = attribution(model, driven, driven.set_ids[largest])
    assert np.isfinite([found.push, found.beyond, found.change, found.change_beyond]).all()
    json.dumps(found.to_dict())
    assert found.to_markdown().startswith(f"| {found.alternative}: ")
    assert len(str(found).splitlines()) == driven.sizes[largest]
    if name in ("uniform", "mnl", "bradley-terry"):
        np.testing.assert_allclose(found.beyond, 0, atol=1e-9)


def test_bad_questions_are_refused(driven: ChoiceData) -> None:
    model = MNL(formula="price").fit(driven)
    with pytest.raises(InputError, match="choice set 999"):
        attribution(model, driven, 999)
    with pytest.raises(InputError, match="choice set 5: expected one alternative with the label 'rocket'"):
        attribution(model, driven, 5, "rocket")
    with pytest.raises(InputError, match="single alternative"):
        attribution(model, driven, driven.set_ids[0])
    unknown = compose_sets(driven, [[0, 1]], [0])
    with pytest.raises(InputError, match="attribution of the choice needs the choices"):
        attribution(model, unknown, 0)
