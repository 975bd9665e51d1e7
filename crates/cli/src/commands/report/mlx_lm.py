"""Measures mlx-lm with random weights: the config of a model, positions of a prompt, tokens of an answer.

It prints tokens/s of both, and the most gigabytes that MLX held after a warm-up.
"""
import importlib, json, sys, time
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
config, count, new = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
kind = config["model_type"].removesuffix("_text") if config["model_type"].startswith("qwen3_5") else config["model_type"]
module = importlib.import_module("mlx_lm.models." + kind)
if kind != config["model_type"]:
    config = {"model_type": kind, "text_config": config, "quantization": config.get("quantization")}
model = module.Model(module.ModelArgs.from_dict(config))
def drawn(p):
    return (mx.random.normal(p.shape) * 0.02 if p.ndim > 1 else p).astype(mx.bfloat16)
model.update(tree_map(drawn, model.parameters()))
packing = config.get("quantization")
if packing and packing.get("mode", "affine") == "affine":
    nn.quantize(model, packing["group_size"], packing["bits"])
elif packing:
    experts = lambda path, module: "experts" in path and hasattr(module, "to_quantized")
    nn.quantize(model, packing["group_size"], packing["bits"], mode=packing["mode"], class_predicate=experts)
mx.eval(model.parameters())
ids = mx.array([i * 7919 % 50000 + 5 for i in range(count)])
def once(new):
    began, first = time.perf_counter(), None
    for _ in generate_step(ids, model, max_tokens=new):
        first = first or time.perf_counter()
    return count / (first - began), (new - 1) / (time.perf_counter() - first)
once(4)
mx.reset_peak_memory()
prompt, answer = once(new)
print(json.dumps({"prompt": prompt, "answer": answer, "peak": mx.get_peak_memory() / 1e9}))
