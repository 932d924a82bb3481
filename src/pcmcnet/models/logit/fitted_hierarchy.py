"""A fitted hierarchical logit: draws of the population and of part-worths, and the population for predictions.

A new person's coefficients have the distribution of b ~ N(D z, S) over draws of D and S: ``PosteriorPopulation``. The
sampler uses standardised covariates (``CovariateUnits``). Shapes: C chains with R draws each, N persons, K part-worths,
G covariates, the first of which is 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import ArtifactError
from pcmcnet.models.interface.fitted import FitRecord, FittedState
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.draws import CoefficientDraws, PersonDraws
from pcmcnet.models.logit.hierarchical_sampler import HierarchicalDraws
from pcmcnet.models.logit.individual_design import IndividualDesign
from pcmcnet.models.logit.logit_model import read_design, read_schema
from pcmcnet.storage import json_bytes

_ARRAYS = ("means", "covariances", "part_worths")  # fields that are saved as arrays
_MAX_LOGARITHM = 80.0  # of a coefficient: part-worths are stored in float32, which overflows after exp(88)


@dataclass(frozen=True, kw_only=True)
class HierarchicalRecord(FitRecord):
    """Facts about the fit of a hierarchical logit."""

    persons: int
    median_sets: float  # median number of choice sets of a person
    root_likelihood: float  # geometric mean of the probabilities of the choices, at the mean part-worths
    largest_rhat: float
    worst_parameter: str
    smallest_size: float  # smallest bulk effective sample size
    accepted: float  # mean share of accepted steps of the persons
    population_accepted: float  # share of accepted steps of the population
    negligible: tuple[str, ...] = ()  # coefficients of constrained sign that are close to 0 for most persons


@dataclass(frozen=True, kw_only=True)
class FittedHierarchy(FittedState):
    """A fitted hierarchical logit: draws of the population and of the part-worths."""

    design: Design
    covariates: IndividualDesign
    names: tuple[str, ...]  # (K,) columns with part-worths; the others have coefficients of 0
    signs: tuple[int, ...]  # (K,) 1 or -1 for a constrained sign, else 0
    means: Floats  # (R, C, K, G) draws of D
    covariances: Floats  # (R, C, K, K) draws of S
    part_worths: NDArray[np.float32]  # (N, K, B) draws of the coefficients
    persons: NDArray[Any]  # (N,) ids of persons, or of choice sets
    record: HierarchicalRecord
    seconds: float | None = field(default=None, compare=False)  # duration of the fit; not saved
    prediction_draws: int = field(default=1000, compare=False)  # that predict new people; not saved

    @property
    def places(self) -> Ints:  # (K,)
        """Columns of the utility that have part-worths."""
        return np.array([self.design.columns.index(name) for name in self.names], np.int64)

    def population_draws(self) -> tuple[Floats, Floats]:
        """Return the draws of D (R C, K, G) and S (R C, K, K) of all chains."""
        means, covariances = self.means, self.covariances
        return means.reshape(-1, *means.shape[2:]), covariances.reshape(-1, *covariances.shape[2:])

    def at_draw(self, draw: int, prediction_draws: int) -> FittedHierarchy:
        """Return the model whose population has the parameters of one draw."""
        means, covariances = self.population_draws()
        one: dict[str, Any] = {"means": means[draw, None, None], "covariances": covariances[draw, None, None]}
        return replace(self, **one, prediction_draws=prediction_draws)

    def population(self, number: int, seed: int) -> PosteriorPopulation:
        """Return the population as a number of people, each from one posterior draw of the parameters."""
        means, covariances = self.population_draws()
        at = np.arange(number) * len(means) // number  # equal distances; repeated if there are fewer
        uniform = PersonDraws("sobol", len(self.names), number, seed).common()[0].double()
        standard = (uniform.erfinv() * math.sqrt(2)).numpy().T
        factors = np.asarray(np.linalg.cholesky(covariances[at]), np.float64)
        signs = np.array(self.signs, np.int64)
        return PosteriorPopulation(means[at], factors, standard, signs, self.places, len(self.design.columns))

    def files(self) -> dict[str, bytes]:
        """Return the content of the files that save the model."""
        entries = {
            "names": list(self.names),
            "signs": list(self.signs),
            "covariates": self.covariates.to_dict(),
            "persons": self.persons.tolist(),
        }
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAYS}
        return {
            "design.json": json_bytes(self.design.to_dict()),
            "part_worths.json": json_bytes(entries),
            "draws.safetensors": save_arrays(arrays),
        }

    @classmethod
    def of_files(cls, files: Mapping[str, bytes], record: HierarchicalRecord) -> FittedHierarchy:
        """Return a saved model, or raise ArtifactError or ValueError if its files do not match."""
        entries, arrays = json.loads(files["part_worths.json"]), load_arrays(files["draws.safetensors"])
        design, covariates = read_design(files), IndividualDesign.from_dict(entries["covariates"])
        covariates.require_fit(read_schema(files))
        names, signs = tuple(map(str, entries["names"])), tuple(map(int, entries["signs"]))
        persons = np.array(entries["persons"])
        K, G, N = len(names), len(covariates.names), len(persons)
        R, C = arrays["means"].shape[:2]
        shapes: dict[str, tuple[int, ...]] = {"means": (R, C, K, G), "covariances": (R, C, K, K)}
        shapes["part_worths"] = (N, K, arrays["part_worths"].shape[-1])
        if not all(arrays[name].shape == shape and np.isfinite(arrays[name]).all() for name, shape in shapes.items()):
            raise ArtifactError("the saved draws are not finite or their shapes do not match: fit the model again.")
        if not {*names} <= {*design.columns} or len(signs) != K or not {*signs} <= {-1, 0, 1}:
            raise ValueError("the saved part-worths and columns do not match")
        draws: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        return cls(
            design=design, covariates=covariates, names=names, signs=signs, persons=persons, record=record, **draws
        )


@dataclass(frozen=True)
class PosteriorPopulation(CoefficientDraws):
    """The distribution of coefficients over people: for each draw of D and S, one person."""

    means: Floats  # (R, K, G)
    factors: Floats  # (R, K, K) lower triangular factors of S
    standard: Floats  # (R, K) standard normal draws
    signs: Ints  # (K,)
    places: Ints  # (K,) columns with part-worths
    columns: int

    @property
    def number(self) -> int:
        """Number R of draws."""
        return len(self.means)

    def coefficients(self, h: Floats) -> Tensor:  # (N, G - 1) -> (N, columns, R)
        """Return the coefficients of the utility's columns, for individuals with covariates h."""
        with_constant = np.column_stack([np.ones(len(h)), h])
        b = np.einsum("rkg,ng->nkr", self.means, with_constant)
        b += np.einsum("rkl,rl->kr", self.factors, self.standard)
        out = np.zeros((len(h), self.columns, self.number))
        out[:, self.places] = signed_coefficients(b, self.signs)
        return torch.from_numpy(out)


