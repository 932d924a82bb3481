"""Kernels that begin while the one before them ends, on Hopper chips and later.

To launch a kernel and to bring its programs to the processors takes longer than many a small kernel computes. A kernel
whose first statement is ``wait_for_earlier()`` is launched while the one before it in its stream is still at work
(programmatic dependent launch), and waits there for all that was written before. See ``launch``.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

HOPPER = (9, 0)
WAIT = "wait_for_earlier()"  # as kernels call it


def _all_can() -> bool:
    """Tell whether all devices are of NVIDIA's Hopper or a later one."""
    devices = range(torch.cuda.device_count())
    hopper = (torch.cuda.get_device_capability(k) >= HOPPER for k in devices)
    return torch.version.hip is None and bool(devices) and all(hopper)


EARLY = tl.constexpr(_all_can())


@triton.jit
def wait_for_earlier():
    """Wait until all earlier kernels of the stream are done, and let the next one come to wait for this."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
