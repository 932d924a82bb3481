"""Kernels that are only recorded for compilation take no memory."""

import pytest
import torch

pytestmark = pytest.mark.gpu


def test_recorded_kernels_keep_no_tensor() -> None:
    from pcmcnet.layers import likelihood_triton
    from pcmcnet.layers.kernel_launch import compile_in_parallel

    p = torch.rand(1 << 12, 1 << 12, device="cuda")  # 64 MiB
    mask = torch.ones_like(p, dtype=torch.bool)

    def work() -> None:
        for _ in range(8):
            likelihood_triton.log_probabilities(p, mask)

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compile_in_parallel(work, torch.cuda.Stream())  # type: ignore[no-untyped-call]
    assert torch.cuda.max_memory_allocated() - before < 3 * p.nbytes
    assert torch.equal(likelihood_triton.log_probabilities(p, mask), p.log())


def test_compilation_errors_are_raised() -> None:
    from triton.compiler import CompilationError

    from pcmcnet.layers import likelihood_triton
    from pcmcnet.layers.kernel_launch import compile_in_parallel, is_collecting_kernels, launch

    p, stream = torch.rand(8, device="cuda"), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with pytest.raises(CompilationError):  # a block size must be a power of 2
        compile_in_parallel(lambda: launch(likelihood_triton._log_forward, (1,), p, p > 0, p, 8, C=12), stream)
    with torch.cuda.stream(stream):
        assert not is_collecting_kernels()
