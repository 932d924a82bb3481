import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pcmcnet.data import Batch, EncodedSets
from pcmcnet.errors import TrainingError
from pcmcnet.training import loop
from pcmcnet.training.checkpoint import Checkpoint, CheckpointWriter, RunState
from pcmcnet.training.config import TrainConfig, learning_rate
from pcmcnet.training.loop import TrainingOutcome, mean_nll, train
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.run_folder import CHECKPOINT
from pcmcnet.training.step import Steps

MakeSets = Callable[..., EncodedSets]

# Two features, one hidden layer: trains in milliseconds. The options that matter to a test are given there.
CONFIG = TrainConfig(
    epochs=5,
    batch_size=6,
    lr=0.05,
    schedule="cosine",
    warmup=0.2,
    weight_decay=0.0,
    clip=1.0,
    patience=5,
    min_delta=0.0,
    pair_budget=200_000,
)


class Interruption(KeyboardInterrupt):
    """Ends a run in these tests."""


class Scores(ChoiceNetwork):
    """A multinomial logit of two features, with a hidden layer and dropout."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))

    def forward(self, batch: Batch) -> Tensor:
        return log_softmax(self.net(batch.numeric).squeeze(-1), batch)


class OneWeight(ChoiceNetwork):
    """Score = w x, from w = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> Tensor:
        return log_softmax(self.w * batch.numeric[..., 0], batch)


def log_softmax(scores: Tensor, batch: Batch) -> Tensor:
    return scores.masked_fill(~batch.mask, -math.inf).log_softmax(1)


def fresh(seed: int = 7, dropout: float = 0.3) -> Scores:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Scores(dropout)


def weights(module: nn.Module) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in module.state_dict().values()]


def untimed(outcome: TrainingOutcome) -> list[dict[str, Any]]:
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in outcome.history]


# -- learning ------------------------------------------------------------------------------------------------------


def test_the_loss_falls(make_sets: MakeSets) -> None:
    data, module = make_sets(60), fresh(dropout=0.0)
    before = mean_nll(module, data, CONFIG)
    outcome = train(module, data, replace(CONFIG, epochs=20))
    assert mean_nll(module, data, CONFIG) < before / 2
    assert outcome.history[-1]["train_loss"] < outcome.history[0]["train_loss"] / 2
    assert [entry["epoch"] for entry in outcome.history] == list(range(1, 21))
    assert all(entry["seconds"] > 0 for entry in outcome.history)
    assert outcome.epochs == 20


def test_the_first_step_of_adam_is_the_learning_rate(make_sets: MakeSets) -> None:
    """m / (sqrt(v) + 1e-8) = g / (|g| + 1e-8) at the first step for any g; choosing the largest x raises w."""
    module = OneWeight()
    train(module, make_sets(), replace(CONFIG, epochs=1, batch_size=99, warmup=0, schedule="constant", clip=0))
    assert module.w.item() == pytest.approx(CONFIG.lr, rel=1e-6)


def test_a_large_gradient_is_clipped(make_sets: MakeSets) -> None:
    """With |g| clipped to 1e-9, the first step is lr 1e-9 / (1e-9 + 1e-8) = lr / 11; the reported norm is unclipped."""
    module = OneWeight()
    config = replace(CONFIG, epochs=1, batch_size=99, warmup=0, schedule="constant", clip=1e-9)
    outcome = train(module, make_sets(), config)
    # The clipped gradient is g 1e-9 / (|g| + 1e-6): torch guards against a norm of 0. |g| is near 0.9, so 1e-6 off.
    assert module.w.item() == pytest.approx(CONFIG.lr / 11, rel=1e-5)
    assert outcome.history[0]["gradient_norm"] > 0.1


def test_weight_decay_shrinks_the_weights(make_sets: MakeSets) -> None:
    """Decoupled: w (1 - lr decay) before the same step as without decay."""
    with_decay, without = fresh(dropout=0.0), fresh(dropout=0.0)
    start = [p.detach().clone() for p in without.parameters()]
    config = replace(CONFIG, epochs=1, batch_size=99, warmup=0, schedule="constant")
    train(without, make_sets(), config)
    train(with_decay, make_sets(), replace(config, weight_decay=0.5))
    for a, b, w in zip(with_decay.parameters(), without.parameters(), start, strict=True):
        torch.testing.assert_close(a, b - w * CONFIG.lr * 0.5, rtol=0, atol=1e-7)


