"""What the agent remembers about one server between ticks: its last reading, processes, model, budget and history."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, structs

from agent.memory import budget as budgets
from agent.memory.arguments import Arguments, from_reported, known_values, merge
from agent.memory.budget import Budget, Device
from agent.memory.forecast import Forecast, PoolForecaster
from agent.memory.history import PoolHistory
from agent.memory.model_config import parse_model
from agent.memory.runtime import Calibration
from agent.memory.signals import PoolFacts, PoolSignal
from agent.pool_signals import Key, facts_of, signals_of
from agent.reported import calibration_of, completed, tokens_of
from agent.seating import ServerView
from agent.starts import Starts
from collectors.readings import (
    Fault,
    Home,
    HostKills,
    LogReading,
    ModelFiles,
    PoolKind,
    ProbeReading,
    ProcessTree,
    RankTitle,
    ServerReading,
    ServerState,
)
from collectors.run import REPORT, place_of

log = logging.getLogger("vramscope")
_Basis = tuple[Arguments, Device, Calibration | None]


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What settings and the server's command line say about it; ``given`` wins over ``command``.

    ``engine`` is None while nothing tells it.
    """

    name: str
    engine: str | None
    url: str
    given: Arguments
    command: Arguments | None = None
    version: str | None = None
    devices: tuple[str, ...] = ()
    on_this_host: bool = True
    configured: bool = True
    model_path: str | None = None
    log: str | None = None
    notes: tuple[str, ...] = ()


