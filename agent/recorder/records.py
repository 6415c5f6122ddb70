"""What a recording holds: everything that was handed to the board, in order, and when it ticked.

Readings, no snapshots: a replay goes through the same pipeline. ``at`` is the agent's monotonic clock, ``wall`` seconds
since the epoch. Fields may be added with a default; anything else is a new version of the format.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from agent.memory.risk import HEADROOM_RATIO
from agent.memory.upgrades import Record as UpgradeRecord
from agent.starts import Witness
from agent.watch import ServerFacts
from collectors.probe_files import ProbePass
from collectors.readings import (
    Fault,
    Home,
    LogReading,
    ModelFiles,
    NodeReading,
    ProcessTree,
    ServerReading,
)

Reason = Literal["asked", "server_died", "oom", "risk_critical"]
RISK: Reason = "risk_critical"
"""What may come, not what happened: kept apart from the others, and seldom."""


class Node(Struct, frozen=True, kw_only=True, tag="node"):
    """A pass over the devices, or why there was none."""

    at: float
    reading: NodeReading | None = None
    fault: Fault | None = None


class Server(Struct, frozen=True, kw_only=True, tag="server"):
    """What a server's endpoint said, or why it said nothing."""

    at: float
    name: str
    reading: ServerReading | None = None
    fault: Fault | None = None
    seconds: float


class Log(Struct, frozen=True, kw_only=True, tag="log"):
    """What a server's log says by now. ``lost``: where it is, is not known any more."""

    at: float
    name: str
    reading: LogReading | None = None
    fault: Fault | None = None
    seconds: float = 0.0
    lost: bool = False


class Model(Struct, frozen=True, kw_only=True, tag="model"):
    """A server's model files."""

    at: float
    name: str
    files: ModelFiles | None = None
    fault: Fault | None = None
    seconds: float


class Probes(Struct, frozen=True, kw_only=True, tag="probes"):
    """A pass over the files of probes; ``asked`` are the processes that have one, None: nobody's."""

    at: float
    found: ProbePass | None = None
    fault: Fault | None = None
    seconds: float
    asked: tuple[int | None, ...] = ()


class Processes(Struct, frozen=True, kw_only=True, tag="processes"):
    """How a look at the process table went; ``name``: at that of one configured server."""

    at: float
    name: str = ""
    fault: Fault | None = None
    seconds: float


class Watched(Struct, frozen=True, kw_only=True):
    """What is known of one server beside its readings. ``answers`` and ``has_model``: that these are not forgotten.

    ``is_known``: anything was seen of it yet, or it was asked. ``is_unnamed``: it answers, but not as a known engine.
    ``anew``: it is watched from now on, whatever was known of one of that name. ``awaited``: who has yet to tell of the
    newest restart.
    """

    facts: ServerFacts
    tree: ProcessTree | None
    processes_hidden: bool
    home: Home | None
    answers: bool
    has_model: bool
    restarts: int = 0
    awaited: Witness | None = None
    is_known: bool = True
    is_unnamed: bool = False
    anew: bool = False


class Servers(Struct, frozen=True, kw_only=True, tag="servers"):
    """The servers that are watched, in order, and those of them that changed."""

    at: float
    names: tuple[str, ...]
    changed: tuple[Watched, ...]


class Source(Struct, frozen=True, kw_only=True, tag="source"):
    """How it last went with a source of the agent itself: its state file, or this recorder."""

    at: float
    name: Literal["state", "recorder"]
    fault: Fault | None = None
    seconds: float
    dropped: int = 0
    bundles: int = 0


class Reloaded(Struct, frozen=True, kw_only=True, tag="reloaded"):
    """How a reload of the settings went; ``success_at``: the wall clock of the last that succeeded."""

    at: float
    success: bool
    success_at: float | None


class Paced(Struct, frozen=True, kw_only=True, tag="paced"):
    """What readings are judged by: rhythms in seconds, and the ratio below which headroom is little."""

    at: float
    memory: float
    settle: float
    headroom: Annotated[float, Meta(gt=0, lt=1)] = HEADROOM_RATIO


class Recalled(Struct, frozen=True, kw_only=True, tag="recalled"):
    """Runs of servers that are remembered from before."""

    at: float
    servers: dict[str, UpgradeRecord]


class Ticked(Struct, frozen=True, kw_only=True, tag="tick"):
    """A snapshot was made of what was known."""

    at: float
    wall: float
    web_current: bool = True


class Frozen(Struct, frozen=True, kw_only=True, tag="frozen"):
    """Why this recording was kept, and when that was asked for; ``subject`` is a server's name or a device's."""

    at: float
    wall: float
    reason: Reason
    subject: str = ""


State = Servers | Model | Log | Reloaded | Recalled | Paced


class Start(Struct, frozen=True, kw_only=True, tag="start"):
    """The beginning of a segment: all that one who has not read what was before needs to go on from here.

    ``run`` is the same for all segments of one agent; ``gap``: records are missing between the one before and this.
    ``pace``: seconds of the node's life in one of ``at``, another than 1 only of a simulated node.
    """

    at: float
    wall: float
    run: str
    version: str
    simulated: bool
    pace: Annotated[float, Meta(gt=0, le=100)] = 1.0
    gap: bool = False
    state: tuple[State, ...]


Reading = Node | Server | Log | Model | Processes | Probes | Servers
Record = Start | Reading | Source | Reloaded | Paced | Recalled | Ticked | Frozen
