"""C++ of ours: the native rules, beginning with a precompiled header.

A target with flags of its own, but for warnings, has none: g++ takes a
precompiled header only with the flags that it was made with, and here says so
as an error. Nothing else differs, so a package that loads none of this builds
too, only slower.
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

def cc_library(**kwargs):
    native.cc_library(**_begins_with("library", kwargs))

def cc_binary(**kwargs):
    native.cc_binary(**_begins_with("library", kwargs))

def cc_test(**kwargs):
    native.cc_test(**_begins_with("test", kwargs))
