"""Texts: splitting into words, hashing, numbers, and storing equal texts once."""

from functools import partial

import numpy as np
import pytest

from choice_tables import objects, read_column
from pcmcnet.data.kinds.text import BUCKETS, MAX_WORDS, TextCode, hash_bucket, split_words
from pcmcnet.errors import SchemaError

read = partial(read_column, "text", "text")


def test_equal_texts_are_stored_once_as_written() -> None:
    column = read(["A quiet  room", "", "A quiet  room", "12"])
    assert column.codes.tolist() == [0, 1, 0, 2]
    assert column.table.tolist() == ["A quiet  room", "", "12"]


def test_networks_ignore_case_and_white_space() -> None:
    first, second = TextCode.learn("text", objects("a")).prepare(objects("A quiet  room", "a Quiet room\n"))
    assert np.array_equal(first, second)


def test_a_missing_text_differs_from_an_empty_one() -> None:
    assert read(["a", None, ""], missing="indicator").codes.tolist() == [0, -1, 1]
    with pytest.raises(SchemaError, match=r"row 1 \(choice set A\): expected a value of kind text, got nothing"):
        read(["a", None])


def test_numbers_are_not_texts() -> None:
    with pytest.raises(SchemaError, match="'text' is declared as text but has type int64: expected text"):
        read([1, 2])


def test_only_the_first_words_are_used() -> None:
    assert split_words("Überall 3 Zimmer, 45.5 m²") == ["überall", "3", "zimmer", ",", "45.5", "m²"]
    assert len(split_words("a " * 1000)) == MAX_WORDS


def test_a_word_is_encoded_by_hashes_of_itself_and_its_ends() -> None:
    """The hash is the CRC-32 of the letters, the same in every process."""
    code = TextCode.learn("text", objects("pool"))
    (words,) = code.prepare(objects("pool"))
    assert words.tolist() == [[hash_bucket("pool"), hash_bucket("poo-"), hash_bucket("-ool"), 0]]
    assert hash_bucket("pool") == 2439
    assert 1 <= hash_bucket("") <= BUCKETS


def test_a_number_is_encoded_by_leading_digits_and_value() -> None:
    """The mean and standard deviation of asinh(0) and asinh(100) are both asinh(100) / 2."""
    code = TextCode.learn("text", objects("0", "100"))
    prepared = code.prepare(objects("100", "104"))
    assert prepared[0, 0].tolist() == [hash_bucket("3:"), hash_bucket("3:1"), hash_bucket("3:10"), 1.0]
    assert prepared[1, 0, 1:3].tolist() == prepared[0, 0, 1:3].tolist()
    assert prepared[1, 0, 3] == pytest.approx(2 * np.arcsinh(104) / np.arcsinh(100) - 1, abs=1e-6)


def test_extreme_numbers_stay_finite() -> None:
    code = TextCode.learn("text", objects("9" * 400, "²", "٣ 4"))
    assert np.isfinite(code.prepare(objects("9" * 400, "² ", "٣", "1.5.2"))).all()


def test_shorter_texts_are_padded_with_zeros() -> None:
    prepared = TextCode("text", 0.0, 0.0).prepare(objects("a b", "", "c 7"))
    assert prepared.shape == (3, 2, 4)
    assert not prepared[1].any()
    assert prepared[2, 1, 3] == 0  # no scale was learnt
    assert TextCode("text", 0.0, 0.0).prepare(objects("")).shape == (1, 1, 4)
