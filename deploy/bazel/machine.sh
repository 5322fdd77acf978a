# Functions that size Bazel for this machine; prepare.sh sources them.

# cgroup_folders ROOT CONTROLLER: prints the folders of this process's cgroup,
# v1 or v2, from its own up to the top.
cgroup_folders() {
  local root=$1 controller=$2 id controllers path top
  while IFS=: read -r id controllers path; do
    if [[ -z $controllers ]]; then
      top=$root/sys/fs/cgroup
    elif [[ ,$controllers, == *,$controller,* ]]; then
      top=$root/sys/fs/cgroup/$controller
    else
      continue
    fi
    # A container may see only the end of the path: missing folders are skipped.
    while :; do
      [[ ! -d $top/$path ]] || echo "$top/$path"
      [[ $path == */* ]] || break
      path=${path%/*}
    done
  done <"$root/proc/self/cgroup"
}

# first_number FILE...: prints the number that begins the first file with one.
first_number() {
  local file word
  for file in "$@"; do
    [[ -r $file ]] || continue
    read -r word _ <"$file" || true
    [[ ! $word =~ ^[0-9]+$ ]] || { echo "$word"; return; }
  done
}

# free_memory_kib [ROOT]: prints the memory that this process may still take,
# with the limits of its cgroups. ROOT, here and below, holds proc and sys.
free_memory_kib() {
  local root=${1:-} free folder limit used cache memory
  free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' "$root/proc/meminfo")
  while IFS= read -r folder; do
    limit=$(first_number "$folder/memory.max" "$folder/memory.limit_in_bytes")
    used=$(first_number "$folder/memory.current" \
      "$folder/memory.usage_in_bytes")
    [[ -n $limit && -n $used ]] || continue
    # The kernel frees the page cache when a process needs the memory.
    cache=$(sed -n 's/^\(total_\)\?inactive_file //p' "$folder/memory.stat" |
      tail -n 1)
    memory=$(((limit - used + ${cache:-0}) / 1024))
    ((memory >= free)) || free=$memory
  done < <(cgroup_folders "$root" memory)
  echo "$free"
}

# machine_jobs PROCESSORS [ROOT]: prints how many C++ files to compile at once:
# min(processors, free memory / 1 GiB), at least 1, because a file with protobuf
# headers needs up to 1 GiB.
machine_jobs() {
  local jobs=$1 root=${2:-} folder quota period memory
  memory=$(($(free_memory_kib "$root") / 1048576))
  ((jobs <= memory)) || jobs=$memory
  while IFS= read -r folder; do
    if [[ -r $folder/cpu.max ]]; then
      read -r quota period <"$folder/cpu.max"
    else
      quota=$(first_number "$folder/cpu.cfs_quota_us")
      period=$(first_number "$folder/cpu.cfs_period_us")
    fi
    [[ $quota =~ ^[0-9]+$ && $period =~ ^[0-9]+$ ]] || continue
    ((jobs * period <= quota)) || jobs=$((quota / period))
  done < <(cgroup_folders "$root" cpu)
  ((jobs >= 1)) || jobs=1
  echo "$jobs"
}

# machine_options JOBS: prints Bazel's options. Files that wait for a disk or
# a lock leave a processor idle, so --jobs is larger than the processors; tests
# with real processes wait for disks and for each other a third of their time.
machine_options() {
  echo "build --local_cpu_resources=$1 --jobs=$((2 * $1 + 1))" \
    "--local_test_jobs=$(((3 * $1 + 1) / 2))"
}
