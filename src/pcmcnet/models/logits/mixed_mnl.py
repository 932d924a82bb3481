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
from dataclasses import asdict
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.options import takes
from pcmcnet.models.logits.design.formula import quoted
from pcmcnet.models.logits.design.individual_design import IndividualDesign, parse_membership
from pcmcnet.models.logits.estimation import LogitSets, infer
from pcmcnet.models.logits.estimation.identification import require_identified
from pcmcnet.models.logits.estimation.mixed_likelihood import MixedSets
from pcmcnet.models.logits.estimation.mixed_search import Maximum, Search
from pcmcnet.models.logits.estimation.parallel import products_in_one_thread
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters
from pcmcnet.models.logits.mixed_config import MixedMNLConfig
from pcmcnet.models.logits.mixed_predictions import MixedPredictions, labels_of
from pcmcnet.models.logits.persons import Persons
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
    control = own_worths = True

    @takes(MixedMNLConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @products_in_one_thread()
    def _fit(self, train: ChoiceData, valid: ChoiceData | None, settings: FitSettings) -> None:
        sets, chosen, clusters = self._prepare(train)
        persons = self._persons(sets, clusters)
        self.design_ = self._learn_design(sets)
        plain = LogitSets.from_matrix(self.design_.matrix(sets), sets.offsets, chosen)
        self.who_ = self._learn_who(persons)
        mixing = self._specify(sets)
        alike = self._alike(mixing)
        require_identified(plain.z, self.design_.names, alike)
        whole = LogitSets.from_matrix(self._columns(sets, mixing), sets.offsets, chosen)
        require_moving(whole.z, mixing)
        b, _, _ = plain.maximise(sets.weights, within=alike, max_iter=_TOGETHER, settle=False)
        mixing = mixing.signed(b)
        scale = mixing.scale(whole.spread, b)
        within = self._parameters(mixing.names, mixing.start(b, 1 / whole.spread))
        keys, device = keys_of(self._ids(sets)[persons.first]), resolve_device(settings.device)
        who = self._who(persons.table)

        def make(number: int, which: int) -> MixedSets:
            draws = self._draws(mixing, number, settings.seed ^ (which << 32), device)
            memory = 0.0 if which else self.config.memory * 2**30  # the second set of draws is used once
            return MixedSets.of(whole, persons.number, keys, who, mixing, draws, memory)

        config = self.config
        search = Search(make, persons.weights(sets), scale, within, config.draws, config.prior, config.max_iter)
        found = search.maximum(self._starts(within.start, scale, settings.seed))
        self.mixing_, x = mixing.mirrored(found.x)
        turned = np.where(x == found.x, 1.0, -1.0)
        scores = np.zeros((len(sets), len(x)))
        scores[persons.first] = found.scores * turned  # those of a person stand at the first of its sets
        self.estimates_ = infer(
            mixing.names,
            x,
            log_likelihood=found.log_likelihood,
            hessian=found.hessian * np.outer(turned, turned),
            scores=scores,
            weights=sets.weights,
            sizes=sets.sizes,
            steps=found.steps,
            clusters=clusters,
            spread=1 / scale,
            constants_log_likelihood=self._constants_alone(plain, sets.weights),
            within=within,
        )
        self._keep(found, len(keys))
        self._note()

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

    def _specify(self, sets: ChoiceData) -> Mixing:
        """Find the random coefficients that the options name."""
        config = self.config
        unknown = [label for label in config.components if label not in labels_of(sets)] if config.components else []
        if unknown:
            raise ConfigError(
                f"components names {unknown[0]!r}, which is no alternative of the table."
                + did_you_mean(unknown[0], labels_of(sets))
            )
        mixing = specify(
            self.design_,
            self.design_.sources(sets),
            config.random,
            config.correlated,
            nests=sorted(set(config.components.values())),
            means={name: design.names[1:] for name, design in self.who_.items()},
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

    def _keep(self, found: Maximum, persons: int) -> None:
        """Note how the draws matter."""
        errors = np.sqrt(np.maximum(np.diag(self.estimates_.covariance("classical")), 1e-300))
        moved = float(np.max(np.abs(found.shift) / errors, initial=0.0, where=errors > 1e-150))
        self.training_ |= {
            "persons": persons,
            "simulation": {"log_likelihood": found.other_log_likelihood, "largest_shift": moved},
        }

    def _facts(self) -> dict[str, str]:
        facts, config, mixing = super()._facts(), self.config, self.mixing_
        other = self.training_["simulation"]
        facts["random"] = ", ".join(f"{mixing.labels[r.column]}: {r.distribution}" for r in mixing.random)
        if config.wtp_space is not None:
            facts["wtp in units of"] = config.wtp_space
        n = self.training_["persons"]
        facts["coefficients of"] = "each choice set" if n == self.estimates_.n_sets else f"{n:,} persons"
        facts["draws"] = f"{config.draws:,} ({config.sequence}{', antithetic' * config.antithetic})"
        facts["with other draws"] = (
            f"log-likelihood {other['log_likelihood']:.3f}; estimates move by up to {other['largest_shift']:.2f} "
            f"standard errors"
        )
        return facts

    def _files(self) -> dict[str, bytes]:
        mixing = asdict(self.mixing_) | {"random": [[r.column, asdict(r.distribution)] for r in self.mixing_.random]}
        who = {name: design.to_dict() for name, design in self.who_.items()}
        return {**super()._files(), "mixing.json": json_bytes({"mixing": mixing, "who": who})}

    def _restore(self, files: Mapping[str, bytes]) -> None:
        super()._restore(files)
        entries = json.loads(files["mixing.json"])
        self.who_ = {str(name): IndividualDesign.from_dict(design) for name, design in entries["who"].items()}
        for design in self.who_.values():
            design.require_fit(Schema.from_dict(json.loads(files["schema.json"])))
        self.mixing_ = Mixing.from_dict(entries["mixing"])
        if self.mixing_.names != self.estimates_.names:
            raise ValueError("the random coefficients and the estimates do not fit each other")
