#include "base/mirror/testing/small_checkpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/layout/digest.h"
#include "base/mirror/mirror_manifest.h"
#include "base/status/status_macros.h"

namespace atl::mirror {
namespace {

void AddTensor(v1::Layout& layout, int32_t fragment, int64_t element_count) {
  v1::TensorSpec* tensor = layout.add_tensors();
  tensor->set_name(absl::StrCat("t", layout.tensors_size()));
  tensor->add_shape(element_count);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->set_fragment(fragment);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
}

}  // namespace

v1::Layout SmallLayout() {
  v1::Layout layout;
  layout.set_fragment_count(2);
  AddTensor(layout, 0, 10'000);
  AddTensor(layout, 1, 4'097);
  AddTensor(layout, 0, 5);
  AddTensor(layout, 0, 300'000);
  return layout;
}

std::vector<float> SmallParameters(const RunLayout& layout) {
  std::vector<float> parameters;
  for (int64_t i = 0; i < layout.element_count(); ++i) {
    parameters.push_back(static_cast<float>(i) / 16);
  }
  return parameters;
}

std::vector<float> SmallElements(const RunLayout& layout,
                                 const PartIdentity& part, int array) {
  const std::vector<float> parameters = SmallParameters(layout);
  std::vector<float> elements;
  for (const PartRange& range : PartRanges(layout, part)) {
    const auto begin = parameters.begin() +
                       layout.tensors()[range.tensor].model_offset;
    for (int64_t i = range.elements.begin; i < range.elements.end; ++i) {
      elements.push_back(begin[i] - 1000.0f * static_cast<float>(array));
    }
  }
  return elements;
}

storage::v1::MirrorManifest SmallManifest(const RunLayout& layout) {
  storage::v1::MirrorManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_run_id("run");
  manifest.set_run_uid("0123456789abcdef0123456789abcdef");
  manifest.set_run_epoch(2);
  *manifest.mutable_spec()->mutable_layout() = SmallLayout();
  manifest.set_shard_count(kSmallShardCount);
  for (const std::string& name : ArrayNames(1, false)) {
    manifest.add_array_names(name);
  }
  v1::Pin& pin = *manifest.mutable_pin();
  pin.set_commit_seq(5);
  pin.set_pin_id("round-2");
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    PartIdentity whole{.shard_count = 1, .fragment = f};
    v1::FragmentVersion& version = *pin.add_cut();
    version.set_fragment(f);
    version.set_version(f + 1);
    version.set_commit_seq(f + 3);
    *version.mutable_digest() =
        RangeDigest(layout, f, {0, layout.fragment_block_count(f)},
                    SmallElements(layout, whole, 0))
            .ToProto();
  }
  return manifest;
}

std::string SmallPart(const RunLayout& layout, const PartIdentity& part) {
  std::string bytes = PartHeader(layout, part);
  for (size_t array = 0; array < part.array_names.size(); ++array) {
    const std::vector<float> elements =
        SmallElements(layout, part, static_cast<int>(array));
    bytes.append(reinterpret_cast<const char*>(elements.data()),
                 elements.size() * sizeof(float));
  }
  return bytes;
}

absl::Status PutSmallCheckpoint(ObjectStore& store,
                                storage::v1::MirrorManifest& manifest) {
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(manifest.spec().layout()));
  for (int32_t shard = 0; shard < manifest.shard_count(); ++shard) {
    for (int32_t f = 0; f < layout.fragment_count(); ++f) {
      storage::v1::MirrorPart part;
      part.set_shard(shard);
      part.set_fragment(f);
      const PartIdentity identity = GetIdentity(manifest, part);
      if (PartElementCount(layout, identity) == 0) continue;
      const std::string bytes = SmallPart(layout, identity);
      part.set_sha256(codec::ToHex(codec::ComputeSha256(bytes)));
      part.set_size_bytes(static_cast<int64_t>(bytes.size()));
      RETURN_IF_ERROR(PutObject(
          store, PartName(identity.place, shard, f, part.sha256()), bytes,
          WriteMode::kReplace));
      *manifest.add_parts() = part;
    }
  }
  return PutObject(store, ManifestName(GetPlace(manifest)),
                   ManifestToJson(manifest), WriteMode::kReplace);
}

}  // namespace atl::mirror
