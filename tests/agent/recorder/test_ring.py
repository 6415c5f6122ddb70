"""The recorder's folder: what it holds at most, and what a bundle is made of."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.recorder.chunks import RecordingFile, pack
from agent.recorder.records import Frozen, Reason, Record, Ticked
from agent.recorder.ring import MAX_BUNDLES, MAX_RISK_BUNDLES, Ring, write_all
from collectors.errors import Refused

NOW = 1_796_000_000.0
KIB = 1024


def tick(number: int) -> Ticked:
    return Ticked(at=float(number), wall=NOW + number)


def why(reason: Reason = "asked", subject: str = "", *, later: int = 0) -> Frozen:
    return Frozen(at=1.0, wall=NOW + later, reason=reason, subject=subject)


def ring_of(
    folder: Path, *, minutes: float = 30, max_bytes: int = 1 << 20, **seams: Callable[[int, bytes], None]
) -> Ring:
    return Ring(folder, minutes=minutes, max_bytes=max_bytes, **seams)


def filled(ring: Ring, segments: int, *, each: int = 1) -> Ring:
    """Segments that seem to have ended just before NOW."""
    for number in range(segments):
        ring.begin()
        for place in range(each):
            ring.add(pack([tick(number * each + place)])[0])
    for path in ring.segments():
        os.utime(path, (NOW, NOW))
    return ring


def read(path: Path) -> list[Record]:
    file = RecordingFile(path)
    records = list(file.records())
    assert file.problem is None
    return records


def test_minutes_bound_the_ring(tmp_path: Path) -> None:
    """A segment is a minute; the one being written comes on top."""
    ring = filled(ring_of(tmp_path, minutes=3), 8)

    assert [int(path.stem) for path in ring.segments()] == [5, 6, 7, 8]


def test_bytes_bound_the_ring(tmp_path: Path) -> None:
    """Half of what is allowed, whatever the minutes say; what is newest stays."""
    ring = ring_of(tmp_path, max_bytes=64 * KIB)
    for _ in range(20):
        ring.begin()
        for _ in range(3):
            ring.add(bytes(2 * KIB))
    sizes = [path.stat().st_size for path in ring.segments()]

    assert sizes == [6 * KIB] * 5
    assert int(ring.segments()[-1].stem) == 20


def test_a_segment_that_grows_makes_room(tmp_path: Path) -> None:
    """Also while it is being written; once it is large itself, another is due."""
    ring = filled(ring_of(tmp_path, max_bytes=64 * KIB), 3)
    ring.begin()
    full = []
    for size in (15 * KIB, 16 * KIB + 900):
        ring.add(bytes(size))
        full.append(ring.is_full)

    assert full == [False, True]
    assert [int(path.stem) for path in ring.segments()] == [3, 4]
    assert sum(path.stat().st_size for path in ring.segments()) <= 32 * KIB


def test_numbers_go_on_over_agents(tmp_path: Path) -> None:
    """The next agent's segments come after those of the last; strange files are left alone."""
    filled(ring_of(tmp_path), 2).close()
    strange = tmp_path / "recorder" / "ring" / "mine.vramscope"
    strange.write_text("x")
    filled(ring_of(tmp_path), 1).close()

    assert [int(path.stem) for path in ring_of(tmp_path).segments()] == [1, 2, 3]
    assert strange.exists()


def test_a_bundle_is_all_that_is_whole(tmp_path: Path) -> None:
    """Also of a segment whose agent was killed while it wrote a chunk; why it was kept stands at its end."""
    ring = filled(ring_of(tmp_path), 2, each=2)
    torn = ring.segments()[0]
    torn.write_bytes(torn.read_bytes()[:-3])
    os.utime(torn, (NOW, NOW))

    path = ring.freeze(why("oom", "chat"))

    assert read(path) == [tick(0), tick(2), tick(3), why("oom", "chat")]
    assert path.name == "20261130T005320Z-oom-chat.vramscope"
    assert list(path.parent.iterdir()) == [path]


