import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import ArrayLike, NDArray

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.files.write_files import write_table
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation import Report, evaluate
from pcmcnet.evaluation.metrics import metrics_per_set

P = [0.75, 0.25, 0.5, 0.25, 0.25]  # the second of two is chosen in set 1, the second of three in set 2 (tied for 2nd)
LOG2, LOG3 = math.log(2), math.log(3)


class GivenProbabilities:
    """A model that predicts given probabilities for the rows of the table."""

    def __init__(self, p: ArrayLike) -> None:
        self.p = np.asarray(p)

    def predict_log_proba(self, data: ChoiceData) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            log_p: NDArray[np.float64] = np.log(self.p)
        return log_p


def table(**more: list[Any]) -> dict[str, list[Any]]:
    return {"trip": [1, 1, 2, 2, 2], "took": [0, 1, 0, 1, 0], **more}


def read(columns: dict[str, list[Any]], **roles: str) -> ChoiceData:
    return ChoiceData.from_long(columns, choice_set="trip", chosen="took", **roles)  # type: ignore[arg-type]


@pytest.fixture
def data() -> ChoiceData:
    return read(table())


def test_every_value_is_the_mean_over_sets(data: ChoiceData) -> None:
    """NLL -log 1/4 twice. Top 1: 0 and 0; top 2: 1 and 1/2. Brier 18/16 and 1/4 + 9/16 + 1/16 = 14/16."""
    report = evaluate(GivenProbabilities(P), data, top=(1, 2))
    assert report.n_sets == 2
    assert report.nll == pytest.approx(2 * LOG2, rel=1e-14)
    assert report.top == {1: 0.0, 2: pytest.approx(0.75, rel=1e-14)}
    assert report.brier == pytest.approx(1.0, rel=1e-14)
    assert report.kl is None
    assert report.n_impossible == 0


def test_the_report_includes_the_uniform_model(data: ChoiceData) -> None:
    """Sets of 2 and 3: NLL (log 2 + log 3) / 2, top 1 (1/2 + 1/3) / 2, Brier (1/2 + 2/3) / 2."""
    reference = evaluate(GivenProbabilities(P), data, top=[1]).uniform
    expected = {"nll": (LOG2 + LOG3) / 2, "top_1": 5 / 12, "brier": 7 / 12}
    assert dict(reference) == pytest.approx(expected, rel=1e-14)


def test_means_use_the_weights_of_the_table() -> None:
    """Weights 3 and 1 on Brier 18/16 and 14/16: (54 + 14) / 64."""
    report = evaluate(GivenProbabilities(P), read(table(w=[3, 3, 1, 1, 1]), weight="w"), top=(2,))
    assert report.brier == pytest.approx(68 / 64, rel=1e-14)
    assert report.top[2] == pytest.approx((3 + 1 / 2) / 4, rel=1e-14)
    assert report.uniform["nll"] == pytest.approx((3 * LOG2 + LOG3) / 4, rel=1e-14)


def test_impossible_choices_of_weight_zero_are_ignored() -> None:
    report = evaluate(GivenProbabilities([1, 0, 0.5, 0.25, 0.25]), read(table(w=[0, 0, 1, 1, 1]), weight="w"))
    assert report.nll == pytest.approx(2 * LOG2, rel=1e-14)
    assert (report.n_sets, report.n_impossible) == (2, 1)


def test_rows_may_be_shuffled_or_unavailable(data: ChoiceData) -> None:
    order = [4, 0, 2, 5, 1, 3]
    columns = {"trip": [1, 1, 2, 2, 2, 2], "took": [0, 1, 0, 1, 0, 0], "open": [1, 1, 1, 1, 1, 0]}
    shuffled = read({name: [values[i] for i in order] for name, values in columns.items()}, available="open")
    p, truth = np.array([*P, 0.0])[order], np.array([0.5, 0.5, 0.25, 0.5, 0.25, 0.0])[order]
    expected = evaluate(GivenProbabilities(P), data, truth=[0.5, 0.5, 0.25, 0.5, 0.25])
    result = evaluate(GivenProbabilities(p), shuffled, truth=truth)
    assert result.values == pytest.approx(expected.values, rel=1e-14)
    assert dict(result.uniform) == pytest.approx(dict(expected.uniform), rel=1e-14)


