import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from choice_tables import read, trips
from pcmcnet.errors import ConfigError
from pcmcnet.evaluation import evaluate, scorer
from pcmcnet.models import MNL, RankBy

DATA = read(trips(40, slope=-0.2), features=["price", "minutes"])


def test_scores_equal_the_metrics_of_a_report() -> None:
    model = MNL().fit(DATA, progress=False)
    report = evaluate(model, DATA, top=[1, 2], resamples=0)
    assert scorer("neg_log_loss")(model, DATA) == -report.nll == pytest.approx(model.score(DATA), abs=1e-12)
    assert scorer("neg_brier_score")(model, DATA) == -report.brier  # type: ignore[operator]
    assert scorer("accuracy")(model, DATA) == report.top[1]
    assert scorer("top_2")(model, DATA) == report.top[2]


def test_tools_of_scikit_learn_accept_the_scorers() -> None:
    options = {"cv": 3, "params": {"progress": False}}
    scores = cross_val_score(MNL(), DATA, scoring=scorer("neg_log_loss"), **options)
    np.testing.assert_array_equal(scores, cross_val_score(MNL(), DATA, **options))
    search = GridSearchCV(MNL(), {"formula": ["price | 0", "minutes | 0"]}, scoring=scorer("accuracy"), cv=3).fit(
        DATA, progress=False
    )
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])


@pytest.mark.parametrize("name", ["log_loss", "top_0", "top_", "top_x", None])
def test_an_unknown_score_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown score"):
        scorer(name)


def test_a_ranking_has_no_log_loss() -> None:
    with pytest.raises(ConfigError, match="RankBy returns a ranking"):
        scorer("neg_log_loss")(RankBy("price").fit(DATA), DATA)
