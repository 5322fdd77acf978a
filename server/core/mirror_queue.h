// Chooses which checkpoint a shard copies to the mirror next: the newest one
// that is durable here and not in the mirror.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::server {

class MirrorQueue {
 public:
  // The checkpoint to upload now; nullopt: none, or the one that Next returned
  // last, whose upload has not ended. An upload of an older one may continue,
  // and its OnMirrored counts. `is_durable(pin_id)`: the shard holds it.
  std::optional<v1::Pin> Next(
      const google::protobuf::RepeatedPtrField<v1::Pin>& pins,
      const std::function<bool(const std::string&)>& is_durable);

  // All of the shard's parts of a checkpoint are in the mirror. `parts`: by
  // fragment; may be empty.
  void OnMirrored(const v1::Pin& pin, std::vector<v1::MirroredPart> parts,
                  std::vector<std::string> array_names);

  // Adds what OnMirrored said of `checkpoint`, which names pin and commit.
  void AddTo(v1::ShardCheckpoint& checkpoint) const;

 private:
  struct Done {
    int64_t commit_seq = 0;
    std::vector<v1::MirroredPart> parts;
    std::vector<std::string> array_names;
  };
  bool IsDone(const v1::Pin& pin) const;

  std::map<std::string, Done> done_;  // By pin_id.
  int64_t newest_ = 0;  // commit_seq of what Next returned last; 0: it ended.
};

}  // namespace atl::server
