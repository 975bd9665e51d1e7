"""Python's huggingface_hub and `ml pull`, on one cache: each finds what the other fetched, and fetches nothing again.

check.py URL KEYED_URL KEY, of which none is used; ML_PROGRAM is the program. The hub is one of this script.
"""

import hashlib
import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM = os.environ["ML_PROGRAM"]
DEMO = Path(__file__).resolve().parents[2] / "crates/cli/demo-model"
NAME = "org/demo"
COMMIT = "5d0c0ffee5d0c0ffee5d0c0ffee5d0c0ffee5d0c"
FILES = {path.name: path.read_bytes() for path in DEMO.iterdir() if path.is_file()}
NEEDED = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
          "chat_template.jinja", "model.safetensors", "model.safetensors.index.json"]
fetched = []


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def lfs(name):
    return {"sha256": hashlib.sha256(FILES[name]).hexdigest(), "size": len(FILES[name]), "pointerSize": 130}


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith(f"/api/models/{NAME}/revision/"):
            files = [{"rfilename": name, "size": len(content), "blobId": git_sha1(content),
                      **({"lfs": lfs(name)} if name.endswith(".safetensors") else {})}
                     for name, content in FILES.items()]
            self.answer(json.dumps({"id": NAME, "sha": COMMIT, "siblings": files}).encode(), {})
        elif path.startswith(f"/api/models/{NAME}/tree/"):
            files = [{"type": "file", "path": name, "size": len(content), "oid": git_sha1(content),
                      **({"lfs": {**lfs(name), "oid": lfs(name)["sha256"]}} if name.endswith(".safetensors") else {})}
                     for name, content in FILES.items()]
            self.answer(json.dumps(files).encode(), {})
        elif path.startswith(f"/{NAME}/resolve/"):
            name = path.rsplit("/", 1)[1]
            content = FILES[name]
            digest = lfs(name)["sha256"] if name.endswith(".safetensors") else git_sha1(content)
            if self.command == "GET":
                fetched.append(name)
            self.answer(content, {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT})
        else:
            self.send_error(404)

    def answer(self, content, headers):
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
for name in [name for name in os.environ if name.startswith("HF_")]:
    del os.environ[name]
home = Path("home").absolute()
os.environ |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(home),
               "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

from huggingface_hub import scan_cache_dir, snapshot_download  # noqa: E402  (it reads the variables at once)


def ml(*arguments, **variables):
    done = subprocess.run([PROGRAM, *arguments], env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout.strip()


def fresh():
    shutil.rmtree(home, ignore_errors=True)
    fetched.clear()


def layout():
    """Links with their targets, and the other files with their hashes, in the model's folder."""
    model = home / "hub/models--org--demo"
    found = {}
    for path in sorted(model.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(model))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(model))] = hashlib.sha256(path.read_bytes()).hexdigest()
    # The listing that huggingface_hub keeps for itself.
    return {path: what for path, what in found.items() if not path.startswith("trees/")}


fresh()
theirs = snapshot_download(NAME, allow_patterns=NEEDED)
their_layout, needed = layout(), sorted(set(NEEDED) & set(FILES))
assert sorted(fetched) == needed, fetched
fetched.clear()
assert ml("pull", "-q", NAME) == theirs
assert fetched == [], fetched
assert "qwen3" in ml("info", "--model", NAME, HF_HUB_OFFLINE="1")
assert json.loads(ml("list", "--json"))[0]["commit"] == COMMIT
print("what huggingface_hub downloaded is found")

fresh()
ours = ml("pull", "-q", NAME)
assert sorted(fetched) == needed, fetched
assert layout() == their_layout, (layout(), their_layout)
assert snapshot_download(NAME, allow_patterns=NEEDED, local_files_only=True) == ours
fetched.clear()
assert snapshot_download(NAME, allow_patterns=NEEDED) == ours
assert fetched == [], fetched
cache = scan_cache_dir()
assert not cache.warnings, cache.warnings
assert [(repo.repo_id, repo.size_on_disk) for repo in cache.repos] == [(NAME, sum(len(FILES[name]) for name in needed))]
print("what ml pulled is found, in the same layout")

assert ml("rm", NAME).startswith("removed org/demo: ")
assert not scan_cache_dir().repos
print("huggingface_hub: passed")
