import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, ChoiceData, LatentClassMNL, MixedMNL
from pcmcnet.models.logits.person_likelihoods import belongs_to_person, person_log_likelihoods


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(logit_choices(120, {"x": 1.0, "y": 0.5}), features=["x", "y"], person="person")


def test_persons_add_up_to_what_was_maximised(data: ChoiceData) -> None:
    for model in (
        LatentClassMNL(formula="x", classes=2, starts=2, prior=0.1).fit(data),
        MixedMNL(formula="x + y", random={"x": "normal"}, draws=40).fit(data),
    ):
        found = person_log_likelihoods(model, data)
        assert found is not None
        assert found.shape == (30,)
        assert found.sum() == pytest.approx(model.estimates_.log_likelihood, rel=1e-9)


def test_a_person_has_one_class_in_all_sets(data: ChoiceData) -> None:
    """By hand: the shares times the products over four trips."""
    model = LatentClassMNL(formula="x", classes=2, starts=2, prior=0.1).fit(data)
    assert data.chosen is not None
    shares, log_p = model.as_logits(data)
    of_choices = log_p[data.offsets[:-1] + data.chosen].reshape(30, 4, 2).sum(axis=1)
    found = person_log_likelihoods(model, data)
    assert found == pytest.approx(np.log((shares[::4] * np.exp(of_choices)).sum(axis=1)), rel=1e-10)


def test_where_sets_are_independent_there_is_none(data: ChoiceData) -> None:
    by_set = LatentClassMNL(formula="x", classes=2, starts=2, prior=0.1, by="set").fit(data)
    plain = MNL(formula="x").fit(data)
    for model in (by_set, plain):
        assert not belongs_to_person(model)
        assert person_log_likelihoods(model, data) is None