def signed_coefficients(b: NDArray[Any], signs: Ints) -> Floats:  # (..., K, R), (K,)
    """Return the coefficients of part-worths b: sign times exp(b) for constrained signs. All are finite."""
    sign = np.asarray(signs)[:, None]
    sizes = np.exp(np.where(sign == 0, 0.0, np.minimum(b, _MAX_LOGARITHM)))
    coefficients: Floats = np.where(sign == 0, b, sign * sizes)
    return coefficients


@dataclass(frozen=True)
class CovariateUnits:
    """Means and standard deviations of the covariates, the first of which is constant."""

    mean: Floats  # (G,)
    deviation: Floats  # (G,)

    @classmethod
    def of(cls, z: Floats) -> CovariateUnits:  # (N, G)
        """Return the units in which the covariates of some persons have mean 0 and standard deviation 1."""
        mean, deviation = z.mean(axis=0), z.std(axis=0)
        mean[0], deviation[0] = 0.0, 1.0
        return cls(mean, np.where(deviation > 0, deviation, 1.0))

    def standardised(self, z: Floats) -> Floats:
        """Return the covariates in these units."""
        standardised: Floats = (z - self.mean) / self.deviation
        return standardised

    def in_table_units(self, draws: HierarchicalDraws, scale: Floats, signs: Ints) -> tuple[Floats, Floats]:
        """Return the draws of D and S for columns and covariates in the units of the table.

        The sampler's columns are those of the table times ``scale`` (K,).
        """
        # 1. Covariates.
        means = draws.coefficients / self.deviation
        means[..., 0] -= means @ self.mean
        # 2. Columns. If the sign is constrained, a factor of a coefficient shifts its logarithm.
        factors = np.where(signs == 0, scale, 1.0)
        means *= factors[:, None]
        means[..., 0] += np.where(signs == 0, 0.0, np.log(scale))
        return means, draws.covariances * np.outer(factors, factors)
