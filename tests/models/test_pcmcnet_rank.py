"""PCMC-Net with factored rates (``rank=r``): every feature of the model works as with rates of all pairs."""

import json
import logging
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import pcmcnet as pn
from choice_tables import ROLES as TRIP_ROLES
from choice_tables import panel, read
from choice_tables import trips as trip_table
from pcmcnet.data import ChoiceData, Encoder, ScannedData
from pcmcnet.errors import ArtifactError, ConfigError
from pcmcnet.insight.elasticity import elasticity
from pcmcnet.layers import stationary_distribution
from pcmcnet.models import PCMCNet, load, pcmcnet
from pcmcnet.models.interface.saving import manifest_digest
from pcmcnet.models.networks.averaged_members import NetworkSpec, members_of, nominal_seconds
from pcmcnet.models.networks.factored_network import FactoredMixture, FactoredNetwork
from pcmcnet.models.networks.pairwise_network import PCMCNetwork
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.prediction import parameter_count
from pcmcnet.tuning.space import Space

RANK = 4


@pytest.fixture(scope="module")
def options(quick: dict[str, Any]) -> dict[str, Any]:
    return quick | {"rank": RANK, "dropout": 0.0}


@pytest.fixture(scope="module")
def model(trips: ChoiceData, options: dict[str, Any]) -> PCMCNet:
    """One network with four factors, which tests must not change."""
    fitted: PCMCNet = PCMCNet(**options).fit(trips, progress=False)
    return fitted


@pytest.fixture(scope="module")
def average(trips: ChoiceData, options: dict[str, Any]) -> PCMCNet:
    """Three networks, the last of which has bins."""
    fitted: PCMCNet = PCMCNet(**options | {"members": 3}).fit(trips, progress=False)
    return fitted


@pytest.fixture(scope="module")
def mixture(trips: ChoiceData, options: dict[str, Any]) -> PCMCNet:
    fitted: PCMCNet = PCMCNet(**options | {"classes": 2}).fit(trips, progress=False)
    return fitted


def weights(model: PCMCNet) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.network_.state_dict().values()]


# -- the option -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", 500, True])
def test_an_impossible_rank_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"rank must be a whole number from 1 to 128, 'auto' or None, got {value!r}"):
        PCMCNet(rank=value)


@pytest.mark.parametrize(
    "form", [{"rate": "relu", "epsilon": 0.5}, {"rate": "softplus"}, {"epsilon": 0.1}, {"initialisation": "paper"}]
)
def test_other_rates_have_no_factors(form: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"rank=8 needs rate='exp', epsilon=0 .*: use rank=None for other rates"):
        PCMCNet(rank=8, **form)
    assert PCMCNet(**form).config.rank == "auto"  # which then means all pairs


def test_the_paper_scores_all_pairs(trips: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcmcnet, "MAX_PAIRWISE_ALTERNATIVES", 2)
    model = PCMCNet.paper((4,), epochs=1, batch_size=8).fit(trips, progress=False)
    assert isinstance(model.network_, PCMCNetwork)


