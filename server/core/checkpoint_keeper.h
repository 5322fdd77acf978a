// Decides which checkpoint manifests a shard writes and deletes.
//
// A checkpoint (a PIN that does not end) is durable on a shard when the shard's
// versions of its cut are durable, and so is a manifest that names them. A
// manifest is deleted before the versions that it names are released.
// Pure: no thread, no clock, no I/O. Thread-compatible.
//
//   missing --versions persisted--> writing --OnWritten--> durable
//   writing --OnFailed--> missing, or broken permanently
//   any but writing --its PIN is gone--> dropping --OnDropped--> forgotten
//   dropping --OnFailed--> as before

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::server {

struct ManifestFact {
  std::string pin_id;
  int64_t commit_seq = 0;
  // By fragment: the versions that it names, where the shard has blocks.
  std::map<int32_t, int64_t> versions;
  // Why those versions cannot be read; empty if they can.
  std::string fault;
};

class CheckpointKeeper {
 public:
  // `holds[f]`: the shard has blocks of fragment f.
  CheckpointKeeper(std::vector<bool> holds, std::vector<ManifestFact> found);

  // Work that Next has not returned before.
  struct Work {
    std::vector<v1::Pin> to_write;
    std::vector<std::string> to_drop;
  };
  // `persisted(f)`: newest persisted version of fragment f.
  Work Next(const google::protobuf::RepeatedPtrField<v1::Pin>& pins,
            const std::function<int64_t(int32_t)>& persisted);

  void OnWritten(const std::string& pin_id);
  // True for RESOURCE_EXHAUSTED and UNAVAILABLE: a later attempt may succeed.
  static bool MayPass(const absl::Status& status);
  // A write or a drop failed. Next returns a drop again, and a write only if
  // MayPass. Otherwise the write's checkpoint breaks.
  void OnFailed(const std::string& pin_id, const absl::Status& status);
  void OnDropped(const std::string& pin_id) { kept_.erase(pin_id); }
  // A reader found a damaged version: checkpoints that name it are broken.
  void OnDamaged(int32_t fragment, int64_t version, absl::string_view why);

  bool IsDurable(const std::string& pin_id) const;
  // True while a manifest, written or due, names the version.
  bool Names(int32_t fragment, int64_t version) const;

  void Report(v1::ShardReport* report) const;

 private:
  enum class State { kMissing, kWriting, kDurable, kBroken, kDropping };
  struct Kept {
    State state = State::kMissing;
    int64_t commit_seq = 0;
    std::map<int32_t, int64_t> versions;
    std::string fault;
  };

  // The versions of the cut, of fragments that the shard has blocks of.
  std::map<int32_t, int64_t> ToVersions(const v1::Pin& pin) const;

  const std::vector<bool> holds_;
  std::map<std::string, Kept> kept_;  // By pin_id.
};

}  // namespace atl::server
