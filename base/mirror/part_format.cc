#include "base/mirror/part_format.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/safetensors/safetensors.h"
#include "nlohmann/json.hpp"

namespace atl::mirror {
namespace {

constexpr char kFormat[] = "atoll checkpoint part 1";

IndexRange PartElements(const RunLayout& layout, const PartIdentity& part) {
  return layout.BlockElements(
      part.fragment,
      layout.ShardBlocks(part.fragment, part.shard, part.shard_count));
}

}  // namespace

std::vector<std::string> ArrayNames(int optimizer_state_count,
                                    bool has_replica) {
  std::vector<std::string> names = {kThetaName};
  for (int i = 0; i < optimizer_state_count; ++i) {
    names.emplace_back(i == 0 ? "m" : "v");
  }
  if (has_replica) names.emplace_back(kReplicaName);
  return names;
}

std::vector<PartRange> PartRanges(const RunLayout& layout,
                                  const PartIdentity& part) {
  const IndexRange elements = PartElements(layout, part);
  std::vector<PartRange> ranges;
  const std::vector<int32_t>& tensors = layout.fragment_tensors(part.fragment);
  // A manifest may claim many parts of many tensors: no loop over all of them.
  const auto begin = std::partition_point(
      tensors.begin(), tensors.end(), [&](int32_t index) {
        const TensorPlace& tensor = layout.tensors()[index];
        return tensor.fragment_offset + tensor.element_count <= elements.begin;
      });
  for (auto at = begin; at != tensors.end(); ++at) {
    const int32_t index = *at;
    const TensorPlace& tensor = layout.tensors()[index];
    const int64_t first = tensor.fragment_offset;
    if (first >= elements.end) break;
    const IndexRange common = {
        std::max(elements.begin, first) - first,
        std::min(elements.end, first + tensor.element_count) - first};
    if (!common.empty()) ranges.push_back({index, common});
  }
  return ranges;
}

int64_t PartElementCount(const RunLayout& layout, const PartIdentity& part) {
  return PartElements(layout, part).size();
}

std::string PartHeader(const RunLayout& layout, const PartIdentity& part) {
  const std::vector<PartRange> ranges = PartRanges(layout, part);
  nlohmann::ordered_json range_json = nlohmann::ordered_json::object();
  std::vector<SafetensorsEntry> entries;
  for (const std::string& array : part.array_names) {
    for (const PartRange& range : ranges) {
      const std::string& tensor = layout.tensors()[range.tensor].name;
      entries.push_back({.name = absl::StrCat(array, "/", tensor),
                         .shape = {range.elements.size()}});
      range_json[tensor] = {range.elements.begin, range.elements.end};
    }
  }
  const std::map<std::string, std::string> metadata = {
      {"format", kFormat},
      {"run_uid", part.place.run_uid},
      {"run_epoch", absl::StrCat(part.place.run_epoch)},
      {"commit_seq", absl::StrCat(part.place.commit_seq)},
      {"layout", absl::StrFormat("%016x", layout.fingerprint())},
      {"shard", absl::StrCat(part.shard)},
      {"shard_count", absl::StrCat(part.shard_count)},
      {"fragment", absl::StrCat(part.fragment)},
      {"version", absl::StrCat(part.version)},
      {"ranges", range_json.dump()},
  };
  return SafetensorsPreamble(entries, metadata);
}

}  // namespace atl::mirror