@pytest.mark.parametrize(("form", "remedy"), [({}, "use rank=16, or sample"), ({"rate": "softplus"}, "rate='exp'")])
def test_all_pairs_of_a_set_that_is_too_large_are_refused(
    trips: ChoiceData, form: dict[str, Any], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcmcnet.models.pcmcnet.MAX_PAIRS_OF_A_SET", 8)
    with pytest.raises(ConfigError, match=remedy):
        PCMCNet(**{"rank": None, "utility": "none", **form}).fit(trips, progress=False)


def test_small_tables_score_all_pairs(trips: ChoiceData, quick: dict[str, Any]) -> None:
    model, pairwise = (PCMCNet(**quick | rank).fit(trips, progress=False) for rank in ({}, {"rank": None}))
    assert model.spec_.rank is None
    assert weights(model) == weights(pairwise)
    assert "rates" not in model.summary().facts


def sets_of(size: int, sets: int = 12) -> ChoiceData:
    """Choice sets of one size with two features, of which the first decides."""
    rng = np.random.default_rng(size)
    x = rng.normal(size=(sets, size, 2))
    took = x[..., :1].argmax(1) == np.arange(size)
    table = {"trip": np.repeat(np.arange(sets), size), "x": x[..., 0].ravel(), "y": x[..., 1].ravel()}
    return read(table | {"took": took.ravel()}, features=["x", "y"])


@pytest.mark.parametrize("limit", [("MAX_PAIRWISE_ALTERNATIVES", 7), ("MAX_PAIRWISE_SECONDS", 1e-9)])
def test_large_tables_have_factors_and_the_log_says_so(
    limit: tuple[str, float],
    quick: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(pcmcnet, *limit)
    with caplog.at_level(logging.INFO, "pcmcnet"):
        model = PCMCNet(**quick).fit(sets_of(10), progress=False)
    assert isinstance(model.network_, FactoredNetwork)
    assert model.spec_.rank == pcmcnet.AUTO_RANK
    assert "rank 16: the rates are factored, because" in caplog.text
    assert "Set rank=None for a network that scores all pairs" in caplog.text
    assert model.summary().facts["rates"] == "factored, rank 16 (chosen for the size of the table)"
    monkeypatch.undo()  # a saved model does not choose again
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.spec_.rank == pcmcnet.AUTO_RANK
    assert np.array_equal(loaded.predict_proba(sets_of(10)), model.predict_proba(sets_of(10)))


def test_the_rank_may_exceed_the_number_of_alternatives(trips: ChoiceData, options: dict[str, Any]) -> None:
    model = PCMCNet(**options | {"rank": 128, "epochs": 1}).fit(trips, progress=False)
    np.testing.assert_allclose(model.predict_proba(trips).sum(), len(trips), rtol=1e-6)


def test_the_rank_is_read_from_the_command_line_and_in_searches() -> None:
    from pcmcnet.models.interface.parse_options import parse_option

    parsed = [parse_option(pcmcnet.PCMCNetConfig, f"rank={text}")[1] for text in ("8", "none", "auto")]
    assert parsed == [8, None, "auto"]
    space = Space.of(PCMCNet, {"rank": [4, 8, 16]})
    assert space.options({"rank": 1}) == {"rank": 8}


# -- saved models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "average", "mixture"])
def test_a_saved_model_predicts_the_same_bits(
    kind: str, request: pytest.FixtureRequest, trips: ChoiceData, tmp_path: Path
) -> None:
    model: PCMCNet = request.getfixturevalue(kind)
    loaded: Any = load(model.save(tmp_path / "model"))
    assert loaded.spec_ == model.spec_
    assert loaded.spec_.rank == RANK
    assert np.array_equal(loaded.predict_proba(trips), model.predict_proba(trips))
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(trips), model.predict_proba(trips))
    assert loaded.summary().facts["rates"] == "factored, rank 4"


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (10**9, r"unknown architecture \(1 classes, 1 members, rank 1000000000"),
        (RANK + 1, "the saved weights do not match the saved options"),
        (None, "the saved weights do not match the saved options"),
    ],
)
def test_a_saved_rank_that_does_not_match_is_refused(
    rank: int | None, message: str, model: PCMCNet, tmp_path: Path
) -> None:
    folder = model.save(tmp_path / "model")
    manifest = json.loads((folder / "model.json").read_bytes())
    assert manifest["fit"]["record"]["spec"]["rank"] == RANK
    manifest["fit"]["record"]["spec"]["rank"] = rank
    del manifest["sha256"]
    (folder / "model.json").write_text(json.dumps({**manifest, "sha256": manifest_digest(manifest)}))
    with pytest.raises(ArtifactError, match=message):
        load(folder)


@pytest.mark.parametrize("rank", [0, 129])
def test_an_impossible_rank_of_an_architecture_is_refused(rank: int) -> None:
    with pytest.raises(ArtifactError, match=f"rank {rank}, "):
        NetworkSpec(rank=rank).require_valid(1_000)
    NetworkSpec(rank=128).require_valid(1_000)


# -- averages, bins and classes -------------------------------------------------------------------------------------


def test_the_first_member_is_the_network_of_a_single_fit(average: PCMCNet, model: PCMCNet) -> None:
    first = members_of(average.network_)[0].state_dict()
    assert all(torch.equal(weight, first[name]) for name, weight in model.network_.state_dict().items())


