"""Runs inside llama.cpp's environment: ``serve_llama_cpp.py MODEL PORT ARGUMENTS``, arguments as a JSON object.

Starts the real server, which logs to stderr what it allocates, and serves until it is killed: its own way of ending
hangs at times. Without ``parallel`` it chooses its slots.
"""

import json
import signal
import sys
from typing import Any

import xllamacpp  # type: ignore[import-not-found]  # in that environment only

_NAMES = {"ctx_size": "n_ctx", "parallel": "n_parallel", "ubatch": "n_ubatch"}
_TYPES = {"kv_cache_dtype_k": "cache_type_k", "kv_cache_dtype_v": "cache_type_v"}


def parameters(model: str, port: int, arguments: dict[str, Any]) -> Any:
    found = xllamacpp.CommonParams()
    found.model.path = model
    found.port = port
    found.n_parallel = -1
    found.n_gpu_layers = 0
    found.cache_ram_mib = 0
    found.warmup = False
    found.verbosity = 4
    for name, value in arguments.items():
        if name in _TYPES:
            setattr(found, _TYPES[name], getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}"))
        else:
            setattr(found, _NAMES.get(name, name), value)
    return found


server = xllamacpp.Server(parameters(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))
signal.pause()
