"""Results -> pictures: every plot computes first and draws second; matplotlib is loaded by drawing only.

``plot_...`` draws on axes and returns them, and is what the methods of results call (``reports/drawing.py``);
``draw_...`` writes a file; what has neither word in its name returns the numbers.
"""

from pcmcnet.plots.calibration import draw_calibration, plot_calibration
from pcmcnet.plots.chain import ChainChart, chain_chart, draw_chain, plot_chain
from pcmcnet.plots.comparison import ComparisonChart, comparison_chart, draw_comparison, plot_comparison, plot_report
from pcmcnet.plots.comparison_page import comparison_page, write_comparison_page
from pcmcnet.plots.context import EffectsChart, draw_effects, effects_chart, plot_effects
from pcmcnet.plots.elasticity import DemandChart, demand_chart, draw_demand, plot_demand
from pcmcnet.plots.importance import (
    attribution_bars,
    draw_attribution,
    draw_importance,
    importance_bars,
    plot_attribution,
    plot_importance,
)
from pcmcnet.plots.leaderboard import RankChart, draw_ranks, plot_leaderboard, rank_chart
from pcmcnet.plots.leaderboard_page import leaderboard_page, write_leaderboard_page
from pcmcnet.plots.learning_curve import LearningCurve, draw_learning_curve, learning_curve, plot_learning_curve
from pcmcnet.plots.offers import draw_offer_frontier
from pcmcnet.plots.order_effects import OrderBar, order_bars, plot_order_effects
from pcmcnet.plots.parts import plot_categories, plot_fit, plot_probabilities, plot_sizes
from pcmcnet.plots.preference_map import (
    PreferenceMap,
    draw_preference_maps,
    plot_preference_map,
    preference_error,
    preference_map,
)
from pcmcnet.plots.search import SearchChart, draw_search, plot_search, search_chart
from pcmcnet.plots.tastes import TasteChart, draw_taste, draw_tastes, taste_chart

__all__ = [
    "ChainChart",
    "ComparisonChart",
    "DemandChart",
    "EffectsChart",
    "LearningCurve",
    "OrderBar",
    "PreferenceMap",
    "RankChart",
    "SearchChart",
    "TasteChart",
    "attribution_bars",
    "chain_chart",
    "comparison_chart",
    "comparison_page",
    "demand_chart",
    "draw_attribution",
    "draw_calibration",
    "draw_chain",
    "draw_comparison",
    "draw_demand",
    "draw_effects",
    "draw_importance",
    "draw_learning_curve",
    "draw_offer_frontier",
    "draw_preference_maps",
    "draw_ranks",
    "draw_search",
    "draw_taste",
    "draw_tastes",
    "effects_chart",
    "importance_bars",
    "leaderboard_page",
    "learning_curve",
    "order_bars",
    "plot_attribution",
    "plot_calibration",
    "plot_categories",
    "plot_chain",
    "plot_comparison",
    "plot_demand",
    "plot_effects",
    "plot_fit",
    "plot_importance",
    "plot_leaderboard",
    "plot_learning_curve",
    "plot_order_effects",
    "plot_preference_map",
    "plot_probabilities",
    "plot_report",
    "plot_search",
    "plot_sizes",
    "preference_error",
    "preference_map",
    "rank_chart",
    "search_chart",
    "taste_chart",
    "write_comparison_page",
    "write_leaderboard_page",
]
