"""What the comments of the declarations say of the files, counted with pandas."""

from collections.abc import Callable

from pcmcnet.datasets import packaged
from pcmcnet.datasets.packaged import TABLES

Needs = Callable[[str], None]


def test_the_itinerary_table_varies_within_sets_only_where_its_comment_says(needs: Needs) -> None:
    needs("itinerary")
    frame = packaged.load("itinerary").to_pandas()
    varying = frame.groupby("individual")[TABLES["itinerary"].roles["individual"]].nunique().gt(1).sum()
    assert varying[varying > 0].to_dict() == {"depWeekDay": 68, "staySaturday": 16, "dtd": 396}
    by_set = frame.groupby("individual", sort=False)
    assert by_set["totalPrice"].is_monotonic_increasing.all()
    assert by_set["alternative"].is_monotonic_increasing.all()


def test_walking_has_its_minutes_in_the_total_alone(needs: Needs) -> None:
    needs("mtc-work")
    frame = packaged.load("mtc-work").to_pandas()
    walk = frame["altnum"] == 6
    assert (frame.loc[walk, ["ivtt", "ovtt"]] == 0).all(axis=None)
    gap = (frame["tottime"] - frame["ivtt"] - frame["ovtt"]).abs()
    assert gap[~walk].max() < 1e-9
    assert frame.loc[walk, "tottime"].min() > 10


def test_the_usual_filter_of_swissmetro_can_be_left_out(needs: Needs) -> None:
    """Counts of the literature: 10,728 rows, 9 choices unknown, 6,768 commuting or on business."""
    needs("swissmetro")
    kept, raw = packaged.load("swissmetro"), packaged.load("swissmetro", filtered=False)
    assert raw.num_rows == 10_728
    assert raw["CHOICE"].to_pylist().count(0) == 9
    assert set(kept["PURPOSE"].to_pylist()) == {1, 3}
    assert set(kept["CHOICE"].to_pylist()) == {1, 2, 3}


def test_the_usual_filter_of_optima_leaves_what_its_comments_say(needs: Needs) -> None:
    """2,265 rows, 359 of them without a choice, 7 with a car that is not available."""
    needs("optima")
    raw = packaged.load("optima", filtered=False).to_pandas()
    impossible = (raw["Choice"] == 1) & (raw["CarAvail"] == 3)
    assert (len(raw), raw["Choice"].isna().sum(), impossible.sum()) == (2_265, 359, 7)
    kept = packaged.load("optima").to_pandas()
    assert kept["Choice"].value_counts().to_dict() == {0: 536, 1: 1_249, 2: 114}
    assert kept["car_available"].sum() == 1_801
    transit, car = kept["TimePT"] == 0, kept["TimeCar"] == 0
    assert (transit.sum(), car.sum()) == (7, 28)
    assert kept.loc[transit | car, "distance_km"].max() < 2
    assert kept[["age", "CalculatedIncome", "UrbRur"]].isna().sum().tolist() == [114, 81, 0]
    used = ["TimePT", "TimeCar", "MarginalCostPT", "CostCarCHF", "WalkingTimePT", "WaitingTimePT", "NbTransf"]
    assert not kept[[*used, "distance_km"]].isna().any(axis=None)
