from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.datasets import packaged
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation.leaderboard_tables import SETS, part_of, public_tables, require_tables


def test_all_packaged_tables_are_there_with_their_use_and_the_simulated_ones() -> None:
    found = public_tables()
    assert {name: found[name].use for name in packaged.TABLES} == {n: t.use for n, t in packaged.TABLES.items()}
    assert set(found) - set(packaged.TABLES) == {"swissmetro-random", "mlba", "airline", "rock-paper-scissors"}
    assert not any(table.use == "simulated" for table in found.values() if table.name in packaged.TABLES)


def test_the_random_split_of_swissmetro_ignores_the_person_and_does_not_count_in_ranks() -> None:
    found = public_tables()
    assert (found["swissmetro-random"].by_set, found["swissmetro-random"].ranked) == (True, False)
    assert all(not t.by_set and t.ranked for name, t in found.items() if name != "swissmetro-random")


@pytest.mark.parametrize("name", ["mlba", "airline", "rock-paper-scissors"])
def test_the_floor_of_a_simulated_table_is_the_loss_of_the_truth_on_its_choices(name: str) -> None:
    """Equal probabilities lose against it."""
    data, whole, floor = public_tables()[name].read(600)
    assert len(data) == whole == 600
    uniform = float(np.log(data.sizes).mean())
    assert floor is not None
    assert 0 < floor < uniform
    again = public_tables()[name].read(600)
    assert again.floor == floor
    assert again.data.fingerprint() == data.fingerprint()


def test_a_simulated_table_has_at_most_a_few_thousand_sets() -> None:
    assert all(public_tables()[name].read(SETS).whole <= 4_000 for name in ("mlba", "rock-paper-scissors"))


def test_a_part_of_a_table_has_whole_persons_and_is_always_the_same(trips_table: Any, read_trips: Any) -> None:
    table = trips_table(sets=40)
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], person="person")
    part, whole, floor = part_of(data, 11)
    assert (whole, floor) == (40, None)
    assert len(part) == 12  # three persons of four trips: the first number of persons to reach 11
    assert part_of(data, 11).data.fingerprint() == part.fingerprint()
    assert part_of(data, 40).data is data


def test_a_table_of_large_sets_is_cut_further() -> None:
    """100 sets of 16 alternatives have as many as 200 sets of 8: for 100 sets, half of them are taken."""
    n = 100
    table = {"trip": np.repeat(np.arange(n), 16), "took": np.tile([1] + [0] * 15, n), "x": np.arange(16.0 * n)}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"])
    assert len(part_of(data, 100).data) == 50


def test_tables_are_taken_by_name_by_use_or_as_data(trips: ChoiceData) -> None:
    assert [table.name for table in require_tables(["mlba", "mode-canada"], None)] == ["mlba", "mode-canada"]
    assert {table.name for table in require_tables(None, "simulated")} == {"mlba", "airline", "rock-paper-scissors"}
    judged = require_tables(None, "judged")
    assert judged
    assert {table.use for table in judged} == {"judged"}
    (given,) = require_tables({"mine": trips}, None)
    assert (given.name, given.use, given.read(40).data) == ("mine", "given", trips)


@pytest.mark.parametrize(
    ("tables", "use", "error", "message"),
    [
        (["mlbaa"], None, ConfigError, r"unknown table 'mlbaa'. Did you mean 'mlba'\?"),
        ("mlba", None, InputError, "tables: expected names, or names with choice data, got 'mlba'"),
        (None, "jugded", ConfigError, "use must be one of 'development', 'judged', 'simulated', 'given', got 'jugded'"),
        (["mlba"], "judged", InputError, "no table to measure: expected some of use 'judged'"),
        ({"a": 3}, None, InputError, "tables, 'a': expected ChoiceData, got int"),
        ({"../a": 3}, None, InputError, "tables: expected names that can name a folder"),
    ],
)
def test_other_tables_are_refused(tables: Any, use: str | None, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        require_tables(tables, use)
