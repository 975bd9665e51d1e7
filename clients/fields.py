"""Walks the type definitions of a package's requests: each field is honoured or refused, and none is passed over.

A field whose value is of no type at all must be a 400. Where it is not, the server has not looked at it.
"""

import collections.abc
import json
import types
import typing
import urllib.error
import urllib.request

# Of no field's type.
ODD = {"?": [[1.5]]}
ALSO_ODD = [[1.5]]


def sender(url, base):
    """Sends requests with fields over those of `base`: the status, and what an error blames."""
    def send(more):
        body = json.dumps({**base, **more}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            told = json.load(error)["error"]
            return error.code, told.get("param") or told["message"]
    return send


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


def objects(hint):
    """The objects that a field may hold, each with what makes the field's value of one of them."""
    for choice in choices(hint):
        if is_object(choice):
            yield choice, lambda one: one
        elif typing.get_origin(choice) in (list, collections.abc.Iterable, collections.abc.Sequence):
            for inner, made in objects(typing.get_args(choice)[0]):
                yield inner, lambda one, made=made: [made(one)]


def sample(hint, depth=0):
    """A value of this type, as small as it can be."""
    for choice in choices(hint):
        if typing.get_origin(choice) is typing.Literal:
            return typing.get_args(choice)[0]
        if choice is str:
            return "a"
        if choice in (int, float):
            return 1024
        if choice is bool:
            return True
        if is_object(choice) and depth < 4:
            hints = typing.get_type_hints(choice, include_extras=True)
            return {name: sample(hints[name], depth + 1) for name in sorted(choice.__required_keys__)}
        if typing.get_origin(choice) in (list, collections.abc.Iterable, collections.abc.Sequence):
            return [sample(typing.get_args(choice)[0], depth + 1)]
        if typing.get_origin(choice) is dict or choice in (dict, object):
            return {}
    return None


def walk(params, send, known=False, hints=()):
    """How many fields of `params` are refused as they should be.

    `send` is of `sender`. The fields of `hints` may hold anything, which the server's documentation says. Where `known`
    is set, an error blames the field, so that none is unknown."""
    status, blamed = send({})
    assert status == 200, blamed
    count, passed_over = 0, []
    for name, hint in typing.get_type_hints(params, include_extras=True).items():
        for odd in [ODD, ALSO_ODD]:
            status, blamed = send({name: odd})
            if status != 400 or (known and (name not in blamed or "unknown" in blamed)):
                passed_over.append(f"{name}: {odd} is a {status}, {blamed}")
        count += 1
        for inner, made in objects(hint):
            good = sample(inner)
            if send({name: made(good)})[0] != 200:
                # Refused as a whole, so that nothing of it is passed over.
                continue
            for part in typing.get_type_hints(inner):
                if f"{name}.{part}" in hints:
                    continue
                # An object may hold what looks odd, and an array too; no field holds both.
                if all(send({name: made({**good, part: odd})})[0] != 400 for odd in [ODD, ALSO_ODD]):
                    passed_over.append(f"{name} of {inner.__name__}: {part}")
                count += 1
    assert not passed_over, passed_over
    return count
