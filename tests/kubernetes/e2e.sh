#!/usr/bin/env bash
# The chart on a real cluster, by hand; e2e.py is the manual.
#   KUBECONFIG=FILE e2e.sh IMAGE:TAG
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -eq 1 ]] || { echo "usage: KUBECONFIG=FILE e2e.sh IMAGE:TAG" >&2; exit 2; }
"$here/install_tools.sh" >/dev/null
exec /usr/bin/python3 -B "$here/e2e.py" "$1"
