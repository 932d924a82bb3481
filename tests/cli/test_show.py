"""``pcmcnet show`` prints what a fit printed, and the columns that the model needs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcmcnet.models import load

Run = Callable[..., Any]


def test_the_summary_and_the_roles_are_printed(cli: Run, model: Path) -> None:
    status, out, err = cli("show", model)
    assert (status, err) == (0, "")
    saved = load(model)
    assert out.startswith(f"{model}: model pcmcnet, fitted to 24 choice sets, ")
    assert str(saved.summary()) in out
    assert out.endswith(f"Roles of the columns:\n\n{saved.schema.to_toml()}")


def test_the_result_as_json_has_options_and_roles(cli: Run, model: Path) -> None:
    shown = json.loads(cli("show", model, "--json").out)
    assert (shown["model"], shown["choice_sets"], shown["seed"]) == ("pcmcnet", 24, 0)
    assert shown["options"]["hidden"] == [8]
    assert shown["schema"] == load(model).schema.to_dict()
    assert shown["summary"]["title"] == "PCMCNet"


def test_a_folder_without_a_model_is_rejected(cli: Run, tmp_path: Path) -> None:
    message = f"{tmp_path} is not a saved model: model.json is missing. Expected a folder written by fit or save."
    assert cli("show", tmp_path).message == message
