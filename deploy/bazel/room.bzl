"""A folder's C++ targets, made from its files.

    load("//deploy/bazel:room.bzl", "cc_room")

    cc_room(
        visibility = ["//:server_shell"],
        no_tsan = ["push_test"],
        options = {"writer": {"linkopts": ["-ldl"]}},
    )

x.h and x.cc are the library x; the option `binary` makes x.cc a program. All
x_test.cc of the folder are one program, the test `tests`; those that a sanitizer
must leave out are another. Each file depends on what it includes: units.bzl says
it, and deploy/bazel/make_units.py writes units.bzl. A target that needs more than
this stands in the BUILD file by itself, as a rule of cc.bzl.
"""

load("//deploy/bazel:cc.bzl", "cc_binary", "cc_library", "cc_test", "cc_test_object")
load("//deploy/bazel:units.bzl", "UNITS")

def cc_room(
        visibility = None,
        parts = {},
        no_tsan = [],
        no_asan = [],
        optimized = [],
        data = None,
        options = {}):
    """Makes the folder's libraries and tests.

    Args:
      visibility: of the libraries.
      parts: from a library's name to its files besides NAME.h and NAME.cc.
      no_tsan: tests that ThreadSanitizer reports falsely (.bazelrc).
      no_asan: the same for AddressSanitizer.
      optimized: tests whose own code computes for long.
      data: files that tests read.
      options: from a target's name to further attributes. `deps` are added to
        the includes: what a target links and does not include. A test with
        others is a program of its own. `binary`: NAME.cc is the program of
        that name.
    """
    units = UNITS[native.package_name()]
    for name in no_tsan + no_asan + optimized + options.keys():
        if name not in units:
            fail("cc_room: %s is no target of units.bzl" % name)
    # style-ok(build): units.bzl names them.
    files = native.glob(["*.cc", "*.h"])
    programs = {}
    for name, includes in units.items():
        more = dict(options.get(name, {}))
        deps = [d for d in includes.split(" ") if d] + more.pop("deps", [])
        binary = more.pop("binary", None)
        if binary:
            cc_binary(name = binary, srcs = [name + ".cc"], deps = deps, **more)
            continue
        if not name.endswith("_test"):
            own = [f for f in [name + ".cc", name + ".h"] if f in files]
            own += parts.get(name, [])
            cc_library(
                name = name,
                srcs = [f for f in own if f.endswith(".cc")],
                hdrs = [f for f in own if f.endswith(".h")],
                deps = deps,
                precompiled = "json" if "@debian//:nlohmann_json" in deps else "library",
                visibility = more.pop("visibility", visibility),
                **more
            )
            continue
        tags = ["no_tsan"] if name in no_tsan else []
        tags += ["no_asan"] if name in no_asan else []
        if more:
            cc_test(name = name, deps = deps, tags = tags, **more)
        else:
            cc_test_object(
                name = name,
                deps = deps,
                optimized = name in optimized,
            )
            programs.setdefault(tuple(tags), []).append(":" + name)
    for tags, objects in programs.items():
        native.cc_test(
            name = "_".join(("tests",) + tags),
            # Not one test's time but a folder's.
            size = "medium",
            data = data,
            tags = tags,
            deps = objects + ["@debian//:gtest_main"],
        )
