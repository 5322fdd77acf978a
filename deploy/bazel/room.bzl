"""A folder's C++ targets, made from its files.

    load("//deploy/bazel:room.bzl", "cc_room")

    cc_room(
        visibility = ["//:server_shell"],
        no_tsan = ["push_test"],
        options = {"writer": {"linkopts": ["-ldl"]}},
    )

x.h and x.cc are the library x, or, with `apart`, a part of the folder's library;
the option `binary` makes x.cc a program. All x_test.cc of the folder are one
program, the test `tests`; those that a sanitizer must leave out are another. Up
to ten files of a library or of tests are compiled as one source, since what they
include takes more time than they do (join.sh). Each file depends on what it
includes: units.bzl says it, and deploy/bazel/make_units.py writes units.bzl. A
target that needs more than this stands in the BUILD file by itself, as a rule of
cc.bzl.
"""

load("//deploy/bazel:cc.bzl", "cc_binary", "cc_library", "cc_test", "cc_test_object")
load("//deploy/bazel:units.bzl", "UNITS")

_JOINED_MAX = 10

def _join(name, files, option = ""):
    """Returns {source: its files}: `files`, a few in one source."""
    sources = {}
    count = (len(files) + _JOINED_MAX - 1) // _JOINED_MAX
    for i in range(count):
        source = "%s_%d" % (name, i)
        end = len(files) * (i + 1) // count
        sources[source] = files[len(files) * i // count:end]
        native.genrule(
            name = source + "_cc",
            srcs = sources[source],
            outs = [source + ".cc"],
            cmd = "$(location //deploy/bazel:join.sh) %s $(SRCS) >$@" % option,
            tools = ["//deploy/bazel:join.sh"],
        )
    return sources

def _objects(name, tests, optimized):
    """Compiles `tests`, from names to dependencies, a few in one source.

    Returns the objects' labels, called after `name`.
    """
    objects = []
    files = [test + ".cc" for test in sorted(tests)]
    for source, joined in _join(name, files, "--tests").items():
        deps = {d: None for file in joined for d in tests[file[:-len(".cc")]]}
        cc_test_object(name = source, deps = deps.keys(), optimized = optimized)
        objects.append(":" + source)
    return objects

def cc_room(
        visibility = None,
        parts = {},
        apart = None,
        no_tsan = [],
        no_asan = [],
        optimized = [],
        data = None,
        options = {}):
    """Makes the folder's libraries and tests.

    Args:
      visibility: of the libraries.
      parts: from a library's name to its files besides NAME.h and NAME.cc.
      apart: the libraries that stay by themselves, besides `parts`. All other
        files of the folder are one library, which has the folder's name. None:
        there is no such library.
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
    taken = [file for own in parts.values() for file in own]
    # style-ok(build): units.bzl names them.
    files = native.glob(["*.cc", "*.h"], exclude = taken + ["*_test.cc", "*_fuzzer.cc"])
    if apart != None:
        folder = native.package_name().rpartition("/")[2]
        others = [f for f in files if f.rpartition(".")[0] not in units]
        parts = dict(parts, **{folder: others})
    sources = {}
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
            srcs = [f for f in own if f.endswith(".cc")]
            if len(srcs) > 1:
                srcs = [source + ".cc" for source in _join(name, srcs)]
            cc_library(
                name = name,
                srcs = srcs,
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
            key = (tuple(tags), name in optimized)
            sources.setdefault(key, {})[name] = deps
    programs = {}
    for (tags, fast), tests in sources.items():
        name = "_".join(("tests",) + tags)
        programs.setdefault(name, ([], tags))[0].extend(_objects(
            name + ("_optimized" if fast else ""),
            tests,
            fast,
        ))
    for name, (objects, tags) in programs.items():
        native.cc_test(
            name = name,
            # Not one test's time but a folder's.
            size = "medium",
            data = data,
            tags = tags,
            deps = objects + ["@debian//:gtest_main"],
        )
