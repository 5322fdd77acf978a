#include "worker/island/island_metrics.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "base/codec/codec.h"
#include "base/layout/exchange.h"
#include "base/metrics/common_metrics.h"
#include "base/time/proto_time.h"

namespace atl::worker {
namespace {

prometheus::Family<prometheus::Gauge>& Gauges(Metrics& metrics,
                                              const std::string& name,
                                              const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(
      metrics.registry());
}

prometheus::Family<prometheus::Counter>& Counters(Metrics& metrics,
                                                  const std::string& name,
                                                  const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(
      metrics.registry());
}

prometheus::Labels TransferLabels(const std::string& run_id,
                                  const codec::Codec& codec) {
  return {{"run", run_id}, {"codec", std::string(CodecName(codec.id()))}};
}

// Adds what `count` has grown by since `known`.
void Grow(int64_t count, int64_t& known, prometheus::Counter& counter) {
  if (count <= known) return;
  counter.Increment(static_cast<double>(count - known));
  known = count;
}

}  // namespace

IslandMetrics::IslandMetrics(Metrics& metrics, std::string run_id,
                             const v1::RunSpec& spec)
    : run_id_(std::move(run_id)),
      train_loss_(Gauges(metrics, "atoll_train_loss",
                         "Training loss of the last inner step, nats a "
                         "token.")),
      validation_loss_(Gauges(metrics, "atoll_validation_loss",
                              "Held-out loss of this island's newest "
                              "evaluation, nats a token.")),
      round_duration_(
          prometheus::BuildHistogram()
              .Name("atoll_round_duration_seconds")
              .Help("Duration of a phase of this island's synchronizations.")
              .Register(metrics.registry())),
      tokens_per_second_(Gauges(metrics, "atoll_tokens_per_second",
                                "Training speed over the last steps, without "
                                "waits.")
                             .Add({{"run", run_id_}})),
      trained_tokens_(Counters(metrics, "atoll_trained_tokens_total",
                               "Tokens that inner steps trained on.")
                          .Add({{"run", run_id_}})),
      push_bytes_(Counters(metrics, "atoll_push_bytes_total",
                           "Payload pushed to the servers.")
                      .Add(TransferLabels(run_id_, UpCodec(spec)))),
      pull_bytes_(Counters(metrics, "atoll_pull_bytes_total",
                           "Payload pulled from the servers.")
                      .Add(TransferLabels(run_id_, DownCodec(spec)))) {}

void IslandMetrics::Update(const IslandProgress& progress) {
  if (progress.loss.has_value()) {
    train_loss_.Add({{"run", run_id_}}).Set(*progress.loss);
  }
  if (progress.evaluation.has_value()) {
    validation_loss_.Add({{"run", run_id_}}).Set(progress.evaluation->loss());
  }
  tokens_per_second_.Set(progress.tokens_per_second);
  Grow(progress.token_count, token_count_, trained_tokens_);
  Grow(progress.sent_bytes, sent_bytes_, push_bytes_);
  Grow(progress.received_bytes, received_bytes_, pull_bytes_);
}

void IslandMetrics::Add(const v1::SyncPhases& sync) {
  for (const v1::PhaseTime& time : sync.phases()) {
    const std::string phase = absl::AsciiStrToLower(
        absl::StripPrefix(v1::Phase_Name(time.phase()), "PHASE_"));
    round_duration_
        .Add({{"run", run_id_}, {"phase", phase}}, RoundDurationBuckets())
        .Observe(absl::ToDoubleSeconds(FromProto(time.duration())));
  }
}

}  // namespace atl::worker
