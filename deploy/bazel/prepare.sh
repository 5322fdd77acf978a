# To be sourced, at the root of the tree, by scripts that call bazel: sees to
# what Bazel takes for granted on a developer's machine.

# Bazel keeps its outputs below the home directory; a service may have none set.
if [[ -z ${HOME:-} ]]; then
  HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
  export HOME
fi

# .bazelrc names one cache for the whole machine. Where another user made it
# first, this one keeps a cache of their own.
_cache=$(sed -n 's/^build --disk_cache=//p' .bazelrc)
if [[ ! -f user.bazelrc ]] &&
  ! { mkdir -p "$_cache" && [[ -w $_cache && -O $_cache ]]; } 2>/dev/null; then
  echo "build --disk_cache=$HOME/.cache/atoll-bazel" >user.bazelrc
  echo "$_cache cannot be written: user.bazelrc names another cache" >&2
fi
unset _cache