def test_true_probabilities_add_the_divergence(data: ChoiceData) -> None:
    """KL of (1/2, 1/2) from (3/4, 1/4): 1/2 log(4/3); of (1/4, 1/2, 1/4) from (1/2, 1/4, 1/4): 1/4 log 2.

    From the uniform distribution: 0 and log 3 - 3/2 log 2.
    """
    report = evaluate(GivenProbabilities(P), data, truth=[0.5, 0.5, 0.25, 0.5, 0.25])
    assert report.kl == pytest.approx((math.log(4 / 3) / 2 + LOG2 / 4) / 2, rel=1e-14)
    assert report.uniform["kl"] == pytest.approx((LOG3 - 1.5 * LOG2) / 2, rel=1e-14)
    assert report.intervals["kl"] == pytest.approx((LOG2 / 4, math.log(4 / 3) / 2)[::-1], rel=1e-14)


def test_intervals_contain_the_value_and_follow_the_seed() -> None:
    rng = np.random.default_rng(0)
    took = (rng.integers(0, 4, 100)[:, None] == np.arange(4)).astype(int)
    data = read({"trip": np.repeat(np.arange(100), 4).tolist(), "took": took.ravel().tolist()})
    p = rng.dirichlet(np.ones(4), 100).ravel()
    report = evaluate(GivenProbabilities(p), data, truth=p)
    assert set(report.intervals) == {"nll", "top_1", "top_5", "brier", "kl"}
    for name in ("nll", "top_1", "brier"):
        low, high = report.intervals[name]
        assert low < report.values[name] < high
    assert report.intervals["top_5"] == (1.0, 1.0)
    assert evaluate(GivenProbabilities(p), data, truth=p) == report
    assert evaluate(GivenProbabilities(p), data, truth=p, seed=1).intervals != report.intervals


def test_declared_persons_are_resampled_whole() -> None:
    """Ten persons with ten equal trips each have the same resamples and intervals as ten trips."""
    rng = np.random.default_rng(0)
    p, took = rng.dirichlet(np.ones(4), 10), np.eye(4, dtype=int)[rng.integers(0, 4, 10)]
    once = read({"trip": np.repeat(np.arange(10), 4).tolist(), "took": took.ravel().tolist()})
    often = {
        "trip": np.repeat(np.arange(100), 4).tolist(),
        "took": np.repeat(took, 10, axis=0).ravel().tolist(),
        "who": np.repeat(np.arange(10), 40).tolist(),
    }
    model = GivenProbabilities(np.repeat(p, 10, axis=0).ravel())
    result, expected = evaluate(model, read(often, person="who")), evaluate(GivenProbabilities(p.ravel()), once)
    naive = evaluate(model, read(often))
    for name, ends in expected.intervals.items():
        assert result.intervals[name] == pytest.approx(ends, rel=1e-12)
        assert result.values[name] == naive.values[name] == pytest.approx(expected.values[name], rel=1e-12)
    assert np.diff(naive.intervals["nll"]) < np.diff(result.intervals["nll"]) / 2


def test_persons_of_a_scanned_table_are_resampled_as_in_memory(tmp_path: Path) -> None:
    n = 5000
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(n), 2))
    _, first = np.unique(ids, return_index=True)
    took = np.isin(np.arange(len(ids)), first).astype(int)
    path = tmp_path / "trips.parquet"
    write_table(pa.table({"trip": ids, "took": took, "x": ids % 17 / 17, "who": [f"p{k % 40}" for k in ids]}), path)
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "features": ["x"], "person": "who"}
    scanned = ChoiceData.scan(path, memory="1 MiB", **roles)
    assert len(scanned.manifest.shards) > 1
    assert evaluate(Prefers(), scanned) == evaluate(Prefers(), ChoiceData.from_long(path, **roles))


class Prefers:
    """A model that chooses the first row of a set with a probability that depends on the set."""

    def predict_log_proba(self, data: ChoiceData) -> NDArray[np.float64]:
        p = 0.2 + 0.6 * data.features["x"].values[data.offsets[:-1]].astype(np.float64)
        return data.to_rows(np.log(np.column_stack([p, 1 - p]).ravel()))