def test_an_average_is_the_mean_of_its_members(average: PCMCNet, trips: ChoiceData) -> None:
    assert average.spec_ == NetworkSpec(bins=(0, 0, 8), rank=RANK)
    each = []
    for member, bins in zip(members_of(average.network_), average.spec_.bins, strict=True):
        encoder = average.encoder_.with_bins(bins)
        alone = FactoredNetwork(encoder, average.config, rank=RANK)
        alone.load_state_dict(member.state_dict())
        batch = encoder.encode(trips).batch(np.arange(len(trips)))
        with torch.no_grad():
            p = alone.eval()(batch).exp()
        each.append(p[batch.mask].numpy())
    np.testing.assert_allclose(trips.from_rows(average.predict_proba(trips)), np.mean(each, 0), atol=1e-6)
    assert max(np.abs(p - each[0]).max() for p in each[1:]) > 1e-3


def test_a_default_fit_learns_decay_members_and_bins(options: dict[str, Any]) -> None:
    data = read(trip_table(60, slope=-0.3), features=["price", "minutes"])
    model = PCMCNet(**options | {"weight_decay": "auto"}).fit(data, progress=False)
    assert model.record_.decay_search is not None
    assert model.spec_.members == 6
    assert all(isinstance(member, FactoredNetwork) for member in members_of(model.network_))


@pytest.mark.parametrize("kind", ["model", "average"])
def test_rates_have_the_predicted_distribution(kind: str, request: pytest.FixtureRequest, trips: ChoiceData) -> None:
    model: PCMCNet = request.getfixturevalue(kind)
    p = trips.from_rows(model.predict_proba(trips))
    for s, rates in enumerate(model.rates(trips)):
        inside = slice(trips.offsets[s], trips.offsets[s + 1])
        assert rates.shape == (trips.sizes[s],) * 2
        # float32 factors
        np.testing.assert_allclose(stationary_distribution(torch.from_numpy(rates)).numpy(), p[inside], atol=2e-6)


def test_rates_and_fixed_chains_of_classes_and_members(mixture: PCMCNet, average: PCMCNet, trips: ChoiceData) -> None:
    for model, chains in ((mixture, 2), (average, 3)):
        shares, rates = model.fixed_chains(trips)
        assert shares.shape == (len(trips), chains)
        p = trips.from_rows(model.predict_proba(trips))
        for s, of_set in enumerate(rates):
            mixed = shares[s] @ stationary_distribution(torch.from_numpy(of_set)).numpy()
            np.testing.assert_allclose(mixed, p[trips.offsets[s] : trips.offsets[s + 1]], atol=2e-6)  # float32 factors
    assert np.array_equal(mixture.rates(trips, of_class=2)[3], mixture.fixed_chains(trips)[1][3][1])


@pytest.mark.parametrize("by", ["person", "set"])
def test_classes_differ_and_follow_the_person(options: dict[str, Any], by: str) -> None:
    def tastes(rng: np.random.Generator, persons: int) -> Any:
        return np.where(rng.random((persons, 1)) < 0.5, [[3.0, 0.0]], [[-3.0, 0.0]])

    data = read(panel(30, tastes), features=["x", "y"], person="person")
    fit_options = options | {"classes": 2, "by": by, "epochs": 6, "weight_decay": 0.1}
    model = PCMCNet(**fit_options).fit(data, progress=False)
    assert isinstance(model.network_, FactoredMixture)
    assert model.n_classes_ == 2
    assert model.network_.batches_by_person == (by == "person")
    log_p = model._class_log_p(data)
    assert np.abs(np.exp(log_p[:, 0]) - np.exp(log_p[:, 1])).max() > 0.1
    assert model.summary().facts["classes"] == "2, one chain each"
    if by == "person":
        informed = model.predict_proba_given(data, data)
        chosen = data.offsets[:-1] + data.require_chosen("a test")
        rows = data.rows[chosen]
        assert np.log(informed[rows]).mean() > np.log(model.predict_proba(data)[rows]).mean() + 0.05


def test_classes_need_one_network(options: dict[str, Any], trips: ChoiceData) -> None:
    with pytest.raises(ConfigError, match="members=3 needs classes=1"):
        PCMCNet(**options | {"classes": 2, "members": 3})


