from dataclasses import MISSING, fields
from itertools import product
from typing import Any

import pytest

from pcmcnet.errors import ConfigError
from pcmcnet.models import MODELS, PCMCNet, PointerNetwork, RandomForest, RankBy, Uniform
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.training.config import TrainConfig
from pcmcnet.tuning.space import SPACE_NAMES, SPACES, Choice, Range, Space, in_words, parse_search


def ends(dimension: Range | Choice) -> list[Any]:
    """Return the values at the ends of a range, or all values of a choice."""
    if isinstance(dimension, Range):
        return [dimension.low, dimension.high]
    return list(range(len(dimension.values))) if dimension.ordered else list(dimension.labels)


# -- named spaces --------------------------------------------------------------------------------------------------


def test_the_papers_space_matches_its_table_2() -> None:
    space = Space.of(PCMCNet, "paper")
    values = {name: set(d.values) for name, d in space.dimensions.items() if isinstance(d, Choice)}
    assert values == {
        "lr": {0.1, 0.01, 0.001, 0.0001, 0.00001, 0.000001},
        "batch_size": {1, 2, 4, 8, 16},
        "layers": {1, 2, 3},
        "nodes": {32, 64, 128, 256, 512},
        "activation": {"relu", "sigmoid", "tanh", "leaky_relu"},
    }
    assert space.size == 6 * 5 * 3 * 5 * 4
    assert space.option_names == ["lr", "batch_size", "activation", "hidden"]


def test_the_default_space_fixes_decay_but_not_utility_or_epochs() -> None:
    """A fit with a fixed decay need not learn it, so a trial costs at most a third of a default fit."""
    space = Space.of(PCMCNet, "default")
    assert space.dimensions["weight_decay"] == Range(0.03, 64.0, log=True)
    assert set(space.option_names) == {"weight_decay", "lr", "hidden", "dropout"}


@pytest.mark.parametrize(("name", "model"), list(product(SPACE_NAMES, SPACES)))
def test_every_value_of_a_named_space_is_valid(name: str, model: str) -> None:
    kind = MODELS[model]
    space = Space.of(kind, name)
    start = {n: ends(d)[0] for n, d in space.dimensions.items()}
    nests = {"nested-mnl": {"car": "road", "bus": "road"}, "cross-nested-mnl": {"road": ["car", "bus"]}}
    needed: dict[str, Any] = {"nests": nests[model]} if model in nests else {}
    for dimension in space.dimensions:
        for drawn in ends(space.dimensions[dimension]):
            options = space.options({**start, dimension: drawn})
            config = kind(**options, **needed).config
            assert all(getattr(config, n) == v for n, v in options.items())


@pytest.mark.parametrize("name", SPACE_NAMES)
def test_models_without_a_space_are_refused(name: str) -> None:
    networks = {name for name, kind in MODELS.items() if issubclass(kind.config_class, TrainConfig)}
    assert set(MODELS) - set(SPACES) - networks == {"uniform", "rank-by", "stacking", "hb-mnl"}
    with pytest.raises(ConfigError, match="uniform has no options: there is nothing to tune"):
        Space.of(Uniform, name)
    with pytest.raises(ConfigError, match="rank-by has no default space: pass a mapping"):
        Space.of(RankBy, name)


def test_a_network_without_a_space_searches_decay_and_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.tuning.space.SPACES", {})
    assert set(Space.of(PCMCNet, "default").dimensions) == {"weight_decay", "lr"}


def test_an_unknown_space_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown space 'papr'\. Did you mean 'paper'"):
        Space.of(PCMCNet, "papr")


# -- custom spaces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_any_option_of_any_model_can_be_searched(name: str) -> None:
    kind = MODELS[name]
    defaults = {f.name: f.default for f in fields(kind.config_class) if f.default is not MISSING}
    for option, default in defaults.items():
        space = Space.of(kind, {option: [default]})
        (drawn,) = ends(space.dimensions[option]) if not space.dimensions[option].ordered else [0]
        assert space.options({option: drawn}) == {option: default}


