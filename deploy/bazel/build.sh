#!/usr/bin/env bash
# Builds Bazel targets and shows one line: the steps done and the time left.
# Bazel's output goes to a log. If the build fails, prints the last errors and
# the path of the log. Without a terminal: a line each half minute.
#
#   deploy/bazel/build.sh TARGET...
set -uo pipefail

# Reads Bazel's output and shows the line.
show_progress() {
  local line status step=0 steps=0 at=0 shown=-30 text left
  SECONDS=0
  while :; do
    IFS= read -r -t 5 line
    status=$?
    ((status == 0 || status > 128)) || break
    # Bazel's progress: [ steps done / steps known ].
    if [[ $line =~ \[([0-9,]+)\ /\ ([0-9,]+)\] ]]; then
      step=${BASH_REMATCH[1]//,/} steps=${BASH_REMATCH[2]//,/} at=$SECONDS
    fi
    text="reading the build files"
    if ((steps > 0)); then
      text="$step of $steps steps"
      # The first seconds say nothing: most steps are still unknown.
      if ((step > 0 && at >= 20)); then
        left=$((at * (steps - step) / step - (SECONDS - at)))
        if ((left > 60)); then
          text+=", about $(((left + 59) / 60)) min left"
        else
          text+=", less than a minute left"
        fi
      fi
    fi
    if [[ -t 2 ]]; then
      printf '\r\033[K%s' "$text" >&2
    elif ((SECONDS - shown >= 30)); then
      echo "$text" >&2
      shown=$SECONDS
    fi
  done
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
}

log=$(mktemp --suffix=.log --tmpdir atoll-build-XXXXXX)
bazel build --color=no --curses=no "$@" </dev/null 2>&1 | tee "$log" |
  show_progress
status=${PIPESTATUS[0]}
if ((status != 0)); then
  errors=$(grep -E '(^ERROR| error: |undefined reference)' "$log" || cat "$log")
  tail -n 10 <<<"$errors" >&2
  echo "The build failed; all of its output: $log" >&2
  exit "$status"
fi
rm "$log"
