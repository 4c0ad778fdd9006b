"""Named random streams: each purpose has its own, so that adding one changes no other."""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, *purpose: object) -> torch.Generator:
    """A generator for one named purpose, set by the seed and the names, on the device where tensors are created.

    Example:
        >>> torch.rand(1, generator=stream(0, "data")).item() == torch.rand(1, generator=stream(0, "data")).item()
        True
        >>> torch.rand(1, generator=stream(0, "data")).item() == torch.rand(1, generator=stream(0, "fit")).item()
        False
    """
    # Not hash(): Python salts it, and the same seed would give other data in the next process.
    text = "/".join(str(part) for part in (seed, *purpose))
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator(torch.get_default_device()).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
