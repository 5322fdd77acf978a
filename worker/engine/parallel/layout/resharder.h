// Moves parameters and moments between the ranks' shards and the processes'
// held parts (ReshardPlan). Thread-compatible. All ranks of the world make the
// same calls. Buffers for the exchange are as large as one unit, in memory of
// the operations. Held parts, and the arrays of runs, are in host memory.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collective/collective.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/parallel/layout/reshard_plan.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

template <typename T>
class Resharder {
 public:
  // `world` and `ops` outlive it. RESOURCE_EXHAUSTED: no memory.
  static absl::StatusOr<std::unique_ptr<Resharder>> Create(
      ReshardPlan plan, collective::Collective& world, BasicOps<T>& ops);

  const ParameterSpan& held() const { return plan_.held(); }

  // Sends `held` [held().size()] of all ranks to their shards. `write` stores a
  // run of this rank's shards.
  using Write =
      absl::FunctionRef<absl::Status(const ReshardPlan::Run&, const T* in)>;
  // `elements` as in ReshardPlan::Part; nullopt: all.
  using Elements = std::optional<absl::Span<const ParameterSpan>>;
  absl::Status Scatter(const T* held, const Elements& elements, Write write);

  // The reverse: each element comes from the rank that counts it.
  using Read = absl::FunctionRef<absl::Status(const ReshardPlan::Run&, T* out)>;
  absl::Status Gather(Read read, const Elements& elements, T* held);

 private:
  Resharder(ReshardPlan plan, collective::Collective& world, BasicOps<T>& ops)
      : plan_(std::move(plan)), world_(world), ops_(ops) {}

  ReshardPlan PlanFor(const Elements& elements) const;
  // Sends `send_counts` of host_sent_ and receives into host_received_.
  absl::Status Exchange(std::vector<int64_t> send_counts,
                        std::vector<int64_t> receive_counts);

  const ReshardPlan plan_;
  collective::Collective& world_;
  BasicOps<T>& ops_;
  Arena arena_, host_arena_;
  T* sent_ = nullptr;
  T* received_ = nullptr;
  // The same buffers for the host; others with a device.
  T* host_sent_ = nullptr;
  T* host_received_ = nullptr;
};

extern template class Resharder<float>;
extern template class Resharder<double>;

}  // namespace atl::engine
