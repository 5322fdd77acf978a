#include "worker/engine/parallel/testing/fake_device_collective.h"

#include <string>
#include <utility>

#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

using collective::Call;
using collective::Collective;
using collective::Pending;
using collective::Transfer;

class FakeDeviceCollective final : public Collective {
 public:
  // `own` is `inner`, or null if the caller owns it.
  FakeDeviceCollective(Collective& inner, std::unique_ptr<Collective> own,
                       const FakeDeviceMemory& memory)
      : own_(std::move(own)), inner_(inner), memory_(memory) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }

  absl::Status Run(const Call& call) override {
    return inner_.Run(Contents(call));
  }
  Pending Start(Call call) override {
    return inner_.Start(Contents(std::move(call)));
  }
  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Collective> group,
                     inner_.Split(color, name));
    if (group == nullptr) return group;
    Collective& made = *group;
    return std::make_unique<FakeDeviceCollective>(made, std::move(group),
                                                  memory_);
  }
  void Abort(absl::string_view reason) override { inner_.Abort(reason); }
  absl::Status status() const override { return inner_.status(); }

 private:
  Call Contents(Call call) const {
    call.in = memory_.Contents(call.in);
    call.out = memory_.Contents(call.out);
    for (Transfer& transfer : call.transfers) {
      transfer.data = memory_.Contents(transfer.data);
    }
    return call;
  }

  const std::unique_ptr<Collective> own_;
  Collective& inner_;
  const FakeDeviceMemory& memory_;
};

}  // namespace

std::unique_ptr<Collective> MakeFakeDeviceCollective(
    Collective& inner, const FakeDeviceMemory& memory) {
  return std::make_unique<FakeDeviceCollective>(inner, nullptr, memory);
}

}  // namespace atl::engine
