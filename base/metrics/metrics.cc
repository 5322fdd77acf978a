#include "base/metrics/metrics.h"

#include <algorithm>
#include <utility>

#include "base/metrics/process_metrics.h"
#include "base/obs/version.h"

namespace atl {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

void MoveTo(std::vector<MetricFamily>& families,
            std::vector<MetricFamily> more) {
  std::move(more.begin(), more.end(), std::back_inserter(families));
}

// `families` must be sorted by name. A family whose type differs from the first
// of its name is dropped: no scraper accepts it.
std::vector<MetricFamily> MergeEqualNames(std::vector<MetricFamily> families) {
  std::vector<MetricFamily> merged;
  for (MetricFamily& family : families) {
    if (merged.empty() || merged.back().name != family.name) {
      merged.push_back(std::move(family));
    } else if (merged.back().type == family.type) {
      std::move(family.metric.begin(), family.metric.end(),
                std::back_inserter(merged.back().metric));
    }
  }
  return merged;
}

MetricFamily MakeFamily(MetricType type, std::string name, std::string help,
                        std::vector<Sample> samples) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  for (Sample& sample : samples) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = std::move(sample.labels);
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        sample.value;
  }
  return family;
}

}  // namespace

Metrics::Metrics() : ready_(absl::UnavailableError("starting")) {}

void Metrics::Add(std::weak_ptr<prometheus::Collectable> source) {
  MutexLock lock(&mutex_);
  std::erase_if(sources_, [](const auto& held) { return held.expired(); });
  sources_.push_back(std::move(source));
}

void Metrics::SetReady(absl::Status ready) {
  MutexLock lock(&mutex_);
  ready_ = std::move(ready);
}

void Metrics::SetFault(absl::Status fault) {
  MutexLock lock(&mutex_);
  fault_ = std::move(fault);
}

absl::Status Metrics::ready() const {
  MutexLock lock(&mutex_);
  return ready_.ok() ? fault_ : ready_;
}

std::vector<MetricFamily> Metrics::Collect() const {
  std::vector<MetricFamily> families = registry_.Collect();
  MoveTo(families, CollectProcessMetrics());
  families.push_back(MakeGauges("atoll_build_info",
                                "The program's version, as a label; always 1.",
                                {{{{"version", kProgramVersion}}, 1}}));
  families.push_back(MakeGauges(
      "atoll_ready", "1 if the program has recovered and serves, 0 if not.",
      {{{}, ready().ok() ? 1.0 : 0.0}}));
  std::vector<std::weak_ptr<prometheus::Collectable>> sources;
  {
    MutexLock lock(&mutex_);
    sources = sources_;
  }
  for (const auto& weak : sources) {
    if (const auto source = weak.lock()) MoveTo(families, source->Collect());
  }
  std::erase_if(families,
                [](const auto& family) { return family.metric.empty(); });
  std::stable_sort(
      families.begin(), families.end(),
      [](const auto& a, const auto& b) { return a.name < b.name; });
  return MergeEqualNames(std::move(families));
}

MetricFamily MakeGauges(std::string name, std::string help,
                        std::vector<Sample> samples) {
  return MakeFamily(MetricType::Gauge, std::move(name), std::move(help),
                    std::move(samples));
}

MetricFamily MakeCounters(std::string name, std::string help,
                          std::vector<Sample> samples) {
  return MakeFamily(MetricType::Counter, std::move(name), std::move(help),
                    std::move(samples));
}

}  // namespace atl
