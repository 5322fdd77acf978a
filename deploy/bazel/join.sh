#!/usr/bin/env bash
# Prints one source that holds these files, whose headers are then parsed once.
# With --tests names of two files cannot clash: the unnamed namespace of x_test.cc
# comes to be in the namespace x_test. Files of a library share one.
#
#   deploy/bazel/join.sh [--tests] FILE...
set -euo pipefail

tests=
[[ $1 != --tests ]] || { tests=1; shift; }
for file in "$@"; do
  if [[ $tests && ($(grep -c '^namespace {$' "$file") != 1 ||
    $(grep -c '^}  // namespace$' "$file") != 1) ]]; then
    echo "$file: a test has one unnamed namespace" >&2
    exit 1
  fi
  echo "#line 1 \"$file\""
  if [[ $tests ]]; then
    name=$(basename "$file" .cc)
    sed -e "s|^namespace {\$|namespace $name { namespace {|" \
      -e 's|^}  // namespace$|} }  // namespace|' "$file"
  else
    cat "$file"
  fi
done
