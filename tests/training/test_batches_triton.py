"""Probabilities of batches are written at the positions of their sets, with the largest error of a sum."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch


@pytest.mark.gpu
def test_sets_are_written_in_place_and_nan_is_detected() -> None:
    """Sets of 3, 200, 1 and 5 alternatives; one batch without the second set, then one with it alone."""
    from pcmcnet.training.batches_triton import scatter

    sizes = np.array([3, 200, 1, 5])
    starts, counts = (torch.from_numpy(x).cuda() for x in (np.cumsum(sizes) - sizes, sizes))
    data, flat = SimpleNamespace(starts=starts, counts=counts), torch.zeros(210, dtype=torch.float64, device="cuda")
    for sets in ([2, 0, 3], [1]):
        index = torch.tensor(sets, device="cuda")
        mask = torch.arange(int(sizes[sets].max()), device="cuda") < counts[index].unsqueeze(1)
        log_p = torch.randn(mask.shape, device="cuda").masked_fill(~mask, -torch.inf).log_softmax(1)
        scatter(log_p, index, data, flat)
        for k, row in zip(sets, log_p.double(), strict=True):
            assert torch.equal(flat[starts[k] : starts[k] + sizes[k]], row[: sizes[k]])
    assert 0 <= float(flat[-1]) < 1e-5
    log_p[0, 0] = torch.nan
    scatter(log_p, index, data, flat)
    assert not float(flat[-1]) < 1e-5
