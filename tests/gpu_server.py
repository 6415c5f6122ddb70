"""A server of one process that holds what it is told to on a real GPU: run with a Python that has torch with CUDA.

``gpu_server.py METRICS_PAGE`` prints the URL it serves as vLLM does. A line on stdin, ``NAME BYTES`` or ``NAME 0``,
allocates or frees a tensor and is answered with what torch itself says, as JSON; ``empty`` gives free segments back.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import vramscope_probe

ANSWERS = {
    "/version": '{"version": "0.32.0"}',
    "/v1/models": '{"data": [{"id": "tiny-llama", "owned_by": "vllm", "max_model_len": 2048}]}',
}


class Handler(BaseHTTPRequestHandler):
    page = ""

    def do_GET(self) -> None:
        text = self.page if self.path == "/metrics" else ANSWERS.get(self.path)
        body = (text or "").encode()
        self.send_response(404 if text is None else 200)
        self.send_header("Content-Type", "application/json" if self.path in ANSWERS else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def main(page: str) -> None:
    import torch  # type: ignore[import-not-found]  # only where this program runs

    vramscope_probe.start(interval=0.2)
    Handler.page = Path(page).read_text(encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    held: dict[str, Any] = {}
    for line in sys.stdin:
        name, *size = line.split()
        held.pop(name, None)
        if name == "empty":
            torch.cuda.empty_cache()
        elif int(size[0]):
            held[name] = torch.zeros(int(size[0]), dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        parts = {part: [held[part]] for part in ("weights", "kv") if part in held}
        vramscope_probe.describe(parameters=parts.get("weights"), kv_tensors=parts.get("kv"))
        statistics = torch.cuda.memory_stats()
        figures = {key: statistics[f"{key}_bytes.all.current"] for key in ("allocated", "active", "reserved")}
        print(json.dumps(figures | {"uuid": str(torch.cuda.get_device_properties(0).uuid)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