def test_random_ties_give_hits_of_0_or_1_from_one_draw() -> None:
    """In 1,000 sets of four equal alternatives, top 1 is about 1/4, top 4 is 1, and each hit is 0 or 1."""
    sets = 1000
    data = read({"trip": np.repeat(np.arange(sets), 4).tolist(), "took": [1, 0, 0, 0] * sets})
    report = evaluate(GivenProbabilities(np.full(4 * sets, 0.25)), data, top=(1, 4), ties="random", resamples=0)
    assert report.top[4] == 1.0
    assert report.top[1] != 0.25
    assert report.top[1] == pytest.approx(0.25, abs=0.055)  # four standard errors of 1,000 draws
    assert report.top[1] * sets == pytest.approx(round(report.top[1] * sets), abs=1e-9)
    again = [
        evaluate(GivenProbabilities(np.full(4 * sets, 0.25)), data, ties="random", seed=s, resamples=0) for s in (0, 1)
    ]
    assert again[0].top[1] == report.top[1] != again[1].top[1]
    log_p = np.full(4 * sets, np.log(0.25))
    hits = metrics_per_set(log_p, data.offsets, np.zeros(sets, int), (1, 2), rng=np.random.default_rng(0))
    assert (hits["top_1"] <= hits["top_2"]).all()


def test_a_report_prints_an_aligned_table(data: ChoiceData) -> None:
    text = str(evaluate(GivenProbabilities(P), data, top=(1, 2), truth=[0.5, 0.5, 0.25, 0.5, 0.25]))
    assert text.splitlines() == [
        "2 choice sets",
        "metric    value        95% interval  uniform",
        "NLL      1.3863    1.3863 to 1.3863   0.8959",
        "TOP 1    0.0000    0.0000 to 0.0000   0.4167",
        "TOP 2    0.7500    0.5000 to 1.0000   0.8333",
        "BRIER    1.0000    0.8750 to 1.1250   0.5833",
        "KL      0.15856  0.14384 to 0.17329  0.02945",
    ]


def test_markdown_has_the_same_cells(data: ChoiceData) -> None:
    assert evaluate(GivenProbabilities(P), data, top=(2,)).to_markdown().splitlines() == [
        "| metric | value | 95% interval | uniform |",
        "| --- | ---: | ---: | ---: |",
        "| NLL | 1.3863 | 1.3863 to 1.3863 | 0.8959 |",
        "| TOP 2 | 0.7500 | 0.5000 to 1.0000 | 0.8333 |",
        "| BRIER | 1.0000 | 0.8750 to 1.1250 | 0.5833 |",
    ]


def test_zero_resamples_give_no_intervals(data: ChoiceData) -> None:
    report = evaluate(GivenProbabilities(P), data, top=(), resamples=0)
    assert report.intervals == {}
    assert str(report).splitlines()[1] == "metric   value  uniform"


def test_the_dict_survives_json(data: ChoiceData) -> None:
    result = evaluate(GivenProbabilities(P), data, top=np.array([1, 2]), truth=[0.5, 0.5, 0.25, 0.5, 0.25]).to_dict()  # type: ignore[arg-type]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["top"]["2"] == pytest.approx(0.75)
    assert result["intervals"]["top_2"] == pytest.approx([0.5, 1.0])
    assert "kl" in result
    assert "kl" not in evaluate(GivenProbabilities(P), data).to_dict()


def test_impossible_choices_are_counted_and_null_in_json(data: ChoiceData) -> None:
    report = evaluate(GivenProbabilities([1, 0, 0.5, 0.25, 0.25]), data, top=(1,), truth=[0.5, 0.5, 0.25, 0.5, 0.25])
    assert (report.nll, report.kl, report.n_impossible) == (np.inf, np.inf, 1)
    assert report.intervals["nll"] == pytest.approx((2 * LOG2, np.inf), rel=1e-14)
    result = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (result["nll"], result["kl"], result["n_impossible"]) == (None, None, 1)
    assert result["intervals"]["nll"] == [pytest.approx(2 * LOG2), None]
    lines = str(report).splitlines()
    assert lines[2].split() == ["NLL", "inf", "1.3863", "to", "inf", "0.8959"]
    assert lines[-1] == "Observed choices with predicted probability 0: 1."


