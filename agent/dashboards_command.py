"""``vramscope dashboards``: the dashboards that come along, as files or as ConfigMaps."""

import difflib
from pathlib import Path

import click
from msgspec import json

from agent.dashboards import Dashboard, config_map, shipped
from agent.errors import InputError, RunError
from agent.kubernetes_names import namespace_name, object_name, parse_labels
from agent.memory.units import shown
from agent.printable import encodable
from agent.rules import as_yaml


@click.command("dashboards")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Say which there are, and write none.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write a file each there.")
@click.option(
    "--configmap", metavar="NAME", help="A ConfigMap each, called NAME-..., for the sidecar of Grafana's chart."
)
@click.option("--namespace", metavar="NS", help="Its namespace.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="A label beside grafana_dashboard=1.")
@click.option(
    "--folder", metavar="FOLDER", default="vramscope", show_default=True, help="Folder in Grafana; of a ConfigMap."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")
def dashboards_command(
    names: tuple[str, ...],
    listed: bool,
    out: Path | None,
    configmap: str | None,
    namespace: str | None,
    labels: tuple[str, ...],
    folder: str,
    as_json: bool,
) -> None:
    """Write the Grafana dashboards, all of them or those named: JSON for import or provisioning, or ConfigMaps.

    Example: vramscope dashboards --configmap vramscope --namespace monitoring | kubectl apply --server-side -f -
    """
    chosen = _chosen(names)
    if configmap is None and (namespace is not None or labels):
        raise InputError("--namespace and --label belong to a ConfigMap; give --configmap NAME too")
    if listed and (out is not None or configmap is not None):
        raise InputError(f"--list writes nothing; leave out {'--out' if out is not None else '--configmap'}")
    if listed:
        _list(chosen, as_json=as_json)
        return
    maps = None if configmap is None else _maps(chosen, configmap, namespace, parse_labels(labels), folder)
    if out is not None:
        texts = {f"{one.name}.json": one.text for one in chosen}
        if maps is not None:
            texts = {f"{one.name}.yaml": as_yaml(document) for one, document in zip(chosen, maps, strict=True)}
        paths = _written(out, texts)
        click.echo(json.encode({"schema": "vramscope.dashboards/1", "files": paths}) if as_json else "\n".join(paths))
    elif maps is not None:
        several = {"apiVersion": "v1", "kind": "List", "items": maps}
        click.echo(json.encode(several) if as_json else "---\n".join(map(as_yaml, maps)), nl=as_json)
    elif as_json:
        entries = [{**_entry(one), "dashboard": json.decode(one.text)} for one in chosen]
        click.echo(json.encode({"schema": "vramscope.dashboards/1", "dashboards": entries}))
    elif len(names) != 1:
        raise InputError(
            f"give --out DIR for a file each, or one NAME for stdout: {', '.join(one.name for one in chosen)}"
        )
    else:
        click.echo(chosen[0].text, nl=False)


def _chosen(names: tuple[str, ...]) -> list[Dashboard]:
    known = shipped()
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
            raise InputError(f"no dashboard is called {shown(name)}; {hint}")
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())


def _list(dashboards: list[Dashboard], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.encode({"schema": "vramscope.dashboards/1", "dashboards": [_entry(one) for one in dashboards]}))
        return
    widest = max(len(one.name) for one in dashboards)
    for one in dashboards:
        click.echo(f"{one.name:<{widest}}  {one.title}")


def _entry(dashboard: Dashboard) -> dict[str, object]:
    return {
        "name": dashboard.name,
        "title": dashboard.title,
        "uid": dashboard.uid,
        "bytes": len(dashboard.text.encode()),
    }


def _maps(
    dashboards: list[Dashboard], name: str, namespace: str | None, labels: dict[str, str], folder: str
) -> list[dict[str, object]]:
    namespace_name(namespace)
    if not folder.isprintable():
        raise InputError(f"--folder: expected the name of a folder, got {shown(folder)}")
    try:
        return [
            config_map(
                one,
                name=object_name("--configmap", f"{name}-{one.name.removeprefix('vramscope-')}"),
                namespace=namespace,
                labels=labels,
                folder=folder,
            )
            for one in dashboards
        ]
    except ValueError as error:
        raise RunError(str(error)) from error


def _written(folder: Path, texts: dict[str, str]) -> list[str]:
    """Write files of these names; their paths."""
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            path.write_text(text, encoding="utf-8")
            paths.append(encodable(str(path)))
    except OSError as error:
        raise RunError(f"--out: can't write to {folder}: {error.strerror}") from error
    return paths
