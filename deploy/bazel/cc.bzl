"""Atoll's C++ rules: the native rules, with defaults that follow from the name.

The sources of a library `x` are x.cc and x.h, if they exist, unless `srcs` or
`hdrs` are given. A cc_test is small by default. Every target gets Abseil; a test
gets GoogleTest with its main, unless it names a `@gtest` label. room.bzl makes
most targets.

Each target uses a precompiled header. A target with its own flags, except
warnings, does not: g++ accepts a precompiled header only with the flags that it
was made with, and a mismatch is an error here.
"""

_ROOM = "//deploy/bazel/precompiled:"

def _warns_only(flag):
    return flag == "-w" or flag.startswith("-W")

def _begins_with(name, kwargs):
    """Returns `kwargs` with Abseil and the precompiled header `name` added."""
    out = dict(kwargs)
    out["deps"] = kwargs.get("deps", []) + ["@absl"]
    copts = kwargs.get("copts", [])
    if not kwargs.get("srcs") or [f for f in copts if not _warns_only(f)]:
        return out
    out["deps"] += select({
        _ROOM + "off": [],
        "//conditions:default": [_ROOM + name],
    })
    out["copts"] = copts + select({
        _ROOM + "off": [],
        "//conditions:default": [
            "-include",
            "deploy/bazel/precompiled/%s.pch.h" % name,
            "-Winvalid-pch",
        ],
    })
    return out

def _with_sources(kwargs):
    """Returns `kwargs` with `srcs` and `hdrs` that follow from the name."""
    out = dict(kwargs)
    for attribute, ending in [("srcs", ".cc"), ("hdrs", ".h")]:
        if attribute not in kwargs:
            # style-ok(build): matches one name, which may not exist.
            out[attribute] = native.glob([kwargs["name"] + ending])
    return out

def cc_library(**kwargs):
    native.cc_library(**_begins_with("library", _with_sources(kwargs)))

def cc_binary(**kwargs):
    native.cc_binary(**_begins_with("library", kwargs))

def cc_test(**kwargs):
    out = dict(kwargs)
    out.setdefault("srcs", [kwargs["name"] + ".cc"])
    out.setdefault("size", "small")
    if not [d for d in out.get("deps", []) if d.startswith("@gtest")]:
        out["deps"] = out.get("deps", []) + ["@gtest//:gtest_main"]
    native.cc_test(**_begins_with("test", out))