def test_what_is_older_than_the_minutes_is_not_in_a_bundle(tmp_path: Path) -> None:
    """An agent that was off for days has segments of before in its ring."""
    filled(ring_of(tmp_path, minutes=5), 2).close()
    ring = filled(ring_of(tmp_path, minutes=5), 1)
    for path, days in zip(ring.segments(), (1, 0, 9), strict=True):
        os.utime(path, (NOW - 86400 * days, NOW - 86400 * days))

    assert read(ring.freeze(why())) == [tick(1), tick(0), why()]  # the clock was set since the last of them began
    ring.close()
    assert read(ring_of(tmp_path, minutes=5).freeze(why(later=1)))[0] == tick(0)  # who asks for all there is gets it


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("../../etc/x", "etc-x"),
        ("a b\n\0c", "a-b-c"),
        ("x" * 500, "x" * 60),
        ("llama:8000", "llama-8000"),
        ("模型", ""),
    ],
)
def test_a_name_is_a_name(subject: str, name: str, tmp_path: Path) -> None:
    """Whatever a server is called."""
    path = filled(ring_of(tmp_path), 1).freeze(why("server_died", subject))

    assert path.parent == tmp_path / "recorder" / "bundles"
    assert path.name == "-".join(part for part in ("20261130T005320Z-server_died", name) if part) + ".vramscope"


def test_bundles_are_bounded_by_number(tmp_path: Path) -> None:
    """The oldest goes; two of one second have two names."""
    ring = filled(ring_of(tmp_path), 1)
    paths = [ring.freeze(why(later=number // 2)) for number in range(MAX_BUNDLES + 3)]

    assert len(set(paths)) == len(paths)
    assert {path for path in paths if path.exists()} == set(paths[3:])


def test_bundles_of_risks_and_of_incidents_push_none_of_the_others_out(tmp_path: Path) -> None:
    """Each sort has its own number, whatever a server is called."""
    ring = filled(ring_of(tmp_path), 1)
    first = ring.freeze(why("oom", "risk_critical"))
    risks = [ring.freeze(why("risk_critical", "chat", later=number)) for number in range(MAX_RISK_BUNDLES + 2)]
    assert {path for path in (first, *risks) if path.exists()} == {first, *risks[2:]}
    for number in range(MAX_BUNDLES):
        ring.freeze(why("oom", later=100 + number))

    assert not first.exists()
    assert all(path.exists() for path in risks[2:])


def test_bundles_are_bounded_by_bytes(tmp_path: Path) -> None:
    """Three eighths of what is allowed are theirs; the newest is kept anyhow."""
    ring = ring_of(tmp_path, max_bytes=128 * KIB)
    ring.begin()
    for number in range(300):
        ring.add(pack([tick(number)])[0])
    os.utime(ring.segments()[0], (NOW, NOW))
    paths = [ring.freeze(why(later=number)) for number in range(5)]

    kept = [path for path in paths if path.exists()]
    size = sum(path.stat().st_size for path in kept)
    assert kept == paths[-len(kept) :]
    assert 0 < size <= 48 * KIB < size + kept[0].stat().st_size


def test_a_bundle_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """No half of one under a name."""

    def full(descriptor: int, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    filled(ring_of(tmp_path), 1).close()
    ring = ring_of(tmp_path, write=full)
    with pytest.raises(OSError, match="No space"):
        ring.freeze(why())

    assert list(ring.bundles.iterdir()) == []


def test_a_chunk_that_fails_is_taken_back(tmp_path: Path) -> None:
    """The segment is whole as far as it goes."""
    failing: list[bool] = []

    def half(descriptor: int, content: bytes) -> None:
        if failing:
            os.write(descriptor, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        write_all(descriptor, content)

    ring = filled(ring_of(tmp_path, write=half), 1)
    failing.append(True)
    with pytest.raises(OSError, match="No space"):
        ring.add(pack([tick(1)])[0])

    assert read(ring.segments()[0]) == [tick(0)]


def test_a_folder_that_somebody_cleared_is_noticed(tmp_path: Path) -> None:
    """What would be written where nobody finds it fails; the next segment makes everything anew."""
    ring = filled(ring_of(tmp_path), 1)
    shutil.rmtree(ring.folder)

    with pytest.raises(FileNotFoundError):
        ring.add(pack([tick(5)])[0])
    ring.begin()
    ring.add(pack([tick(6)])[0])

    (segment,) = ring.segments()
    assert read(segment) == [tick(6)]


def test_one_agent_at_a_time(tmp_path: Path) -> None:
    """Another one is refused, until the first lets go."""
    first, second = ring_of(tmp_path), ring_of(tmp_path)
    first.begin()
    with pytest.raises(Refused, match="another agent has this directory"):
        second.begin()
    first.close()

    second.begin()
    second.close()


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Who may write in the folder can't have the agent write elsewhere."""
    outside = tmp_path / "outside"
    ring = filled(ring_of(tmp_path), 1)
    (ring.folder / "bundles").mkdir()
    (ring.folder / "bundles" / "new").symlink_to(outside)
    (ring.folder / "ring" / "0000000002.vramscope").symlink_to(outside)

    ring.freeze(why())
    with pytest.raises(OSError, match="No such file"):
        ring.begin()

    assert not outside.exists()
