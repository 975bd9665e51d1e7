"""EleutherAI's lm-eval, completions and chats, against a server: check.py URL KEYED_URL KEY.

Its task is made here, from what the server answers to plain requests: a score of 1 is the same
text by another way.
"""

import json
import os
import shutil
import sys
import urllib.request
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=str(Path("home").absolute()),
                  TOKENIZERS_PARALLELISM="false", OPENAI_API_KEY="none")

import likelihoods
import lm_eval
from lm_eval.tasks import TaskManager

URL = sys.argv[1]
QUESTIONS = ["Tell me a story about a fox", "What is 3 + 4?", "What is a token?",
             "Classify the sentiment: I love this film.", "What is the weather?", "Who are you?"]
LENGTH = 24

MODEL = json.load(urllib.request.urlopen(f"{URL}/v1/models"))["data"][0]["id"]


def post(path, **fields):
    request = urllib.request.Request(URL + path, json.dumps(fields).encode(), {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def answer(chat, question):
    fields = {"model": MODEL, "temperature": 0, "max_tokens": LENGTH, "stop": ["."]}
    if chat:
        fields["messages"] = [{"role": "user", "content": question}]
        return post("/v1/chat/completions", **fields)["choices"][0]["message"]["content"]
    return post("/v1/completions", prompt=question, **fields)["choices"][0]["text"]


TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
generation_kwargs: {{until: ["."], max_gen_toks: {length}, do_sample: false}}
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""

folder = Path("tasks").absolute()
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()
for name, chat in [("completions", False), ("chats", True)]:
    rows = [{"question": question, "answer": answer(chat, question)} for question in QUESTIONS]
    data = folder / f"{name}.json"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=data, length=LENGTH))

for name, model, path in [("completions", "local-completions", "/v1/completions"),
                          ("chats", "local-chat-completions", "/v1/chat/completions")]:
    args = {"model": MODEL, "base_url": URL + path, "tokenizer_backend": None, "tokenized_requests": False,
            "num_concurrent": 2, "max_retries": 1}
    results = lm_eval.simple_evaluate(model=model, model_args=args, tasks=[name], batch_size=1, log_samples=True,
                                      apply_chat_template=name == "chats", bootstrap_iters=0,
                                      task_manager=TaskManager(include_path=str(folder), include_defaults=False))
    score = results["results"][name]["exact_match,none"]
    assert score == 1, [(s["target"], s["filtered_resps"]) for s in results["samples"][name]]
    print(f"{model}: {len(results['samples'][name])} prompts, the same text")

likelihoods.check(URL, MODEL, QUESTIONS, post)
