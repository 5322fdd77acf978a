#!/usr/bin/env bash
# Installs the packages into a bare Debian 12, and trains the quickstart's run
# there: once with the .debs, once with the tarball alone. By hand, as root; it
# needs mmdebstrap and a Debian mirror.
#
#   tests/packages/bare_root.sh PACKAGES [BASE]
#
#   PACKAGES   what deploy/packages/build.sh wrote
#   BASE       a bare Debian 12 (default: a new one from mmdebstrap, for
#              the variant minbase); it is not changed
#
# Each check is a line; the first that fails ends the script. It leaves no
# process, no mount and no file behind.
set -euo pipefail

tree=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
if [[ -z ${ATOLL_BARE_ROOT:-} ]]; then
  [[ $# -ge 1 ]] || { sed -n '6,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  scratch=$(mktemp -d)
  trap 'rm -rf --one-file-system "$scratch"' EXIT
  # Mounts and processes end with the namespaces.
  ATOLL_BARE_ROOT=$scratch unshare --mount --propagation private --pid --fork \
    --kill-child --mount-proc bash "$0" "$@"
  exit
fi

packages=$(realpath "$1")
scratch=$ATOLL_BARE_ROOT
root=
check() { echo "ok: $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

base=${2:-}
if [[ -z $base ]]; then
  base=$scratch/base
  mmdebstrap --variant=minbase bookworm "$base"
fi

# new_root NAME: a copy of the base, with what a container has. `inside` is the
# prefix of a command in it.
new_root() {
  root=$scratch/$1
  inside=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
    DEBIAN_FRONTEND=noninteractive chroot "$root")
  cp -a "$base" "$root"
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  mount --rbind /dev "$root/dev"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # No service starts while packages are installed.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  # What the quickstart needs of a source tree: its run file, and its text.
  local text
  text=$(find /usr/include/c++ -mindepth 1 -maxdepth 1 -type d | sort -V |
    tail -n 1)
  mkdir -p "$root/srv/text"
  cp -a "$text/." "$root/srv/text"
  cp "$tree/deploy/config/laptop.toml" "$root/srv/laptop.toml"
}

# quickstart ATOLL: the run of deploy/quickstart.sh.
quickstart() {
  "${inside[@]}" "$1" dev up /srv/laptop.toml --dir /srv/run --data /srv/text ||
    fail "dev up"
  "${inside[@]}" "$1" dev report --dir /srv/run --output /srv/summary.json ||
    fail "dev report"
  check "model $(sha256sum <"$root/srv/run/export/model.safetensors")"
}

# has MODE OWNER:GROUP PATH
has() {
  local seen
  seen=$("${inside[@]}" stat -c '%a %U:%G' "$3")
  [[ $seen == "$1 $2" ]] || fail "$3 is $seen, not $1 $2"
  check "$3 $seen"
}

# as USER: sets `user`, the prefix of a command without the rights of root.
as() {
  user=("${inside[@]}" setpriv --reuid "$1" --regid "$1" --clear-groups
    --bounding-set -all --no-new-privs)
}

# install_debs FOLDER
install_debs() {
  "${inside[@]}" bash -c "apt-get -qq install -y --no-install-recommends \
    $1/atoll*.deb" >/dev/null || fail "apt-get install of $1"
}

# start SERVICE FLAGS: the unit's command, as its user, until it is serving.
start() {
  local name=$1 flags=$2 command
  command=$(sed -n '/^ExecStart=/,/[^\\]$/p' \
    "$root/usr/lib/systemd/system/atoll-$name.service" | tr -d '\\\n')
  command=${command#ExecStart=}
  # Words, as systemd splits them.
  # shellcheck disable=SC2086
  as "atoll-$name"
  "${user[@]}" ${command/\$FLAGS/$flags} --port-file "/tmp/$name.port" \
    2>"$scratch/$name.log" &
  for _ in {1..300}; do
    [[ ! -s $root/tmp/$name.port ]] || break
    kill -0 $! 2>/dev/null || break
    sleep 0.1
  done
  [[ -s $root/tmp/$name.port ]] || fail "$name: $(<"$scratch/$name.log")"
  check "atoll-$name starts as its unit says: $flags"
}

# --- The tarball, and nothing else -------------------------------------------

new_root tarball
tar -C "$root/opt" -xzf "$packages"/atoll-*-linux-x86_64.tar.gz
atoll=$(echo "$root"/opt/atoll-*/bin/atoll)
atoll=${atoll#"$root"}
version=$("${inside[@]}" "$atoll" version) || fail "the tarball's program"
check "$version, from the tarball"
quickstart "$atoll"
umount --recursive "$root/dev"

# --- The .debs ---------------------------------------------------------------

new_root debs
cp "$packages"/*.deb "$root/srv"
"${inside[@]}" apt-get -qq update

# An older version first.
mkdir "$root/srv/old"
for deb in "$root"/srv/atoll*.deb; do
  rm -rf "$scratch/old"
  dpkg-deb --raw-extract "$deb" "$scratch/old"
  sed -i 's/^Version: .*/Version: 0.0.9/' "$scratch/old/DEBIAN/control"
  dpkg-deb --root-owner-group --build "$scratch/old" "$root/srv/old" >/dev/null
done
install_debs /srv/old
check "version 0.0.9 installs with what apt finds for it"

for name in coordinator server gate; do
  "${inside[@]}" getent passwd "atoll-$name" || fail "no user atoll-$name"
  has 2750 "root:atoll-$name" "/etc/atoll/$name"
  has 644 root:root "/etc/atoll/$name.env"
done
has 700 atoll-coordinator:atoll-coordinator /var/lib/atoll/coordinator
has 700 atoll-server:atoll-server /var/lib/atoll/server
for name in atoll atoll-coordinator atoll-server atoll-gate; do
  has 755 root:root "/usr/bin/$name"
done
"${inside[@]}" systemd-analyze verify --man=no \
  /usr/lib/systemd/system/atoll-{coordinator,server,gate}.service ||
  fail "systemd-analyze verify"
check "systemd-analyze verify"
"${inside[@]}" systemd-analyze security --offline=yes --threshold=25 \
  --no-pager \
  /usr/lib/systemd/system/atoll-{coordinator,server,gate}.service |
  grep "Overall" || fail "the units are exposed"
[[ -z $(find "$root/etc/systemd" -name 'atoll*') ]] || fail "a unit is enabled"
check "no unit is enabled"

# The certificates, as the .env files say.
"${inside[@]}" bash -ec '
  cd /srv
  atoll ca init --dir ca
  atoll ca issue --dir ca --role coordinator --id c --host localhost --out c
  atoll ca issue --dir ca --role server --id s0 --host localhost --out s0
  atoll ca issue --dir ca --role gate --id g0 --host localhost --out gate
  atoll ca issue --dir ca --role operator --id anna --out anna
  install -m 640 c/* /etc/atoll/coordinator/
  install -m 640 s0/* /etc/atoll/server/
  install -m 640 gate/* /etc/atoll/gate/
  sed -i "s/^#FLAGS/FLAGS/; s/^#  /  /" /etc/atoll/coordinator.env' >/dev/null
has 640 root:atoll-gate /etc/atoll/gate/island-ca.key
as atoll-gate
"${user[@]}" test -r /etc/atoll/gate/island-ca.key ||
  fail "the gate cannot read its key"
for path in /etc/atoll/{coordinator,server}/{,tls.key} \
  /var/lib/atoll/{coordinator,server}; do
  ! "${user[@]}" test -r "$path" || fail "the gate's user reads $path"
done
check "the gate's user reads its key and nothing of the others"

start coordinator "--listen localhost:7400"
start server "--listen localhost:7401 --coordinator localhost:7400 \
  --server-id s0"
start gate "--listen localhost:7402 --coordinator localhost:7400"
"${inside[@]}" env ATOLL_COORDINATOR=localhost:7400 ATOLL_TLS_CERT=/srv/anna/tls.crt \
  ATOLL_TLS_KEY=/srv/anna/tls.key ATOLL_TLS_CA=/srv/anna/ca.crt \
  atoll run list || fail "run list"
check "an operator reaches them"
services=$(jobs -p)
kill $services
for service in $services; do
  wait "$service" || fail "a service ended with $?"
done
check "SIGTERM ends them with status 0"

# An upgrade.
before=$(sha256sum "$root"/etc/atoll/*.env "$root"/etc/atoll/*/*)
install_debs /srv
[[ $before == $(sha256sum "$root"/etc/atoll/*.env "$root"/etc/atoll/*/*) ]] ||
  fail "the upgrade changed the configuration"
[[ -n $(ls "$root/var/lib/atoll/coordinator") ]] || fail "the data is gone"
check "an upgrade keeps configuration, keys and data"

quickstart /usr/bin/atoll

# Purge and reinstall.
"${inside[@]}" apt-get -qq purge -y atoll atoll-server
[[ ! -e $root/etc/atoll ]] || fail "/etc/atoll stays"
[[ -n $(ls "$root/var/lib/atoll/coordinator") ]] || fail "the data is gone"
[[ ! -e $root/usr/bin/atoll ]] || fail "atoll stays"
check "purging deletes configuration and keeps data"
install_debs /srv
has 700 atoll-coordinator:atoll-coordinator /var/lib/atoll/coordinator
has 2750 root:atoll-gate /etc/atoll/gate
has 644 root:root /etc/atoll/gate.env
check "after a purge it installs again"
