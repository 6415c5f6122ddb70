"""The facts of one Prometheus page by replica, for engines that tell each fact by one series, by one table of names."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from collectors.errors import Unreadable
from collectors.exposition import Labels, Sample, Wanted, possible

MAX_REPLICAS = 512
_MAX_NAME = 128

Name = str | tuple[str, str, str]  # of a series, or of those samples of it whose label has this value
Names = Mapping[str, Sequence[Name]]  # by fact; the newest name first: the first that is present counts


class Facts(Struct, frozen=True, kw_only=True):
    """``values`` by replica and fact; one sample of several (processes, dead ones included) counts as their maximum.

    ``samples``: all that can be, ``notes``: which of them can't. ``is_told``: whether there were any at all.
    """

    values: Mapping[str, Mapping[str, float]]
    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()
    is_told: bool = True

    @property
    def replicas(self) -> tuple[str, ...]:
        return tuple(sorted(self.values, key=lambda name: (len(name), name)))

    def count(self, replica: str, fact: str) -> int | None:
        """A number of tokens, blocks or requests; None where it is not told."""
        value = self.values.get(replica, {}).get(fact)
        return None if value is None else round(value)

    def ratio(self, replica: str, fact: str) -> float | None:
        value = self.values.get(replica, {}).get(fact)
        return value if value is not None and value <= 1 else None

    def label(self, name: str) -> str | None:
        """The first value of a label that any sample has."""
        return next((found[:256] for sample in self.samples if (found := sample.labels.get(name))), None)


class Series:
    """The series of an engine: which facts they carry, and those read for their labels alone."""

    def __init__(self, names: Names, *, others: Iterable[str] = ()) -> None:
        self._names = names
        full = {name if isinstance(name, str) else name[0] for each in names.values() for name in each}
        self.full_names = frozenset({*full, *others})
        self._wanted = Wanted(self.full_names)

    def read(self, text: str, *, source: str, replica: Callable[[Labels], str] = lambda labels: "0") -> Facts:
        """The facts of a page, whose ``source`` is named in messages; what is not finite or absurd is left out.

        Raises:
            Unreadable: cut off, a needed line that is malformed, or far more of them, or replicas, than there can be.
        """
        told = self._wanted.samples(text, source=source)
        samples, notes = possible(told)
        by_name: dict[Name, dict[str, float]] = {}
        for sample in samples:
            of = replica(sample.labels)[:_MAX_NAME]
            keys: tuple[Name, ...] = (
                sample.name,
                *((sample.name, label, value) for label, value in sample.labels.items()),
            )
            for key in keys:
                values = by_name.setdefault(key, {})
                values[of] = max(sample.value, values.get(of, sample.value))
        found: dict[str, dict[str, float]] = {}
        for fact, names in self._names.items():
            first = next((by_name[name] for name in names if name in by_name), {})
            for of, value in first.items():
                found.setdefault(of, {})[fact] = value
        if len(found) > MAX_REPLICAS:
            raise Unreadable("too_large", f"{source} names {len(found)} replicas; expected at most {MAX_REPLICAS}")
        return Facts(values=found, samples=tuple(samples), notes=notes, is_told=bool(told))
