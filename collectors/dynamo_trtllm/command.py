"""Which command lines start a worker of Dynamo around TensorRT-LLM: ``python -m dynamo.trtllm --model-path MODEL``."""

from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, split_assignments
from collectors.discovery.dynamo import SYSTEM_PORT, as_worker
from collectors.discovery.flags import FlagTable, read_flags
from collectors.discovery.programs import started

FLAGS = FlagTable(
    kinds={
        "model-path": "text",
        "served-model-name": "text",
        "tensor-parallel-size": "whole",
        "pipeline-parallel-size": "whole",
        "max-batch-size": "whole",
        "max-num-tokens": "whole",
        "max-seq-len": "whole",
        "free-gpu-memory-fraction": "number",
    },
    arguments={"tensor-parallel-size": "tp", "pipeline-parallel-size": "pp", "max-seq-len": "max_model_len"},
)
_IDENTITY = frozenset({"model-path", "served-model-name"})


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The worker that a command line starts, None when it starts none."""
    variables, words = split_assignments(argv)
    one = started(words)
    if not one.is_module or one.name != "dynamo.trtllm":
        return None
    values = read_flags(one.words, FLAGS)
    model, name = values.get("model-path"), values.get("served-model-name", values.get("model-path"))
    command = ServerCommand(
        model=model if isinstance(model, str) else None,
        served_name=name if isinstance(name, str) else None,
        arguments={flag: value for flag, value in values.items() if flag not in _IDENTITY},
        programs=one.programs,
    )
    return as_worker(command, variables)


COMMAND = ReadCommand(marks=(b"dynamo.trtllm",), read=read_command, package="tensorrt_llm", variables=(SYSTEM_PORT,))
