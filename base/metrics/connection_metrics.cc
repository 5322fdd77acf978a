#include "base/metrics/connection_metrics.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/metrics/metrics.h"

namespace atl {
namespace {

class ConnectionMetrics : public prometheus::Collectable {
 public:
  explicit ConnectionMetrics(
      std::shared_ptr<const net::BoundedListener> listener)
      : listener_(std::move(listener)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::vector<prometheus::ClientMetric::Label> port = {
        {"port", absl::StrCat(listener_->address().port)}};
    return {MakeGauges("atoll_connections",
                       "Open connections of a listening port.",
                       {{port, static_cast<double>(listener_->count())}}),
            MakeCounters("atoll_shut_connections_total",
                         "Connections that a listening port closed: they sent "
                         "nothing, were too old, or too many were open.",
                         {{port, static_cast<double>(
                                     listener_->shut_count())}})};
  }

 private:
  const std::shared_ptr<const net::BoundedListener> listener_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeConnectionMetrics(
    std::shared_ptr<const net::BoundedListener> listener) {
  return std::make_shared<ConnectionMetrics>(std::move(listener));
}

}  // namespace atl
