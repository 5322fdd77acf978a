"""C++ of ours: the native rules, with what a name already says left out.

A library `x` is x.cc and x.h, whichever is there, unless `srcs` or `hdrs` say
otherwise; `test_deps`, also an empty list, adds its test, x_test.cc, which sees
what the library sees and these. A test of its own is a cc_test; it is small
unless it says otherwise.

Each begins with a precompiled header. A target with flags of its own, but for
warnings, has none: g++ takes a precompiled header only with the flags that it
was made with, and here says so as an error.
"""

_ROOM = "//deploy/bazel/precompiled:"

def _warns_only(flag):
    return flag == "-w" or flag.startswith("-W")

def _begins_with(name, kwargs):
    """`kwargs` of a native rule, for sources that begin with header `name`."""
    copts = kwargs.get("copts", [])
    if not kwargs.get("srcs") or [f for f in copts if not _warns_only(f)]:
        return kwargs
    out = dict(kwargs)
    out["deps"] = kwargs.get("deps", []) + select({
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
    """`kwargs` of a library, with the files of its name."""
    out = dict(kwargs)
    for attribute, ending in [("srcs", ".cc"), ("hdrs", ".h")]:
        if attribute not in kwargs:
            # style-ok(build): one name, there or not.
            out[attribute] = native.glob([kwargs["name"] + ending])
    return out

def cc_library(test_deps = None, test_tags = [], **kwargs):
    native.cc_library(**_begins_with("library", _with_sources(kwargs)))
    if test_deps != None:
        cc_test(
            name = kwargs["name"] + "_test",
            tags = test_tags,
            deps = [":" + kwargs["name"], "@gtest//:gtest_main"] +
                   kwargs.get("deps", []) + test_deps,
        )

def cc_binary(**kwargs):
    native.cc_binary(**_begins_with("library", kwargs))

def cc_test(**kwargs):
    out = dict(kwargs)
    out.setdefault("srcs", [kwargs["name"] + ".cc"])
    out.setdefault("size", "small")
    native.cc_test(**_begins_with("test", out))
