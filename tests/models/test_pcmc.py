"""The chain of items: the published method, known rates, published figures, penalties, bins and options."""

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.errors import ArtifactError, ConfigError, InputError
from pcmcnet.models import CDM, PCMC, BradleyTerry
from pcmcnet.models.interface.options import make_config
from pcmcnet.models.interface.parse_options import parse_option
from pcmcnet.models.items.strengths import StrengthPrior
from pcmcnet.models.pcmc import PCMCConfig

FOLDER = Path(__file__).parents[3] / "shared" / "data"
ROLES: dict[str, Any] = {"choice_set": "set", "chosen": "chosen", "alternative": "item", "weight": "weight"}


def read_shared(name: str, **roles: Any) -> ChoiceData:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of the repository")
    return ChoiceData.from_long(path, choice_set="choice_set", chosen="chosen", alternative="alternative", **roles)


def choices(rates: np.ndarray, total: float) -> ChoiceData:
    """Return all subsets of the items, each with ``total`` choices in exact proportion to the chain's probabilities."""
    n, rows, count = len(rates), [], 0
    for size in range(2, n + 1):
        for items in combinations(range(n), size):
            probabilities = pn.stationary_distribution(torch.from_numpy(rates[np.ix_(items, items)])).numpy()
            for chosen, p in zip(items, probabilities, strict=True):
                rows += [(count, "abcdefgh"[i], int(i == chosen), total * p) for i in items]
                count += 1
    return ChoiceData.from_long(
        dict(zip(("set", "item", "chosen", "weight"), zip(*rows, strict=True), strict=True)), **ROLES
    )


def random_rates(n: int, seed: int) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(size=(n, n)))


def sample(data: ChoiceData, total: int, seed: int) -> ChoiceData:
    """Replace exact weights by ``total`` multinomial draws from each distinct set."""
    rng, weights, s = np.random.default_rng(seed), data.weights.copy(), 0
    while s < len(data):
        n = int(data.sizes[s])
        weights[s : s + n] = rng.multinomial(total, weights[s : s + n] / weights[s : s + n].sum())
        s += n
    table = {"set": data.set_of_alternative, "item": data.labels.plain(), "weight": weights[data.set_of_alternative]}  # type: ignore[union-attr]
    chosen = np.zeros(len(data.rows), np.int8)
    chosen[data.offsets[:-1] + data.require_chosen("test")] = 1
    return ChoiceData.from_long({**table, "chosen": chosen}, **ROLES)


def expected_l1(model: pn.PCMC, test: ChoiceData) -> float:
    """Ragain & Ugander's error: the L1 distance between frequencies and probabilities of each distinct set of the
    test part, averaged by the shares of the sets in it."""
    labels, p = test.labels, test.from_rows(model.predict_proba(test))
    assert labels is not None
    probabilities: dict[tuple[str, ...], np.ndarray] = {}
    counts: dict[tuple[str, ...], np.ndarray] = {}
    for s, chosen in enumerate(test.require_chosen("test")):
        inside = slice(test.offsets[s], test.offsets[s + 1])
        order = np.argsort(labels.plain()[inside])
        key = tuple(labels.plain()[inside][order])
        probabilities[key] = p[inside][order]
        counts[key] = counts.get(key, 0) + (order == chosen)
    return sum(float(np.abs(c - c.sum() * probabilities[key]).sum()) for key, c in counts.items()) / len(test)


# -- the estimate --------------------------------------------------------------------------------------------------


