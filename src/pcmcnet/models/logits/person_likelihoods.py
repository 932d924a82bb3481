"""The log-likelihood of all choices of a person, by logits in which something belongs to the person.

With choices i_t in the sets S_t of a person, classes c of shares pi_c, or coefficients b_r in R draws of the person,

    latent classes   log sum_c pi_c prod_t P_c(i_t | S_t)
    mixed logit      log 1/R sum_r prod_t P(i_t | S_t, b_r)

which is what was maximised. The sum over sets of log-probabilities knows nothing of a person's other choices.
"""

from __future__ import annotations

import numpy as np
import torch

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.persons import Persons
from pcmcnet.models.logits.estimation.logit_likelihood import LogitSets
from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets
from pcmcnet.models.logits.latent_class_mnl import LatentClassMNL
from pcmcnet.models.logits.mixed_mnl import MixedMNL
from pcmcnet.models.logits.simulation.draws import keys_of


def belongs_to_person(model: ChoiceModel) -> bool:
    """Tell whether a fitted model joins the choices of a person, as its options and its table say."""
    joins = isinstance(model, LatentClassMNL | MixedMNL) and model.config.by != "set"
    return joins and model.schema.person is not None


def person_log_likelihoods(model: ChoiceModel, data: ChoiceData) -> Floats | None:
    """(U,) log-likelihood of each person, in the order of ``data.groups()``; None where sets are independent."""
    if not belongs_to_person(model) or data.schema.person is None:
        return None
    return _of_classes(model, data) if isinstance(model, LatentClassMNL) else _of_draws(model, data)


def _of_classes(model: LatentClassMNL, data: ChoiceData) -> Floats:
    persons = Persons.of(data, "person")
    picked = data.offsets[:-1] + data.require_chosen("a likelihood")
    joint = model._log_membership(data)[persons.first]
    np.add.at(joint, persons.number, model._class_log_p(data)[picked])
    total: Floats = np.logaddexp.reduce(joint, axis=1)
    return total


def _of_draws(model: ChoiceModel, data: ChoiceData) -> Floats:
    assert isinstance(model, MixedMNL)
    persons, mixing = Persons.of(data, "person"), model.mixing_
    columns = model._columns(data)
    sets = LogitSets.from_matrix(columns, data.offsets, data.require_chosen("a likelihood"))
    draws = model._draws(mixing, model.config.draws, model.table_.seed, torch.device("cpu"))
    keys, who = keys_of(model._ids(data)[persons.first]), model._who(persons.table)
    problem = MixedSets(sets.z, sets.offsets, persons.number[sets.sets], keys, who, mixing, draws, 0.0)
    return problem.evaluate(model.estimates_.values, "float64", scores=False)[0]
