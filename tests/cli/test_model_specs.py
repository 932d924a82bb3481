import re

import pytest

from pcmcnet.cli.model_specs import parse_models
from pcmcnet.errors import ConfigError
from pcmcnet.models import PCMCNet, RankBy, Uniform


def test_names_values_and_labels_define_rows_in_order() -> None:
    models = parse_models("uniform, rank-by:price,Cheapest = rank-by:total price,pcmcnet,", [])
    assert list(models) == ["uniform", "rank-by:price", "Cheapest", "pcmcnet"]
    assert [type(model) for model in models.values()] == [Uniform, RankBy, RankBy, PCMCNet]
    assert [models[label].config.column for label in ("rank-by:price", "Cheapest")] == ["price", "total price"]


def test_options_apply_to_a_label_or_to_all_rows_of_a_model() -> None:
    words = "Small=pcmcnet,Large=pcmcnet,a.b=rank-by:price"
    settings = ["pcmcnet.epochs=7", "Large.hidden=64,64", "a.b.ascending=false", "Small.lr=0.5"]
    models = parse_models(words, settings)
    assert (models["Small"].config.epochs, models["Large"].config.epochs) == (7, 7)
    assert (models["Small"].config.hidden, models["Large"].config.hidden) == (PCMCNet().config.hidden, (64, 64))
    assert models["Small"].config.lr == 0.5
    assert not models["a.b"].config.ascending


def test_a_label_takes_precedence_over_a_name() -> None:
    models = parse_models("uniform=pcmcnet,Other=uniform,pcmcnet", ["uniform.epochs=7"])
    assert models["uniform"].config.epochs == 7
    assert models["pcmcnet"].config.epochs == PCMCNet().config.epochs


def test_a_required_option_can_be_set() -> None:
    assert parse_models("rank-by", ["rank-by.column=price"])["rank-by"].config.column == "price"


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        ("", [], "--models: expected at least one model"),
        (" , ", [], "--models: expected at least one model"),
        ("uniform,pcmcnett", [], r"unknown model 'pcmcnett'. Did you mean 'pcmcnet'\?"),
        ("uniform,uniform", [], "--models: 'uniform' occurs twice. Give one of them a label: Other=uniform"),
        ("A=uniform,A=pcmcnet", [], "--models: 'A' occurs twice"),
        ("=uniform", [], "expected a label before '='"),
        ("uniform:3", [], r"uniform takes no value after a colon; use --set uniform\.option=value"),
        ("rank-by", [], r"rank-by requires column: write rank-by:VALUE, or --set rank-by\.column=VALUE"),
        ("rank-by:", [], "column must be the feature to rank by"),
        ("pcmcnet", ["hidden=3"], r"--set: expected MODEL\.option=value, .* got 'hidden=3'"),
        ("pcmcnet", ["pcmcnet.hidden"], r"--set: expected MODEL\.option=value"),
        ("pcmcnet", ["pcmcnt.hidden=3"], r"no model 'pcmcnt' in --models\. Did you mean 'pcmcnet'\?"),
        ("pcmcnet", ["pcmcnet.hiden=3"], r"unknown option 'hiden'. Did you mean 'hidden'\?"),
        ("pcmcnet", ["pcmcnet.patience=ten"], "option patience: cannot read 'ten' as a whole number"),
        ("pcmcnet", ["pcmcnet.epochs=ten"], "epochs must be a whole number of at least 1, got 'ten'"),
        ("pcmcnet", ["pcmcnet.lr=-1"], "lr must be a number above 0"),
    ],
)
def test_invalid_model_specifications_are_rejected(words: str, settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_models(words, settings)
    assert re.search(message, str(refusal.value))
