"""Numbers come from Arrow, and go there, as by Arrow's own conversions."""

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.data.arrow_numbers import array_from_numpy, array_to_numpy, to_numpy

TYPES = ["int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_of_all_types_are_those_of_arrow_with_or_without_gaps(kind: str) -> None:
    whole = pa.array(np.arange(6).astype(kind))
    gaps = pa.array(np.arange(6).astype(kind), mask=np.arange(6) == 3)
    for one in (whole, whole[2:5], whole[:0], gaps, gaps[4:]):
        np.testing.assert_array_equal(array_to_numpy(one), one.to_numpy(zero_copy_only=False), strict=True)
    for chunks in ([whole], [whole[1:], whole], [whole, gaps], []):
        column = pa.chunked_array(chunks, whole.type)
        np.testing.assert_array_equal(to_numpy(column), column.to_numpy(), strict=True)


@pytest.mark.parametrize("kind", TYPES)
def test_arrow_takes_numbers_of_all_types_however_they_lie(kind: str) -> None:
    numbers = np.arange(6).astype(kind)
    for values in (numbers, numbers[::2], numbers[:0]):
        assert array_from_numpy(values).equals(pa.array(values))
