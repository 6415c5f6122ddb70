"""``vramscope dashboards``: what comes along is written out as it is, for files and for Kubernetes."""

import json
import os
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from agent.cli import run
from agent.dashboards import MAX_BYTES, config_map, shipped

FILES = sorted((Path(__file__).parents[2] / "dashboards" / "json").glob("*.json"))


def _written(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["dashboards", *options]) == 0
    return capsys.readouterr().out


def test_the_list_names_every_dashboard(capsys: pytest.CaptureFixture[str]) -> None:
    """With its title; as JSON with its uid and size too."""
    text = _written(capsys, "--list")
    document = json.loads(_written(capsys, "--list", "--json"))

    assert [line.split()[0] for line in text.splitlines()] == [path.stem for path in FILES]
    assert document["schema"] == "vramscope.dashboards/1"
    assert {one["name"]: one["bytes"] for one in document["dashboards"]} == {
        path.stem: path.stat().st_size for path in FILES
    }


def test_a_folder_gets_the_files_as_they_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Byte for byte, into a folder that is made for them, and again over themselves; the paths are printed."""
    folder = tmp_path / "made" / "here"

    for _ in range(2):
        assert _written(capsys, "--out", str(folder)).split() == [str(folder / path.name) for path in FILES]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in FILES
    }


def test_one_by_name_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """To be piped on."""
    assert _written(capsys, "vramscope-node") == (FILES[0].parent / "vramscope-node.json").read_text(encoding="utf-8")


def test_all_are_one_document_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its dashboard inside."""
    document = json.loads(_written(capsys, "--json"))

    assert [one["dashboard"] for one in document["dashboards"]] == [json.loads(path.read_text()) for path in FILES]


def test_a_config_map_holds_one_dashboard(capsys: pytest.CaptureFixture[str]) -> None:
    """Labelled for the sidecar of Grafana's chart, annotated with a folder, below the limit of a ConfigMap."""
    text = _written(
        capsys, "--configmap", "gpu", "--namespace", "monitoring", "--label", "release=kps", "--label", "a.io/b="
    )
    maps = list(yaml.safe_load_all(text))

    assert len(maps) == len(FILES)
    for one, path in zip(maps, FILES, strict=True):
        assert (one["apiVersion"], one["kind"]) == ("v1", "ConfigMap")
        assert one["metadata"] == {
            "name": f"gpu-{path.stem.removeprefix('vramscope-')}",
            "namespace": "monitoring",
            "labels": {"grafana_dashboard": "1", "release": "kps", "a.io/b": ""},
            "annotations": {"grafana_folder": "vramscope"},
        }
        assert one["data"] == {path.name: path.read_text(encoding="utf-8")}
        assert len(path.read_bytes()) < MAX_BYTES
    assert json.loads(_written(capsys, "--configmap", "gpu", "--json"))["kind"] == "List"


def test_config_maps_go_into_a_folder_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A manifest each; without a folder of Grafana's there is no annotation."""
    _written(capsys, "vramscope-node", "--configmap", "gpu", "--folder", "", "--out", str(tmp_path))

    (path,) = tmp_path.iterdir()
    assert path.name == "vramscope-node.yaml"
    assert "annotations" not in yaml.safe_load(path.read_text())["metadata"]


def test_what_is_too_large_for_a_config_map_is_refused() -> None:
    """Kubernetes would refuse it later, and say less."""
    large = replace(next(iter(shipped().values())), text="x" * (MAX_BYTES + 1))

    with pytest.raises(ValueError, match="1,048,577 bytes; a ConfigMap holds 1,048,576 at most"):
        config_map(large, name="n", namespace=None, labels={}, folder="")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give --out DIR for a file each, or one NAME for stdout: "),
        (("vramscope-nod",), "no dashboard is called 'vramscope-nod'; did you mean vramscope-node?"),
        (("x",), "no dashboard is called 'x'; expected one of "),
        (("--namespace", "a"), "--namespace and --label belong to a ConfigMap; give --configmap NAME too"),
        (("--label", "a=b"), "--namespace and --label belong to a ConfigMap; give --configmap NAME too"),
        (("--configmap", "Ä"), "--configmap: expected a name of Kubernetes, such as vramscope, got 'Ä-"),
        (("--configmap", "a", "--namespace", "A"), "--namespace: expected a name such as monitoring, got 'A'"),
        (("--list", "--out", "/nowhere"), "--list writes nothing; leave out --out"),
        (("--list", "--configmap", "a"), "--list writes nothing; leave out --configmap"),
        (("--configmap", "a", "--label", "b=c", "--label", "b=d"), "--label: 'b' is given twice; keep one"),
        (("--configmap", "a", "--label", "b"), "--label: expected KEY=VALUE, got 'b'"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What, and what was expected; exit code 2."""
    assert run(["dashboards", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"vramscope: {message}")
    assert captured.err.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 1."""
    (tmp_path / "file").write_text("")

    assert run(["dashboards", "--out", str(tmp_path / "file" / "below")]) == 1
    assert "can't write to" in capsys.readouterr().err


def test_a_path_that_is_no_utf_8_is_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In JSON; a folder of Grafana is refused."""
    name = os.fsdecode(b"\xff")

    files = json.loads(_written(capsys, "--out", str(tmp_path / name), "--json", "vramscope-kv"))["files"]
    assert files == [f"{tmp_path}/\\udcff/vramscope-kv.json"]
    assert run(["dashboards", "--configmap", "x", "--folder", name, "--json"]) == 2
