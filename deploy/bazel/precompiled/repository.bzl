"""The repository @precompiled_from: what a precompiled header was made of.

g++ takes one only from the very compiler that made it, and Bazel sees neither
the compiler nor the headers of the system. //:packages.txt has the versions of
the packages that both are in: with another one headers are precompiled anew.
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
