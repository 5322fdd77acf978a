// The metrics of a port's connections:
//
//   atoll_connections{port}             connections that are open
//   atoll_shut_connections_total{port}  connections that the port closed because
//                                       they sent nothing, were too old, or too
//                                       many were open

#pragma once

#include <memory>

#include "base/net/bounded_listener.h"
#include "prometheus/collectable.h"

namespace atl {

// For Metrics::Add. The listener's owner must stop it; a scrape may destroy it.
std::shared_ptr<prometheus::Collectable> MakeConnectionMetrics(
    std::shared_ptr<const net::BoundedListener> listener);

}  // namespace atl