def test_ranges_of_integer_options_are_integers() -> None:
    space = Space.of(
        PCMCNet, {"lr": (1e-4, 0.1, "log"), "dropout": (0, 0.5), "epochs": (5, 10), "patience": (1, 8, True)}
    )
    assert space.dimensions == {
        "lr": Range(1e-4, 0.1, log=True),
        "dropout": Range(0.0, 0.5),
        "epochs": Range(5, 10, whole=True),
        "patience": Range(1, 8, log=True, whole=True),
    }
    assert space.size is None
    assert space.without(["lr", "dropout"]).size == 6 * 8


def test_increasing_numbers_are_ordered_and_others_are_labels() -> None:
    ladder, mixed, falling = Choice((1, 2, 8)), Choice((None, 4, 8)), Choice((2, 1))
    assert (ladder.ordered, mixed.ordered, falling.ordered) == (True, False, False)
    assert ladder.value(2) == 8
    assert mixed.labels == ("none", "4", "8")
    assert mixed.value("none") is None
    assert Choice(((64, 64), (8,))).value("64,64") == (64, 64)
    assert not Choice((False, True)).ordered


def test_layers_and_nodes_define_the_widths() -> None:
    space = Space.of(PCMCNet, {"layers": [1, 3], "nodes": (8, 16)})
    assert space.options({"layers": 1, "nodes": 9}) == {"hidden": (9, 9, 9)}
    assert space.option_names == ["hidden"]
    assert space.without(["hidden"]).dimensions == {}
    pointer = Space.of(PointerNetwork, {"layers": [1, 2], "hidden": [8, 16]})  # has both options itself
    assert pointer.options({"layers": 1, "hidden": 0}) == {"layers": 2, "hidden": 8}


@pytest.mark.parametrize("entries", [{"layers": [1]}, {"nodes": [8]}, {"layers": [1], "nodes": [8], "hidden": [(8,)]}])
def test_layers_without_nodes_are_refused(entries: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="layers and nodes together define hidden: give both, or only hidden"):
        Space.of(PCMCNet, entries)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "expected one of 'default', 'paper', 'wide' or a mapping"),
        (3, "expected one of 'default', 'paper', 'wide' or a mapping"),
        ({"learning": (0, 1)}, "unknown option 'learning' of pcmcnet"),
        ({"lr": (1, 0.1)}, "lr: expected low < high, got 1 and 0.1"),
        ({"lr": (0, 0.1, "log")}, "lr: expected 0 < low < high, got 0 and 0.1"),
        ({"lr": (0.1, 1.0, "linear")}, r"lr: expected \(low, high\) or \(low, high, 'log'\)"),
        ({"lr": (0.1,)}, r"lr: expected \(low, high\)"),
        ({"lr": (0.1, float("inf"))}, "lr: expected low < high"),
        ({"lr": ("a", "b")}, r"lr: expected \(low, high\)"),
        ({"lr": 0.1}, r"lr: expected a tuple \(low, high\) or a list of values, got 0.1"),
        ({"lr": []}, "lr: expected a tuple"),
        ({"lr": [0.1, 0.1]}, "lr: 0.1, 0.1 contains a value twice"),
        ({"epochs": (1.5, 3)}, "epochs: expected whole numbers"),
        ({"activation": (0, 1)}, "activation: a range is not supported"),
        ({"activation": ["relu", "tan"]}, r"activation: 'tan' is not a valid value\. Did you mean 'tanh'"),
        ({"hidden": [64]}, "hidden: 64 is not a valid value"),
        ({"refit": ["yes"]}, "refit: 'yes' is not a valid value"),
    ],
)
def test_invalid_spaces_are_refused(entries: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Space.of(PCMCNet, entries)


def test_a_space_survives_json_and_can_be_combined() -> None:
    left = Space.of(PCMCNet, {"lr": (0.1, 1.0)})
    both = left.combined_with(Space.of(PCMCNet, {"layers": [1], "nodes": [8]}))
    assert both.to_dict() == {
        "lr": {"low": 0.1, "high": 1.0, "log": False, "whole": False},
        "layers": {"values": [1]},
        "nodes": {"values": [8]},
    }
    assert both.options({"lr": 0.5, "layers": 0, "nodes": 0}) == {"lr": 0.5, "hidden": (8,)}
    assert Space.of(PCMCNet, both) is both


# -- the defaults --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (
            {"hidden": (8, 8), "lr": 0.5, "activation": "tanh"},
            {"layers": 1, "nodes": 8, "lr": 0.5, "activation": "tanh"},
        ),
        ({"hidden": (8, 9), "lr": 0.5, "activation": "tanh"}, None),
        ({"hidden": (), "lr": 0.5, "activation": "tanh"}, None),
        ({"hidden": (8, 8, 8), "lr": 0.5, "activation": "tanh"}, None),
        ({"hidden": (8, 8), "lr": 1.5, "activation": "tanh"}, None),
        ({"hidden": (8, 8), "lr": "auto", "activation": "tanh"}, None),
        ({"hidden": (8, 8), "lr": 0.5, "activation": "relu"}, None),
    ],
)
def test_options_are_located_if_the_space_has_their_values(options: dict[str, Any], place: Any) -> None:
    entries = {"layers": [1, 2], "nodes": (4, 16), "lr": (0.1, 1.0), "activation": ["tanh", "gelu"]}
    space = Space.of(PCMCNet, entries)
    assert space.place(options) == place
    if place is not None:
        assert space.options(place) == options


