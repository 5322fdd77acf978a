"""The repository @cuda: this machine's toolkit, or a stub without one.

It has defs.bzl (CUDA_FOUND, NCCL_FOUND, CUDNN_FOUND, NVCC). With a toolkit it
also has the library //:cudart and the headers //:cublas_lt_headers and, if
found, //:nccl_headers and //:cudnn_headers. Programs link none of these three
libraries: they open them at run time, also from this machine's toolkit.
"""

_STUB = """
# No CUDA toolkit was found: targets that need one are skipped.
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
    name = "cublas_lt_headers",
    linkopts = ["-Wl,-rpath,{lib}"],
    deps = [":cudart"],
)
"""

_NCCL = """
cc_library(
    name = "nccl_headers",
    hdrs = glob(["nccl_include/nccl*.h"]),
    includes = ["nccl_include"],
    linkopts = ["-Wl,-rpath,{lib}"],
    deps = [":cudart"],
)
"""

_CUDNN = """
cc_library(
    name = "cudnn_headers",
    hdrs = glob(["cudnn_include/cudnn*.h"]),
    includes = ["cudnn_include"],
    linkopts = ["-Wl,-rpath,{lib}"],
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
    has_cudnn = False
    if places:
        ctx.symlink(places["include"], "include")
        build = _TOOLKIT.format(lib = places["lib"])
        has_nccl = bool(places["nccl_include"] and places["nccl_lib"])
        if has_nccl:
            ctx.symlink(places["nccl_include"], "nccl_include")
            build += _NCCL.format(lib = places["nccl_lib"])
        has_cudnn = bool(places["cudnn_include"] and places["cudnn_lib"])
        if has_cudnn:
            ctx.symlink(places["cudnn_include"], "cudnn_include")
            build += _CUDNN.format(lib = places["cudnn_lib"])
    ctx.file("BUILD", build)
    ctx.file("defs.bzl", "\n".join([
        "CUDA_FOUND = %s" % bool(places),
        "NCCL_FOUND = %s" % has_nccl,
        "CUDNN_FOUND = %s" % has_cudnn,
        "NVCC = %r\n" % places.get("nvcc", ""),
    ]))

cuda_repository = repository_rule(
    implementation = _cuda_repository,
    attrs = {"script": attr.label(default = "//deploy/bazel/cuda:find_cuda.sh")},
    environ = ["CUDA_HOME"],
    local = True,
)
