"""The dashboards that come along, as files for Grafana's provisioning or as ConfigMaps for its sidecar."""

import importlib.resources
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from msgspec import Struct, json

FOUND_BY = {"grafana_dashboard": "1"}
"""The label by which the sidecar of Grafana's chart finds a ConfigMap, unless it is set up otherwise."""
FOLDER_ANNOTATION = "grafana_folder"
MAX_BYTES = 1 << 20  # of all values of a ConfigMap


class Dashboard(Struct, frozen=True, kw_only=True):
    """One dashboard. ``name`` is that of its file without ``.json``, ``text`` what the file holds."""

    name: str
    title: str
    uid: str
    text: str


def shipped() -> dict[str, Dashboard]:
    """All that come along, by name."""
    files = sorted((file for file in _folder().iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return {one.name: one for one in map(_read, files)}


def config_map(
    dashboard: Dashboard, *, name: str, namespace: str | None, labels: Mapping[str, str], folder: str
) -> dict[str, Any]:
    """A ConfigMap that holds one dashboard as a file of its own.

    Raises:
        ValueError: it is larger than a ConfigMap may be.
    """
    size = len(dashboard.text.encode())
    if size > MAX_BYTES:
        raise ValueError(f"{dashboard.name} has {size:,} bytes; a ConfigMap holds {MAX_BYTES:,} at most")
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {**FOUND_BY, **labels},
        "annotations": {FOLDER_ANNOTATION: folder} if folder else None,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {key: value for key, value in metadata.items() if value},
        "data": {f"{dashboard.name}.json": dashboard.text},
    }


def _read(file: Traversable) -> Dashboard:
    text = file.read_text(encoding="utf-8")
    document = json.decode(text)
    return Dashboard(name=file.name.removesuffix(".json"), title=document["title"], uid=document["uid"], text=text)


def _folder() -> Traversable:
    packaged = importlib.resources.files("agent") / "data" / "dashboards"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "dashboards" / "json"
