"""One answer of a real engine's ``/metrics``, understood without a word of the product."""

from prometheus_client.parser import text_string_to_metric_families

_ENGINES = ("vllm:", "sglang:")
_OF_ITS_HOST = ("sglang:http_", "sglang:process_")
_LOAD = frozenset(
    {
        *("vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"),
        *("vllm:num_preemptions_total", "vllm:generation_tokens_total"),
        *("sglang:kv_used_tokens", "sglang:num_running_reqs", "sglang:num_queue_reqs"),
        "sglang:num_retracted_requests_total",
    }
)

Labels = dict[str, str]


class Scrape:
    """One answer of ``/metrics``: the text, and its samples by name and by those labels that are asked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name with these labels.

        Raises:
            KeyError: there is none.
        """
        return self.found(name, **labels)[1]

    def labels(self, name: str, **labels: str) -> Labels:
        return self.found(name, **labels)[0]

    def found(self, name: str, **labels: str) -> tuple[Labels, float]:
        found = self.all(name, **labels)
        if len(found) != 1:
            raise KeyError(f"{len(found)} samples of {name} {labels}, expected one")
        return found[0]

    def names(self, **labels: str) -> set[str]:
        """Names of all samples with these labels."""
        return {sample.name for sample in self._samples if labels.items() <= sample.labels.items()}

    def load(self) -> dict[str, float]:
        """Usage, requests and preemptions, for a message."""
        return {s.name: s.value for s in self._samples if s.name in _LOAD}

    def of_engine(self) -> list[tuple[str, Labels, str]]:
        """All that the engine says of itself and a look at it does not change; values as text, so that NaN is NaN."""
        return [(s.name, s.labels, repr(s.value)) for s in self._samples if _is_of_engine(s.name)]

    def all(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        wanted = labels.items()
        return [(s.labels, s.value) for s in self._samples if s.name == name and wanted <= s.labels.items()]


def _is_of_engine(name: str) -> bool:
    return name.startswith(_ENGINES) and not name.startswith(_OF_ITS_HOST)
