"""Decisions about which alternatives to offer and at what prices, with an upper bound on the revenue of any offer."""

from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.optimise_offer import Frontier, Offer, offer_frontier, optimise_offer
from pcmcnet.decisions.optimise_offers import Offers, optimise_offers, write_offers
from pcmcnet.decisions.optimise_prices import Prices, optimise_prices

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
