"""The repository @precompiled_from: the inputs of precompiled headers.

g++ accepts a precompiled header only from the same compiler, and Bazel tracks
neither the compiler nor system headers. //:packages.txt has the versions of
their packages: when one changes, headers are precompiled again.
"""

_PACKAGES = [
    "g++-12",
    "libabsl-dev",
    "libc6-dev",
    "libgtest-dev",
    "libprotobuf-dev",
    "libstdc++-12-dev",
]

def _precompiled_from(ctx):
    versions = ctx.execute(
        ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n"] +
        _PACKAGES,
    )
    if versions.return_code != 0:
        fail("deploy/install_packages.sh was not run: " + versions.stderr)
    ctx.file("packages.txt", versions.stdout)
    ctx.file("BUILD", 'exports_files(["packages.txt"])\n')

precompiled_from = repository_rule(
    implementation = _precompiled_from,
    local = True,
)
