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
from pcmcnet.insight.context_effects import ContextEffectTable, measure, search
from pcmcnet.models import MNL, PCMC, PCMCNet, Uniform

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


def effects(found: ContextEffectTable) -> dict[str, float]:
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
    with pytest.raises(InputError, match="no effect of kind 'similarity' was measured"):
        measure(MLBA(), points, 0, 1, {"attraction": 2})["similarity"]

    class Never:
        def predict_log_proba(self, data: ChoiceData) -> Floats:
            last = np.isin(np.arange(len(data.rows)), data.offsets[1:] - 1) | (np.repeat(data.sizes, data.sizes) == 2)
            p = np.where(last, 1 / np.repeat(np.where(data.sizes == 2, 2, 1), data.sizes), 0)
            with np.errstate(divide="ignore"):
                return data.to_rows(np.log(p))

    with pytest.raises(InputError, match="gives both a and b probability 0"):
        measure(Never(), points, 0, 1, {"attraction": 2})


# -- Context search ----------------------------------------------------------------------------------------------------


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
    assert "9 pairs of alternatives with a probability of at least 0.01, in 7 sets with one" in str(found)
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
    with pytest.raises(InputError, match="a choice set with three alternatives"):
        search(Decoy(), data.subset([]))
    with pytest.raises(
        InputError,
        match=r"no context effect can be measured in the 2 predicted sets: .* a limit of at least 4|no context effect",
    ):
        search(Decoy(), data, limit=2, least=0.9)
    for name, value in {"limit": 0, "top": 0, "seed": -1, "least": 1.0}.items():
        with pytest.raises(ConfigError, match=f"{name} must be"):
            search(Decoy(), data, **{name: value})  # type: ignore[arg-type]
