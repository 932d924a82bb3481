"""Columns that a request may give, and what is said of those that it may not."""

from dataclasses import replace

import pytest

from pcmcnet.models import PCMCNet
from pcmcnet.serving.columns import inputs_of, require_known
from pcmcnet.serving.refusal import RefusalError


@pytest.mark.parametrize("name", ["trip", "took", "town", "who"])
def test_columns_of_a_table_that_no_prediction_reads_are_told_apart_from_unknown_ones(name: str, net: PCMCNet) -> None:
    """The person is one of them, as are the id of the set, the choice and what is kept."""
    schema = replace(net.schema, keep=("town",), person="who")
    with pytest.raises(RefusalError, match=rf"set 0: column '{name}' takes no part in a prediction: leave it out"):
        require_known([name], inputs_of(schema), schema, individual=True, at="set 0")
    with pytest.raises(RefusalError, match="set 0: unknown column 'whom'"):
        require_known(["whom"], inputs_of(schema), schema, individual=True, at="set 0")
