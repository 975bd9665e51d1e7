"""Compiles texts of kernels by NVIDIA's compiler, which needs no GPU: python3 check.py FOLDER"""

import ctypes
import glob
import multiprocessing
import os
import sys

import nvidia

ROOTS = list(nvidia.__path__)


def found(pattern):
    paths = [path for root in ROOTS for path in glob.glob(os.path.join(root, "*", pattern))]
    if not paths:
        raise FileNotFoundError(f"no {pattern} in {ROOTS}")
    return paths[0]


BUILTINS = found("lib/libnvrtc-builtins.so.*")
NVRTC = found("lib/libnvrtc.so.*")
HEADER = found("include/cuda_bf16.h")


def log_of(nvrtc, program):
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, text)
    return text.value.decode(errors="replace")


def refused(path):
    """What the compiler says of a text that it refuses."""
    # NVRTC looks for the first one where the loader does.
    ctypes.CDLL(BUILTINS)
    nvrtc = ctypes.CDLL(NVRTC)
    with open(path, "rb") as file:
        text = file.read()
    options = [
        # As MLX asks for them; machine code tells what the assembler refuses.
        b"--gpu-architecture=sm_90a",
        b"--device-as-default-execution-space",
        b"--disable-warnings",
        b"-I" + os.path.dirname(HEADER).encode(),
    ]
    program = ctypes.c_void_p()
    name = os.path.basename(path)
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name.encode(), 0, None, None)
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = log_of(nvrtc, program)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return f"{name}:\n{log}" if failed else None


def main():
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.cu")))
    if not paths:
        sys.exit(f"no texts in {sys.argv[1]}")
    with multiprocessing.Pool() as pool:
        told = [what for what in pool.imap_unordered(refused, paths, chunksize=4) if what]
    for what in told[:5]:
        print(what)
    print(f"{len(paths) - len(told)} of {len(paths)} kernels are compiled")
    sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
