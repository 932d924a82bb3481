import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData, Schema
from pcmcnet.errors import ArtifactError
from pcmcnet.models import PCMCNet, load
from pcmcnet.training.run_folder import CHECKPOINT

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]


# -- results -------------------------------------------------------------------------------------------------------


def test_a_fit_saves_a_model_and_prints_a_short_result(
    cli: Run, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    status, out, err = cli("fit", table, *roles, *quick, "-o", tmp_path / "model")
    assert status == 0
    model = load(tmp_path / "model")
    assert re.search(r"^parameters +\d", out, re.MULTILINE)
    assert "rates.layers" not in out
    assert "options" not in out
    assert re.search(r"NLL of the 24 training sets: \d\.\d{4} \(lower is better; guessing at random: 1\.\d+\)", out)
    assert re.search(rf"\nsaved to {tmp_path / 'model'} after \d+\.\d s\n", out)
    assert out.endswith(f"    pcmcnet evaluate {tmp_path / 'model'} OTHER-TABLE\n")
    assert f"\n    pcmcnet explain {tmp_path / 'model'} {table} -o {tmp_path / 'model'}-report\n" in out
    assert err.startswith("read ChoiceData(24 choice sets of 2 to 4 alternatives")
    assert model.schema.chosen == "took"
    assert (model.config.hidden, model.config.epochs, model.config.dropout) == ((8,), 3, 0.2)
    assert list((tmp_path / "model").glob(f"*{CHECKPOINT}")) == []


def test_a_verbose_fit_prints_the_whole_summary(
    cli: Run, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    out = cli("fit", table, *roles, *quick, "-v", "-o", tmp_path / "model").out
    assert str(load(tmp_path / "model").summary()) in out
    assert "rates.layers" in out


def test_a_fit_of_a_logit_prints_its_coefficients(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    out = cli("fit", table, *roles, "--model", "mnl", "-o", tmp_path / "model").out
    assert str(load(tmp_path / "model").summary()) in out


def test_overwrite_replaces_a_model_and_nothing_else(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    words = ["fit", table, *roles, "--model", "mnl", "-o", tmp_path / "model"]
    assert cli(*words)[0] == 0
    assert "add --overwrite, or choose another folder" in cli(*words).message
    assert cli(*words, "--set", "formula=price", "--overwrite")[0] == 0
    assert load(tmp_path / "model").config.formula == "price"
    assert "cannot be combined" in cli(*words, "--model", "pcmcnet", "--overwrite", "--resume").message
    assert "no column 'minuets'" in cli(*words, "--overwrite", "--features", "minuets").message
    (tmp_path / "model" / "notes.txt").write_text("mine")
    assert "other files than a model, such as 'notes.txt'" in cli(*words, "--overwrite").err
    assert load(tmp_path / "model").config.formula == "price"  # a failed command keeps the model


@pytest.mark.parametrize("how", ["cli_with_log", pytest.param("program", marks=pytest.mark.slow)])
def test_standard_output_contains_only_the_json_result(
    how: str,
    request: pytest.FixtureRequest,
    capfd: Any,
    table: Path,
    roles: list[str],
    quick: list[str],
    tmp_path: Path,
) -> None:
    """Standard error has a plain line per epoch. No library writes directly to the file descriptors."""
    words = ["fit", table, *roles, *quick, "--set=weight_decay=auto", "--valid", 0.25]
    status, out, err = request.getfixturevalue(how)(*words, "-o", tmp_path / "model", "--json")
    assert status == 0
    assert capfd.readouterr() == ("", "")
    result = json.loads(out)
    assert result["model"] == str(tmp_path / "model")
    assert (result["choice_sets"], result["epoch"]) == (18, 3)
    history = load(tmp_path / "model").history
    assert result["pseudo_r2"] == pytest.approx(1 - result["nll"] / result["nll_uniform"])
    assert (result["epochs"], result["weight_decay"] > 0) == (3, True)
    assert (result["train_loss"], result["valid_loss"]) == (history[-1]["train_loss"], history[-1]["valid_loss"])
    assert re.findall(r"^epoch (\d)/3: train \d\.\d+, valid \d\.\d+, \d+\.\d s$", err, re.MULTILINE) == ["1", "2", "3"]


def test_a_stack_accepts_resume_but_no_validation_part(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    words = ["fit", table, *roles, "--model", "stacking", "--set", "models=mnl,uniform"]
    assert cli(*words, "-o", tmp_path / "whole")[0] == 0
    (tmp_path / "stopped").mkdir()
    assert cli(*words, "-o", tmp_path / "stopped", "--resume")[0] == 0
    assert (tmp_path / "whole" / "config.json").read_bytes() == (tmp_path / "stopped" / "config.json").read_bytes()
    assert "--valid is not supported by stacking" in cli(*words, "-o", tmp_path / "third", "--valid", ".2").message


def test_an_ensemble_can_be_resumed(cli: Run, table: Path, roles: list[str], quick: list[str], tmp_path: Path) -> None:
    words = ["fit", table, *roles, *quick, "--ensemble", 2, "--seed", 3]
    status, out, _ = cli(*words, "-o", tmp_path / "model", "--json")
    assert status == 0
    model = load(tmp_path / "model")
    assert (model.name, model.config.n, model.table_.seed) == ("ensemble", 2, 3)
    assert json.loads(out)["choice_sets"] == 24
    place = tmp_path / "stopped" / "member-1"
    PCMCNet(**model.config.options).fit(
        ChoiceData.from_schema(table, model.schema), seed=model.record_.seeds[0], run_folder=place, progress=False
    )
    assert "holds an unfinished run" in cli(*words, "-o", tmp_path / "stopped").message
    assert cli(*words, "-o", tmp_path / "stopped", "--resume")[0] == 0
    for name in ("member-1-weights.safetensors", "member-2-weights.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    assert cli("evaluate", tmp_path / "stopped", table)[0] == 0


def test_models_of_an_ensemble_may_get_bootstrap_weights(
    cli: Run, table: Path, roles: list[str], tmp_path: Path
) -> None:
    words = ["fit", table, *roles, "--model", "mnl", "--ensemble", 2]
    assert cli(*words, "-o", tmp_path / "alike")[0] == cli(*words, "--resample", "-o", tmp_path / "other")[0] == 0
    for name, alike in (("alike", True), ("other", False)):
        one, two = (member.predict_proba(table) for member in load(tmp_path / name).members_)
        assert (one == two).all() == alike


def test_roles_may_come_from_a_file(
    cli: Run, model: Path, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    schema = Schema(choice_set="trip", chosen="took", individual=("income",), features=("price", "comfort"))
    (tmp_path / "roles.toml").write_text(schema.to_toml())
    assert cli("fit", table, "--schema", tmp_path / "roles.toml", *quick, "-o", tmp_path / "model")[0] == 0
    assert weights(tmp_path / "model") == weights(model)


def test_the_seed_determines_the_weights(
    cli: Run, model: Path, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    for seed in (0, 1):
        assert cli("fit", table, *roles, *quick, "--seed", seed, "-o", tmp_path / str(seed))[0] == 0
    assert weights(tmp_path / "0") == weights(model)
    assert weights(tmp_path / "1") != weights(model)


def test_a_table_can_be_fitted_evaluated_and_predicted(
    cli: Run, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    model, predicted = tmp_path / "model", tmp_path / "predicted.csv"
    assert cli("fit", table, *roles, *quick, "--set=epochs=20", "-o", model)[0] == 0
    status, out, _ = cli("evaluate", model, table, "--json")
    assert status == 0
    report = json.loads(out)
    assert report["n_sets"] == 24
    assert report["nll"] < report["uniform"]["nll"]
    assert cli("predict", model, table, "-o", predicted)[0] == 0
    before, after = pyarrow.csv.read_csv(table), pyarrow.csv.read_csv(predicted)
    assert after.drop_columns(["probability"]) == before
    total = after.group_by("trip").aggregate([("probability", "sum")])["probability_sum"].to_pylist()
    assert total == pytest.approx([1.0] * 24, rel=1e-6)


def test_a_cluster_column_needs_no_role(cli: Run, table: Path, tmp_path: Path) -> None:
    options = ["--model=mnl", "--set=formula=price", "--set=cluster=income", "--set=errors=clustered"]
    roles = ["--choice-set", "trip", "--chosen", "took", "--features", "price"]
    result = cli("fit", table, *roles, *options, "-o", tmp_path / "model")
    assert result.status == 0, result.err
    assert "clusters by income" in result.out


# -- bad input -----------------------------------------------------------------------------------------------------


def test_a_model_stores_its_person_column(cli: Run, table: Path, quick: list[str], tmp_path: Path) -> None:
    words = ["--choice-set", "trip", "--chosen", "took", "--features", "price", "--person", "income", *quick]
    assert cli("fit", table, *words, "--valid", 0.2, "-o", tmp_path / "model").status == 0
    assert load(tmp_path / "model").schema.person == "income"
    assert cli("evaluate", tmp_path / "model", table).status == 0
    assert cli("predict", tmp_path / "model", table, "-o", tmp_path / "out.csv").status == 0


def test_a_table_can_be_streamed_from_disk(
    cli: Run, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    options = ["--stream", "--cache", tmp_path / "cache", "--memory", "1 MiB", "--valid", "0.3"]
    result = cli("fit", table, *roles, *quick, *options, "-o", tmp_path / "model", "--json")
    assert result.status == 0
    assert "read ScannedData(24 choice sets" in result.err
    assert json.loads(result.out)["choice_sets"] < 24
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert load(tmp_path / "model").history[0]["valid_loss"] > 0


FINE = ["{table}", "--choice-set", "trip", "--chosen", "took", "--features", "price"]
# Bad input by name: the arguments, and the expected message.
CASES = {
    "missing file": (["nowhere.csv", *FINE[1:]], r"nowhere.csv: no such file or folder"),
    "unknown ending": (["{here}/table.txt", *FINE[1:]], r"table.txt: unknown file format. Expected .csv"),
    "truncated parquet": (["{here}/cut.parquet", *FINE[1:]], r"cut.parquet: cannot be read as .*may be truncated"),
    "no rows": (["{here}/empty.csv", *FINE[1:]], r"table is empty"),
    "missing column": ([*FINE, "--features", "prise"], r"has no column 'prise'. Did you mean 'price'\?"),
    "column of text": ([*FINE, "--chosen", "comfort"], r"column 'comfort'.* expected 0 or 1"),
    "unknown model": ([*FINE, "--model", "pcmcnett"], r"unknown model 'pcmcnett'. Did you mean 'pcmcnet'\?"),
    "unknown option": ([*FINE, "--set", "hiden=3"], r"unknown option 'hiden'. Did you mean 'hidden'\?"),
    "ensemble of one": ([*FINE, "--resample"], r"--resample needs an ensemble .*: add --ensemble"),
    "option without value": ([*FINE, "--set", "hidden"], r"expected name=value, got 'hidden'"),
    "unreadable value": ([*FINE, "--set", "patience=ten"], r"option patience: cannot read 'ten' as a whole number"),
    "neither number nor auto": (
        [*FINE, "--set", "epochs=ten"],
        r"epochs must be a whole number of at least 1, got 'ten'",
    ),
    "impossible value": ([*FINE, "--set", "lr=-1"], r"lr must be a number above 0, got -1.0"),
    "no choice set": (["{table}", "--chosen", "took"], r"no column with choice-set ids was given"),
    "no chosen column": (["{table}", "--choice-set", "trip"], r"fitting needs the choices: add --chosen COLUMN"),
    "no features": (FINE[:-2], r"PCMCNet needs features or labels of alternatives"),
    "two chosen": ([*FINE, "--choice-set", "comfort"], r"column 'took': expected exactly one chosen"),
    "chosen as feature": ([*FINE, "--features", "took"], r"column 'took' is declared as chosen and also as a model"),
    "conflict": ([*FINE, "--individual", "comfort"], r"constant within a choice set, but 'comfort' varies"),
    "persons unknown": ([*FINE, "--person", "who"], r"has no column 'who'"),
    "several persons": ([*FINE, "--person", "comfort"], r"the person in column 'comfort' varies within the set"),
    "unknown word": ([*FINE, "--conflict", "last"], r"conflict must be one of 'error', 'first', got 'last'"),
    "unknown schema key": (["{table}", "--schema", "{here}/unknown.toml"], r"unknown schema entry 'chosn'. Did you"),
    "broken schema": (["{table}", "--schema", "{here}/broken.toml"], r"broken.toml is not valid TOML"),
    "missing schema": (["{table}", "--schema", "nowhere.toml"], r"schema file nowhere.toml: No such file"),
    "share above 1": ([*FINE, "--valid", "2"], r"--valid must be a number of at least 0 and below 1"),
    "share for a logit": (
        [*FINE, "--model", "mnl", "--valid", ".2"],
        r"is not supported by mnl",
    ),
    "resuming a logit": (
        [*FINE, "--model", "mnl", "--resume"],
        r"is not supported by mnl",
    ),
    "memory without stream": ([*FINE, "--memory", "1 GiB"], r"read in chunks: add --stream"),
    "too little memory": ([*FINE, "--stream", "--memory", "3 cups"], r"memory must be an amount of at least 1 MiB"),
    "unknown device": ([*FINE, "--device", "abacus"], r"device 'abacus' is not available"),
    "output exists": ([*FINE, "-o", "{here}/occupied"], r"occupied exists and is not empty: choose another folder"),
    "output in a file": ([*FINE, "-o", "{table}/model"], r"model cannot be written: .*trips.csv is a file"),
}


@pytest.fixture
def here(table: Path, tmp_path: Path) -> Path:
    """Return a folder with invalid files."""
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(table), tmp_path / "cut.parquet")
    uninterrupted = (tmp_path / "cut.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(uninterrupted[:-10])
    (tmp_path / "empty.csv").write_text("trip,took,price\n")
    (tmp_path / "table.txt").write_text("trip,took,price\n")
    (tmp_path / "unknown.toml").write_text('choice_set = "trip"\nchosn = "took"\n')
    (tmp_path / "broken.toml").write_text("choice_set = \n")
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").touch()
    return tmp_path


@pytest.mark.parametrize("how", ["cli", pytest.param("program", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_one_line_and_writes_nothing(
    case: str, how: str, table: Path, here: Path, request: pytest.FixtureRequest
) -> None:
    words, message = CASES[case]
    before = sorted(here.rglob("*"))
    filled = [word.format(table=table, here=here) for word in words]
    result = request.getfixturevalue(how)("fit", "-o", here / "model", *filled)
    assert re.search(message, result.message)
    assert result.status == 2
    assert sorted(here.rglob("*")) == before


def test_diverged_training_gives_one_line_and_status_1(
    cli: Run, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    breaking = ["--set=lr=1e30", "--set=clip=0", "--set=weight_decay=auto"]
    result = cli("fit", table, *roles, *quick, *breaking, "-o", tmp_path / "model")
    assert result.status == 1
    assert re.match(r"training diverged with every weight decay that was tried", result.message)


# -- interruption --------------------------------------------------------------------------------------------------

LONG = ["--set=hidden=4", "--set=epochs=120", "--set=batch_size=24", "--set=dropout=0.2", "--valid=0.25"]
LONG += ["--set=patience=120", "--set=weight_decay=0.1"]


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


def read_until(process: subprocess.Popen[bytes], words: bytes) -> None:
    """Read standard error line by line up to these words, and no further."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(words):
            return
    raise AssertionError(f"the program ended, with status {process.wait()}, before it said {words!r}")


@pytest.fixture(scope="module")
def uninterrupted(cli: Run, table: Path, roles: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the model of an uninterrupted fit."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    assert cli("fit", table, *roles, *LONG, "-o", folder)[0] == 0
    return folder


def require_unfinished(cli: Run, words: list[Any], folder: Path) -> None:
    """Check that an unfinished fit cannot be loaded, overwritten, or resumed with another seed."""
    with pytest.raises(ArtifactError, match="holds an unfinished run, not a model: continue it with fit --resume"):
        load(folder)
    again = cli(*words)
    assert "holds an unfinished run: resume it (resume=True, or --resume)" in again.message
    assert again.status == 2
    other = cli(*words, "--resume", "--seed", 1)
    assert re.search(r"belongs to another run; differences: .*seed", other.message)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make child processes receive an interrupt, as in a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bytes(
    start: Start, cli: Run, uninterrupted: Path, table: Path, roles: list[str], tmp_path: Path
) -> None:
    """The lines of 120 epochs do not fit into the pipe, so the program cannot finish before it is killed."""
    words, folder = ["fit", table, *roles, *LONG, "-o", tmp_path / "model"], tmp_path / "model"
    with start(*words) as process:
        read_until(process, b"epoch 2/120: ")
        process.kill()
    assert process.returncode == -signal.SIGKILL
    require_unfinished(cli, words, folder)
    assert cli(*words, "--resume")[0] == 0
    assert weights(folder) == weights(uninterrupted)
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in uninterrupted.iterdir())
    assert "already holds a model" in cli(*words, "--resume").message  # the finished model is kept


def test_an_interrupt_says_how_to_continue(
    interruptible: None, start: Start, cli: Run, uninterrupted: Path, table: Path, roles: list[str], tmp_path: Path
) -> None:
    words, folder = ["fit", table, *roles, *LONG, "-o", tmp_path / "model"], tmp_path / "model"
    with start(*words) as process:
        read_until(process, b"epoch 2/120: ")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    last = f"interrupted; to continue, run the same command with --resume (state in {folder})."
    assert err.decode().splitlines()[-1] == last
    assert b"Traceback" not in err
    require_unfinished(cli, words, folder)
    assert cli(*words, "--resume")[0] == 0
    assert weights(folder) == weights(uninterrupted)
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in uninterrupted.iterdir())
    assert "already holds a model" in cli(*words, "--resume").message  # the finished model is kept


def test_resuming_without_a_run_starts_one(
    cli: Run, model: Path, table: Path, roles: list[str], quick: list[str], tmp_path: Path
) -> None:
    assert cli("fit", table, *roles, *quick, "--resume", "-o", tmp_path / "model")[0] == 0
    assert weights(tmp_path / "model") == weights(model)


# -- columns of other kinds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed_size_list", "list"])
def test_parquet_embeddings_can_be_fitted_and_evaluated(cli: Run, tmp_path: Path, *, fixed: bool) -> None:
    rng = np.random.default_rng(0)
    pool, item = rng.normal(size=(6, 384)).astype(np.float32), rng.integers(6, size=60)
    vectors = pyarrow.FixedSizeListArray.from_arrays(pool[item].ravel(), 384)
    table = pyarrow.table(
        {
            "trip": np.arange(60) // 3,
            "took": (np.arange(60) % 3 == 0).astype(int),
            "e": vectors if fixed else vectors.cast(pyarrow.list_(pyarrow.float32())),
            "at": np.repeat(np.datetime64("2024-01-01T07:00", "s") + 3600 * np.arange(20), 3),
            "price": rng.gamma(2.0, 5.0, 60),
        }
    )
    file = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(table, file)
    roles = ["--choice-set", "trip", "--chosen", "took", "--features", "e,price", "--individual", "at"]
    short = ["--set=epochs=2", "--set=weight_decay=1"]
    kinds = ["--kinds", "e=vector,at=datetime,price=piecewise", *short]
    status, out, _ = cli("fit", file, *roles, *kinds, "-o", tmp_path / "model")
    assert status == 0
    assert "parameters" in out
    assert cli("predict", tmp_path / "model", file, "-o", tmp_path / "p.parquet").status == 0
    p = pyarrow.parquet.read_table(tmp_path / "p.parquet")["probability"].to_numpy()
    np.testing.assert_allclose(p.reshape(-1, 3).sum(1), 1, rtol=0, atol=1e-6)
    status, out, _ = cli("evaluate", tmp_path / "model", file, "--json")
    assert status == 0
    assert json.loads(out)["nll"] == pytest.approx(-np.log(p[::3]).mean(), abs=1e-6)
    (tmp_path / "roles.toml").write_text(load(tmp_path / "model").schema.to_toml())
    schema = ["--schema", tmp_path / "roles.toml", *short]
    assert cli("fit", file, *schema, "-o", tmp_path / "again").status == 0
    assert np.array_equal(*(load(tmp_path / m).predict_proba(file) for m in ("model", "again")))
    ragged = [*vectors.to_pylist()[:59], [1.0] * 383]
    pyarrow.parquet.write_table(table.set_column(2, "e", [ragged]), file)
    where = "column 'e', row 59 (choice set 19): expected a vector of 384 numbers as in most rows, got 383 numbers"
    assert cli("evaluate", tmp_path / "model", file).message.startswith(where)
    cut = pyarrow.FixedSizeListArray.from_arrays(pool[item, :300].ravel(), 300)
    pyarrow.parquet.write_table(table.set_column(2, "e", cut), file)
    result = cli("predict", tmp_path / "model", file, "-o", tmp_path / "q.parquet")
    assert result.message.startswith("column 'e': expected vectors of 384 numbers, as in training, got 300")


def test_picture_paths_are_relative_to_the_table(cli: Run, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for k in range(4):
        Image.new("L", (4, 4), 60 * k).save(tmp_path / "photos" / f"{k}.png")
    rows = ["trip,took,photo", *(f"{k // 2},{k % 2},photos/{k % 4}.png" for k in range(12))]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    roles = ["--choice-set", "trip", "--chosen", "took", "--features", "photo", "--kinds", "photo=image"]
    result = cli("fit", tmp_path / "table.csv", *roles, "--set=epochs=1", "-o", tmp_path / "model")
    assert result.status == 0
    for rest in (["-o", tmp_path / "p.parquet"], ["-o", tmp_path / "p.csv"]):
        assert cli("predict", tmp_path / "model", tmp_path / "table.csv", *rest).status == 0
    assert str(tmp_path).encode() not in (tmp_path / "p.parquet").read_bytes()
    assert cli("evaluate", tmp_path / "model", tmp_path / "table.csv").status == 0
    (tmp_path / "photos" / "3.png").unlink()
    message = cli("evaluate", tmp_path / "model", tmp_path / "table.csv").message
    assert message.startswith("column 'photo', row 3 (choice set 1): the picture photos/3.png cannot be read: No such")
    assert f"Paths are relative to the table's folder, {tmp_path}" in message


def test_a_vector_of_the_wrong_size_is_reported_with_its_row(cli: Run, tmp_path: Path) -> None:
    vectors = [[1.0, 2.0], [2.0, 1.0], [3.0, 1.0], [4.0]]
    pyarrow.parquet.write_table(
        pyarrow.table({"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "e": vectors}), tmp_path / "table.parquet"
    )
    roles = ["--choice-set", "trip", "--chosen", "took", "--features", "e", "--kinds", "e=vector"]
    result = cli("fit", tmp_path / "table.parquet", *roles, "-o", tmp_path / "model")
    assert result.message.startswith(
        "column 'e', row 3 (choice set 2): expected a vector of 2 numbers as in most rows, got 1"
    )
    assert not (tmp_path / "model").exists()


def test_a_fit_reports_wrong_signs(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    words = ["fit", table, *roles, "--model", "mnl", "--set=formula=price", "--set=fixed=price:0.2"]
    status, out, _ = cli(*words, "--signs", "price=-", "-o", tmp_path / "text")
    assert status == 0
    (caveat,) = load(tmp_path / "text").caveats
    assert "against the declared sign '-': bound its coefficients" in caveat
    assert f"Caveat: {caveat}." in " ".join(out.split())
    status, out, _ = cli(*words, "-o", tmp_path / "json", "--json")
    assert json.loads(out)["caveats"][0].endswith("as in bounds={'price': (None, 0)}")
