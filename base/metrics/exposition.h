// Metrics as text. Pure; thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "prometheus/metric_family.h"

namespace atl {

enum class ExpositionFormat {
  kPrometheusText,  // text/plain; version=0.0.4; charset=utf-8
  kOpenMetrics,  // application/openmetrics-text; version=1.0.0; charset=utf-8
};

// The format that an HTTP request with this Accept header prefers; Prometheus
// text if it names neither.
ExpositionFormat ChooseFormat(absl::string_view accept);
absl::string_view ContentType(ExpositionFormat format);

// OpenMetrics: https://openmetrics.io. A counter's family loses its `_total`,
// and the text ends with "# EOF".
std::string Expose(const std::vector<prometheus::MetricFamily>& families,
                   ExpositionFormat format);

}  // namespace atl
