"""Select the modules of src/ for doctests. Kernels are left out if Triton is not installed."""

from importlib.util import find_spec
from pathlib import Path

SRC = Path(__file__).parent / "src"

KERNELS = [
    "src/pcmcnet/layers/kernel_launch.py",
    "src/pcmcnet/layers/likelihood_triton.py",
    "src/pcmcnet/layers/pairwise/triton/*.py",
    "src/pcmcnet/layers/stationary/*_triton.py",
]
collect_ignore_glob = [] if find_spec("triton") else KERNELS


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore modules without doctests: importing all of them takes seconds in every process."""
    is_module = SRC in collection_path.parents and collection_path.suffix == ".py"
    return True if is_module and b">>> " not in collection_path.read_bytes() else None
