#include "server/merge/testing/merge_bench.h"

#include <utility>

#include "base/codec/crc32c.h"
#include "base/status/check.h"
#include "server/store/records/run_records.h"

namespace atl::server {
namespace {

v1::Run MakeRun(v1::Durability durability, v1::Codec up, v1::Codec down) {
  v1::Run run;
  run.set_run_id("run");
  run.set_run_epoch(1);
  v1::RunSpec* spec = run.mutable_spec();
  spec->mutable_layout()->set_fragment_count(1);
  v1::TensorSpec* tensor = spec->mutable_layout()->add_tensors();
  tensor->set_name("w");
  tensor->add_shape(MergeBench::kElements);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_NORMAL);
  tensor->mutable_init()->set_value(0.1);
  spec->mutable_init()->set_seed(3);
  spec->mutable_outer()->set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  spec->mutable_outer()->set_learning_rate(0.7);
  spec->mutable_outer()->set_momentum(0.9);
  spec->mutable_exchange()->set_up(up);
  spec->mutable_exchange()->set_down(down);
  spec->set_durability(durability);
  return run;
}

}  // namespace

MergeBench::MergeBench(v1::Durability durability, v1::Codec up, v1::Codec down,
                       int64_t memory_bytes)
    : pool(2), merger(pool), images(ImagePool::Create(memory_bytes)) {
  CHECK(CreateRun(records, MakeRun(durability, up, down), 0, 1).ok());
  Open();
  CHECK(merger.MakeVersion0(*store, *optimizer, 0).ok());
  CHECK(store->versions().PersistVersion0(0, 0).ok());
}

void MergeBench::Open() {
  store.reset();
  auto run = ReadRun(records);
  CHECK(run.ok());
  optimizer = *MakeOuterOptimizer(run->run().spec().outer());
  rule = *MakeMergeRule(run->run().spec().outer());
  auto opened = RunStore::Open(fs, records, "data", *run,
                               optimizer->state_count(), images);
  CHECK(opened.ok()) << opened.status();
  store = *std::move(opened);
}

void MergeBench::Store(const v1::ContributionInfo& info,
                       absl::string_view bytes) {
  const IndexRange blocks = store->range(0).blocks();
  const EncodedRange& range = store->encoded(0);
  CHECK(range.byte_count() == bytes.size());
  auto bound = store->contributions().Bind(info);
  CHECK(bound.ok());
  CHECK(!(*bound)->Claim(blocks).empty());
  CHECK((*bound)->Write(blocks, {bytes}).ok());
  std::vector<BlockFact> facts(blocks.size());
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    facts[b].crc32c = codec::Crc32c(
        bytes.substr(range.ByteOffset(b), range.ByteCount({b, b + 1})));
  }
  CHECK((*bound)->Settle(blocks, facts));
  CHECK(store->contributions().Finish(**bound).ok());
}

PreparedFact MergeBench::Merge(const v1::Seal& seal) {
  auto merged = merger.Merge(*store, *optimizer, *rule, seal);
  CHECK(merged.ok()) << merged.status();
  return *merged;
}

std::vector<float> MergeBench::Read(int64_t version, int array) {
  std::vector<float> elements(kElements);
  CHECK(store->versions()
            .Find(0, version)
            ->file->Read(array, store->range(0).blocks(), elements.data())
            .ok());
  return elements;
}

}  // namespace atl::server
