#include "server/store/store_context.h"

#include <utility>

#include "base/codec/codec.h"
#include "base/layout/exchange.h"

namespace atl::server {
namespace {

Sync ToSync(v1::Durability durability) {
  return durability == v1::DURABILITY_PROCESS ||
                 durability == v1::DURABILITY_ISLAND
             ? Sync::kProcess
             : Sync::kMachine;
}

std::vector<EncodedRange> EncodeRanges(const std::vector<ShardRange>& ranges,
                                       const codec::Codec& codec) {
  std::vector<EncodedRange> encoded;
  for (const ShardRange& range : ranges) encoded.emplace_back(range, codec);
  return encoded;
}

std::vector<ShardRange> ComputeRanges(const RunLayout& layout, int32_t shard,
                                      int32_t shard_count) {
  std::vector<ShardRange> ranges;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    ranges.emplace_back(layout, f, shard, shard_count);
  }
  return ranges;
}

}  // namespace

StoreContext::StoreContext(FileSystem& fs_in, RecordStore& records_in,
                           const std::string& data_dir,
                           const records::RunRecord& record,
                           RunLayout layout_in)
    : fs(fs_in),
      records(records_in),
      names(data_dir, record.run().run_id(), record.run().run_uid(),
            record.shard()),
      run(record.run()),
      layout(std::move(layout_in)),
      shard(record.shard()),
      shard_count(record.shard_count()),
      durability(ToSync(run.spec().durability())),
      merges_live(run.spec().durability() == v1::DURABILITY_ISLAND),
      ranges(ComputeRanges(layout, shard, shard_count)),
      encoded_ranges(EncodeRanges(ranges, UpCodec(run.spec()))),
      import_ranges(
          EncodeRanges(ranges, codec::GetCodec(codec::CodecId::kF32))) {}

}  // namespace atl::server
