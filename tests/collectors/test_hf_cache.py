"""A model's snapshot in a Hugging Face cache, laid out as the hub's own library does."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.hf_cache import hub_directory, snapshot_path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def cached(hub: Path, name: str = "org/model", *, commit: str = COMMIT, ref: str | None = "main") -> Path:
    """A snapshot with its ref, its file a link to a blob."""
    folder = hub / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "blobs" / "b").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/b")
    if ref:
        (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / ref).write_text(commit)
    return snapshot


def test_a_name_leads_to_the_snapshot_of_its_main_branch(tmp_path: Path) -> None:
    """Through refs/main, whatever other snapshots there are."""
    cached(tmp_path, commit=OTHER, ref=None)
    snapshot = cached(tmp_path)

    assert snapshot_path("org/model", homes=[tmp_path]) == snapshot


def test_a_revision_is_a_branch_a_tag_or_a_commit(tmp_path: Path) -> None:
    """A commit needs no ref."""
    main, pull = cached(tmp_path), cached(tmp_path, commit=OTHER, ref="refs/pr/1")

    assert snapshot_path("org/model", homes=[tmp_path], revision="refs/pr/1") == pull
    assert snapshot_path("org/model", homes=[tmp_path], revision=COMMIT) == main
    assert snapshot_path("org/model", homes=[tmp_path], revision="v2") is None
    assert snapshot_path("org/model", homes=[tmp_path], revision="../../x") is None


def test_the_first_cache_that_has_it_counts(tmp_path: Path) -> None:
    """Others are asked in their order."""
    second = cached(tmp_path / "second", "model")
    cached(tmp_path / "third", "model")

    homes = [tmp_path / "first", tmp_path / "second", tmp_path / "third"]

    assert snapshot_path("model", homes=homes) == second


@pytest.mark.parametrize(
    "name", ["", "/abs", "a/b/c", "../x", "org/..", ".hidden/x", "a b", "x\0", "x" * 500, "é/../x"]
)
def test_what_is_no_repository_is_not_looked_for(tmp_path: Path, name: str) -> None:
    """None, and no path is made of it."""
    cached(tmp_path)

    assert snapshot_path(name, homes=[tmp_path]) is None


@pytest.mark.parametrize("damage", ["empty", "words", "long", "binary", "folder", "pipe", "missing"])
def test_a_damaged_cache(tmp_path: Path, damage: str) -> None:
    """A ref that is no commit, not a file, or leads nowhere gives None at once."""
    cached(tmp_path)
    ref = tmp_path / "models--org--model" / "refs" / "main"
    ref.unlink()
    match damage:
        case "folder":
            ref.mkdir()
        case "pipe":
            os.mkfifo(ref)
        case "missing":
            ref.write_text(OTHER)
        case "binary":
            ref.write_bytes(b"\xff" * 40)
        case _:
            ref.write_text({"empty": "", "words": "../../elsewhere", "long": COMMIT * 100}[damage])

    assert snapshot_path("org/model", homes=[tmp_path]) is None


@pytest.mark.parametrize(
    ("environment", "home", "expected"),
    [
        ({}, None, None),
        ({}, "/home/u", "/home/u/.cache/huggingface/hub"),
        ({"HOME": "/root"}, "/home/u", "/root/.cache/huggingface/hub"),
        ({"HOME": "/root", "XDG_CACHE_HOME": "/x"}, None, "/x/huggingface/hub"),
        ({"HOME": "/root", "HF_HOME": "/hf", "XDG_CACHE_HOME": "/x"}, None, "/hf/hub"),
        ({"HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old"}, None, "/old"),
        ({"HF_HUB_CACHE": "/hub", "HUGGINGFACE_HUB_CACHE": "/old"}, None, "/hub"),
        ({"HOME": "/root", "HF_HOME": "~/hf"}, None, "/root/hf/hub"),
        ({"HF_HOME": "~/hf"}, None, "~/hf/hub"),
        ({"HF_HOME": "relative"}, None, "relative/hub"),
    ],
)
def test_which_cache_a_process_uses(environment: dict[str, str], home: str | None, expected: str | None) -> None:
    """The nearest variable wins; without any it lies in the home of its user."""
    assert hub_directory(environment, home=home) == expected


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40), st.none() | st.text(max_size=40))
def test_any_name(name: str, revision: str | None) -> None:
    """A name is somebody else's text."""
    assert snapshot_path(name, homes=[Path("/nowhere")], revision=revision) is None
