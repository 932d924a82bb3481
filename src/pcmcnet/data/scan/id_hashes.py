"""A number of 64 bits for each id, the same in every file and every run, and random draws made from it.

Equal ids have equal keys, so a key says which pile a row goes to, and, mixed with a seed, which part of a split its set
falls into: nothing has to be remembered of sets seen before. Numbers are mixed by the finaliser of SplitMix64
(Steele, Lea and Flood, 2014); other ids are hashed by their text.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.data.distinct import distinct

Keys = NDArray[np.uint64]


def keys_of(ids: pa.Array) -> Keys:
    """Return the keys of ids without gaps. Raises ``distinct.UNREADABLE`` for a type whose values have no text."""
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if pa.types.is_integer(ids.type):
        return mixed(ids.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64))
    if pa.types.is_floating(ids.type):
        numbers = ids.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # one zero, not two
        return mixed(numbers.view(np.uint64))
    codes, values = distinct(pa.chunked_array([ids]))
    return text_keys(values.cast(pa.string()).to_pylist())[codes]


def text_keys(words: list[str]) -> Keys:
    """Return the keys of texts."""
    digests = b"".join(blake2b(word.encode(), digest_size=8).digest() for word in words)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def mixed(numbers: Keys) -> Keys:
    """Spread whole numbers over all of 64 bits."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draws(keys: Keys, seed: int) -> NDArray[np.float64]:
    """Draw a number from 0 to 1 for each key, the same whenever the seed is."""
    salt = mixed(np.array([seed % 2**64], np.uint64))
    return (mixed(keys ^ salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def piles(keys: Keys, count: int) -> NDArray[np.int64]:
    """Return which of so many piles each key belongs to."""
    return ((keys >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)
