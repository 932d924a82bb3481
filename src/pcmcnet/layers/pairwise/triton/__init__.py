"""The pair network in Triton, for CUDA devices. These modules are imported only if Triton is installed."""