class ServerWatch:
    """One server over time. Readings go in as they come; ``view`` gives what is known at a tick."""

    def __init__(
        self, facts: ServerFacts, *, rank_of: Callable[[str], RankTitle | None], is_one_process: bool = False
    ) -> None:
        self.facts = facts
        self.may_ask = True  # whether its endpoint may be asked: it is configured, or its own process listens
        self.is_known = False  # whether anything was seen of it yet, or it was asked
        self.reading: ServerReading | None = None
        self.is_unnamed = False  # it answers, but nothing tells which engine it is
        self.tree: ProcessTree | None = None
        self.model: ModelFiles | None = None
        self.home: Home | None = None
        self.log: LogReading | None = None
        self.probes: tuple[ProbeReading, ...] = ()
        self.host_oom_kills: int | None = None
        self.starts = Starts()
        self.histories: dict[tuple[str, str], PoolHistory] = {}
        self._forecasters: dict[Key, tuple[PoolFacts, PoolForecaster]] = {}
        self._rank_of = rank_of
        self._is_one_process = is_one_process
        self.processes_hidden = not facts.on_this_host
        self._kills: HostKills | None = None
        self._titles: dict[int, RankTitle] = {}
        self._last: ServerReading | None = None  # survives a time without answers
        self._started: tuple[object, Arguments] | None = None  # what it was started with, behind what that rests on
        self._merged: tuple[object, Arguments, tuple[str, ...], dict[str, Any]] | None = None  # likewise
        self._budget: tuple[_Basis, Budget | None, tuple[str, ...]] | None = None
        self._known = facts.given  # its arguments at the last view
        self.notes: tuple[str, ...] = ()

    def took(self, reading: ServerReading, *, pace: float = 1.0) -> bool:
        """Take a reading; True when it is the first or comes from a restarted engine.

        ``pace``: seconds of its life in one of the clock, another than 1 only of a simulated server.
        """
        self.is_known, self.is_unnamed = True, False
        reading = completed(reading, self.log)
        last, self._last = self._last, reading
        restarted = self.starts.told(reading)
        if restarted or reading.state != "serving":
            self._forget_pools()
        for pool in reading.pools:
            key = (pool.replica, pool.kind)
            if pool.used_tokens is None:
                self.histories.pop(key, None)
            else:
                at = reading.at if reading.figures_at is None else reading.figures_at
                self.histories.setdefault(key, PoolHistory(pace)).add(at, pool.used_tokens)
        self.reading = reading
        for key, signal in self.signals():
            self._forecaster(key).add(structs.replace(signal, at=signal.at * pace))
        return last is None or restarted

    def signals(self) -> Iterator[tuple[Key, PoolSignal]]:
        """What the newest reading tells the forecasts of its pools."""
        for key, signal in signals_of(self.reading) if self.reading is not None else ():
            yield key, structs.replace(signal, capacity_tokens=None) if self._is_shared(key) else signal

    def pool_facts(self, kind: PoolKind) -> PoolFacts:
        """What does not change while the engine runs, of a pool of this kind."""
        return facts_of(self.facts.engine or "", kind, self._known)

    def _forget_pools(self) -> None:
        self.histories.clear()
        self._forecasters.clear()

    def _forecaster(self, key: Key) -> PoolForecaster:
        """That of a pool; a new one where what does not change while an engine runs is known otherwise by now."""
        facts = self.pool_facts(key[1])
        known = self._forecasters.get(key)
        if known is None or known[0] != facts:
            known = self._forecasters[key] = (facts, PoolForecaster(facts))
        return known[1]

    def _is_shared(self, key: Key) -> bool:
        """Whether a token takes blocks of several groups of layers, so that blocks times their size are no tokens."""
        pools = self.reading.pools if self.reading else ()
        budget = self._budget[1] if self._budget else None
        if budget is None or not any((pool.replica, pool.kind) == key and pool.capacity_is_estimate for pool in pools):
            return False
        return any(len(rank.kv.groups) > 1 for rank in budget.ranks)

    def forecasts(self, now: float) -> dict[Key, Forecast]:
        """How each pool goes on, by replica and kind; anew every five seconds, and when one comes to the top."""
        found = {key: one.forecast(now) for key, (_, one) in self._forecasters.items()}
        return {key: forecast for key, forecast in found.items() if forecast is not None}

    def lost(self, *, is_unnamed: bool = False) -> None:
        """The endpoint did not answer, or not as any engine: nothing it said before is passed on as current."""
        self.is_known, self.is_unnamed = True, is_unnamed
        self.reading = None

    def take_log(self, log: LogReading | None) -> None:
        """Take what its log says by now. A pool whose tokens count otherwise since then begins a new history."""
        if tokens_of(log) != tokens_of(self.log):
            self._forget_pools()
        self.log = log
        self.is_known = self.is_known or log is not None

    def take_home(self, home: Home | None) -> None:
        """Take where its first process lives. Kills in a control group made anew add to those in the one before."""
        if home is not None and home.kills is not None:
            before = self._kills
            known = before.count if before and before.group == home.kills.group else 0
            self.host_oom_kills = (self.host_oom_kills or 0) + max(0, home.kills.count - known)
            self._kills = home.kills
        self.home = home

    @property
    def logs(self) -> tuple[str, ...]:
        """Where its log is: as settings say, else where its output is seen to go."""
        if self.facts.log is not None:
            return (self.facts.log,)
        return self.home.logs if self.home else ()

    def saw(self, tree: ProcessTree | None, *, hidden: bool = False) -> None:
        """Take the process tree behind the server's port: None when nothing listens there, or who does is hidden.

        What a server said whose processes have ended goes with them: it is not current any more. Another first process
        is another run of it.
        """
        restarted = self.starts.saw(tree)
        if restarted:
            self._forget_pools()
        if restarted or (tree is None and self.tree is not None and not hidden):
            self.lost()
        self.is_known = self.is_known or tree is not None
        self.tree = tree
        self.processes_hidden = hidden
        found = {process.pid: self._rank_of(process.title) for process in tree.processes} if tree else {}
        self._titles = {pid: rank for pid, rank in found.items() if rank is not None}

    @property
    def state(self) -> ServerState:
        """As the engine says; without, loading while its processes live or something answers, else down."""
        if self.reading is not None:
            return self.reading.state
        return "loading" if self.tree is not None or self.is_unnamed else "down"

    def view(self) -> ServerView:
        """Everything known now, without the budget (which needs a device)."""
        tp, pp, dp = self._world()
        self._known, values = self._arguments()
        return ServerView(
            name=self.facts.name,
            engine=self.facts.engine,
            url=self.facts.url,
            state=self.state,
            reading=self.reading,
            tree=self.tree,
            log=self.log,
            probes=self.probes,
            host_oom_kills=self.host_oom_kills,
            container=self.home.container if self.home else None,
            titles=self._titles,
            devices=self.facts.devices,
            on_this_host=self.facts.on_this_host,
            is_one_process=self._is_one_process,
            processes_hidden=self.processes_hidden,
            tp=tp,
            pp=pp,
            dp=dp,
            restarts=self.starts.restarts,
            configured=self.facts.configured,
            model_path=self.facts.model_path,
            arguments=values,
            growth_tokens_per_second={
                key: growth
                for key, history in self.histories.items()
                if (growth := history.growth_tokens_per_second()) is not None
            },
        )

    def budget(self, device: Device) -> Budget | None:
        """The prediction on a device, computed anew only when something it rests on changed; None without a model."""
        self.notes = (*self.facts.notes, *self._hints())
        if self.model is None:
            return None
        arguments, _ = self._arguments()
        key = (arguments, device, calibration_of(self.log, self._last))
        if self._budget is None or self._budget[0] != key:
            self._budget = (key, *_predicted(self.model, *key))
        _, budget, problems = self._budget
        self.notes += problems
        return budget

    def take_model(self, model: ModelFiles) -> Fault | None:
        """Take the model's files, dropping what was predicted from others; the fault when no model can be like that."""
        self.forget_model()
        try:
            parse_model(model.config)
        except ValueError as error:
            return Fault(reason="malformed", message=f"{model.path}: {error}")
        self.model = model
        return None

    def _hints(self) -> tuple[str, ...]:
        return (self.log.hint,) if self.log and self.log.hint else ()

    def forget_model(self) -> None:
        """It has another model now, or none."""
        self._budget, self.model = None, None

    def _arguments(self) -> tuple[Arguments, dict[str, Any]]:
        """As given; else as the engine last reported, with the sizes that process titles and replicas show.

        Beside them those that are known, by name.
        """
        given = self._started_with()
        tp, pp, dp = self._world()
        known: dict[str, object] = {"tp": tp, "pp": pp, "dp": dp, "engine_version": self.facts.version}
        if self._last is not None:
            known |= {**self._last.arguments, "engine_version": self._last.version or self.facts.version}
        if self._merged is None or self._merged[0] != (given, known):
            reported, notes = from_reported(known, engine=self.facts.engine or "")
            merged = merge(given, reported)
            self._merged = ((given, known), merged, notes, known_values(merged))
        _, arguments, notes, values = self._merged
        self.notes = (*self.facts.notes, *self._hints(), *notes)
        return arguments, values

    def _started_with(self) -> Arguments:
        """As settings say, else as its command line says, else as its engine was built."""
        basis = (self.facts.engine or "", self.facts.given, self.facts.command, self.model)
        if self._started is None or self._started[0] != basis:
            engine, given, command, model = basis
            if command is not None:
                given = merge(given, command)
            if model is not None and model.built:
                given = merge(given, budgets.built(model, engine=engine))
            self._started = (basis, given)
        return self._started[1]

    def _world(self) -> tuple[int, int, int]:
        """TP, PP and DP sizes: as given, else as the process titles and the engine's replicas show."""
        given = self._started_with()
        titles = self._titles.values()
        replicas = len(self.reading.replicas) if self.reading else 1
        return (
            given.tp or 1 + max((rank.tp_rank for rank in titles), default=0),
            given.pp or 1 + max((rank.pp_rank for rank in titles), default=0),
            given.dp or max(1, replicas),
        )


def _predicted(
    model: ModelFiles, arguments: Arguments, device: Device, calibration: Calibration | None
) -> tuple[Budget | None, tuple[str, ...]]:
    """The budget, or why a config can't have one."""
    try:
        budget = budgets.compute(model, arguments, device, calibration=calibration)
    except ValueError as error:
        return None, (f"no budget: {model.path}: {error}",)
    except Exception as exc:  # of one model: the others, and the tick, go on
        log.exception("no budget: %s: %s", model.path, REPORT)
        return None, (f"no budget: {model.path}: {place_of(exc)}; {REPORT}",)
    notes = (f"the runtime budget is calibrated from {calibration.source}",) if calibration else ()
    if any(rank.weights_evidence == "predicted" for rank in budget.ranks):
        return budget, (*notes, "the weights are only predicted (no exact tensor bytes), so they stay inside runtime")
    return budget, notes
