"""Thresholds and sizes that determine which implementation of a layer runs, and how much it processes in one step.

These settings do not change results, except for rounding errors. Each comment states what the number controls and how
it was chosen: a measurement on the machines described in docs/performance.md, a limit of the hardware, or a plausible
value that was not tuned. To repeat the measurements, run ``python -m benchmarks training stationary prediction`` and,
on a GPU, ``python -m benchmarks.gpu``. Tests may replace any setting, because settings are read at each use.
"""

# -- threads of a CPU --------------------------------------------------------------------------------------------------

# A batch with fewer multiplications runs on one thread. This number takes one core about a millisecond; for less work,
# handing it to other threads takes longer than the work itself (measured).
MIN_MULTIPLICATIONS_FOR_THREADS = 2e7

# -- scores of pairs: number type --------------------------------------------------------------------------------------

# With ``precision="auto"`` on a GPU, products are in bfloat16 if every hidden layer has at least this many units.
# Narrower layers gain nothing from it (measured).
BFLOAT16_FROM_UNITS = 128

# -- scores of pairs on a CPU ------------------------------------------------------------------------------------------

# Networks whose hidden layers have at most this many units are trained by compiled steps (``training/compiled_steps``).
# Wider networks are as fast in PyTorch, whose products use all threads (measured).
COMPILED_UP_TO_UNITS = 128

# Compiled steps also require sets of at most this many alternatives: they hold all pairs of a set in memory and solve
# its chain on one thread (measured: twice as fast as PyTorch at 100 alternatives, equally fast at 200).
COMPILED_UP_TO_ALTERNATIVES = 150

# The same limit for rates with factors, which take time and memory linear in the number of alternatives.
COMPILED_FACTORED_UP_TO_ALTERNATIVES = 1_000

# Up to this many numbers (pairs x units of the widest layer), one pass over all pairs is as fast as chunks of pairs
# (measured).
PLAIN_SCORES_UP_TO_NUMBERS = 2**16

# Maximum size of a chunk's temporary, in numbers: 2 MiB of float32, which fit into the cache of a core.
CPU_CHUNK_MAX_NUMBERS = 2**19

# Minimum size of a chunk's temporary, in numbers, if threads share the chunks: the calls for smaller chunks cost more
# time than they save.
CPU_CHUNK_MIN_NUMBERS = 2**18

# A large batch is cut into a multiple of this many chunks, so that 2, 4, 8 or 16 threads share them evenly.
CPU_CHUNKS_MULTIPLE = 16

# From this many units on, chunks hold single pairs and each thread computes its own chunks. For fewer units, chunks
# hold whole rows, because adding halves and summing gradients is then much of the work, and is faster by block
# (measured).
SINGLE_PAIRS_FROM_UNITS = 256

# Maximum bytes saved from the forward to the backward pass; the rest is computed again. Not tuned.
CPU_MAX_SAVED_BYTES = 2**30

# -- scores of pairs on a GPU ------------------------------------------------------------------------------------------

# Pairs of a chunk: enough to fill the device, while a temporary in bfloat16 takes 512 MiB at 512 units. Not tuned.
GPU_CHUNK_PAIRS = 1 << 19

# Bytes saved from the forward to the backward pass: this or a quarter of the device's memory, whichever is less, but at
# least a 24th of the memory. Not tuned.
GPU_MAX_SAVED_BYTES = 3 << 30

# Sets per launch: two of the axes of a CUDA grid are limited to 65,535 programs.
GPU_SETS_PER_LAUNCH = 2**15

# Pairs that a sum over pairs reads at a time. Must be a multiple of HOPPER_TILE_INPUTS, so that whole tiles are read.
GPU_PAIRS_PER_READ = 64

# While the products of one chunk run, the first layer of the next chunk is built on this many processors, which the
# products leave free. It starts after a pause of this many cycles, in which the products occupy their processors.
# Measured on an H200 (132 processors).
GPU_PROCESSORS_LEFT_FREE = 20
GPU_PAUSE_CYCLES = 20_000

# -- scores of pairs on a Hopper GPU: the last hidden layer ------------------------------------------------------------

# Versions of Triton with which the Gluon kernels were tested. Other versions use the Triton kernels.
HOPPER_TRITON_VERSIONS = ("3.6.",)

