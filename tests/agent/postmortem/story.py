"""A story on two GPUs that ends in an out-of-memory line and a dead server, as a recording."""

from pathlib import Path

from msgspec.structs import replace

from agent.app import replayed_board
from agent.postmortem.command import look_into
from agent.postmortem.report import Postmortem
from agent.recorder.player import Player
from tests.agent.recorder.flight import Flight
from tests.agent.test_board import BLOCKS, GIB, gpu, serving

WALL = 1_796_000_000.0


class Story(Flight):
    """Ten minutes: the pool fills, a neighbour grows, requests are preempted, memory runs out, the server is down."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.wall_offset = WALL - self.clock.now
        self.model()
        self.log()
        for second in range(600):
            self.second(second)

    def second(self, second: int) -> None:
        dead = second >= 560
        other = GIB * min(20, max(0, second - 400) // 8)
        held = 0 if dead else 34 * GIB
        used: dict[int, int | None] = {9: other} if dead else {9: other, 7: held}
        self.node(
            gpu(self.clock, used=used, free=80 * GIB - held - other - GIB),
            gpu(self.clock, index=1, used={}, free=79 * GIB),
        )
        if second == 555:
            self.log(cuda_oom=1)
        if dead:
            self.tree()
            self.refuse()
        else:
            self.tree(7)
            blocks = min(BLOCKS - 1, 1000 + 14 * second)
            pool = replace(
                serving(0).pools[0],
                used_blocks=blocks,
                used_tokens=16 * blocks,
                available_tokens=16 * (BLOCKS - blocks),
                used_ratio=blocks / (BLOCKS - 1),
            )
            preempted = max(0, second - 540)
            replica = replace(serving(0).replicas[0], preemptions=preempted, running_requests=10 + second // 60)
            self.server(at=self.clock.now, pools=(pool,), replicas=(replica,))
        self.ticks()
        self.writer.flush()


def report_of(path: Path) -> Postmortem:
    return look_into(Player(path, replayed_board))
