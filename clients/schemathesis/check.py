"""schemathesis on the server's own description: check.py URL KEYED_URL KEY.

Requests of every kind, such as fit the description and such as do not, are answered as it says.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

# Beside the model for text, it has one that embeds and a reranker.
URL = os.environ["ML_EMBEDDING"]
CASES = 1000
# Not among them: that a request which fits the description is taken. What a model does not honour
# is refused, and so are fields that contradict each other.
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance", "negative_data_rejection", "missing_required_header", "unsupported_method",
          "allow_header_conformance"]

model = json.load(urllib.request.urlopen(f"{URL}/v1/models"))["data"][0]["id"]
# One worker: Python 3.11's `ast`, which hypothesis uses, fails now and then in two threads.
env = {**os.environ, "SERVED_MODEL": model, "SERVER_URL": URL, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(Path(__file__).parent)}
done = subprocess.run(
    [Path(sys.executable).with_name("st"), "run", f"{URL}/openapi.json", "--phases", "coverage,fuzzing",
     "--max-examples", "20", "--seed", "1", "--checks", ",".join(CHECKS), "--request-timeout", "60",
     "--continue-on-failure", "--no-color"],
    env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if done.returncode != 0:
    sys.exit(done.stdout)
cases = int(re.search(r"(\d+) generated", done.stdout)[1])
assert cases >= CASES, done.stdout
print(f"{cases} requests, all answered as described")
