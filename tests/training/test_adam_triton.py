"""Each step on a GPU reads its own sets, learning rate and seeds, for any number of epochs."""

import numpy as np
import pytest
import torch

PLAN = [np.array([3, 1, 2]), np.arange(1_500), np.array([7])]
RATES = [0.1, 0.2, 0.3]


@pytest.mark.gpu
def test_each_step_reads_its_own_entries() -> None:
    from pcmcnet.training.adam_triton import SEEDS_PER_STEP, EpochTape

    tape = EpochTape(torch.device("cuda"))
    assert not tape.write(PLAN, RATES, seed=5)  # no memory was allocated yet
    seeds = []
    for k in range(2):  # the second epoch reuses the memory of the first
        for sets, rate in zip(PLAN, RATES, strict=True):
            assert tape.take(len(sets)).tolist() == sets.tolist()
            assert float(tape.lr) == pytest.approx(rate)
            seeds.append(tape.seeds.clone())
        assert tape.write(PLAN, RATES, seed=6 + k)
    assert len(torch.cat(seeds).unique()) == 6 * SEEDS_PER_STEP
    assert tape.write(PLAN[:1], RATES[:1], seed=0)
    assert not tape.write([*PLAN, np.array([0])], [*RATES, 0.4], seed=0)
    assert tape.take(3).tolist() == PLAN[0].tolist()