def test_exact_frequencies_recover_the_chain() -> None:
    """Rock-paper-scissors and a fourth item: no logit can express it, and the truth maximises the likelihood.

    L-BFGS ends where a step gains less than 1e-12 in the mean, some 1e-6 from the maximum.
    """
    rates = np.array([[0, 9, 1, 2], [1, 0, 9, 2], [9, 1, 0, 2], [1, 1, 1, 0.0]])
    data = choices(rates, 100.0)
    model = PCMC(smoothing=0, ridge=0, restarts=1, tolerance=1e-14, max_iter=2000).fit(data)
    whole = [np.flatnonzero(data.sizes == 4)[0], np.flatnonzero(data.sizes == 3)[0]]
    for s in whole:
        items = [k for k in range(4) if "abcd"[k] in data.labels.plain()[data.offsets[s] : data.offsets[s + 1]]]  # type: ignore[union-attr]
        probabilities = pn.stationary_distribution(torch.from_numpy(rates[np.ix_(items, items)])).numpy()
        result = np.exp(model._log_proba(data))[data.offsets[s] : data.offsets[s + 1]]
        np.testing.assert_allclose(result, probabilities, rtol=0, atol=1e-5)


def test_a_sampled_chain_is_recovered_within_sampling_error() -> None:
    """1,000 choices from each of the 26 sets of 5 items: an empirical frequency has an error of up to .016, and the
    model, which pools the sets, must do better on average and come within 4 errors everywhere."""
    exact = choices(random_rates(5, seed=1), 1.0)
    model = PCMC(restarts=3, ridge=0.1).fit(sample(exact, 1000, seed=2))
    truth = exact.weights  # one weighted set for each item and set
    chosen = exact.offsets[:-1] + exact.require_chosen("test")
    result = np.exp(model._log_proba(exact))[chosen]
    error = np.sqrt(truth * (1 - truth) / 1000)
    assert (np.abs(result - truth) < 4 * error).all()
    assert np.abs(result - truth).mean() < np.sqrt(2 / np.pi) * error.mean()  # the error of frequencies


def test_the_published_method_and_lbfgs_agree() -> None:
    """Both stop before the maximum by their tolerance: 1e-4 in the probabilities."""
    data = sample(choices(random_rates(4, seed=3), 1.0), 200, seed=4)
    common: dict[str, Any] = {"restarts": 3, "tolerance": 1e-12, "max_iter": 2000}
    ours = PCMC(ridge=0.0, **common).fit(data)
    theirs = PCMC(method="slsqp", **common).fit(data)
    np.testing.assert_allclose(theirs.predict_proba(data), ours.predict_proba(data), rtol=0, atol=1e-4)
    pair_sums = (theirs.rates_ + theirs.rates_.T)[~np.eye(4, dtype=bool)]
    assert pair_sums.min() >= 1 - 1e-6  # the constraint, to the accuracy of SLSQP


def test_the_search_improves_on_its_logit_start() -> None:
    data = sample(choices(random_rates(4, seed=5), 1.0), 50, seed=6)
    chain = PCMC(smoothing=0.1, restarts=1, ridge=0.1).fit(data)
    assert chain.record_.nll < BradleyTerry(smoothing=0.1).fit(data).record_.nll


def test_the_best_start_is_kept_and_all_are_recorded() -> None:
    data = sample(choices(random_rates(4, seed=5), 1.0), 50, seed=6)
    model = PCMC(restarts=4, ridge=0.0).fit(data, seed=1)
    assert len(model.record_.objectives) == 4
    single = PCMC(restarts=1, ridge=0.0).fit(data, seed=1)
    assert single.record_.objectives[0] == model.record_.objectives[0]
    assert min(model.record_.objectives) <= single.record_.objectives[0]


def test_pairs_that_never_meet_keep_the_rates_of_the_logit() -> None:
    """a-b and b-c meet, a-c do not: the rates of a-c are those of Bradley-Terry."""
    rows = [(0, "a", 1, 3.0), (0, "b", 0, 3.0), (1, "a", 0, 1.0), (1, "b", 1, 1.0)]
    rows += [(2, "b", 1, 2.0), (2, "c", 0, 2.0), (3, "b", 0, 2.0), (3, "c", 1, 2.0)]
    data = ChoiceData.from_long(
        dict(zip(("set", "item", "chosen", "weight"), zip(*rows, strict=True), strict=True)), **ROLES
    )
    model = PCMC().fit(data)
    s = BradleyTerry().fit(data).strengths_
    expected = 1 / (1 + np.exp(s[0] - s[2]))
    # The ridge of 1e-6 on the start moves log-strengths by about 1e-6.
    assert model.rates_[0, 2] == pytest.approx(expected, abs=1e-6)
    assert model.rates_[0, 2] + model.rates_[2, 0] == pytest.approx(1, abs=1e-12)
    assert model.record_.informed_rates == 4
    assert model.num_parameters == 6


