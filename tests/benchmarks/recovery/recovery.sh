#!/bin/sh
# Starts a script of this folder with Debian's interpreter. Under `bazel run`
# the programs are below the working directory.
set -eu
here="$(dirname "$(readlink -f "$0")")"
if [ -z "${ATOLL_BIN:-}" ] && [ -x "$PWD/cli/atoll" ]; then
  export ATOLL_BIN="$PWD"
fi
script="$1"
shift
exec /usr/bin/python3 -B "$here/$script" "$@"
