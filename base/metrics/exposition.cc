#include "base/metrics/exposition.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace atl {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr absl::string_view kOpenMetricsType = "application/openmetrics-text";

// The shortest text that reads back as `value`.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

// A help text; in OpenMetrics a quote is escaped, too.
std::string EscapeHelp(const std::string& text, bool open_metrics) {
  std::string escaped =
      absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}});
  return open_metrics ? absl::StrReplaceAll(escaped, {{"\"", "\\\""}})
                      : escaped;
}

std::string EscapeLabel(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}});
}

class Writer {
 public:
  explicit Writer(bool open_metrics) : open_metrics_(open_metrics) {}

  void Add(const MetricFamily& family) {
    if (family.metric.empty()) return;
    AddHead(family);
    for (const ClientMetric& metric : family.metric) {
      switch (family.type) {
        case MetricType::Counter:
          AddSample(SampleName(family), metric, "", metric.counter.value);
          break;
        case MetricType::Histogram:
          AddHistogram(family.name, metric);
          break;
        case MetricType::Summary:
          AddSummary(family.name, metric);
          break;
        case MetricType::Gauge:
          AddSample(family.name, metric, "", metric.gauge.value);
          break;
        case MetricType::Untyped:
          AddSample(family.name, metric, "", metric.untyped.value);
          break;
      }
    }
  }

  std::string Finish() {
    if (open_metrics_) absl::StrAppend(&text_, "# EOF\n");
    return std::move(text_);
  }

 private:
  // OpenMetrics names a counter's family without the suffix of its samples.
  std::string FamilyName(const MetricFamily& family) const {
    if (!open_metrics_ || family.type != MetricType::Counter) {
      return family.name;
    }
    return std::string(absl::StripSuffix(family.name, "_total"));
  }

  std::string SampleName(const MetricFamily& family) const {
    return open_metrics_ ? absl::StrCat(FamilyName(family), "_total")
                         : family.name;
  }

  absl::string_view TypeName(MetricType type) const {
    switch (type) {
      case MetricType::Counter:
        return "counter";
      case MetricType::Gauge:
        return "gauge";
      case MetricType::Summary:
        return "summary";
      case MetricType::Histogram:
        return "histogram";
      case MetricType::Untyped:
        break;
    }
    return open_metrics_ ? "unknown" : "untyped";
  }

  void AddHead(const MetricFamily& family) {
    const std::string name = FamilyName(family);
    absl::StrAppend(&text_, "# TYPE ", name, " ", TypeName(family.type), "\n");
    if (open_metrics_) {
      for (const absl::string_view unit : {"seconds", "bytes"}) {
        if (absl::EndsWith(name, absl::StrCat("_", unit))) {
          absl::StrAppend(&text_, "# UNIT ", name, " ", unit, "\n");
        }
      }
    }
    absl::StrAppend(&text_, "# HELP ", name, " ",
                    EscapeHelp(family.help, open_metrics_), "\n");
  }

  // `label`: one more label as text, or empty.
  void AddSample(const std::string& name, const ClientMetric& metric,
                 const std::string& label, double value) {
    std::vector<std::string> labels;
    for (const ClientMetric::Label& each : metric.label) {
      labels.push_back(
          absl::StrCat(each.name, "=\"", EscapeLabel(each.value), "\""));
    }
    if (!label.empty()) labels.push_back(label);
    absl::StrAppend(&text_, name);
    if (!labels.empty()) {
      absl::StrAppend(&text_, "{", absl::StrJoin(labels, ","), "}");
    }
    absl::StrAppend(&text_, " ", Number(value), "\n");
  }

  void AddHistogram(const std::string& name, const ClientMetric& metric) {
    const auto& histogram = metric.histogram;
    bool has_last = false;
    for (const auto& bucket : histogram.bucket) {
      has_last = has_last || std::isinf(bucket.upper_bound);
      AddSample(absl::StrCat(name, "_bucket"), metric,
                absl::StrCat("le=\"", Number(bucket.upper_bound), "\""),
                static_cast<double>(bucket.cumulative_count));
    }
    const double count = static_cast<double>(histogram.sample_count);
    if (!has_last) {
      AddSample(absl::StrCat(name, "_bucket"), metric, "le=\"+Inf\"", count);
    }
    AddSample(absl::StrCat(name, "_sum"), metric, "", histogram.sample_sum);
    AddSample(absl::StrCat(name, "_count"), metric, "", count);
  }

  void AddSummary(const std::string& name, const ClientMetric& metric) {
    for (const auto& quantile : metric.summary.quantile) {
      AddSample(name, metric,
                absl::StrCat("quantile=\"", Number(quantile.quantile), "\""),
                quantile.value);
    }
    AddSample(absl::StrCat(name, "_sum"), metric, "",
              metric.summary.sample_sum);
    AddSample(absl::StrCat(name, "_count"), metric, "",
              static_cast<double>(metric.summary.sample_count));
  }

  const bool open_metrics_;
  std::string text_;
};

// The weight of a media range like "text/plain;version=0.0.4;q=0.3", in [0, 1].
double Weight(absl::string_view range) {
  for (absl::string_view part : absl::StrSplit(range, ';')) {
    part = absl::StripAsciiWhitespace(part);
    double weight = 0;
    if (absl::ConsumePrefix(&part, "q=") && absl::SimpleAtod(part, &weight)) {
      return weight;
    }
  }
  return 1;
}

}  // namespace

ExpositionFormat ChooseFormat(absl::string_view accept) {
  double open_metrics = 0;
  double text = 0;
  for (const absl::string_view range : absl::StrSplit(accept, ',')) {
    const std::string type =
        absl::AsciiStrToLower(absl::StripAsciiWhitespace(range));
    if (absl::StartsWith(type, kOpenMetricsType)) {
      open_metrics = std::max(open_metrics, Weight(type));
    } else if (absl::StartsWith(type, "text/plain")) {
      text = std::max(text, Weight(type));
    }
  }
  return open_metrics > 0 && open_metrics >= text
             ? ExpositionFormat::kOpenMetrics
             : ExpositionFormat::kPrometheusText;
}

absl::string_view ContentType(ExpositionFormat format) {
  return format == ExpositionFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string Expose(const std::vector<MetricFamily>& families,
                   ExpositionFormat format) {
  Writer writer(format == ExpositionFormat::kOpenMetrics);
  for (const MetricFamily& family : families) writer.Add(family);
  return writer.Finish();
}

}  // namespace atl
