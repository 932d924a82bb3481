"""Plots of results. Every plot is first computed and then drawn. Only the drawing step imports matplotlib.

Functions named ``plot_...`` draw on matplotlib axes and return them, and the ``plot`` methods of results call these
functions. Functions named ``draw_...`` or ``write_...`` write a file. Functions named ``..._chart`` compute the values
to draw.
"""

from pcmcnet.insight.preference_map import PreferenceMap, preference_error, preference_map
from pcmcnet.plots.chain import ChainChart, chain_chart, draw_chain, plot_chain
from pcmcnet.plots.comparison import (
    ComparisonChart,
    comparison_chart,
    comparison_page,
    draw_comparison,
    plot_bootstrap,
    plot_comparison,
    plot_report,
    write_comparison_page,
)
from pcmcnet.plots.context import (
    ContextEffectsChart,
    context_effects_chart,
    draw_context_effects,
    draw_preference_map,
    draw_preference_maps,
    plot_context_effects,
    plot_order_effects,
    plot_preference_map,
)
from pcmcnet.plots.effects import (
    TasteChart,
    draw_attribution,
    draw_demand,
    draw_importance,
    draw_taste,
    draw_tastes,
    plot_attribution,
    plot_categories,
    plot_demand,
    plot_importance,
    plot_probabilities,
    taste_chart,
)
from pcmcnet.plots.leaderboard import (
    RankChart,
    draw_ranks,
    leaderboard_page,
    plot_leaderboard,
    rank_chart,
    write_leaderboard_page,
)
from pcmcnet.plots.quality import (
    LearningCurve,
    draw_calibration,
    draw_learning_curve,
    learning_curve,
    plot_calibration,
    plot_fit,
    plot_learning_curve,
    plot_sizes,
)
from pcmcnet.plots.report import write_explanation
from pcmcnet.plots.scenario import plot_scenario
from pcmcnet.plots.search import SearchChart, draw_offer_frontier, draw_search, plot_search, search_chart
from pcmcnet.plots.submarkets import SubmarketsChart, draw_submarkets, plot_submarkets, submarkets_chart

# fmt: off
__all__ = [
    "ChainChart", "ComparisonChart", "ContextEffectsChart", "LearningCurve", "PreferenceMap", "RankChart",
    "SearchChart", "SubmarketsChart", "TasteChart", "chain_chart", "comparison_chart", "comparison_page",
    "context_effects_chart", "draw_attribution", "draw_calibration", "draw_chain", "draw_comparison",
    "draw_context_effects", "draw_demand", "draw_importance", "draw_learning_curve", "draw_offer_frontier",
    "draw_preference_map", "draw_preference_maps", "draw_ranks", "draw_search", "draw_submarkets", "draw_taste",
    "draw_tastes", "leaderboard_page", "learning_curve", "plot_attribution", "plot_bootstrap", "plot_calibration",
    "plot_categories", "plot_chain", "plot_comparison", "plot_context_effects", "plot_demand", "plot_fit",
    "plot_importance", "plot_leaderboard", "plot_learning_curve", "plot_order_effects", "plot_preference_map",
    "plot_probabilities", "plot_report", "plot_scenario", "plot_search", "plot_sizes", "plot_submarkets",
    "preference_error", "preference_map", "rank_chart", "search_chart", "submarkets_chart",
    "taste_chart", "write_comparison_page", "write_explanation", "write_leaderboard_page",
]
# fmt: on
