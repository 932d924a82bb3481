"""Shell completion, and options that give the roles of columns."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pcmcnet.cli import arguments
from pcmcnet.cli.arguments import keep_columns, read_schema, schema_of_command
from pcmcnet.data import Schema
from pcmcnet.data.columns.arrays import CURVES
from pcmcnet.data.kinds import KINDS
from pcmcnet.datasets import intercity
from pcmcnet.datasets.packaged import TABLES
from pcmcnet.errors import SchemaError
from pcmcnet.evaluation.leaderboard_entries import TABLE_SPECIFIC_MODELS, simulators
from pcmcnet.tuning.space import SPACE_NAMES


def test_completed_names_match_the_registries() -> None:
    """If this fails, add the missing name to ``pcmcnet/cli/arguments.py``."""
    assert tuple(TABLE_SPECIFIC_MODELS) == arguments.LEADERBOARD_MODELS
    assert tuple(TABLES) == arguments.TABLES
    assert tuple(simulators()) == arguments.SIMULATORS
    assert (*KINDS, *CURVES) == arguments.KINDS
    assert set(arguments.SPACES) == set(SPACE_NAMES)


@pytest.mark.parametrize(
    ("complete", "incomplete", "expected"),
    [
        (arguments.complete_model, "pcmcn", ["pcmcnet"]),
        (arguments.complete_models, "uniform,Small=pcmcn", ["uniform,Small=pcmcnet"]),
        (arguments.complete_contestants, "mnl+", ["mnl+individual"]),
        (arguments.complete_table, "mode-", ["mode-canada"]),
        (arguments.complete_tables, "mode-canada,ml", ["mode-canada,mlba"]),
        (arguments.complete_simulator, "rock", ["rock-paper-scissors"]),
        (arguments.complete_space, "p", ["paper"]),
    ],
)
def test_completion_applies_to_the_last_word(
    complete: Callable[[str], list[str]], incomplete: str, expected: list[str]
) -> None:
    assert complete(incomplete) == expected


SLOW = {"torch", "pandas", "scipy", "sklearn", "matplotlib", "jinja2", "pyarrow.dataset", "numpy.testing"}


def run_in_one_process(runs: list[tuple[list[str], dict[str, str]]]) -> list[list[str]]:
    """Return the words that the program prints in each run. All runs share one separate process.

    The last word lists the slow libraries that have been loaded until then.
    """
    code = f"""
