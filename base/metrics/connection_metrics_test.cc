#include "base/metrics/connection_metrics.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/net/socket.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"
#include "prometheus/metric_family.h"

namespace atl {
namespace {

TEST(ConnectionMetricsTest, ShowsWhatIsOpenAndWhatWasShut) {
  const auto listener = std::shared_ptr<net::BoundedListener>(
      net::BoundedListener::Listen({.address = {"127.0.0.1", 0},
                                    .limits = {.stranger_max = 2},
                                    .first_bytes_max = absl::Minutes(2)})
          .value());
  listener->Run(
      [](UniqueFd, const net::BoundedListener::Connection&) {});
  const net::WaitLimits limits = {SystemClock().Now() + absl::Minutes(2), -1};
  std::vector<UniqueFd> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(net::Dial(listener->address(), limits).value());
  }
  while (listener->shut_count() == 0) std::this_thread::yield();
  std::string shown;
  for (const prometheus::MetricFamily& family :
       MakeConnectionMetrics(listener)->Collect()) {
    const prometheus::ClientMetric& metric = family.metric[0];
    absl::StrAppend(&shown, family.name, " ", metric.label[0].value, " ",
                    metric.gauge.value + metric.counter.value, "\n");
  }
  const int port = listener->address().port;
  EXPECT_EQ(shown,
            absl::StrCat("atoll_connections ", port, " 2\n",
                         "atoll_shut_connections_total ", port, " 1\n"));
}

}  // namespace
}  // namespace atl
