"""Log-likelihood tasks of lm-eval, by `local-completions`: `echo` with `logprobs`.

What is expected are the numbers of the server's own `/v1/classify`, which computes them in another way.
"""

import json
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

TOKENIZER = Path(__file__).resolve().parents[2] / "crates/cli/demo-model"
CHOICES = [" yes", " no", " The fox ran to the river", " 7"]
# The model computes in bf16, where logits of 8 to 16 have steps of 0.0625, and a prompt is summed in another order
# than the few positions of a label: a token may be one step off, and all of them are hardly off on the average.
FAR, MEAN = 0.0625, 0.003
# The model's end of a text, which stands before texts of their own.
PREFIX = 0

CHOOSING = """task: choices
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: best
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""
ROLLING = """task: texts
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{question}}}}"
metric_list:
  - metric: bits_per_byte
"""


def check(url, model, questions, post):
    """Runs the tasks; `post(path, **fields)` asks the server."""

    def scores(prompt, texts):
        answer = post("/v1/classify", model=model, input=prompt, labels=texts)
        return [(label["logprob"], label["tokens"]) for label in answer["data"][0]["labels"]]

    folder = Path("likelihoods").absolute()
    folder.mkdir(exist_ok=True)
    rows, expected = [], {}
    for question in questions:
        own = post("/v1/completions", model=model, prompt=question, temperature=0, max_tokens=20, stop=["."])
        choices = [own["choices"][0]["text"], *CHOICES]
        wanted = scores(question, choices)
        expected[question] = (wanted, scores([PREFIX], [question]))
        best = max(range(len(wanted)), key=lambda at: wanted[at][0])
        rows.append({"question": question, "choices": choices, "best": best})
    data = folder / "rows.json"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    (folder / "choices.yaml").write_text(CHOOSING.format(data=data))
    (folder / "texts.yaml").write_text(ROLLING.format(data=data))
    tasks = TaskManager(include_path=str(folder), include_defaults=False)

    for batch, concurrent, as_ids in [(1, 2, True), (4, 1, True), (1, 1, False)]:
        args = {"model": model, "base_url": url + "/v1/completions", "tokenizer_backend": "huggingface",
                "tokenizer": str(TOKENIZER), "tokenized_requests": as_ids, "num_concurrent": concurrent,
                "custom_prefix_token_id": PREFIX, "max_retries": 1}
        results = lm_eval.simple_evaluate(model="local-completions", model_args=args, tasks=["choices", "texts"],
                                          batch_size=batch, log_samples=True, bootstrap_iters=0, task_manager=tasks)
        distances = []
        for sample in results["samples"]["choices"]:
            found = [resp for [resp] in sample["resps"]]
            wanted, _ = expected[sample["doc"]["question"]]
            for (number, _), (other, tokens) in zip(found, wanted, strict=True):
                distances.append(abs(float(number) - other) / tokens)
            # What the model says by itself is the likeliest at each step, and nothing else is.
            greedy = [str(greedy) for _, greedy in found]
            assert greedy == ["True"] + ["False"] * len(CHOICES), (sample["doc"], found)
        assert results["results"]["choices"]["acc,none"] == 1, results["results"]
        for sample in results["samples"]["texts"]:
            [[number]] = sample["resps"]
            _, [(other, tokens)] = expected[sample["doc"]["question"]]
            distances.append(abs(float(number) - other) / tokens)
        worst, mean = max(distances), sum(distances) / len(distances)
        assert worst <= FAR and mean <= MEAN, (worst, mean)
        print(f"local-completions, {batch} in a batch, {concurrent} at once: log likelihoods within {worst:.1e} a token, "
              f"{mean:.1e} on the average")
