#include "base/rpc/call_metrics.h"

#include <array>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"

namespace atl::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;

// By grpc::StatusCode.
constexpr std::array<const char *, 17> kStatusNames = {"OK",
                                                       "CANCELLED",
                                                       "UNKNOWN",
                                                       "INVALID_ARGUMENT",
                                                       "DEADLINE_EXCEEDED",
                                                       "NOT_FOUND",
                                                       "ALREADY_EXISTS",
                                                       "PERMISSION_DENIED",
                                                       "RESOURCE_EXHAUSTED",
                                                       "FAILED_PRECONDITION",
                                                       "ABORTED",
                                                       "OUT_OF_RANGE",
                                                       "UNIMPLEMENTED",
                                                       "INTERNAL",
                                                       "UNAVAILABLE",
                                                       "DATA_LOSS",
                                                       "UNAUTHENTICATED"};

// Seconds, as A66 has them.
const Histogram::BucketBoundaries &LatencyBuckets() {
  static const auto &buckets = *new Histogram::BucketBoundaries{
      0,     0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002,
      0.003, 0.004,   0.005,   0.006,  0.008,  0.01,   0.013,  0.016, 0.02,
      0.025, 0.03,    0.04,    0.05,   0.065,  0.08,   0.1,    0.13,  0.16,
      0.2,   0.25,    0.3,     0.4,    0.5,    0.65,   0.8,    1,     2,
      5,     10,      20,      50,     100};
  return buckets;
}

// The label for the call's method.
//
// gRPC takes the name from the service's own table if the method is registered.
// Otherwise it is "unknown" where synchronous handlers exist, and what the peer
// sent where a generic handler answers, which has a context of its own type.
std::string MethodLabel(ServerRpcInfo &info) {
  absl::string_view name = info.method();
  const bool is_generic = dynamic_cast<grpc::GenericCallbackServerContext *>(
                              info.server_context()) != nullptr;
  if (is_generic || !absl::ConsumePrefix(&name, "/")) return "other";
  return std::string(name);
}

// The metrics of one method.
class Method {
 public:
  Method(std::string label, Family<Counter> &started,
         Family<Histogram> &durations)
      : label_(std::move(label)),
        durations_(durations),
        started_(started.Add({{"grpc_method", label_}})) {}

  void CountStart() { started_.Increment(); }

  void CountEnd(int status, absl::Duration duration) {
    if (status < 0 || status >= static_cast<int>(kStatusNames.size())) {
      status = grpc::StatusCode::UNKNOWN;
    }
    durations_
        .Add({{"grpc_method", label_}, {"grpc_status", kStatusNames[status]}},
             LatencyBuckets())
        .Observe(absl::ToDoubleSeconds(duration));
  }

 private:
  const std::string label_;
  Family<Histogram> &durations_;
  Counter &started_;
};

// One call. gRPC destroys it with the call.
class CallCounter : public grpc::experimental::Interceptor {
 public:
  explicit CallCounter(Method &method) : method_(method) {
    method_.CountStart();
  }

  // A handler that ends without a status belongs to a call that is gone.
  ~CallCounter() override { End(grpc::StatusCode::CANCELLED); }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods *methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      End(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  void End(int status) {
    if (ended_) return;
    ended_ = true;
    method_.CountEnd(status, SystemClock().Now() - start_);
  }

  Method &method_;
  const absl::Time start_ = SystemClock().Now();
  bool ended_ = false;
};

class CallCounterFactory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounterFactory(Metrics &metrics)
      : started_(prometheus::BuildCounter()
                     .Name("grpc_server_call_started_total")
                     .Help("Calls that began.")
                     .Register(metrics.registry())),
        durations_(prometheus::BuildHistogram()
                       .Name("grpc_server_call_duration_seconds")
                       .Help("From a call's headers to its status.")
                       .Register(metrics.registry())) {}

  grpc::experimental::Interceptor *CreateServerInterceptor(
      ServerRpcInfo *info) override {
    return new CallCounter(FindMethod(MethodLabel(*info)));
  }

 private:
  Method &FindMethod(const std::string &label) {
    MutexLock lock(&mutex_);
    std::unique_ptr<Method> &method = methods_[label];
    if (method == nullptr) {
      method = std::make_unique<Method>(label, started_, durations_);
    }
    return *method;
  }

  Family<Counter> &started_;
  Family<Histogram> &durations_;

  Mutex mutex_;
  absl::flat_hash_map<std::string, std::unique_ptr<Method>> methods_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallMetrics(Metrics &metrics) {
  return std::make_unique<CallCounterFactory>(metrics);
}

}  // namespace atl::rpc
