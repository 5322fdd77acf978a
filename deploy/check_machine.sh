#!/usr/bin/env bash
# Says in one line each what is wrong with this machine, before a build. Fails
# only if the build, or all that it makes, cannot work here.
#
#   deploy/check_machine.sh [LIST...]     lists of install_packages.sh
#
# ATOLL_MACHINE_ROOT replaces / as the directory of etc, proc and sys (tests).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/bazel/machine.sh"
root=${ATOLL_MACHINE_ROOT:-}
failed=0
say() { echo "This machine: $*" >&2; }

system=$(. "$root/etc/os-release" 2>/dev/null; echo "${ID:-} ${VERSION_ID:-}")
[[ $system == "debian 12" ]] ||
  say "it runs '$system'; the packages and versions are those of Debian 12"

# GiB, rounded up. Measured for the quickstart: 1.5 of packages, 0.2 each of
# outputs and disk cache; for everything 1.3 each.
need=3
[[ $# -gt 0 && " $* " != *" test "* ]] || need=6
for folder in "${HOME:-/}" /var/tmp; do
  free=$(($(df -Pk "$folder" | awk 'END { print $4 }') / 1048576))
  ((free >= need)) ||
    say "$folder has $free GiB of free disk; a build from nothing takes $need"
done

free=$(($(free_memory_kib "$root") / 1048576))
((free >= 3)) || say "$free GiB of memory are free; Bazel takes up to 2," \
  "a compiler 1"

for feature in avx2 fma; do
  if ! grep -qw "$feature" "$root/proc/cpuinfo"; then
    say "the processor has no ${feature^^}: the programs cannot run"
    failed=1
  fi
done

"$here/install_packages.sh" --check "$@" || failed=1
exit $failed
