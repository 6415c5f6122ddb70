"""Models as Ollama keeps them: a manifest for each name and tag, whose layers are blobs named by their digest.

``models/manifests/HOST/NAMESPACE/NAME/TAG`` names ``models/blobs/sha256-DIGEST``; the layer of the model itself is a
GGUF file. Source: ollama/ollama ``manifest``, ``server/modelpath.go``.
"""

import re
from pathlib import Path

import msgspec
from msgspec import Struct

from collectors.regular_file import read_regular

MODEL_LAYER = "application/vnd.ollama.image.model"
_MAX_BYTES = 1 << 20
_DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}")


class _Layer(Struct, frozen=True, rename="camel"):
    media_type: str = ""
    digest: str = ""


class _Manifest(Struct, frozen=True):
    layers: tuple[_Layer, ...] = ()


def blob_of(manifest: Path) -> Path | None:
    """The blob with the model of a manifest; None where the file is none, or names no model.

    Raises:
        OSError: it can't be read.
    """
    folder = next((parent for parent in manifest.parents if parent.name == "manifests"), None)
    if folder is None or not manifest.is_file():
        return None
    try:
        layers = msgspec.json.decode(read_regular(manifest, max_bytes=_MAX_BYTES), type=_Manifest).layers
    except (msgspec.DecodeError, RecursionError):
        return None
    digest = next((layer.digest for layer in layers if layer.media_type == MODEL_LAYER), "")
    return folder.parent / "blobs" / digest.replace(":", "-") if _DIGEST.fullmatch(digest) else None
