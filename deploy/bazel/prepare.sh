# Source this at the root of the tree before calling bazel. It provides what
# Bazel expects of a developer's machine.

# Bazel keeps its outputs below $HOME; a service may have no HOME.
if [[ -z ${HOME:-} ]]; then
  HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
  export HOME
fi

# Writes machine.bazelrc if this machine needs other options than it has, and
# bounds the disk cache.
_prepare() {
  source deploy/bazel/machine.sh
  local cache options other new
  options=$(machine_options "$(machine_jobs "$(nproc)")")
  # .bazelrc names one cache for the whole machine. If another user owns it,
  # this user gets a separate cache.
  cache=$(sed -n 's/^build --disk_cache=//p' .bazelrc)
  if ! { mkdir -p "$cache" && [[ -w $cache && -O $cache ]]; } 2>/dev/null; then
    other=$HOME/.cache/atoll-bazel
    options+=$'\n'"build --disk_cache=$other"
    grep -qsxF "build --disk_cache=$other" machine.bazelrc ||
      echo "$cache cannot be written: the cache is $other" >&2
    cache=$other
  fi
  if [[ $options != "$(cat machine.bazelrc 2>/dev/null)" ]]; then
    new=machine.bazelrc.$BASHPID
    echo "$options" >"$new"
    mv "$new" machine.bazelrc
  fi
  deploy/bazel/prune_cache.sh "$cache" || true
}
_prepare
unset -f _prepare
