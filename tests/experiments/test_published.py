"""The figures against those printed in the paper, typed a second time."""

from pcmcnet.experiments import published
from pcmcnet.models import PCMCNet


def test_table_1_is_that_of_the_paper() -> None:
    rows = published.table1()
    assert [row.kl for row in rows.values()] == [0.119, 0.022, 0.018, 0.011, 0.009]
    assert [row.parameters for row in rows.values()] == [2, 4290, 97, 369, 641]
    assert published.sizes("table1") == (20_000, 10_000)


def test_table_3_is_that_of_the_paper() -> None:
    rows = published.table3().values()
    assert [row.top_1 for row in rows] == [0.063, 0.164, 0.154, 0.224, 0.271, 0.273, 0.257, 0.331]
    assert [row.top_5 for row in rows] == [0.255, 0.471, 0.472, 0.624, 0.672, 0.674, 0.665, 0.745]
    assert [row.nll for row in rows] == [3.24, None, None, 2.44, 2.33, None, 2.33, 2.03]
    assert published.sizes("table3") == (27_160, 6_791)


def test_table_2_is_made_of_options_of_the_model() -> None:
    config = PCMCNet.paper(**published.table2()).config
    assert (config.hidden, config.batch_size, config.lr, config.dropout) == ((512, 512), 16, 0.001, 0.5)
    assert (config.activation, config.epochs) == ("leaky_relu", 66)
