import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pcmcnet import MNL, MODELS, ChoiceData, PCMCNet, RankBy
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.insight.importance import _shuffled, importance
from pcmcnet.models import ChoiceModel


@pytest.fixture(scope="module")
def many(make_driven: Callable[..., ChoiceData]) -> ChoiceData:
    return make_driven(400)


@pytest.fixture(scope="module")
def model(many: ChoiceData) -> MNL:
    fitted: MNL = MNL(formula="price + time + noise | 0").fit(many)
    return fitted


@pytest.mark.parametrize("scheme", ["within", "sets", "rows"])
def test_the_driver_matters_and_noise_does_not(model: MNL, many: ChoiceData, scheme: Any) -> None:
    result = importance(model, many, scheme=scheme)
    assert [row.name for row in result.rows][:2] == ["price", "time"]
    assert result["price"].value > 0.5
    assert result["price"].low > 0.3
    assert abs(result["noise"].value) < 0.02
    assert result["comfort"].value == 0  # not in the formula
    assert result.base == pytest.approx(-model.score(many), rel=1e-12)
    assert all(row.low <= row.value <= row.high for row in result.rows)


@pytest.mark.slow
def test_a_network_agrees_with_the_logit(many: ChoiceData) -> None:
    result = importance(
        PCMCNet(hidden=(16,), epochs=10, weight_decay=0.0).fit(many, progress=False),
        many,
        ["price", "noise"],
        repeats=2,
    )
    assert result["price"].value > 0.3
    assert abs(result["noise"].value) < 0.1 * result["price"].value


def test_the_seed_determines_the_result(model: MNL, many: ChoiceData) -> None:
    first, again, other = (importance(model, many, ["price"], seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert 0 < first["price"].spread < 0.2 * first["price"].value
    assert importance(model, many, ["price"], repeats=1)["price"].spread == 0


def test_importance_does_not_depend_on_the_other_columns(model: MNL, many: ChoiceData) -> None:
    assert importance(model, many, ["price", "time"])["price"] == importance(model, many, ["price"])["price"]


def test_schemes_shuffle_within_their_groups(many: ChoiceData) -> None:
    x = many.features["price"].values  # type: ignore[union-attr]
    s = many.set_of_alternative
    shuffled = {
        scheme: _shuffled(many, ["price", "income"], scheme, np.random.default_rng(0))  # type: ignore[arg-type]
        for scheme in ("within", "sets", "rows")
    }
    values = {scheme: data.features["price"].values for scheme, data in shuffled.items()}  # type: ignore[union-attr]
    for scheme, moved in values.items():
        assert (moved != x).mean() > 0.5
        assert sorted(moved) == sorted(x)
        assert shuffled[scheme].features["time"] is many.features["time"]
        assert sorted(shuffled[scheme].individual["income"].values) == sorted(many.individual["income"].values)  # type: ignore[union-attr]
        assert shuffled[scheme].chosen is many.chosen
    np.testing.assert_array_equal(values["within"][np.lexsort((values["within"], s))], x[np.lexsort((x, s))])
    sets = {tuple(part) for part in np.split(x, many.offsets[1:-1])}
    assert {tuple(part) for part in np.split(values["sets"], many.offsets[1:-1])} == sets
    assert not {tuple(part) for part in np.split(values["rows"], many.offsets[1:-1])} & {p for p in sets if len(p) > 1}


def test_groups_are_shuffled_together(model: MNL, many: ChoiceData) -> None:
    """Shuffling all columns within sets shuffles the utilities, which is worse than shuffling one column."""
    result = importance(model, many, ["price"], groups={"both": ["price", "time"]})
    assert result["both"].columns == ("price", "time")
    assert result["both"].value > result["price"].value
    together = _shuffled(many, ["price", "time"], "within", np.random.default_rng(0))
    price, time = (many.features[n].values for n in ("price", "time"))  # type: ignore[union-attr]
    pairs = set(zip(price.tolist(), time.tolist(), strict=True))
    moved = (together.features[n].values.tolist() for n in ("price", "time"))  # type: ignore[union-attr]
    assert set(zip(*moved, strict=True)) == pairs


def test_labels_have_an_importance(many: ChoiceData) -> None:
    result = importance(MNL(formula="price | 1").fit(many), many, repeats=2)
    assert {row.name for row in result.rows} == {"price", "time", "noise", "comfort", "income", "purpose", "mode"}
    assert result["mode"].value != 0
    assert result["income"].value == 0


def test_rankings_use_the_loss_misses(many: ChoiceData) -> None:
    result = importance(RankBy("price").fit(many), many, ["price", "time"], repeats=2)
    assert result.loss == "misses"
    assert result["price"].value > 0.2
    assert result["time"].value == 0
    with pytest.raises(InputError, match=r"probability 0 to \d+ choices.*loss='misses'"):
        importance(RankBy("price").fit(many), many, loss="nll")


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_importances(name: str, driven: ChoiceData, fitted: Callable[[str], ChoiceModel]) -> None:
    model = fitted(name)
    result = importance(model, driven, repeats=1)
    assert len(result.rows) == 7
    assert np.isfinite([(row.value, row.low, row.high) for row in result.rows]).all()
    json.dumps(result.to_dict())
    assert result.to_markdown().startswith("| shuffled | increase in ")
    assert len(str(result).splitlines()) == 8


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": ["prise"]}, InputError, "no column 'prise' to shuffle. Did you mean 'price'"),
        ({"columns": "price"}, InputError, "expected lists of names"),
        ({"groups": {"all": "price"}}, InputError, "expected lists of names"),
        ({"columns": []}, InputError, "at least one column"),
        ({"groups": {"none": []}}, InputError, "at least one column"),
        ({"scheme": "columns"}, ConfigError, "unknown scheme"),
        ({"loss": "top1"}, ConfigError, "unknown loss"),
        ({"repeats": 0}, ConfigError, "repeats must be"),
        ({"seed": -1}, ConfigError, "seed must be"),
    ],
)
def test_invalid_arguments_are_rejected(
    model: MNL, many: ChoiceData, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        importance(model, many, **options)


def test_choices_are_needed(model: MNL, make_driven: Callable[..., ChoiceData]) -> None:
    with pytest.raises(InputError, match="importance needs the choices"):
        importance(model, make_driven(chosen=None))
    with pytest.raises(InputError, match="unknown column or group 'x'"):
        importance(model, make_driven(), ["price"])["x"]
