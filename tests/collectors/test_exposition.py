"""Lines of a Prometheus or OpenMetrics page: the strict reader against hand-made lines and lines made to cost time."""

import pytest

from collectors.errors import Unreadable
from collectors.exposition import MAX_LENGTH, MAX_LINE_LENGTH, MAX_SAMPLES, Sample, Wanted, possible

WANTED = Wanted({"up", "vllm:used"})


def samples(text: str) -> list[Sample]:
    return WANTED.samples(text, source="page")


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("up 1", {}, 1.0),
        ("up 1\r", {}, 1.0),
        ("up  +1.50e+01  1700000000000", {}, 15.0),
        ("up .5", {}, 0.5),
        ("up 5.", {}, 5.0),
        ("up -7", {}, -7.0),
        ("up +Inf", {}, float("inf")),
        ("up -inf", {}, float("-inf")),
        ("up 1" + "0" * 400, {}, float("inf")),
        ("up{} 1", {}, 1.0),
        ('up{a="b"} 1', {"a": "b"}, 1.0),
        ('up{a="b"}1', {"a": "b"}, 1.0),
        ('up {a="b",} 1', {"a": "b"}, 1.0),
        ('up{ a = "b" , c = "" } 1', {"a": "b", "c": ""}, 1.0),
        ('up{a="x{y},z=\\"\\\\\\n\\t"} 1', {"a": 'x{y},z="\\\n\\t'}, 1.0),
        ('up{a="\\\\n"} 1', {"a": "\\n"}, 1.0),
        ('up{a="ünï"} 1 # {t="1"} 0.5', {"a": "ünï"}, 1.0),
        ('up 1 1.5 # {t="} 1"} 0.5 1700000000.123', {}, 1.0),
    ],
)
def test_lines_that_are_read(line: str, labels: dict[str, str], value: float) -> None:
    """Spaces, escapes, timestamps and exemplars as the two formats allow them."""
    assert samples(line + "\n") == [Sample("up", labels, value)]


@pytest.mark.parametrize(
    "line",
    [
        "up ",
        "up one",
        "up 1_000",
        "up 0x10",
        "up ١",  # a digit, but not one of the format's
        "up 1 2 3",
        "up 1 # exemplar",
        "up 1 junk",
        "up infinite",
        "up{",
        "up{} ",
        'up{a="b} 1',
        'up{a="b"c="d"} 1',
        'up{a="b",,c="d"} 1',
        'up{,a="b"} 1',
        "up{a=b} 1",
        'up{="b"} 1',
        'up{1a="b"} 1',
        'up{__name="b"} 1',
        'up{a="b",a="c"} 1',
        'up{a="b"} {c="d"} 1',
    ],
)
def test_lines_that_are_malformed(line: str) -> None:
    """One malformed line that is needed costs the page: what else of it is right is not known."""
    with pytest.raises(Unreadable) as caught:
        samples(f"vllm:used 1\n{line}\n")

    assert caught.value.reason == "malformed"
    assert str(caught.value) == (
        "page has a malformed line; expected the Prometheus text format: check that it is the server's own page"
    )


@pytest.mark.parametrize(
    "line", ["# up 1", "upper{ 1", "up_total 1 junk", "vllm:used_more x", " up x", 'x{a="up 1"} x']
)
def test_other_lines_are_passed_over(line: str) -> None:
    """Whatever they hold; a name counts only whole and at the start of its line."""
    assert samples(f"{line}\nup 1\n") == [Sample("up", {}, 1.0)]


def test_a_value_that_is_no_number_is_given_as_such() -> None:
    """What it means is for the reader of the server to say."""
    (sample,) = samples("up NaN\n")

    assert sample.value != sample.value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("up 1\nup 2", "truncated"),
        ("up 1\n" * (MAX_SAMPLES + 1), "too_large"),
        ('up{a="' + "x" * MAX_LINE_LENGTH + '"} 1\n', "too_large"),
        (('up{a="' + "x" * (MAX_LENGTH // 20) + '"} 1\n') * 21, "too_large"),
    ],
)
def test_pages_that_are_not_read_at_all(text: str, reason: str) -> None:
    """Cut off, or more than any server has to say."""
    with pytest.raises(Unreadable) as caught:
        samples(text)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "filling",
    [
        'a="' + r"\"" * 30_000 + '"',
        'a="' + r"\\" * 30_000 + '"',
        'a="' + r"\"" * 30_000,
        ",".join(f'a{number}=""' for number in range(6_000)),
        ",".join(f'a{number}=""' for number in range(6_000)) + "-",
        " " * 60_000 + "x",
        '"' * 60_000,
        "{" * 60_000,
        'a="",' * 12_000,
        'a = "" , ' * 6_000 + "x",
    ],
    ids=range(10),
)
def test_long_lines_cost_no_more_than_their_length(filling: str) -> None:
    """Lines on which a reader that looks back takes minutes: sixteen of each, read or refused at once."""
    page = f"up{{{filling}}} 1\n" * 16
    try:
        outcome = f"{len(samples(page))} samples"
    except Unreadable as exc:
        outcome = exc.reason

    assert outcome in ("16 samples", "malformed")


def test_names_that_begin_alike_are_told_apart() -> None:
    """A name that is the beginning of another, one of one letter, one with a sign of regular expressions."""
    names = ("a", "a_total", "ab", "ab.c", "b:x", "b:xy")
    wanted = Wanted(names)

    found = [sample.name for sample in wanted.samples("".join(f"{name} 1\n" for name in names), source="here")]

    assert found == list(names)
    assert wanted.samples("a_tota 1\nabc 1\nab_c 1\nb: 1\nc 1\naa 1\n", source="here") == []


@pytest.mark.parametrize(
    ("name", "value", "is_kept", "is_noted"),
    [
        ("up", float(1 << 53), True, False),
        ("up", 1e16, False, True),
        ("up", -1e308, False, True),
        ("up", float("inf"), False, False),
        ("up", float("nan"), False, False),
        ("process_start_time_seconds", 1.8e9, True, False),
        ("process_start_time_seconds", 1e12, False, True),
        ("vllm:prompt_tokens_created", 1e308, False, True),
    ],
)
def test_values_that_can_not_be(name: str, value: float, is_kept: bool, is_noted: bool) -> None:
    """No count past 2^53, no time past the year 9999; a note names what was left out for that."""
    kept, notes = possible([Sample(name, {}, value)])

    assert (bool(kept), bool(notes)) == (is_kept, is_noted)
    assert all(name in note for note in notes)
