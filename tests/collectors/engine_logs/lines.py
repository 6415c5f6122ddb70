"""What a parser makes of some lines."""

from collectors.engine_logs.parsing import LogParser
from collectors.engine_logs.shapes import LogFormat
from collectors.engine_logs.tail import marked_lines
from collectors.readings import LogReading, RankLog

GIB, MIB = 2**30, 2**20


def read(log: LogFormat, *lines: str, at: float = 1.0) -> LogReading:
    parser = LogParser(log)
    take(parser, *lines, at=at)
    return parser.reading(at)


def take(parser: LogParser, *lines: str, at: float = 1.0) -> None:
    for line in marked_lines("".join(f"{line}\n" for line in lines).encode(), parser.marks):
        parser.take(line, at)


def only(reading: LogReading) -> dict[str, object]:
    """What the log says of its one rank or device."""
    (rank,) = reading.ranks
    return {name: value for name in RankLog.__struct_fields__[2:] if (value := getattr(rank, name)) is not None}
