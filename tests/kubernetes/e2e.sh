#!/usr/bin/env bash
# The chart on a real cluster, by hand; e2e.py, e2e_mirror.py and
# e2e_volunteer.py are the manuals.
#   KUBECONFIG=FILE e2e.sh IMAGE:TAG
#   KUBECONFIG=FILE e2e.sh IMAGE:TAG s3://BUCKET/PREFIX
#   KUBECONFIG=FILE e2e.sh IMAGE:TAG NODE_ADDRESS DATA_URL [CA_FILE]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case $# in
  1) script=e2e.py ;;
  2) script=e2e_mirror.py ;;
  3 | 4) script=e2e_volunteer.py ;;
  *)
    echo "usage: KUBECONFIG=FILE e2e.sh IMAGE:TAG [S3_URL | ADDRESS URL [CA_FILE]]" >&2
    exit 2
    ;;
esac
"$here/install_tools.sh" >/dev/null
exec /usr/bin/python3 -B "$here/$script" "$@"
