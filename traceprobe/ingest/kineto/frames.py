"""Frames of Python in a trace: which are the program's own, and what their files are called.

The profiler names a frame `train.py(57): train_step`, the file without what is on Python's path:
one of a library is `torch/nn/modules/module.py(1735): _call_impl`, one of Python `threading.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import PurePosixPath

FRAME = re.compile(r"(?P<file>[^\n]{1,1000}?)\((?P<line>\d{1,9})\): (?P<function>[^\n]+)", re.ASCII)
_PLACE = re.compile(
    r"(?P<file>[^\n]{1,1000}?)(?P<line>\(\d{1,9}\))?: (?P<function>[^\n]+)", re.ASCII
)
"""Of a line, or of a function as `function_of` names it."""
_INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/|/lib/python\d[^/]*/|^<|^$")
_DRIVE = re.compile(r"^[A-Za-z]:/")
_LIBRARIES = """
torch torchvision torchaudio torchtext torchdata torchgen torch_xla functorch triton
transformers accelerate datasets diffusers peft trl tokenizers safetensors huggingface_hub
lightning lightning_fabric lightning_utilities pytorch_lightning torchmetrics ignite fastai timm
einops deepspeed apex xformers flash_attn bitsandbytes megatron transformer_engine numpy scipy
pandas polars sklearn PIL cv2 imageio skimage albumentations h5py zarr pyarrow webdataset wandb
mlflow tensorboard tensorboardX tqdm rich loguru hydra omegaconf yaml requests urllib3 fsspec
s3fs psutil packaging typing_extensions pydantic jaxtyping torch_geometric torch_scatter dgl
gymnasium traceprobe
"""
"""Packages that programs are made with. What is slow in their code is told by the line of the
program that calls it."""
_LIBRARY_NAMES = frozenset(_LIBRARIES.split())


def own_frame(name: str) -> bool:
    """Whether a frame is the program's own: no library's, nor Python's."""
    found = FRAME.match(name)
    if found is None:
        return False
    file = found["file"].replace("\\", "/")
    if _INSTALLED.search(file):
        return False
    top = file.partition("/")[0].removesuffix(".py")
    return top not in _LIBRARY_NAMES and top not in sys.stdlib_module_names


def function_of(name: str) -> str:
    """`train.py: train_step` of a frame that the profiler names; another name as it is.

    The profiler's line is not the one that runs: it is that of the `def`, and of a function that
    was running when the recording began, the one where it was then.
    """
    found = FRAME.fullmatch(name)
    return f"{found['file']}: {found['function']}" if found else name


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """Lines and functions without the folder that all their files are in.

    Where that lies is nobody's business.

    Returns:
        Name to new name, of the frames whose files have whole paths.
    """
    frames = {name: found for name in names if (found := _PLACE.match(name))}
    files = {n: PurePosixPath(f["file"].replace("\\", "/")) for n, f in frames.items()}
    whole = {n: p for n, p in files.items() if p.is_absolute() or _DRIVE.match(str(p))}
    if not whole:
        return {}
    levels = zip(*(path.parent.parts for path in whole.values()), strict=False)
    above = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    return {
        name: f"{PurePosixPath(*path.parts[above:])}{frames[name]['line'] or ''}: "
        f"{frames[name]['function']}"
        for name, path in whole.items()
    }
