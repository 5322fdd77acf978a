"""Reads and changes model directories without the programs under test."""

import json
import os
import shutil
import struct


def read(directory, name="model"):
    """{name: (dtype, shape, bytes)} of NAME.safetensors, in file order."""
    with open(os.path.join(directory, name + ".safetensors"), "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in sorted(header.items(),
                              key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors


def encode(tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def copy(source, target, tensors=None):
    """Copies a model directory, with other weights and no manifest."""
    shutil.copytree(source, target)
    if tensors is not None:
        os.unlink(os.path.join(target, "manifest.json"))
        with open(os.path.join(target, "model.safetensors"), "wb") as file:
            file.write(encode(tensors))
    return target


def split(source, target):
    """Writes the same model as two files with an index, like a large one."""
    tensors = read(source)
    shutil.copytree(source, target)
    for name in ("manifest.json", "model.safetensors"):
        os.unlink(os.path.join(target, name))
    names = list(tensors)
    halves = names[:len(names) // 2], names[len(names) // 2:]
    weight_map = {}
    for index, half in enumerate(halves):
        file_name = "model-%05d-of-00002.safetensors" % (index + 1)
        with open(os.path.join(target, file_name), "wb") as file:
            file.write(encode({name: tensors[name] for name in half}))
        weight_map.update({name: file_name for name in half})
    with open(os.path.join(target, "model.safetensors.index.json"), "w",
              encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)
    return target
