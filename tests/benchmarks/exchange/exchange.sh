#!/bin/sh
# Starts exchange.py with Debian's interpreter. Under `bazel run` the programs
# are below the working directory.
set -eu
here="$(dirname "$(readlink -f "$0")")"
if [ -z "${ATOLL_BIN:-}" ] && [ -x "$PWD/cli/atoll" ]; then
  export ATOLL_BIN="$PWD"
fi
exec /usr/bin/python3 -B "$here/exchange.py" "$@"
