"""Decisions: which alternatives to offer and what to ask for them, with a bound on what could be earned."""

from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.offer import Offer
from pcmcnet.decisions.offer_files import write_offers
from pcmcnet.decisions.offer_frontier import Frontier, offer_frontier
from pcmcnet.decisions.optimise_offer import optimise_offer
from pcmcnet.decisions.optimise_offers import Offers, optimise_offers
from pcmcnet.decisions.optimise_prices import optimise_prices
from pcmcnet.decisions.prices import Prices

__all__ = [
    "Constraints",
    "Frontier",
    "Offer",
    "Offers",
    "Prices",
    "offer_frontier",
    "optimise_offer",
    "optimise_offers",
    "optimise_prices",
    "write_offers",
]
