// A store in memory for a run with one tensor, and a merger of its rounds.
// Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/io/testing/fake_file_system.h"
#include "server/merge/round_merger.h"
#include "server/store/shard_names.h"
#include "server/store/testing/memory_record_store.h"

namespace atl::server {

struct MergeBench {
  // The tensor: full blocks and a short one; more than a huge page.
  static constexpr int64_t kElements = 4096 * 150 + 77;

  // Paths of the shard.
  static ShardNames Names() { return ShardNames("data", "run", "", 0); }

  // Starts with version 0. `memory_bytes`: for images of versions. Any failure,
  // here and below, ends the process.
  MergeBench(v1::Durability durability, v1::Codec up, v1::Codec down,
             int64_t memory_bytes);

  // Reopens the store, as after a restart.
  void Open();

  void Store(const v1::ContributionInfo& info, absl::string_view bytes);

  PreparedFact Merge(const v1::Seal& seal);

  std::vector<float> Read(int64_t version, int array);

  FakeFileSystem fs;
  MemoryRecordStore records;
  TilePool pool;
  RoundMerger merger;
  std::shared_ptr<ImagePool> images;
  std::unique_ptr<OuterOptimizer> optimizer;
  std::unique_ptr<MergeRule> rule;
  std::unique_ptr<RunStore> store;
};

}  // namespace atl::server
