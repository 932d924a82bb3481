"""Texts: how they are cut, what words and numbers become, and that equal ones are kept once."""

from functools import partial

import numpy as np
import pytest

from choice_tables import objects, read_column
from pcmcnet.data.kinds.text import BUCKETS, MAX_WORDS, TextCode, hash_bucket, split_words
from pcmcnet.errors import SchemaError

read = partial(read_column, "text", "text")


def test_equal_texts_are_kept_once_and_as_they_are_written() -> None:
    column = read(["A quiet  room", "", "A quiet  room", "12"])
    assert column.codes.tolist() == [0, 1, 0, 2]
    assert column.table.tolist() == ["A quiet  room", "", "12"]


def test_to_a_network_case_and_blanks_are_no_difference() -> None:
    first, second = TextCode.learn("text", objects("a")).prepare(objects("A quiet  room", "a Quiet room\n"))
    assert np.array_equal(first, second)


def test_gaps_are_no_empty_texts() -> None:
    assert read(["a", None, ""], missing="indicator").codes.tolist() == [0, -1, 1]
    with pytest.raises(SchemaError, match=r"row 1 \(choice set A\): expected a content of kind text, got nothing"):
        read(["a", None])


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(SchemaError, match="'text' is declared as text but has type int64: expected text"):
        read([1, 2])


def test_only_the_first_words_count() -> None:
    assert split_words("Überall 3 Zimmer, 45.5 m²") == ["überall", "3", "zimmer", ",", "45.5", "m²"]
    assert len(split_words("a " * 1000)) == MAX_WORDS


def test_a_word_is_its_hash_and_those_of_its_ends() -> None:
    """CRC-32 of the letters, the same in every process."""
    code = TextCode.learn("text", objects("pool"))
    (found,) = code.prepare(objects("pool"))
    assert found.tolist() == [[hash_bucket("pool"), hash_bucket("poo-"), hash_bucket("-ool"), 0]]
    assert hash_bucket("pool") == 2439
    assert 1 <= hash_bucket("") <= BUCKETS


def test_a_number_is_its_leading_digits_and_its_value_to_scale() -> None:
    """asinh of 0 and of 100 have the mean and the standard deviation asinh(100) / 2."""
    code = TextCode.learn("text", objects("0", "100"))
    found = code.prepare(objects("100", "104"))
    assert found[0, 0].tolist() == [hash_bucket("3:"), hash_bucket("3:1"), hash_bucket("3:10"), 1.0]
    assert found[1, 0, 1:3].tolist() == found[0, 0, 1:3].tolist()
    assert found[1, 0, 3] == pytest.approx(2 * np.arcsinh(104) / np.arcsinh(100) - 1, abs=1e-6)


def test_odd_numbers_stay_finite() -> None:
    code = TextCode.learn("text", objects("9" * 400, "²", "٣ 4"))
    assert np.isfinite(code.prepare(objects("9" * 400, "² ", "٣", "1.5.2"))).all()


def test_shorter_texts_end_in_nothing() -> None:
    found = TextCode("text", 0.0, 0.0).prepare(objects("a b", "", "c 7"))
    assert found.shape == (3, 2, 4)
    assert not found[1].any()
    assert found[2, 1, 3] == 0  # no scale was learnt
    assert TextCode("text", 0.0, 0.0).prepare(objects("")).shape == (1, 1, 4)
