#!/bin/sh
# Starts a Python test under Bazel with Debian's interpreter, which has grpcio.
# The first argument is the script's path in the runfiles; the rest select
# cases.
set -eu
script="$1"
shift
exec /usr/bin/python3 -B "$script" "$@"
