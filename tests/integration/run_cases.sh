#!/bin/sh
# Starts a Python test under Bazel with Debian's interpreter, which has grpcio.
# The first argument is the script's path in the runfiles; the rest select
# cases. The test's files are in memory where that is permitted: on a disk its
# syncs take longer than its rounds. The kernel frees them with the test.
set -eu
set -- /usr/bin/python3 -B "$@"
if [ -n "${TEST_TMPDIR:-}" ] &&
    unshare --mount mount -t tmpfs tmpfs "$TEST_TMPDIR" 2>/dev/null; then
  set -- unshare --mount sh -c \
    'mount -t tmpfs -o mode=755 tmpfs "$TEST_TMPDIR" && exec "$@"' sh "$@"
fi
exec "$@"
