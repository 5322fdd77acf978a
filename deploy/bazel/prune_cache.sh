#!/usr/bin/env bash
# Bounds Bazel's disk cache: once a day, if it has more than MAX GiB, removes
# the least recently used entries until KEEP GiB are left.
#
#   deploy/bazel/prune_cache.sh FOLDER [MAX KEEP]     default: 20 15
#
# Removes nothing but files of this user with the names of Bazel's entries. A
# build may run meanwhile: Bazel makes a missing entry again.
set -euo pipefail
max=${2:-20} keep=${3:-15}
cd "$1" 2>/dev/null || exit 0
[[ -z $(find pruned -mtime -1 2>/dev/null) ]] || exit 0
touch pruned

# Bazel reads an entry that it uses, and the kernel notes a file's first read
# of a day (relatime): the newer of both times is the last use.
{ find ac cas -mindepth 2 -maxdepth 2 -type f -user "$(id -un)" \
  -regextype posix-extended -regex '(ac|cas)/[0-9a-f]{2}/[0-9a-f]{64}' \
  -printf '%A@ %T@ %k %p\n' 2>/dev/null || true; } |
  awk '{ print ($1 > $2 ? $1 : $2), $3, $4 }' | sort -rn |
  awk -v max="$max" -v keep="$keep" '
    { sum += $2; if (sum > keep * 1048576) old[++count] = $3 }
    END { if (sum > max * 1048576) for (i = 1; i <= count; i++) print old[i] }
  ' | xargs -r rm -f --
