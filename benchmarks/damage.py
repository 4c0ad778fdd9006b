"""Ways to damage a file, shared by `fuzz.py` and the tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


def damaged(data: bytes, chance: random.Random, ways: int = 5) -> bytes:
    """The bytes of a file: cut, replaced, with a gap, with other bytes in some places, or with a part repeated.

    Arguments:
        data: The file.
        chance: The source of randomness.
        ways: How many of these ways are taken; 4 leaves out the last, which makes files longer.
    """
    made, way = bytearray(data), chance.randrange(ways)
    if way == 0 or not made:
        return bytes(made[: chance.randrange(len(made) + 1)])
    if way == 1:
        return chance.randbytes(chance.randrange(200))
    at = chance.randrange(len(made))
    if way == 2:
        return bytes(made[:at] + made[at + chance.randrange(1, 9) :])
    if way == 4:
        return bytes(made[:at] + made[at : at + 64] * chance.randrange(2, 40) + made[at:])
    for _ in range(chance.choice([1, 4, 20])):
        made[chance.randrange(len(made))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
    return bytes(made)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree of JSON."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))
