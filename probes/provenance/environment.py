"""The environment on which the numbers of a run depend, read from PyTorch without changing anything."""

from __future__ import annotations

import json
import os
import platform
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch

from probes.digest import blake3_hex, canonical
from probes.provenance.code import in_unicode
from probes.provenance.packages import python_version
from probes.run_directory.manifest import EnvironmentRecord, RandomRecord

T = TypeVar("T")

# None of them holds a secret; `threads` has the effect of OMP_NUM_THREADS and MKL_NUM_THREADS.
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "CUDNN_CONV_WSCAP_DBG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "PYTHONHASHSEED",
    "PYTORCH_TUNABLEOP_ENABLED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_CUDNN_V8_API_DISABLED",
)


def environment(devices: Iterable[torch.device], world: int, unknown: dict[str, str]) -> EnvironmentRecord:
    """The environment of this process.

    Args:
        devices: where the weights are.
        world: number of processes.
        unknown: takes what could not be found out, and why.
    """
    places = sorted({device_name(one) for one in devices}) or ["cpu"]

    def ask(name: str, question: Callable[[], T]) -> T | None:
        # torch raises RuntimeError once the old and the new switches for TF32 have been mixed (2.9)
        try:
            return question()
        except RuntimeError as error:
            unknown[f"environment.{name}"] = str(error).split(",")[0]
            return None

    return EnvironmentRecord(
        python=python_version(),
        torch=torch.__version__,
        torch_commit=torch.version.git_version,
        cuda=torch.version.cuda or torch.version.hip,
        cudnn=torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        numpy=_numpy_version(),
        device=", ".join(places),
        cpu=f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        threads=torch.get_num_threads(),
        interop_threads=torch.get_num_interop_threads(),
        deterministic=_deterministic(),
        cudnn_deterministic=torch.backends.cudnn.deterministic,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        matmul_precision=ask("matmul_precision", torch.get_float32_matmul_precision),
        tf32={
            "matmul": ask("tf32.matmul", lambda: torch.backends.cuda.matmul.allow_tf32),
            "cudnn": ask("tf32.cudnn", lambda: torch.backends.cudnn.allow_tf32),
        },
        autocast=_autocast(places),
        world=world,
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        sdp=_attention_backends(),
        variables={name: in_unicode(os.environ[name]) for name in VARIABLES if name in os.environ},
    )


def _attention_backends() -> dict[str, bool]:
    """The backends that `scaled_dot_product_attention` may use; older releases of PyTorch lack `cudnn`."""
    names = ("flash", "mem_efficient", "math", "cudnn")
    asked = {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled", None) for name in names}
    return {name: bool(ask()) for name, ask in asked.items() if ask is not None}


def device_name(device: torch.device) -> str:
    """Kind of a device; of a CUDA device its model and compute capability too."""
    if device.type != "cuda":
        return device.type
    major, minor = torch.cuda.get_device_capability(device)
    return f"cuda {torch.cuda.get_device_name(device)} {major}.{minor}"


def current_device() -> str:
    """The device that a program uses by default: the first CUDA device if there is one, else the CPU."""
    return device_name(torch.device("cuda", 0)) if torch.cuda.is_available() else "cpu"


def _numpy_version() -> str | None:
    numpy = sys.modules.get("numpy")
    return str(numpy.__version__) if numpy else None


def _deterministic() -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _autocast(places: Iterable[str]) -> str | None:
    kinds = sorted({place.split()[0] for place in places} - {"meta"})
    on = [kind for kind in kinds if torch.is_autocast_enabled(kind)]
    return ", ".join(f"{kind} {str(torch.get_autocast_dtype(kind)).removeprefix('torch.')}" for kind in on) or None


def generators() -> RandomRecord:
    """Seed of PyTorch, and digests of the state of every generator that is in use; none of them is advanced."""
    digests = {
        "torch": blake3_hex(torch.get_rng_state().numpy().tobytes()),
        "python": blake3_hex(canonical(random.getstate())),
    }
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        digests["numpy"] = _numpy_digest(numpy.get_state(legacy=False))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            digests[f"cuda:{index}"] = blake3_hex(state.numpy().tobytes())
    return RandomRecord(torch_seed=torch.initial_seed(), digests=digests)


def _numpy_digest(state: dict[str, Any]) -> str:
    """The digest of the state of NumPy's global generator; a program may have replaced the Mersenne Twister by another."""
    own = state["state"]
    if state["bit_generator"] == "MT19937":
        return blake3_hex(canonical(["MT19937", own["pos"], state["has_gauss"], state["gauss"]]) + own["key"].tobytes())
    return blake3_hex(json.dumps(state, sort_keys=True, default=lambda one: getattr(one, "tolist", lambda: repr(one))()).encode())


def machine() -> str:
    """Operating system, its version and the processor; no name of the host."""
    processor = platform.processor()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = listing.read_text(errors="replace").splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    return f"{platform.system()} {platform.release()}, {processor or platform.machine()}"


if __name__ == "__main__":  # `proof`, which never imports torch, runs this in a child process
    print(current_device())
