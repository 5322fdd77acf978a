"""Atoll's C++ rules: the native rules, with defaults that follow from the name.

The sources of a library `x` are x.cc and x.h, if they exist, unless `srcs` or
`hdrs` are given. A cc_test is small by default. Every target gets Abseil; a test
gets GoogleTest with its main, unless it names a `gtest` label. room.bzl makes
most targets.

Each target uses a precompiled header: `precompiled` names that of a library, if
it is another than "library". A target with its own flags, except
warnings, does not: g++ accepts a precompiled header only with the flags that it
was made with, and a mismatch is an error here.

A test's own code is compiled with -O0: it is compiled more often than it has
anything to compute. What it tests is as fast as ever, and floating-point results
do not depend on it. A test with much to compute is `optimized`.
"""

_ROOM = "//deploy/bazel/precompiled:"

def _warns_only(flag):
    return flag == "-w" or flag.startswith("-W")

def _begins_with(name, kwargs, flags = []):
    """Returns `kwargs` with Abseil and the precompiled header `name` added.

    `flags` are those that the header is compiled with too.
    """
    out = dict(kwargs)
    out["deps"] = kwargs.get("deps", []) + ["@debian//:absl"]
    copts = kwargs.get("copts", [])
    out["copts"] = flags + copts
    if not kwargs.get("srcs") or [f for f in copts if not _warns_only(f)]:
        return out
    out["deps"] += select({
        _ROOM + "off": [],
        "//conditions:default": [_ROOM + name],
    })
    out["copts"] += select({
        _ROOM + "off": [],
        "//conditions:default": [
            "-include",
            "deploy/bazel/precompiled/%s.pch.h" % name,
            "-Winvalid-pch",
        ],
    })
    return out

def _library(kwargs):
    out = dict(kwargs)
    return _begins_with(out.pop("precompiled", "library"), out)

def _test(kwargs):
    out = dict(kwargs)
    out.setdefault("srcs", [kwargs["name"] + ".cc"])
    if out.pop("optimized", False):
        return _library(out)
    return _begins_with("test", out, ["-O0"])

def cc_library(**kwargs):
    out = dict(kwargs)
    for attribute, ending in [("srcs", ".cc"), ("hdrs", ".h")]:
        if attribute not in kwargs:
            # style-ok(build): matches one name, which may not exist.
            out[attribute] = native.glob([kwargs["name"] + ending])
    native.cc_library(**_library(out))

def cc_binary(**kwargs):
    native.cc_binary(**_library(kwargs))

def cc_test(**kwargs):
    out = _test(kwargs)
    out.setdefault("size", "small")
    if not [d for d in kwargs.get("deps", []) if d.startswith("@debian//:gtest")]:
        out["deps"] += ["@debian//:gtest_main"]
    native.cc_test(**out)

def cc_test_object(**kwargs):
    """A file of tests, for a cc_test of several."""
    out = _test(kwargs)
    out["deps"] += ["@debian//:gtest"]
    native.cc_library(testonly = True, alwayslink = True, **out)
