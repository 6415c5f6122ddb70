"""Runs inside llama.cpp's environment under the name and the flags of its own program, ``llama-server``."""

import argparse
import signal

import xllamacpp  # type: ignore[import-not-found]  # in that environment only

parser = argparse.ArgumentParser()
parser.add_argument("-m", dest="model", required=True)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("-c", dest="context", type=int, required=True)
parser.add_argument("-np", dest="slots", type=int, default=-1)
parser.add_argument("-kvu", dest="unified", action="store_true")
parser.add_argument("--metrics", action="store_true")
parser.add_argument("-t", dest="threads", type=int, default=-1)
parser.add_argument("-lv", dest="verbosity", type=int, default=4)
given = parser.parse_args()

parameters = xllamacpp.CommonParams()
parameters.model.path = given.model
parameters.port = given.port
parameters.n_ctx = given.context
parameters.n_parallel = given.slots
parameters.kv_unified = given.unified or given.slots < 0
parameters.endpoint_metrics = given.metrics
parameters.n_gpu_layers = 0
parameters.cpuparams.n_threads = given.threads
parameters.cache_ram_mib = 0
parameters.warmup = False
parameters.verbosity = given.verbosity
server = xllamacpp.Server(parameters)
print("serving", flush=True)
signal.pause()
