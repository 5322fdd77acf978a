"""A precompiled header, made with the flags that every C++ file gets.

`copts` are those of its users, in addition.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # The name is unique, so that g++ finds this header next to its .gch file.
    header = ctx.actions.declare_file(ctx.label.name + ".pch.h")
    ctx.actions.write(header, '#include "%s"\n' % ctx.file.header.short_path)
    precompiled = ctx.actions.declare_file(header.basename + ".gch")
    inputs = depset([header, ctx.file.header], transitive = [
        dep[CcInfo].compilation_context.headers
        for dep in ctx.attr.deps
    ])

    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = precompiled.path,
        quote_include_directories = depset([".", ctx.bin_dir.path]),
        user_compile_flags = ctx.fragments.cpp.copts +
                             ctx.fragments.cpp.cxxopts +
                             ctx.attr.copts + ["-x", "c++-header"],
    )
    action = "c++-compile"
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = action,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        inputs = depset(
            [ctx.file._packages],
            transitive = [inputs, toolchain.all_files],
        ),
        outputs = [precompiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling " + ctx.file.header.short_path,
    )
    return [
        DefaultInfo(files = depset([precompiled])),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([precompiled], transitive = [inputs]),
        )),
    ]

precompiled_header = rule(
    implementation = _precompiled_header,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "_packages": attr.label(
            allow_single_file = True,
            default = "@precompiled_from//:packages.txt",
        ),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
