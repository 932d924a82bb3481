"""Attraction, similarity and compromise: exact for the true model, absent in a logit, learned by PCMC-Net."""

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

# a and b of figure 2, then a third alternative of each kind, and a copy of a. Labels repeat between sets, so each
# third alternative has its own set.
POINTS = {"a": mlba.A, "b": mlba.B, "attraction": (3.0, 5.0), "similarity": (3.5, 6.5), "compromise": (2.0, 8.0)}
THIRDS: dict[Any, int] = {"attraction": 2, "similarity": 3, "compromise": 4}
COPY = 5
ROLES: dict[str, Any] = {"choice_set": "choice_set", "alternative": "alternative", "features": ["attr1", "attr2"]}
NAMED = ["attr1", "attr2", "alternative"]  # the name of the alternative is also a feature
TRUE = {"attraction": 0.21586138, "similarity": -0.03038564, "compromise": 0.12134148}  # computed by mlba.probabilities


class MLBA:
    """The true model, for sets of any size."""

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


def effects(result: ContextEffectTable) -> dict[str, float]:
    return {effect.kind: effect.effect for effect in result.effects}


def test_the_true_model_has_all_three_effects(points: ChoiceData) -> None:
    """Without c, a and b have equal shares; with c, the shares are those of mlba.probabilities."""
    result = measure(MLBA(), points, 0, 1, THIRDS)
    assert all(effect.as_expected for effect in result.effects)
    assert effects(result) == pytest.approx(TRUE, abs=1e-8)
    p = mlba.probabilities([[mlba.A, mlba.B, POINTS["attraction"]]])[0]
    decoy = result["attraction"]
    assert decoy.share_without == pytest.approx(0.5, abs=1e-12)
    assert decoy.share_with == pytest.approx(p[0] / (p[0] + p[1]), abs=1e-12)
    assert (decoy.a, decoy.b, decoy.c, decoy.expected) == ("a", "b", "c", 1)


def test_the_effect_on_b_is_minus_the_effect_on_a(points: ChoiceData) -> None:
    on_a, on_b = (measure(MLBA(), points, *pair, THIRDS) for pair in ((0, 1), (1, 0)))
    for kind, effect in effects(on_a).items():
        assert on_b[kind].effect == pytest.approx(-effect, abs=1e-12)
        assert not on_b[kind].as_expected


def test_a_logit_has_no_context_effects(train: ChoiceData, points: ChoiceData) -> None:
    result = measure(MNL(formula="attr1 + attr2 | 0").fit(train), points, 0, 1, THIRDS)
    assert max(map(abs, effects(result).values())) < 1e-9


@pytest.fixture(scope="module")
def network(train: ChoiceData) -> PCMCNet:
    """Return a network that sees only the two features."""
    options: dict[str, Any] = {"hidden": (16, 16, 16), "epochs": 7, "weight_decay": 0.1, "labels": False}
    fitted: PCMCNet = PCMCNet(**options).fit(train, seed=1, progress=False)
    return fitted


@pytest.mark.parametrize("kind", ["attraction", "compromise"])
def test_pcmc_net_learns_attraction_and_compromise_from_choices(
    kind: Any, network: PCMCNet, points: ChoiceData
) -> None:
    """Within .03 at this seed, without pairs {a, b} in training; other fits of 20,000 choices miss by up to .054."""
    result = measure(network, points, 0, 1, THIRDS)
    assert result[kind].as_expected
    assert result[kind].effect == pytest.approx(TRUE[kind], abs=0.03)


def test_a_copy_has_no_effect_in_a_chain_of_features(network: PCMCNet, points: ChoiceData) -> None:
    """Copies have the same rates, so the odds of a against b are those of the pair, for any weights.

    The true effect is -.147. A chain that sees only these two features cannot represent similarity close to a.
    """
    result = measure(network, points, 0, 1, {"similarity": COPY})
    assert abs(result["similarity"].effect) < 1e-5  # float32
    assert measure(MLBA(), points, 0, 1, {"similarity": COPY})["similarity"].effect < -0.14