def test_accuracies_that_are_always_1_are_omitted_with_a_note(data: ChoiceData) -> None:
    """Sets have 2 and 3 alternatives: every choice is among the first 3, but not among the first 2."""
    report = evaluate(GivenProbabilities(P), data, top=(1, 2, 3, 5), resamples=0)
    assert [line.split()[:2] for line in str(report).splitlines()[2:6]] == [
        ["NLL", "1.3863"],
        ["TOP", "1"],
        ["TOP", "2"],
        ["BRIER", "1.0000"],
    ]
    reasons = [f"TOP {n} is left out: no choice set has more than {n} alternatives." for n in (3, 5)]
    assert str(report).splitlines()[6:] == reasons
    assert all(reason in report.to_markdown() for reason in reasons)
    assert report.top[5] == 1.0  # the value itself is kept


def test_one_set_has_values_but_no_intervals(data: ChoiceData) -> None:
    report = evaluate(GivenProbabilities([0.75, 0.25]), data.subset([0]), top=(1,))
    assert report.intervals["nll"] == (-np.inf, np.inf)
    assert report.to_dict()["intervals"]["nll"] == [None, None]
    assert str(report).splitlines()[:3] == [
        "1 choice set",
        "metric   value  95% interval  uniform",
        "NLL     1.3863       unknown   0.6931",
    ]


def test_a_report_is_immutable(data: ChoiceData) -> None:
    report = evaluate(GivenProbabilities(P), data)
    assert isinstance(report, Report)
    with pytest.raises(AttributeError):
        report.nll = 0.0  # type: ignore[misc]


def test_an_evaluation_needs_choices() -> None:
    unknown = ChoiceData.from_long({"trip": [1, 1]}, choice_set="trip")
    with pytest.raises(InputError, match=r"an evaluation needs the choices: read the table with chosen="):
        evaluate(GivenProbabilities([0.5, 0.5]), unknown)


@pytest.mark.parametrize("sets", [[], [0]])
def test_a_part_without_weight_is_refused(sets: list[int]) -> None:
    data = read(table(w=[0, 0, 1, 1, 1]), weight="w").subset(sets)
    with pytest.raises(InputError, match=f"weight above 0, got none in {len(sets)}"):
        evaluate(GivenProbabilities([0.5, 0.5]), data)


def test_predictions_and_true_probabilities_are_checked(data: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"row 0 \(choice set 1\): expected a log-probability, got NaN"):
        evaluate(GivenProbabilities([np.nan, *P[1:]]), data)
    with pytest.raises(InputError, match="truth, choice set 2: expected probabilities that add up to 1"):
        evaluate(GivenProbabilities(P), data, truth=[0.5, 0.5, 0.25, 0.5, 0.5])


@pytest.mark.parametrize("top", [(0,), (1, -5), (1.0,), (True,), 5, "15"])
def test_top_must_list_whole_numbers_from_1(top: Any, data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match="top must be distinct whole numbers of at least 1"):
        evaluate(GivenProbabilities(P), data, top=top)


