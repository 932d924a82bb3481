"""What a fitted network tells of itself: options, how training went, and its weights with their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pcmcnet.reports.formats import Summary

if TYPE_CHECKING:
    from pcmcnet.models.networks.neural_model import NeuralModel


def network_summary(model: NeuralModel) -> Summary:
    """Sum up a fitted network; of several that are averaged, which have one form, the first is shown."""
    _, told = model.schema, model.training_
    whose = " of the first" if told.get("members", 1) > 1 else ""
    facts = {
        "options": ", ".join(f"{k}={v}" for k, v in asdict(model.config).items()),
        "trained on": "{choice_sets:,} choice sets, {alternatives:,} alternatives".format(**told),
        "epochs": str(told["epochs"]),
        **_weight_decay(told),
        "parameters": f"{model.num_parameters:,}",
    }
    if model.history:
        facts[f"last training NLL{whose}"] = f"{model.history[-1]['train_loss']:.4f}"
        kept = model.history[min(told["epochs"], len(model.history)) - 1]["valid_loss"]
        if kept is not None:
            facts[f"validation NLL{whose}"] = f"{kept:.4f}"
    shown = [(name, p) for name, p in model.network_.named_parameters() if not name.startswith("others.")]
    rows = tuple((name, " x ".join(map(str, p.shape)), f"{p.numel():,}") for name, p in shown)
    return Summary(type(model).__name__, facts | model._more_facts(), ("weights", "shape", "parameters"), rows)


def _weight_decay(training: Mapping[str, Any]) -> dict[str, str]:
    """Say how firmly the network was held, and how that was learnt."""
    if "weight_decay" not in training:
        return {}
    held, search = f"{training['weight_decay']:.3g}", training.get("search")
    if search is None:
        return {"weight decay": held}
    tried = ", ".join(f"{t['weight_decay']:g}: {t['held_out_nll']:.4f}" for t in search["trials"])
    return {"weight decay": f"{held}, learnt from {search['held_out_sets']:,} held-out sets (NLL {tried})"}
