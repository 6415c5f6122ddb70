"""Strategies for exposition text: lines as the formats allow them, and recorded pages with something wrong in them."""

from hypothesis import strategies as st

from collectors.vllm.page import FULL_NAMES
from tests.collectors.replay import FIXTURES
from tests.fuzz.mutations import damaged_text

NAMES = sorted(FULL_NAMES)
PAGES = [path.read_text(encoding="utf-8") for path in sorted((FIXTURES / "vllm").glob("[0-s]*/*.txt"))]
_WITHOUT_BREAKS = st.characters(codec="utf-8", exclude_characters="\n")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

spaces = st.sampled_from(("", "", "", " ", "  "))
blank = st.sampled_from((" ", " ", "  "))
label_names = st.from_regex(r"\A(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,8}\Z") | st.sampled_from(
    ("engine", "model_name", "ReplicaId", "WorkerId", "pid", "sleep_state", "num_gpu_blocks", "block_size")
)
label_values = st.one_of(
    st.sampled_from(("", "0", "1", "None", "awake", "16", "1000", "{", "}", " # ", ",", "=")),
    st.text(st.characters(codec="utf-8"), max_size=8).map(lambda text: text.translate(_ESCAPES)),
)
numbers = st.one_of(
    st.sampled_from(
        ("0", "1.0", "-1", "+2", "5.", ".5", "1e9", "1.75E+09", "NaN", "+Inf", "-Inf", "inf", "-nan", "9" * 400)
    ),
    st.floats().map(repr),
    st.integers().map(str),
)
times = st.sampled_from(("0", "1700000000000", "1.7e+09", "-1", "1700000000.123"))


@st.composite
def braces(draw: st.DrawFn) -> str:
    names = draw(st.lists(label_names, unique=True, max_size=4))
    pairs = [f'{draw(spaces)}{name}{draw(spaces)}={draw(spaces)}"{draw(label_values)}"{draw(spaces)}' for name in names]
    return "{" + ",".join(pairs) + (draw(st.sampled_from(("", ","))) if pairs else "") + "}"


@st.composite
def lines(draw: st.DrawFn) -> str:
    """One needed line as the text format or OpenMetrics allows it."""
    labels = draw(st.just("") | braces())
    line = draw(st.sampled_from(NAMES)) + labels + draw(blank) + draw(numbers)
    if draw(st.booleans()):
        line += draw(blank) + draw(times)
    if draw(st.booleans()):
        line += f" # {draw(braces())} {draw(times)}"
    return line + draw(st.sampled_from(("", " ", "\r")))


grammatical_pages = st.lists(
    lines() | st.sampled_from(("# HELP x y", "# TYPE x counter", "# UNIT x bytes", "", "other 1")), max_size=8
).map(lambda found: "".join(f"{line}\n" for line in found))
damaged_pages = damaged_text(PAGES)
damaged_lines = damaged_text(
    [
        'vllm:num_requests_running{engine="0",model_name="a\\"b"} 3.0',
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0 1700000000 # {a="b"} 1 2',
        "process_start_time_seconds 1.75e+09",
    ]
).map(lambda line: f"vllm:num_requests_waiting 1\n{line}\n")
random_pages = st.tuples(st.sampled_from(["", *NAMES]), st.text(_WITHOUT_BREAKS)).map(
    lambda parts: "".join(parts) + "\n"
)