def test_an_item_never_chosen_gives_no_nan_without_smoothing() -> None:
    rows = [(s, item, int(item == "a"), 1.0) for s in range(5) for item in "abc"]
    data = ChoiceData.from_long(
        dict(zip(("set", "item", "chosen", "weight"), zip(*rows, strict=True), strict=True)), **ROLES
    )
    p = PCMC(smoothing=0, ridge=0, restarts=1).fit(data).predict_proba(data)
    assert np.isfinite(p).all()
    assert p[0] > 0.99


# -- the learnt penalty --------------------------------------------------------------------------------------------


def test_the_learnt_ridge_is_reported_and_reproducible() -> None:
    data = sample(choices(random_rates(4, seed=5), 1.0), 50, seed=6)
    model = PCMC(restarts=1).fit(data)
    ridge = model.record_.penalty.penalty
    assert 0.01 <= ridge <= 10  # no logit has these rates
    assert f"penalty                  {ridge:g}, learnt from" in str(model.summary())
    direct = PCMC(restarts=1, ridge=ridge).fit(data)
    np.testing.assert_allclose(model.predict_proba(data), direct.predict_proba(data), rtol=0, atol=1e-3)


@pytest.mark.parametrize(("options", "learnt"), [({}, 1), ({"ridge": 0.1}, 0), ({"method": "slsqp"}, 0)])
def test_the_logit_start_is_learnt_only_with_a_learnt_ridge(
    options: dict[str, Any], learnt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A given ridge and the published method use the smoothing of the options."""
    smoothings: list[float] = []

    def learn(*arguments: Any, smoothing: float, **settings: Any) -> StrengthPrior:
        smoothings.append(smoothing)
        return StrengthPrior(smoothing)

    monkeypatch.setattr(StrengthPrior, "learn", learn)
    PCMC(restarts=1, smoothing=0.2, **options).fit(choices(random_rates(3, seed=5), 30.0))
    assert smoothings == [0.2] * learnt


def test_choices_of_a_logit_give_an_infinite_penalty() -> None:
    exact = choices(np.exp(np.tile([0.0, 0.5, 1.0, -1.0], (4, 1))), 1.0)
    data = sample(exact, 30, seed=0)
    model = PCMC(restarts=1).fit(data)
    assert model.record_.penalty.penalty == math.inf
    np.testing.assert_allclose(
        model.predict_proba(exact), BradleyTerry().fit(data).predict_proba(exact), rtol=0, atol=1e-6
    )
    assert "infinite: the plain logit" in str(model.summary())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PCMC, CDM])
def test_a_learnt_penalty_beats_the_logit_if_there_is_context(kind: Any) -> None:
    """8 tables with 60 choices from each of 57 sets of 6 items. Losses are exact; without context, none is lost."""
    options = {"restarts": 1} if kind is PCMC else {}
    lost, won = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        logit = np.exp(np.tile(rng.normal(size=6), (6, 1)))
        for rates, gains in ((logit, lost), (random_rates(6, seed), won)):
            exact = choices(rates, 1.0)
            data = sample(exact, 60, seed=seed)
            gains.append(kind(**options).fit(data).score(exact) - BradleyTerry().fit(data).score(exact))
    assert min(lost) >= -0.0005
    assert min(won) > 0.005


# -- binned --------------------------------------------------------------------------------------------------------

BINNED: dict[str, Any] = {"bins": {"attr1": 8, "attr2": 8}, "identified": ("a", "b")}


def read_mlba(table: pa.Table) -> ChoiceData:
    names = {"choice_set": "choice_set", "chosen": "chosen", "alternative": "alternative"}
    return ChoiceData.from_long(table, **names, features=["attr1", "attr2"])


def test_unseen_cells_of_the_papers_grid_have_probabilities() -> None:
    """40 sets fill at most 40 of the 64 cells."""
    model = PCMC(**BINNED, restarts=1).fit(read_mlba(mlba.simulate(40, seed=0)))
    assert model.num_parameters == 66 * 65 == 4290
    fresh = read_mlba(mlba.simulate(500, seed=1))
    p = model.predict_proba(fresh).reshape(-1, 3)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert p.min() > 0
    never = (model.offered_ == 0)[model.universe_.index(fresh)].reshape(-1, 3)[:, 2]
    assert 0 < never.sum() < 500
    assert len(np.unique(p[never].round(12), axis=0)) == 1  # the same neutral distribution
    assert "never seen" in str(model.summary())


def test_alternatives_of_one_cell_share_its_probability() -> None:
    table = {"set": [0, 0, 0, 1, 1], "chosen": [1, 0, 0, 0, 1], "x": [0.0, 0.1, 1.0, 0.0, 1.0]}
    data = ChoiceData.from_long(table, choice_set="set", chosen="chosen", features=["x"])
    p = PCMC(bins={"x": 2}).fit(data).predict_proba(data)
    assert p[0] == pytest.approx(p[1], rel=1e-15)
    assert p[0] + p[1] == pytest.approx(p[3], rel=1e-12)  # uniform expansion


def test_a_grid_with_one_cell_is_refused() -> None:
    with pytest.raises(InputError, match="same cell: use more bins"):
        PCMC(bins={"attr1": 1}).fit(read_mlba(mlba.simulate(10, seed=0)))


def test_unconnected_items_are_accepted() -> None:
    """Unlike strengths, rates within a set do not depend on other sets. Rates across sets have a default."""
    rows = [
        (s, item, int(item == pair[s % 2]), 1.0) for s, pair in enumerate(["ab", "ab", "cd", "cd"]) for item in pair
    ]
    data = ChoiceData.from_long(
        dict(zip(("set", "item", "chosen", "weight"), zip(*rows, strict=True), strict=True)), **ROLES
    )
    model = PCMC().fit(data)
    mixed = {"set": [0, 0, 0, 0], "item": list("abcd")}
    p = model.predict_proba(ChoiceData.from_long(mixed, choice_set="set", alternative="item"))
    np.testing.assert_allclose(
        p, 0.25, rtol=0, atol=1e-6
    )  # all items were chosen equally often; the search has a tolerance


# -- options, invalid input, saved form ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": -0.1}, "smoothing must be"),
        ({"method": "newton"}, "unknown method 'newton'"),
        ({"restarts": 0}, "restarts must be"),
        ({"ridge": "none"}, "ridge must be 'auto' or a number"),
        ({"speeds": -1}, "speeds must be"),
        ({"bins": {"x": 0}}, "bins of 'x' must be a whole number of at least 1"),
        ({"bins": "x"}, "bins must map features"),
        ({"bins": {"x": 2}, "identified": "ab"}, "identified must be a list of distinct labels"),
        ({"bins": {"x": 2}, "identified": ("a", "a")}, "identified must be a list of distinct labels"),
        ({"identified": ("a",)}, "bins is empty"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PCMC(**options)


def test_options_can_be_given_as_words() -> None:
    words = ["bins=attr1:8,attr2:8", "identified=0,1", "method=lbfgs", "restarts=2"]
    config = make_config(PCMCConfig, dict(parse_option(PCMCConfig, word) for word in words))
    assert config == PCMCConfig(bins={"attr1": 8, "attr2": 8}, identified=("0", "1"), restarts=2)


def test_universes_that_are_too_large_are_refused_with_a_remedy() -> None:
    many = [f"item {k}" for k in range(13)]
    table = {"set": [0] * 13, "item": many, "chosen": [1] + [0] * 12}
    data = ChoiceData.from_long(table, choice_set="set", chosen="chosen", alternative="item")
    with pytest.raises(ConfigError, match=r"up to 12 items, got 13: use 'lbfgs'"):
        PCMC(method="slsqp").fit(data)
    with pytest.raises(InputError, match=r"up to 2,000 items, got 2,500.*fewer bins, or PCMC-Net"):
        PCMC(bins={"attr1": 50, "attr2": 50}).fit(read_mlba(mlba.simulate(10, seed=0)))


def test_an_unseen_item_is_refused_with_a_remedy() -> None:
    data = choices(random_rates(3, seed=0), 1.0)
    model = PCMC(restarts=1).fit(data.subset(data.sizes == 2).subset([0, 1]))
    with pytest.raises(InputError, match=r"item 'c' .* use PCMC-Net \(pcmcnet\)"):
        model.predict_proba(data)


@pytest.mark.parametrize("binned", [False, True])
def test_a_damaged_file_is_refused(binned: bool) -> None:
    data = read_mlba(mlba.simulate(20, seed=0))
    options = BINNED if binned else {}
    model = PCMC(restarts=1, **options).fit(data)
    files, about = model._files(), (model.record_, model.table_)
    PCMC(**options)._restore(files, *about)
    with pytest.raises(ArtifactError, match="cannot be read"):
        PCMC(**options)._restore({**files, "weights.safetensors": files["weights.safetensors"][:-8]}, *about)
    fewer = json.loads(files["items.json"])
    if binned:
        fewer["identified"] = ["a"]
    else:
        fewer["items"] = fewer["items"][:-1]
    with pytest.raises(ArtifactError, match="the saved array log_rates does not match"):
        PCMC(**options)._restore({**files, "items.json": json.dumps(fewer).encode()}, *about)


def test_a_search_that_did_not_converge_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    rates = np.array([[0.0, 2, 1], [1, 0, 3], [2, 1, 0]])
    assert not PCMC(max_iter=1, restarts=1).fit(choices(rates, 30)).record_.converged
    assert "within max_iter=1" in caplog.text


# -- figures on data -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_chain_predicts_commutes_better_than_a_logit_of_items() -> None:
    data = read_shared("sfwork.parquet")
    chain, logit = [], []
    for seed in range(5):
        order = np.random.RandomState(seed).permutation(len(data))
        cut = int(0.75 * len(data))
        train, test = data.subset(order[:cut]), data.subset(order[cut:])
        model = PCMC().fit(train)
        chain.append((-model.score(test), expected_l1(model, test)))
        logit.append(-BradleyTerry().fit(train).score(test))
    nll, error = np.mean(chain, axis=0)
    assert nll <= 0.8142
    assert error <= 0.092
    assert np.mean(logit) == pytest.approx(0.8256, abs=5e-5)  # to four digits


@pytest.mark.slow
def test_the_binned_chain_has_the_published_divergence() -> None:
    """Table 1: .022 for 4,290 parameters."""
    train = read_shared("mlba_train.parquet", features=["attr1", "attr2"])
    model = PCMC(bins={"attr1": 8, "attr2": 8}, identified=("0", "1"), restarts=1, ridge=0.1).fit(train)
    assert model.num_parameters == 4290
    fresh = mlba.simulate(10_000, seed=99)
    labels = pa.array(np.tile(["0", "1", "2"], 10_000))
    data = read_mlba(fresh.set_column(fresh.schema.get_field_index("alternative"), "alternative", labels))
    report = pn.evaluate(model, data, truth=fresh["true_prob"].to_numpy(), resamples=0)
    assert report.kl is not None
    assert report.kl <= 0.022


@pytest.mark.parametrize("weight", [1e-12, 1e12])
def test_very_large_and_small_weights_can_be_fitted(weight: float) -> None:
    rng = np.random.default_rng(0)
    chosen = (np.arange(3) == rng.integers(3, size=(40, 1))).ravel().astype(int)
    table = {
        "set": np.repeat(np.arange(40), 3),
        "item": ["a", "b", "c"] * 40,
        "took": chosen,
        "w": np.full(120, weight),
    }
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", alternative="item", weight="w")
    assert np.isfinite(PCMC(restarts=1).fit(data).predict_log_proba(data)).all()
