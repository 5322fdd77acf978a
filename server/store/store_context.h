// The context that the stores of one shard share: where the shard is kept, its
// run, and which blocks it holds.
//
// Immutable, so thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "server/core/contribution_key.h"
#include "server/store/encoded_range.h"
#include "server/store/records/record_store.h"
#include "server/store/records/server_records.pb.h"
#include "server/store/shard_names.h"
#include "server/store/shard_range.h"

namespace atl::server {

struct StoreContext {
  // `fs` and `records` must outlive it. `layout` is that of the run's spec.
  StoreContext(FileSystem& fs, RecordStore& records,
               const std::string& data_dir, const records::RunRecord& record,
               RunLayout layout);
  // The ranges point at `layout`.
  StoreContext(const StoreContext&) = delete;
  StoreContext& operator=(const StoreContext&) = delete;

  FileSystem& fs;
  RecordStore& records;
  const ShardNames names;
  const v1::Run run;
  const RunLayout layout;
  const int32_t shard;
  const int32_t shard_count;
  // How durable a contribution must be before its island hears OK.
  const Sync durability;
  // Durability `island`: contributions are merged as they arrive, not kept.
  const bool merges_live;

  // By fragment.
  const std::vector<ShardRange> ranges;
  const std::vector<EncodedRange> encoded_ranges;  // The run's codec up.
  const std::vector<EncodedRange> import_ranges;   // f32.

  // Where the blocks of a contribution of `key` lie. Imports are f32.
  const EncodedRange& FindEncoded(const ContributionKey& key) const {
    return key.is_import() ? import_ranges[key.fragment]
                           : encoded_ranges[key.fragment];
  }
  // True if `fragment` exists and the shard holds blocks of it.
  bool HoldsBlocks(int64_t fragment) const {
    return fragment >= 0 && fragment < layout.fragment_count() &&
           !ranges[fragment].empty();
  }
};

}  // namespace atl::server
