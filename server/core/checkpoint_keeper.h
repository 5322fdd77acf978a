// Which manifests of checkpoints a shard writes, and which it deletes.
//
// A checkpoint (a PIN that does not end) is durable on a shard when the shard's
// versions of its cut are, and a manifest beside them that names them. A
// manifest is deleted before the versions that it names are released.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.
//
//   missing --versions persisted--> writing --OnWritten--> durable
//   writing --OnFailed--> missing, or broken for good
//   any but writing --its PIN is gone--> dropping --OnDropped--> forgotten

#ifndef SERVER_CORE_CHECKPOINT_KEEPER_H_
#define SERVER_CORE_CHECKPOINT_KEEPER_H_

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

// A manifest that a start finds.
struct ManifestFact {
  std::string pin_id;
  int64_t run_epoch = 0;
  int64_t commit_seq = 0;
  // Versions that it names, by fragment; only of those the shard has blocks of.
  std::map<int32_t, int64_t> versions;
  // Why what it names cannot be read; empty if it can.
  std::string fault;
};

class CheckpointKeeper {
 public:
  // `holds[f]`: the shard has blocks of fragment f.
  CheckpointKeeper(std::vector<bool> holds, std::vector<ManifestFact> found);

  // What is to be done now and was not named before.
  struct Work {
    std::vector<v1::Pin> to_write;
    std::vector<std::string> to_drop;
  };
  // `persisted(f)`: newest persisted version of fragment f.
  Work Next(const google::protobuf::RepeatedPtrField<v1::Pin>& pins,
            int64_t run_epoch,
            const std::function<int64_t(int32_t)>& persisted);

  void OnWritten(const std::string& pin_id);
  // RESOURCE_EXHAUSTED and UNAVAILABLE: what failed may do better later.
  static bool MayPass(const absl::Status& status);
  // What may pass is named again. Else the checkpoint is broken here.
  void OnFailed(const std::string& pin_id, const absl::Status& status);
  void OnDropped(const std::string& pin_id) { kept_.erase(pin_id); }
  // A reader found a version damaged: checkpoints that name it are broken.
  void OnDamaged(int32_t fragment, int64_t version, absl::string_view why);

  // True while a manifest names the version, or is to name it.
  bool Names(int32_t fragment, int64_t version) const;

  // Adds what is durable or broken.
  void Report(v1::ShardReport* report) const;

 private:
  enum class State { kMissing, kWriting, kDurable, kBroken, kDropping };
  struct Kept {
    State state = State::kMissing;
    int64_t run_epoch = 0;
    int64_t commit_seq = 0;
    std::map<int32_t, int64_t> versions;
    std::string fault;
  };

  // What the shard has of a cut.
  std::map<int32_t, int64_t> ToVersions(const v1::Pin& pin) const;

  const std::vector<bool> holds_;
  std::map<std::string, Kept> kept_;  // By pin_id.
};

}  // namespace atl::server

#endif  // SERVER_CORE_CHECKPOINT_KEEPER_H_
