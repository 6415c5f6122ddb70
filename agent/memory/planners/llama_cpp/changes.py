"""What the rules of llama.cpp's builds mean for the memory of a server that changes its build."""

from collections.abc import Iterator

from agent.memory.planners.changes import Change, Wording, changes_between
from agent.memory.planners.llama_cpp.rules import build_of, rules_for

WORDS = {
    "latent_values": Wording(
        gained="with MLA the latent is stored again as V", lost="with MLA the latent is no longer stored again as V"
    ),
    "hybrid_cells_of_all": Wording(
        gained="beside recurrent states, each slot's cache is as long as the context of all",
        lost="beside recurrent states, each slot's cache is as long as its own context only",
    ),
    "context_of_each": Wording(
        gained="a context that nobody gave is that of each slot instead of all together",
        lost="a context that nobody gave is that of all slots together instead of each",
        ruled_out_by="ctx_size",
    ),
}
SILENT = frozenset({"since"})


def changes(before: str, after: str) -> Iterator[Change]:
    """What is known to differ between two builds; nothing where one of them can't be read."""
    if build_of(before) is not None and build_of(after) is not None:
        yield from changes_between(rules_for(before)[0], rules_for(after)[0], WORDS)
