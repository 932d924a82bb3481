"""What texts are worth."""

import torch

from pcmcnet.data.kinds.networks.text import WordsWorth
from pcmcnet.data.kinds.text import BUCKETS


def test_a_text_is_worth_its_words_their_ends_and_its_numbers() -> None:
    """Hashes 1, 2 and 3 are worth 1, 10 and 100, a unit of value 0.5."""
    worth = WordsWorth()
    assert len(worth.parts) == BUCKETS + 1
    with torch.no_grad():
        worth.parts[1:4, 0] = torch.tensor([1.0, 10.0, 100.0])
        worth.value.fill_(0.5)
    texts = torch.tensor([[[1.0, 2.0, 3.0, 0.0], [1.0, 1.0, 2.0, 4.0]], [[0.0] * 4, [3.0, 0.0, 0.0, -2.0]]])
    assert worth(texts).tolist() == [111 + 12 + 2.0, 100 - 1.0]
