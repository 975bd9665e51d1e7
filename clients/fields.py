"""Walks the type definitions of a package's requests: each field is honoured, refused, or told to change no answer.

A field whose value is of no type at all must be a 400, or the answer's header `x-ml-ignored` names it. Where neither is
so, the server has not looked at it.
"""

import collections.abc
import json
import re
import types
import typing
import urllib.error
import urllib.request

# Of no field's type.
ODD = {"?": [[1.5]]}
ALSO_ODD = [[1.5]]


def sender(url, base):
    """Sends requests with fields over those of `base`: the status, what an error blames, and the paths that are told to
    change nothing."""
    def send(more):
        body = json.dumps({**base, **more}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                told = answer.headers.get("x-ml-ignored", "").replace("[]", "")
                return answer.status, "", set(told.split(", ")) - {""}
        except urllib.error.HTTPError as error:
            told = json.load(error)["error"]
            return error.code, told.get("param") or told["message"], set()
    return send


def is_seen(send, more, path):
    """Whether a request with `more` is refused, or its answer tells that what is at `path` changes nothing."""
    status, _, told = send(more)
    return status == 400 or any(path == name or path.startswith(f"{name}.") for name in told)


def bare(hint):
    """A hint without what stands around it."""
    while typing.get_origin(hint) in (typing.Annotated, typing.Required, typing.NotRequired):
        hint = typing.get_args(hint)[0]
    return hint


def choices(hint):
    hint = bare(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [choice for one in typing.get_args(hint) for choice in choices(one)]
    return [hint]


def is_object(choice):
    # Also one of typing_extensions, which typing does not know.
    return hasattr(choice, "__required_keys__")


def required(choice):
    """The fields that an object must have. Its `__required_keys__` do not know of those with hints in words."""
    hints = typing.get_type_hints(choice, include_extras=True)
    origins = {name: typing.get_origin(hint) for name, hint in hints.items()}
    if choice.__total__:
        return {name: hint for name, hint in hints.items() if origins[name] is not typing.NotRequired}
    return {name: hint for name, hint in hints.items() if origins[name] is typing.Required}


def objects(hint):
    """The objects that a field may hold, each with what makes the field's value of one of them."""
    for choice in choices(hint):
        if is_object(choice):
            yield choice, lambda one: one
        elif typing.get_origin(choice) in (list, collections.abc.Iterable, collections.abc.Sequence):
            for inner, made in objects(typing.get_args(choice)[0]):
                yield inner, lambda one, made=made: [made(one)]


def sample(hint, examples, depth=0):
    """A value of this type, as small as it can be, or the example of its object."""
    for choice in choices(hint):
        if typing.get_origin(choice) is typing.Literal:
            return typing.get_args(choice)[0]
        if choice is str:
            return "a"
        if choice in (int, float):
            return 1024
        if choice is bool:
            return True
        if is_object(choice):
            if choice.__name__ in examples:
                return examples[choice.__name__]
            if depth < 6:
                return {name: sample(hint, examples, depth + 1) for name, hint in required(choice).items()}
        if typing.get_origin(choice) in (list, collections.abc.Iterable, collections.abc.Sequence):
            return [sample(typing.get_args(choice)[0], examples, depth + 1)]
        if typing.get_origin(choice) is dict or choice in (dict, object):
            return {}
    return None


def is_of_its_kind(blamed, path):
    """Whether what an error blames is the object at `path` itself, its kind or what it is in: then it is no bad sample."""
    quoted = re.search("`([^`]+)`", blamed)
    blamed = re.sub(r"\[\d+\]", "", quoted.group(1) if quoted else blamed)
    return not blamed.startswith(f"{path}.") or blamed in (f"{path}.type", f"{path}.role")


def walk(params, send, known=False, examples=None, around=None, taken=(), free=(), only=None):
    """How many fields of `params`, and of the objects in them however deep, are refused or told as they should be.

    `send` is of `sender`. Where `known` is set, an error blames the request's own field, so that none is unknown.
    The others speak of objects by the names of their types. `examples` are good values, where the smallest one is not.
    `around` makes what a request needs for one: fields, by the name of the request's own and its value. `taken` are
    those that must be taken somewhere; others may be refused for their kind. `free` hold what the user likes. `only`
    are the request's own fields that are walked; `None`: all."""
    examples, around = examples or {}, around or {}
    status, blamed, _ = send({})
    assert status == 200, blamed
    count, faults, left = 0, [], set(taken)

    def inside(inner, put, path, seen):
        """Walks the fields of `inner`, an object that `put` puts into a request."""
        nonlocal count
        good = sample(inner, examples)
        status, blamed, told = send(put(good))
        kind = good.get("type") if isinstance(good, dict) else None
        if told & {path, f"{path}.{kind}"}:
            # Told as a whole.
            return
        if status != 200:
            # Refused as a whole, so that nothing of it is passed over.
            if not is_of_its_kind(blamed, path):
                faults.append(f"{inner.__name__} needs an example: {path}: {blamed}")
            return
        left.discard(inner.__name__)
        for part, hint in typing.get_type_hints(inner, include_extras=True).items():
            # An object may hold what looks odd, and an array too; no field holds both.
            if not any(is_seen(send, put({**good, part: odd}), f"{path}.{part}") for odd in [ODD, ALSO_ODD]):
                faults.append(f"{path}.{part} of {inner.__name__} is passed over")
            count += 1
            for deeper, made in objects(hint):
                if deeper not in seen and deeper.__name__ not in free:
                    put_deeper = lambda one, part=part, made=made: put({**good, part: made(one)})
                    inside(deeper, put_deeper, f"{path}.{part}", seen | {deeper})

    for name, hint in typing.get_type_hints(params, include_extras=True).items():
        if only and name not in only:
            continue
        for odd in [ODD, ALSO_ODD]:
            status, blamed, told = send({name: odd})
            if name in told:
                continue
            if status != 400 or (known and (name not in blamed or "unknown" in blamed)):
                faults.append(f"{name}: {odd} is a {status}, {blamed}")
        count += 1
        for inner, made in objects(hint):
            beside = around.get(inner.__name__, lambda name, value: {name: value})
            put = lambda one, beside=beside, made=made, name=name: beside(name, made(one))
            inside(inner, put, name, {inner})
    faults += [f"{name} is taken nowhere" for name in sorted(left)]
    assert not faults, "\n".join(faults)
    return count
