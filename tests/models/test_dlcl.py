import pytest
import torch

from network_batches import chosen_places, largest_set, log_odds_terms, scrambled
from pcmcnet.data import ChoiceData
from pcmcnet.models import DLCL


@torch.no_grad()
def test_probabilities_follow_the_formulas(trips: ChoiceData) -> None:
    network, batch = scrambled(DLCL(), trips)
    s, n = largest_set(batch)
    alone = chosen_places(batch, s, range(n))
    individual, alternatives = network.represent(alone)
    common, mean = network.utility(alone, individual, alternatives)[0], sum(alternatives[0]) / n
    shares = (network.shares + network.shares_of @ individual[0]).softmax(0)
    p = torch.zeros(n).double()
    for k in range(len(mean)):
        weights = network.intercepts[k] + network.slopes[k] * mean[k]
        p += shares[k] * (common + alternatives[0] @ weights).softmax(0)
    torch.testing.assert_close(network(batch)[s, :n].exp(), p, rtol=1e-12, atol=1e-12)


def test_equal_components_are_one_multinomial_logit(trips: ChoiceData) -> None:
    network, batch = scrambled(DLCL(), trips)
    s, n = largest_set(batch)
    assert max(abs(term) for group, term in log_odds_terms(network, batch, s, n).items() if group) > 0.01
    network.intercepts.data.zero_()
    network.slopes.data.zero_()
    assert max(abs(term) for group, term in log_odds_terms(network, batch, s, n).items() if group) < 1e-12


def test_the_summary_lists_components_by_share(trips: ChoiceData) -> None:
    model = DLCL(epochs=1, weight_decay=1.0).fit(trips, progress=False)
    rows = model.summary().rows
    shares = [float(row[1]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=0.01)
    assert {"price", "mode=car"} <= {row[0] for row in rows}