class WithPrior(Scores):
    """The first layer has a prior."""

    @property
    def prior_weights(self) -> list[nn.Parameter]:
        return list(self.net[0].parameters())


def prior_and_plain() -> tuple[WithPrior, Scores]:
    plain = fresh(dropout=0.0)
    prior = WithPrior(0.0)
    prior.load_state_dict(plain.state_dict())
    return prior, plain


def test_weights_with_a_prior_are_not_decayed(make_sets: MakeSets) -> None:
    """A step at a rate of 0.05 with a decay of 0.5 shrinks the other weights by 2.5 %."""
    (decayed, start), (plain, _) = prior_and_plain(), prior_and_plain()
    config = replace(CONFIG, epochs=1, batch_size=99, warmup=0, schedule="constant")
    train(plain, make_sets(), config)
    train(decayed, make_sets(), replace(config, weight_decay=0.5))
    for k, (a, b, w) in enumerate(zip(decayed.parameters(), plain.parameters(), start.parameters(), strict=True)):
        shrinkage = 0.0 if k < 2 else config.lr * 0.5
        torch.testing.assert_close(a, b - w * shrinkage, rtol=0, atol=1e-7 if shrinkage else 0)


def test_the_gradient_of_a_standard_normal_prior_is_added(make_sets: MakeSets) -> None:
    """The gradient of |w|^2 / 2 per set, w / 24, is added only in the layer with the prior."""
    prior, plain = prior_and_plain()
    data = make_sets(24)
    gradients = []
    for module in (prior, plain):
        steps = loop.steps_for(module, data, replace(CONFIG, clip=0.0))
        steps.step(data.batch(np.arange(24)))
        gradients.append([p.grad for p in module.parameters()])
    start = [p.detach() for p in fresh(dropout=0.0).parameters()]
    for k, (a, b, w) in enumerate(zip(*gradients, start, strict=True)):
        assert a is not None
        assert b is not None
        torch.testing.assert_close(a, b + (w / 24 if k < 2 else 0), rtol=0, atol=1e-7)
    assert start[0].abs().max() > 0.1


def test_automatic_decay_and_epochs_have_defaults(make_sets: MakeSets) -> None:
    auto, stated = fresh(), fresh()
    train(auto, make_sets(), replace(CONFIG, epochs="auto", weight_decay="auto"))
    train(stated, make_sets(), replace(CONFIG, epochs=20, weight_decay=1.0))
    assert weights(auto) == weights(stated)


def test_the_training_loss_is_measured_before_each_step(make_sets: MakeSets) -> None:
    """At w = 0 all probabilities are uniform, so the loss of the single batch is the mean of log n."""
    data = make_sets()
    outcome = train(OneWeight(), data, replace(CONFIG, epochs=1, batch_size=99))
    assert outcome.history[0]["train_loss"] == pytest.approx(np.log(data.sizes).mean(), rel=1e-6)
    assert outcome.history[0]["valid_loss"] is None


def test_the_gradient_is_of_the_weighted_mean_loss(make_sets: MakeSets) -> None:
    """At w = 0, each set contributes the mean of x minus x of the choice."""
    weight = [1.0, 2.0, 5.0] * 4
    data = make_sets(12, weight=weight)
    batch = data.batch(np.arange(12))
    x = batch.numeric[..., 0].double()
    pull = (x * batch.mask).sum(1) / batch.mask.sum(1) - x.gather(1, batch.chosen.unsqueeze(1)).squeeze(1)
    outcome = train(OneWeight(), data, replace(CONFIG, epochs=1, batch_size=99))
    expected = abs(np.average(pull.numpy(), weights=weight))
    assert outcome.history[0]["gradient_norm"] == pytest.approx(expected, rel=1e-6)


def test_the_learning_rate_follows_the_schedule_step_by_step(make_sets: MakeSets) -> None:
    """24 sets in batches of 6 are 4 steps; the last one of epoch e is at (e - 1 + 3/4) / 5 of the run."""
    outcome = train(fresh(), make_sets(24), CONFIG)
    expected = [learning_rate(CONFIG, (epoch + 0.75) / 5) for epoch in range(5)]
    assert [entry["lr"] for entry in outcome.history] == pytest.approx(expected, rel=1e-12)


def test_the_pair_budget_does_not_overrun_the_schedule(make_sets: MakeSets) -> None:
    outcome = train(fresh(), make_sets(24), replace(CONFIG, pair_budget=1))
    assert outcome.history[-1]["lr"] == learning_rate(CONFIG, 1.0)