def test_a_chain_with_labels_has_all_three_effects(train: ChoiceData, points: ChoiceData) -> None:
    """PCMC over bins knows a and b by their labels, so c is not a copy of a. Bins of width 1 are coarse."""
    model = PCMC(bins={"attr1": 8, "attr2": 8}, identified=["a", "b"], restarts=1, ridge=1.0).fit(
        train, seed=0, progress=False
    )
    result = measure(model, points, 0, 1, THIRDS)
    assert all(effect.as_expected for effect in result.effects)
    assert measure(model, points, 0, 1, {"similarity": COPY})["similarity"].effect < -0.1


def exact_choices(places: int, seed: int) -> ChoiceData:
    """Choose every alternative of every set once, weighted by its probability; the pair {a, b} has weight 1/20.

    The name of an alternative is a feature, so c is never a copy of a.
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
    """Simulate choices from {a, b, c} and, half of them for a, from {a, b}; names are a feature."""
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
    ids=["by choices", "by probabilities"],
)
def test_pcmc_net_with_names_has_all_three_effects(
    points: ChoiceData, taught: Callable[[], ChoiceData], options: dict[str, Any]
) -> None:
    """Pairs {a, b} are in the training table: without them, their shares without c are not identified."""
    model = PCMCNet(dropout=0.0, **options).fit(taught(), seed=0, progress=False)
    assert points.labels is not None
    columns = {name: column.plain() for name, column in points.features.items()}
    table = {"choice_set": points.set_of_alternative, "alternative": points.labels.plain(), **columns}
    result = measure(model, ChoiceData.from_long(table, choice_set="choice_set", features=NAMED), 0, 1, THIRDS)
    assert all(effect.as_expected for effect in result.effects)
    assert effects(result) == pytest.approx(TRUE, abs=0.03)


def test_several_alternatives_of_one_kind_keep_their_order(points: ChoiceData) -> None:
    result = measure(MLBA(), points, 0, 1, {"similarity": [3, COPY], "attraction": [2]})
    assert [effect.kind for effect in result.effects] == ["similarity", "similarity", "attraction"]
    assert result["similarity"].effect == pytest.approx(TRUE["similarity"], abs=1e-8)
    assert result.effects[1].effect == pytest.approx(-0.147, abs=1e-3)


def test_all_sets_are_predicted_in_one_call(points: ChoiceData) -> None:
    predicted: list[ChoiceData] = []

    class Record(MLBA):
        def predict_log_proba(self, data: ChoiceData) -> Floats:
            predicted.append(data)
            return super().predict_log_proba(data)

    measure(Record(), points, 0, 1, THIRDS)
    (data,) = predicted
    assert data.sizes.tolist() == [2, 3, 3, 3]


def test_the_effects_print_as_a_table_and_survive_json(points: ChoiceData) -> None:
    result = measure(MLBA(), points, 0, 1, THIRDS)
    assert "similarity  a  b  c                0.5000  0.4696  -0.0304    -, yes" in str(result)
    assert "| attraction | a | b | c | 0.5000 | 0.7159 | +0.2159 | +, yes |" in result.to_markdown()
    back = json.loads(json.dumps(result.to_dict()))
    assert [effect["as_expected"] for effect in back["effects"]] == [True] * 3
    assert back["model"] == "MLBA"


def test_effects_that_cannot_be_measured_are_rejected(points: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"unknown kind 'atraction'\. Did you mean 'attraction'"):
        measure(MLBA(), points, 0, 1, {"atraction": 2})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="similarity: expected the flat index of an alternative, from 0 to 5, got 6"):
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
    """P(i) proportional to w_i; the presence of a decoy triples the weight of its target."""

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
    """log P(a) / P(b) is log 6 with the decoy and log 2 without it: adding it changes the log-ratio by log 3."""
    result = search(Decoy(), data)
    first = result.cases[0]
    assert (first.choice_set, first.removed, first.i, first.j) == (11, "d", "b", "a")
    assert first.log_ratio_with == pytest.approx(-np.log(6), rel=1e-12)
    assert first.log_ratio_without == pytest.approx(-np.log(2), rel=1e-12)
    assert first.by_removing == pytest.approx(np.log(3), rel=1e-12)
    assert first.by_adding == pytest.approx(-np.log(3), rel=1e-12)
    assert (first.share_with, first.share_without) == pytest.approx((1 / 7, 1 / 3), rel=1e-12)
    assert first.places == (2, 1, 0)
    assert max(abs(case.by_adding) for case in result.cases[1:]) < 1e-9
    # 3 + 4 removals: a pair each in set 11, and 1 + 1 + 1 + 3 in set 12 without its improbable alternative
    assert (result.removals, result.pairs, result.questions) == (7, 3 + 1 + 1 + 1 + 3, 9)
    assert result.mean == pytest.approx(np.log(3) / 9, rel=1e-12)


def test_improbable_alternatives_count_only_on_request(data: ChoiceData) -> None:
    assert search(Decoy(), data, least=0.0).pairs == 3 + 4 * 3


def test_a_logit_has_no_cases(data: ChoiceData) -> None:
    result = search(MNL(formula="weight").fit(data), data, least=0.0)
    assert max(abs(case.by_adding) for case in result.cases) < 1e-9
    assert result.mean < 1e-9


def test_limit_and_seed_determine_the_drawn_sets() -> None:
    rng = np.random.default_rng(0)
    table = {"set": np.repeat(np.arange(50), 4), "weight": rng.random(200), "kind": ["real"] * 200}
    data = ChoiceData.from_long(table, choice_set="set", features=["weight", "kind"])
    one, again, other = (search(Decoy(), data, limit=20, seed=seed, top=20) for seed in (0, 0, 1))
    assert one == again
    assert one.questions == other.questions == 20  # four sets of 4 with four removals each
    drawn = [{case.choice_set for case in result.cases} for result in (one, other)]
    assert [len(sets) for sets in drawn] == [4, 4]
    assert drawn[0] != drawn[1]
    assert len(search(Decoy(), data, top=3).cases) == 3
    assert search(Decoy(), data, limit=250).questions == 250  # all of them


def test_the_search_prints_as_a_table_and_survives_json(data: ChoiceData) -> None:
    result = search(Decoy(), data, top=1)
    assert "9 pairs of alternatives with a probability of at least 0.01, in 7 sets with one" in str(result)
    assert "| 11 | d | b | a | -1.792 | -0.693 | -1.099 | 0.143 | 0.333 |" in result.to_markdown()
    back = json.loads(json.dumps(result.to_dict()))
    assert back["cases"][0]["by_adding"] == result.cases[0].by_adding
    assert back["cases"][0]["choice_set"] == 11


def test_tables_are_read_with_the_schema_of_the_model(data: ChoiceData) -> None:
    plain = ChoiceData.from_long(TABLE, choice_set="set", chosen="took", features=["weight", "kind"])
    result = search(Uniform().fit(plain), TABLE)
    expected = {
        (11, "#1 (target)"),
        (11, "#2 (real)"),
        (11, "#3 (decoy)"),
        *((12, f"#{k} (real, weight {w})") for k, w in ((1, 1), (2, 2), (3, 3), (4, 1e-09))),
    }
    assert {(case.choice_set, case.removed) for case in result.cases} == expected


def test_searches_without_cases_are_rejected(data: ChoiceData) -> None:
    with pytest.raises(InputError, match="a choice set with at least three alternatives"):
        search(Decoy(), data.subset([]))
    with pytest.raises(
        InputError,
        match=r"no context effect can be measured in the 2 predicted sets: .* a limit of at least 4|no context effect",
    ):
        search(Decoy(), data, limit=2, least=0.9)
    for name, value in {"limit": 0, "top": 0, "seed": -1, "least": 1.0}.items():
        with pytest.raises(ConfigError, match=f"{name} must be"):
            search(Decoy(), data, **{name: value})  # type: ignore[arg-type]
