"""What pytest reads: modules of kernels only where Triton, which they are written in, is installed."""

from importlib.util import find_spec

KERNELS = [
    "src/pcmcnet/layers/gpu/*.py",
    "src/pcmcnet/layers/gpu/hopper/*.py",
    "src/pcmcnet/layers/stationary/kernels.py",
]
collect_ignore_glob = [] if find_spec("triton") else KERNELS
