"""Compiles CUDA: cuda_library, and helpers for targets that need CUDA."""

load("@cuda//:defs.bzl", "CUDA_FOUND", "CUDNN_FOUND", "NCCL_FOUND", "NVCC")

_NO_CUDA = ["//deploy/bazel/cuda:needs_nvcc_and_config_cuda"]

def _is_missing(nccl, cudnn):
    return not CUDA_FOUND or (nccl and not NCCL_FOUND) or (cudnn and not CUDNN_FOUND)

def needs_cuda(nccl = False, cudnn = False):
    """For `target_compatible_with`: requires --config=cuda and nvcc."""
    if _is_missing(nccl, cudnn):
        return _NO_CUDA
    return select({
        "//deploy/bazel/cuda:enabled": [],
        "//conditions:default": _NO_CUDA,
    })

def with_cuda(deps, otherwise, nccl = False, cudnn = False):
    """For `deps` of a target that exists in every build.

    Args:
      deps: used with --config=cuda and nvcc.
      otherwise: used without.
      nccl: whether `deps` need NCCL too.
      cudnn: whether `deps` need cuDNN too.

    Returns:
      `deps` or `otherwise`.
    """
    if _is_missing(nccl, cudnn):
        return otherwise
    return select({
        "//deploy/bazel/cuda:enabled": deps,
        "//conditions:default": otherwise,
    })

# Machine code for A100, H100 and H200; PTX for newer GPUs.
_GENCODE = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_90,code=compute_90",
]

# As on the CPU, only written-out FMAs are used, and no fast maths. Warnings of
# the host compiler are errors, except about line markers in nvcc's output.
_FLAGS = [
    "-std=c++20",
    "-O3",
    "--fmad=false",
    "--expt-relaxed-constexpr",
    "-Werror=all-warnings",
    "-Xcompiler=-Wall,-Wextra,-Werror,-Wno-unused-parameter",
    "-Xcompiler=-Wno-missing-field-initializers,-Wno-sign-compare",
    "-Xcompiler=-ffp-contract=off,-fno-strict-aliasing",
]

def _cuda_objects(ctx):
    headers = []
    quote = {}
    system = {}
    for dep in ctx.attr.deps:
        context = dep[CcInfo].compilation_context
        headers.append(context.headers)
        for path in context.quote_includes.to_list():
            quote[path] = True
        for path in context.system_includes.to_list() + context.includes.to_list():
            system[path] = True
    objects = []
    for source in ctx.files.srcs:
        out = ctx.actions.declare_file(source.basename[:-len(".cu")] + ".cu.o")
        arguments = ctx.actions.args()
        arguments.add_all(_GENCODE + _FLAGS)
        arguments.add("-I.")
        arguments.add_all([p for p in quote if p != "."], format_each = "-I%s")
        arguments.add_all(system.keys(), format_each = "-isystem=%s")
        arguments.add("-c", source)
        arguments.add("-o", out)
        ctx.actions.run(
            executable = NVCC,
            arguments = [arguments],
            inputs = depset([source] + ctx.files.hdrs, transitive = headers),
            outputs = [out],
            env = {"PATH": "/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling for CUDA " + source.short_path,
        )
        objects.append(out)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects_rule = rule(
    implementation = _cuda_objects,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library of .cu files, which nvcc compiles.

    Args:
      name: of the library.
      srcs: .cu files.
      hdrs: as a cc_library's; headers that C++ includes must not need nvcc.
      deps: as a cc_library's.
      **kwargs: visibility, testonly.
    """
    _cuda_objects_rule(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + ["@cuda//:cudart"] if CUDA_FOUND else [],
        target_compatible_with = needs_cuda(),
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [name + "_objects"],
        hdrs = hdrs,
        linkstatic = True,
        target_compatible_with = needs_cuda(),
        deps = deps + (["@cuda//:cudart"] if CUDA_FOUND else []),
        **kwargs
    )

# Our functions that forward to a library, which is opened at run time.
_FORWARDING = {
    "cublas_lt": "//worker/engine/ops/cuda:cublas_lt",
    "nccl": "//worker/collective/nccl:nccl_library",
}

def cuda_toolkit(*libraries):
    """Labels of `libraries`: "cublas_lt", "nccl", or one in @cuda.

    Empty without a toolkit."""
    if not CUDA_FOUND:
        return []
    missing = ([] if NCCL_FOUND else ["nccl"]) + ([] if CUDNN_FOUND else ["cudnn"])
    return [
        _FORWARDING.get(library, "@cuda//:" + library)
        for library in libraries
        if library.replace("_headers", "") not in missing
    ]

def emulated_kernels(name, srcs, hdrs = [], deps = [], **kwargs):
    """Compiles .cu files for the host, where launched kernels then run.

    Args:
      name: of the library, which is testonly.
      srcs: .cu files.
      hdrs: as a cc_library's.
      deps: as a cc_library's.
      **kwargs: visibility.
    """
    copies = []
    for source in srcs:
        copy = source[:-len(".cu")] + "_emulated.cc"
        native.genrule(
            name = copy + "_copy",
            testonly = True,
            srcs = [source],
            outs = [copy],
            cmd = "cp $< $@",
        )
        copies.append(copy)
    native.cc_library(
        name = name,
        testonly = True,
        srcs = copies,
        hdrs = hdrs,
        copts = ["-Wno-unknown-pragmas"],
        deps = deps,
        **kwargs
    )
