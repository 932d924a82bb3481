import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import pytest

from pcmcnet.errors import ConfigError
from pcmcnet.models import KINDS, MODELS, MixedMNL, PCMCNet
from pcmcnet.models.interface.options import (
    REQUIRED,
    documented_parameters,
    make_config,
    option_docs,
    option_names,
    plain_roles,
    with_parameters,
)
from pcmcnet.models.interface.parse_options import parse_option, parse_options


@dataclass(frozen=True, kw_only=True)
class Options:
    hidden: tuple[int, ...] = (1,)
    lr: float = 0.5
    epochs: int = 3
    refit: bool = False
    kind: Literal["one", "two"] = "one"
    decay: float | Literal["auto"] = "auto"
    fixed: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("hidden=512,512", ("hidden", (512, 512))),
        ("hidden=16", ("hidden", (16,))),
        ("hidden= 16 , 8 ", ("hidden", (16, 8))),
        ("hidden=", ("hidden", ())),
        ("lr=1e-3", ("lr", 0.001)),
        ("lr=2", ("lr", 2.0)),
        ("decay=auto", ("decay", "auto")),
        ("decay=0.5", ("decay", 0.5)),
        ("decay=1e-3", ("decay", 0.001)),
        ("epochs=66", ("epochs", 66)),
        ("refit=true", ("refit", True)),
        ("refit=False", ("refit", False)),
        ("refit=1", ("refit", True)),
        ("kind=two", ("kind", "two")),
        ("kind=a=b", ("kind", "a=b")),
        ("fixed=price:-1, time:0,", ("fixed", {"price": -1.0, "time": 0.0})),
        ("fixed=class 1: price:2", ("fixed", {"class 1: price": 2.0})),
        ("fixed=f(x, 3, 6)[3 to 6]:1e-3,x:y:4", ("fixed", {"f(x, 3, 6)[3 to 6]": 0.001, "x:y": 4.0})),
        ("fixed=", ("fixed", {})),
        (
            "bounds=price:..0,time:-5..5,x:.5..",
            ("bounds", {"price": (None, 0.0), "time": (-5.0, 5.0), "x": (0.5, None)}),
        ),
        ("bounds=none", ("bounds", None)),
    ],
)
def test_text_is_parsed_by_the_type_of_its_option(word: str, expected: tuple[str, Any]) -> None:
    name, value = parse_option(Options, word)
    assert (name, value) == expected
    assert type(value) is type(expected[1])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lr", "expected name=value, got 'lr'."),
        ("hiden=3", "unknown option 'hiden'. Did you mean 'hidden'?"),
        ("zzz=3", "unknown option 'zzz'. Known: bounds, decay, epochs, fixed, hidden, kind, lr, refit."),
        ("hidden=a,b", "option hidden: cannot read 'a,b' as numbers such as 64,64."),
        ("lr=fast", "option lr: cannot read 'fast' as a number."),
        ("epochs=1.5", "option epochs: cannot read '1.5' as a whole number."),
        ("decay=0.5.1", "option decay: cannot read '0.5.1' as a number or a word."),
        ("fixed=price", "option fixed: cannot read 'price' as pairs such as name:value,name:value."),
        ("fixed=a:1,b", "option fixed: cannot read 'a:1,b' as pairs such as name:value,name:value."),
        ("fixed=a:x", "option fixed: cannot read 'a:x' as pairs such as name:value,name:value."),
        ("bounds=a:1", "option bounds: cannot read 'a:1' as pairs such as name:low..high,name:low..high or none."),
        ("refit=yes", "option refit: cannot read 'yes' as true or false."),
    ],
)
def test_text_that_cannot_be_parsed_names_the_expected_type(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_option(Options, word)
    assert str(caught.value) == message


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    assert make_config(Options, {"lr": 0.1}) == Options(lr=0.1)
    with pytest.raises(ConfigError, match=r"unknown option 'epoch'. Did you mean 'epochs'\?"):
        make_config(Options, {"epoch": 3})


def test_option_names_are_the_fields_in_order() -> None:
    assert option_names(Options) == ["hidden", "lr", "epochs", "refit", "kind", "decay", "fixed", "bounds"]


@pytest.mark.parametrize("name", MODELS)
def test_a_models_signature_shows_its_options(name: str) -> None:
    shown = inspect.signature(MODELS[name]).parameters
    assert list(shown) == [f.name for f in fields(MODELS[name].config_class)]
    by_place = [p.name for p in shown.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert by_place == (["column"] if name == "rank-by" else [])


def test_the_command_line_reads_the_options_of_the_model() -> None:
    words = ["hidden=512,512", "lr=0.001", "refit=true", "activation=tanh", "dropout=0.5"]
    model = PCMCNet(**dict(parse_option(PCMCNet.config_class, word) for word in words))
    config = model.config
    assert (config.hidden, config.lr, config.refit) == ((512, 512), 0.001, True)
    assert (config.activation, config.dropout) == ("tanh", 0.5)


def test_entries_of_a_mapping_can_be_set_separately() -> None:
    words = ["random.price=-lognormal", "draws=50", "random.in.vehicle=normal", "start.price=0.5"]
    result = parse_options(MixedMNL.config_class, words)
    assert result == {
        "random": {"price": "-lognormal", "in.vehicle": "normal"},
        "draws": 50,
        "start": {"price": 0.5},
    }
    assert parse_options(MixedMNL.config_class, ["random=price:normal,time:uniform"]) == {
        "random": {"price": "normal", "time": "uniform"}
    }
    with pytest.raises(ConfigError, match="option draws has no named entries: use draws=value"):
        parse_option(MixedMNL.config_class, "draws.few=3")
    with pytest.raises(ConfigError, match=r"option start\.price: cannot read 'low' as a number"):
        parse_option(MixedMNL.config_class, "start.price=low")


# -- Descriptions of options -------------------------------------------------------------------------------------------


@dataclass
class Base:
    """Some options.

    Parameters
    ----------
    low, high
        Ends of the range, see
        :class:`~pcmcnet.Other`.
    """

    low: int
    high: int = 3


@dataclass
class More(Base):
    """More of them.

    Parameters
    ----------
    names
        Any ``names``.

    Returns
    -------
    nothing
        At all.
    """

    names: list[str] = field(default_factory=list)


def test_options_have_descriptions_from_their_class_and_its_bases() -> None:
    ends = "Ends of the range, see `pcmcnet.Other`."
    assert option_docs(More) == [("low", REQUIRED, ends), ("high", 3, ends), ("names", [], "Any `names`.")]


def test_an_option_without_description_is_refused() -> None:
    @dataclass
    class Silent(Base):
        other: int = 0

    with pytest.raises(LookupError, match=r"Silent: no docstring describes other\."):
        option_docs(Silent)


def test_references_are_formatted_as_code() -> None:
    assert plain_roles("see :meth:`fit` and ``x``") == "see `fit` and `x`"


COMPOSED = """A model.

Parameters
----------
names : default []
    Any `names`.
low, high : required, default 3
    Ends of the range, see `pcmcnet.Other`.

Examples
--------
None."""


def test_options_are_inserted_before_other_docstring_sections() -> None:
    assert with_parameters("A model.\n\n    Examples\n    --------\n    None.", More) == COMPOSED


def test_a_docstring_keeps_its_existing_descriptions() -> None:
    text = with_parameters(
        "A model.\n\nParameters\n----------\nnames, other\n    Mine.\n\nExamples\n--------\nNone.", More
    )
    ends = "Ends of the range, see `pcmcnet.Other`."
    assert documented_parameters(text) == {"names": "Mine.", "other": "Mine.", "low": ends, "high": ends}
    assert text.endswith("`pcmcnet.Other`.\n\nExamples\n--------\nNone.")
    assert with_parameters(text, More) == text


@pytest.mark.parametrize("name", KINDS)
def test_the_docstring_of_every_model_describes_all_parameters(name: str) -> None:
    """``PCMCNet?`` and ``help(pn.MNL)`` list every option with its meaning."""
    model = KINDS[name]
    parameters = {*inspect.signature(model).parameters}
    parameters |= {p.name for p in inspect.signature(model.__init__).parameters.values() if p.kind is not p.VAR_KEYWORD}
    assert parameters - {"self"} <= documented_parameters(model.__doc__ or "").keys()


@pytest.mark.parametrize("name", MODELS)
def test_the_docstring_of_every_model_describes_its_options(name: str) -> None:
    described = documented_parameters(MODELS[name].__doc__ or "")
    for option in option_docs(MODELS[name].config_class):
        assert described[option.name] == option.meaning
