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
    """Gives 1/2 to the first alternative of a set (1 if it is alone); the others share the rest."""

    def predict_log_proba(self, data: ChoiceData) -> Any:
        first = np.isin(np.arange(len(data.rows)), data.offsets[:-1])
        size = np.repeat(data.sizes, data.sizes)
        p = np.where(first, np.where(size == 1, 1.0, 0.5), 0.5 / np.maximum(size - 1, 1))
        return data.to_rows(np.log(p))


@pytest.fixture(scope="module")
def largest(driven: ChoiceData) -> int:
    return int(np.argmax(driven.sizes))


def test_in_a_logit_no_rival_pushes_beyond_its_share(driven: ChoiceData, largest: int) -> None:
    """push = log(1 - p_r) and beyond = 0; in probabilities, p_i - p_i / (1 - p_r)."""
    model = MNL(formula="price + time | 0").fit(driven)
    result = attribution(model, driven, driven.set_ids[largest])
    np.testing.assert_allclose(result.push, np.log1p(-result.rival_p), rtol=1e-10)
    np.testing.assert_allclose(result.beyond, 0, atol=1e-12)
    np.testing.assert_allclose(result.change_beyond, 0, atol=1e-12)
    np.testing.assert_allclose(result.change, result.p - result.p / (1 - result.rival_p), rtol=1e-10)
    assert result.p + result.rival_p.sum() == pytest.approx(1)


def test_attributions_match_predictions_without_each_rival(
    driven: ChoiceData, largest: int, fitted: Callable[[str], ChoiceModel]
) -> None:
    model = fitted("pcmcnet")
    inside = np.arange(driven.offsets[largest], driven.offsets[largest + 1])
    assert driven.labels is not None
    labels = driven.labels.plain()[inside]
    for place, label in enumerate(labels):
        result = attribution(model, driven, driven.set_ids[largest], label)
        assert result.alternative == label
        assert set(result.rivals) == set(labels) - {label}
        for k, rival in enumerate(result.rivals):
            assert driven.labels.plain()[result.places[k]] == rival
            rest = inside[labels != rival]
            p = model.predict_proba(compose_sets(driven, [rest], [largest]))
            assert result.without[k] == pytest.approx(p[rest == inside[place]][0], rel=1e-5)  # float32, other batches
            assert result.push[k] == pytest.approx(np.log(result.p) - np.log(result.without[k]), abs=1e-12)
    assert (np.diff(np.abs(result.beyond)) <= 1e-9).all()


def test_a_rival_that_only_hurts_others_has_a_positive_beyond() -> None:
    """The first of three keeps 1/2 whichever rival is removed: push = 0 and beyond = -log(1 - p_r) > 0."""
    data = ChoiceData.from_long(
        {"s": [7, 7, 7], "took": [1, 0, 0], "x": [1.0, 2.0, 3.0]}, choice_set="s", chosen="took", features=["x"]
    )
    result = attribution(Halving(), data, 7)
    np.testing.assert_allclose(result.push, [0, 0], atol=1e-15)
    np.testing.assert_allclose(result.beyond, -np.log([0.75, 0.75]))
    np.testing.assert_allclose(result.change_beyond, [0.5 / 0.75 - 0.5] * 2)
    assert result.rivals == ("#2 (x 2)", "#3 (x 3)")


def test_the_only_rival_explains_the_whole_push(driven: ChoiceData) -> None:
    model = MNL(formula="price").fit(driven)
    pair = int(np.flatnonzero(driven.sizes == 2)[0])
    result = attribution(model, driven, driven.set_ids[pair])
    assert result.without.tolist() == [1.0]
    assert result.push[0] == pytest.approx(np.log(result.p))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_attributions(
    name: str, driven: ChoiceData, largest: int, fitted: Callable[[str], ChoiceModel]
) -> None:
    model = fitted(name)
    result = attribution(model, driven, driven.set_ids[largest])
    assert np.isfinite([result.push, result.beyond, result.change, result.change_beyond]).all()
    json.dumps(result.to_dict())
    assert result.to_markdown().startswith(f"| {result.alternative}: ")
    assert len(str(result).splitlines()) == driven.sizes[largest]
    if name in ("uniform", "mnl", "bradley-terry"):
        np.testing.assert_allclose(result.beyond, 0, atol=1e-9)


def test_invalid_arguments_are_rejected(driven: ChoiceData) -> None:
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
