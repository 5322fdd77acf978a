#include "base/codec/block_run.h"

#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"

namespace atl::codec {
namespace {

// Calls `body(key, element offset, n, byte offset, bytes)` for every block.
// `values_size` and `encoded_size` are the sizes of the caller's spans.
template <typename Body>
absl::Status ForEachBlock(const Codec& codec, const BlockRun& run,
                          size_t values_size, size_t encoded_size, Body body) {
  size_t element = 0;
  size_t byte = 0;
  int64_t block = run.first_block;
  for (const int32_t count : run.element_counts) {
    if (count < 1 || count > kBlockElements) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", block, " has ", count, " elements"));
    }
    const size_t n = static_cast<size_t>(count);
    const size_t bytes = codec.EncodedBytes(n);
    if (values_size - element < n || encoded_size - byte < bytes) break;
    const BlockKey key{run.seed, static_cast<uint64_t>(run.first_element) +
                                     static_cast<uint64_t>(element)};
    const BlockFault fault = body(key, element, n, byte, bytes);
    if (fault != BlockFault::kNone) {
      return absl::InvalidArgumentError(absl::StrCat("block ", block, " (",
                                                     CodecName(codec.id()),
                                                     ") ", FaultText(fault)));
    }
    element += n;
    byte += bytes;
    ++block;
  }
  const int64_t end =
      run.first_block + static_cast<int64_t>(run.element_counts.size());
  if (block != end || element != values_size || byte != encoded_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "blocks ", run.first_block, " to ", end, " (", CodecName(codec.id()),
        ") do not have ", values_size, " elements in ", encoded_size,
        " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

size_t EncodedRunBytes(const Codec& codec, const BlockRun& run) {
  size_t bytes = 0;
  for (const int32_t count : run.element_counts) {
    bytes += codec.EncodedBytes(static_cast<size_t>(count));
  }
  return bytes;
}

void LoopInOrder(int64_t count, absl::FunctionRef<void(int64_t)> visit) {
  for (int64_t i = 0; i < count; ++i) visit(i);
}

absl::Status ForEachRun(
    const Loop& loop, const Codec& codec, absl::Span<const BlockRun> runs,
    absl::FunctionRef<absl::Status(const BlockRun& run, const RunPlace& place)>
        visit) {
  std::vector<RunPlace> places;
  places.reserve(runs.size());
  RunPlace place;
  for (const BlockRun& run : runs) {
    place.element_count = std::accumulate(run.element_counts.begin(),
                                          run.element_counts.end(), size_t{0});
    place.byte_count = EncodedRunBytes(codec, run);
    places.push_back(place);
    place.element += place.element_count;
    place.byte += place.byte_count;
  }
  std::vector<absl::Status> statuses(runs.size());
  loop(static_cast<int64_t>(runs.size()),
       [&](int64_t i) { statuses[i] = visit(runs[i], places[i]); });
  for (absl::Status& status : statuses) {
    if (!status.ok()) return std::move(status);
  }
  return absl::OkStatus();
}

absl::Status EncodeRun(const Codec& codec, const BlockRun& run,
                       absl::Span<const float> values,
                       absl::Span<char> encoded) {
  return ForEachBlock(codec, run, values.size(), encoded.size(),
                      [&](const BlockKey& key, size_t element, size_t n,
                          size_t byte, size_t bytes) {
                        return codec.Encode(key, values.subspan(element, n),
                                            encoded.subspan(byte, bytes));
                      });
}

absl::Status EncodeRunWithFeedback(const Codec& codec, const BlockRun& run,
                                   absl::Span<const float> gradient,
                                   float decay, absl::Span<const float> before,
                                   absl::Span<float> after,
                                   absl::Span<char> encoded) {
  if (before.size() != gradient.size() || after.size() != gradient.size()) {
    return absl::InvalidArgumentError(
        "error feedback and gradient differ in size");
  }
  return ForEachBlock(codec, run, gradient.size(), encoded.size(),
                      [&](const BlockKey& key, size_t element, size_t n,
                          size_t byte, size_t bytes) {
                        return codec.EncodeWithFeedback(
                            key, gradient.subspan(element, n), decay,
                            before.subspan(element, n),
                            after.subspan(element, n),
                            encoded.subspan(byte, bytes));
                      });
}

absl::Status DecodeRun(const Codec& codec, const BlockRun& run,
                       absl::string_view encoded, absl::Span<float> values) {
  return ForEachBlock(codec, run, values.size(), encoded.size(),
                      [&](const BlockKey&, size_t element, size_t n,
                          size_t byte, size_t bytes) {
                        return codec.Decode(encoded.substr(byte, bytes),
                                            values.subspan(element, n));
                      });
}

}  // namespace atl::codec