# A tile of a product: pairs, units, and inputs multiplied at a time. Given by the shapes of the matrix instructions.
HOPPER_TILE_PAIRS = 64
HOPPER_TILE_UNITS = 128
HOPPER_TILE_INPUTS = 64

# Tiles that are copied into shared memory ahead of the product: as many as fit next to the weights.
HOPPER_CHUNKS_AHEAD = 8

# Units of the widest supported layer: shared memory must hold the weights of all its inputs for the units of a tile.
HOPPER_MAX_LAYER_UNITS = 512

# -- rates and logarithms on a GPU -------------------------------------------------------------------------------------

# Numbers that a program processes at a time: 8 for each of its 128 threads. Not tuned.
ELEMENTWISE_BLOCK = 1024

# Sets of up to this many alternatives have a kernel for their rates, with one program per set. For larger sets torch's
# operators, which use many programs per set, are faster (measured).
RATES_KERNEL_UP_TO_ALTERNATIVES = 512

# -- compiling kernels -------------------------------------------------------------------------------------------------

# Kernels that are compiled in parallel, each in a thread. Not tuned.
KERNEL_COMPILER_THREADS = 16

# -- stationary distribution -------------------------------------------------------------------------------------------

# Above this many alternatives, states are eliminated in blocks: products of blocks then save more time than their
# bookkeeping costs (measured for 1 to 64 sets).
ELIMINATION_IN_BLOCKS_ABOVE_STATES = 96

# Up to this many ordered pairs in a batch on a CPU, the chains of averaged networks are solved in one call, which takes
# a third less time for a single set of 10 to 130 alternatives. Twenty sets of 50 take a sixth less (measured).
SOLVE_TOGETHER_UP_TO_PAIRS = 100_000

# States of a block (measured: 32 to 64 are about equally fast).
ELIMINATION_BLOCK_STATES = 48

# States of a block on a GPU, and warps (32 threads each) whose registers hold its matrix (measured).
ELIMINATION_TRITON_BLOCK_STATES = 32
ELIMINATION_TRITON_WARPS = 4

# Up to this many alternatives a GPU runs the Triton kernel: the matrix of a set fits into the registers of one program.
ELIMINATION_TRITON_MAX_STATES = 128

# Sizes of the matrix for which the Triton kernel is compiled; only a few, because each takes time to compile.
ELIMINATION_TRITON_WIDTHS = (8, 32, 64, 128)

# Up to this many sets leave processors of a GPU idle, so that more threads per set cost nothing (measured).
ELIMINATION_TRITON_FEW_SETS = 256

# Warps (32 threads each) per set, forward and backward, by size of the matrix, in float32; twice as many in float64.
# Measured with 16, 64 and 256 sets (FEW) or 1,024 sets (MANY) of 5, 24, 33, 50 and 100 alternatives.
ELIMINATION_TRITON_WARPS_FEW = {8: (1, 1), 32: (1, 4), 64: (2, 4), 128: (4, 8)}
ELIMINATION_TRITON_WARPS_MANY = {8: (1, 1), 32: (1, 1), 64: (1, 1), 128: (4, 8)}

# -- factored rates ----------------------------------------------------------------------------------------------------

# Numbers (alternatives x factors) that the solution processes at a time on a CPU: temporaries are 512 KiB of float64,
# whatever the size of a set. From 2**14 to 2**18, the speed is about the same (measured with 100,000 x 16).
FACTORED_CHUNK_NUMBERS = 2**16

# The same number on a GPU: temporaries of 512 MiB of float64. Not tuned.
FACTORED_GPU_CHUNK_NUMBERS = 2**26

# Up to this number of alternatives, a GPU solves each set in one program. Compared to PyTorch's operators, this takes a
# third of the time for 256 sets of 50 alternatives, half for 64 of 200, the same for 16 of 500, and twice as long for
# one of 1,000 (measured with 16 factors).
FACTORED_KERNEL_UP_TO_ALTERNATIVES = 512

# Numbers of factors for which this kernel is compiled. Larger chains do not fit into the registers of a program.
FACTORED_KERNEL_WIDTHS = (4, 8, 16, 32)

# Warps (32 threads each) per set. Measured with 16 factors: for 256 sets of 50 and 64 of 200 alternatives, 2 and 8 are
# not faster.
FACTORED_KERNEL_WARPS = 4
