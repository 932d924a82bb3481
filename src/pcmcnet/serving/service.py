"""The questions that clients put: what a request holds -> what the models are asked -> the answer as plain values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import did_you_mean, shown
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.about import about, examples, sizes_of
from pcmcnet.serving.columns import inputs_of, require_keys, require_within
from pcmcnet.serving.grid import Grid
from pcmcnet.serving.jobs import Job
from pcmcnet.serving.offers import OfferQuestion, without_availability
from pcmcnet.serving.refusal import RefusalError, unusable
from pcmcnet.serving.request_limits import LARGE, Bodies
from pcmcnet.serving.sets import SetReader
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.strict_json import Size, parse
from pcmcnet.serving.worker import Admission, HasRates, Worker, shows_rates

T = TypeVar("T")
_MANY = 20  # choice sets that take milliseconds to read
_READERS = 2  # large requests that are read at once: more would keep the interpreter from all others


class Service:
    """The models that are served, and the worker that asks them."""

    def __init__(self, main: ChoiceModel, baseline: ChoiceModel | None, settings: ServeSettings) -> None:
        self.models: dict[str, ChoiceModel] = {"main": main}
        if baseline is not None:
            require_within(baseline, main)
            self.models["baseline"] = baseline
        self.settings = settings
        self.worker = Worker(self.models, settings)
        self.bodies = Bodies(settings)
        self._most = Size(settings.max_depth, settings.max_values)
        self._pool = ThreadPoolExecutor(_READERS, "pcmcnet-reader")
        self.inputs = inputs_of(main.schema)
        self.readers = {
            name: SetReader(model.schema, self.inputs, settings, sizes_of(main)) for name, model in self.models.items()
        }
        self.about = about(self.models, settings)
        self.examples = examples(main)

    async def parse(self, content: bytes) -> Any:
        """Parse a body, beside the event loop if it is large."""
        large = len(content) > LARGE
        return await self._beside(parse, content, self._most) if large else parse(content, self._most)

    async def probabilities(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the probabilities of all sets."""
        asked = require_keys(body, required=["sets"], optional=["model"], at="the request")
        name = self._model(asked)
        data = await self._read(name, asked["sets"])
        log_p = await self._log_proba(name, data, admission)
        every = data.to_rows(np.exp(log_p), fill=0.0)
        ends = np.cumsum([len(entry["alternatives"]) for entry in asked["sets"]])
        return {"sets": [{"probabilities": part.tolist()} for part in np.split(every, ends[:-1])]}

    async def rates(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the rates of one set, and the probabilities they lead to."""
        asked = require_keys(body, required=["set"], optional=["model"], at="the request")
        name = self._model(asked)
        model = self.models[name]
        if not shows_rates(model):
            several = "has several chains" if isinstance(model, HasRates) else "has no rates"
            raise unusable(f"{type(model).__name__} {several}: ask for probabilities, or serve a PCMC model.")
        data = await self._read(name, [asked["set"]])
        waiting = asyncio.wrap_future(admission.put(Job(name, "rates", data)))
        found, log_p = await asyncio.gather(waiting, self._log_proba(name, data, admission))
        n = len(asked["set"]["alternatives"])
        rates = np.zeros((n, n))
        rates[np.ix_(data.rows, data.rows)] = found
        return {"rates": rates.tolist(), "probabilities": data.to_rows(np.exp(log_p), fill=0.0).tolist()}

    async def map(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the share of one alternative against another, as some alternative moves over two columns."""
        asked = require_keys(
            body,
            required=["set", "x", "y", "place", "between"],
            optional=["points", "x_range", "y_range", "model"],
            at="the request",
        )
        name = self._model(asked)
        given = await self._read(name, [asked["set"]])
        grid = Grid.read(asked, given, self.models["main"], self.settings)
        log_p = await self._log_proba(name, await self._beside(grid.sets), admission, given)
        return grid.answer(log_p)

    async def offer(self, body: Any, admission: Admission) -> dict[str, Any]:
        """Answer with the best of the offers that can be made of the alternatives of one set."""
        asked = require_keys(
            body,
            required=["set"],
            optional=["revenue", "target", "keep", "least", "most", "model"],
            at="the request",
        )
        name = self._model(asked)
        now = (await self._read(name, [asked["set"]])).rows
        data = await self._read(name, [without_availability(asked["set"], self.models[name].schema)])
        question = OfferQuestion.read(asked, data, now)
        value, found = await asyncio.wrap_future(admission.put(Job(name, "offer", data, ask=question.ask)))
        if found is None:
            found = await self._beside(question.search, value)
        return question.answer(value, found)

    def shown_examples(self, most: int | None = None) -> dict[str, Any]:
        """Answer with a question about sets of the training table, all that are known or the first few."""
        if not self.examples:
            raise RefusalError(
                404, "the model was saved by an earlier version, without an example: fit and save it again."
            )
        return {"sets": self.examples[:most]}

    def _model(self, asked: Mapping[str, Any]) -> str:
        name = asked.get("model", "main")
        if not isinstance(name, str) or name not in self.models:
            hint = did_you_mean(name[:100], self.models) if isinstance(name, str) else ""
            raise unusable(f"model: no model {shown(name)} is served.{hint}")
        return name

    async def _read(self, name: str, sets: Any) -> ChoiceData:
        """Read sets, many of them or with pictures beside the event loop."""
        read = self.readers[name].read
        many = isinstance(sets, list) and (len(sets) > _MANY or bool(self.models[name].schema.kinds))
        return await self._beside(read, sets) if many else read(sets)

    async def _beside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function beside the event loop, which other requests need; not at all once nobody waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def _log_proba(
        self, name: str, data: ChoiceData, admission: Admission, given: ChoiceData | None = None
    ) -> Floats:
        found: Floats = await asyncio.wrap_future(admission.put(Job(name, "log_proba", data, given)))
        return found
