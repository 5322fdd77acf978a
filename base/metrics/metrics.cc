#include "base/metrics/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/strings/string_view.h"
#include "base/obs/version.h"

namespace atl {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

std::string ReadText(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The fields of /proc/self/stat after the command's name, which may itself have
// spaces: the first is the state, field 3 of proc(5).
std::vector<std::string> StatFields(const char* path) {
  const std::string text = ReadText(path);
  const size_t end = text.rfind(')');
  if (end == std::string::npos || end + 2 > text.size()) return {};
  return absl::StrSplit(text.substr(end + 2), ' ');
}

// The number in field `number` of proc(5); 0 if there is none.
double StatNumber(const std::vector<std::string>& fields, size_t number) {
  double value = 0;
  const size_t index = number - 3;
  return index < fields.size() && absl::SimpleAtod(fields[index], &value)
             ? value
             : 0;
}

// Seconds since the epoch at which the machine started; 0: unknown.
double BootTime() {
  for (absl::string_view line : absl::StrSplit(ReadText("/proc/stat"), '\n')) {
    double value = 0;
    if (absl::ConsumePrefix(&line, "btime ") &&
        absl::SimpleAtod(line, &value)) {
      return value;
    }
  }
  return 0;
}

double OpenFileCount() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  // The iterator's own file does not count.
  return error ? 0 : static_cast<double>(std::distance(files, {})) - 1;
}

double OpenFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<double>(limit.rlim_cur);
}

std::vector<MetricFamily> CollectProcess(bool ready) {
  const std::vector<std::string> stat = StatFields("/proc/self/stat");
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::vector<MetricFamily> families;
  families.push_back(MakeCounters(
      "process_cpu_seconds_total", "Processor time of the process, in seconds.",
      {{{}, (StatNumber(stat, 14) + StatNumber(stat, 15)) / ticks}}));
  families.push_back(
      MakeGauges("process_resident_memory_bytes", "Resident memory, in bytes.",
                 {{{},
                   StatNumber(stat, 24) *
                       static_cast<double>(sysconf(_SC_PAGESIZE))}}));
  families.push_back(MakeGauges("process_virtual_memory_bytes",
                                "Virtual memory, in bytes.",
                                {{{}, StatNumber(stat, 23)}}));
  families.push_back(MakeGauges("process_threads", "Threads of the process.",
                                {{{}, StatNumber(stat, 20)}}));
  families.push_back(MakeGauges("process_open_fds", "Open files and sockets.",
                                {{{}, OpenFileCount()}}));
  families.push_back(MakeGauges("process_max_fds",
                                "Limit of open files and sockets.",
                                {{{}, OpenFileLimit()}}));
  families.push_back(MakeGauges(
      "process_start_time_seconds",
      "When the process started, in seconds since the epoch.",
      {{{}, BootTime() + StatNumber(stat, 22) / ticks}}));
  families.push_back(MakeGauges("atoll_build_info",
                                "1; the label names the program's version.",
                                {{{{"version", kProgramVersion}}, 1}}));
  families.push_back(MakeGauges("atoll_ready", "1 if the program serves.",
                                {{{}, ready ? 1.0 : 0.0}}));
  return families;
}

}  // namespace

Metrics::Metrics() : ready_(absl::UnavailableError("starting")) {}

void Metrics::Add(std::weak_ptr<prometheus::Collectable> source) {
  MutexLock lock(&mutex_);
  sources_.push_back(std::move(source));
}

void Metrics::SetReady(absl::Status ready) {
  MutexLock lock(&mutex_);
  ready_ = std::move(ready);
}

absl::Status Metrics::ready() const {
  MutexLock lock(&mutex_);
  return ready_;
}

std::vector<MetricFamily> Metrics::Collect() const {
  std::vector<std::shared_ptr<prometheus::Collectable>> sources;
  {
    MutexLock lock(&mutex_);
    for (const auto& source : sources_) {
      if (auto alive = source.lock()) sources.push_back(std::move(alive));
    }
  }
  std::map<std::string, MetricFamily> by_name;
  const auto add = [&](std::vector<MetricFamily> families) {
    for (MetricFamily& family : families) {
      auto [place, is_new] = by_name.try_emplace(family.name, MetricFamily());
      if (is_new) {
        place->second = std::move(family);
      } else {
        std::move(family.metric.begin(), family.metric.end(),
                  std::back_inserter(place->second.metric));
      }
    }
  };
  add(CollectProcess(ready().ok()));
  add(registry_.Collect());
  for (const auto& source : sources) add(source->Collect());
  std::vector<MetricFamily> families;
  for (auto& [name, family] : by_name) families.push_back(std::move(family));
  return families;
}

MetricFamily MakeGauges(std::string name, std::string help,
                        std::vector<Sample> samples) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = MetricType::Gauge;
  for (Sample& sample : samples) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = std::move(sample.labels);
    metric.gauge.value = sample.value;
  }
  return family;
}

MetricFamily MakeCounters(std::string name, std::string help,
                          std::vector<Sample> samples) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = MetricType::Counter;
  for (Sample& sample : samples) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = std::move(sample.labels);
    metric.counter.value = sample.value;
  }
  return family;
}

}  // namespace atl