# -- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1, 2])
def test_a_fit_obeys_the_signs_of_the_table(options: dict[str, Any], classes: int) -> None:
    """Choices follow a price coefficient of the wrong sign, so the data pull against the constraint."""
    table = trip_table(60, slope=0.3)
    roles: dict[str, Any] = {"features": ["price", "minutes"], "individual": ["income"], "alternative": "mode"}
    signed = read(table, signs={"price": "-"}, **roles)
    fit_options = options | {"epochs": 6, "classes": classes, "hidden": (8, 8)}
    model, free = (PCMCNet(**fit_options).fit(data, progress=False) for data in (signed, read(table, **roles)))
    dearer = np.append(True, table["trip"][1:] != table["trip"][:-1])  # the first alternative of each set
    largest_rise = {}
    for fitted in (model, free):
        prices = (table["price"] + extra * dearer for extra in (0.0, 0.1, 1.0, 10.0, 1e4))
        p = np.stack([fitted.predict_proba(table | {"price": price})[dearer] for price in prices])
        largest_rise[fitted] = float(np.diff(p, axis=0).max())
    assert largest_rise[free] > 0.01
    assert largest_rise[model] < 1e-6
    assert [check.wrong for check in model.table_.signs if check.column == "price"] == [0.0]


def test_labels_alone_reproduce_the_shares(options: dict[str, Any]) -> None:
    """In 100 equal sets, labels are chosen 60, 30 and 10 times: these are the probabilities."""
    table = {
        "trip": np.repeat(np.arange(100), 3),
        "mode": np.tile(["car", "bus", "bike"], 100),
        "took": np.eye(3)[np.repeat([0, 1, 2], [60, 30, 10])].ravel(),
    }
    data = read(table, alternative="mode")
    model = PCMCNet(**options | {"epochs": 60, "schedule": "cosine"}).fit(data, progress=False)
    shares = [model.predict_proba(data)[table["mode"] == mode].mean() for mode in ("car", "bus", "bike")]
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.02)  # the last steps are small, not 0


def test_texts_enter_the_factors(options: dict[str, Any], trips: ChoiceData, make_trips: Callable[..., Any]) -> None:
    data = ChoiceData.from_long(make_trips(), **TRIP_ROLES, kinds={"comfort": "text"})
    model = PCMCNet(**options).fit(data, progress=False)
    assert isinstance(model.network_, FactoredNetwork)
    p = model.predict_proba(data)
    np.testing.assert_allclose(p.sum(), len(data), rtol=1e-6)
    table = make_trips()
    column = table.column_names.index("comfort")
    other = model.predict_proba(table.set_column(column, "comfort", pa.array(["high"] * table.num_rows)))
    assert np.abs(other - p).max() > 1e-3


# -- scans, starts and resumed fits ---------------------------------------------------------------------------------


SCAN_ROLES: dict[str, Any] = {k: TRIP_ROLES[k] for k in ("choice_set", "chosen", "features", "individual")}


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> ScannedData:
    """A table on disk, in several shards, with a buffer for the whole table."""
    path = tmp_path_factory.mktemp("scan") / "trips.parquet"
    pyarrow.parquet.write_table(pa.table(trip_table(200, slope=-0.5, mixed=True)), path)
    return ChoiceData.scan(path, memory="1 MiB", **SCAN_ROLES)


def test_a_scanned_table_is_fitted_as_in_memory(options: dict[str, Any], scanned: ScannedData) -> None:
    in_memory = scanned.read()
    disk, memory = (PCMCNet(**options).fit(data, progress=False) for data in (scanned, in_memory))
    assert np.array_equal(disk.predict_proba(in_memory), memory.predict_proba(in_memory))
    streamed = PCMCNet(**options | {"epochs": 8}).fit(replace(scanned, memory=2**14), progress=False)
    uniform = -float(np.log(in_memory.sizes).mean())
    assert streamed.score(in_memory) > uniform + 0.1
    assert streamed.score(scanned) == pytest.approx(streamed.score(in_memory), rel=1e-6)


