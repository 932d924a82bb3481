"""Results -> pictures: every plot computes first and draws second; matplotlib is loaded by drawing only."""

from pcmcnet.plots.comparison import ComparisonChart, comparison_chart, draw_comparison
from pcmcnet.plots.comparison_page import comparison_page, write_comparison_page
from pcmcnet.plots.leaderboard import RankChart, draw_ranks, plot_leaderboard, rank_chart
from pcmcnet.plots.leaderboard_page import leaderboard_page, write_leaderboard_page
from pcmcnet.plots.learning_curve import LearningCurve, draw_learning_curve, learning_curve
from pcmcnet.plots.offers import draw_offer_frontier
from pcmcnet.plots.preference_map import PreferenceMap, draw_preference_maps, preference_error, preference_map
from pcmcnet.plots.search import SearchChart, draw_search, search_chart
from pcmcnet.plots.tastes import TasteChart, draw_taste, draw_tastes, taste_chart

__all__ = [
    "ComparisonChart",
    "LearningCurve",
    "PreferenceMap",
    "RankChart",
    "SearchChart",
    "TasteChart",
    "comparison_chart",
    "comparison_page",
    "draw_comparison",
    "draw_learning_curve",
    "draw_offer_frontier",
    "draw_preference_maps",
    "draw_ranks",
    "draw_search",
    "draw_taste",
    "draw_tastes",
    "leaderboard_page",
    "learning_curve",
    "plot_leaderboard",
    "preference_error",
    "preference_map",
    "rank_chart",
    "search_chart",
    "taste_chart",
    "write_comparison_page",
    "write_leaderboard_page",
]
