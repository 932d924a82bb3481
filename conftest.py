"""What pytest reads: modules of kernels only where Triton, which they are written in, is installed."""

from importlib.util import find_spec

KERNELS = [
    "src/pcmcnet/layers/gpu/launch.py",
    "src/pcmcnet/layers/likelihood/triton_logs.py",
    "src/pcmcnet/layers/pairwise/hopper/*.py",
    "src/pcmcnet/layers/pairwise/triton/*.py",
    "src/pcmcnet/layers/stationary/*_triton.py",
]
collect_ignore_glob = [] if find_spec("triton") else KERNELS