def test_true_is_not_the_number_one() -> None:
    assert Choice((0, 1)).place(True) is None
    assert Choice((False, True)).place(True) == "true"


def test_defaults_outside_the_space_add_a_configuration() -> None:
    space = Space.of(PCMCNet, {"dropout": [0.1, 0.2]})
    assert space.size == 2
    assert space.with_defaults({"dropout": 0.2, "lr": 1.0}).size == 2
    assert space.with_defaults({"dropout": 0.0, "lr": 1.0}).size == 3
    assert space.with_defaults({"dropout": 0.0, "lr": 1.0}).defaults == {"dropout": 0.0}


# -- text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "word", "expected"),
    [
        (PCMCNet, "lr=log:1e-4:1e-1", ("lr", (1e-4, 0.1, "log"))),
        (PCMCNet, "dropout=0:0.5", ("dropout", (0, 0.5))),
        (PCMCNet, "batch_size=8,16,auto", ("batch_size", [8, 16, "auto"])),
        (PCMCNet, "activation=relu, tanh", ("activation", ["relu", "tanh"])),
        (PCMCNet, "hidden=64/64,64", ("hidden", [(64,), (64, 64)])),
        (PCMCNet, "nodes=8,16", ("nodes", [8, 16])),
        (PCMCNet, "layers=1:3", ("layers", (1, 3))),
        (RandomForest, "max_depth=none,4", ("max_depth", [None, 4])),
        (MODELS["pcmc"], "bins=price:4/price:8", ("bins", [{"price": 4}, {"price": 8}])),
        (MODELS["mnl"], "formula=x,x+y", ("formula", ["x", "x+y"])),
    ],
)
def test_text_becomes_ranges_and_choices(kind: type[ChoiceModel], word: str, expected: tuple[str, Any]) -> None:
    assert parse_search(kind, word) == expected
    widths = {"layers": [1], "nodes": [1]} if expected[0] in ("layers", "nodes") else {}
    assert expected[0] in Space.of(kind, {**widths, **dict([expected])}).dimensions


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lr", "expected name=low:high, name=log:low:high or name=a,b,c; got 'lr'"),
        ("lr=", "expected name=low:high"),
        ("learning=0:1", "unknown option 'learning' of pcmcnet"),
        ("lr=low:high", "cannot read 'low' as a number"),
        ("lr=a,b", "option lr: cannot read 'a' as a number"),
        ("nodes=a", "--search nodes: cannot read 'a' as a number"),
    ],
)
def test_invalid_text_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_search(PCMCNet, word)


def test_values_are_written_as_on_a_command_line() -> None:
    assert [in_words(v) for v in ((64, 64), True, None, 0.000123456, "relu", {"a": 1}, 7)] == [
        *("64,64", "true", "none", "0.0001235", "relu", "a:1", "7")
    ]
