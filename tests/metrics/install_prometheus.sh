#!/usr/bin/env bash
# Unpacks Debian's prometheus and promtool for tests/metrics: installing the
# package would start a service on all addresses. Needs no root. Does nothing if
# both are there. $ATOLL_TOOLS replaces the directory's name.
set -euo pipefail
tools=${ATOLL_TOOLS:-/var/tmp/atoll-tools}-prometheus
if [[ -x $tools/usr/bin/promtool ]] ||
  { command -v prometheus && command -v promtool; } >/dev/null; then
  exit 0
fi

mkdir -p "$(dirname "$tools")"
new=$(mktemp -d "$tools.XXXXXX")
trap 'rm -rf "$new"' EXIT
cd "$new"
apt=(apt-get -qq -o APT::Sandbox::User=root)
# Without the system's lists of packages, or with old ones: own lists.
mkdir -p apt/lists/partial apt/cache/archives/partial
own=(-o Dir::State::lists="$new/apt/lists" -o Dir::Cache="$new/apt/cache")
if ! "${apt[@]}" download prometheus &>/dev/null &&
  ! { "${apt[@]}" "${own[@]}" update >&2 &&
    "${apt[@]}" "${own[@]}" download prometheus >&2; } ||
  ! dpkg-deb -x ./*.deb .; then
  echo "Debian's package prometheus is missing and apt-get did not give it:" \
    "check the network, then run $0" >&2
  exit 1
fi
rm -r ./*.deb apt
chmod 755 .
# If another installation was faster, its result stays.
mv -T "$new" "$tools" 2>/dev/null || [[ -x $tools/usr/bin/promtool ]]
