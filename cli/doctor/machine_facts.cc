#include "cli/doctor/machine_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/io/unique_fd.h"
#include "base/machine/limits.h"
#include "base/obs/cpu_model.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::cli {
namespace {

constexpr int kSyncCount = 5;
constexpr size_t kSyncBytes = 4096;
constexpr absl::Duration kSyncTimeMax = absl::Seconds(1);
constexpr int64_t kKib = 1024;

DiskFacts ReadDisk(const std::string& directory) {
  DiskFacts disk;
  disk.path = directory;
  const std::string parent = FindExistingParent(directory);
  struct statvfs info {};
  if (statvfs(parent.c_str(), &info) != 0) {
    disk.status = ErrnoToStatus(errno, parent);
    return disk;
  }
  const auto block_bytes = static_cast<int64_t>(info.f_frsize);
  disk.free_bytes = static_cast<int64_t>(info.f_bavail) * block_bytes;
  disk.total_bytes = static_cast<int64_t>(info.f_blocks) * block_bytes;
  if ((info.f_flag & ST_RDONLY) != 0) {
    disk.status = absl::FailedPreconditionError(
        absl::StrCat(parent, ": the file system is read-only"));
  } else if (access(parent.c_str(), W_OK | X_OK) != 0) {
    disk.status = ErrnoToStatus(errno, parent);
  }
  return disk;
}

// Makes a file without a name. Not every file system has O_TMPFILE.
absl::StatusOr<UniqueFd> MakeUnnamedFile(const std::string& directory) {
  UniqueFd fd(open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (fd.valid()) return fd;
  std::string path = absl::StrCat(directory, "/.atoll-doctor-XXXXXX");
  fd = UniqueFd(mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, directory);
  unlink(path.c_str());
  return fd;
}

}  // namespace

std::string FindExistingParent(const std::string& path) {
  std::string at = path.empty() ? "." : path;
  struct stat info {};
  while (stat(at.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    const size_t slash = at.rfind('/');
    if (slash == std::string::npos) return ".";
    if (slash == 0) return "/";
    at.resize(slash);
  }
  return at;
}

int64_t ParseAvailableMemory(const std::string& meminfo) {
  for (const absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() >= 2 && words[0] == "MemAvailable:" &&
        absl::SimpleAtoi(words[1], &kib) && kib >= 0 &&
        kib < INT64_MAX / kKib) {
      return kib * kKib;
    }
  }
  return 0;
}

MachineFacts ReadMachineFacts(const std::string& state_directory,
                              const std::string& cache_directory) {
  MachineFacts facts;
  facts.cpu_model = ThisCpuModelName("an unknown processor");
  facts.core_count = ProcessorCount();
  facts.has_avx2_and_fma =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  facts.has_avx512 = __builtin_cpu_supports("avx512f");
  facts.memory_bytes = MemoryLimitBytes();
  std::ifstream meminfo("/proc/meminfo");
  facts.available_memory_bytes = std::min(
      facts.memory_bytes, ParseAvailableMemory(std::string(
                              std::istreambuf_iterator<char>(meminfo), {})));
  facts.state = ReadDisk(state_directory);
  facts.cache = ReadDisk(cache_directory);
  return facts;
}

absl::StatusOr<absl::Duration> MeasureSync(const std::string& directory) {
  const std::string parent = FindExistingParent(directory);
  ASSIGN_OR_RETURN(const UniqueFd fd, MakeUnnamedFile(parent));
  const std::string block(kSyncBytes, 'a');
  std::vector<absl::Duration> samples;
  const absl::Time begin = SystemClock().Now();
  while (samples.size() < kSyncCount) {
    const absl::Time write_begin = SystemClock().Now();
    if (write_begin - begin > kSyncTimeMax) break;
    const auto offset = static_cast<off_t>(samples.size() * kSyncBytes);
    if (pwrite(fd.get(), block.data(), block.size(), offset) !=
            static_cast<ssize_t>(block.size()) ||
        fdatasync(fd.get()) != 0) {
      return ErrnoToStatus(errno, parent);
    }
    samples.push_back(SystemClock().Now() - write_begin);
  }
  return FindMedian(std::move(samples));
}

absl::Duration FindMedian(std::vector<absl::Duration> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

}  // namespace atl::cli
