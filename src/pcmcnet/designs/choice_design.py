"""A design of choice tasks: a table ready for a survey, its report, and the choice data of its answers.

The information M refers to one respondent, who answers one version: it is the mean over versions of the information of
their tasks. N respondents have information N M, so standard errors fall with the square root of N. With a single
version, the D-error is that of the literature, in which each task is answered once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.files.write_files import write_table
from pcmcnet.designs.attributes import NONE, Directions, ProfileSpace
from pcmcnet.designs.context_terms import ContextScores
from pcmcnet.designs.information import DeterminantCriterion, ScoreFunction
from pcmcnet.designs.model_scores import ModelScores
from pcmcnet.errors import InputError
from pcmcnet.reports.formats import FormatsMixin, ResultContent
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import number, percent

Z_TWO_SIDED = 1.959964  # 97.5% quantile of the normal distribution


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChoiceDesign(FormatsMixin):
    """Result of :func:`design`: the tasks of a choice experiment, and their information about the coefficients.

    Attributes
    ----------
    space
        The attributes, whether there is an alternative "none", and the prohibited combinations.
    levels : array of int, (T, J, K)
        Number of the level of each attribute of each alternative, for the tasks of all versions.
    version : array of int, (T,)
        Version of each task, counted from 1. Tasks are sorted by version.
    criterion
        The criterion that was optimised.
    error
        Its value: for "D" and "Db", the D-error of one respondent; for "C", the geometric mean of the variances of the
        ratios; for "context", the D-error of the context effects.
    information : array of float, (R, P, P)
        Information of one respondent about the parameters, for each draw of the prior.
    effects
        Names of the context effects, which follow the coefficients in the parameters (none for other criteria). The
        effect "dominance" comes with "dominated", a utility of dominated alternatives. So only the shares of the
        others are evidence of "dominance".
    scores
        Function that gives the scores of tasks, in units of the largest value of each column.
    directions
        Value of each level from worst to best, for attributes whose direction is known.
    prior_mean : array of float, (P,)
        Means of the coefficients.
    starts
        Number of random starts.
    best_starts
        Number of starts that ended within 0.1% of the best criterion.
    """

    space: ProfileSpace
    levels: Ints
    version: Ints
    criterion: str
    error: float
    information: Floats
    scores: ScoreFunction
    effects: tuple[str, ...]
    directions: Directions
    prior_mean: Floats
    starts: int
    best_starts: int

    # -- size

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return tuple(attribute.name for attribute in self.space.attributes)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that the information is about: the coefficients, and the context effects."""
        return (*self.space.names, *self.effects)

    @property
    def versions(self) -> int:
        """Number of versions (blocks) of the survey."""
        return int(self.version.max())

    @property
    def tasks(self) -> int:
        """Number of tasks that a respondent answers."""
        return len(self.levels) // self.versions

    @property
    def task(self) -> Ints:
        """Number of each task within its version, (T,), counted from 1."""
        return np.tile(np.arange(1, self.tasks + 1), self.versions)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the alternatives of a task: "1", "2", ..., and "none" if there is such an alternative."""
        return (*map(str, range(1, self.levels.shape[1] + 1)), *([NONE] if self.space.none else []))

    # -- tables

    def to_arrow(self) -> pa.Table:
        """Return the design as an Arrow table, with a row for each alternative of each task.

        Returns
        -------
        pyarrow.Table
            Columns version, task, alternative and the attributes, which are empty for the alternative "none".
        """
        n_labels, n_tasks = len(self.labels), len(self.levels)
        columns: dict[str, Any] = {
            "version": np.repeat(self.version, n_labels),
            "task": np.repeat(self.task, n_labels),
            "alternative": pa.array(list(self.labels) * n_tasks),
        }
        for k, attribute in enumerate(self.space.attributes):
            values = np.array(attribute.levels, dtype=object)[self.levels[:, :, k]]
            rows = [[*row, *([None] if self.space.none else [])] for row in values.tolist()]
            columns[attribute.name] = pa.array([value for row in rows for value in row])
        return pa.table(columns)

    def to_frame(self) -> Any:
        """Return the design as a pandas data frame: version, task, alternative and the attributes.

        Returns
        -------
        pandas.DataFrame
            A row for each alternative of each task. The attributes of the alternative "none" are missing.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        return data_frame(self.to_arrow(), instead="to_arrow()")

    def save(self, path: str | Path) -> None:
        """Write the design to a file.

        Parameters
        ----------
        path
            File to write, whose ending is .csv, .parquet or .arrow.

        Raises
        ------
        InputError
            If the ending is not .csv, .parquet or .arrow.
        """
        write_table(self.to_arrow(), path)

    def values(self, names: Sequence[str] | None = None) -> Floats:
        """Return the levels of numeric attributes as numbers, for example to compute utilities.

        Parameters
        ----------
        names
            Numeric attributes. By default, all attributes.

        Returns
        -------
        array of float, (T, J, attributes)
            Values of each alternative of each task, without the alternative "none".

        Raises
        ------
        InputError
            If an attribute is unknown or categorical.
        """
        columns = []
        for name in self.attributes if names is None else names:
            k = self.space.position(name, "values")
            attribute = self.space.attributes[k]
            if attribute.is_categorical:
                raise InputError(f"values: attribute {name!r} is categorical. Pass names=[...] without it.")
            columns.append(np.array(attribute.levels, dtype=np.float64)[self.levels[:, :, k]])
        return np.stack(columns, axis=-1)

    # -- answers

    def probabilities(self) -> Floats:
        """Return the choice probabilities at the mean of the prior, or those of the fitted model that is the prior.

        Returns
        -------
        array of float, (T, alternatives)
            Probability of each label of each task.
        """
        if isinstance(self.scores, ModelScores):
            return self.scores.probabilities(self.levels)
        utilities = self.space.encode(self.levels) @ self.prior_mean
        exponentials = np.exp(utilities - utilities.max(axis=1, keepdims=True))
        p: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
        return p

    def simulate(self, respondents: int, *, probabilities: ArrayLike | None = None, seed: int = 0) -> pa.Table:
        """Simulate the answers of respondents, who take the versions in turn.

        Parameters
        ----------
        respondents
            Number of respondents.
        probabilities : array, (T, alternatives), optional
            Choice probabilities of the labels of each task. By default, those at the mean of the prior.
        seed
            Seed of the random number generator.

        Returns
        -------
        pyarrow.Table
            Columns person, version, task and choice, with a row for each answer.

        Raises
        ------
        InputError
            If the probabilities have another shape, are negative, or do not sum to 1.
        """
        require_number("respondents", respondents, whole=True, low=1)
        p = self.probabilities() if probabilities is None else np.asarray(probabilities, dtype=np.float64)
        shape = (len(self.levels), len(self.labels))
        if p.shape != shape or not (p >= 0).all() or not np.allclose(p.sum(axis=1), 1, atol=1e-6):
            raise InputError(
                f"probabilities: expected shape {shape}, numbers of at least 0, and sums of 1 over the alternatives of "
                f"each task; got shape {p.shape}."
            )
        rng = np.random.default_rng(seed)
        rows = self._rows_of_respondents(respondents)  # (N, tasks)
        thresholds = p.cumsum(axis=1)[rows][..., :-1]  # the last one, 1, is left out: rounding cannot lead past it
        choice = (rng.random((*rows.shape, 1)) >= thresholds).sum(axis=-1)
        return pa.table(
            {
                "person": np.repeat(np.arange(1, respondents + 1), self.tasks),
                "version": self.version[rows].ravel(),
                "task": self.task[rows].ravel(),
                "choice": pa.array(np.array(self.labels, dtype=object)[choice.ravel()], pa.string()),
            }
        )

    def _rows_of_respondents(self, respondents: int) -> Ints:  # -> (N, tasks)
        start = np.arange(respondents) % self.versions * self.tasks
        rows: Ints = start[:, None] + np.arange(self.tasks)
        return rows

    def to_long(self, answers: Any, *, dominance: bool = False) -> pa.Table:
        """Return a long table of the answers, with a row for each alternative of each answered task.

        Parameters
        ----------
        answers : path, mapping of arrays, or data frame
            Columns person, version, task and choice. A choice is the label of an alternative, such as 2 or "none".
        dominance
            Whether to add the columns dominates and dominated, which are 1 for an alternative that dominates, or is
            dominated by, another one of its task. Default False.

        Returns
        -------
        pyarrow.Table
            Columns choice_set, person, version, task, alternative, the attributes, and chosen. The alternative "none"
            has no row: a choice set without a chosen row has the answer "none".

        Raises
        ------
        InputError
            If an answer refers to a task or an alternative that is not in the design, or repeats an answer of the
            person to the same task.
        """
        table = read_table(answers, ["person", "version", "task", "choice"])
        rows, choice = self._answered_tasks(table)
        n = self.levels.shape[1]
        columns: dict[str, Any] = {
            "choice_set": np.repeat(np.arange(1, len(rows) + 1), n),
            "person": table["person"].take(np.repeat(np.arange(len(rows)), n)),
            "version": np.repeat(self.version[rows], n),
            "task": np.repeat(self.task[rows], n),
            "alternative": np.tile(np.arange(1, n + 1), len(rows)),
        }
        for k, attribute in enumerate(self.space.attributes):
            columns[attribute.name] = np.array(attribute.levels)[self.levels[rows][:, :, k].ravel()]
        if dominance:
            dominates = self.directions.dominates(self.levels)[rows]
            columns["dominates"] = dominates.any(axis=2).astype(np.int8).ravel()
            columns["dominated"] = dominates.any(axis=1).astype(np.int8).ravel()
        columns["chosen"] = (choice[:, None] == np.arange(n)).astype(np.int8).ravel()
        return pa.table(columns)

    def to_choice_data(self, answers: Any) -> ChoiceData:
        """Return the answers as choice data, ready for a fit.

        Parameters
        ----------
        answers : path, mapping of arrays, or data frame
            Columns person, version, task and choice: see :meth:`to_long`.

        Returns
        -------
        ChoiceData
            The answered tasks, with the attributes as features, the persons, and the outside option "none" if the
            design has one.

        Raises
        ------
        InputError
            If an answer refers to a task or an alternative that is not in the design, or repeats an answer of the
            person to the same task.
        """
        return ChoiceData.from_long(
            self.to_long(answers),
            choice_set="choice_set",
            chosen="chosen",
            person="person",
            features=self.attributes,
            categorical=[attribute.name for attribute in self.space.attributes if attribute.is_categorical],
            outside=NONE if self.space.none else None,
        )

    def _answered_tasks(self, table: pa.Table) -> tuple[Ints, Ints]:
        """Return the position of the task and of the chosen alternative of each answer."""
        places = {pair: row for row, pair in enumerate(zip(self.version.tolist(), self.task.tolist(), strict=True))}
        labels = {label: place for place, label in enumerate(self.labels)}
        rows, choices = np.empty(table.num_rows, np.int64), np.empty(table.num_rows, np.int64)
        first_rows: dict[tuple[Any, ...], int] = {}
        answers = zip(*(table[name].to_pylist() for name in ("person", "version", "task", "choice")), strict=True)
        for row, (person, version, task, choice) in enumerate(answers):
            if (version, task) not in places:
                raise InputError(
                    f"answers, row {row + 1}: expected a version from 1 to {self.versions} and a task from 1 to "
                    f"{self.tasks}, got version {version!r} and task {task!r}."
                )
            if str(choice) not in labels:
                raise InputError(
                    f"answers, row {row + 1}: expected a choice among {', '.join(labels)}, got {choice!r}. Leave out "
                    "unanswered tasks."
                )
            first = first_rows.setdefault((person, version, task), row)
            if first < row:
                raise InputError(
                    f"answers, row {row + 1}: person {person!r} answers task {task} of version {version} again, after "
                    f"row {first + 1}. Expected one answer to each task: remove the repeated rows, or give each person "
                    f"a different id."
                )
            rows[row], choices[row] = places[version, task], labels[str(choice)]
        return rows, choices

    # -- quality

    @property
    def d_error(self) -> float:
        """D-error of the coefficients of a logit: the mean over the draws of the prior of det(M)^(-1 / P)."""
        n = len(self.space.names)
        return math.exp(float(DeterminantCriterion().value(self.information[:, :n, :n])))

    def standard_errors(self, respondents: int = 1) -> dict[str, float]:
        """Return the expected standard error of each parameter, in a model fitted to the answers.

        Parameters
        ----------
        respondents
            Number of respondents. Default 1.

        Returns
        -------
        dict
            Standard error by name of the parameter: the root of its variance, averaged over the draws of the prior.
            Those of a design for context effects are the errors of a chain with these effects.
        """
        require_number("respondents", respondents, whole=True, low=1)
        variances = np.diagonal(np.linalg.inv(self.information), axis1=-2, axis2=-1).mean(axis=0)
        return dict(zip(self.parameters, np.sqrt(variances / respondents).tolist(), strict=True))

    def level_counts(self) -> dict[str, dict[Any, int]]:
        """Return how often each level occurs in the tasks of all versions.

        Returns
        -------
        dict
            For each attribute, the number of alternatives with each level.
        """
        counts = {}
        for k, attribute in enumerate(self.space.attributes):
            number_of = np.bincount(self.levels[:, :, k].ravel(), minlength=len(attribute.levels))
            counts[attribute.name] = dict(zip(attribute.levels, number_of.tolist(), strict=True))
        return counts

    def correlations(self) -> Floats:
        """Return the correlations between the level numbers of the attributes, over all alternatives.

        Returns
        -------
        array of float, (K, K)
            Pearson correlations, in the order of the attributes.
        """
        flat = self.levels.reshape(-1, self.levels.shape[2]).T
        correlations: Floats = np.atleast_2d(np.corrcoef(flat))
        return correlations

    def respondents_for(self, name: str, width: float, level: float = 0.95) -> int:
        """Return the number of respondents at which the confidence interval of a coefficient has a given width.

        Parameters
        ----------
        name
            Name of the coefficient, such as "price" or "brand[B]".
        width
            Width of the interval, from end to end, in units of the coefficient.
        level
            Level of the interval. Default 0.95.

        Raises
        ------
        InputError
            If the coefficient is unknown.
        """
        require_number("width", width, low=0, open_low=True)
        require_number("level", level, low=0, high=1, open_low=True, open_high=True)
        errors = self.standard_errors()
        if name not in errors:
            raise InputError(f"unknown coefficient {name!r}. Known: {', '.join(errors)}.")
        from scipy.special import ndtri

        return math.ceil((2 * float(ndtri((1 + level) / 2)) * errors[name] / width) ** 2)

    def _content(self) -> ResultContent:
        errors = self.standard_errors()
        rows = []
        for name, mean in zip(self.parameters, self._means(), strict=True):
            needed = math.ceil((Z_TWO_SIDED * errors[name] / mean) ** 2) if mean else None
            rows.append([name, number(float(mean)), number(errors[name]), number(needed)])
        header = ["coefficient", "prior", "expected error", "respondents for |z| > 1.96"]
        notes = (
            "The expected error is that of one respondent; with N respondents, divide it by the square root of N.",
        )
        return ResultContent(title="Choice design", cells=[header, *rows], facts=self._facts(), notes=notes)

    def _means(self) -> Floats:
        effects = self.scores.terms.values if isinstance(self.scores, ContextScores) else np.zeros(0)
        return np.concatenate([self.prior_mean, effects])

    def _facts(self) -> dict[str, str]:
        """Return the entries that the report shows above its table."""
        labels = f"{self.levels.shape[1]} alternatives" + (" and none" if self.space.none else "")
        counts = [f"{name} {'/'.join(map(str, by_level.values()))}" for name, by_level in self.level_counts().items()]
        facts = {
            "tasks": f"{self.tasks} per respondent, {labels}, {self.versions} version{'s' * (self.versions > 1)}",
            "criterion": f"{self.criterion}, error {number(self.error)}",
            "D-error": f"{number(self.d_error)} for one respondent",
            "search": f"{self.best_starts} of {self.starts} starts within 0.1% of the best",
            "level counts": ", ".join(counts),
        }
        if len(self.attributes) > 1:
            r = np.abs(np.triu(np.nan_to_num(self.correlations()), 1))
            i, j = np.unravel_index(r.argmax(), r.shape)
            pair = f", of {self.attributes[i]} and {self.attributes[j]}" if r.max() >= 0.005 else ""
            facts["correlation"] = f"at most {r.max():.2f}{pair}"
        p = self.probabilities()
        facts["probabilities"] = f"most probable alternative {percent(float(p.max(axis=1).mean()))} on average"
        if self.directions.positions:
            dominated = self.directions.dominates(self.levels).any(axis=(-1, -2)).sum()
            facts["dominated"] = f"{dominated} of {len(self.levels)} tasks have a dominated alternative"
        return facts

    def __repr__(self) -> str:
        return f"ChoiceDesign({self._facts()['tasks']}; print it to see the report)"
