#!/usr/bin/env bash
# Prints one source that holds these test files, whose headers are then parsed
# once. Names of two files do not meet: the unnamed namespace of x_test.cc comes
# to be in the namespace x_test.
#
#   deploy/bazel/join_tests.sh FILE...
set -euo pipefail

for file in "$@"; do
  if [[ $(grep -c '^namespace {$' "$file") != 1 ||
    $(grep -c '^}  // namespace$' "$file") != 1 ]]; then
    echo "$file: a test has one unnamed namespace" >&2
    exit 1
  fi
  name=$(basename "$file" .cc)
  echo "#line 1 \"$file\""
  sed -e "s|^namespace {\$|namespace $name { namespace {|" \
    -e 's|^}  // namespace$|} }  // namespace|' "$file"
done
