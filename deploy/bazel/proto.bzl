"""C++ from protocol buffers, with Debian's protoc and gRPC plugin.

Messages and stubs are separate targets, so that a core can use a message
without linking gRPC:

    atoll_proto_library(
        name = "run_proto",
        srcs = ["atoll/v1/run.proto"],
        deps = [":google_rpc_proto"],
    )

    atoll_grpc_library(
        name = "run_service_grpc",
        srcs = ["atoll/v1/run_service.proto"],
        deps = [":run_service_proto"],
    )

A .proto file's name starts at its package's folder: imports inside //proto
read `atoll/v1/run.proto`, and C++ includes "atoll/v1/run.pb.h". An import of
another package's file is found when that package is //proto.

Generated headers are included as system headers and generated sources are
compiled without warnings.
"""

load("//deploy/bazel:cc.bzl", "cc_library")

_PROTOC = "/usr/bin/protoc"
_GRPC_PLUGIN = "/usr/bin/grpc_cpp_plugin"

def _stem(src):
    if not src.endswith(".proto"):
        fail("not a .proto file: " + src)
    return src[:-len(".proto")]

def _protos(label):
    """The label of the .proto files of an atoll_proto_library."""
    if ":" in label:
        return label + "_files"
    return label + ":" + label.split("/")[-1] + "_files"

def _path(src):
    package = native.package_name()
    return package + "/" + src if package else src

def _command(flags, srcs):
    includes = ["-I" + (native.package_name() or ".")]
    if native.package_name() != "proto":
        includes.append("$$(test -d proto && echo -Iproto)")
    return " ".join([_PROTOC] + includes + flags + [_path(s) for s in srcs])

# C's <stdlib.h> declares a function atoll, so no C++ namespace can have that
# name. In generated C++ the package `atoll` becomes the namespace `atl`. Names
# on the wire, in descriptors and of files do not change.
def _rename_namespace(outs):
    return " && sed -i " + " ".join([
        "-e 's/\\bnamespace atoll\\b/namespace atl/'",
        "-e 's/\\batoll::/atl::/g'",
    ] + ["$(RULEDIR)/" + out for out in outs])

def atoll_proto_library(name, srcs, deps = [], visibility = None, **kwargs):
    """Messages and enums of `srcs` as a cc_library.

    Args:
      name: the cc_library. `<name>_files` is a filegroup of `srcs` and of all
        that they import.
      srcs: .proto files, relative to the package.
      deps: other atoll_proto_library targets that `srcs` import. The
        well-known types (google/protobuf/*.proto) need none.
      visibility: of both.
      **kwargs: for the cc_library, e.g. testonly.
    """
    testonly = kwargs.get("testonly", False)
    sources = [_stem(s) + ".pb.cc" for s in srcs]
    headers = [_stem(s) + ".pb.h" for s in srcs]

    native.filegroup(
        name = name + "_files",
        srcs = srcs + [_protos(d) for d in deps],
        testonly = testonly,
        visibility = visibility,
    )
    native.genrule(
        name = name + "_sources",
        srcs = [":" + name + "_files"],
        outs = sources + headers,
        cmd = _command(["--cpp_out=$(RULEDIR)"], srcs) +
              _rename_namespace(sources + headers),
        message = "Generating messages of",
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        includes = ["."],
        visibility = visibility,
        deps = deps + ["@debian//:protobuf"],
        **kwargs
    )

def atoll_grpc_library(name, srcs, deps, visibility = None, **kwargs):
    """Client stubs and service bases of `srcs` as a cc_library.

    Args:
      name: the cc_library; its header is `<file>.grpc.pb.h`.
      srcs: .proto files with services, relative to the package.
      deps: the atoll_proto_library of `srcs` itself, and of what they import.
      visibility: of the cc_library.
      **kwargs: for the cc_library, e.g. testonly.
    """
    sources = [_stem(s) + ".grpc.pb.cc" for s in srcs]
    headers = [_stem(s) + ".grpc.pb.h" for s in srcs]

    native.genrule(
        name = name + "_sources",
        srcs = [_protos(d) for d in deps],
        outs = sources + headers,
        cmd = _command([
            "--plugin=protoc-gen-grpc=" + _GRPC_PLUGIN,
            "--grpc_out=$(RULEDIR)",
        ], srcs) + _rename_namespace(sources + headers),
        message = "Generating stubs of",
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        includes = ["."],
        visibility = visibility,
        deps = deps + ["@debian//:grpc++"],
        **kwargs
    )
