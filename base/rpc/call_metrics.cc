#include "base/rpc/call_metrics.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "grpcpp/support/interceptor.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"

namespace atl::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;
using prometheus::Histogram;

// Methods with a label of their own; all further ones are "other".
constexpr size_t kMethodCountMax = 128;

// The buckets of gRPC's proposal A66 for latencies, in seconds.
Histogram::BucketBoundaries LatencyBuckets() {
  return {0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003,
          0.004,   0.005,   0.006,  0.008,  0.01,   0.013,  0.016, 0.02,  0.025,
          0.03,    0.04,    0.05,   0.065,  0.08,   0.1,    0.13,  0.16,  0.2,
          0.25,    0.3,     0.4,    0.5,    0.65,   0.8,    1,     2,     5,
          10,      20,      50,     100};
}

class Families {
 public:
  explicit Families(Metrics& metrics)
      : started_(prometheus::BuildCounter()
                     .Name("grpc_server_call_started_total")
                     .Help("gRPC calls that began.")
                     .Register(metrics.registry())),
        duration_(prometheus::BuildHistogram()
                      .Name("grpc_server_call_duration_seconds")
                      .Help("Time from the begin of a gRPC call to its end.")
                      .Register(metrics.registry())) {}

  // The label for a path like "/atoll.v1.RunService/GetRun".
  std::string MethodLabel(absl::string_view path) {
    absl::ConsumePrefix(&path, "/");
    const std::string method(path);
    MutexLock lock(&mutex_);
    if (methods_.contains(method)) return method;
    if (methods_.size() >= kMethodCountMax) return "other";
    methods_.insert(method);
    return method;
  }

  void Started(const std::string& method) {
    started_.Add({{"grpc_method", method}}).Increment();
  }
  void Ended(const std::string& method, absl::StatusCode status,
             absl::Duration duration) {
    duration_
        .Add({{"grpc_method", method},
              {"grpc_status", absl::StatusCodeToString(status)}},
             LatencyBuckets())
        .Observe(absl::ToDoubleSeconds(duration));
  }

 private:
  prometheus::Family<prometheus::Counter>& started_;
  prometheus::Family<Histogram>& duration_;

  Mutex mutex_;
  absl::flat_hash_set<std::string> methods_ ABSL_GUARDED_BY(mutex_);
};

// One call. gRPC asks it at each step; only the status is of interest.
class CallInterceptor : public Interceptor {
 public:
  CallInterceptor(Families& families, std::string method)
      : families_(families), method_(std::move(method)) {
    families_.Started(method_);
  }
  // gRPC destroys the interceptor when the call is over.
  ~CallInterceptor() override {
    families_.Ended(method_, status_, absl::Now() - begin_);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      status_ = static_cast<absl::StatusCode>(
          methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  Families& families_;
  const std::string method_;
  const absl::Time begin_ = absl::Now();
  // A call that ends without a status was cancelled by its caller.
  absl::StatusCode status_ = absl::StatusCode::kCancelled;
};

class Factory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(Metrics& metrics) : families_(metrics) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new CallInterceptor(families_,
                               families_.MethodLabel(info->method()));
  }

 private:
  Families families_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallMetrics(Metrics& metrics) {
  return std::make_unique<Factory>(metrics);
}

}  // namespace atl::rpc
