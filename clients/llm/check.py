"""Simon Willison's llm, by its command line, against a server: check.py URL KEYED_URL KEY."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

URL, KEYED_URL, KEY = sys.argv[1:]
listed = json.load(urllib.request.urlopen(f"{URL}/v1/models"))["data"][0]
held = listed["capabilities"]["constraint"]["supported"]

home = Path("home").absolute()
home.mkdir(exist_ok=True)
both = "".join(
    f"- model_id: {name}\n  model_name: {model}\n  api_base: {base}/v1\n  api_key_name: {key}\n"
    f"  supports_tools: true\n  supports_schema: {str(held).lower()}\n"
    for name, model, base, key in [
        ("open", listed["id"], URL, "open"), ("keyed", listed["id"], KEYED_URL, "keyed"),
        ("closed", listed["id"], KEYED_URL, "open"), ("unknown", "gpt-4", URL, "open")])
(home / "extra-openai-models.yaml").write_text(both)
(home / "keys.json").write_text(json.dumps({"open": "none", "keyed": KEY}))
(home / "tools.py").write_text(
    'def get_weather(city: str) -> str:\n    "Get the weather of a city."\n'
    '    return \'{"city": "\' + city + \'", "temperature": 21, "condition": "sunny"}\'\n')


def llm(*args, fails=False):
    env = {**os.environ, "LLM_USER_PATH": str(home)}
    done = subprocess.run([Path(sys.executable).with_name("llm"), *args], env=env, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, (args, done.stdout, done.stderr)
    return done.stderr if fails else done.stdout


STORY = ["Tell me a story about a fox", "-o", "temperature", "0", "-o", "max_tokens", "40"]
streamed = llm("-m", "open", *STORY)
assert len(streamed) > 20
assert llm("-m", "open", "--no-stream", *STORY) == streamed
assert llm("-m", "keyed", *STORY) == streamed
logged = json.loads(llm("logs", "list", "--json", "-n", "1"))[0]
assert logged["output_tokens"] == 40, logged
for how in [[], ["--no-stream"]]:
    said = llm("-m", "open", "--functions", str(home / "tools.py"), "-o", "temperature", "0", *how,
               "What is the weather in Paris?")
    assert "Paris" in said, said
assert "gpt-4" in llm("-m", "unknown", *STORY, fails=True)
assert "key" in llm("-m", "closed", *STORY, fails=True)
if held:
    place = json.loads(llm("-m", "open", "--schema", "name, age int", *STORY[:3], "-o", "max_tokens", "200"))
    assert set(place) == {"name", "age"}
else:
    print("left out: schemas, which this model does not honour")
print("llm: passed")
