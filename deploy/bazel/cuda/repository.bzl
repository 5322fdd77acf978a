"""The repository @cuda: a toolkit of this machine, or a stub without one.

It has defs.bzl (CUDA_FOUND, NVCC) and, where there is a toolkit, the libraries
//:cudart, //:cublas_lt and //:nccl. Of the last there is a stub alone where
NCCL is missing.
"""

_STUB = """
# No CUDA toolkit was found: what needs one is skipped.
"""

_TOOLKIT = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "cudart",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/*",
    ]),
    includes = ["include"],
    linkopts = [
        "-L{lib}",
        "-lcudart_static",
        "-lpthread",
        "-ldl",
        "-lrt",
    ],
)

cc_library(
    name = "cublas_lt",
    linkopts = [
        "-L{lib}",
        "-Wl,-rpath,$$ORIGIN:{lib}",
        "-lcublasLt",
    ],
    deps = [":cudart"],
)
"""

_NCCL = """
cc_library(
    name = "nccl",
    hdrs = glob(["nccl_include/nccl*.h"]),
    includes = ["nccl_include"],
    linkopts = [
        "-L{lib}",
        "-Wl,-rpath,$$ORIGIN:{lib}",
        "-lnccl",
    ],
    deps = [":cudart"],
)
"""

def _cuda_repository(ctx):
    found = ctx.execute([ctx.path(ctx.attr.script)])
    places = {}
    if found.return_code == 0:
        for line in found.stdout.splitlines():
            name, _, path = line.partition("=")
            places[name] = path
    build = _STUB
    has_nccl = False
    if places:
        ctx.symlink(places["include"], "include")
        build = _TOOLKIT.format(lib = places["lib"])
        has_nccl = bool(places["nccl_include"] and places["nccl_lib"])
        if has_nccl:
            ctx.symlink(places["nccl_include"], "nccl_include")
            build += _NCCL.format(lib = places["nccl_lib"])
    ctx.file("BUILD", build)
    ctx.file("defs.bzl", "CUDA_FOUND = %s\nNCCL_FOUND = %s\nNVCC = %r\n" % (
        bool(places),
        has_nccl,
        places.get("nvcc", ""),
    ))

cuda_repository = repository_rule(
    implementation = _cuda_repository,
    attrs = {"script": attr.label(default = "//deploy/bazel/cuda:find_cuda.sh")},
    environ = ["CUDA_HOME"],
    local = True,
)
