"""What each server held in its last run, from one snapshot to the next: which runs settle, and what they are beside."""

from collections.abc import Iterable, Mapping, Sequence

from agent.memory.upgrades import MAX_TEXT, Record, Run, Settling, Share, Value, advanced, compare, is_same_run, summary
from agent.seating import ServerView
from agent.snapshot import Device, Moved, Server, Upgrade
from collectors.readings import Evidence

MAX_SERVERS = 256
LOOK_SECONDS = 10.0
LOOKS = 6  # within the time that memory has to lie still
KEPT_ARGUMENTS = frozenset(
    {
        *("tp", "pp", "dp", "dcp", "ep", "pp_layers", "dp_attention", "dtype", "quantization", "speculative"),
        *("kv_cache_dtype", "kv_cache_dtype_k", "kv_cache_dtype_v", "mamba_cache_dtype", "mamba_ssm_cache_dtype"),
        *("gpu_memory_utilization", "mem_fraction_static", "kv_cache_memory_bytes", "kv_pool_bytes", "num_gpu_blocks"),
        *("block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "prefix_caching", "enforce_eager"),
        *("max_loras", "max_lora_rank", "disable_hybrid_kv_cache_manager", "swa_full", "swa_full_tokens_ratio"),
        *("max_total_tokens", "mamba_full_memory_ratio", "parallel", "ctx_size", "kv_unified", "ubatch"),
    }
)
"""Arguments that are remembered: they decide about memory, and none of them names a file, an address or a key."""


class Upgrades:
    """Remembers the settled run of every server and the one before it; ``revision`` grows with every change.

    ``settle_seconds``: how long a serving server's memory has to lie still. Two settled runs of a server begin at least
    that far apart, so starts that differ by less than half of it are one.
    """

    def __init__(self, *, settle_seconds: float) -> None:
        self.settle_seconds = settle_seconds
        self.records: dict[str, Record] = {}
        self.revision = 0
        self._settling: dict[str, Settling] = {}
        self._looked_at: float | None = None
        self._shown: dict[str, tuple[Record, Mapping[str, str], Upgrade]] = {}

    @property
    def pause_seconds(self) -> float:
        """Between two looks, and two writes of what they saw."""
        return min(LOOK_SECONDS, self.settle_seconds / LOOKS)

    def restore(self, records: Mapping[str, Record]) -> None:
        """Take what was remembered before this agent began; what it has seen itself since then comes on top."""
        own, self.records = self.records, dict(records)
        for name, record in own.items():
            for run in (record.before, record.current):
                if run is not None:
                    self.settled(name, run)
        self._bound()
        self.revision += self.records != records

    def look(
        self,
        views: Iterable[ServerView],
        servers: Mapping[str, Server],
        devices: Sequence[Device],
        *,
        now: float,
        wall: float,
    ) -> None:
        """Look at what servers hold, if the last look is long enough ago; ``now`` is monotonic, ``wall`` the date."""
        if self._looked_at is not None and now - self._looked_at < self.pause_seconds:
            return
        self._looked_at = now
        known = self._settling
        self._settling = {}
        for view in views:
            settling = self._settling[view.name] = known.get(view.name) or Settling()
            run = _run(view, servers[view.name], devices, wall)
            if settling.take(run, now, seconds=self.settle_seconds) and run is not None:
                self.settled(view.name, run)

    def settled(self, name: str, run: Run) -> None:
        """Take a run of a server that has settled."""
        known = self.records.get(name)
        record = advanced(known, run, slack_seconds=self.settle_seconds / 2)
        if record is not known:
            self.records[name] = record
            self.revision += 1
            self._bound()

    def of(self, view: ServerView, gpus: Mapping[str, str]) -> Upgrade | None:
        """The present run beside the one before; None while there is none before, or the present one has not settled.

        ``gpus`` are the labels of devices by UUID.
        """
        record = self.records.get(view.name)
        if record is None or record.before is None or view.state == "down":
            return None
        live = Run(engine=view.engine or "", version=_version(view), started_at=_started_at(view), settled_at=0.0)
        if not is_same_run(record.current, live, slack_seconds=self.settle_seconds / 2):
            return None
        shown = self._shown.get(view.name)
        if shown is None or shown[0] is not record or shown[1] != gpus:
            shown = self._shown[view.name] = (record, gpus, _upgrade(record, record.before, gpus))
        return shown[2]

    def _bound(self) -> None:
        """The servers that settled longest ago go."""
        if len(self.records) > MAX_SERVERS:
            newest = sorted(self.records, key=lambda name: -self.records[name].current.settled_at)[:MAX_SERVERS]
            self.records = {name: self.records[name] for name in newest}
            self._shown = {name: shown for name, shown in self._shown.items() if name in self.records}


def _run(view: ServerView, server: Server, devices: Sequence[Device], wall: float) -> Run | None:
    """What a server is and holds now; None while it does not serve, or nothing is known of what it holds."""
    shares = {share.uuid: share for device in devices if (share := _share(device, view.name)).components}
    if view.state != "serving" or not shares:
        return None
    pools = [pool for pool in server.pools if pool.kind == "full"]
    capacities = [pool.capacity_tokens for pool in pools if pool.capacity_tokens is not None]
    return Run(
        engine=view.engine or "",
        version=_version(view),
        model=_short(server.model),
        model_path=_short(view.model_path),
        started_at=_started_at(view),
        settled_at=wall,
        capacity_tokens=sum(capacities) if pools and len(capacities) == len(pools) else None,
        arguments=_kept(view.arguments),
        devices=tuple(shares[uuid] for uuid in _by_rank(server) if uuid in shares),
    )


def _by_rank(server: Server) -> Iterable[str]:
    """Its devices in the order of ranks, as far as these are known."""
    ranks = sorted(server.ranks, key=lambda rank: (rank.replica, rank.pp_rank or 0, rank.tp_rank or 0))
    return dict.fromkeys(rank.uuid for rank in ranks)


def _share(device: Device, server: str) -> Share:
    components: dict[str, int] = {}
    evidence: dict[str, Evidence] = {}
    for part in device.components:
        if part.server == server:
            name = "kv_pool" if part.component.startswith("kv_") else part.component
            components[name] = components.get(name, 0) + part.bytes
            evidence[name] = part.evidence
    return Share(uuid=device.uuid, components=components, evidence=evidence)


def _kept(arguments: Mapping[str, Value]) -> dict[str, Value]:
    return {
        name: value
        for name, value in arguments.items()
        if name in KEPT_ARGUMENTS and not (isinstance(value, str) and len(value) > MAX_TEXT)
    }


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_TEXT else None


def _version(view: ServerView) -> str | None:
    return _short(view.reading.version) if view.reading else None


def _started_at(view: ServerView) -> float | None:
    """As the engine says, else as its first process does."""
    if view.reading is not None and view.reading.started_at is not None:
        return view.reading.started_at
    return view.tree.processes[0].started_at if view.tree and view.tree.processes else None


def _upgrade(record: Record, before: Run, gpus: Mapping[str, str]) -> Upgrade:
    after = record.current
    found = compare(before, after)
    return Upgrade(
        from_version=before.version,
        to_version=after.version,
        since=record.since,
        from_settled_at=before.settled_at,
        to_settled_at=after.settled_at,
        from_capacity_tokens=before.capacity_tokens,
        to_capacity_tokens=after.capacity_tokens,
        components=tuple(
            Moved(
                gpu=gpus[one.uuid],
                uuid=one.uuid,
                component=one.component,
                before_bytes=one.before_bytes,
                after_bytes=one.after_bytes,
                delta_bytes=one.delta_bytes,
            )
            for one in found.components
            if one.uuid in gpus
        ),
        causes=found.causes,
        summary=summary(before, after, found),
    )
