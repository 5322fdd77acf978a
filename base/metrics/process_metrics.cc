#include "base/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/metrics/metrics.h"

namespace atl {
namespace {

using prometheus::MetricFamily;

// Fields of /proc/PID/stat after the program's name; proc(5) counts them from 3
// there.
constexpr size_t kUserTicks = 14 - 3;
constexpr size_t kKernelTicks = 15 - 3;
constexpr size_t kThreadCount = 20 - 3;
constexpr size_t kStartTicks = 22 - 3;
constexpr size_t kVirtualBytes = 23 - 3;
constexpr size_t kResidentPages = 24 - 3;

std::string ReadProc(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The time of the machine's start; 0 if it cannot be read.
double BootTimeSeconds() {
  const std::string stat = ReadProc("/proc/stat");
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    double seconds = 0;
    if (field.first == "btime" && absl::SimpleAtod(field.second, &seconds)) {
      return seconds;
    }
  }
  return 0;
}

// -1 if they cannot be counted.
int CountOpenFiles() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return -1;
  int count = -1;  // Without this directory's own.
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(directory);
  return count;
}

}  // namespace

bool ParseProcessStat(absl::string_view stat, double boot_time_seconds,
                      ProcessUsage& usage) {
  // The name is in parentheses, and may contain spaces and parentheses.
  const size_t name_end = stat.rfind(')');
  if (name_end == absl::string_view::npos) return false;
  const std::vector<absl::string_view> fields = absl::StrSplit(
      stat.substr(name_end + 1), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (fields.size() <= kResidentPages) return false;
  bool ok = true;
  const auto field = [&](size_t index) {
    double value = 0;
    ok = absl::SimpleAtod(fields[index], &value) && ok;
    return value;
  };
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessUsage parsed;
  parsed.cpu_seconds = (field(kUserTicks) + field(kKernelTicks)) / ticks;
  parsed.start_time_seconds = boot_time_seconds + field(kStartTicks) / ticks;
  parsed.virtual_memory_bytes = field(kVirtualBytes);
  parsed.resident_memory_bytes =
      field(kResidentPages) * static_cast<double>(sysconf(_SC_PAGESIZE));
  parsed.thread_count = field(kThreadCount);
  if (ok) usage = parsed;
  return ok;
}

std::vector<MetricFamily> CollectProcessMetrics() {
  std::vector<MetricFamily> families;
  const auto gauge = [&](const char* name, const char* help, double value) {
    families.push_back(MakeGauges(name, help, {{{}, value}}));
  };
  ProcessUsage usage;
  if (ParseProcessStat(ReadProc("/proc/self/stat"), BootTimeSeconds(), usage)) {
    families.push_back(MakeCounters("process_cpu_seconds_total",
                                    "Processor time in user and kernel mode.",
                                    {{{}, usage.cpu_seconds}}));
    gauge("process_start_time_seconds",
          "When the process started, in seconds since the epoch.",
          usage.start_time_seconds);
    gauge("process_virtual_memory_bytes", "Virtual memory.",
          usage.virtual_memory_bytes);
    gauge("process_resident_memory_bytes", "Resident memory.",
          usage.resident_memory_bytes);
    gauge("process_threads", "Threads.", usage.thread_count);
  }
  const int open_file_count = CountOpenFiles();
  if (open_file_count >= 0) {
    gauge("process_open_fds", "Open file descriptors.", open_file_count);
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    gauge("process_max_fds", "The limit of open file descriptors.",
          static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace atl
