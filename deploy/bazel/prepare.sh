# Source this at the root of the tree before calling bazel. It provides what
# Bazel expects of a developer's machine.

# Bazel keeps its outputs below $HOME; a service may have no HOME.
if [[ -z ${HOME:-} ]]; then
  HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
  export HOME
fi

# .bazelrc names one cache for the whole machine. If another user owns it, this
# user gets a separate cache.
_cache=$(sed -n 's/^build --disk_cache=//p' .bazelrc)
if [[ ! -f user.bazelrc ]] &&
  ! { mkdir -p "$_cache" && [[ -w $_cache && -O $_cache ]]; } 2>/dev/null; then
  echo "build --disk_cache=$HOME/.cache/atoll-bazel" >user.bazelrc
  echo "$_cache cannot be written: user.bazelrc names another cache" >&2
fi
unset _cache
