"""Attraction, similarity and compromise: exact for the truth, none in a logit, and which of them PCMC-Net can have."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pcmcnet.data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.context_effects import Effects, measure
from pcmcnet.models import MNL, PCMC, PCMCNet

Floats = NDArray[np.float64]

# a and b of figure 2, then a third of each kind, and a copy of a. Labels return from set to set, so that each third has
# a set of its own.
POINTS = {"a": mlba.A, "b": mlba.B, "attraction": (3.0, 5.0), "similarity": (3.5, 6.5), "compromise": (2.0, 8.0)}
THIRDS: dict[Any, int] = {"attraction": 2, "similarity": 3, "compromise": 4}
COPY = 5
ROLES: dict[str, Any] = {"choice_set": "choice_set", "alternative": "alternative", "features": ["attr1", "attr2"]}
NAMED = ["attr1", "attr2", "alternative"]  # the name of an alternative is a feature
TRUE = {"attraction": 0.21586138, "similarity": -0.03038564, "compromise": 0.12134148}  # by mlba.probabilities


class MLBA:
    """The truth as a model of sets of any size."""

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        x = np.column_stack([data.features[name].plain() for name in ("attr1", "attr2")]).astype(np.float64)
        p = np.empty(len(x))
        for size in np.unique(data.sizes):
            rows = data.offsets[:-1][data.sizes == size, None] + np.arange(size)
            p[rows] = mlba.probabilities(x[rows])
        return data.to_rows(np.log(p))


@pytest.fixture(scope="module")
def points() -> ChoiceData:
    x, y = np.array([*POINTS.values(), mlba.A]).T
    table = {"choice_set": [0, 0, 1, 2, 3, 4], "alternative": list("abcccc"), "attr1": x, "attr2": y}
    return ChoiceData.from_long(table, **ROLES)


@pytest.fixture(scope="module")
def train() -> ChoiceData:
    return ChoiceData.from_long(mlba.simulate(20_000, seed=1), chosen="chosen", **ROLES)


def effects(found: Effects) -> dict[str, float]:
    return {effect.kind: effect.effect for effect in found.effects}


def test_the_truth_has_the_three_effects_with_their_signs(points: ChoiceData) -> None:
    """Without c, a and b are chosen alike; with it the shares are those of mlba.probabilities."""
    found = measure(MLBA(), points, 0, 1, THIRDS)
    assert all(effect.as_expected for effect in found.effects)
    assert effects(found) == pytest.approx(TRUE, abs=1e-8)
    p = mlba.probabilities([[mlba.A, mlba.B, POINTS["attraction"]]])[0]
    decoy = found["attraction"]
    assert decoy.share_without == pytest.approx(0.5, abs=1e-12)
    assert decoy.share_with == pytest.approx(p[0] / (p[0] + p[1]), abs=1e-12)
    assert (decoy.a, decoy.b, decoy.c, decoy.expected) == ("a", "b", "c", 1)


def test_the_effect_on_b_is_that_on_a_the_other_way(points: ChoiceData) -> None:
    on_a, on_b = (measure(MLBA(), points, *pair, THIRDS) for pair in ((0, 1), (1, 0)))
    for kind, effect in effects(on_a).items():
        assert on_b[kind].effect == pytest.approx(-effect, abs=1e-12)
        assert not on_b[kind].as_expected


def test_a_logit_has_none_of_them(train: ChoiceData, points: ChoiceData) -> None:
    found = measure(MNL(formula="attr1 + attr2 | 0").fit(train), points, 0, 1, THIRDS)
    assert max(map(abs, effects(found).values())) < 1e-9


@pytest.fixture(scope="module")
def network(train: ChoiceData) -> PCMCNet:
    """Tells alternatives apart by their two features alone."""
    options: dict[str, Any] = {"hidden": (16, 16, 16), "epochs": 7, "weight_decay": 0.1, "labels": False}
    fitted: PCMCNet = PCMCNet(**options).fit(train, seed=1, progress=False)
    return fitted


@pytest.mark.parametrize("kind", ["attraction", "compromise"])
def test_pcmc_net_learns_attraction_and_compromise_from_choices(
    kind: Any, network: PCMCNet, points: ChoiceData
) -> None:
    """Within .03 at this seed, though no pair {a, b} was seen; other fits of 20,000 choices are off by up to .054."""
    found = measure(network, points, 0, 1, THIRDS)
    assert found[kind].as_expected
    assert found[kind].effect == pytest.approx(TRUE[kind], abs=0.03)


def test_a_copy_has_no_effect_in_a_chain_of_features(network: PCMCNet, points: ChoiceData) -> None:
    """Copies have the same rates, so that the odds of a against b stay those of the pair: whatever the weights.

    The truth has an effect of -.147 there. Similarity that comes close to a is therefore beyond a chain that tells
    alternatives apart by these two features alone.
    """
    found = measure(network, points, 0, 1, {"similarity": COPY})
    assert abs(found["similarity"].effect) < 1e-5  # float32
    assert measure(MLBA(), points, 0, 1, {"similarity": COPY})["similarity"].effect < -0.14


def test_a_chain_that_tells_c_from_a_by_name_has_all_three(train: ChoiceData, points: ChoiceData) -> None:
    """PCMC over bins knows a and b by their labels: c may be near a and no copy of it. Bins of width 1 are coarse."""
    model = PCMC(bins={"attr1": 8, "attr2": 8}, identified=["a", "b"], restarts=1, ridge=1.0).fit(
        train, seed=0, progress=False
    )
    found = measure(model, points, 0, 1, THIRDS)
    assert all(effect.as_expected for effect in found.effects)
    assert measure(model, points, 0, 1, {"similarity": COPY})["similarity"].effect < -0.1


def exact_choices(places: int, seed: int) -> ChoiceData:
    """Every alternative of every set chosen once, its probability as the weight; the pair {a, b} counts as a twentieth.

    The name of an alternative is a feature, so that c is no copy of a, wherever it is.
    """
    x = mlba.choice_sets(places, np.random.default_rng(seed))
    p, n = mlba.probabilities(x), 3 * places
    x = np.repeat(x, 3, axis=0)
    columns = {
        "choice_set": [np.repeat(np.arange(n), 3), [n, n, n + 1, n + 1]],
        "alternative": [np.tile(list("abc"), n), list("abab")],
        "attr1": [x[..., 0].ravel(), [4.0, 6.0] * 2],
        "attr2": [x[..., 1].ravel(), [6.0, 4.0] * 2],
        "chosen": [np.tile(np.eye(3, dtype=np.int64).ravel(), places), [1, 0, 0, 1]],
        "weight": [np.repeat(p.ravel(), 3), [places / 40] * 4],
    }
    table = {name: np.concatenate(parts) for name, parts in columns.items()}
    return ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", weight="weight", features=NAMED)


def sampled_choices(sets: int, pairs: int, seed: int) -> ChoiceData:
    """Simulated choices from {a, b, c} and, one in two for a, from {a, b}; names are a feature."""
    table = mlba.simulate(sets, seed=seed).select(["choice_set", "alternative", "attr1", "attr2", "chosen"])
    first = np.random.default_rng(seed + 1).random(pairs) < 0.5
    more = {
        "choice_set": np.repeat(np.arange(pairs) + 10**7, 2),
        "alternative": np.tile(["a", "b"], pairs),
        "attr1": np.tile([4.0, 6.0], pairs),
        "attr2": np.tile([6.0, 4.0], pairs),
        "chosen": np.column_stack([first, ~first]).ravel().astype(np.int64),
    }
    columns = {name: np.concatenate([table[name].to_numpy(), more[name]]) for name in more}
    return ChoiceData.from_long(columns, choice_set="choice_set", chosen="chosen", features=NAMED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("taught", "options"),
    [
        (lambda: sampled_choices(20_000, 1_000, seed=0), {"hidden": (16, 16, 16), "epochs": 20}),
        (
            lambda: exact_choices(8000, seed=1),
            {"hidden": (64, 64), "epochs": 12, "lr": 0.01, "batch_size": 128, "weight_decay": 0.0},
        ),
    ],
    ids=["by choices", "by the law itself"],
)
def test_pcmc_net_that_tells_c_from_a_by_name_has_all_three(
    points: ChoiceData, taught: Callable[[], ChoiceData], options: dict[str, Any]
) -> None:
    """Pairs {a, b} are among what is taught: without them, nothing says how they are chosen alone."""
    model = PCMCNet(dropout=0.0, **options).fit(taught(), seed=0, progress=False)
    assert points.labels is not None
    columns = {name: column.plain() for name, column in points.features.items()}
    table = {"choice_set": points.set_of_alternative, "alternative": points.labels.plain(), **columns}
    found = measure(model, ChoiceData.from_long(table, choice_set="choice_set", features=NAMED), 0, 1, THIRDS)
    assert all(effect.as_expected for effect in found.effects)
    assert effects(found) == pytest.approx(TRUE, abs=0.03)


def test_several_thirds_of_a_kind_keep_their_order(points: ChoiceData) -> None:
    found = measure(MLBA(), points, 0, 1, {"similarity": [3, COPY], "attraction": [2]})
    assert [effect.kind for effect in found.effects] == ["similarity", "similarity", "attraction"]
    assert found["similarity"].effect == pytest.approx(TRUE["similarity"], abs=1e-8)
    assert found.effects[1].effect == pytest.approx(-0.147, abs=1e-3)


def test_all_is_asked_in_one_call(points: ChoiceData) -> None:
    asked: list[ChoiceData] = []

    class Record(MLBA):
        def predict_log_proba(self, data: ChoiceData) -> Floats:
            asked.append(data)
            return super().predict_log_proba(data)

    measure(Record(), points, 0, 1, THIRDS)
    (data,) = asked
    assert data.sizes.tolist() == [2, 3, 3, 3]


def test_the_effects_print_as_a_table_and_survive_json(points: ChoiceData) -> None:
    found = measure(MLBA(), points, 0, 1, THIRDS)
    assert "similarity  a  b  c                0.5000  0.4696  -0.0304    -, yes" in str(found)
    assert "| attraction | a | b | c | 0.5000 | 0.7159 | +0.2159 | +, yes |" in found.to_markdown()
    back = json.loads(json.dumps(found.to_dict()))
    assert [effect["as_expected"] for effect in back["effects"]] == [True] * 3
    assert back["model"] == "MLBA"


def test_what_cannot_be_measured_is_refused(points: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"unknown kind 'atraction'\. Did you mean 'attraction'"):
        measure(MLBA(), points, 0, 1, {"atraction": 2})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="similarity: expected the place of an alternative, from 0 to 5, got 6"):
        measure(MLBA(), points, 0, 1, {"similarity": 6})
    with pytest.raises(InputError, match="no third of the kind 'similarity' was given"):
        measure(MLBA(), points, 0, 1, {"attraction": 2})["similarity"]

    class Never:
        def predict_log_proba(self, data: ChoiceData) -> Floats:
            last = np.isin(np.arange(len(data.rows)), data.offsets[1:] - 1) | (np.repeat(data.sizes, data.sizes) == 2)
            p = np.where(last, 1 / np.repeat(np.where(data.sizes == 2, 2, 1), data.sizes), 0)
            with np.errstate(divide="ignore"):
                return data.to_rows(np.log(p))

    with pytest.raises(InputError, match="gives both a and b probability 0"):
        measure(Never(), points, 0, 1, {"attraction": 2})
