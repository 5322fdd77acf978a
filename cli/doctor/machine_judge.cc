#include "cli/doctor/machine_judge.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

// Needs that are assumed if no run is named: a small island's.
constexpr int64_t kSmallMemoryBytes = int64_t{1} << 30;
constexpr int64_t kSmallDiskBytes = int64_t{64} << 20;

bool IsOneDisk(const DiskFacts& a, const DiskFacts& b) {
  return a.total_bytes == b.total_bytes && a.free_bytes == b.free_bytes;
}

}  // namespace

Check JudgeCores(const MachineFacts& machine) {
  if (machine.core_count > 1) {
    return Passed("cores", absl::StrCat(machine.core_count,
                                        " cores: ", machine.cpu_model));
  }
  return Warn("cores", absl::StrCat("1 core: ", machine.cpu_model),
              "Expect slow training, and a machine that is busy with it.");
}

Check JudgeIsa(const MachineFacts& machine) {
  if (!machine.has_avx2_and_fma) {
    return Failed("isa", "the processor has no AVX2 or no FMA",
                  "Take an x86-64 machine of 2013 or later; a virtual machine "
                  "needs its host's processor model.");
  }
  return Passed("isa", machine.has_avx512 ? "AVX2, FMA and AVX-512"
                                          : "AVX2 and FMA; no AVX-512");
}

Check JudgeMemory(const MachineFacts& machine,
                  const std::optional<RunNeeds>& needs,
                  const RunLimits& limits) {
  const std::string has = FormatBytes(machine.memory_bytes);
  if (!needs.has_value()) {
    if (machine.memory_bytes < kSmallMemoryBytes) {
      return Warn("memory", absl::StrCat("this process may use ", has),
                  "Only a small model fits.");
    }
    return Passed("memory",
                  absl::StrCat(has, "; not compared with a run's needs"));
  }
  const std::string wants =
      absl::StrCat("the run needs ", FormatBytes(needs->memory_bytes),
                   needs->is_external ? " besides the trainer's own" : "");
  if (machine.memory_bytes < needs->memory_bytes) {
    return Failed("memory", absl::StrCat(wants, ", this process may use ", has),
                  "Take a machine, or a container, with more memory.");
  }
  if (const absl::Status fits = CheckMemory(*needs, limits); !fits.ok()) {
    return Failed("memory", fits.message(), GetHint(fits));
  }
  if (machine.available_memory_bytes > 0 &&
      machine.available_memory_bytes < needs->memory_bytes) {
    return Warn("memory",
                absl::StrCat(wants, ", but of ", has, " only ",
                             FormatBytes(machine.available_memory_bytes),
                             " are free now"),
                "Close other programs before you join.");
  }
  return Passed("memory", absl::StrCat(wants, " of ", has));
}

Check JudgeDiskSpace(const MachineFacts& machine,
                     const std::optional<RunNeeds>& needs,
                     const RunLimits& limits, int64_t cache_bytes_max) {
  const bool fetches = needs.has_value() && needs->fetches_data;
  for (const DiskFacts* disk : {&machine.state, &machine.cache}) {
    if (disk == &machine.cache && !fetches) continue;
    if (!disk->status.ok()) {
      return Failed("disk_space", disk->status.message(),
                    "Choose directories that you may write: --dir and "
                    "--data-cache of `atoll join`.");
    }
  }
  const int64_t saves = needs.has_value() ? needs->disk_bytes : kSmallDiskBytes;
  const std::string free = absl::StrCat(FormatBytes(machine.state.free_bytes),
                                        " free for ", machine.state.path);
  if (machine.state.free_bytes < saves) {
    return Failed(
        "disk_space",
        absl::StrCat(free, "; local checkpoints need ", FormatBytes(saves)),
        "Free some space, or give `atoll join` another --dir.");
  }
  if (needs.has_value()) {
    if (const absl::Status fits = CheckDisk(*needs, limits); !fits.ok()) {
      return Failed("disk_space", fits.message(), GetHint(fits));
    }
  }
  const int64_t cache_free = IsOneDisk(machine.state, machine.cache)
                                 ? machine.cache.free_bytes - saves
                                 : machine.cache.free_bytes;
  if (fetches && cache_free < cache_bytes_max) {
    return Warn("disk_space",
                absl::StrCat(FormatBytes(std::max<int64_t>(0, cache_free)),
                             " free for the data cache in ", machine.cache.path,
                             ", which may take ", FormatBytes(cache_bytes_max)),
                "Give `atoll join` a smaller --cache-size, or another "
                "--data-cache.");
  }
  return Passed(
      "disk_space",
      needs.has_value()
          ? absl::StrCat(free, "; local checkpoints need ", FormatBytes(saves))
          : free);
}

Check JudgeDiskSync(const absl::StatusOr<absl::Duration>& sync) {
  if (!sync.ok()) {
    return Failed("disk_sync", sync.status().message(),
                  "Choose a disk that can be written: `atoll join --dir`.");
  }
  const std::string took = absl::StrFormat("a write takes %.2g ms to sync",
                                           absl::ToDoubleMilliseconds(*sync));
  if (*sync <= kSlowSync) return Passed("disk_sync", took);
  return Warn("disk_sync", took,
              "Local checkpoints will be slow: prefer a local SSD for "
              "`atoll join --dir`.");
}

Check JudgeSandbox(int landlock_abi) {
  if (landlock_abi > 0) {
    return Passed("sandbox", absl::StrCat("Landlock ABI ", landlock_abi));
  }
  return Warn("sandbox",
              "this kernel has no Landlock: an island can open every file of "
              "its user",
              "Take Linux 5.13 or later, with `landlock` in "
              "/sys/kernel/security/lsm; or join as a user who owns nothing "
              "else.");
}

Check JudgeClock(const ClockFacts& clock) {
  const absl::Duration half = (clock.answered - clock.asked) / 2;
  const absl::Duration ahead = clock.asked + half - clock.gate;
  const absl::Duration apart =
      std::max(absl::ZeroDuration(), absl::AbsDuration(ahead) - half);
  const std::string what =
      absl::StrFormat("this machine's clock is %s %s the gate's",
                      FormatSpan(absl::AbsDuration(ahead)),
                      ahead < absl::ZeroDuration() ? "behind" : "ahead of");
  const char action[] =
      "Set the clock, for example with `timedatectl set-ntp "
      "true`.";
  if (apart > kClockFail) return Failed("clock", what, action);
  if (apart > kClockWarn) return Warn("clock", what, action);
  return Passed(
      "clock",
      absl::StrFormat("within %.1f s of the gate's",
                      absl::ToDoubleSeconds(absl::AbsDuration(ahead) + half)));
}

}  // namespace atl::cli
