"""Thresholds and sizes of the layers, in one place: which implementation runs, and how much it works on at a time.

None of them changes a result by more than rounding.
Each comment says what the number decides and how it was found: by measurement on the machines of docs/performance.md,
by a limit of the hardware, or by choice. To measure again: ``python -m benchmarks training stationary prediction``, and
``python -m benchmarks.gpu`` on a GPU.
A test may replace any of them: they are read when they are used.
"""

# -- threads of a CPU --------------------------------------------------------------------------------------------------

# A batch with fewer multiplications runs on one thread. It is about a millisecond of one core; below that, handing work
# to other threads takes longer than the work (measured).
MIN_MULTIPLICATIONS_FOR_THREADS = 2e7

# -- scores of pairs: number type --------------------------------------------------------------------------------------

# With ``precision="auto"`` on a GPU, products are in bfloat16 if all hidden layers have at least so many units.
# Narrower ones gain nothing from it (measured).
BFLOAT16_FROM_UNITS = 128

# -- scores of pairs on a CPU ------------------------------------------------------------------------------------------

# Networks whose hidden layers have at most so many units are trained by compiled steps (``training/compiled_steps``):
# wider ones are as fast through PyTorch, whose products use all threads (measured).
COMPILED_UP_TO_UNITS = 128

# And whose sets have at most so many alternatives: those steps hold all pairs of a set and solve its chain on one
# thread (measured: twice as fast as PyTorch at 100 alternatives, as fast at 200).
COMPILED_UP_TO_ALTERNATIVES = 150

# Up to so many numbers (pairs x units of the widest layer) the plain formula on all pairs at once is as fast as chunks
# of pairs (measured).
PLAIN_SCORES_UP_TO_NUMBERS = 2**16

# Numbers in a temporary of a chunk, at most: 2 MiB of float32, which stay in the cache of a core.
CPU_CHUNK_MAX_NUMBERS = 2**19

# And at least, if threads share the chunks: smaller ones take more calls than they save time.
CPU_CHUNK_MIN_NUMBERS = 2**18

# The pairs of a large batch are cut into a multiple of so many chunks, so that 2, 4, 8 or 16 threads share them evenly.
CPU_CHUNKS_MULTIPLE = 16

# From so many units on, chunks hold single pairs and each thread computes its own; below, chunks hold whole rows, as
# adding and summing block by block is then much of the work (measured).
SINGLE_PAIRS_FROM_UNITS = 256

# Bytes kept from the forward to the backward pass, at most; what is beyond is computed again. By choice.
CPU_MAX_SAVED_BYTES = 2**30

# -- scores of pairs on a GPU ------------------------------------------------------------------------------------------

# Pairs of a chunk: enough to fill the device; a temporary in bfloat16 takes 512 MiB at 512 units. By choice.
GPU_CHUNK_PAIRS = 1 << 19

# Bytes kept from the forward to the backward pass: this, but no more than a quarter of the device's memory; or a 24th
# of the memory where that is more. By choice.
GPU_MAX_SAVED_BYTES = 3 << 30

# Sets of one launch: a grid of CUDA programs has at most 65,535 along two of its axes.
GPU_SETS_PER_LAUNCH = 2**15

# Pairs that sums over pairs read at a time. It must be a multiple of HOPPER_CHUNK, so that a chunk is read whole.
GPU_PAIRS_PER_READ = 64

# While products of one chunk run, the first layer of the next one is built on so many processors, which products leave
# free, after a pause of so many cycles, in which products have taken theirs. Measured on an H200 (132 processors).
GPU_PROCESSORS_LEFT_FREE = 20
GPU_PAUSE_CYCLES = 20_000

# -- scores of pairs on a Hopper GPU: the last hidden layer ------------------------------------------------------------

# Versions of Triton whose language Gluon the kernels were written and run in; elsewhere the Triton kernels serve.
HOPPER_TRITON_VERSIONS = ("3.6.",)

# A tile of a product: pairs, units, and inputs that are multiplied at a time. The shapes of the matrix instructions.
HOPPER_TILE_PAIRS = 64
HOPPER_TILE_UNITS = 128
HOPPER_TILE_INPUTS = 64

# Chunks that are copied into shared memory ahead of the product: what shared memory has room for beside the weights.
HOPPER_CHUNKS_AHEAD = 8

# Widest layer: shared memory holds the weights of all its inputs for the units of a tile.
HOPPER_MAX_LAYER_UNITS = 512

# -- rates and logarithms on a GPU -------------------------------------------------------------------------------------

# Numbers that a program works on at a time. By choice.
ELEMENTWISE_BLOCK = 1024

# Rates have a kernel for sets of up to so many alternatives. It takes one program per set; for larger sets torch's
# operators, with many programs for all, are faster (measured).
RATES_KERNEL_UP_TO_ALTERNATIVES = 512

# -- compiling kernels -------------------------------------------------------------------------------------------------

# Kernels that are compiled side by side, each in a thread. By choice.
KERNEL_COMPILER_THREADS = 16

# -- stationary distribution -------------------------------------------------------------------------------------------

# Above so many alternatives the elimination goes in blocks: products of blocks then save more time than their
# bookkeeping takes (measured for 1 to 64 sets).
ELIMINATION_IN_BLOCKS_ABOVE_STATES = 96

# States of a block (measured: 32 to 64 are much alike).
ELIMINATION_BLOCK_STATES = 48

# The same on a GPU, where a block is a matrix in the registers of so many groups of 32 threads (measured).
ELIMINATION_TRITON_BLOCK_STATES = 32
ELIMINATION_TRITON_WARPS = 4

# Up to so many alternatives a GPU runs the Triton kernel: a set still fits into the registers of one program.
ELIMINATION_TRITON_MAX_STATES = 128

# Sizes of the matrix that the Triton kernel is compiled for; few, as each takes time to compile.
ELIMINATION_TRITON_WIDTHS = (8, 32, 64, 128)

# Up to so many sets leave processors of a GPU idle, so that more threads for each cost nothing (measured).
ELIMINATION_TRITON_FEW_SETS = 256

# Groups of 32 threads of a set, forward and backward, by the size of the matrix in float32; twice as many in float64.
# For few sets measured with 16, 64 and 256 of 5, 24, 33, 50 and 100 alternatives, for many with 1,024.
ELIMINATION_TRITON_WARPS_FEW = {8: (1, 1), 32: (1, 4), 64: (2, 4), 128: (4, 8)}
ELIMINATION_TRITON_WARPS_MANY = {8: (1, 1), 32: (1, 1), 64: (1, 1), 128: (4, 8)}
