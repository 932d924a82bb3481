"""The models and their options, as the command line lists them."""

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from pcmcnet.models import FAMILIES, MODELS

Run = Callable[..., Any]


def test_the_list_has_every_model_by_family_and_fits_a_page(cli: Run) -> None:
    status, out, err = cli("models")
    assert (status, err) == (0, "")
    lines, words = out.splitlines(), " ".join(out.split())
    assert [line for line in lines if line in FAMILIES] == [*FAMILIES]
    for name, kind in MODELS.items():
        first = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        gives = {"ranking": " (gives a ranking)", "scores": " (gives scores)"}.get(kind.gives, "")
        assert f" {name} {first}{gives}" in words
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", MODELS)
def test_a_model_lists_its_options_with_defaults_and_meaning(cli: Run, name: str) -> None:
    listed = json.loads(cli("models", name, "--json").out)
    text = cli("models", name).out
    assert [option["name"] for option in listed["options"]] == [f.name for f in fields(MODELS[name].config_class)]
    assert all(option["meaning"] for option in listed["options"])
    for option in listed["options"]:
        assert f"\n{option['name']}{' (required)' if option['required'] else '='}" in text


def test_the_list_as_json_has_all_models(cli: Run) -> None:
    listed = json.loads(cli("models", "--json").out)
    assert list(listed) == list(MODELS)
    assert listed["rank-by"]["gives"] == "ranking"
    assert cli("models", "uniform").out.endswith("No options.\n")


def test_an_unknown_model_is_rejected(cli: Run) -> None:
    assert cli("models", "pcmcnett").message == "unknown model 'pcmcnett'. Did you mean 'pcmcnet'?"


def test_the_help_of_fit_refers_to_this_list(cli: Run) -> None:
    assert "pcmcnet models" in " ".join(cli("fit", "--help").out.split())
