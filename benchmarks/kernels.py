"""Time of the parts of a training step on a CUDA device: times of the kernels under PyTorch's profiler.

The airline shape in batches of 1,024: all steps of a fit of some epochs, after a fit that compiles the kernels.
"""

from __future__ import annotations

import re
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness import Row, Table
from benchmarks.shapes import AIRLINE
from benchmarks.training import ROOM
from pcmcnet import PCMCNet

SETS, BATCH, EPOCHS = 27_160, 1_024, 4
PARTS = {
    "last hidden layer and output, forward": r"^_last_layer_forward|^last_hidden$",
    "its gradient by the first layer": r"^_last_layer_input_gradient|^last_hidden_backward$",
    "its gradients by weights": r"^_last_layer_weight_sums",
    "that by the first, summed over pairs": r"^(first_hidden_backward|sum_row_parts)$",
    "the first from its two halves": r"^(first_hidden|zero_after_last_pair)$",
    "elimination": r"^_(solve|pull_back)",
}
OTHERS = "first layer, optimiser and others"


def main() -> list[Row]:
    """Print milliseconds and kernels per step, by part."""
    data = AIRLINE.data(SETS)
    options = {"hidden": AIRLINE.hidden, "dropout": AIRLINE.dropout, "batch_size": BATCH, "epochs": EPOCHS, **ROOM}
    PCMCNet(**options).fit(data, device="cuda", progress=False)
    with profile(activities=[ProfilerActivity.CUDA]) as watch:
        PCMCNet(**options).fit(data, device="cuda", progress=False)
        torch.cuda.synchronize()
    time, number = Counter[str](), Counter[str]()
    for event in watch.events():
        if event.device_type.name == "CUDA":
            part = next((name for name, pattern in PARTS.items() if re.search(pattern, event.name)), OTHERS)
            time[part] += event.time_range.elapsed_us() / 1e3
            number[part] += 1
    steps = EPOCHS * -(-SETS // BATCH)
    columns = {"part of a step": "", "ms": ".2f", "kernels": ".0f"}
    table = Table(f"a training step of {BATCH:,} sets of the airline shape", columns, first=40)
    for name in (*PARTS, OTHERS):
        table.add({"part of a step": name, "ms": time[name] / steps, "kernels": number[name] / steps})
    table.add({"part of a step": "all", "ms": time.total() / steps, "kernels": number.total() / steps})
    return table.rows
