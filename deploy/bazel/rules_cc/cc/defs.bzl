"""Exports Bazel's native C++ rules under the names of rules_cc.

Debian's Bazel 4.2.3 has the C++ rules built in, and its rules_cc package is
too new for it. Repositories that load `@rules_cc//cc:defs.bzl` find this.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
objc_library = native.objc_library
