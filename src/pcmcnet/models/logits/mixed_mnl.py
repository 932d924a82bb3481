"""Mixed logit (McFadden & Train, 2000): a multinomial logit whose coefficients differ from person to person.

Person n has coefficients b_n, drawn from distributions that are estimated, and chooses by a logit in all sets t,

    P(choices of n) = E_b prod_t exp(b . x_chosen,t) / sum_j exp(b . x_jt)

where the expectation is a mean over draws (``simulation/draws.py``). What varies with b is shared by the person's sets,
so that odds are no longer independent of other alternatives. Distributions are those of
``simulation/distributions.py``, the likelihood that of ``estimation/mixed_likelihood.py``. Predictions are for a person
of whom no choice is known: ``simulation/population.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.interface.fit_settings import FitRun
from pcmcnet.models.interface.fitted import TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.persons import Persons
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.design.formula import quoted
from pcmcnet.models.logits.design.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logits.estimation import Estimates, LogitSets, infer
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets
from pcmcnet.models.logits.estimation.mixed_search import Search, SimulatedMaximum
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters
from pcmcnet.models.logits.logit_model import read_design, read_estimates, read_schema
from pcmcnet.models.logits.mixed_config import MixedMNLConfig
from pcmcnet.models.logits.mixed_predictions import (
    FittedMixture,
    MixedPredictions,
    MixedRecord,
    SimulationRecord,
    individual_numbers,
    labels_of,
    utility_columns,
)
from pcmcnet.models.logits.simulation.coefficients import Mixing
from pcmcnet.models.logits.simulation.draws import keys_of
from pcmcnet.models.logits.simulation.specification import require_moving, specify
from pcmcnet.storage.files import json_bytes
from pcmcnet.training.device import resolve_device

_TOGETHER = 15  # Newton's steps of the logit where the search begins: its own maximum may be at infinity


class MixedMNL(MixedPredictions):
    """Mixed, or random parameters, multinomial logit.

    Options are those of :class:`MixedMNLConfig`.
    """

    name = "mixed-mnl"
    config_class = MixedMNLConfig

    @takes(MixedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _estimate(self, train: ChoiceData, run: FitRun, design: Design | None = None) -> FittedMixture:
        config = self.config
        # 1. The sets that count, whose coefficients they tell of, and the columns of utilities. In willingness-to-pay
        #    space it is the random coefficients that are worths, not the parameters of the design.
        sets, chosen, clusters = self._prepare(train)
        persons = self._persons(sets, clusters)
        if design is None:
            design = self._require_linear(self._learn_design(sets, wtp_space=None))
        plain = LogitSets.from_matrix(design.matrix(sets), sets.offsets, chosen)
        # 2. Which coefficients are random; each must have an effect on some choice.
        who = self._learn_who(persons)
        mixing = self._specify(design, who, sets)
        alike = self._alike(mixing)
        require_identified(plain.z, design.names, alike)
        columns = utility_columns(design, mixing, config.components, sets)
        whole = LogitSets.from_matrix(columns, sets.offsets, chosen)
        require_moving(whole.z, mixing)
        # 3. The search begins near the logit in which all have the same coefficients; it gives lognormals their signs.
        b, _, _ = plain.maximise(sets.weights, within=alike, max_iter=_TOGETHER, settle=False)
        mixing = mixing.signed(b)
        scale = mixing.scale(whole.spread, b)
        within = self._parameters(mixing.names, mixing.start(b, 1 / whole.spread))
        # 4. The maximum of the simulated likelihood. A person's draws depend on seed and id alone.
        keys, device = keys_of(self._ids(sets)[persons.first]), resolve_device(run.device)
        numbers = individual_numbers(who, persons.table)

        def make(number: int, which: int) -> MixedSets:
            draws = self._draws(mixing, number, run.seed ^ (which << 32), device)
            memory = 0.0 if which else config.memory * 2**30  # the second set of draws is used once
            return MixedSets.of(whole, persons.number, keys, numbers, mixing, draws, memory)

        search = Search(make, persons.weights(sets), scale, within, config.draws, config.prior, config.max_iter)
        maximum = search.maximum(self._starts(within.start, scale, run.seed))
        # 5. Negative spreads become positive by mirrored draws; scores and Hessian change their signs likewise. A
        #    person's score stands at the first of its sets.
        mixing, x = mixing.mirrored(maximum.values)
        turned = np.where(x == maximum.values, 1.0, -1.0)
        scores = np.zeros((len(sets), len(x)))
        scores[persons.first] = maximum.scores * turned
        estimates = infer(
            replace(maximum, values=x, scores=scores, hessian=maximum.hessian * np.outer(turned, turned)),
            within,
            weights=sets.weights,
            sizes=sets.sizes,
            clusters=clusters,
            constants_log_likelihood=self._constants_log_likelihood(design, plain, sets.weights),
        )
        self._warn_unbounded(estimates)
        record = MixedRecord(persons=len(keys), simulation=_simulation_record(maximum, estimates))
        return FittedMixture(design=design, estimates=estimates, record=record, mixing=mixing, who=who)

    def _learn_who(self, persons: Persons) -> dict[str, IndividualDesign]:
        """Learn the numbers of individuals that means depend on."""
        found = {}
        for name, text in self.config.means.items():
            for factor in (f for term in parse_membership(text)[0] for f in term.factors):
                if factor.column in persons.varying:
                    raise InputError(
                        f"means[{name!r}]: column {factor.column!r} varies within a person, first in choice set "
                        f"{persons.varying[factor.column]}: put {name}:{factor.column} into the formula, or fit with "
                        f"by='set'."
                    )
            found[name] = IndividualDesign.learn(text, persons.table, least=self.config.min_chosen)
        return found

    def _specify(self, design: Design, who: Mapping[str, IndividualDesign], sets: ChoiceData) -> Mixing:
        """Find the random coefficients that the options name."""
        config = self.config
        unknown = [label for label in config.components if label not in labels_of(sets)] if config.components else []
        if unknown:
            raise ConfigError(
                f"components names {unknown[0]!r}, which is no alternative of the table."
                + did_you_mean(unknown[0], labels_of(sets))
            )
        mixing = specify(
            design,
            design.sources(sets),
            config.random,
            config.correlated,
            nests=sorted(set(config.components.values())),
            means={name: columns.names[1:] for name, columns in who.items()},
            offset=None if config.offset is None else quoted(config.offset),
            cost=config.wtp_space,
        )
        if mixing.cost is not None and mixing.cost not in {r.column for r in mixing.random}:
            self._require_cost(mixing.names[mixing.cost])
        return mixing

    def _alike(self, mixing: Mixing) -> Parameters:
        """Return the coefficients of a logit without random ones, fixed and bounded where the options mean those."""
        within, located = self._parameters(mixing.names), slice(mixing.located)
        low, high, at = within.low[located].copy(), within.high[located].copy(), within.start[located].copy()
        for column, _ in mixing.random:
            if column < mixing.located:  # its options are about a location, which may be no coefficient
                low[column], high[column], at[column] = -np.inf, np.inf, 0.0
        return Parameters(mixing.names[located], at, low, high)

    def _starts(self, first: Floats, scale: Floats, seed: int) -> Floats:  # -> (A, P)
        """Begin near the multinomial logit, and around it."""
        others = np.random.default_rng(seed).standard_normal((self.config.starts - 1, len(first)))
        return np.vstack([first, first + others * np.maximum(0.5 * np.abs(first), 0.5 * scale)])

    def _facts(self) -> dict[str, str]:
        facts, config, mixing, record = super()._facts(), self.config, self.mixing_, self._state.record
        facts["random"] = ", ".join(f"{mixing.labels[r.column]}: {r.distribution}" for r in mixing.random)
        if config.wtp_space is not None:
            facts["wtp in units of"] = config.wtp_space
        by_set = record.persons == self.estimates_.n_sets
        facts["coefficients of"] = "each choice set" if by_set else f"{record.persons:,} persons"
        facts["draws"] = f"{config.draws:,} ({config.sequence}{', antithetic' * config.antithetic})"
        facts["with other draws"] = (
            f"log-likelihood {record.simulation.log_likelihood:.3f}; estimates move by up to "
            f"{record.simulation.largest_shift:.2f} standard errors"
        )
        return facts

    def _files(self) -> dict[str, bytes]:
        mixing = asdict(self.mixing_) | {"random": [[r.column, asdict(r.distribution)] for r in self.mixing_.random]}
        who = {name: design.to_dict() for name, design in self.who_.items()}
        return {**super()._files(), "mixing.json": json_bytes({"mixing": mixing, "who": who})}

    def _restore(self, files: Mapping[str, bytes], record: MixedRecord, table: TrainingTable) -> FittedMixture:
        entries, schema = json.loads(files["mixing.json"]), read_schema(files)
        who = {str(name): IndividualDesign.from_dict(design) for name, design in entries["who"].items()}
        for columns in who.values():
            columns.require_fit(schema)
        mixing, estimates = Mixing.from_dict(entries["mixing"]), read_estimates(files)
        if mixing.names != estimates.names:
            raise ValueError("the random coefficients and the estimates do not fit each other")
        return FittedMixture(design=read_design(files), estimates=estimates, record=record, mixing=mixing, who=who)


def _simulation_record(maximum: SimulatedMaximum, estimates: Estimates) -> SimulationRecord:
    """Return how far other draws would move the log-likelihood and the estimates."""
    errors = np.sqrt(np.maximum(np.diag(estimates.covariance("classical")), 1e-300))
    shift = float(np.max(np.abs(maximum.shift) / errors, initial=0.0, where=errors > 1e-150))
    return SimulationRecord(log_likelihood=maximum.other_log_likelihood, largest_shift=shift)
