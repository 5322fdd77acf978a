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
# control_group SCRATCH: that of the systemd that is started here.
control_group() {
  local mount
  mount=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)
  echo "$mount/atoll-$(basename "$1")"
}

if [[ -z ${ATOLL_BARE_ROOT:-} ]]; then
  [[ $# -ge 1 ]] || { sed -n '6,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  scratch=$(mktemp -d)
  cgroup=$(control_group "$scratch")
  clean() {
    rm -rf --one-file-system "$scratch"
    [[ ! -d $cgroup ]] || find "$cgroup" -depth -type d -exec rmdir {} +
  }
  trap clean EXIT
  # Mounts and processes end with the namespaces.
  ATOLL_BARE_ROOT=$scratch unshare --mount --propagation private --pid --fork \
    --kill-child --mount-proc bash "$0" "$@"
  exit
fi

packages=$(realpath "$1")
scratch=$ATOLL_BARE_ROOT
cgroup=$(control_group "$scratch")
root=
check() { echo "ok: $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

base=${2:-}
if [[ -z $base ]]; then
  base=$scratch/base
  mmdebstrap --variant=minbase bookworm "$base"
fi

# new_root NAME: a copy of the base. `inside` is the prefix of a command in it.
new_root() {
  root=$scratch/$1
  environment=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
    LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive)
  inside=("${environment[@]}" chroot "$root")
  cp -a "$base" "$root"
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  local name
  for name in null zero full random urandom; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  echo "127.0.0.1 localhost" >"$root/etc/hosts"
  # What the quickstart needs of a source tree: its run file, and its text.
  local text
  text=$(find /usr/include/c++ -mindepth 1 -maxdepth 1 -type d | sort -V |
    tail -n 1)
  mkdir -p "$root/srv/text"
  cp -a "$text/." "$root/srv/text"
  cp "$tree/deploy/config/laptop.toml" "$root/srv/laptop.toml"
}

# boot: starts systemd as the first process of the root; `inside` then runs
# commands under it.
boot() {
  (
    mkdir "$cgroup"
    echo 0 >"$cgroup/cgroup.procs"
    exec unshare --mount --pid --fork --kill-child --ipc --uts --cgroup \
      bash -c '
      cd "$1"
      mount -t proc proc proc
      mount -t tmpfs tmpfs run
      mount -t sysfs sysfs sys
      mount -t cgroup2 cgroup2 sys/fs/cgroup
      pivot_root . mnt
      umount --lazy /mnt
      exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --unit=basic.target --show-status=no' - "$root"
  ) >"$scratch/systemd.log" 2>&1 &
  local first
  for _ in {1..600}; do
    first=$(pgrep -x systemd || true)
    if [[ -n $first ]]; then
      inside=(nsenter -t "$first" --mount --pid --ipc --uts --cgroup
        "${environment[@]}")
      ! "${inside[@]}" systemctl is-system-running >/dev/null 2>&1 || return 0
    fi
    sleep 0.1
  done
  fail "systemd does not start: $(<"$scratch/systemd.log")"
}

# quickstart ATOLL: the run of deploy/quickstart.sh. All give the same model.
model=
quickstart() {
  "${inside[@]}" "$1" dev up /srv/laptop.toml --dir /srv/run --data /srv/text ||
    fail "dev up"
  "${inside[@]}" "$1" dev report --dir /srv/run --output /srv/summary.json ||
    fail "dev report"
  local made
  made=$(sha256sum <"$root/srv/run/export/model.safetensors")
  [[ -z $model || $made == "$model" ]] || fail "the runs differ"
  model=$made
  check "the quickstart's run, with $1"
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

# --- The tarball, and nothing else -------------------------------------------

new_root tarball
tar -C "$root/opt" -xzf "$packages"/atoll-*-linux-x86_64.tar.gz
atoll=$(echo "$root"/opt/atoll-*/bin/atoll)
atoll=${atoll#"$root"}
version=$("${inside[@]}" "$atoll" version) || fail "the tarball's program"
check "$version, from the tarball"
quickstart "$atoll"

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
  has 640 root:root "/etc/atoll/$name.env"
done
has 700 atoll-coordinator:atoll-coordinator /var/lib/atoll/coordinator
has 700 atoll-server:atoll-server /var/lib/atoll/server
"${inside[@]}" test -e /var/lib/atoll/coordinator/CURRENT ||
  fail "the coordinator has no log"
for name in atoll atoll-coordinator atoll-server atoll-gate; do
  has 755 root:root "/usr/bin/$name"
done
"${inside[@]}" systemd-analyze verify --man=no \
  /usr/lib/systemd/system/atoll-{coordinator,server,gate,island@}.service ||
  fail "systemd-analyze verify"
check "systemd-analyze verify"
"${inside[@]}" systemd-analyze security --offline=yes --threshold=25 \
  --no-pager \
  /usr/lib/systemd/system/atoll-{coordinator,server,gate}.service |
  grep "Overall" || fail "the units are exposed"
[[ -z $(find "$root/etc/systemd" -name 'atoll*') ]] || fail "a unit is enabled"
check "no unit is enabled"

boot
"${inside[@]}" systemctl start atoll-coordinator
! "${inside[@]}" systemctl is-active --quiet atoll-coordinator ||
  fail "a service starts without a certificate"
check "systemd runs, and starts no service without a certificate"

# As the .env files say.
"${inside[@]}" bash -ec '
  cd /srv
  issue() {
    atoll ca issue --dir ca --role $1 --id $2 --host localhost --out $2
  }
  atoll ca init --dir ca
  issue coordinator c
  issue server s0
  issue gate g0
  atoll ca issue --dir ca --role operator --id anna --out anna
  install -m 640 c/* /etc/atoll/coordinator/
  install -m 640 s0/* /etc/atoll/server/
  install -m 640 g0/* /etc/atoll/gate/
  cd /etc/atoll
  sed -i "s/^#FLAGS/FLAGS/; s/^#  -/  -/" *.env
  sed -i "s/[a-z0-9]*\.example\.org/localhost/" *.env' >/dev/null
has 640 root:atoll-gate /etc/atoll/gate/island-ca.key
as atoll-gate
"${user[@]}" test -r /etc/atoll/gate/island-ca.key ||
  fail "the gate cannot read its key"
for path in /etc/atoll/{coordinator,server}/{,tls.key} \
  /var/lib/atoll/{coordinator,server}; do
  ! "${user[@]}" test -r "$path" || fail "the gate's user reads $path"
done
check "the gate's user reads its key and nothing of the others"

services=(atoll-coordinator atoll-server atoll-gate)
"${inside[@]}" systemctl start "${services[@]}" || {
  "${inside[@]}" journalctl --no-pager --lines 30 >&2
  fail "the services do not start"
}
operator=("${inside[@]}" env ATOLL_COORDINATOR=localhost:7400
  ATOLL_TLS_DIR=/srv/anna)
"${operator[@]}" bash -ec '
  # A service has started before it listens.
  for _ in {1..60}; do
    ! atoll run list >/dev/null 2>&1 || break
    sleep 1
  done
  atoll run create /srv/laptop.toml --run-id spring --servers 1 \
    --data /srv/text
  # The coordinator gives no token before a gate has announced itself.
  for _ in {1..60}; do
    ! atoll token create --run spring --uses 1 --ttl 1h 2>/dev/null || exit 0
    sleep 1
  done
  exit 1' || fail "no run, or no token"
"${inside[@]}" systemctl is-active --quiet "${services[@]}" ||
  fail "a service ended"
check "the services run, in their sandboxes: a run and a token are created"

# `atoll join --service`, under the systemd of a user.
"${inside[@]}" useradd --create-home --uid 1500 volunteer
"${inside[@]}" install -d -m 700 -o volunteer -g volunteer /run/user/1500
mine=(env XDG_RUNTIME_DIR=/run/user/1500 HOME=/home/volunteer)
"${inside[@]}" systemd-run --quiet --unit=of-volunteer --uid=volunteer \
  --property=Delegate=yes "${mine[@]}" /lib/systemd/systemd --user \
  --unit=basic.target
as volunteer
mine=("${user[@]}" "${mine[@]}" bash -ec)
"${operator[@]}" bash -ec '
  sed "s/^island_count_min = .*/island_count_min = 1/
    s/^min_quorum = .*/min_quorum = 1/
    s/^round_count = .*/round_count = 100000/" /srv/laptop.toml >/srv/one.toml
  atoll run create /srv/one.toml --run-id one --servers 1 --data /srv/text
  atoll token create --run one --uses 1 --ttl 1h >/srv/string' >/dev/null ||
  fail "no run of one island"
"${mine[@]}" 'for _ in {1..100}; do
    ! systemctl --user show-environment >/dev/null 2>&1 || break
    sleep 0.1
  done
  atoll join - --service --data /srv/text --threads 1 --nice 10 </srv/string' ||
  fail "atoll join --service"
# commits COUNT
commits() {
  for _ in {1..120}; do
    [[ $("${operator[@]}" atoll run show one -o json) =~ \
      \"commit_seq\":\ ?\"?([0-9]+) ]] && ((BASH_REMATCH[1] >= $1)) && return
    sleep 1
  done
  "${mine[@]}" "systemctl --user status atoll-one.service" >&2 || true
  "${inside[@]}" journalctl --no-pager --lines 40 >&2
  fail "no round with the service"
}
commits 1
"${mine[@]}" "systemctl --user is-active --quiet atoll-one.service
  atoll local status" || fail "the service is not active"
"${mine[@]}" "systemctl --user kill --signal=KILL atoll-one.service"
"${mine[@]}" "for _ in {1..60}; do
    ! systemctl --user is-active --quiet atoll-one.service || break
    sleep 1
  done
  systemctl --user is-active --quiet atoll-one.service" ||
  fail "the service does not restart"
commits $((BASH_REMATCH[1] + 2))
"${mine[@]}" "atoll local finish --wait
  ! systemctl --user is-active --quiet atoll-one.service" ||
  fail "a finished service goes on"
"${operator[@]}" atoll run cancel one >/dev/null
check "a volunteer's service trains, restarts after a kill, and finishes"

# An upgrade.
pids() { "${inside[@]}" systemctl show -P MainPID "${services[@]}"; }
started=$(pids)
before=$(sha256sum "$root"/etc/atoll/*.env "$root"/etc/atoll/*/*)
install_debs /srv
[[ $before == $(sha256sum "$root"/etc/atoll/*.env "$root"/etc/atoll/*/*) ]] ||
  fail "the upgrade changed the configuration"
[[ -n $(ls "$root/var/lib/atoll/coordinator") ]] || fail "the data is gone"
"${inside[@]}" systemctl is-active --quiet "${services[@]}" ||
  fail "the services do not run after the upgrade"
[[ $started != "$(pids)" ]] || fail "the upgrade restarted nothing"
check "an upgrade keeps configuration, keys and data, and restarts what runs"

"${inside[@]}" systemctl stop "${services[@]}"
for name in "${services[@]}"; do
  [[ $("${inside[@]}" systemctl show -P Result "$name") == success ]] ||
    fail "$name did not end by itself"
done
check "the services end by themselves"

quickstart /usr/bin/atoll

# Purge and reinstall.
"${inside[@]}" apt-get -qq purge -y atoll atoll-server
! compgen -G "$root/etc/atoll/*.env" >/dev/null || fail "configuration stays"
[[ -e $root/etc/atoll/gate/island-ca.key ]] || fail "a key is gone"
[[ -n $(ls "$root/var/lib/atoll/coordinator") ]] || fail "the data is gone"
[[ ! -e $root/usr/bin/atoll ]] || fail "atoll stays"
check "purging deletes configuration and keeps keys and data"
install_debs /srv
has 700 atoll-coordinator:atoll-coordinator /var/lib/atoll/coordinator
has 2750 root:atoll-gate /etc/atoll/gate
has 640 root:root /etc/atoll/gate.env
check "after a purge it installs again"
