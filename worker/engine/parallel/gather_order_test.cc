// Parameters are gathered ahead: a trace of the order in which a ZeRO-3 rank
// starts gathers and computes.
//
//   gU   starts to gather unit U    cU   begins to compute with unit U
//
// In a Llama of 3 blocks, unit 0 is the embedding and unit 4 the head. The
// embedding's gradient reads no parameters, so the last gather has no c.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/ranks.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/parallel/rank_trainer.h"

namespace atl::engine {
namespace {

using collective::Call;
using collective::CallKind;
using collective::Collective;
using collective::LocalWorld;
using collective::Pending;

constexpr int64_t kLength = 8;

class Trace {
 public:
  // A shard at `from` is gathered into [to, to + bytes), in unit order.
  void Gather(const void* from, const void* to, int64_t bytes) {
    slots_[static_cast<const char*>(to)] = {bytes, from};
    shards_.emplace(from, 0);
    int unit = 0;
    for (auto& [shard, number] : shards_) number = unit++;
    events_.push_back({true, from});
    last_read_ = {};
  }
  void Read(const void* parameter) {
    const char* const at = static_cast<const char*>(parameter);
    auto slot = slots_.upper_bound(at);
    if (slot == slots_.begin()) return;
    --slot;
    if (at - slot->first >= slot->second.bytes) return;  // No unit's.
    const Event event{false, slot->second.shard};
    if (event != last_read_) events_.push_back(event);
    last_read_ = event;
  }

  // The events since the last call. Requires that all units have been gathered.
  std::string Take() {
    std::string text;
    for (const auto& [is_gather, shard] : events_) {
      absl::StrAppend(&text, text.empty() ? "" : " ", is_gather ? "g" : "c",
                      shards_.at(shard));
    }
    events_.clear();
    last_read_ = {};
    return text;
  }

 private:
  struct Slot {
    int64_t bytes = 0;
    const void* shard = nullptr;  // Of its unit.
  };
  using Event = std::pair<bool, const void*>;
  std::map<const char*, Slot> slots_;
  std::map<const void*, int> shards_;  // To unit numbers.
  std::vector<Event> events_;
  Event last_read_;
};

class TracedCollective final : public Collective {
 public:
  TracedCollective(std::unique_ptr<Collective> inner, Trace& trace)
      : inner_(std::move(inner)), trace_(trace) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  absl::Status Run(const Call& call) override { return inner_->Run(call); }
  Pending Start(Call call) override {
    if (call.kind == CallKind::kAllGather) {
      const auto bytes = static_cast<int64_t>(ElementBytes(call.type));
      trace_.Gather(call.in, call.out, size() * call.count * bytes);
    }
    return inner_->Start(std::move(call));
  }
  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override {
    auto group = inner_->Split(color, name);
    if (!group.ok() || *group == nullptr) return group;
    return std::make_unique<TracedCollective>(*std::move(group), trace_);
  }
  void Abort(absl::string_view reason) override { inner_->Abort(reason); }

 private:
  const std::unique_ptr<Collective> inner_;
  Trace& trace_;
};

// In each of a unit's passes, one of these operations reads a parameter.
class TracedOps final : public PlainOps<double> {
 public:
  explicit TracedOps(Trace& trace) : trace_(trace) {}

  void Linear(int64_t m, int64_t n, int64_t k, const double* x, const double* w,
              double* y) override {
    trace_.Read(w);
    PlainOps::Linear(m, n, k, x, w, y);
  }
  void LinearBackwardInput(int64_t m, int64_t n, int64_t k, const double* dy,
                           const double* w, double* dx) override {
    trace_.Read(w);
    PlainOps::LinearBackwardInput(m, n, k, dy, w, dx);
  }
  void AddRmsNorm(int64_t rows, int64_t channels, double eps, const double* x,
                  const double* delta, const double* gain, double* sum,
                  double* y, double* rstd) override {
    trace_.Read(gain);
    PlainOps::AddRmsNorm(rows, channels, eps, x, delta, gain, sum, y, rstd);
  }
  void Embedding(int64_t rows, int64_t begin, int64_t count, int64_t channels,
                 const int32_t* tokens, const double* table,
                 double* out) override {
    trace_.Read(table);
    PlainOps::Embedding(rows, begin, count, channels, tokens, table, out);
  }

 private:
  Trace& trace_;
};

struct Traces {
  std::string step, evaluation;
};

// Traces of rank 0 of two ranks.
Traces RecordTraces(bool tied) {
  const RankTrainerOptions options{
      .model = {.vocab_size = 29,
                .hidden_size = 16,
                .intermediate_size = 24,
                .layer_count = 3,
                .head_count = 4,
                .kv_head_count = 2,
                .sequence_length_max = kLength,
                .tie_embeddings = tied},
      .mesh = {.mesh = *Mesh::Parse("dp_shard=2"),
               .sharding = ShardingMode::kZero3},
      .batch_size = 2,
      .sequence_length = kLength};
  const ParameterLayout layout = MakeParameterLayout(options.model);
  const std::vector<double> start(layout.element_count, 0.1);
  const std::vector<int32_t> tokens(2 * kLength, 3);
  Traces traces[2];
  LocalWorld world(2);
  auto members = world.TakeRanks();
  collective::RunRanks(
      members, [&](int r, std::unique_ptr<Collective>& member) {
        Trace trace;
        TracedOps ops(trace);
        TracedCollective traced(std::move(member), trace);
        auto made = RankTrainer<double>::Create(options, layout, traced, ops);
        ASSERT_TRUE(made.ok()) << made.status();
        RankTrainer<double>& trainer = **made;
        ASSERT_TRUE(
            trainer.ScatterParameters(start.data() + trainer.held().begin)
                .ok());
        ASSERT_TRUE(trainer.Step(tokens.data(), tokens.data(), 2, 0.01).ok());
        traces[r].step = trace.Take();
        ASSERT_TRUE(
            trainer.EvaluateLoss(tokens.data(), tokens.data(), 2).ok());
        traces[r].evaluation = trace.Take();
      });
  EXPECT_EQ(traces[0].step, traces[1].step);
  EXPECT_EQ(traces[0].evaluation, traces[1].evaluation);
  return traces[0];
}

TEST(GatherOrderTest, TheNextUnitIsOnItsWayBeforeAUnitComputes) {
  const Traces traces = RecordTraces(/*tied=*/false);
  EXPECT_EQ(traces.step,
            "g0 g1 c0 g2 c1 g3 c2 g4 c3 c4 "
            "g3 c4 g2 c3 g1 c2 g0 c1");
  EXPECT_EQ(traces.evaluation, "g0 g1 c0 g2 c1 g3 c2 g4 c3 c4");
}

TEST(GatherOrderTest, ATiedTableIsOnItsWayBeforeTheBlockBelowTheHeadComputes) {
  const Traces traces = RecordTraces(/*tied=*/true);
  // Without logits the head's forward pass does not read the table.
  EXPECT_EQ(traces.step,
            "g0 g1 c0 g2 c1 g3 c2 g4 c3 g0 c4 "
            "g3 c0 g2 c3 g1 c2 g0 c1");
  EXPECT_EQ(traces.evaluation, "g0 g1 c0 g2 c1 g3 c2 g4 g0 c3 c4 c0");
}

}  // namespace
}  // namespace atl::engine
