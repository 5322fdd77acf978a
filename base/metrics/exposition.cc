#include "base/metrics/exposition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace atl {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr absl::string_view kTotal = "_total";

// The shortest text that reads back as `value`, in every locale.
std::string FormatNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

// A bound in `le`. OpenMetrics wants a float: 1.0, not 1.
std::string FormatBound(double value) {
  std::string text = FormatNumber(value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// Programs have metrics of these types alone.
absl::string_view TypeName(MetricType type) {
  return type == MetricType::Counter ? "counter"
         : type == MetricType::Gauge ? "gauge"
                                     : "histogram";
}

std::string EscapeLabel(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}});
}

// One format's text of families.
class Writer {
 public:
  explicit Writer(ExpositionFormat format)
      : open_metrics_(format == ExpositionFormat::kOpenMetrics) {}

  void Write(const MetricFamily& family) {
    WriteHead(family);
    for (const ClientMetric& metric : family.metric) {
      WriteMetric(family, metric);
    }
  }

  std::string Finish() && {
    if (open_metrics_) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  void WriteHead(const MetricFamily& family) {
    absl::string_view name = family.name;
    if (open_metrics_ && family.type == MetricType::Counter) {
      absl::ConsumeSuffix(&name, kTotal);
    }
    const std::string help =
        open_metrics_
            ? EscapeLabel(family.help)
            : absl::StrReplaceAll(family.help, {{"\\", "\\\\"}, {"\n", "\\n"}});
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ",
                    TypeName(family.type), "\n");
    if (!open_metrics_) return;
    for (const absl::string_view unit : {"seconds", "bytes"}) {
      if (absl::EndsWith(name, absl::StrCat("_", unit))) {
        absl::StrAppend(&text_, "# UNIT ", name, " ", unit, "\n");
      }
    }
  }

  void WriteMetric(const MetricFamily& family, const ClientMetric& metric) {
    if (family.type == MetricType::Counter) {
      WriteCounter(family.name, metric);
    } else if (family.type == MetricType::Gauge) {
      WriteSample(family.name, metric, FormatNumber(metric.gauge.value));
    } else {
      WriteHistogram(family.name, metric);
    }
  }

  void WriteCounter(absl::string_view name, const ClientMetric& metric) {
    // In OpenMetrics every counter's sample ends so.
    const bool add = open_metrics_ && !absl::EndsWith(name, kTotal);
    WriteSample(absl::StrCat(name, add ? kTotal : ""), metric,
                FormatNumber(metric.counter.value));
  }

  void WriteHistogram(absl::string_view name, const ClientMetric& metric) {
    const ClientMetric::Histogram& histogram = metric.histogram;
    const std::string bucket_name = absl::StrCat(name, "_bucket");
    bool has_infinity = false;
    for (const ClientMetric::Bucket& bucket : histogram.bucket) {
      has_infinity = has_infinity || std::isinf(bucket.upper_bound);
      WriteSample(bucket_name, metric, absl::StrCat(bucket.cumulative_count),
                  "le", FormatBound(bucket.upper_bound));
    }
    const std::string count = absl::StrCat(histogram.sample_count);
    if (!has_infinity) WriteSample(bucket_name, metric, count, "le", "+Inf");
    WriteSample(absl::StrCat(name, "_count"), metric, count);
    WriteSample(absl::StrCat(name, "_sum"), metric,
                FormatNumber(histogram.sample_sum));
  }

  // `last_label` comes after the metric's own labels; empty: none.
  void WriteSample(absl::string_view name, const ClientMetric& metric,
                   absl::string_view value, absl::string_view last_label = "",
                   absl::string_view last_value = "") {
    absl::StrAppend(&text_, name);
    char before = '{';
    const auto write_label = [&](absl::string_view label,
                                 absl::string_view label_value) {
      text_ += before;
      before = ',';
      absl::StrAppend(&text_, label, "=\"", EscapeLabel(label_value), "\"");
    };
    for (const auto& label : metric.label) write_label(label.name, label.value);
    if (!last_label.empty()) write_label(last_label, last_value);
    if (before == ',') text_ += '}';
    absl::StrAppend(&text_, " ", value, "\n");
  }

  const bool open_metrics_;
  std::string text_;
};

}  // namespace

ExpositionFormat ChooseFormat(absl::string_view accept) {
  double text = 0;
  double open_metrics = 0;
  for (const absl::string_view range : absl::StrSplit(accept, ',')) {
    const std::vector<std::string> parts =
        absl::StrSplit(absl::AsciiStrToLower(range), ';');
    double quality = 1;
    bool known_version = true;
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::pair<absl::string_view, absl::string_view> parameter =
          absl::StrSplit(absl::StripAsciiWhitespace(parts[i]),
                         absl::MaxSplits('=', 1));
      if (parameter.first == "q" &&
          !absl::SimpleAtod(parameter.second, &quality)) {
        quality = 0;
      }
      if (parameter.first == "version") {
        known_version = parameter.second == "1.0.0";
      }
    }
    const absl::string_view type = absl::StripAsciiWhitespace(parts[0]);
    if (type == "text/plain") text = std::max(text, quality);
    if (type == "application/openmetrics-text" && known_version) {
      open_metrics = std::max(open_metrics, quality);
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
  Writer writer(format);
  for (const MetricFamily& family : families) writer.Write(family);
  return std::move(writer).Finish();
}

}  // namespace atl