def test_a_scanned_table_chooses_the_same_rank(
    quick: dict[str, Any], scanned: ScannedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = scanned.read()
    assert PCMCNet(**quick)._rank_for(scanned) is PCMCNet(**quick)._rank_for(in_memory) is None
    monkeypatch.setattr(pcmcnet, "MAX_PAIRWISE_SECONDS", 0.0)
    assert PCMCNet(**quick)._rank_for(scanned) == PCMCNet(**quick)._rank_for(in_memory) == pcmcnet.AUTO_RANK


def test_a_fit_continues_from_a_fitted_model(model: PCMCNet, options: dict[str, Any], trips: ChoiceData) -> None:
    before = model.predict_proba(trips)
    still = PCMCNet(**options | {"epochs": 1, "lr": 1e-12}).fit(trips, init=model, progress=False)
    np.testing.assert_allclose(still.predict_proba(trips), before, atol=1e-6)
    more = PCMCNet(**options).fit(trips, init=model, progress=False)
    assert more.history[-1]["train_loss"] < model.history[-1]["train_loss"]
    with pytest.raises(ConfigError, match="init was fitted with rank=4, but this model has rank=8"):
        PCMCNet(**options | {"rank": 8}).fit(trips, init=model, progress=False)


def test_a_fit_from_a_model_has_its_rank_for_every_table(
    quick: dict[str, Any], trips: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairwise = PCMCNet(**quick).fit(trips, progress=False)
    monkeypatch.setattr(pcmcnet, "MAX_PAIRWISE_SECONDS", 0.0)
    assert PCMCNet(**quick).fit(trips, init=pairwise, progress=False).spec_.rank is None
    factored = PCMCNet(**quick).fit(trips, progress=False)
    monkeypatch.undo()
    assert PCMCNet(**quick).fit(trips, init=factored, progress=False).spec_.rank == pcmcnet.AUTO_RANK


def test_a_refit_to_both_parts_has_factors(options: dict[str, Any], trips: ChoiceData) -> None:
    train, valid = trips.split((0.7, 0.3), seed=0)
    model = PCMCNet(**options | {"refit": True}).fit(train, valid, progress=False)
    assert model.spec_.rank == RANK
    assert model.table_.choice_sets == len(trips)
    assert len({entry["valid_loss"] for entry in model.history}) > 1


def test_replicates_of_a_bootstrap_keep_the_rank(
    quick: dict[str, Any], trips: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank was chosen for the table, and is not chosen again for a resample."""
    monkeypatch.setattr(pcmcnet, "MAX_PAIRWISE_SECONDS", 0.0)
    model = PCMCNet(**quick).fit(trips, progress=False)
    monkeypatch.undo()
    ranks: list[int | None] = []

    def statistic(fitted: Any) -> float:
        ranks.append(fitted.spec_.rank)
        return float(fitted.score(trips))

    pn.bootstrap(model, trips, statistic, replicates=2, seed=1)
    assert set(ranks) == {pcmcnet.AUTO_RANK}


def test_an_interrupted_fit_resumes_bit_for_bit(options: dict[str, Any], trips: ChoiceData, tmp_path: Path) -> None:
    fit_options = options | {"dropout": 0.2, "members": 2}
    whole = PCMCNet(**fit_options).fit(trips, progress=False)
    for network, epoch in ((None, 2), (2, 1)):
        folder = tmp_path / f"run {epoch}"

        def stop(entry: dict[str, Any], at: Any = (network, epoch)) -> None:
            if (entry.get("network"), entry["epoch"]) == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            PCMCNet(**fit_options).fit(trips, progress=False, run_folder=folder, on_epoch=stop)
        resumed = PCMCNet(**fit_options).fit(trips, progress=False, run_folder=folder, resume=True)
        assert weights(resumed) == weights(whole)


# -- insight and decisions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["price", "income"])
@pytest.mark.parametrize("kind", ["model", "average", "mixture"])
def test_slopes_predict_small_changes(
    kind: str, column: str, request: pytest.FixtureRequest, trips: ChoiceData
) -> None:
    model: PCMCNet = request.getfixturevalue(kind)
    s = int(np.argmax(trips.sizes))
    inside = np.arange(trips.offsets[s], trips.offsets[s + 1])
    columns = trips.individual if column == "income" else trips.features
    values = columns[column].values.astype(np.float64)  # type: ignore[union-attr]
    place = s if column == "income" else inside[1]
    logs = []
    for by in (0.003, -0.003):
        moved = values.copy()
        moved[place] *= 1 + by
        role = "individual" if column == "income" else "features"
        new: dict[str, Any] = {role: {**columns, column: replace(columns[column], values=moved.astype(np.float32))}}
        logs.append(trips.from_rows(model.predict_log_proba(replace(trips, **new)))[inside])
    expected = (logs[0] - logs[1]) / 0.006
    slopes, n = model._slopes(trips, column), len(inside)
    start = int((trips.sizes[:s] ** 2).sum())
    result = slopes[inside] if column == "income" else slopes[start : start + n * n].reshape(n, n)[:, 1]
    # float32 has errors of about 1e-7 in log p, divided by the step; kinks of leaky_relu within the step
    np.testing.assert_allclose(result * values[place], expected, rtol=2e-3, atol=2e-4)


def test_elasticities_are_those_of_the_slopes(model: PCMCNet, trips: ChoiceData) -> None:
    own = elasticity(model, trips, "price").own
    assert own.shape == (trips.n_alternatives,)
    assert np.abs(own).max() > 0.01


@pytest.mark.parametrize("kind", ["model", "average", "mixture"])
def test_the_best_offer_is_that_of_an_enumeration(kind: str, options: dict[str, Any]) -> None:
    extra = {"model": {}, "average": {"members": 2}, "mixture": {"classes": 2}}[kind]
    roles = {key: TRIP_ROLES[key] for key in ("alternative", "individual", "features")}
    fitted = PCMCNet(**options | extra).fit(read(trip_table(40, slope=-0.3), **roles), progress=False)
    catalogue = {name: values[:5] for name, values in trip_table(1, sizes=(5, 5)).items()}
    revenue, person = np.arange(1.0, 6.0), {"income": 30.0, "purpose": "work"}
    offer = pn.optimise_offer(fitted, catalogue, revenue=revenue, individual=person)
    assert offer.exact
    earned = []
    for number in range(1, 32):
        shown = np.flatnonzero([number >> k & 1 for k in range(5)])
        part = {name: np.asarray(values)[shown] for name, values in catalogue.items()}
        part |= {name: [value] * len(shown) for name, value in person.items()} | {"trip": [0] * len(shown)}
        earned.append(float(fitted.predict_proba(part) @ revenue[shown]))
    assert offer.value == pytest.approx(max(earned), rel=1e-5)  # float32


def test_stacks_and_ensembles_have_factored_members(options: dict[str, Any], trips: ChoiceData, tmp_path: Path) -> None:
    member = PCMCNet(**options | {"rank": 8, "epochs": 1})
    for whole in (pn.Stacking([pn.MNL(), member], folds=2), pn.Ensemble(member, 2)):
        fitted: Any = whole.fit(trips, progress=False)
        p = fitted.predict_proba(trips)
        np.testing.assert_allclose(p.sum(), len(trips), rtol=1e-6)
        assert np.array_equal(load(fitted.save(tmp_path / fitted.name)).predict_proba(trips), p)
    assert [m.spec_.rank for m in fitted.members_] == [8, 8]


# -- pictures and export --------------------------------------------------------------------------------------------


def test_the_diagram_shows_factors(model: PCMCNet, mixture: PCMCNet) -> None:
    """16 + 2 inputs as for all pairs, less the second alternative; the last layer has 2 x 4 outputs."""
    drawing = model.diagram()
    for words in ("each i", "8 → 8", "g = Σ_k u_ik v_jk", f"{model.num_parameters:,} parameters in all"):
        assert words in drawing
    assert "all pairs" not in drawing
    assert "2 classes k" in mixture.diagram()


# -- cost -----------------------------------------------------------------------------------------------------------


def test_the_nominal_time_is_linear_in_alternatives_and_does_not_count_factors_twice(options: dict[str, Any]) -> None:
    config = TrainConfig(epochs=20, weight_decay=0.1)
    seconds, weights = {}, {}
    for size in (10, 100):
        data = sets_of(size)
        for rank in (1, 16):
            network = PCMCNet(**options | {"rank": rank})._build(Encoder.learn(data), NetworkSpec(rank=rank))
            seconds[size, rank], weights[rank] = nominal_seconds(data, network, config), parameter_count(network)
    # PyTorch's time per batch makes both ratios smaller; 1e-9 is for rounding.
    assert seconds[100, 16] / seconds[10, 16] <= 10 * (1 + 1e-9)
    assert seconds[100, 16] / seconds[100, 1] <= weights[16] / weights[1] * (1 + 1e-9)