@pytest.mark.parametrize("name", ["resamples", "seed"])
@pytest.mark.parametrize("value", [-1, 1.5, True, None])
def test_resamples_and_seed_must_be_whole_numbers_from_0(name: str, value: Any, data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a whole number of at least 0, got {value}"):
        evaluate(GivenProbabilities(P), data, **{name: value})


def test_an_unknown_tie_rule_is_refused(data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"ties must be one of \('expected', 'random'\), got 'first'"):
        evaluate(GivenProbabilities(P), data, ties="first")  # type: ignore[arg-type]


# -- tables and invalid input ----------------------------------------------------------------------------


class WithSchema(GivenProbabilities):
    """A model with a schema."""

    schema = Schema(choice_set="trip", chosen="took")


def test_a_table_is_read_by_the_schema_of_the_model(data: ChoiceData, tmp_path: Path) -> None:
    expected = evaluate(GivenProbabilities(P), data).to_dict()
    assert evaluate(WithSchema(P), table()).to_dict() == expected
    assert evaluate(WithSchema(P), pa.table(table())).to_dict() == expected
    write_table(pa.table(table()), tmp_path / "t.csv")
    assert evaluate(WithSchema(P), tmp_path / "t.csv", truth=P).kl == 0


def test_a_table_needs_a_model_with_a_schema() -> None:
    with pytest.raises(InputError, match="data: expected ChoiceData, got dict, and GivenProbabilities has no schema"):
        evaluate(GivenProbabilities(P), table())


def test_an_object_without_predictions_is_refused(data: ChoiceData) -> None:
    nothing: Any = object()
    with pytest.raises(InputError, match="model: expected an object with a predict_log_proba method, got object"):
        evaluate(nothing, data)


def test_truth_and_predictions_must_be_numbers(data: ChoiceData) -> None:
    with pytest.raises(InputError, match="truth: expected numbers, got list"):
        evaluate(GivenProbabilities(P), data, truth=["a"] * 5)
    text: Any = type("Text", (), {"predict_log_proba": lambda self, data: ["a"] * 5})()
    with pytest.raises(InputError, match=r"Text.predict_log_proba: expected numbers, got list"):
        evaluate(text, data)


# -- rankings and scores -----------------------------------------------------------------------------------------


class GivenRanking:
    """A model that ranks the rows of the table by given scores."""

    gives = "ranking"

    def __init__(self, scores: ArrayLike) -> None:
        self.scores = np.asarray(scores)

    def predict_log_proba(self, data: ChoiceData) -> NDArray[np.float64]:
        raise AssertionError("a ranking is not asked for probabilities")

    def predict_scores(self, data: ChoiceData) -> NDArray[np.float64]:
        return self.scores


class GivenScores(GivenProbabilities):
    gives = "scores"


def test_a_ranking_has_accuracies_but_no_nll(data: ChoiceData) -> None:
    """Set 1 chooses its first, set 2 one of two tied for rank 2: top 1 is 1/2, top 2 is (1 + 1/2) / 2."""
    report = evaluate(GivenRanking([1, 9, 3, 2, 2]), data, top=(1, 2), truth=P)  # type: ignore[arg-type]
    assert (report.nll, report.brier, report.kl, report.gives) == (None, None, None, "ranking")
    assert report.top == {1: 0.5, 2: 0.75}
    assert set(report.intervals) == {"top_1", "top_2"}
    assert str(report).splitlines() == [
        "2 choice sets",
        "metric   value      95% interval  uniform",
        "NLL          -                 -   0.8959",
        "TOP 1   0.5000  0.0000 to 1.0000   0.4167",
        "TOP 2   0.7500  0.5000 to 1.0000   0.8333",
        "BRIER        -                 -   0.5833",
        f"KL           -                 -  {report.uniform['kl']:.5f}",
    ]
    result = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (result["nll"], result["brier"], result["kl"], result["gives"]) == (None, None, None, "ranking")
    assert (result["n_impossible"], result["intervals"]["top_1"]) == (0, [0.0, 1.0])


def test_only_equal_scores_are_tied_in_a_ranking(data: ChoiceData) -> None:
    """Scores may be tiny: 2e-9 is above 1e-9."""
    report = evaluate(GivenRanking([1e-9, 2e-9, 1e-9, 2e-9, 0]), data, top=(1,))  # type: ignore[arg-type]
    assert report.top[1] == 1.0


def test_a_ranking_may_be_evaluated_without_accuracies(data: ChoiceData) -> None:
    report = evaluate(GivenRanking([1, 9, 3, 2, 2]), data, top=())  # type: ignore[arg-type]
    assert report.values == {"nll": None, "brier": None}
    assert str(report).splitlines()[1].split() == ["metric", "value", "uniform"]


def test_ties_of_a_ranking_may_be_broken_at_random(data: ChoiceData) -> None:
    result = {evaluate(GivenRanking([1, 9, 2, 2, 1]), data, (1,), s, ties="random").top[1] for s in range(20)}  # type: ignore[arg-type]
    assert result == {0.5, 1.0}


def test_scores_are_evaluated_as_probabilities_and_marked(data: ChoiceData) -> None:
    report, plain = evaluate(GivenScores(P), data, top=(1,)), evaluate(GivenProbabilities(P), data, top=(1,))
    assert report.values == plain.values
    assert report.to_dict() == {**plain.to_dict(), "gives": "scores"}
    assert plain.to_dict()["gives"] == "probabilities"
    note = "* scores normalised within each set, not probabilities"
    lines = str(report).splitlines()
    assert [line.split()[-5] for line in lines[2:5]] == ["1.3863*", "0.0000", "1.0000*"]
    assert lines[-1] == note
    assert note not in str(plain)
    assert report.to_markdown().splitlines()[-2:] == ["", f"\\{note}"]
