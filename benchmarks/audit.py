"""The audit on networks with planted defects and on clean ones.

python benchmarks/audit.py          # 50 and 50; the seeds are those that nothing was chosen on
python benchmarks/audit.py --nets 20
"""

import argparse
from collections import Counter, OrderedDict

import torch
from torch import nn

import atlasd as ad
from atlasd.nn import GroupActivation, GroupBatchNorm2d, GroupConv2d
from atlasd.runtime.random import stream

GROUPS = (ad.known.cyclic(4), ad.known.dihedral(4))


class Half(nn.Module):
    """A layer in half precision: rounding depends on the order of sums."""

    def __init__(self, layer, kind):
        super().__init__()
        self.inner = layer.export().to(kind)

    def forward(self, x):
        return self.inner(x.to(self.inner.weight.dtype)).float()


class Position(nn.Module):
    """Adds the row to all channels by a convolution of one pixel."""

    def __init__(self, channels):
        super().__init__()
        self.inner = nn.Conv2d(channels + 1, channels, 1)

    def forward(self, x):
        rows = torch.linspace(-1, 1, x.shape[2]).reshape(1, 1, -1, 1).expand(len(x), 1, *x.shape[2:])
        return self.inner(torch.cat([x, rows], 1))


def clean(seed, group):
    """Two to four layers on regular fields, with batch norm, averaged over places or not."""
    generator = stream(seed, "clean")
    depth = int(torch.randint(2, 5, (1,), generator=generator))
    width = group.components * int(torch.randint(1, 3, (1,), generator=generator))
    parts = OrderedDict()
    field = {"group": group, "field_type": "regular"}
    for k in range(depth):
        types = {"in_type": "trivial" if k == 0 else "regular", "out_type": "regular"}
        parts[f"conv{k}"] = GroupConv2d(
            1 if k == 0 else width, width, 3, group=group, padding=1, generator=generator, **types
        )
        parts[f"norm{k}"] = GroupBatchNorm2d(width, **field)
        parts[f"act{k}"] = GroupActivation(width, **field)
    parts["last"] = GroupConv2d(width, 3, 3, group=group, padding=1, in_type="regular", generator=generator)
    if seed % 2:
        parts["pool"] = nn.AdaptiveAvgPool2d(1)
        parts["flat"] = nn.Flatten()
    return parts, depth, width


def planted(seed, group, defect):
    """A clean network with one defect, and the names that a finding of it may have."""
    parts, depth, width = clean(seed, group)
    torch.manual_seed(seed)
    k = int(torch.randint(depth, (1,), generator=stream(seed, "place")))
    ends = (1 if k == 0 else width, width)
    if defect == "augmentation":
        return augmented(seed, group)
    if defect == "broken layer":
        parts[f"conv{k}"] = nn.Conv2d(*ends, 3, padding=1)
        return nn.Sequential(parts), {f"conv{k}"}
    if defect == "stride":
        types = {"in_type": "trivial" if k == 0 else "regular", "out_type": "regular"}
        parts[f"conv{k}"] = GroupConv2d(*ends, 3, group=group, padding=1, stride=2, **types)
        return nn.Sequential(parts), {f"conv{k}"}
    if defect == "half precision":
        parts[f"conv{k}"] = Half(parts[f"conv{k}"], torch.bfloat16 if seed % 4 > 1 else torch.float16)
        return nn.Sequential(parts), {f"conv{k}.inner"}
    inserted = {
        "padding": (nn.ZeroPad2d((1, 0, 0, 1)), nn.AvgPool2d(2, 1)),
        "position": (Position(width),),
    }[defect]
    parts[f"act{k}"] = nn.Sequential(parts[f"act{k}"], *inserted)
    names = {"padding": {f"act{k}.1", f"act{k}.2"}}.get(defect, {f"act{k}.1.inner"})
    return nn.Sequential(parts), names


def augmented(seed, group):
    """A plain network that saw rotated fields in training: nearly symmetric at best."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        OrderedDict(conv0=nn.Conv2d(1, 8, 3, padding=1), act0=nn.ReLU(), last=nn.Conv2d(8, 3, 3, padding=1))
    )
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    generator = stream(seed, "augmented")
    for _ in range(60):
        x = torch.randn(8, 1, 12, 12, generator=generator)
        x = x.rot90(int(torch.randint(4, (1,), generator=generator)), dims=(2, 3))
        blurred = nn.functional.avg_pool2d(x, 3, 1, 1)
        optimiser.zero_grad()
        (net(x) - torch.cat([blurred, blurred.relu(), x * blurred], 1)).square().mean().backward()
        optimiser.step()
    return net, {"conv0"}


def ready(net, seed):
    """With batch norm that has seen data, in evaluation mode."""
    with torch.no_grad():
        for s in range(3):
            net(torch.randn(8, 1, 12, 12, generator=stream(seed, "seen", s)))
    return net.eval()


def main(count, first):
    defects = ("padding", "stride", "position", "half precision", "augmentation", "broken layer")
    found, named, words = Counter(), Counter(), Counter()
    false = undecided = 0
    total = Counter()
    for i in range(count):
        seed, defect, group = first + i, defects[i % len(defects)], GROUPS[i % 2]
        x = torch.randn(16, 1, 12, 12, generator=stream(seed, "inputs"))
        net, names = planted(seed, group, defect)
        result = ad.audit(ready(net, seed), x, group)
        total[defect] += 1
        # Rounding alone may stay below the tolerance: then a note has to say so, with the layer.
        half = [note for note in result.notes if note.startswith("half precision")]
        found[defect] += result.broken or bool(half)
        right = result.culprit is not None and result.culprit.name in names
        right = right or any(f"layer {name} " in note for note in half for name in names)
        named[defect] += right
        if result.culprit is not None:
            words[(defect, result.culprit.cause.split(":")[0] or "no cause")] += 1
        parts, _, _ = clean(1000 + seed, group)
        control = ad.audit(ready(nn.Sequential(parts), 1000 + seed), x, group)
        false += control.broken
        undecided += not control.broken and not control.symmetric
    for defect in defects:
        causes = ", ".join(f"{w} {n}" for (d, w), n in words.items() if d == defect)
        print(f"  {defect:15} {found[defect]} of {total[defect]} found, {named[defect]} with the layer; {causes}")
    print(f"planted: {found.total()} of {count} found, {named.total()} with the layer")
    print(f"clean: {false} of {count} false alarms, {undecided} undecided (constant outputs)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    main(given.nets, given.first)