# -- randomness ----------------------------------------------------------------------------------------------------


def test_results_depend_only_on_the_seed(make_sets: MakeSets) -> None:
    data = make_sets()
    runs = []
    for seed in (3, 3, 4):
        module = fresh()
        outcome = train(module, data, CONFIG, seed=seed)
        runs.append((weights(module), untimed(outcome)))
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]


class Recording(Scores):
    """Records its training batches, and the result of dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[bytes] = []
        self.dropped: list[bytes] = []

    def forward(self, batch: Batch) -> Tensor:
        if self.training:
            self.shown.append(batch.numeric.numpy().tobytes())
            self.dropped.append((self.net[2](torch.ones(64)) == 0).numpy().tobytes())
        return super().forward(batch)


def test_every_epoch_has_its_own_order_and_dropout(make_sets: MakeSets) -> None:
    """4 batches per epoch, with the same sets in another order."""
    module = Recording()
    train(module, make_sets(24), replace(CONFIG, epochs=3))
    for record in (module.shown, module.dropped):
        epochs = [tuple(record[k : k + 4]) for k in range(0, 12, 4)]
        assert len(epochs) == len(set(epochs)) == 3


def test_the_global_random_state_has_no_effect_and_stays(make_sets: MakeSets) -> None:
    data, results = make_sets(), []
    for state in (1, 2):
        torch.manual_seed(state)
        np.random.seed(state)  # noqa: NPY002 - the global state is what must not matter
        before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
        module = fresh()
        train(module, data, CONFIG, valid=make_sets(seed=1))
        results.append(weights(module))
        assert torch.equal(torch.get_rng_state(), before)
        assert np.array_equal(np.random.get_state()[1], before_numpy)  # type: ignore[index]  # noqa: NPY002
    assert results[0] == results[1]


# -- stopping ------------------------------------------------------------------------------------------------------


def test_training_stops_early_and_restores_the_best_weights(make_sets: MakeSets) -> None:
    """The validation part has opposite preferences, so every epoch is worse and the first is the best."""
    data, valid = make_sets(60), make_sets(seed=1, chosen="smallest")
    module, config = fresh(), replace(CONFIG, epochs=50, patience=3, warmup=0, schedule="constant")
    outcome = train(module, data, config, valid=valid)
    losses = [entry["valid_loss"] for entry in outcome.history]
    assert outcome.epochs == 1
    assert len(losses) == 4
    assert losses == sorted(losses)
    assert mean_nll(module, valid, config) == losses[0]


def test_a_falling_schedule_cools_down_after_stopping(make_sets: MakeSets) -> None:
    """The run stops after epoch 4 with a patience of 3; then the rate falls linearly to 0 in three epochs."""
    data, valid = make_sets(60), make_sets(seed=1, chosen="smallest")
    config = replace(CONFIG, epochs=50, patience=3, warmup=0, schedule="cosine", batch_size=1)
    history = train(fresh(), data, config, valid=valid).history
    assert len(history) == 7
    start, last = learning_rate(config, 4 / 50), 59 / 60  # each entry has the rate of its last step
    expected = [start * (1 - (k + last) / 3) for k in range(3)]
    np.testing.assert_allclose([entry["lr"] for entry in history[4:]], expected, rtol=1e-12)


def test_the_best_epoch_is_kept_after_a_complete_run(make_sets: MakeSets) -> None:
    data, valid = make_sets(60), make_sets(seed=1, chosen="smallest")
    module, config = fresh(), replace(CONFIG, patience=50)
    outcome = train(module, data, config, valid=valid)
    losses = [entry["valid_loss"] for entry in outcome.history]
    assert len(losses) == config.epochs
    assert outcome.epochs == 1 + int(np.argmin(losses))
    assert mean_nll(module, valid, config) == min(losses) < losses[-1]


NOISE = replace(CONFIG, epochs=6, min_delta="noise", patience=1, schedule="constant", warmup=0.0)


def test_overfitting_beyond_noise_keeps_earlier_weights(make_sets: MakeSets) -> None:
    """The validation part has opposite preferences, so every epoch is worse; all epochs are run."""
    data, valid = make_sets(60), make_sets(60, seed=1, chosen="smallest")
    module = fresh()
    outcome = train(module, data, NOISE, valid=valid)
    losses = [entry["valid_loss"] for entry in outcome.history]
    assert len(losses) == NOISE.epochs
    assert losses == sorted(losses)
    assert outcome.epochs == 1
    assert mean_nll(module, valid, NOISE) == losses[0]


def test_differences_within_noise_keep_the_last_weights(make_sets: MakeSets) -> None:
    """With three validation sets, the second epoch is slightly better, but not beyond noise."""
    data, valid = make_sets(60), make_sets(3, seed=1)
    module, config = fresh(), replace(NOISE, lr=0.3)
    outcome = train(module, data, config, valid=valid)
    losses = [entry["valid_loss"] for entry in outcome.history]
    assert min(losses) < losses[-1]
    assert outcome.epochs == len(losses) == NOISE.epochs
    alone = fresh()
    train(alone, data, config)
    assert weights(module) == weights(alone)
    assert mean_nll(module, valid, config) == losses[-1]


class Gaining(OneWeight):
    """A network whose loss per set is x - w y."""

    def forward(self, batch: Batch) -> Tensor:
        return (self.w * batch.numeric[..., 1] - batch.numeric[..., 0]).masked_fill(~batch.mask, -math.inf)


@pytest.mark.parametrize(
    ("gains", "weight", "clear"),
    [
        ([0.9, 1.1, 0.9, 1.1], [1.0, 1.0, 1.0, 1.0], True),  # mean 1, standard error .05
        ([3.0, -1.0, 3.0, -1.0], [1.0, 1.0, 1.0, 1.0], False),  # mean 1, standard error 1
        ([3.0, -1.0, 3.0, -1.0], [1.0, 0.01, 1.0, 0.01], True),  # sets with a large weight have equal gains
        ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], False),
        ([-1.0, -1.0, -1.0, -1.0], [1.0, 1.0, 1.0, 1.0], False),  # worse
        ([0.1, 0.1, 0.1, 0.1], [1.0, 1.0, 1.0, 1.0], True),  # small but equal gains
    ],
)
def test_a_gain_must_exceed_two_standard_errors(
    gains: list[float], weight: list[float], clear: bool, make_sets: MakeSets
) -> None:
    """The losses of the sets differ by far more than the gains."""
    data = make_sets(4, weight=weight)
    by_set = torch.tensor([[1.0, 50.0, 7.0, 20.0], gains]).T
    data = replace(data, numeric=by_set.repeat_interleave(data.counts, 0))
    first, second = ({"w": torch.tensor(w)} for w in (1.0, 0.0))
    assert loop._is_clearly_better(first, second, Gaining(), data, CONFIG) == clear


def test_without_a_validation_part_the_last_weights_are_kept(make_sets: MakeSets) -> None:
    data, module = make_sets(), fresh()
    outcome = train(module, data, replace(CONFIG, patience=1))
    assert outcome.epochs == len(outcome.history) == CONFIG.epochs


# -- errors --------------------------------------------------------------------------------------------------------


class Sick(Scores):
    """Returns NaN after some batches, in training or in validation."""

    def __init__(self, healthy: int, *, training: bool) -> None:
        super().__init__(dropout=0.0)
        self.left, self.when = healthy, training

    def forward(self, batch: Batch) -> Tensor:
        log_p = super().forward(batch)
        if self.training is self.when:
            self.left -= 1
        return log_p * math.nan if self.left < 0 else log_p


@pytest.mark.parametrize(
    ("sick", "what"),
    [
        (lambda: Sick(9, training=True), r"training loss nan, validation loss .*, gradient norm nan"),
        (lambda: Sick(2, training=False), r"training loss .*, validation loss nan, gradient"),
    ],
)
def test_a_nonfinite_loss_ends_the_run_and_keeps_the_last_state(
    sick: Callable[[], Sick], what: str, make_sets: MakeSets, tmp_path: Path
) -> None:
    """24 sets in batches of 6 are 4 training batches and 1 validation batch: both give NaN in epoch 3."""
    checkpoint = Checkpoint(tmp_path / CHECKPOINT, {}, resume=True)
    message = rf"epoch 3: the loss is no longer finite \({what}.*\). Lower lr, or set clip"
    with pytest.raises(TrainingError, match=message):
        train(sick(), make_sets(24), CONFIG, valid=make_sets(seed=1), checkpoint=checkpoint)
    state = checkpoint.read()
    assert state is not None
    assert state.epoch == 2
    assert all(bool(torch.isfinite(t).all()) for t in state.module.values())


class Dead(OneWeight):
    """Its weight has no effect."""

    def forward(self, batch: Batch) -> Tensor:
        return log_softmax(torch.relu(self.w - 1) * batch.numeric[..., 0], batch)


def test_weights_without_gradient_are_reported(make_sets: MakeSets) -> None:
    with pytest.raises(TrainingError, match=r"epoch 1: no gradient reached the weights.*rate='relu', all rates are"):
        train(Dead(), make_sets(), CONFIG)


# -- interruption --------------------------------------------------------------------------------------------------


def interrupting(epoch: int) -> Any:
    """Return a progress display that ends the run right after the state of an epoch is written."""

    @contextmanager
    def watch(epochs: int, *, show: bool) -> Iterator[Any]:
        def report(entry: dict[str, Any]) -> None:
            if entry["epoch"] == epoch:
                raise Interruption

        yield report

    return watch


class Breaking(Checkpoint):
    """Ends the run right before the state of an epoch is written."""

    def write(self, state: RunState) -> None:
        if state.epoch == self.identity["break"]:
            raise Interruption
        super().write(state)


class Patient(CheckpointWriter):
    """Writes every state, and waits for it."""

    def save(self, state: RunState) -> None:
        super().save(state)
        self.wait()


@pytest.mark.parametrize("with_valid", [False, True], ids=["no-valid", "valid"])
@pytest.mark.parametrize("epoch", range(1, CONFIG.epochs + 1))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupted_run_resumes_bit_for_bit(
    moment: str, epoch: int, with_valid: bool, make_sets: MakeSets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, valid = make_sets(), make_sets(seed=1) if with_valid else None
    whole = fresh()
    expected = train(whole, data, CONFIG, valid=valid, seed=5)

    kind = Breaking if moment == "before" else Checkpoint
    checkpoint = kind(tmp_path / CHECKPOINT, {"break": epoch})
    with monkeypatch.context() as patch:
        if moment == "after":
            patch.setattr(loop, "show_epochs", interrupting(epoch))
        else:
            patch.setattr(loop, "CheckpointWriter", Patient)
        with pytest.raises(Interruption):
            train(fresh(), data, CONFIG, valid=valid, seed=5, checkpoint=checkpoint)

    module = fresh(seed=8)  # other initial weights must not matter
    if moment == "before" and epoch == 1:
        assert not checkpoint.path.exists()  # no state was written, so the run starts over
        module = fresh()
    resumed = Checkpoint(checkpoint.path, checkpoint.identity, resume=True)
    outcome = train(module, data, CONFIG, valid=valid, seed=5, checkpoint=resumed)
    assert weights(module) == weights(whole)
    assert untimed(outcome) == untimed(expected)
    assert outcome.epochs == expected.epochs


def test_a_run_interrupted_after_every_epoch_gives_the_same(
    make_sets: MakeSets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, valid, whole = make_sets(), make_sets(seed=1), fresh()
    expected = train(whole, data, CONFIG, valid=valid)
    checkpoint = Checkpoint(tmp_path / CHECKPOINT, {}, resume=True)
    for epoch in range(1, CONFIG.epochs + 1):
        with monkeypatch.context() as patch:
            patch.setattr(loop, "show_epochs", interrupting(epoch))
            with pytest.raises(Interruption):
                train(fresh(), data, CONFIG, valid=valid, checkpoint=checkpoint)
    module = fresh(seed=8)
    outcome = train(module, data, CONFIG, valid=valid, checkpoint=checkpoint)
    assert weights(module) == weights(whole)
    assert untimed(outcome) == untimed(expected)


def test_a_run_that_stopped_early_does_not_start_again(make_sets: MakeSets, tmp_path: Path) -> None:
    data, valid = make_sets(60), make_sets(seed=1, chosen="smallest")
    config = replace(CONFIG, epochs=50, patience=3)
    checkpoint = Checkpoint(tmp_path / CHECKPOINT, {}, resume=True)
    first, again = fresh(), fresh(seed=8)
    expected = train(first, data, config, valid=valid, checkpoint=checkpoint)
    outcome = train(again, data, config, valid=valid, checkpoint=checkpoint)
    assert outcome == expected
    assert weights(again) == weights(first)


def test_resuming_is_logged(make_sets: MakeSets, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = Checkpoint(tmp_path / CHECKPOINT, {}, resume=True)
    with caplog.at_level(logging.INFO, "pcmcnet"):
        train(fresh(), make_sets(), replace(CONFIG, epochs=2), checkpoint=checkpoint, progress=True)
        train(fresh(), make_sets(), replace(CONFIG, epochs=2), checkpoint=checkpoint, progress=True)
    assert [m.partition(":")[0] for m in caplog.messages] == ["epoch 1/2", "epoch 2/2", "resuming after epoch 2"]


# -- weights of sets -----------------------------------------------------------------------------------------------


def repeated(data: EncodedSets, times: list[int]) -> EncodedSets:
    """Repeat each set this many times, with weight 1."""
    index = torch.from_numpy(np.repeat(np.arange(len(data)), times))
    per_set = ("starts", "counts", "individual_numeric", "individual_categorical", "chosen")
    columns = {name: getattr(data, name)[index] for name in per_set}
    return replace(data, sizes=data.sizes[index.numpy()], weight=torch.ones(len(index)), **columns)


def test_weight_two_equals_a_repeated_set(make_sets: MakeSets) -> None:
    times = [1, 2, 3] * 4
    weighted, plain = make_sets(12, weight=times), repeated(make_sets(12), times)
    config = replace(CONFIG, batch_size=99)  # a single batch, so both take the same steps
    a, b = OneWeight(), OneWeight()
    first, second = train(a, weighted, config), train(b, plain, config)
    assert a.w.item() == pytest.approx(b.w.item(), rel=1e-6)
    for one, two in zip(first.history, second.history, strict=True):
        assert one["train_loss"] == pytest.approx(two["train_loss"], rel=1e-6)


def test_the_mean_loss_is_weighted(make_sets: MakeSets) -> None:
    """Probabilities are uniform: the loss is the weighted mean of log n. The scale of the weights does not matter."""
    weight = [0.0, 1.0, 2.5] * 4
    data = make_sets(12, weight=weight)
    expected = np.average(np.log(data.sizes), weights=weight)
    assert mean_nll(OneWeight(), data, CONFIG) == pytest.approx(expected, rel=1e-6)
    doubled = make_sets(12, weight=[2 * w for w in weight])
    assert mean_nll(OneWeight(), doubled, CONFIG) == pytest.approx(expected, rel=1e-6)


# -- callbacks -----------------------------------------------------------------------------------------------------


def test_a_callback_gets_the_entry_of_each_epoch(make_sets: MakeSets) -> None:
    data, entries = make_sets(), list[dict[str, Any]]()
    outcome = train(Scores(), data, CONFIG, valid=data, on_epoch=entries.append)
    assert entries == outcome.history


def test_a_callback_may_change_its_entry(make_sets: MakeSets) -> None:
    shown = train(fresh(), make_sets(), CONFIG, on_epoch=lambda entry: entry.clear())
    assert untimed(shown) == untimed(train(fresh(), make_sets(), CONFIG))


def test_a_state_with_an_infinite_gradient_is_not_saved(
    make_sets: MakeSets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", 0.0)
    monkeypatch.setattr(Steps, "run", lambda *_: torch.tensor([1.0, 1.0, math.inf]))
    checkpoint = Checkpoint(tmp_path / CHECKPOINT, {})
    with pytest.raises(TrainingError, match="no longer finite"):
        train(Scores(), make_sets(), CONFIG, checkpoint=checkpoint)
    assert not checkpoint.path.exists()


def test_a_callback_may_stop_training_for_later(make_sets: MakeSets, tmp_path: Path) -> None:
    data, checkpoint = make_sets(), Checkpoint(tmp_path / CHECKPOINT, {}, resume=True)

    def end(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            raise Interruption

    torch.manual_seed(0)
    module = Scores()
    start = {k: v.clone() for k, v in module.state_dict().items()}
    with pytest.raises(Interruption):
        train(module, data, CONFIG, checkpoint=checkpoint, on_epoch=end)
    state = checkpoint.read()
    assert state is not None
    assert state.epoch == 2
    resumed = train(module, data, CONFIG, checkpoint=checkpoint)
    whole = Scores()
    whole.load_state_dict(start)
    expected = train(whole, data, CONFIG)
    assert [e["train_loss"] for e in resumed.history] == [e["train_loss"] for e in expected.history]
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), whole.parameters(), strict=True))


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([2.0, 0.5, 1.4], "fell to 0.5 in epoch 2, but ended at 1.4"),
        ([2.0, 0.5, 1.2], None),  # less than half of the gain is lost
        ([0.52, 0.5, 0.55], None),  # all of a tiny gain is lost
        ([2.0, 1.0, 0.5], None),
        ([0.7], None),
    ],
)
def test_a_diverged_run_is_reported(losses: list[float], told: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        loop._warn_if_diverged(losses)
    assert [(told or "nothing") in record.getMessage() for record in caplog.records] == ([True] if told else [])
