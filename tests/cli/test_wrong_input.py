"""Mistakes of newcomers: the message names the column or the word, and what to write instead."""

import logging
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

import pcmcnet as pn
from pcmcnet.cli.usage import MODEL_OPTIONS, with_options
from pcmcnet.data.files.tabular import read_table
from pcmcnet.datasets import intercity
from pcmcnet.models.interface import attribute_names
from pcmcnet.models.interface.options import option_names

ROLES = ["--choice-set", "trip", "--chosen", "chosen", "--alternative", "mode", "--features", "price,time"]
MNL = ["--model", "mnl"]
TRIPS = read_table(intercity.PATH).filter(pc.field("trip") <= 30)
WIDE = pa.table(
    {
        "trip": [1, 2, 3],
        "choice": ["bus", "car", "car"],
        **{f"price_{mode}": [1.0, 2.0, 3.0] for mode in ("bus", "car")},
        **{f"time_{mode}": [3.0, 2.0, 1.0] for mode in ("bus", "car")},
    }
)


def with_column(name: str, values: Any) -> pa.Table:
    """Return the trips with another column."""
    return TRIPS.set_column(TRIPS.column_names.index(name), name, pa.array(values))


def column(name: str) -> np.ndarray[Any, Any]:
    return np.asarray(TRIPS[name].to_numpy())


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write tables to the current folder, which is empty."""
    monkeypatch.chdir(tmp_path)

    def write(table: pa.Table = TRIPS, name: str = "trips.csv") -> str:
        pyarrow.csv.write_csv(table, name)
        return name

    return write


# -- tables ------------------------------------------------------------------------------------------------------------

BAD_TABLES: dict[str, tuple[pa.Table, list[str], list[str]]] = {
    "a wide table": (
        WIDE,
        ["--choice-set", "trip", "--chosen", "choice", "--features", "price,time"],
        ["no column 'price'", "looks wide", "'price_bus'", "pcmcnet check TABLE -o roles.toml", "--schema roles.toml"],
    ),
    "a wide table of one feature": (
        WIDE.select(["trip", "choice", "price_bus", "price_car"]),
        ["--choice-set", "trip", "--chosen", "choice", "--features", "price"],
        ["no column 'price'", "looks wide", "'price_bus'", "pcmcnet check TABLE -o roles.toml"],
    ),
    "a wide table with its own columns": (
        WIDE,
        ["--choice-set", "trip", "--chosen", "choice", "--features", "price_bus,price_car"],
        ["'choice'", "names of alternatives such as 'bus'", "looks wide", "--schema roles.toml"],
    ),
    "labels instead of 0 and 1": (
        with_column("chosen", column("mode")),
        ROLES,
        ["'chosen', row 0", "expected 0 or 1, got 'train'", "name a column that is 1 in the row of the chosen"],
    ),
    "yes and no": (
        with_column("chosen", np.where(column("chosen") == 1, "yes", "no")),
        ROLES,
        ["'chosen'", "expected 0 or 1, got 'no'", "Write 0 or 1"],
    ),
    "rows that occur twice": (
        pa.concat_tables([TRIPS, TRIPS]),
        ROLES,
        ["'chosen'", "exactly one chosen alternative, got up to 2", "Remove rows that occur twice"],
    ),
    "one id for all rows": (
        with_column("trip", np.ones(len(TRIPS), int)),
        ROLES,
        ["all rows have the same id in column 'trip'", "one id for each choice set"],
    ),
    "no choice in a set": (
        with_column("chosen", np.where(column("trip") == 2, 0, column("chosen"))),
        ROLES,
        ["choice set 2", "'chosen'", "got none", "Drop these sets or correct them"],
    ),
    "a missing value": (
        with_column("price", [None, *column("price")[1:]]),
        ROLES,
        ["'price', row 0 (choice set 1)", "got nan; 1 such row.", "--missing indicator"],
    ),
    "amounts with a currency": (
        with_column("price", [f"${value}" for value in column("price")]),
        ROLES,
        ["'price'", "'$21.93'", "plain numbers"],
    ),
    "an individual-level column that varies": (
        TRIPS,
        [*ROLES, "--individual", "comfort"],
        ["'comfort' varies within", "Declare them as features", "--conflict first"],
    ),
    "a column that does not exist": (
        TRIPS,
        ["--choice-set", "trip", "--chosen", "choosen", "--features", "price"],
        ["no column 'choosen'", "Did you mean 'chosen'?"],
    ),
    "the choice as a feature": (
        TRIPS,
        [*ROLES[:-1], "price,chosen"],
        ["'chosen' is declared as chosen and also as a model input", "remove it"],
    ),
    "no features": (TRIPS, ROLES[:4], ["no column with a coefficient", "add features"]),
}


@pytest.mark.parametrize(("table", "roles", "words"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_is_explained(
    table: pa.Table, roles: list[str], words: list[str], write: Callable[..., str], cli: Callable[..., Any]
) -> None:
    message = cli("fit", write(table), *roles, *MNL, "-o", "model").message
    assert [word for word in words if word not in message] == [], message


def test_an_empty_file_is_explained(write: Callable[..., str], cli: Callable[..., Any]) -> None:
    Path("empty.csv").touch()
    message = cli("fit", "empty.csv", *ROLES, "-o", "model").message
    assert message == "empty.csv: the file is empty. Expected a header line and at least one row."


def test_a_wide_table_is_read_by_the_call_in_the_message() -> None:
    with pytest.raises(pn.PcmcNetError, match="the table looks wide") as error:
        pn.ChoiceData.from_long(WIDE, choice_set="trip", chosen="choice", features=["price", "time"])
    call_in_message = str(error.value).partition("Read it with ")[2].rstrip(".")
    data = eval(call_in_message, {"ChoiceData": pn.ChoiceData, "table": WIDE})
    assert data.sizes.tolist() == [2, 2, 2]
    assert data.labels.categories == ("bus", "car")


def test_labels_that_differ_in_blanks_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    table = with_column("mode", [" train", *column("mode")[1:]])
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        pn.ChoiceData.from_long(table, choice_set="trip", chosen="chosen", alternative="mode", features=["price"])
    assert "column 'mode': the labels ' train' and 'train' differ only in blanks" in caplog.text
    assert "Correct the table" in caplog.text


def test_check_proposes_options_for_missing_values(write: Callable[..., str], cli: Callable[..., Any]) -> None:
    prices = [None, *column("price")[1:]]
    output = cli("check", write(with_column("price", prices)), *ROLES).out
    assert "column 'price', row 0" in output
    assert "add --missing indicator.\n" in output
    assert ".." not in output


# -- command lines -----------------------------------------------------------------------------------------------------

BAD_COMMANDS: dict[str, tuple[str, list[str]]] = {
    "fit TABLE --model logit -o m": ("unknown model 'logit'", ["Did you mean 'mnl'?"]),
    "fit TABLE --model mixed_logit -o m": ("unknown model 'mixed_logit'", ["Did you mean 'mixed-mnl'?"]),
    "fit TABLE --model lightgbm -o m": ("unknown model 'lightgbm'", ["Did you mean 'boosted'?"]),
    "models logit": ("unknown model 'logit'", ["Did you mean 'mnl'?"]),
    "compare TABLE --models logit -o m": ("unknown model 'logit'", ["Did you mean 'mnl'?"]),
    "fit TABLE --epochs 3 -o m": ("no option --epochs", ["Write --set epochs=3."]),
    "fit TABLE --learning-rate=.1 -o m": ("no option --learning-rate", ["Write --set lr=.1."]),
    "fit TABLE --formula price -o m": ("no option --formula", ["Write --set formula=price."]),
    "compare TABLE --epochs 3 -o m": ("no option --epochs", ["Write --set MODEL.epochs=3."]),
    "fit TABLE --test-size 0.2 -o m": ("no option --test-size", ["pcmcnet split TABLE"]),
    "fit TABLE --random-state 3 -o m": ("no option --random-state", ["Did you mean --seed?"]),
    "fit TABLE --choice_set trip -o m": ("no option --choice_set", ["Did you mean --choice-set?"]),
    "fit TABLE --target took -o m": ("no option --target", ["Did you mean --chosen?"]),
    "fit TABLE --xyz took -o m": ("no option --xyz. See", ["pcmcnet fit --help"]),
    "fit TABLE --set random_state=3 -o m": ("'random_state'", ["use --seed N"]),
    "fit TABLE --set verbose=1 -o m": ("'verbose'", ["-v"]),
    "fit TABLE --device gpu -o m": ("no device 'gpu'", ["write 'cuda'", "'cpu'"]),
    "fit TABLE --device gpu --model mnl -o m": ("no device 'gpu'", ["write 'cuda'", "'cpu'"]),
    "fit TABLE --features ['price'] -o m": ("--features", ["without brackets and quotes", "price,time"]),
    "fit TABLE --model mixed-mnl --set random=price -o m": ("random", ["random=price:lognormal,time:normal"]),
    "fit TABLE --schema none.toml -o m": ("none.toml", ["pcmcnet check TABLE -o roles.toml"]),
    "reproduce": ("needs a command", ["table1, figure2, table3"]),
    "fit TABLE --device cuda:99 --model mnl -o m": ("device 'cuda:99' is not available", ["'cpu'", "'auto'"]),
    "fit TABLE --features price time -o m": ("unexpected word 'time'", ["--features price,time"]),
    "split TABLE --choice-set trip --shares 80,20 -o parts": ("add up to 1", ["--shares 0.8,0.2"]),
    "fit TABLE": ("pcmcnet fit needs -o, --output PATH", ["folder for the model"]),
    "fit": ("pcmcnet fit needs TABLE", ["CSV, Parquet or Arrow file"]),
    "fit trip.csv -o m": ("trip.csv: no such file", ["Did you mean 'trips.csv'?"]),
    "fit sheet.xlsx -o m": ("unknown file format", ["Save the sheet as CSV"]),
    "evaluate trips.csv m": ("trips.csv is a file", ["name the model first and the table second"]),
    "fit TABLE --model MNL -o m": ("unknown model 'MNL'", ["Did you mean 'mnl'?"]),
    "fit TABLE --formula chosen~price|income -o m": ("no option --formula", ["Write --set 'formula=price|income'."]),
    "split TABLE --test-size 0.2 -o parts": ("no option --test-size", ["--shares 0.8,0.2"]),
    "fit TABLE --seed abc -o m": ("--seed: expected a whole number, got 'abc'", ["pcmcnet fit --help"]),
    "fit TABLE --valid half -o m": ("--valid: expected a number, got 'half'", ["pcmcnet fit --help"]),
    "fit TABLE --schema trips.csv -o m": ("trips.csv is not valid TOML", ['choice_set = "trip"', "-o roles.toml"]),
    "show .": (". is not a saved model", ["Expected a folder written by fit or save"]),
    "train TABLE": ("no command 'train'", ["Did you mean 'fit'?"]),
    "optimize m TABLE": ("no command 'optimize'", ["Did you mean 'optimise'?"]),
    "fit TABLE --model mnl -o m --set formula=chosen~price": ("no left side", ["Write 'price'."]),
}


@pytest.mark.parametrize(("line", "where", "remedies"), [(k, *v) for k, v in BAD_COMMANDS.items()], ids=BAD_COMMANDS)
def test_a_wrong_command_is_explained(
    line: str, where: str, remedies: list[str], write: Callable[..., str], cli: Callable[..., Any]
) -> None:
    Path("sheet.xlsx").touch()
    table = write()
    words = line.split()
    has_roles = words[0] in ("fit", "compare") and len(words) > 2
    words = [table if word == "TABLE" else word for word in words]
    message = cli(*words[:2], *(ROLES if has_roles else []), *words[2:]).message
    assert [word for word in (where, *remedies) if word not in message] == [], message


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--features", "price", "--features", "time"], "write one list: --features price,time"),
        (["--signs", "price=-", "--signs", "time=-"], "write one list: --signs price=-,time=-"),
    ],
)
def test_a_list_that_is_given_twice_causes_a_warning(
    words: list[str], remedy: str, write: Callable[..., str], cli: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    cli("fit", write(), *ROLES[:4], *words, *MNL, "--device", "gpu", "-o", "model")
    assert f"{words[0].partition('=')[0]} occurs 2 times, and only the last one counts" in caplog.text
    assert remedy in caplog.text


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ("price + 10%", "For a change of +10%, write COLUMN *= 1.1."),
        ("price = 1 where mode = 'bus'", "mode == 'train'"),
        ("price = 1 where mode is 'bus'", "write ==, as in where mode == 'train'"),
        ("price *= 1.1 if mode == 'bus'", "Write a condition after where"),
        ("price *= 1,1", "Write a decimal point"),
    ],
)
def test_a_wrong_change_is_explained(change: str, remedy: str) -> None:
    data = intercity.read()[:5]
    with pytest.raises(pn.PcmcNetError) as error:
        pn.scenario(pn.Uniform().fit(data), data, change)
    assert remedy in str(error.value)


@pytest.mark.parametrize(
    ("python", "command_line"),
    [
        ("or declare conflict='first' to use", "or add --conflict first to use"),
        ("Pass device='cpu' to", "Pass --device cpu to"),
        ("read the table with person=<column>", "read the table with --person COLUMN"),
        ("declare features=['a', 'b'] and", "add --features a,b and"),
        ("declare signs={'cost': '-', 'time': '-'} and", "add --signs cost=-,time=- and"),
        ("networks need classes=1: see", "networks need --set classes=1: see"),
        ("a == b, in 1 = 1", "a == b, in 1 = 1"),
    ],
)
def test_messages_of_commands_have_options_instead_of_python(python: str, command_line: str) -> None:
    assert with_options(python) == command_line


def test_options_of_models_are_options_of_models() -> None:
    names = {name for kind in pn.MODELS.values() for name in option_names(kind.config_class)}
    assert names >= MODEL_OPTIONS


# -- formulas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "instead"),
    [
        ("chosen ~ price + time", "price + time"),
        ("price * time", "price + time + price:time"),
        ("log(price)*income | 0", "log(price) + income + log(price):income | 0"),
        ("price | -1", "price | 0"),
        ("price | income - 1", "price | income + 0"),
        ("price - 1", "price | 0"),
        ("I(price^2) + time", "square(price) + time"),
        ("price**2", "square(price)"),
        ("poly(time, 2)", "time + square(time)"),
        ("factor(purpose):price", "purpose:price"),
        ("y ~ C(mode) + scale(price)", "mode + standardise(price)"),
    ],
)
def test_formulas_of_other_packages_are_translated(formula: str, instead: str) -> None:
    with pytest.raises(pn.PcmcNetError) as error:
        pn.MNL(formula=formula).fit(intercity.read()[:5])
    assert str(error.value).startswith(f"formula {formula!r}: ")
    assert str(error.value).endswith(f"Write {instead!r}.")


@pytest.mark.parametrize(
    ("formula", "remedy"),
    [
        ("price - time", "leave out the terms that are not in the utility"),
        ("price / time", "add a column to the table"),
        ("total price", "Put names with spaces or symbols in backticks|expected at most three parts"),
        ("price^3", "factors by ':'"),
    ],
)
def test_formulas_without_a_translation_have_a_remedy(formula: str, remedy: str) -> None:
    with pytest.raises(pn.PcmcNetError, match=remedy):
        pn.MNL(formula=formula).fit(intercity.read()[:5])


# -- Python ------------------------------------------------------------------------------------------------------------

BAD_CALLS: dict[str, tuple[Callable[[pn.ChoiceData], Any], list[str]]] = {
    "PCMCNet(random_state=1)": (lambda d: pn.PCMCNet(random_state=1), ["'random_state'", "fit(train, seed=0)"]),  # type: ignore[call-arg]
    "PCMCNet(verbose=1)": (lambda d: pn.PCMCNet(verbose=1), ["'verbose'", "fit(train, progress=False)"]),  # type: ignore[call-arg]
    "MNL(device='cpu')": (lambda d: pn.MNL(device="cpu"), ["'device'", "argument of fit"]),  # type: ignore[call-arg]
    "PCMCNet(learning_rate=1)": (lambda d: pn.PCMCNet(learning_rate=1), ["'learning_rate'", "'lr'"]),  # type: ignore[call-arg]
    "PCMCNet(hidden_layer_sizes)": (lambda d: pn.PCMCNet(hidden_layer_sizes=(3,)), ["'hidden'"]),  # type: ignore[call-arg]
    "fit(random_state=1)": (lambda d: pn.MNL().fit(d, random_state=1), ["'random_state'", "seed=0"]),  # type: ignore[call-arg]
    "fit(verbose=1)": (lambda d: pn.MNL().fit(d, verbose=1), ["'verbose'", "progress=False"]),  # type: ignore[call-arg]
    "fit(epochs=1)": (lambda d: pn.PCMCNet().fit(d, epochs=1), ["'epochs'", "PCMCNet(epochs=10)"]),  # type: ignore[call-arg]
    "fit(df)": (lambda d: pn.MNL().fit(d.to_frame()), ["got DataFrame", "from_long(table, choice_set=..."]),  # type: ignore[arg-type]
    "fit(X, y)": (lambda d: pn.MNL().fit(d, np.zeros(3)), ["valid", "got ndarray", "fit needs no y"]),  # type: ignore[arg-type]
    "data[0]": (lambda d: d[0], ["data[0]", "Write data[[0]]", "data[:5]"]),
    "data['price']": (lambda d: d["price"], ["data.to_frame()['price']"]),
    "ChoiceData(df)": (lambda d: pn.ChoiceData(d.to_frame()), ["from_long(table, choice_set=..."]),  # type: ignore[call-arg]
    "from_long(choice_sets=)": (
        lambda d: pn.ChoiceData.from_long(d.to_frame(), choice_sets="trip"),  # type: ignore[call-arg]
        ["'choice_sets'", "choice_set='COLUMN'"],
    ),
    "from_long(chosne=)": (
        lambda d: pn.ChoiceData.from_long(d.to_frame(), choice_set="trip", chosne="chosen"),  # type: ignore[call-arg]
        ["'chosne'", "Did you mean 'chosen'?"],
    ),
    "split(test_size=.2)": (lambda d: d.split(test_size=0.2), ["'test_size'", "split((0.8, 0.2))"]),  # type: ignore[call-arg]
    "from_long(df, 'trip')": (
        lambda d: pn.ChoiceData.from_long(d.to_frame(), "trip", "chosen"),  # type: ignore[misc, call-arg]
        ["by name", "choice_set=..., chosen=..."],
    ),
    "split((80, 20))": (lambda d: d.split((80, 20)), ["(0.8, 0.2)", "got (80, 20)"]),
    "evaluate(data, model)": (lambda d: pn.evaluate(d, pn.Uniform()), ["The model comes first"]),
    "compare(['logit'])": (lambda d: pn.compare(["logit"], d), ["'logit'", "Did you mean 'mnl'?"]),
    "scenario({'price': 1.1})": (
        lambda d: pn.scenario(pn.Uniform().fit(d), d, {"price": 1.1}),
        ["'price'", "'price *= 1.1'"],
    ),
    "fit(device='gpu')": (lambda d: pn.MNL().fit(d, device="gpu"), ["'gpu'", "'cuda'", "'cpu'"]),
    "MNL('price | income')": (
        lambda d: pn.MNL("price | income"),  # type: ignore[call-arg, arg-type, misc]
        ["MNL takes its options by name", "MNL(formula=...)"],
    ),
    "PCMCNet(10)": (lambda d: pn.PCMCNet(10), ["PCMCNet takes its options by name"]),  # type: ignore[call-arg, arg-type, misc]
    "score(X, y)": (
        lambda d: pn.Uniform().fit(d).score(d, d.chosen),  # type: ignore[call-arg]
        ["score takes only data", "write score(data)"],
    ),
    "scenario(data, model, change)": (
        lambda d: pn.scenario(d, pn.Uniform(), "price *= 1.1"),  # type: ignore[arg-type]
        ["The model comes first"],
    ),
    "columns in the index": (
        lambda d: pn.ChoiceData.from_long(
            d.to_frame().set_index("trip"), choice_set="trip", chosen="chosen", features=["price"]
        ),
        ["no column 'trip'", "table.reset_index()"],
    ),
    "two columns of the same name": (
        lambda d: pn.ChoiceData.from_long(
            d.to_frame()[["trip", "price", "price", "chosen"]],
            choice_set="trip",
            chosen="chosen",
            features=["price"],
        ),
        ["'price' 2 times", "Rename or drop all but one"],
    ),
    "evaluate(model)": (lambda d: pn.evaluate(pn.Uniform()), ["needs data", "write evaluate(model, data)"]),  # type: ignore[call-arg]
    "scenario(model, data)": (
        lambda d: pn.scenario(pn.Uniform(), d),  # type: ignore[call-arg]
        ["needs changes", "write scenario(model, data, 'price *= 1.1')"],
    ),
    "compare(models)": (lambda d: pn.compare(["mnl"]), ["needs data", "compare([MNL(), PCMCNet()], data)"]),  # type: ignore[call-arg]
    "explain()": (lambda d: pn.explain(), ["needs model and data", "write explain(model, data)"]),  # type: ignore[call-arg]
    "evaluate(model, test=)": (lambda d: pn.evaluate(pn.Uniform(), test=d), ["no argument 'test'"]),  # type: ignore[call-arg]
    "fit()": (lambda d: pn.MNL().fit(), ["needs train", "write model.fit(train)", "ChoiceData.from_long"]),  # type: ignore[call-arg]
    "predict_proba()": (lambda d: pn.MNL().predict_proba(), ["needs data", "write model.predict_proba(data)"]),  # type: ignore[call-arg]
    "save()": (lambda d: pn.MNL().save(), ["needs folder", "write model.save('model')"]),  # type: ignore[call-arg]
    "from_long(df)": (
        lambda d: pn.ChoiceData.from_long(d.to_frame()),  # type: ignore[call-arg]
        ["needs choice_set", "from_long(table, choice_set=...)"],
    ),
    "subset()": (lambda d: d.subset(), ["needs index", "data.subset([0, 1])"]),  # type: ignore[call-arg]
    "one choice set": (
        lambda d: pn.MNL().fit(d.subset([0])),
        ["cannot identify", "'price'", "One choice set is never enough", "more choice sets"],
    ),
    "a logit on a GPU that is not there": (
        lambda d: pn.MNL().fit(d, device="cuda:99"),
        ["device 'cuda:99' is not available", "'cpu'", "'auto'"],
    ),
    "negative prices": (
        lambda d: pn.scenario(pn.Uniform().fit(d), d, "price -= 1000"),
        ["change 'price -= 1000': Price would be negative", "EUR", "'price *= 0.9'"],
    ),
    "data.columns": (lambda d: d.columns, ["'columns'", "data.to_frame()"]),
    "data.price": (lambda d: d.price, ["'price'", "data.to_frame()['price']"]),
    "MNL.fit(data)": (lambda d: pn.MNL.fit(d), ["called on a class", "MNL().fit(...)"]),  # type: ignore[call-arg, arg-type]
    "evaluate(MNL)": (lambda d: pn.evaluate(pn.MNL, d), ["got the class MNL", "MNL().fit(train)"]),
    "evaluate('mnl')": (lambda d: pn.evaluate("mnl", d), ["got str", "pn.MNL().fit(train)"]),
    "compare([MNL])": (lambda d: pn.compare([pn.MNL], d), ["got the class MNL", "Write MNL()"]),  # type: ignore[list-item]
    "compare({'a': 'logit'})": (lambda d: pn.compare({"a": "logit"}, d), ["'logit'", "Did you mean 'mnl'?"]),  # type: ignore[dict-item]
    "predict_proba(array)": (
        lambda d: pn.Uniform().fit(d).predict_proba(np.zeros((3, 2))),
        ["got ndarray", "pandas.DataFrame(array, columns=[...])"],
    ),
    "from_long(list of rows)": (
        lambda d: pn.ChoiceData.from_long(d.to_frame().to_dict("records"), choice_set="trip"),
        ["got list", "pandas.DataFrame(rows)"],
    ),
    "from_long(choice_set=series)": (
        lambda d: pn.ChoiceData.from_long(d.to_frame(), choice_set=d.to_frame()["trip"]),
        ["choice_set must be the name of a column, got Series", "choice_set='COLUMN'"],
    ),
    "random=['price']": (lambda d: pn.MixedMNL(random=["price"]), ["random", "{'price': 'lognormal'"]),  # type: ignore[arg-type]
    "shares in per cent": (
        lambda d: pn.calibrate_constants(pn.MNL(), d, {"train": 40, "car": 60}),
        ["share of 'train'", "write 0.4 for 40%"],
    ),
    "weights of shares in per cent": (
        lambda d: pn.wesml(d, {"train": 40, "car": 30, "bus": 20, "plane": 10}),
        ["a sum of 100", "Divide each share by their sum"],
    ),
    "bootstrap(model, data, 'time')": (
        lambda d: pn.bootstrap(pn.MNL(formula="price").fit(d), d, "time"),  # type: ignore[arg-type]
        ["expected a function of a model", "lambda model: model.coefficients['time']"],
    ),
    "from_catalogue(choosers)": (
        lambda d: pn.ChoiceData.from_catalogue(d.to_frame()),  # type: ignore[call-arg]
        ["needs catalogue", "from_catalogue(choosers, catalogue"],
    ),
    "features=['price time']": (
        lambda d: pn.ChoiceData.from_long(d.to_frame(), choice_set="trip", chosen="chosen", features=["price time"]),
        ["no column 'price time'", "'price', 'time'", "separate names by commas"],
    ),
}


@pytest.mark.parametrize(("wrong", "words"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_wrong_call_is_explained(wrong: Callable[[pn.ChoiceData], Any], words: list[str]) -> None:
    with pytest.raises((pn.PcmcNetError, AttributeError)) as error:
        wrong(intercity.read()[:5])
    assert [word for word in words if word not in str(error.value)] == [], str(error.value)


def test_an_unknown_argument_is_also_a_type_error() -> None:
    with pytest.raises(TypeError, match="seed=0"):
        pn.MNL().fit(intercity.read()[:5], random_state=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "instead"),
    [("Logit", "MNL"), ("MixedLogit", "MixedMNL"), ("read_csv", "ChoiceData.from_long"), ("evalute", "evaluate")],
)
def test_names_of_other_packages_are_recognised(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Did you mean '{instead}'"):
        getattr(pn, name)
    with pytest.raises(KeyError, match="Did you mean 'mnl'"):
        pn.MODELS["logit"]


@pytest.mark.parametrize(
    ("model", "name", "instead"),
    [
        (pn.MNL(), "coef_", "model.coefficients"),
        (pn.MNL(), "params", "model.coefficients"),
        (pn.MNL(), "intercept_", "model.coefficients"),
        (pn.MNL(), "pvalues", "model.estimates()"),
        (pn.MNL(), "bse", "model.standard_errors()"),
        (pn.MNL(), "llf", "model.estimates_.log_likelihood"),
        (pn.MNL(), "coeficients", "'coefficients'"),
        (pn.PCMCNet(), "coef_", "pn.explain(model, data)"),
        (pn.PCMCNet(), "evaluate", "pn.evaluate(model, data)"),
        (pn.PCMCNet(), "loss_curve_", "model.history"),
        (pn.RandomForest(), "feature_importances_", "pn.explain(model, data)"),
        (pn.PCMCNet(), "aic", "model.score(data)"),
        (pn.PCMCNet(), "coefficients", "pn.elasticity(model, data, 'price')"),
        (pn.HierarchicalMNL(), "coef_", "model.part_worths()"),
        (pn.HierarchicalMNL(), "coefficients", "model.chains()"),
        (pn.HierarchicalMNL(), "llf", "model.score(data)"),
    ],
)
def test_attributes_of_other_packages_are_recognised(model: Any, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as error:
        getattr(model, name)
    assert instead in str(error.value)


def test_hints_name_attributes_of_a_fitted_logit() -> None:
    """Each "model.NAME" and "model.estimates_.NAME" in a hint exists."""
    model = pn.MNL(formula="price").fit(intercity.read()[:50])
    for hint in attribute_names.OF_LOGITS.values():
        for path in re.findall(r"model\.(\w+(?:\.\w+)?)", hint):
            assert operator.attrgetter(path)(model) is not None


def test_an_attribute_that_needs_a_fit_says_so() -> None:
    with pytest.raises(AttributeError, match="fit"):
        pn.MNL().coefficients  # noqa: B018
    assert not hasattr(pn.MNL(), "__array__")


def test_blanks_of_an_alternative_need_its_availability() -> None:
    table = WIDE.set_column(2, "price_bus", pa.array([1.0, None, 3.0]))
    table = table.set_column(table.column_names.index("time_bus"), "time_bus", pa.array([3.0, float("nan"), 1.0]))
    roles: dict[str, Any] = {
        "alternatives": ["bus", "car"],
        "features": {"price": "price_{alternative}", "time": "time_{alternative}"},
        "chosen": "choice",
    }
    with pytest.raises(pn.PcmcNetError) as error:
        pn.ChoiceData.from_wide(table, **roles)
    for word in ("'bus'", "'price_bus', 'time_bus'", "row 1; 1 such row", "available='available_{alternative}'"):
        assert word in str(error.value)
    marked = table.append_column("available_bus", pa.array([1, 0, 1])).append_column("available_car", pa.array([1] * 3))
    data = pn.ChoiceData.from_wide(marked, available="available_{alternative}", **roles)
    assert data.sizes.tolist() == [2, 1, 2]


def test_check_reads_the_availability_that_the_message_asks_for(
    write: Callable[..., str], cli: Callable[..., Any]
) -> None:
    """The second set lacks the bus: its price is blank. The column that the message proposes is a role of the table."""
    table = WIDE.select(["trip", "choice", "price_bus", "price_car"]).set_column(
        2, "price_bus", pa.array([1.0, None, 3.0])
    )
    output = cli("check", write(table)).out
    assert "'price_bus' is blank in row 1" in output
    assert "such as 'available_bus'" in output
    table = table.append_column("available_bus", pa.array([1, 0, 1])).append_column("available_car", pa.array([1] * 3))
    assert "offered in 2 sets" in cli("check", write(table), "-o", "roles.toml").out
    data = pn.ChoiceData.from_schema("trips.csv", pn.Schema.from_toml("roles.toml"))
    assert data.sizes.tolist() == [2, 1, 2]


def test_a_function_that_is_not_finite_names_the_term_and_the_row() -> None:
    pn.term("root_above_100", lambda x: (x - 100).sqrt())
    with pytest.raises(pn.PcmcNetError, match=r"root_above_100\(price\): .* nan for .* in row 0 \(choice set 1\)"):
        pn.MNL(formula="root_above_100(price)").fit(intercity.read()[:5])


def test_repeated_answers_to_a_task_are_refused() -> None:
    plan = pn.design({"price": [1, 2, 3], "brand": ["A", "B"]}, tasks=4, starts=1)
    answers = plan.simulate(2).to_pydict()
    answers = {name: [*values, values[2]] for name, values in answers.items()}
    with pytest.raises(pn.PcmcNetError, match="person 1 answers task 3 of version 1 again, after row 3") as error:
        plan.to_choice_data(answers)
    assert "remove the repeated rows" in str(error.value)