import os, sys
from pcmcnet.cli import main
for words, variables in {runs!r}:
    os.environ.update(variables)
    sys.argv = ["pcmcnet", *words]
    try:
        main()
    except SystemExit:
        print(",".join(sorted({SLOW!r} & sys.modules.keys())) or "none", end="\\f")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(arguments.__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return [part.split() for part in run.stdout.split("\f")[:-1]]


COMPLETED = {
    "pcmcnet fit --model pcmcn": "pcmcnet",
    "pcmcnet datasets swiss": "swissmetro",
    "pcmcnet simulate rock": "rock-paper-scissors",
}


def test_completion_does_not_load_pytorch() -> None:
    place = "_PCMCNET_COMPLETE"
    runs = [
        ([], {place: "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)})
        for words in COMPLETED
    ]
    assert run_in_one_process(runs) == [[word, "none"] for word in COMPLETED.values()]


def test_help_and_version_do_not_load_pytorch() -> None:
    answers = run_in_one_process([(words, {}) for words in (["--help"], ["--version"], ["fit", "--help"])])
    assert [answer[-1] for answer in answers] == ["none"] * 3


def test_commands_of_tables_and_logits_load_no_slow_library(tmp_path: Path) -> None:
    """Each of them takes a tenth of a second or more to load, as long as the rest of the command."""
    model, table = str(tmp_path / "logit"), str(intercity.PATH)
    roles = ["--choice-set", "trip", "--chosen", "chosen", "--alternative", "mode", "--features", "price,time"]
    commands = [
        *(["models"], ["datasets"], ["check", table], ["fit", "nowhere.csv", *roles, "-o", "m"]),
        ["split", table, "--choice-set", "trip", "-o", str(tmp_path / "parts")],
        ["fit", table, *roles, "--model", "mnl", "-o", model],
        ["fit", table, *roles, "--model", "lc-mnl", "--set", "classes=2", "-o", f"{model}-2"],
        *(["show", model], ["evaluate", model, table], ["predict", model, table, "-o", f"{model}.csv"]),
        *(["fit", table, *roles, "--epochs", "3", "-o", "m"], ["evaluate", table, model]),
    ]
    answers = run_in_one_process([(words, {}) for words in commands])
    assert [answer[-1] for answer in answers] == ["none"] * len(commands)
    assert (tmp_path / "logit.csv").exists()


# -- Roles -------------------------------------------------------------------------------------------------------------


def test_lists_are_separated_by_commas_and_may_have_spaces() -> None:
    schema = read_schema(None, choice_set="trip", chosen=None, features=" price, time spent,, ", individual="")
    assert schema == Schema(choice_set="trip", features=("price", "time spent"))


def test_options_take_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('choice_set = "trip"\nchosen = "took"\nfeatures = ["price", "time"]\nmissing = "indicator"\n')
    assert read_schema(file) == Schema.from_toml(file)
    schema = read_schema(file, choice_set=None, features="price", conflict="first")
    assert schema == Schema(
        choice_set="trip", chosen="took", features=("price",), missing="indicator", conflict="first"
    )


def test_the_choice_set_column_is_required() -> None:
    with pytest.raises(SchemaError, match="no column with choice-set ids was given: add --choice-set COLUMN"):
        read_schema(None, features="price")


def test_a_command_that_needs_the_choices_says_so() -> None:
    arguments = dict.fromkeys(["schema", "chosen", "rank", "alternative", "individual", "features", "categorical"])
    arguments |= dict.fromkeys(["available", "weight", "person", "keep", "outside", "conflict", "missing"])
    arguments |= dict.fromkeys(["kinds", "signs", "counts"])
    remedy = "tuning needs the choices: add --chosen COLUMN, --rank COLUMN or --counts COLUMN"
    with pytest.raises(SchemaError, match=remedy):
        schema_of_command({**arguments, "choice_set": "trip", "model": "mnl"}, "tuning")
    schema = schema_of_command({**arguments, "choice_set": "trip", "chosen": "took"}, "tuning")
    assert schema == Schema(choice_set="trip", chosen="took")
    ranked = schema_of_command({**arguments, "choice_set": "trip", "rank": "place"}, "tuning")
    assert ranked == Schema(choice_set="trip", rank="place")
    market = schema_of_command({**arguments, "choice_set": "week", "counts": "sold"}, "tuning")
    assert market == Schema(choice_set="week", counts="sold")


def test_kinds_are_pairs_separated_by_commas() -> None:
    schema = read_schema(None, choice_set="trip", features="a=b,v,x", kinds="v = vector, a=b=multi, x=spline,")
    assert schema.kinds == {"v": "vector", "a=b": "multi", "x": "spline"}
    assert (schema.contents, schema.curves) == ({"v": "vector", "a=b": "multi"}, {"x": "spline"})
    for odd in ("v", "v=", "=vector"):
        with pytest.raises(SchemaError, match="--kinds: expected comma-separated column=kind, got"):
            read_schema(None, choice_set="trip", features="v", kinds=odd)


def test_kept_columns_are_a_list() -> None:
    assert read_schema(None, choice_set="trip", keep="town, season").keep == ("town", "season")


def test_columns_for_grouping_are_kept_once() -> None:
    schema = Schema(choice_set="trip", individual=("income",), person="who", keep=("town",))
    assert keep_columns(schema, "person", None, "income", "town", "person", "who", "trip").keep == ("town", "person")


def test_the_person_column_may_come_from_option_or_file(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('choice_set = "trip"\nperson = "who"\n')
    assert read_schema(file).person == "who"
    assert read_schema(file, person="household").person == "household"


def test_signs_are_pairs_that_override_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('choice_set = "trip"\nfeatures = ["a", "b"]\nsigns = {a = "-", b = "-"}\n')
    assert dict(read_schema(file, signs="b=+").signs) == {"a": "-", "b": "+"}
    with pytest.raises(SchemaError, match="--signs: expected comma-separated column=sign, got 'b'"):
        read_schema(file, signs="b")


def test_kinds_are_added_to_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('choice_set = "trip"\nfeatures = ["a", "b"]\nkinds = {a = "text", b = "multi"}\n')
    assert dict(read_schema(file, kinds="b=vector").kinds) == {"a": "text", "b": "vector"}


def test_a_column_has_one_kind() -> None:
    with pytest.raises(SchemaError, match="each column once"):
        read_schema(None, choice_set="trip", features="a", kinds="a=text,a=multi")
