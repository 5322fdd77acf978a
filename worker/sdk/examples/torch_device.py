"""The command line of the examples in PyTorch: arguments, and --device."""
import argparse
import os
import sys

import torch


def parse(usage, hides_others=False):
    """The arguments as a list, and the torch.device that --device names.

    "cuda" is the first card, or with torchrun the one of this rank's number.
    Without such a device the program ends here, with one line.

    hides_others: for a library that takes all cards it sees. It then sees one,
    named "cuda", if it is imported after this call.
    """
    parser = argparse.ArgumentParser(
        description=usage, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("arguments", nargs="+")
    parser.add_argument("--device", default="cpu", metavar="cpu|cuda|cuda:N")
    parsed = parser.parse_intermixed_args()
    try:
        return parsed.arguments, _open(parsed.device, hides_others)
    except (AssertionError, RuntimeError) as error:
        sys.exit("%s: cannot use --device %s: %s. Give --device cpu or the "
                 "number of a card; PyTorch finds %d here." % (
                     parser.prog, parsed.device,
                     str(error).split("\n", 1)[0].rstrip("."),
                     torch.cuda.device_count()))


def _open(name, hides_others):
    device = torch.device(name)
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise RuntimeError("it is none of cpu, cuda, cuda:N")
    index = device.index
    if index is None:
        index = int(os.environ.get("LOCAL_RANK", 0))
    elif int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > 1:
        raise RuntimeError("each rank needs a card of its own: give cuda")
    if hides_others:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = str(index) if seen is None else (
            ",".join(seen.split(",")[index:index + 1]))
        index = 0
    device = torch.device("cuda", index)
    torch.empty(1, device=device)  # Starts CUDA, which may fail.
    torch.cuda.set_device(device)
    return device
